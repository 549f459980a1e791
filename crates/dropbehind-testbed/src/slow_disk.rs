//! A disk that is as slow and as broken as a test wants, and that remembers
//! every request.
//!
//! The disk itself is `dropbehind-slowdisk`'s: a process of its own serves one
//! file over FUSE out of its memory. Here a loop device makes a block device of
//! it, with direct I/O, so that nothing is cached below the device.

use std::fs::OpenOptions;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::helper_process::{self, Role};
use crate::loop_disk::LoopDevice;
use crate::{Fs, MountedFs, Need};
use dropbehind_slowdisk::DiskServer;

pub use dropbehind_slowdisk::{Failing, Request, RequestKind};

pub(crate) use dropbehind_slowdisk::server_main;

/// What a [`SlowDisk`] is like from the start.
#[derive(Clone, Debug)]
pub struct SlowDiskOptions {
    /// Its size. It lies in memory, as far as it is written to.
    pub size_bytes: u64,
    /// Speed of writes; `None` is as fast as it goes, 0 a disk that hangs.
    pub write_bytes_per_second: Option<u64>,
    /// Speed of reads, likewise. Reads and writes queue at the same disk.
    pub read_bytes_per_second: Option<u64>,
    /// What each request takes besides; requests wait for it side by side.
    pub latency: Duration,
}

impl Default for SlowDiskOptions {
    fn default() -> Self {
        Self {
            size_bytes: 1 << 30,
            write_bytes_per_second: None,
            read_bytes_per_second: None,
            latency: Duration::ZERO,
        }
    }
}

/// A block device with settable speed, latency and faults, and a record of
/// what reached it. All settings can be changed at any time.
///
/// Clones are the same disk; it goes away with the last of them and the file
/// systems mounted from it. Before that it stops being slow and hanging, so
/// that no unmount takes for ever.
#[derive(Clone, Debug)]
pub struct SlowDisk {
    disk: Arc<ServedDisk>,
}

#[derive(Debug)]
struct ServedDisk {
    // Dropped in this order: closing the device may still write to it.
    device: LoopDevice,
    server: DiskServer,
}

impl SlowDisk {
    /// What a machine must have for this bed.
    pub fn needs() -> Vec<Need> {
        vec![Need::Root, Need::Fuse, Need::Loop]
    }

    /// Starts the disk's server and attaches the device.
    pub fn new(options: SlowDiskOptions) -> io::Result<Self> {
        let server =
            DiskServer::start(helper_process::command(Role::SlowDisk), options.size_bytes)?;
        let image = server.image();
        let backing = OpenOptions::new()
            .read(true)
            .write(true)
            .open(image)
            .context(|| format!("opening {}", image.display()))?;
        let device = LoopDevice::attach(&backing)?;
        let disk = Self {
            disk: Arc::new(ServedDisk { device, server }),
        };
        disk.set_write_speed(options.write_bytes_per_second)?;
        disk.set_read_speed(options.read_bytes_per_second)?;
        disk.set_latency(options.latency)?;
        Ok(disk)
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        self.disk.device.path()
    }

    /// Formats the disk and mounts it. That happens at full speed and is not
    /// in the record.
    pub fn mount(&self, filesystem: Fs) -> io::Result<MountedFs> {
        self.set_hurry(true)?;
        let carrier = Carrier { disk: self.clone() };
        let mounted = MountedFs::on_disk(filesystem, self.device(), carrier)?;
        self.set_hurry(false)?;
        self.forget_requests()?;
        let disk = self.clone();
        Ok(mounted.before_unmount(move || {
            // Without its server the disk answers with errors, and at once.
            let _ = disk.set_hurry(true);
        }))
    }

    /// Has all requests that arrive from now on fail with EIO, or none.
    pub fn set_failing(&self, failing: bool) -> io::Result<()> {
        self.fail(if failing {
            Failing::All
        } else {
            Failing::Nothing
        })
    }

    /// Bytes written to the disk so far, without writes that failed or wait.
    pub fn written_bytes(&self) -> io::Result<u64> {
        let done = |one: &Request| one.kind == RequestKind::Write && one.succeeded();
        Ok(self
            .requests()?
            .iter()
            .filter(|one| done(one))
            .map(|one| one.length)
            .sum())
    }
}

/// Its settings, and the record.
impl Deref for SlowDisk {
    type Target = DiskServer;

    fn deref(&self) -> &DiskServer {
        &self.disk.server
    }
}

/// What a mounted file system keeps of its disk.
struct Carrier {
    disk: SlowDisk,
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // The unmount is over, or the mount failed: be slow again.
        let _ = self.disk.set_hurry(false);
    }
}

impl Drop for ServedDisk {
    fn drop(&mut self) {
        // The last close of the device writes its dirty pages, which must not
        // wait for a disk that hangs. Without a server it does not wait.
        let _ = self.server.set_hurry(true);
    }
}
