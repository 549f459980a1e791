//! Reading in large folios.

use crate::setup::{
    MIB, cached_pages, clean_file, directory, drop_all, fincore_pages, pages, skip, uncached_file,
    wait_for,
};
use dropbehind_linux::{
    Access, FsKind, KernelVersion, LargeRead, advise_access, cachestat, drop_clean, filesystem,
    huge_page_size, kernel_version, resident_ranges,
};
use dropbehind_testbed::{Need, need};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// What a large read is tested with; `None` where a huge page is too much.
fn size() -> Option<u64> {
    huge_page_size().filter(|size| *size <= 4 * MIB)
}

#[test]
fn brings_one_huge_page_and_no_more() {
    need!(Need::Cachestat);
    let Some(size) = size() else {
        skip!("brings_one_huge_page_and_no_more", "no huge pages");
    };
    let directory = directory();
    let (path, file) = uncached_file(directory.path(), 4 * size);
    let fd = file.as_fd();
    let read = LargeRead::new(fd, size).unwrap();
    assert_eq!(cached_pages(fd), 0, "mapping reads nothing");
    read.read().unwrap();
    assert_eq!(resident_ranges(fd, 0, 4 * size).unwrap(), [size..2 * size]);
    match fincore_pages(&path) {
        Some(told) => assert_eq!(told, pages(size)),
        None => skip!("brings_one_huge_page_and_no_more", "no fincore"),
    }
    // Nobody's read finds it again, and so it goes when it is told to.
    drop(read);
    wait_for("dropped", || {
        drop_clean(fd, size, size).unwrap();
        cached_pages(fd) == 0
    });
}

#[test]
fn what_is_cached_already_stays_as_it_is() {
    need!(Need::Cachestat);
    let Some(size) = size() else {
        skip!("what_is_cached_already_stays_as_it_is", "no huge pages");
    };
    let directory = directory();
    let (_, file) = uncached_file(directory.path(), size);
    let fd = file.as_fd();
    let written = vec![7; 3 << 12];
    file.write_all_at(&written, 5 << 12).unwrap();
    LargeRead::new(fd, 0).unwrap().read().unwrap();
    let counted = cachestat(fd, 0, 0).unwrap();
    assert_eq!(counted.cached_pages, pages(size));
    assert!(counted.dirty_pages + counted.writeback_pages >= 3);
    let mut found = vec![0; written.len()];
    file.read_exact_at(&mut found, 5 << 12).unwrap();
    assert_eq!(found, written);
    file.read_exact_at(&mut found, 8 << 12).unwrap();
    assert!(found.iter().all(|byte| *byte == 0xA5));
}

/// With no more faults than this, a read came in a large folio.
const FEW_FAULTS: u64 = 16;

#[test]
fn the_faults_tell_a_large_folio_from_single_pages() {
    need!(Need::Cachestat);
    let Some(size) = size() else {
        skip!(
            "the_faults_tell_a_large_folio_from_single_pages",
            "no huge pages"
        );
    };
    let directory = directory();
    let (_, file) = uncached_file(directory.path(), size);
    let fd = file.as_fd();
    let faults = || LargeRead::new(fd, 0).unwrap().read().unwrap();
    // Where a page is cached, there is no room for a folio around it.
    advise_access(fd, Access::Random).unwrap();
    file.read_exact_at(&mut [0; 1], size / 2).unwrap();
    let single = faults();
    assert!(single > FEW_FAULTS, "{single} faults");
    let ext4_has_them = kernel_version()
        >= KernelVersion {
            major: 6,
            minor: 16,
        };
    match filesystem(fd).unwrap() {
        FsKind::Xfs => {}
        FsKind::Ext4 if ext4_has_them => {}
        other => skip!(
            "the_faults_tell_a_large_folio_from_single_pages",
            "no large folios on {other} of this kernel"
        ),
    }
    // Memory may be too fragmented at the moment.
    let counts: Vec<u64> = (0..20)
        .map(|_| {
            drop_all(fd);
            faults()
        })
        .collect();
    assert!(
        counts.iter().any(|count| *count <= FEW_FAULTS),
        "{counts:?}"
    );
}

#[test]
fn the_end_of_a_file_is_an_error_and_no_signal() {
    need!(Need::Cachestat);
    let Some(size) = size() else {
        skip!(
            "the_end_of_a_file_is_an_error_and_no_signal",
            "no huge pages"
        );
    };
    let directory = directory();
    let (_, file) = uncached_file(directory.path(), 2 * size);
    let read = LargeRead::new(file.as_fd(), size).unwrap();
    file.set_len(size + 100).unwrap();
    let error = read.read().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    file.set_len(0).unwrap();
    assert!(read.read().is_err());
}

#[test]
fn what_cannot_be_read_so_is_refused() {
    need!(Need::Cachestat);
    let Some(size) = size() else {
        skip!("what_cannot_be_read_so_is_refused", "no huge pages");
    };
    let directory = directory();
    let (path, file) = clean_file(directory.path(), size);
    let error = |file: &File, offset| LargeRead::new(file.as_fd(), offset).unwrap_err();
    assert_eq!(error(&file, 4096).raw_os_error(), Some(libc::EINVAL));
    let write_only = File::options().write(true).open(path).unwrap();
    assert_eq!(error(&write_only, 0).raw_os_error(), Some(libc::EACCES));
    let folder = File::open(directory.path()).unwrap();
    assert_eq!(error(&folder, 0).raw_os_error(), Some(libc::ENODEV));
}
