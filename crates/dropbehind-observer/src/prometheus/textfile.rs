//! Metrics in a file, for the node exporter's textfile collector.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a text where the node exporter's textfile collector reads it. A reader of `path` finds
/// the old text or the new one, whole.
///
/// The name must end in `.prom`, or the collector skips it.
///
/// # Errors
///
/// Those of writing into the directory of `path`.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // Hidden, and without the ending that the collector looks for.
    let temporary = path.with_file_name(format!(
        ".{}.{}.tmp",
        name.to_string_lossy(),
        std::process::id()
    ));
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Whatever is in it, it is of no use.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Not synced: after a crash of the machine the figures are old anyway.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let open = || -> io::Result<File> {
        // A new file, so that no link that somebody put there is followed. Everybody can read
        // it: the exporter runs as another user.
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)
    };
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // It was left by a dead process that had our number.
            fs::remove_file(path)?;
            open()?
        }
        other => other?,
    };
    file.write_all(text.as_bytes())
}
