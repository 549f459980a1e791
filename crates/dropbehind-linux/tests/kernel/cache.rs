//! Counting, mapping, starting writeback, dropping.

use crate::setup::{
    MIB, as_nobody, cached_pages, clean_file, directory, dirty_file, drop_all, fincore_pages,
    is_root, pages, skip, uncached_file, wait_for, wait_until_clean,
};
use dropbehind_linux::{
    Access, FsKind, advise_access, cachestat, drop_clean, file_info, filesystem, page_size,
    resident_ranges, start_writeback, will_need, write_and_wait,
};
use dropbehind_testbed::{Need, need};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

#[test]
fn counts_what_was_written_and_what_is_clean() {
    need!(Need::Cachestat);
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 4 * MIB);
    let fd = file.as_fd();
    let before = cachestat(fd, 0, 0).unwrap();
    assert_eq!(before.cached_pages, pages(4 * MIB));
    assert!(!before.is_clean(), "{before:?}");
    let half = cachestat(fd, 2 * MIB, MIB).unwrap();
    assert_eq!(half.cached_pages, pages(MIB));
    wait_until_clean(fd);
    let after = cachestat(fd, 0, 0).unwrap();
    assert_eq!(after.cached_pages, pages(4 * MIB));
    assert_eq!(after.clean_pages(), after.cached_pages);
    match fincore_pages(&path) {
        Some(told) => assert_eq!(told, after.cached_pages),
        None => skip!("counts_what_was_written_and_what_is_clean", "no fincore"),
    }
}

#[test]
fn starts_writeback_of_the_range_only() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 8 * MIB);
    let fd = file.as_fd();
    start_writeback(fd, 0, 4 * MIB).unwrap();
    wait_for("first half clean", || {
        cachestat(fd, 0, 4 * MIB).unwrap().is_clean()
    });
    let rest = cachestat(fd, 4 * MIB, 0).unwrap();
    assert!(rest.dirty_pages > 0, "{rest:?}");
    start_writeback(fd, 0, u64::MAX).unwrap();
    wait_for("all clean", || cachestat(fd, 0, 0).unwrap().is_clean());
}

#[test]
fn write_and_wait_returns_when_clean() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 8 * MIB);
    write_and_wait(file.as_fd(), 0, 0).unwrap();
    let stat = cachestat(file.as_fd(), 0, 0).unwrap();
    assert!(stat.is_clean(), "{stat:?}");
}

#[test]
fn offsets_past_the_end_of_all_files_are_refused() {
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), page_size());
    let fd = file.as_fd();
    let offset = 1 << 63;
    for result in [
        start_writeback(fd, offset, 1),
        write_and_wait(fd, offset, 1),
        drop_clean(fd, offset, 1),
        will_need(fd, offset, 1),
        resident_ranges(fd, offset, 1).map(drop),
    ] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn pipes_are_refused() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    for result in [
        start_writeback(writer.as_fd(), 0, 0),
        drop_clean(reader.as_fd(), 0, 0),
    ] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ESPIPE));
    }
}

#[test]
fn drops_clean_pages_and_reads_them_back() {
    need!(Need::Cachestat);
    let directory = directory();
    let (path, file) = clean_file(directory.path(), 4 * MIB);
    let fd = file.as_fd();
    drop_all(fd);
    if let Some(told) = fincore_pages(&path) {
        assert_eq!(told, 0);
    }
    assert!(resident_ranges(fd, 0, 4 * MIB).unwrap().is_empty());
    will_need(fd, MIB, MIB).unwrap();
    wait_for("read ahead", || {
        cachestat(fd, MIB, MIB).unwrap().cached_pages == pages(MIB)
    });
    assert!(cachestat(fd, 3 * MIB, MIB).unwrap().cached_pages < pages(MIB));
}

#[test]
fn dirty_pages_survive_a_drop_elsewhere() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = clean_file(directory.path(), 4 * MIB);
    let fd = file.as_fd();
    file.write_all_at(&[1; 100], 3 * MIB).unwrap();
    drop_clean(fd, 0, 2 * MIB).unwrap();
    let rest = cachestat(fd, 2 * MIB, 0).unwrap();
    assert_eq!(rest.cached_pages, pages(2 * MIB));
}

#[test]
fn random_access_reads_nothing_ahead() {
    need!(Need::Cachestat);
    let directory = directory();
    let (path, file) = uncached_file(directory.path(), 4 * MIB);
    advise_access(file.as_fd(), Access::Random).unwrap();
    let mut page = vec![0; usize::try_from(page_size()).unwrap()];
    file.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(cached_pages(file.as_fd()), 1);
    // The advice belongs to the description, not to the file.
    let other = File::open(path).unwrap();
    advise_access(other.as_fd(), Access::Sequential).unwrap();
    advise_access(file.as_fd(), Access::Normal).unwrap();
    other.read_exact_at(&mut page, page_size()).unwrap();
    other.read_exact_at(&mut page, 2 * page_size()).unwrap();
    assert!(cached_pages(file.as_fd()) > 3);
}

