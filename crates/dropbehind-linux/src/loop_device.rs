//! Block devices backed by files: loop(4), `LOOP_CONFIGURE` since Linux 5.8
//! (include/uapi/linux/loop.h).

use crate::errno::check;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

// include/uapi/linux/loop.h
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
/// Detach when the last user is gone.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// Read and write the file with `O_DIRECT`.
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// How many times another process may be faster, or a device's node may be late.
const ATTEMPTS: u32 = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// `struct loop_info64`.
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

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// An attached loop device, held open.
///
/// It detaches automatically after its last user is gone: this value, a mount, or the
/// process.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// The device's node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The current paths of the files behind all loop devices
/// (Documentation/ABI/stable/sysfs-block, `loop/backing_file`).
pub fn backing_paths() -> impl Iterator<Item = PathBuf> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten();
    devices.flatten().filter_map(|device| {
        let mut path = std::fs::read(device.path().join("loop/backing_file")).ok()?;
        path.pop_if(|end| *end == b'\n');
        Some(PathBuf::from(OsString::from_vec(path)))
    })
}

/// Attaches a free loop device to a file, which it reads and writes with `O_DIRECT` where
/// that works, so that data is not cached a second time below the device.
///
/// # Errors
///
/// - `ENOENT`, `EACCES`: `/dev/loop-control` is missing or not for this user.
/// - `EINVAL`: before Linux 5.8, or a file that cannot back a device.
pub fn attach_loop_device(backing: BorrowedFd<'_>) -> io::Result<LoopDevice> {
    let control = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    let mut last = io::ErrorKind::NotFound.into();
    for _ in 0..ATTEMPTS {
        match try_attach(&control, backing) {
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EBUSY | libc::ENXIO | libc::ENOENT)
                ) =>
            {
                last = error;
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
    Err(last)
}

fn try_attach(control: &File, backing: BorrowedFd<'_>) -> io::Result<LoopDevice> {
    // SAFETY: this request takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
    check(number.into())?;
    let path = PathBuf::from(format!("/dev/loop{number}"));
    let device = OpenOptions::new().read(true).write(true).open(&path)?;
    let config = LoopConfig {
        fd: backing.as_raw_fd().unsigned_abs(),
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
    };
    // SAFETY: the request reads a loop_config, which `config` is laid out as.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    check(done.into())?;
    Ok(LoopDevice {
        path,
        _open: device,
    })
}
