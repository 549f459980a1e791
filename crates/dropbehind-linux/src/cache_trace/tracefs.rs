//! tracefs, where tracepoints are described: Documentation/trace/events.rst.

use super::CacheTraceError;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const USUAL: &str = "/sys/kernel/tracing";
/// Where it mounts itself when somebody looks, on a mounted debugfs.
const WITHIN_DEBUGFS: &str = "/sys/kernel/debug/tracing";
/// include/uapi/linux/magic.h.
const TRACEFS_MAGIC: u32 = 0x7472_6163;

/// A tracepoint's number, and the text that says what its records look like.
pub(crate) fn tracepoint(name: &str) -> Result<(u64, String), CacheTraceError> {
    describe(root().map_err(CacheTraceError::of_tracefs)?.as_fd(), name)
}

/// A file that is there as long as the kernel is, the same in all namespaces, and that
/// nobody but root can open.
pub(crate) fn open_readme() -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root()?, "README", flags, Mode::empty())?;
    Ok(file.into())
}

/// tracefs's root directory. Where it is not mounted it is mounted for us alone.
fn root() -> io::Result<OwnedFd> {
    if let Ok(root) = mounted_at(USUAL) {
        return Ok(root);
    }
    // To look into debugfs would make a mount for all to see, so that comes last.
    match mount_privately() {
        Ok(root) => Ok(root),
        Err(error) => mounted_at(WITHIN_DEBUGFS).map_err(|_| error),
    }
}

fn mounted_at(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())?;
    // The directory is there without it, too. The field's type is not the same on
    // all targets.
    #[allow(clippy::unnecessary_cast)]
    let magic = rustix::fs::fstatfs(&root)?.f_type as u32;
    if magic == TRACEFS_MAGIC {
        Ok(root)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Mounts it nowhere: the descriptor alone leads to it, and its close ends it
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
        // A thread with mounts of its own, so that nobody else sees this one.
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
            // What is not tracefs is not taken for it.
            assert!(mounted_at("/").is_err());
            let elsewhere = File::open(Path::new("/")).unwrap();
            let error = describe(elsewhere.as_fd(), NAME).unwrap_err();
            assert!(matches!(error, CacheTraceError::NoTracepoint(_)), "{error}");
        });
        thread.join().unwrap();
    }
}
