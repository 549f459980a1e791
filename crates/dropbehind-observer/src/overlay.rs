//! The file that carries a file of overlayfs.
//!
//! The pages of an overlay's file belong to the inode of the upper or lower
//! file system; the overlay's own inode has none, and neither cachestat nor
//! sync_file_range sees anything there.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dropbehind_linux::{Mount, mounts_of};

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
    for layer in layers(mount) {
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

/// The directories of an overlay, the topmost first.
fn layers(mount: &Mount) -> Vec<PathBuf> {
    let mut upper = Vec::new();
    let mut lower = Vec::new();
    for option in split_unescaped(mount.super_options().as_bytes(), b',') {
        if let Some(path) = option.strip_prefix(b"upperdir=") {
            upper.push(unescape(path));
        } else if let Some(paths) = option.strip_prefix(b"lowerdir=") {
            lower.extend(split_unescaped(paths, b':').map(unescape));
        } else if let Some(path) = option.strip_prefix(b"lowerdir+=") {
            lower.push(unescape(path));
        }
    }
    upper.append(&mut lower);
    upper
}

/// Splits where the separator is not escaped by a backslash.
fn split_unescaped(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut escaped = false;
    text.split(move |&byte| {
        let splits = byte == separator && !escaped;
        escaped = byte == b'\\' && !escaped;
        splits
    })
}

/// Undoes the kernel's octal escapes and the overlay's backslashes.
fn unescape(text: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = text.get(at + 1..at + 4).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match (text[at], octal) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                at += 4;
            }
            (b'\\', None) => at += 1,
            (byte, _) => {
                plain.push(byte);
                at += 1;
            }
        }
        if at < text.len() && text[at - 1] == b'\\' && octal.is_none() {
            plain.push(text[at]);
            at += 1;
        }
    }
    PathBuf::from(OsStr::from_bytes(&plain))
}

/// True for a file of overlayfs.
pub(crate) fn is_overlay(fd: impl AsFd) -> bool {
    matches!(
        dropbehind_linux::filesystem(fd.as_fd()),
        Ok(dropbehind_linux::FsKind::Overlay)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        let parts: Vec<PathBuf> = split_unescaped(br"/a\:b:/c\040d:/e", b':')
            .map(unescape)
            .collect();
        assert_eq!(
            parts,
            [
                PathBuf::from("/a:b"),
                PathBuf::from("/c d"),
                PathBuf::from("/e")
            ]
        );
    }
}
