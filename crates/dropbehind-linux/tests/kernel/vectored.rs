//! Reading and writing with flags.

use crate::setup::{cached_pages, directory, dirty_file, skip, uncached_file, wait_for};
use dropbehind_linux::{
    FsKind, IoFlags, filesystem, page_size, pread, preadv2, pwrite, pwritev2, read,
    start_writeback, write,
};
use dropbehind_testbed::{Need, need};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Seek};
use std::os::fd::AsFd;

#[test]
fn position_and_offset_are_not_confused() {
    let directory = directory();
    let (_, mut file) = dirty_file(directory.path(), 0);
    let fd = file.as_fd();
    let parts = [IoSlice::new(b"abc"), IoSlice::new(b"def")];
    assert_eq!(pwritev2(fd, &parts, None, IoFlags::NONE).unwrap(), 6);
    assert_eq!(
        pwritev2(fd, &parts[..1], Some(3), IoFlags::NONE).unwrap(),
        3
    );
    assert_eq!(write(fd, b"ghi").unwrap(), 3);
    assert_eq!(pwrite(fd, b"X", 0).unwrap(), 1);
    // The largest offset is an offset, not the -1 that means the position.
    for wrong in [u64::MAX, 1 << 63] {
        let error = pwritev2(fd, &parts, Some(wrong), IoFlags::NONE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        let error = preadv2(fd, &mut [], Some(wrong), IoFlags::NONE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
    let mut all = [0; 16];
    assert_eq!(pread(fd, &mut all, 0).unwrap(), 9);
    assert_eq!(&all[..9], b"Xbcabcghi");

    file.rewind().unwrap();
    let fd = file.as_fd();
    let (mut first, mut second) = ([0; 2], [0; 3]);
    let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(preadv2(fd, &mut parts, None, IoFlags::NONE).unwrap(), 5);
    assert_eq!((&first, &second), (b"Xb", b"cab"));
    let mut rest = [0; 16];
    assert_eq!(read(fd, &mut rest).unwrap(), 4);
    assert_eq!(&rest[..4], b"cghi");
    assert_eq!(read(fd, &mut rest).unwrap(), 0);
}

#[test]
fn append_flag_appends() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 0);
    let fd = file.as_fd();
    write(fd, b"12345").unwrap();
    let parts = [IoSlice::new(b"67")];
    let append = IoFlags::from_bits(libc::RWF_APPEND.unsigned_abs());
    assert_eq!(pwritev2(fd, &parts, Some(0), append).unwrap(), 2);
    assert_eq!(std::fs::read(path).unwrap(), b"1234567");
}

#[test]
fn unknown_flags_are_refused_by_the_kernel() {
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 10);
    let unknown = IoFlags::from_bits(1 << 30);
    let error = pwritev2(file.as_fd(), &[IoSlice::new(b"x")], Some(0), unknown).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
}

#[test]
fn nowait_does_not_wait_for_the_disk() {
    need!(Need::Cachestat);
    let directory = directory();
    // The call starts the read and looks once more: a fast disk may have answered.
    let error = (0..1000).find_map(|_| {
        let (path, file) = uncached_file(directory.path(), 8 * page_size());
        std::fs::remove_file(path).unwrap();
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        preadv2(file.as_fd(), &mut parts, Some(0), IoFlags::NOWAIT).err()
    });
    let error = error.expect("the disk is slower than the call, now and then");
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
}

#[test]
fn flags_have_the_kernels_bits() {
    let bits = [IoFlags::NOWAIT, IoFlags::DONTCACHE].map(IoFlags::bits);
    assert_eq!(
        bits,
        [libc::RWF_NOWAIT, libc::RWF_DONTCACHE].map(i32::unsigned_abs)
    );
}

#[test]
fn dontcache_keeps_no_pages_where_supported() {
    need!(Need::Cachestat);
    let directory = directory();
    let (path, file) = uncached_file(directory.path(), 64 * page_size());
    let fd = file.as_fd();
    let mut buf = vec![0; usize::try_from(64 * page_size()).unwrap()];
    let mut parts = [IoSliceMut::new(&mut buf)];
    match preadv2(fd, &mut parts, Some(0), IoFlags::DONTCACHE) {
        Ok(count) => assert_eq!(count as u64, 64 * page_size()),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
            skip!(
                "dontcache_keeps_no_pages_where_supported",
                "not supported here"
            );
        }
    }
    wait_for("read pages gone", || cached_pages(fd) == 0);

    if filesystem(fd).unwrap() != FsKind::Ext4 {
        skip!(
            "dontcache_keeps_no_pages_where_supported",
            "writes: no ext4"
        );
    }
    let fresh = File::create(path.with_extension("fresh")).unwrap();
    let count = pwritev2(
        fresh.as_fd(),
        &[IoSlice::new(&buf)],
        Some(0),
        IoFlags::DONTCACHE,
    );
    assert_eq!(count.unwrap(), buf.len());
    start_writeback(fresh.as_fd(), 0, 0).unwrap();
    wait_for("written pages gone", || cached_pages(fresh.as_fd()) == 0);
}

#[test]
fn tmpfs_refuses_dontcache() {
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        skip!("tmpfs_refuses_dontcache", "no /dev/shm");
    };
    if filesystem(file.as_fd()).unwrap() != FsKind::Tmpfs {
        skip!("tmpfs_refuses_dontcache", "/dev/shm is no tmpfs");
    }
    let parts = [IoSlice::new(b"x")];
    let error = pwritev2(file.as_fd(), &parts, Some(0), IoFlags::DONTCACHE).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    assert_eq!(file.metadata().unwrap().len(), 0);
}
