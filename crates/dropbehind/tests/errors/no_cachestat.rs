//! Failing writeback where cachestat is missing: each error is reported by the calls that
//! would have reported it without us, also to other programs.

use std::path::Path;

use dropbehind::Mode;
use dropbehind_testbed::{CallFilter, FailNth, Fs, need};

use crate::bad_spot::BadSpot;
use crate::common::{self, FILE_VARIABLE};
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
