//! The file below a file of overlayfs, which has its pages.
//!
//! The pages of an overlay's file belong to the inode of the upper or lower
//! file system; the overlay's own inode has none, and neither cachestat nor
//! sync_file_range sees anything there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use dropbehind_linux::{FileKind, FileStat, Mount, file_stat, open_named};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::source::{Places, is_local};

/// How often to look for a file that is not found.
const LOOKS: u32 = 4;

/// Opens the file below, through the directories that the overlay was mounted from, with these
/// mounts; `None` if they cannot be seen from here, or if another file is there.
pub(crate) fn file_below(
    mounts: &[Mount],
    overlay_file: BorrowedFd<'_>,
    path: &Path,
) -> Option<OwnedFd> {
    let look = || {
        let wanted = file_stat(overlay_file).ok()?;
        // The overlay passes on when the file below was made, which nobody can choose. If all
        // layers are on one file system, the inode numbers are the same as well, unless it was
        // copied up. Alone they say little: new file systems all begin with the same ones.
        look_below(mounts, path, 0, |found| {
            let is_alike = found.id.inode == wanted.id.inode
                || wanted.born.is_some() && found.size_bytes == wanted.size_bytes;
            found.born == wanted.born && is_alike
        })
    };
    // Its size may change between two looks.
    (0..LOOKS).find_map(|_| look())
}

/// Opens the file in a lower layer that the one below was copied from, which `is_it` tells apart.
pub(crate) fn copied_from(
    mounts: &[Mount],
    path: &Path,
    is_it: impl Fn(&FileStat) -> bool,
) -> Option<OwnedFd> {
    look_below(mounts, path, 1, is_it)
}

/// Opens a file in the layers, after so many others of that name.
fn look_below(
    mounts: &[Mount],
    path: &Path,
    skipped: usize,
    is_it: impl Fn(&FileStat) -> bool,
) -> Option<OwnedFd> {
    // The longest mount point that the path begins with.
    let mount = mounts
        .iter()
        .filter(|mount| mount.filesystem == "overlay" && path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.as_os_str().len())?;
    let inside = path.strip_prefix(&mount.mount_point).ok()?;
    let root = mount.root.strip_prefix("/").unwrap_or(&mount.root);
    let inside = root.join(inside);
    let layers = mount.layers();
    // Relative layers start in the directory of whoever mounted the overlay, which nothing shows:
    // above the mount point, as Docker's do, or at another mount point. No server is asked.
    let is_relative = layers.iter().any(|layer| layer.is_relative());
    let mount_points = mounts.iter().map(|mount| mount.mount_point.as_path());
    let above = mount.mount_point.ancestors().skip(1);
    let starts = above.chain(mount_points);
    let look_from = |start| {
        let named = |layer: &PathBuf| name_in(start, layer, &inside).ok();
        let below = layers.iter().filter_map(named).nth(skipped)?;
        let found = file_stat(below.as_fd()).ok()?;
        let is_it = found.kind == FileKind::Regular && is_it(&found);
        is_it.then(|| open_named(below.as_fd()).ok())?
    };
    match is_relative {
        true => {
            let places = Places::of(mounts);
            let is_local_at = |start: &&Path| places.mount_at(start).is_some_and(is_local);
            let mut starts = starts.filter(is_local_at);
            starts.find_map(look_from)
        }
        false => look_from(Path::new("/")),
    }
}

/// Names a file of a layer, whose own name may be relative to `start`. At any moment, users may
/// replace directories in a layer with links that lead anywhere; the overlay itself follows none.
fn name_in(start: &Path, layer: &Path, inside: &Path) -> io::Result<OwnedFd> {
    let path = OFlags::PATH | OFlags::CLOEXEC;
    let folder = path | OFlags::DIRECTORY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    let layer = if layer.is_absolute() {
        rustix::fs::open(layer, folder, Mode::empty())?
    } else {
        let start = rustix::fs::open(start, folder, Mode::empty())?;
        openat2(start, layer, folder, Mode::empty(), beneath)?
    };
    let flags = path | OFlags::NOFOLLOW;
    let beneath = beneath | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(layer, inside, flags, Mode::empty(), beneath)?)
}

#[cfg(test)]
mod tests {
    use dropbehind_testbed::Scratch;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_out_of_a_layer() {
        let scratch = Scratch::new().unwrap();
        let (layer, outside) = (scratch.file("layer"), scratch.file("outside"));
        for folder in [&layer, &outside] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "x").unwrap();
        }
        std::fs::create_dir(layer.join("plain")).unwrap();
        std::fs::write(layer.join("plain/file"), "x").unwrap();
        symlink(&outside, layer.join("folder")).unwrap();
        symlink(outside.join("file"), layer.join("link")).unwrap();
        let name_in = |path| name_in(Path::new("/"), &layer, Path::new(path));
        assert!(name_in("plain/file").is_ok());
        for path in ["folder/file", "../outside/file"] {
            assert!(name_in(path).is_err(), "{path}");
        }
        // A descriptor that names the link itself is no regular file.
        let link = name_in("link");
        assert!(link.is_err() || file_stat(link.unwrap().as_fd()).unwrap().kind == FileKind::Other);
    }
}
