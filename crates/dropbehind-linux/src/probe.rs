//! What works here, found by trying.
//!
//! Neither the kernel's version nor a file system's name is enough: distributions backport
//! features, sandboxes refuse calls, and some file systems accept a call and do nothing. So
//! each call is made on a scratch file, and its effect is counted.

mod blocks;
mod page_count;
mod reading_trial;
mod scratch_file;
mod support;
mod threads;
mod uncached_io;
mod writing_trial;

pub use support::Support;

use crate::disk::DiskInfo;
use crate::file::FsKind;
use crate::kernel::KernelVersion;
use reading_trial::probe_by_reading;
use rustix::io::Errno;
use scratch_file::ScratchFile;
use std::io;
use std::path::Path;

/// The scratch file's size: enough to tell "some" from "all", and little to write.
const SCRATCH_PAGES: u64 = 64;

/// What [`probe()`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The running kernel.
    pub kernel: KernelVersion,
    /// The file system that was probed.
    pub filesystem: FsKind,
    /// The disk below it.
    pub disk: DiskInfo,
    /// cachestat(2), and whether it counts what was just written.
    pub cachestat: Support,
    /// mincore(2), and whether it sees what was just written.
    pub mincore: Support,
    /// sync_file_range(2), and whether it starts writeback.
    pub sync_file_range: Support,
    /// posix_fadvise(2) `DONTNEED`, and whether it drops clean pages.
    pub fadvise_dontneed: Support,
    /// `RWF_DONTCACHE` for writing a new file, and whether its pages are dropped.
    pub dontcache_write: Support,
    /// `RWF_DONTCACHE` for writing over allocated blocks, and whether the pages are dropped.
    pub dontcache_overwrite: Support,
    /// `RWF_DONTCACHE` for reading, and whether the pages are dropped.
    pub dontcache_read: Support,
    /// `FS_IOC_FIEMAP`.
    pub fiemap: Support,
    /// `O_DIRECT`.
    pub direct_io: Support,
    /// Our own description of an open file, see [`reopen()`](crate::reopen()).
    pub own_description: Support,
    /// A separate descriptor table for a thread.
    pub descriptor_table: Support,
    /// ioprio_set(2).
    pub io_priority: Support,
}

/// Finds out what works for the files in a directory, for a file (tried in its directory; the
/// file itself is not written), or for a block device (which is only read).
///
/// Creates an unnamed scratch file of 64 pages (`O_TMPFILE`, or one that is unlinked at
/// once), writes it, and watches what each call does to its pages. Leaves nothing behind.
/// Takes some tens of milliseconds, and up to some seconds if calls have no effect.
///
/// If no scratch file can be used, whatever needs only reading is tried on the file
/// itself, and the rest is [`Support::Untested`].
///
/// # Errors
///
/// - Those of open(2) and stat(2) for the path.
/// - `EINVAL`: neither a directory, a regular file nor a block device.
pub fn probe(path: &Path) -> io::Result<Probe> {
    // A relative path's last component, or a link's, doesn't show its directory.
    let path = path.canonicalize()?;
    let kind = std::fs::metadata(&path)?.file_type();
    let directory = if kind.is_dir() {
        Some(path.as_path())
    } else if kind.is_file() {
        path.parent()
    } else {
        None
    };
    if let Some(directory) = directory {
        // On SMB a file without a name can be opened, and then not even be looked at.
        let tried = ScratchFile::new(directory).and_then(|scratch| scratch.probe(directory));
        return tried.or_else(|error| {
            let why =
                format!("no scratch file works there ({error}); name a folder you may write to");
            probe_by_reading(&path, &why)
        });
    }
    if std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
        return probe_by_reading(&path, "a block device is not written for trying");
    }
    Err(Errno::INVAL.into())
}
