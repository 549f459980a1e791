//! Block devices whose open no event reports.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dropbehind_linux::block_device_number;

use crate::inodes::in_sysfs;

/// Opens a description of our own of a block device, whoever else has it open.
pub(crate) fn open_device(device: u32) -> Option<OwnedFd> {
    let facts = std::fs::read_to_string(in_sysfs(device).join("uevent")).ok()?;
    let name = facts
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))?;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(Path::new("/dev").join(name))
        .ok()?;
    // Another device's node may be there by now.
    let number = block_device_number(file.as_fd()).ok()?;
    (number == u64::from(device)).then(|| file.into())
}
