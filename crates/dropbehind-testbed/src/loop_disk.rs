//! Loop devices: block devices on top of files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::context::{Context, checked};
use crate::{Need, Scratch};

const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// How long to look for a free device while others take them as well.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel's `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// The kernel's `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A loop device over a file that someone else keeps.
///
/// It detaches by itself when its last user is gone: this value, a mount, a
/// killed process. As long as this value lives the device stays open, so its
/// page cache outlives the descriptors of the program under test; the kernel
/// drops a block device's cache at the last close.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Attaches a free loop device, reading and writing `backing` directly so
    /// that its pages are not cached a second time below the device.
    pub(crate) fn attach(backing: &File) -> io::Result<Self> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .context(|| "opening /dev/loop-control")?;
        let start = Instant::now();
        loop {
            match Self::try_attach(&control, backing) {
                // Another process was faster between the two steps, or the
                // device's node is not there yet.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EBUSY | libc::ENXIO | libc::ENOENT)
                    ) && start.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => return other.context(|| "attaching a loop device"),
            }
        }
    }

    fn try_attach(control: &File, backing: &File) -> io::Result<Self> {
        // SAFETY: this request takes no argument.
        let number = checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) })?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(true).open(&path)?;
        let config = configuration(backing.as_raw_fd());
        // SAFETY: the request reads a loop_config, which `config` is laid out as.
        checked(unsafe {
            libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config)
        })?;
        Ok(Self {
            path,
            _open: device,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// No request is larger from now on; `None` is the kernel's own limit.
    pub(crate) fn limit_requests(&self, kib: Option<u64>) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        let limit = Path::new("/sys/block")
            .join(name)
            .join("queue/max_sectors_kb");
        fs::write(&limit, kib.unwrap_or(0).to_string())
            .context(|| format!("writing {}", limit.display()))
    }
}

fn configuration(backing: RawFd) -> LoopConfig {
    LoopConfig {
        // Never negative: it is open.
        fd: backing as u32,
        block_size: 0,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    }
}

/// A block device on a sparse file in a [`Scratch`] folder.
///
/// The value itself keeps the device open, and that matters to
/// tests of raw devices: the kernel drops a block device's page cache when its
/// last user closes it, and a test would find an empty cache for that reason
/// alone.
#[derive(Debug)]
pub struct LoopDisk {
    device: LoopDevice,
    _scratch: Scratch,
}

impl LoopDisk {
    /// What a machine must have for this bed.
    pub fn needs() -> Vec<Need> {
        vec![Need::Loop]
    }

    /// Makes a device of a size.
    pub fn new(size_bytes: u64) -> io::Result<Self> {
        let scratch = Scratch::new()?;
        let image = sparse_file(&scratch.file("image"), size_bytes)?;
        Ok(Self {
            device: LoopDevice::attach(&image)?,
            _scratch: scratch,
        })
    }

    /// The device's node, `/dev/loopN`.
    pub fn path(&self) -> &Path {
        self.device.path()
    }
}

/// Makes a file that is all hole.
pub(crate) fn sparse_file(path: &Path, size_bytes: u64) -> io::Result<File> {
    let make = || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(size_bytes)?;
        Ok(file)
    };
    make().context(|| format!("making {} of {size_bytes} bytes", path.display()))
}
