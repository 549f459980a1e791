//! How much data there is to copy, for the progress line.

use super::descent::Descent;
use super::listing::entries;
use crate::input::Identity;
use crate::place::Place;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The bytes in a source, as far as they are known ahead.
pub(super) fn data_bytes(path: &Path, recursive: bool) -> u64 {
    let metadata = if recursive {
        path.symlink_metadata()
    } else {
        path.metadata()
    };
    let Ok(metadata) = metadata else { return 0 };
    if metadata.is_file() {
        metadata.len()
    } else if metadata.is_dir() && recursive {
        open_directory(&Place::typed_itself(path)).map_or(0, tree_bytes)
    } else if metadata.file_type().is_block_device() {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(|device| dropbehind_linux::block_size_bytes(device.as_fd()))
            .unwrap_or(0)
    } else {
        0
    }
}

fn open_directory(place: &Place<'_>) -> Option<(File, Identity)> {
    let directory = place.open(OFlags::DIRECTORY, Mode::empty()).ok()?;
    let identity = Identity::of(&directory.metadata().ok()?);
    Some((directory, identity))
}

fn tree_bytes((top, identity): (File, Identity)) -> u64 {
    let mut bytes = 0;
    let mut levels = vec![entries(&top).unwrap_or_default()];
    let mut descent = Descent::default();
    descent.enter(top, identity);
    while let (Some(level), Some(current)) = (levels.last_mut(), descent.current()) {
        let Some(entry) = level.pop() else {
            levels.pop();
            descent.leave();
            continue;
        };
        let place = Place::within(current, &entry.name, &entry.name);
        let Some(metadata) = place.pin().ok().and_then(|file| file.metadata().ok()) else {
            continue;
        };
        if metadata.is_file() {
            bytes += metadata.len();
        } else if metadata.is_dir()
            && let Some((directory, identity)) = open_directory(&place)
        {
            levels.push(entries(&directory).unwrap_or_default());
            descent.enter(directory, identity);
        }
    }
    bytes
}
