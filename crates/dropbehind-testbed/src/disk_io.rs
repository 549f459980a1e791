//! Bytes that really moved between memory and disks.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::context::Context;

/// The disk's block in `/sys/block/*/stat` counts in units of this size,
/// whatever the disk's own block size.
const SECTOR_BYTES: u64 = 512;

/// What a process made disks do, from `/proc/PID/io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Bytes read from disks on its behalf.
    pub read_bytes: u64,
    /// Bytes it dirtied that have to go to a disk, counted when dirtied.
    pub written_bytes: u64,
    /// Bytes it dirtied and that were then dropped before they were written.
    pub cancelled_bytes: u64,
}

/// What a disk did since it came up, from its `stat` in sysfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskIo {
    /// Read requests completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl DiskIo {
    /// What happened after `earlier` was taken.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
        }
    }
}

/// The disk traffic of a process and all its threads, so far.
pub fn process_io(pid: u32) -> io::Result<ProcessIo> {
    let path = format!("/proc/{pid}/io");
    let text = fs::read_to_string(&path).context(|| &path)?;
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse().ok())
            .ok_or_else(|| io::Error::other(format!("{path} has no {name}")))
    };
    Ok(ProcessIo {
        read_bytes: field("read_bytes")?,
        written_bytes: field("write_bytes")?,
        cancelled_bytes: field("cancelled_write_bytes")?,
    })
}

/// The traffic of a disk: of a block device, or of the one that a file lies
/// on. btrfs and overlayfs files have no such disk; name the device instead.
pub fn disk_io(path: &Path) -> io::Result<DiskIo> {
    let metadata = fs::metadata(path).context(|| path.display().to_string())?;
    let is_disk = metadata.file_type().is_block_device();
    let number = if is_disk {
        metadata.rdev()
    } else {
        metadata.dev()
    };
    let stat = format!(
        "/sys/dev/block/{}:{}/stat",
        libc::major(number),
        libc::minor(number)
    );
    let text = fs::read_to_string(&stat).context(|| format!("{}: {stat}", path.display()))?;
    let fields: Vec<u64> = text
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let &[reads, _, sectors_read, _, writes, _, sectors_written, ..] = fields.as_slice() else {
        return Err(io::Error::other(format!("{stat} holds {text:?}")));
    };
    Ok(DiskIo {
        reads,
        read_bytes: sectors_read * SECTOR_BYTES,
        writes,
        written_bytes: sectors_written * SECTOR_BYTES,
    })
}
