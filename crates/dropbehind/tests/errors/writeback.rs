//! Failing writeback: who gets the error, and what is read back.

use dropbehind::Mode;
use dropbehind::flusher::Flusher;
use dropbehind_testbed::{Fs, need};

use crate::bad_spot::BadSpot;
use crate::common::PATIENCE;
use crate::twins::{Log, Side, open_to_ask};

/// Syncs by a program that opened the file before the failure, by the writer, and by one that
/// opens it later.
fn errors_of_syncs(side: Side, filesystem: Option<Fs>, settle_first: bool) -> Log {
    let bed = BadSpot::new(filesystem);
    let mut log = Log::default();
    let earlier = open_to_ask(&bed.path);
    let mut writer = side.open(&bed.path);
    BadSpot::overwrite(&mut log, &mut writer);
    if settle_first {
        // By now the flusher has found out everything it can.
        writer.settle();
    }
    log.note_done("first sync", writer.sync_all());
    log.note_done("second sync", writer.sync_all());
    log.note_done("sync of one opened earlier", earlier.sync_all());
    log.note_done("its second sync", earlier.sync_all());
    let later = open_to_ask(&bed.path);
    log.note_done("sync of one opened later", later.sync_all());
    writer.settle();
    // Pages whose writeback failed count as clean, so nothing is left to fail.
    log.note_done("last sync", writer.sync_all());
    BadSpot::note_wrong_blocks(&mut log, &bed.path);
    bed.disk.clear_bad_ranges().unwrap();
    BadSpot::overwrite(&mut log, &mut side.open(&bed.path));
    log.note_done("sync on a good disk", writer.sync_all());
    log
}

/// The writer closes without a sync; the next program to open the file gets the error.
fn errors_after_close(side: Side, filesystem: Option<Fs>) -> Log {
    let bed = BadSpot::new(filesystem);
    let flusher = Flusher::builder().build().unwrap();
    let mut log = Log::default();
    // A raw device loses everything at its last close, including its errors.
    let _second_opener = filesystem.is_none().then(|| open_to_ask(&bed.path));
    let mut writer = side.open_with(&bed.path, &flusher);
    BadSpot::overwrite(&mut log, &mut writer);
    drop(writer);
    assert!(flusher.drain(PATIENCE));
    BadSpot::note_wrong_blocks(&mut log, &bed.path);
    let next = open_to_ask(&bed.path);
    log.note_done("sync of the next opener", next.sync_all());
    log.note_done("its second sync", next.sync_all());
    let later = open_to_ask(&bed.path);
    log.note_done("sync of a later opener", later.sync_all());
    BadSpot::note_wrong_blocks(&mut log, &bed.path);
    log
}

/// When the second of two writers opens the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    BeforeTheFailure,
    AfterIt,
    /// Also after the first one has closed the file.
    AfterTheFirst,
}

/// Two writers of one process. The second one writes to a good place, and its pages are dropped
/// only if nothing has failed. Finding that out must not take the error from a later opener.
fn errors_of_two_writers(side: Side, filesystem: Option<Fs>, opens: Second) -> Log {
    let bed = BadSpot::new(filesystem);
    let flusher = Flusher::builder().build().unwrap();
    let mut log = Log::default();
    let _keeps_the_device = filesystem.is_none().then(|| open_to_ask(&bed.path));
    let open = || side.open_with(&bed.path, &flusher);
    let mut first = open();
    let mut second = (opens == Second::BeforeTheFailure).then(open);
    if let Some(second) = &mut second {
        log.note("write", second.write(&[2; 4096]));
        second.settle();
    }
    BadSpot::overwrite(&mut log, &mut first);
    first.settle();
    let first = (opens != Second::AfterTheFirst).then_some(first);
    assert!(first.is_some() || flusher.drain(PATIENCE));
    let mut second = second.unwrap_or_else(open);
    log.note("write", second.write(&[2; 4096]));
    second.settle();
    let later = open_to_ask(&bed.path);
    log.note_done("sync of one opened later", later.sync_all());
    if let Some(first) = first {
        log.note_done("sync of the first", first.sync_all());
    }
    log.note_done("sync of the second", second.sync_all());
    log
}

fn errors_are_the_same(filesystem: Option<Fs>, modes: &[Mode]) {
    need!(all BadSpot::needs(filesystem));
    let plain = errors_of_syncs(Side::Plain, filesystem, false);
    assert!(plain.errors() >= 2, "nothing failed: {plain:?}");
    for &mode in modes {
        for settle_first in [false, true] {
            let ours = errors_of_syncs(Side::Ours(mode), filesystem, settle_first);
            assert_eq!(ours, plain, "{mode}, settled first: {settle_first}");
        }
    }
    let plain = errors_after_close(Side::Plain, filesystem);
    assert!(plain.errors() >= 1, "nothing failed: {plain:?}");
    for &mode in modes {
        let ours = errors_after_close(Side::Ours(mode), filesystem);
        assert_eq!(ours, plain, "{mode}");
    }
    for opens in [
        Second::BeforeTheFailure,
        Second::AfterIt,
        Second::AfterTheFirst,
    ] {
        let plain = errors_of_two_writers(Side::Plain, filesystem, opens);
        assert!(plain.errors() >= 2, "{plain:?}");
        for &mode in modes {
            let ours = errors_of_two_writers(Side::Ours(mode), filesystem, opens);
            assert_eq!(ours, plain, "{mode}, the second opens {opens:?}");
        }
    }
}

#[test]
fn writeback_errors_on_ext4_come_out_of_the_same_calls_in_every_mode() {
    errors_are_the_same(Some(Fs::Ext4), &Mode::ALL);
}

#[test]
fn writeback_errors_on_a_raw_device_come_out_of_the_same_calls() {
    errors_are_the_same(None, &[Mode::DONTCACHE, Mode::WRITE_BEHIND_ANY]);
}

#[test]
fn writeback_errors_on_xfs_come_out_of_the_same_calls() {
    errors_are_the_same(Some(Fs::Xfs), &[Mode::DONTCACHE]);
}

/// Another program syncs first. That clears the only sign of the error that can be read
/// without taking it from fsync.
#[test]
fn what_failed_in_a_sync_of_others_is_read_back() {
    need!(all BadSpot::needs(Some(Fs::Ext4)));
    let synced_by_others = |side: Side| {
        let bed = BadSpot::new(Some(Fs::Ext4));
        let mut log = Log::default();
        let other = open_to_ask(&bed.path);
        let mut writer = side.open(&bed.path);
        BadSpot::overwrite(&mut log, &mut writer);
        log.note_done("sync of another", other.sync_all());
        writer.settle();
        BadSpot::note_wrong_blocks(&mut log, &bed.path);
        log.note_done("sync of the writer", writer.sync_all());
        let later = open_to_ask(&bed.path);
        log.note_done("sync of one opened later", later.sync_all());
        log
    };
    let plain = synced_by_others(Side::Plain);
    assert_eq!(plain.errors(), 2, "{plain:?}");
    // The first mode starts writeback itself, the second leaves it all to the sync.
    for mode in [Mode::DONTCACHE, Mode::NOREUSE] {
        assert_eq!(synced_by_others(Side::Ours(mode)), plain, "{mode}");
    }
}
