//! Failing writeback where cachestat is missing: each error is reported by the calls that
//! would have reported it without us, also to other programs.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use dropbehind::{File, Mode};
use dropbehind_testbed::{
    CallFilter, FailNth, Fs, Need, SlowDisk, SlowDiskOptions, need, residency,
};

use crate::bad_spot::BadSpot;
use crate::common::{self, FILE_VARIABLE, PATIENCE};
use crate::twins::{Log, Side};

/// Runs under a filter that leaves it no cachestat.
#[test]
#[ignore = "a part of another test"]
fn errors_without_cachestat() {
    let path = std::env::var_os(FILE_VARIABLE).unwrap();
    let log = errors_with_later_openers(
        Side::Ours(Mode::DONTCACHE),
        Path::new(&path),
        std::env::var_os("SYNCS").is_some(),
    );
    println!("LOG {log:?}");
}

fn errors_with_later_openers(side: Side, path: &Path, syncs: bool) -> Log {
    let mut log = Log::default();
    let mut writer = side.open(path);
    BadSpot::overwrite(&mut log, &mut writer);
    writer.settle();
    BadSpot::note_wrong_blocks(&mut log, path);
    if syncs {
        log.note_done("sync of the writer", writer.sync_all());
        log.note_done("its second sync", writer.sync_all());
    }
    drop(writer);
    let next = Side::Plain.open(path);
    log.note_done("sync of the next opener", next.sync_all());
    log.note_done("its second sync", next.sync_all());
    let later = Side::Plain.open(path);
    log.note_done("sync of a later opener", later.sync_all());
    log
}

#[test]
fn writeback_errors_are_told_where_cachestat_is_missing() {
    need!(all BadSpot::needs(Some(Fs::Ext4)));
    for syncs in [true, false] {
        let bed = BadSpot::new(Some(Fs::Ext4));
        let plain = errors_with_later_openers(Side::Plain, &bed.path, syncs);
        assert!(plain.errors() >= 1, "nothing failed: {plain:?}");
        let bed = BadSpot::new(Some(Fs::Ext4));
        let mut command = common::part("no_cachestat::errors_without_cachestat");
        command.env(FILE_VARIABLE, &bed.path);
        if syncs {
            command.env("SYNCS", "1");
        }
        let calls = [CallFilter::new("cachestat").unwrap()];
        let outcome = FailNth::every(calls, libc::ENOSYS).run(command).unwrap();
        let said = String::from_utf8_lossy(&outcome.stdout);
        assert!(outcome.status.success(), "{said}{outcome:?}");
        assert!(
            said.contains(&format!("LOG {plain:?}\n")),
            "without us {plain:?}, with us: {said}"
        );
    }
}

/// Nobody can tell then what is under writeback from what the kernel never writes.
#[test]
fn what_a_slow_disk_writes_is_waited_for_where_cachestat_is_missing() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    let disk = SlowDisk::new(SlowDiskOptions::default()).unwrap();
    let mounted = disk.mount(Fs::Ext4).unwrap();
    let path = mounted.file("data");
    fs::write(&path, b"").unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    disk.set_latency(Duration::from_secs(10)).unwrap();
    let mut command = common::part("no_cachestat::settles_without_cachestat");
    command.env(FILE_VARIABLE, &path);
    let calls = [CallFilter::new("cachestat").unwrap()];
    let outcome = FailNth::every(calls, libc::ENOSYS).run(command).unwrap();
    disk.set_latency(Duration::ZERO).unwrap();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(residency::cached(&path).unwrap().cached_pages, 0);
}

#[test]
#[ignore = "a part of another test"]
fn settles_without_cachestat() {
    let path = std::env::var_os(FILE_VARIABLE).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[7; 1 << 20], 0).unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(file.stats().left_bytes, 0, "{:?}", file.stats());
}
