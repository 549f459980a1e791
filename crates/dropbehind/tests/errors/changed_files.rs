//! Files that are changed behind our back.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use dropbehind_testbed::{Fs, MountedFs, need, pattern, residency};

use crate::common::{MIB, cached_bytes};
use crate::twins::{Log, Side, open_plain};

/// Runs the same script on both sides, and compares what it returns.
fn on_both_sides<T: PartialEq>(script: impl Fn(Side, &Path) -> T) {
    need!(all MountedFs::needs(Fs::Ext4));
    let disk = MountedFs::new(Fs::Ext4, 256 * MIB).unwrap();
    let plain = script(Side::Plain, &disk.file("plain"));
    for (number, side) in Side::ours().enumerate() {
        let ours = script(side, &disk.file(&format!("ours-{number}")));
        assert!(ours == plain, "{side:?}");
    }
}

#[test]
fn a_file_truncated_under_us_has_the_same_bytes() {
    on_both_sides(|side, path| {
        fs::File::create(path).unwrap();
        let other = open_plain(path);
        let mut file = side.open(path);
        let mut log = Log::default();
        for (step, length) in [MIB + 123, 0, 20 * MIB, 5 * MIB].into_iter().enumerate() {
            for block in 0..24 {
                let data = pattern::filled(step as u64, block, 200_000);
                log.note("write", file.write(&data));
            }
            other.set_len(length).unwrap();
        }
        log.note("write", file.write(&[9; 5000]));
        log.note_done("sync", file.sync_all());
        file.settle();
        residency::evict(path);
        (log, fs::read(path).unwrap())
    });
}

#[test]
fn a_file_deleted_under_us_can_be_read_by_those_who_have_it() {
    on_both_sides(|side, path| {
        fs::File::create(path).unwrap();
        let other = open_plain(path);
        let mut file = side.open(path);
        let mut log = Log::default();
        for step in 0..16 {
            log.note("write", file.write(&vec![step; MIB as usize]));
            if step == 5 {
                fs::remove_file(path).unwrap();
            }
        }
        file.settle();
        log.note_done("sync", file.sync_all());
        file.settle();
        let mut data = vec![0; 16 << 20];
        other.read_exact_at(&mut data, 0).unwrap();
        drop(file);
        let mut again = vec![0; 16 << 20];
        other.read_exact_at(&mut again, 0).unwrap();
        assert!(data == again);
        (log, data)
    });
}

#[test]
fn a_file_that_takes_our_files_name_is_left_alone() {
    on_both_sides(|side, path| {
        fs::File::create(path).unwrap();
        let mut file = side.open(path);
        let mut log = Log::default();
        let newcomer = path.with_extension("new");
        for step in 0..16 {
            log.note("write", file.write(&vec![step; MIB as usize]));
            if step == 5 {
                fs::write(&newcomer, pattern::filled(5, 0, 4 << 20)).unwrap();
                fs::rename(&newcomer, path).unwrap();
            }
        }
        log.note_done("sync", file.sync_all());
        file.settle();
        let mut data = vec![0; 16 << 20];
        let count = file.read_at(&mut data, 0).unwrap();
        drop(file);
        // Another program's I/O brought its pages in.
        assert_eq!(cached_bytes(path), 4 * MIB, "{side:?}");
        let newcomer = fs::read(path).unwrap();
        pattern::check(5, 0, &newcomer).unwrap();
        data.truncate(count);
        (log, data, newcomer.len())
    });
}
