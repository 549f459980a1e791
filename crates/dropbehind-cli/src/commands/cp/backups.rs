//! The names of backups, and what is moved to them.

use super::listing::entries;
use crate::place::Place;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How backups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// `FILE~`.
    Simple,
    /// Numbered if there are numbered ones, else simple.
    Existing,
    /// `FILE.~1~`.
    Numbered,
}

/// The backups of a run.
#[derive(Clone, Debug)]
pub(super) struct Backups {
    control: Control,
    suffix: OsString,
}

impl Backups {
    /// A suffix that holds a slash would name another directory, and is not used.
    pub(super) fn new(control: Control, suffix: Option<OsString>) -> Self {
        let usable = |suffix: &OsString| !suffix.is_empty() && !suffix.as_bytes().contains(&b'/');
        let suffix = suffix
            .or_else(|| std::env::var_os("SIMPLE_BACKUP_SUFFIX"))
            .filter(usable)
            .unwrap_or_else(|| "~".into());
        Self { control, suffix }
    }

    /// Whether a file is the simple backup of another: making that would destroy the file.
    pub(super) fn would_be(&self, name: &OsStr, of: &OsStr) -> bool {
        let mut backup = of.to_owned();
        backup.push(&self.suffix);
        self.control != Control::Numbered && name == backup
    }

    /// The name that something gets as a backup, beside it.
    pub(super) fn name(&self, place: &Place<'_>) -> Result<PathBuf, Errno> {
        let number = match self.control {
            Control::Simple => None,
            Control::Existing => last_number(place)?,
            Control::Numbered => Some(last_number(place)?.unwrap_or(0)),
        };
        let mut name = place.name.as_os_str().to_owned();
        match number {
            Some(number) => name.push(format!(".~{}~", number + 1)),
            None => name.push(&self.suffix),
        }
        Ok(name.into())
    }

    /// Moves what is there to its backup, and returns the name.
    pub(super) fn make(&self, place: &Place<'_>) -> Result<PathBuf, Errno> {
        let mut name = self.name(place)?;
        // Somebody else may make the same one.
        while self.control != Control::Simple && name.as_os_str().as_bytes().ends_with(b"~") {
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            let (from, to) = (place.name, name.as_path());
            match rustix::fs::renameat_with(place.directory, from, place.directory, to, flags) {
                Ok(()) => return Ok(name),
                Err(Errno::EXIST) if last_number(place)?.is_some() => name = self.name(place)?,
                // The file system lacks the flag, or the backup is a simple one.
                Err(Errno::INVAL | Errno::EXIST) => break,
                Err(errno) => return Err(errno),
            }
        }
        rustix::fs::renameat(place.directory, place.name, place.directory, &name)?;
        Ok(name)
    }
}

/// The highest number of a backup, if there is a numbered one.
fn last_number(place: &Place<'_>) -> Result<Option<u64>, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let parent = place.name.parent().filter(|path| *path != Path::new(""));
    let directory = parent.unwrap_or(Path::new("."));
    let directory = rustix::fs::openat(place.directory, directory, flags, Mode::empty())?;
    let Some(name) = place.name.file_name() else {
        return Ok(None);
    };
    let found = entries(&File::from(directory))?;
    let numbers = found.iter().filter_map(|entry| {
        let rest = entry.name.as_os_str().as_bytes();
        let rest = rest.strip_prefix(name.as_bytes())?;
        let digits = rest.strip_prefix(b".~")?.strip_suffix(b"~")?;
        let text = std::str::from_utf8(digits).ok()?;
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        text.parse().ok().filter(|_| is_number)
    });
    Ok(numbers.max())
}

/// The path of a backup, for messages.
pub(super) fn shown_path(place: &Place<'_>, backup: &Path) -> PathBuf {
    match backup.file_name() {
        Some(name) => place.path.with_file_name(name),
        None => backup.to_owned(),
    }
}

/// Whether two names of the command line are one entry of one directory.
pub(super) fn is_same_name(one: &Place<'_>, other: &Place<'_>) -> bool {
    let name = |place: &Place<'_>| place.name.file_name().map(OsStr::to_owned);
    let parent = |place: &Place<'_>| {
        let parent = place.name.parent().filter(|path| *path != Path::new(""));
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(place.directory, parent, flags, Mode::empty());
        let stat = opened.and_then(rustix::fs::fstat).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    name(one) == name(other) && parent(one).is_some() && parent(one) == parent(other)
}
