//! Size, permissions, times and locks, as [`std::fs::File`] has them.

use std::fs::{self, FileTimes, Permissions, TryLockError};
use std::io;
use std::time::SystemTime;

use crate::file::File;

impl File {
    /// The file's metadata.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        self.file().metadata()
    }

    /// Sets the file's size.
    ///
    /// # Errors
    /// Those of `ftruncate(2)`.
    pub fn set_len(&self, size_bytes: u64) -> io::Result<()> {
        self.resize(size_bytes)
    }

    /// Changes the file's permissions.
    ///
    /// # Errors
    /// Those of `fchmod(2)`.
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.file().set_permissions(permissions)
    }

    /// Changes the file's timestamps. What is still dirty and was written through a mapping may
    /// change them again.
    ///
    /// # Errors
    /// Those of `futimens(2)`.
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.file().set_times(times)
    }

    /// Changes the time of the last modification.
    ///
    /// # Errors
    /// Those of `futimens(2)`.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.file().set_modified(time)
    }

    /// Waits for an exclusive advisory lock (`flock(2)`), as [`std::fs::File::lock`] does.
    ///
    /// # Errors
    /// Those of `flock(2)`.
    pub fn lock(&self) -> io::Result<()> {
        self.file().lock()
    }

    /// Waits for a shared advisory lock.
    ///
    /// # Errors
    /// Those of `flock(2)`.
    pub fn lock_shared(&self) -> io::Result<()> {
        self.file().lock_shared()
    }

    /// Takes an exclusive advisory lock if that is possible at once.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another open file holds the lock; otherwise those of
    /// `flock(2)`.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.file().try_lock()
    }

    /// Takes a shared advisory lock if that is possible at once.
    ///
    /// # Errors
    /// As for [`File::try_lock`].
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.file().try_lock_shared()
    }

    /// Gives the lock back. Closing the last clone does the same.
    ///
    /// # Errors
    /// Those of `flock(2)`.
    pub fn unlock(&self) -> io::Result<()> {
        self.file().unlock()
    }
}
