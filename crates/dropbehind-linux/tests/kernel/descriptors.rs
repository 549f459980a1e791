//! Descriptions and descriptor tables of our own.

use crate::setup::{as_nobody, directory, dirty_file, is_root, skip};
use dropbehind_linux::{
    AccessMode, FileId, Sharing, file_info, reopen, status_flags, unshare_descriptor_table,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn id(fd: BorrowedFd<'_>) -> FileId {
    file_info(fd).unwrap().id
}

/// Whether two descriptors share a description: the position moves with it.
fn share_position(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> bool {
    rustix::fs::seek(a, rustix::fs::SeekFrom::Start(7)).unwrap();
    rustix::fs::seek(b, rustix::fs::SeekFrom::Start(3)).unwrap();
    rustix::fs::seek(a, rustix::fs::SeekFrom::Current(0)).unwrap() == 3
}

#[test]
fn reopens_a_deleted_file_as_its_own() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 100);
    std::fs::remove_file(path).unwrap();
    let (own, sharing) = reopen(thread(), file.as_raw_fd(), id(file.as_fd())).unwrap();
    assert_eq!(sharing, Sharing::Own);
    assert_eq!(id(own.as_fd()), id(file.as_fd()));
    assert!(!share_position(own.as_fd(), file.as_fd()));
    let flags = status_flags(own.as_fd()).unwrap();
    assert_eq!(flags.access, AccessMode::ReadOnly);
    let close_on_exec = rustix::io::fcntl_getfd(&own).unwrap();
    assert!(close_on_exec.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn another_file_behind_the_number_is_noticed() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 100);
    let other = File::create(path.with_extension("other")).unwrap();
    let error = reopen(thread(), other.as_raw_fd(), id(file.as_fd())).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    let error = reopen(thread(), 1_000_000, id(file.as_fd())).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}

#[test]
fn pipes_are_not_opened() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let error = reopen(thread(), writer.as_raw_fd(), id(reader.as_fd())).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn a_thread_that_is_gone_still_leads_to_the_process() {
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 100);
    let gone = std::thread::spawn(thread).join().unwrap();
    let (_, sharing) = reopen(gone, file.as_raw_fd(), id(file.as_fd())).unwrap();
    assert_eq!(sharing, Sharing::Own);
}

#[test]
fn permissions_decide_between_own_and_shared() {
    if !is_root() {
        skip!("permissions_decide_between_own_and_shared", "needs root");
    }
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 100);
    let expect = id(file.as_fd());
    let chmod = |mode| {
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode)).unwrap();
    };
    // Not the owner: no O_NOATIME, but readable.
    chmod(0o644);
    as_nobody(|| {
        let (own, sharing) = reopen(thread(), file.as_raw_fd(), expect).unwrap();
        assert_eq!(sharing, Sharing::Own);
        let flags = status_flags(own.as_fd()).unwrap();
        assert_eq!(flags.access, AccessMode::ReadOnly);
    });
    chmod(0o622);
    as_nobody(|| {
        let (own, sharing) = reopen(thread(), file.as_raw_fd(), expect).unwrap();
        assert_eq!(sharing, Sharing::Own);
        let flags = status_flags(own.as_fd()).unwrap();
        assert_eq!(flags.access, AccessMode::WriteOnly);
    });
    chmod(0o600);
    as_nobody(|| {
        let (shared, sharing) = reopen(thread(), file.as_raw_fd(), expect).unwrap();
        assert_eq!(sharing, Sharing::Shared);
        assert!(share_position(shared.as_fd(), file.as_fd()));
    });
}

fn descriptors() -> BTreeSet<RawFd> {
    std::fs::read_dir("/proc/thread-self/fd")
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect()
}

#[test]
fn a_table_of_its_own_is_empty_but_for_the_standard_three() {
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 100);
    let number = file.as_raw_fd();
    let expect = id(file.as_fd());
    let program = thread();
    std::thread::spawn(move || {
        unshare_descriptor_table().unwrap();
        // 3 is the listing's own.
        assert_eq!(descriptors(), BTreeSet::from([0, 1, 2, 3]));
        for standard in 0..3 {
            let target = std::fs::read_link(format!("/proc/thread-self/fd/{standard}"));
            assert_eq!(target.unwrap().to_str(), Some("/dev/null"));
        }
        // The program's files are still to be had, by the program's thread.
        let (own, sharing) = reopen(program, number, expect).unwrap();
        assert_eq!((own.as_raw_fd(), sharing), (3, Sharing::Own));
    })
    .join()
    .unwrap();
    assert_eq!(id(file.as_fd()), expect);
    assert!(descriptors().contains(&number));
}

#[test]
fn a_shared_copy_is_had_from_the_other_table_too() {
    if !is_root() {
        skip!(
            "a_shared_copy_is_had_from_the_other_table_too",
            "needs root"
        );
    }
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 100);
    rustix::fs::fchmod(&file, rustix::fs::Mode::empty()).unwrap();
    let (number, expect, program) = (file.as_raw_fd(), id(file.as_fd()), thread());
    as_nobody(move || {
        unshare_descriptor_table().unwrap();
        let (shared, sharing) = reopen(program, number, expect).unwrap();
        assert_eq!(sharing, Sharing::Shared);
        assert_eq!(id(shared.as_fd()), expect);
    });
}

/// The process's record locks on a file go when any descriptor of it in the
/// process's table is closed, and only then.
#[test]
fn closing_in_a_table_of_its_own_keeps_record_locks() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 100);
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::fcntl_lock(&file, lock).unwrap();
    // Locks of a process don't stop itself, so that a child has to ask.
    let is_locked = || {
        let script = "import fcntl, sys\nf = open(sys.argv[1], 'r+')\n\
            try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError: sys.exit(7)";
        let status = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .status();
        status.ok().and_then(|status| match status.code() {
            Some(0) => Some(false),
            Some(7) => Some(true),
            _ => None,
        })
    };
    let Some(locked) = is_locked() else {
        skip!(
            "closing_in_a_table_of_its_own_keeps_record_locks",
            "no python3"
        );
    };
    assert!(locked);
    let (number, expect, program) = (file.as_raw_fd(), id(file.as_fd()), thread());
    std::thread::spawn(move || {
        unshare_descriptor_table().unwrap();
        drop(reopen(program, number, expect).unwrap());
    })
    .join()
    .unwrap();
    assert_eq!(is_locked(), Some(true));
    drop(reopen(program, number, expect).unwrap());
    assert_eq!(is_locked(), Some(false), "in the shared table it is lost");
}
