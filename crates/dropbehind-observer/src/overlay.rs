//! The file that carries a file of overlayfs.
//!
//! The pages of an overlay's file belong to the inode of the upper or lower
//! file system; the overlay's own inode has none, and neither cachestat nor
//! sync_file_range sees anything there.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use dropbehind_linux::mounts_of;

/// A file that is not found is looked for so often.
const LOOKS: u32 = 4;

/// Opens the file below, through the directories that the overlay was mounted
/// from; `None` where they cannot be seen from here, or another file is there.
pub(crate) fn file_below(overlay_file: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    // Its size may change between two looks.
    (0..LOOKS).find_map(|_| look_below(overlay_file, path))
}

fn look_below(overlay_file: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let wanted = rustix::fs::fstat(overlay_file).ok()?;
    let mounts = mounts_of(0).or_else(|_| mounts_of(own_process())).ok()?;
    // The longest mount point that the path begins with.
    let mount = mounts
        .iter()
        .filter(|mount| mount.filesystem == "overlay" && path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.as_os_str().len())?;
    let inside = path.strip_prefix(&mount.mount_point).ok()?;
    let root = mount.root.strip_prefix("/").unwrap_or(&mount.root);
    for layer in mount.layers() {
        let below = layer.join(root).join(inside);
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOATIME)
            .open(&below);
        let Ok(file) = opened else { continue };
        let Ok(metadata) = file.metadata() else {
            continue;
        };
        // Where all layers are on one file system, the numbers are the same;
        // elsewhere the size has to do, and a file of another size is another.
        #[allow(clippy::unnecessary_cast, reason = "narrower on some targets")]
        let same = metadata.ino() == wanted.st_ino as u64
            || metadata.is_file() && metadata.len() == u64::try_from(wanted.st_size).unwrap_or(0);
        return same.then(|| file.into());
    }
    None
}

fn own_process() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// True for a file of overlayfs.
pub(crate) fn is_overlay(fd: impl AsFd) -> bool {
    matches!(
        dropbehind_linux::filesystem(fd.as_fd()),
        Ok(dropbehind_linux::FsKind::Overlay)
    )
}
