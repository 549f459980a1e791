//! Block devices whose open no event reports.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use dropbehind_linux::{block_device_number, open_named};
use rustix::fs::{Mode, OFlags};

/// Opens a description of our own of a block device, whoever else has it open. May wait for the
/// disk.
pub(crate) fn open_device(device: u32) -> Option<OwnedFd> {
    open_named(name_device(device)?.as_fd()).ok()
}

/// A descriptor that only names a block device (`O_PATH`), which opens nothing.
pub(crate) fn name_device(device: u32) -> Option<OwnedFd> {
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    let facts = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = facts
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let named = rustix::fs::open(Path::new("/dev").join(name), flags, Mode::empty()).ok()?;
    // Another device's node may be there by now.
    let number = block_device_number(named.as_fd()).ok()?;
    (number == u64::from(device)).then_some(named)
}
