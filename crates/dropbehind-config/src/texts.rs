//! The files that a configuration is made of: the one that is named, and those in the folder
//! beside it, where packages and tools can add theirs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::problem::FileError;
use crate::shown;

/// The largest file: patterns take memory.
const LARGEST_BYTES: u64 = 1 << 20;

/// One file's text.
#[derive(Clone, Debug)]
pub struct ConfigText {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// The folder of a configuration file: its path with `.d` in place of its ending, as
/// `/etc/dropbehind.d` of `/etc/dropbehind.toml`.
pub fn folder_of(path: &Path) -> PathBuf {
    path.with_extension("d")
}

/// Reads a file, and then those of its [folder](folder_of) that end in `.toml`, in the order of
/// their names; each of at most 1 MiB. The folder need not be there. If it has files, the first file
/// need not be there, either, and counts as empty.
///
/// # Errors
/// The first file that cannot be read, or is larger or not UTF-8; or the folder, if it cannot be
/// read, or belongs to somebody else than root and the file's owner.
pub fn read_texts(path: &Path) -> Result<Vec<ConfigText>, FileError> {
    let drop_ins = drop_ins(path)?;
    let mut texts = vec![read_first(path, &drop_ins)?];
    for path in drop_ins {
        texts.push(read_text(&path)?);
    }
    Ok(texts)
}

/// The same of what can be read.
pub(crate) fn readable_texts(path: &Path) -> Vec<ConfigText> {
    let others = drop_ins(path).unwrap_or_default();
    let Ok(first) = read_first(path, &others) else {
        return Vec::new();
    };
    let others = others.iter().filter_map(|path| read_text(path).ok());
    std::iter::once(first).chain(others).collect()
}

fn read_first(path: &Path, others: &[PathBuf]) -> Result<ConfigText, FileError> {
    match read_text(path) {
        Err(FileError::Unreadable(path, error))
            if error.kind() == io::ErrorKind::NotFound && !others.is_empty() =>
        {
            let text = String::new();
            Ok(ConfigText { path, text })
        }
        first => first,
    }
}

fn drop_ins(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let folder = folder_of(path);
    let unreadable = |error| FileError::Unreadable(folder.clone(), error);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if is_no_folder(&error) => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    // Where everybody may make folders, as in /tmp, anybody may have made this one, or a link.
    let owner = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.uid());
    let of_folder = fs::metadata(&folder).map_err(unreadable)?;
    let owners = [of_folder.uid(), owner(&folder).map_err(unreadable)?];
    let of_file = fs::metadata(path).map(|metadata| metadata.uid()).ok();
    if owners
        .iter()
        .any(|owner| *owner != 0 && of_file != Some(*owner))
    {
        let why = format!("it belongs to another user than {}", shown(path));
        return Err(unreadable(io::Error::other(why)));
    }
    if of_folder.mode() & 0o002 != 0 {
        return Err(unreadable(io::Error::other(
            "everybody may write to it: chmod o-w",
        )));
    }
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>().map_err(unreadable)?;
    let is_meant = |path: &PathBuf| {
        // An editor's own files begin with a dot. A name that is nothing but an ending has none.
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_bytes()[0] == b'.');
        !is_hidden && path.extension().is_some_and(|ending| ending == "toml")
    };
    paths.retain(is_meant);
    paths.sort();
    Ok(paths)
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn read_text(path: &Path) -> Result<ConfigText, FileError> {
    let read = || {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(LARGEST_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > LARGEST_BYTES {
            return Err(io::Error::other("it has more than 1 MiB"));
        }
        Ok(text)
    };
    let text = read().map_err(|error| FileError::Unreadable(path.to_owned(), error))?;
    Ok(ConfigText {
        path: path.to_owned(),
        text,
    })
}
