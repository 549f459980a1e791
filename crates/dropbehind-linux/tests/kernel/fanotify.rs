//! Events of real files on a mount of their own, so that nothing else on the
//! machine makes any.

use crate::setup::{Mounted, as_nobody, directory, is_root, skip};
use dropbehind_linux::{Event, EventBuffer, EventMask, Fanotify, MarkLife, MarkTarget};
use rustix::fs::CWD;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

struct Watched {
    group: Fanotify,
    mounted: Mounted,
    // Unmounted before it is removed.
    _directory: tempfile::TempDir,
}

impl Watched {
    fn new() -> Self {
        let directory = directory();
        let mounted = Mounted::new(&["-t", "tmpfs", "tmpfs"], &directory.path().join("at"))
            .expect("root can mount tmpfs");
        Self {
            group: Fanotify::new().unwrap(),
            mounted,
            _directory: directory,
        }
    }

    fn root(&self) -> &Path {
        &self.mounted.0
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    fn mark_mount(&self, mask: EventMask) {
        let target = MarkTarget::Mount {
            directory: CWD,
            path: self.root(),
        };
        self.group.add_mark(target, mask, MarkLife::Kept).unwrap();
    }

    /// All that is in the queue.
    fn events(&self) -> Vec<Event> {
        let mut buffer = EventBuffer::new(64);
        let mut events = Vec::new();
        loop {
            match self.group.read(&mut buffer) {
                Ok(more) => events.extend(more),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return events,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Events until these have come. A close counts once the last descriptor is gone, and
    /// another thread that looks in `/proc`, or starts a program, may have one for a moment.
    fn events_until(&self, wanted: EventMask) -> Vec<Event> {
        let mut events = self.events();
        for _ in 0..5000 {
            if all_of(&events).contains(wanted) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            events.extend(self.events());
        }
        events
    }

    fn masks(&self) -> EventMask {
        all_of(&self.events())
    }

    /// Descriptors of this process that are on the mount.
    fn descriptors(&self) -> usize {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| target.starts_with(self.root()))
            .count()
    }
}

const ALL: EventMask = EventMask::OPEN
    .union(EventMask::ACCESS)
    .union(EventMask::MODIFY)
    .union(EventMask::CLOSE_WRITE)
    .union(EventMask::CLOSE_NOWRITE);

fn all_of(events: &[Event]) -> EventMask {
    let masks = events.iter().map(|event| event.mask);
    masks.fold(EventMask::EMPTY, |all, mask| all | mask)
}

#[test]
fn a_mount_tells_what_is_done_through_it() {
    if !is_root() {
        skip!("a_mount_tells_what_is_done_through_it", "needs root");
    }
    let watched = Watched::new();
    watched.mark_mount(ALL);
    let elsewhere = directory();
    std::fs::write(elsewhere.path().join("other"), b"unseen").unwrap();
    assert_eq!(watched.masks(), EventMask::EMPTY);

    let mut file = File::create(watched.path("data")).unwrap();
    file.write_all(b"seen").unwrap();
    drop(file);
    let events = watched.events_until(EventMask::CLOSE_WRITE);
    assert_eq!(
        all_of(&events),
        EventMask::OPEN | EventMask::MODIFY | EventMask::CLOSE_WRITE
    );
    for event in &events {
        assert!(!event.overflow);
        assert_eq!(u32::try_from(event.process).unwrap(), std::process::id());
        let file = event.file.as_ref().unwrap();
        let path = std::fs::read_link(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(file)
        ));
        assert_eq!(path.unwrap(), watched.path("data"));
    }

    // The event's own descriptor reads the data, and makes no event.
    let mut text = String::new();
    let own = events.into_iter().next().unwrap().file.unwrap();
    File::from(own).read_to_string(&mut text).unwrap();
    assert_eq!(text, "seen");
    assert_eq!(watched.masks(), EventMask::EMPTY);

    // Another path to it does.
    std::fs::read(watched.path("data")).unwrap();
    assert_eq!(
        all_of(&watched.events_until(EventMask::CLOSE_NOWRITE)),
        EventMask::OPEN | EventMask::ACCESS | EventMask::CLOSE_NOWRITE
    );

    let target = MarkTarget::Mount {
        directory: CWD,
        path: watched.root(),
    };
    watched.group.remove_mark(target, ALL).unwrap();
    std::fs::read(watched.path("data")).unwrap();
    assert_eq!(watched.masks(), EventMask::EMPTY);
}

#[test]
fn events_that_nobody_takes_are_closed() {
    if !is_root() {
        skip!("events_that_nobody_takes_are_closed", "needs root");
    }
    let watched = Watched::new();
    watched.mark_mount(EventMask::OPEN);
    for name in ["a", "b", "c"] {
        File::create(watched.path(name)).unwrap();
    }
    let mut buffer = EventBuffer::new(8);
    let mut events = watched.group.read(&mut buffer).unwrap();
    let first = events.next().unwrap();
    assert_eq!(watched.descriptors(), 3);
    drop(events);
    assert_eq!(watched.descriptors(), 1);
    drop(first);
    assert_eq!(watched.descriptors(), 0);
}

#[test]
fn a_small_buffer_takes_what_fits() {
    if !is_root() {
        skip!("a_small_buffer_takes_what_fits", "needs root");
    }
    let watched = Watched::new();
    watched.mark_mount(EventMask::OPEN);
    for name in ["a", "b", "c"] {
        File::create(watched.path(name)).unwrap();
    }
    let mut buffer = EventBuffer::new(0);
    for _ in 0..3 {
        assert_eq!(watched.group.read(&mut buffer).unwrap().count(), 1);
    }
    let error = watched.group.read(&mut buffer).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn inodes_and_whole_file_systems_are_heard() {
    if !is_root() {
        skip!("inodes_and_whole_file_systems_are_heard", "needs root");
    }
    let watched = Watched::new();
    let mut file = File::create(watched.path("data")).unwrap();
    let wanted = MarkLife::Kept;
    let group = &watched.group;
    group
        .add_mark(MarkTarget::Inode(file.as_fd()), EventMask::MODIFY, wanted)
        .unwrap();
    file.write_all(b"x").unwrap();
    std::fs::write(watched.path("other"), b"x").unwrap();
    assert_eq!(watched.events().len(), 1);

    // Through another mount of it, too; a mount's mark would not hear that.
    let second = watched._directory.path().join("second");
    let bind = Mounted::new(&["--bind", watched.root().to_str().unwrap()], &second).unwrap();
    let target = MarkTarget::FileSystem(watched.root());
    group.add_mark(target, EventMask::OPEN, wanted).unwrap();
    File::open(bind.0.join("data")).unwrap();
    assert_eq!(watched.masks(), EventMask::OPEN);
    group.remove_mark(target, EventMask::OPEN).unwrap();
    watched.mark_mount(EventMask::OPEN);
    File::open(bind.0.join("data")).unwrap();
    assert_eq!(watched.masks(), EventMask::EMPTY);
    File::open(watched.path("data")).unwrap();
    assert_eq!(watched.masks(), EventMask::OPEN);
}

/// The kernel takes it down later.
#[test]
fn a_group_holds_nothing_once_it_is_dropped() {
    if !is_root() {
        skip!("a_group_holds_nothing_once_it_is_dropped", "needs root");
    }
    let watched = Watched::new();
    watched.mark_mount(EventMask::OPEN | EventMask::CLOSE_WRITE);
    for number in 0..100 {
        let file = File::create(watched.path(&format!("file{number}"))).unwrap();
        let (target, mask) = (MarkTarget::Inode(file.as_fd()), EventMask::MODIFY);
        let added = watched.group.add_mark(target, mask, MarkLife::Kept);
        added.unwrap();
    }
    let Watched {
        group,
        mounted,
        _directory,
    } = watched;
    let flags = rustix::mount::UnmountFlags::empty();
    let busy = rustix::mount::unmount(&mounted.0, flags);
    assert_eq!(busy, Err(rustix::io::Errno::BUSY), "its queue holds files");
    drop(group);
    rustix::mount::unmount(&mounted.0, flags).unwrap();
}

#[test]
fn nobody_gets_no_group() {
    if !is_root() {
        skip!("nobody_gets_no_group", "needs root to become nobody");
    }
    let error = as_nobody(|| Fanotify::new().map(drop)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
}

#[test]
fn wrong_marks_are_refused() {
    if !is_root() {
        skip!("wrong_marks_are_refused", "needs root");
    }
    let watched = Watched::new();
    let missing = watched.path("missing");
    let wanted = MarkLife::Kept;
    let errno = |target, mask| {
        let error = watched.group.add_mark(target, mask, wanted).unwrap_err();
        error.raw_os_error()
    };
    let root = MarkTarget::FileSystem(watched.root());
    assert_eq!(
        errno(MarkTarget::FileSystem(&missing), EventMask::OPEN),
        Some(libc::ENOENT)
    );
    assert_eq!(errno(root, EventMask::EMPTY), Some(libc::EINVAL));
    let path_only = rustix::fs::open(
        watched.root(),
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    assert_eq!(
        errno(MarkTarget::Inode(path_only.as_fd()), EventMask::OPEN),
        Some(libc::EBADF)
    );
}
