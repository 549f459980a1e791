//! Threads that use one file in all ways at once leave nothing behind.

use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use dropbehind::flusher::Flusher;
use dropbehind::{File, OpenOptions};

use crate::accounts::{assert_balanced, settle};
use crate::common::{Dice, MIB, Place, cached_bytes};
use dropbehind_testbed::residency;

everywhere! {
    threads_that_do_everything_leave_nothing: 32;
    what_readers_of_two_flushers_leave_is_counted: 96;
}

/// As two programs do, whose flushers know nothing of each other: one drops what the other is about
/// to read, and then the kernel reads ahead.
fn what_readers_of_two_flushers_leave_is_counted(place: &Place) {
    let path = place.cold_file(1);
    for _ in 0..4 {
        residency::evict(&path);
        let files = [(); 2].map(|()| {
            let flusher = Flusher::builder().build().unwrap();
            let mut options = OpenOptions::new();
            options.read(true).flusher(&flusher).open(&path).unwrap()
        });
        std::thread::scope(|scope| {
            for mut file in &files {
                scope.spawn(move || {
                    let mut block = vec![0; 64 << 10];
                    while file.read(&mut block).unwrap() > 0 {}
                    settle(file);
                });
            }
        });
        let kept_bytes: u64 = files.iter().map(|file| file.stats().kept_bytes).sum();
        let cached_bytes = cached_bytes(&path);
        assert!(cached_bytes <= kept_bytes, "{cached_bytes} of {kept_bytes}");
    }
}

const ROUNDS: u64 = 20;
const OPERATIONS: u64 = 60;
/// The most bytes of one read or write.
const MOST_BYTES: u64 = 300_000;

fn threads_that_do_everything_leave_nothing(place: &Place) {
    let path = place.cold_file(1);
    let mut rounds_left = 0;
    for round in 0..ROUNDS {
        residency::evict(&path);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let file = file.try_clone().unwrap();
                let mut dice = Dice::new(3 * round + thread);
                scope.spawn(move || (0..OPERATIONS).for_each(|_| do_something(&file, &mut dice)));
            }
        });
        settle(&file);
        // On a busy machine the kernel may read ahead of a read whose pages were just dropped.
        let (stats, cached_bytes) = (file.stats(), cached_bytes(&path));
        assert!(
            cached_bytes <= stats.kept_bytes,
            "{round}: {cached_bytes} {stats:?}"
        );
        rounds_left += u64::from(cached_bytes > 0);
        assert!(rounds_left <= 1, "{round}: {cached_bytes} {stats:?}");
        assert_balanced(&stats);
    }
}

fn do_something(mut file: &File, dice: &mut Dice) {
    let mut block = vec![1; dice.below(MOST_BYTES) as usize + 1];
    let start = dice.below(24 * MIB);
    match dice.below(12) {
        0..3 => drop(file.write_at(&block, start).unwrap()),
        3..6 => drop(file.read_at(&mut block, start).unwrap()),
        6 => drop(file.read(&mut block).unwrap()),
        7 => file.write_all(&block).unwrap(),
        8 => drop(file.seek(SeekFrom::Start(start)).unwrap()),
        9 => drop(file.settle(Duration::from_millis(dice.below(20))).unwrap()),
        10 => drop(file.drop_behind(start..start + MOST_BYTES).unwrap()),
        _ => {
            drop(file.try_clone().unwrap());
            file.sync_data().unwrap();
        }
    }
}
