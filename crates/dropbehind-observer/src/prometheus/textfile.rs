//! Metrics in a file, for the node exporter's textfile collector.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a text where the node exporter's textfile collector reads it: whoever
/// reads `path` finds the old text or the new one, whole.
///
/// The name is to end in `.prom`, or the collector passes it over.
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
        // Whatever became of it, it is of no use.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Not synced: after a crash of the machine the figures are old anyway.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let open = || -> io::Result<File> {
        // New, so that a link somebody put there is not followed. The exporter
        // runs as another user.
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)
    };
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Of a process with our number, which is dead.
            fs::remove_file(path)?;
            open()?
        }
        other => other?,
    };
    file.write_all(text.as_bytes())
}
