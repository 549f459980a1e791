//! Files that get their names when they are complete.

use crate::place::proc_path;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// The name that a file is to get. Dropped before that, it leaves nothing of the file.
#[derive(Debug)]
pub(crate) struct Unnamed {
    directory: File,
    name: PathBuf,
    /// The name that it has until then, where the file system has no files without one.
    temporary: Option<PathBuf>,
}

impl Unnamed {
    /// Makes a file that is to have this name, relative to an open directory.
    pub(crate) fn make(
        directory: BorrowedFd<'_>,
        path: &Path,
        permissions: u32,
    ) -> Result<(File, Self), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?.into();
        let parent = path.parent().filter(|path| *path != Path::new(""));
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::openat(directory, parent, flags, Mode::empty())?);
        let mode = Mode::from_raw_mode(permissions);
        let write = OFlags::WRONLY | OFlags::CLOEXEC;
        let here = Path::new(".");
        match rustix::fs::openat(&directory, here, OFlags::TMPFILE | write, mode) {
            Ok(file) => {
                let unnamed = Self {
                    directory,
                    name,
                    temporary: None,
                };
                return Ok((file.into(), unnamed));
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        let mut made = None;
        let temporary = take_name(|temporary| {
            let flags = write | OFlags::CREATE | OFlags::EXCL;
            made = Some(rustix::fs::openat(&directory, temporary, flags, mode)?);
            Ok(())
        })?;
        let file = made.ok_or(Errno::IO)?;
        let unnamed = Self {
            directory,
            name,
            temporary: Some(temporary),
        };
        Ok((file.into(), unnamed))
    }

    /// Gives the file its name, in the place of whatever has it.
    pub(crate) fn publish(mut self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let link = |name: &Path| {
            let flags = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(CWD, proc_path(file), &self.directory, name, flags)
        };
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => match link(&self.name) {
                Err(Errno::EXIST) => take_name(link)?,
                linked => return linked,
            },
        };
        let directory = &self.directory;
        let renamed = rustix::fs::renameat(directory, &temporary, directory, &self.name);
        if renamed.is_err() {
            self.temporary = Some(temporary);
        }
        renamed
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = rustix::fs::unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

/// Makes something under a name that nothing else has, and returns the name.
pub(crate) fn take_name(
    mut make: impl FnMut(&Path) -> Result<(), Errno>,
) -> Result<PathBuf, Errno> {
    for number in 0_u32.. {
        let name = PathBuf::from(format!(".dropbehind-{}-{number}", std::process::id()));
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return made.map(|()| name),
        }
    }
    Err(Errno::EXIST)
}
