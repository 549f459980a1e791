//! Something mounted, unmounted on drop.

use std::ffi::CString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, MountFlags, UnmountFlags};

use crate::context::Context;

/// How long an unmount may find the file system busy, for instance because a
/// child of a parallel test has not yet reached its exec.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);

/// A mounted folder, unmounted on drop: properly if it comes free soon, else
/// by detaching it, which is said on standard error.
#[derive(Debug)]
pub(crate) struct MountPoint {
    path: PathBuf,
}

impl MountPoint {
    /// Mounts `source` at `path`, an existing folder.
    pub(crate) fn new(
        source: &Path,
        path: &Path,
        filesystem: &str,
        options: &str,
    ) -> io::Result<Self> {
        // Reading must not make anything dirty.
        let flags = MountFlags::NOATIME;
        let options = CString::new(options)?;
        rustix::mount::mount(source, path, filesystem, flags, options.as_c_str())
            .map_err(io::Error::from)
            .context(|| {
                let (source, path) = (source.display(), path.display());
                format!("mounting {source} as {filesystem} at {path}")
            })?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Mounts a tmpfs of a size at `path`.
    pub(crate) fn tmpfs(path: &Path, size_bytes: u64) -> io::Result<Self> {
        Self::new(
            Path::new("tmpfs"),
            path,
            "tmpfs",
            &format!("size={size_bytes}"),
        )
    }

    /// Changes the size of a tmpfs.
    pub(crate) fn resize_tmpfs(&self, size_bytes: u64) -> io::Result<()> {
        let options = format!("size={size_bytes}");
        rustix::mount::mount_remount(&self.path, MountFlags::NOATIME, options)
            .map_err(io::Error::from)
            .context(|| format!("resizing the tmpfs at {}", self.path.display()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        let start = Instant::now();
        while let Err(error) = rustix::mount::unmount(&self.path, UnmountFlags::empty()) {
            match error {
                // Not mounted any more: the test did it by itself.
                Errno::INVAL | Errno::NOENT => return,
                Errno::BUSY if start.elapsed() < BUSY_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => {
                    let path = self.path.display();
                    let _ = writeln!(io::stderr(), "detaching {path}, still in use: {error}");
                    detach(&self.path);
                    return;
                }
            }
        }
    }
}

/// Takes a mount out of the tree; the kernel ends it when nobody uses it.
pub(crate) fn detach(path: &Path) {
    // Whoever calls this has nothing better left to do on failure.
    let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
}

/// Makes the kernel look for a file system type, loading its module if need
/// be; answers whether it knows the type. Nothing is mounted.
pub(crate) fn load_filesystem(name: &str) -> bool {
    rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
}
