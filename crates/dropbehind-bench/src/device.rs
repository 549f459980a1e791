//! A block device that may be written over.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use dropbehind_linux::DiskId;

use crate::error::Error;

/// A device that nobody else uses, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeDevice {
    pub(crate) bytes: u64,
}

impl FreeDevice {
    /// Makes sure that nobody uses it: mounts, swap, whoever holds it (RAID,
    /// LVM, loop devices, partitions in use), and others who opened it for
    /// themselves.
    pub(crate) fn check(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        let refused = |why: &str, step: &str| {
            Error::Failed(format!(
                "{shown} is not written over: {why}. Nothing was done; {step}."
            ))
        };
        let failed = |error| Error::io("looking at", path, &error);
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.file_type().is_block_device() {
            return Err(Error::Usage(format!(
                "{shown} is no block device. Give a directory with --dir instead."
            )));
        }
        let device = metadata.rdev();
        if let Some(point) = mount_point_of(device) {
            return Err(refused(
                &format!("it is mounted at {point}"),
                "unmount it, or choose another device",
            ));
        }
        if is_swap(device) {
            return Err(refused("the machine swaps to it", "run swapoff first"));
        }
        if let Some(holder) = holder_of(device) {
            return Err(refused(
                &format!("{holder} is made of it"),
                "take that apart, or choose another device",
            ));
        }
        // The kernel's own answer, which covers what is above and more.
        let opened = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_EXCL)
            .open(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => {
                    refused("it is in use", "end that use, or choose another device")
                }
                _ => failed(error),
            })?;
        if dropbehind_linux::is_read_only(opened.as_fd()).unwrap_or(false) {
            return Err(refused(
                "it is read-only",
                "make it writable (blockdev --setrw) or choose another device",
            ));
        }
        let bytes = dropbehind_linux::block_size_bytes(opened.as_fd()).map_err(failed)?;
        Ok(Self { bytes })
    }
}

fn mount_point_of(device: u64) -> Option<String> {
    let id = DiskId::from_device(device).to_string();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2) == Some(&id)).then(|| fields.nth(1).unwrap_or("?").to_owned())
    })
}

fn is_swap(device: u64) -> bool {
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    table.lines().skip(1).any(|line| {
        let path = line.split_whitespace().next().unwrap_or("");
        fs::metadata(path).is_ok_and(|metadata| metadata.rdev() == device)
    })
}

/// A device that is made of this one, or of a partition of it; a partition of
/// it that is mounted or swapped to.
fn holder_of(device: u64) -> Option<String> {
    let sysfs = format!("/sys/dev/block/{}", DiskId::from_device(device));
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    };
    if let Some(holder) = names(&Path::new(&sysfs).join("holders")).pop() {
        return Some(holder);
    }
    names(Path::new(&sysfs)).into_iter().find(|name| {
        let part = Path::new(&sysfs).join(name);
        let Some(id) = fs::read_to_string(part.join("partition"))
            .ok()
            .and_then(|_| fs::read_to_string(part.join("dev")).ok())
            .and_then(|id| id.trim().parse::<DiskId>().ok())
        else {
            return false;
        };
        let used = id.device();
        mount_point_of(used).is_some() || is_swap(used) || !names(&part.join("holders")).is_empty()
    })
}
