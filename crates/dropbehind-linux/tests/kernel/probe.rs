//! The probe, where the answers are known.

use crate::setup::{Loop, MIB, as_nobody, cached_pages, directory, is_root, overlay, skip};
use dropbehind_linux::{FsKind, Probe, Support, probe};
use dropbehind_testbed::{Need, need};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

fn probed(path: &Path) -> Probe {
    let found = probe(path).unwrap();
    eprintln!("{}: {found:#?}", path.display());
    found
}

fn is_empty(directory: &Path) -> bool {
    directory.read_dir().unwrap().next().is_none()
}

#[test]
fn on_the_disk_the_basics_work() {
    let directory = directory();
    let found = probed(directory.path());
    assert!(is_empty(directory.path()));
    if !matches!(found.filesystem, FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs) {
        skip!("on_the_disk_the_basics_work", "{}", found.filesystem);
    }
    for (name, support) in [
        ("mincore", &found.mincore),
        ("fadvise_dontneed", &found.fadvise_dontneed),
        ("fiemap", &found.fiemap),
        ("own_description", &found.own_description),
        ("descriptor_table", &found.descriptor_table),
        ("io_priority", &found.io_priority),
    ] {
        assert!(support.works(), "{name}: {support}");
    }
    if found.kernel.major > 6 || (found.kernel.major == 6 && found.kernel.minor >= 5) {
        assert!(found.cachestat.works(), "{}", found.cachestat);
        assert!(found.sync_file_range.works(), "{}", found.sync_file_range);
    }
    // The same every time.
    assert_eq!(probed(directory.path()), found);
}

#[test]
fn a_file_asked_about_is_not_touched() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "contents").unwrap();
    let before = path.metadata().unwrap();
    let found = probed(&path);
    let after = path.metadata().unwrap();
    assert!(found.mincore.works(), "{}", found.mincore);
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "contents");
    assert_eq!(directory.path().read_dir().unwrap().count(), 1);
}

#[test]
fn tmpfs_drops_nothing() {
    need!(Need::Cachestat);
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        skip!("tmpfs_drops_nothing", "no /dev/shm");
    };
    let found = probed(directory.path());
    if found.filesystem != FsKind::Tmpfs {
        skip!("tmpfs_drops_nothing", "/dev/shm is no tmpfs");
    }
    assert!(found.disk.virtual_);
    assert!(found.mincore.works());
    for support in [&found.sync_file_range, &found.fadvise_dontneed] {
        assert!(matches!(support, Support::Ineffective { .. }), "{support}");
    }
    for support in [
        &found.dontcache_write,
        &found.dontcache_overwrite,
        &found.dontcache_read,
        &found.fiemap,
    ] {
        let errno = libc::EOPNOTSUPP;
        let refused = matches!(support, Support::Missing { errno: e, .. } if *e == errno);
        assert!(refused, "{support}");
    }
}

#[test]
fn overlayfs_is_seen_through() {
    need!(Need::Cachestat);
    if !is_root() {
        skip!("overlayfs_is_seen_through", "needs root");
    }
    let directory = directory();
    let root = directory.path();
    let Some(mounted) = overlay(root) else {
        skip!("overlayfs_is_seen_through", "cannot mount overlayfs");
    };
    let found = probed(&mounted.0);
    assert_eq!(found.filesystem, FsKind::Overlay);
    assert!(
        matches!(found.cachestat, Support::Ineffective { .. }),
        "{}",
        found.cachestat
    );
    assert!(found.mincore.works(), "{}", found.mincore);
    let ineffective = matches!(found.sync_file_range, Support::Ineffective { .. });
    assert!(ineffective, "{}", found.sync_file_range);
    assert!(found.fadvise_dontneed.works(), "{}", found.fadvise_dontneed);
    assert!(is_empty(&mounted.0));
}

#[test]
fn a_block_device_is_only_read() {
    need!(Need::Cachestat);
    let Some(device) = Loop::new("a_block_device_is_only_read", 64 * MIB) else {
        return;
    };
    let held = device.open();
    let before = std::fs::read(&device.device).unwrap();
    crate::setup::drop_all(held.as_fd());
    let found = probed(&device.device);
    assert_eq!(found.filesystem, FsKind::BlockDevice);
    assert_eq!(found.disk.name, device.name());
    assert!(found.cachestat.works(), "{}", found.cachestat);
    assert!(found.mincore.works(), "{}", found.mincore);
    assert!(found.fadvise_dontneed.works(), "{}", found.fadvise_dontneed);
    assert!(found.direct_io.works(), "{}", found.direct_io);
    for support in [
        &found.sync_file_range,
        &found.dontcache_write,
        &found.dontcache_overwrite,
    ] {
        assert!(matches!(support, Support::Untested { .. }), "{support}");
    }
    assert!(before == std::fs::read(&device.device).unwrap());

    // With all of it cached by somebody else, nothing of it may go.
    let cached = cached_pages(held.as_fd());
    let found = probed(&device.device);
    assert!(matches!(found.fadvise_dontneed, Support::Untested { .. }));
    assert_eq!(cached_pages(held.as_fd()), cached);
}

#[test]
fn a_directory_that_cannot_be_written_is_probed_by_reading() {
    let test = "a_directory_that_cannot_be_written_is_probed_by_reading";
    if !is_root() {
        eprintln!("SKIP {test}: needs root");
        return;
    }
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIP {test}: no /dev/shm");
        return;
    };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    let path = directory.path().join("file");
    File::create(&path).unwrap().write_all(&[1; 9000]).unwrap();
    let found = as_nobody(|| probed(&path));
    let why = "no scratch file";
    assert!(found.dontcache_write.to_string().contains(why));
    // It may not know, and must not be told that all is resident.
    let errno = libc::EPERM;
    assert!(matches!(found.mincore, Support::Missing { errno: e, .. } if e == errno));
}

#[test]
fn other_things_are_refused() {
    let error = probe(Path::new("/dev/null")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    let error = probe(Path::new("/nonexistent")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}
