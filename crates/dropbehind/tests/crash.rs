//! A killed writer loses nothing that it had synced, and the next one carries on from there.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{
    Dice, FILE_VARIABLE, KIB, Kind, MIB, PATIENCE, Place, cached_bytes, read_pattern, write_pattern,
};
use dropbehind::{File, Mode, OpenOptions};
use dropbehind_testbed::{Fs, need, residency};

const MODE_VARIABLE: &str = "DROPBEHIND_TEST_MODE";
const ROUNDS: u64 = 20;
/// A writer that nobody kills stops here.
const MOST_BYTES: u64 = 96 * MIB;

/// Appends the pattern until it is killed. Syncs now and then, and reports on standard output
/// how far.
#[test]
#[ignore = "a part of another test"]
fn appends_until_it_is_killed() {
    let path = std::env::var_os(FILE_VARIABLE).unwrap();
    let mode: Mode = std::env::var(MODE_VARIABLE).unwrap().parse().unwrap();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .cache_mode(mode)
        .window_bytes(MIB)
        .open(&path)
        .unwrap();
    let mut end = file.seek(SeekFrom::End(0)).unwrap();
    let mut dice = Dice::new(end + 1);
    let mut told = std::io::stdout();
    while end < MOST_BYTES {
        for _ in 0..dice.below(24) {
            let length = dice.below(128 * KIB) + 1;
            write_pattern(&mut file, 1, end, length, 32 * KIB);
            end += length;
        }
        file.sync_data().unwrap();
        writeln!(told, "SYNCED {end}").unwrap();
        told.flush().unwrap();
    }
}

/// Lets a writer live for a while; returns the last length that it reported as synced.
fn write_and_kill(path: &Path, mode: Mode, life: Duration) -> u64 {
    let mut writer = common::part("appends_until_it_is_killed")
        .env(FILE_VARIABLE, path)
        .env(MODE_VARIABLE, mode.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let listener = std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("SYNCED ")?.parse::<u64>().ok())
            .last()
    });
    std::thread::sleep(life);
    writer.kill().unwrap();
    let status = writer.wait().unwrap();
    assert!(status.signal() == Some(9) || status.success(), "{status}");
    listener.join().unwrap().unwrap_or(0)
}

#[test]
fn what_a_killed_writer_had_synced_is_there_and_the_next_one_goes_on() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), 128 * MIB);
    let path = place.path();
    let seed = std::process::id().into();
    let mut dice = Dice::new(seed);
    let mut synced = 0;
    let mut kills = 0;
    for round in 0..ROUNDS {
        let mode = Mode::ALL[(round % Mode::ALL.len() as u64) as usize];
        let life = Duration::from_micros(dice.below(120_000));
        synced = write_and_kill(&path, mode, life).max(synced);
        let Ok(mut file) = fs::File::open(&path) else {
            // Killed before it had created the file.
            assert_eq!(synced, 0);
            continue;
        };
        // Without a sync, so that the disk holds only what the writer synced.
        drop_clean_pages(&file);
        let length = read_pattern(&mut file, 1, MIB);
        assert!(
            length >= synced,
            "{mode}: {length} of {synced}; seed {seed}"
        );
        kills += u64::from(length < MOST_BYTES);
        if length >= MOST_BYTES {
            fs::remove_file(&path).unwrap();
            synced = 0;
        }
    }
    assert!(
        kills > ROUNDS / 2,
        "the writers were never cut off: {kills}"
    );
    // A writer that carries on after all this leaves the cache as empty as ever, whatever the
    // killed ones left in it.
    let mut rest = fs::OpenOptions::new();
    rest.write(true).create(true).truncate(false);
    rest.open(&path).unwrap().sync_all().unwrap();
    residency::evict(&path);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    let end = file.metadata().unwrap().len();
    write_pattern(&mut file, 1, end, 24 * MIB, MIB);
    file.sync_all().unwrap();
    assert!(file.settle(PATIENCE).unwrap());
    assert_eq!(cached_bytes(&path), 0, "{:?}", file.stats());
    let length = read_pattern(&mut File::open(&path).unwrap(), 1, MIB);
    assert_eq!(length, end + 24 * MIB);
}

/// Leaves dirty pages as they are.
fn drop_clean_pages(file: &fs::File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
