//! tracefs, which describes tracepoints: Documentation/trace/events.rst.

use super::CacheTraceError;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const USUAL: &str = "/sys/kernel/tracing";
/// Where it is auto-mounted on a mounted debugfs when a process looks there.
const WITHIN_DEBUGFS: &str = "/sys/kernel/debug/tracing";
/// include/uapi/linux/magic.h.
const TRACEFS_MAGIC: u32 = 0x7472_6163;

/// A tracepoint's number, and the text that describes its records.
pub(crate) fn tracepoint(name: &str) -> Result<(u64, String), CacheTraceError> {
    describe(root().map_err(CacheTraceError::of_tracefs)?.as_fd(), name)
}

/// A file that exists as long as the kernel runs, is the same in all namespaces, and can be
/// opened by root only.
pub(crate) fn open_readme() -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root()?, "README", flags, Mode::empty())?;
    Ok(file.into())
}

/// tracefs's root directory. If it is not mounted, mounts it privately.
fn root() -> io::Result<OwnedFd> {
    if let Ok(root) = mounted_at(USUAL) {
        return Ok(root);
    }
    // Looking into debugfs would create a mount that all processes see, so try that last.
    match mount_privately() {
        Ok(root) => Ok(root),
        Err(error) => mounted_at(WITHIN_DEBUGFS).map_err(|_| error),
    }
}

fn mounted_at(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())?;
    // The directory exists without tracefs, too. The field's type differs between targets.
    #[allow(clippy::unnecessary_cast)]
    let magic = rustix::fs::fstatfs(&root)?.f_type as u32;
    if magic == TRACEFS_MAGIC {
        Ok(root)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Mounts it nowhere: only the descriptor leads to it, and closing that unmounts it
/// (fsopen(2), fsmount(2), since Linux 5.2).
fn mount_privately() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

fn describe(root: BorrowedFd<'_>, name: &str) -> Result<(u64, String), CacheTraceError> {
    let text =
        |file| read(root, &format!("events/{name}/{file}")).map_err(CacheTraceError::of_tracepoint);
    let number = text("id")?.trim().parse().map_err(|_| {
        let strange = io::ErrorKind::InvalidData.into();
        CacheTraceError::Other("reading the tracepoint's number", strange)
    })?;
    Ok((number, text("format")?))
}

fn read(root: BorrowedFd<'_>, path: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(root, path, flags, Mode::empty())?);
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Need, need};
    use rustix::mount::{MountFlags, mount};
    use std::path::Path;

    const NAME: &str = "filemap/mm_filemap_add_to_page_cache";

    #[test]
    fn a_private_mount_tells_and_is_seen_by_nobody() {
        need!(Need::Root);
        let before = std::fs::read("/proc/thread-self/mountinfo").unwrap();
        let root = mount_privately().unwrap();
        let (number, _) = describe(root.as_fd(), NAME).unwrap();
        assert_ne!(number, 0);
        assert_eq!(tracepoint(NAME).unwrap().0, number);
        assert!(before == std::fs::read("/proc/thread-self/mountinfo").unwrap());
        let made = rustix::fs::mkdirat(&root, "instances/dropbehind-test", Mode::RWXU);
        assert_eq!(made, Err(rustix::io::Errno::ROFS));
    }

    #[test]
    fn one_that_is_mounted_is_used() {
        need!(Need::Root);
        // A thread with its own mount namespace, so that no other process sees this mount.
        let thread = std::thread::spawn(|| {
            crate::unshare_mount_namespace().unwrap();
            let private = rustix::mount::MountPropagationFlags::PRIVATE
                | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).unwrap();
            if mounted_at(USUAL).is_err() {
                mount("tracefs", USUAL, "tracefs", MountFlags::empty(), None).unwrap();
            }
            let root = mounted_at(USUAL).unwrap();
            assert_eq!(
                describe(root.as_fd(), NAME).unwrap().0,
                describe(mount_privately().unwrap().as_fd(), NAME)
                    .unwrap()
                    .0
            );
            // Other file systems must not be taken for tracefs.
            assert!(mounted_at("/").is_err());
            let elsewhere = File::open(Path::new("/")).unwrap();
            let error = describe(elsewhere.as_fd(), NAME).unwrap_err();
            assert!(matches!(error, CacheTraceError::NoTracepoint(_)), "{error}");
        });
        thread.join().unwrap();
    }
}
