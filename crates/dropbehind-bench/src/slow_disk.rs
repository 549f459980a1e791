//! A file system on a disk of a set speed.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dropbehind_linux::{LoopDevice, attach_loop_device};
use dropbehind_slowdisk::DiskServer;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::clock::pause_ms;
use crate::machine::meminfo_bytes;
use crate::process::{Launcher, find_program};

/// How often an unmount is tried while somebody still looks at the files.
const UNMOUNT_ATTEMPTS: u32 = 100;

/// It, mounted; all of it goes with this value.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    mounted: PathBuf,
    // Dropped in this order, after the unmount.
    _device: LoopDevice,
    server: DiskServer,
}

impl SlowDisk {
    /// Makes one with room for a file of so many bytes, and mounts it at `at`;
    /// an error says why that is not possible here.
    pub(crate) fn new(
        launcher: &Launcher,
        at: &Path,
        bytes_per_second: u64,
        file_bytes: u64,
    ) -> Result<Self, String> {
        // The file system's own part, and the tenth that a case wants to be free
        // beside its files.
        let disk_bytes = (file_bytes + file_bytes / 4 + (96 << 20)).next_multiple_of(1 << 20);
        let available = meminfo_bytes("MemAvailable").unwrap_or(u64::MAX);
        // Once as the disk, once as what is cached of it.
        if available < disk_bytes * 2 {
            return Err(format!(
                "the slow disk lies in memory and takes {} MiB, twice that with its cache; {} MiB \
                 are available. Give a smaller --size",
                disk_bytes >> 20,
                available >> 20
            ));
        }
        if !rustix::process::geteuid().is_root() {
            return Err("a slow disk needs root".to_owned());
        }
        if !Path::new("/dev/fuse").exists() {
            return Err("a slow disk needs FUSE, and there is no /dev/fuse".to_owned());
        }
        let maker = find_program("mkfs.ext4")
            .ok_or("a slow disk needs mkfs.ext4 (Debian's package e2fsprogs)")?;
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            format!("{what} a slow disk failed: {error}")
        };
        let mut command = Command::new(&launcher.disk[0]);
        command.args(&launcher.disk[1..]);
        let server =
            DiskServer::start(command, disk_bytes).map_err(|error| failed("starting", &error))?;
        let backing = fs::File::options()
            .read(true)
            .write(true)
            .open(server.image())
            .map_err(|error| failed("opening", &error))?;
        let device =
            attach_loop_device(backing.as_fd()).map_err(|error| failed("attaching", &error))?;
        let made = Command::new(maker)
            .args(["-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1"])
            .arg(device.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|error| failed("formatting", &error))?;
        if !made.success() {
            return Err(failed("formatting", &made));
        }
        fs::create_dir(at).map_err(|error| failed("mounting", &error))?;
        let mounted = rustix::mount::mount(
            device.path(),
            at,
            "ext4",
            MountFlags::NOATIME,
            // Zeroing inode tables in the background would be traffic.
            c"noinit_itable",
        );
        if let Err(error) = mounted {
            let _ = fs::remove_dir(at);
            return Err(failed("mounting", &error));
        }
        let disk = Self {
            mounted: at.to_owned(),
            _device: device,
            server,
        };
        disk.server
            .set_write_speed(Some(bytes_per_second))
            .and_then(|()| disk.server.set_read_speed(Some(bytes_per_second)))
            .map_err(|error| failed("slowing", &error))?;
        Ok(disk)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Nobody wants to wait for what is still dirty.
        let _ = self.server.set_hurry(true);
        for _ in 0..UNMOUNT_ATTEMPTS {
            match rustix::mount::unmount(&self.mounted, UnmountFlags::empty()) {
                Err(rustix::io::Errno::BUSY) => pause_ms(20),
                _ => {
                    let _ = fs::remove_dir(&self.mounted);
                    return;
                }
            }
        }
        let path = self.mounted.display();
        eprintln!(
            "dropbehind: {path} is still in use; it is detached, and goes with its last user."
        );
        let _ = rustix::mount::unmount(&self.mounted, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.mounted);
    }
}