#[test]
fn maps_what_is_resident() {
    need!(Need::Cachestat);
    let directory = directory();
    let (path, file) = uncached_file(directory.path(), 4 * MIB);
    let fd = file.as_fd();
    advise_access(fd, Access::Random).unwrap();
    let page = page_size();
    let mut byte = [0];
    for at in [0, page, 5 * page, 4 * MIB - 1] {
        file.read_exact_at(&mut byte, at).unwrap();
    }
    let expected = [0..2 * page, 5 * page..6 * page, 4 * MIB - page..4 * MIB];
    assert_eq!(resident_ranges(fd, 0, u64::MAX).unwrap(), expected);
    assert_eq!(resident_ranges(fd, page + 1, 1).unwrap(), [page..2 * page]);
    assert_eq!(resident_ranges(fd, 0, 0).unwrap(), []);
    assert_eq!(resident_ranges(fd, 2 * page, 3 * page).unwrap(), []);
    assert_eq!(resident_ranges(fd, 5 * MIB, MIB).unwrap(), []);
    // Looking is not touching.
    assert_eq!(cached_pages(fd), 4);
    let write_only = File::options().write(true).open(path).unwrap();
    let error = resident_ranges(write_only.as_fd(), 0, page).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
}

#[test]
fn maps_across_pieces_of_a_sparse_file() {
    need!(Need::Cachestat);
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), page_size());
    let fd = file.as_fd();
    let page = page_size();
    // Dirty pages at both sides of the border of two pieces, far out.
    let border = 1000 << 30;
    file.set_len(2000 << 30).unwrap();
    file.write_all_at(&[1; 2], border - 1).unwrap();
    let started = std::time::Instant::now();
    let ranges = resident_ranges(fd, 0, u64::MAX).unwrap();
    assert_eq!(ranges, [0..page, border - page..border + page]);
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

/// mincore calls every page resident to those who may not know.
#[test]
fn residency_is_refused_rather_than_made_up() {
    need!(Need::Cachestat);
    if !is_root() {
        skip!("residency_is_refused_rather_than_made_up", "needs root");
    }
    let directory = directory();
    let (path, file) = uncached_file(directory.path(), MIB);
    let readable = File::open(path).unwrap();
    assert_eq!(resident_ranges(readable.as_fd(), 0, MIB).unwrap(), []);
    as_nobody(|| {
        let error = cachestat(readable.as_fd(), 0, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        let error = resident_ranges(readable.as_fd(), 0, MIB).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        // Opened for writing by somebody who was allowed to: enough for
        // cachestat, but not for mincore.
        assert_eq!(cachestat(file.as_fd(), 0, 0).unwrap().cached_pages, 0);
        let error = resident_ranges(file.as_fd(), 0, MIB).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    });
    // Permission to write is enough, whatever the descriptor is open for.
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::fchmod(&file, mode).unwrap();
    as_nobody(|| assert_eq!(resident_ranges(readable.as_fd(), 0, MIB).unwrap(), []));
    // And so is owning it.
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o444)).unwrap();
    rustix::fs::fchown(&file, Some(rustix::fs::Uid::from_raw(54_321)), None).unwrap();
    as_nobody(|| assert_eq!(resident_ranges(readable.as_fd(), 0, MIB).unwrap(), []));
}

#[test]
fn tmpfs_counts_but_has_nothing_dirty() {
    need!(Need::Cachestat);
    let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
        skip!("tmpfs_counts_but_has_nothing_dirty", "no /dev/shm");
    };
    let fd = file.as_fd();
    if filesystem(fd).unwrap() != FsKind::Tmpfs {
        skip!("tmpfs_counts_but_has_nothing_dirty", "/dev/shm is no tmpfs");
    }
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    let stat = cachestat(fd, 0, 0).unwrap();
    assert_eq!((stat.cached_pages, stat.dirty_pages), (pages(MIB), 0));
    assert_eq!(resident_ranges(fd, 0, MIB).unwrap(), [0..MIB]);
    drop_clean(fd, 0, 0).unwrap();
    assert_eq!(cached_pages(fd), pages(MIB));
}

#[test]
fn descriptors_without_io_are_refused() {
    need!(Need::Cachestat);
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), page_size());
    let by_path =
        rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let error = cachestat(by_path.as_fd(), 0, 0).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(libc::EBADF),
        "{}",
        file.as_raw_fd()
    );
    let error = start_writeback(by_path.as_fd(), 0, 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert!(file_info(file.as_fd()).is_ok());
}

/// overlayfs: what works there, and what only seems to.
#[test]
fn an_overlays_pages_are_its_layers() {
    need!(Need::Cachestat);
    if !is_root() {
        skip!("an_overlays_pages_are_its_layers", "needs root");
    }
    let directory = directory();
    let root = directory.path();
    let Some(mounted) = crate::setup::overlay(root) else {
        skip!("an_overlays_pages_are_its_layers", "cannot mount overlayfs");
    };
    let (_, file) = dirty_file(&mounted.0, MIB);
    let layer = File::open(root.join("upper/data")).unwrap();
    let (above, below) = (file.as_fd(), layer.as_fd());
    if filesystem(below).unwrap() != FsKind::Ext4 {
        skip!("an_overlays_pages_are_its_layers", "no ext4 below");
    }
    assert_eq!(cached_pages(above), 0);
    assert_eq!(cached_pages(below), pages(MIB));
    assert_eq!(resident_ranges(above, 0, MIB).unwrap(), [0..MIB]);
    start_writeback(above, 0, 0).unwrap();
    write_and_wait(above, 0, 0).unwrap();
    assert!(cachestat(below, 0, 0).unwrap().dirty_pages > 0);
    drop_clean(above, 0, 0).unwrap();
    wait_for("the layer's file clean", || {
        cachestat(below, 0, 0).unwrap().is_clean()
    });
    wait_for("dropped", || {
        drop_clean(above, 0, 0).unwrap();
        resident_ranges(above, 0, MIB).unwrap().is_empty()
    });
    assert_eq!(cached_pages(below), 0);
}
