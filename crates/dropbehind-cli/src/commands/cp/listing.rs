//! What is in a directory.

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The size of the buffer for getdents64(2).
const BUFFER_BYTES: usize = 32 << 10;

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: PathBuf,
    /// What the directory said it was; whoever opens it checks again.
    pub(super) kind: FileType,
    inode: u64,
}

/// All names in a directory, in reverse order of their inodes, so that `pop` takes the first.
/// That is the order on the disk, on most file systems, while names are in no order there.
pub(super) fn entries(directory: &File) -> Result<Vec<Entry>, Errno> {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut listing = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push(Entry {
                name: OsStr::from_bytes(name).into(),
                kind: entry.file_type(),
                inode: entry.ino(),
            });
        }
    }
    entries.sort_unstable_by_key(|entry| Reverse(entry.inode));
    Ok(entries)
}
