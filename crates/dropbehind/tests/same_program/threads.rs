//! Threads that share a file.

use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use dropbehind::Mode;
use dropbehind_testbed::{Fs, need, pattern};

use crate::access::Access;
use crate::common::{Dice, KIB, Kind, PATIENCE, Place};
use crate::{FAST_OPS, SIZE_BYTES, ops, seed};

/// Each thread works in its own part of the file, through its own `File` and through a clone
/// of one that all threads share, and knows what its part must contain.
fn many_threads(kind: Kind, ops: u64) {
    const THREADS: u64 = 4;
    const PART_BYTES: u64 = SIZE_BYTES / THREADS;
    need!(all kind.needs());
    let seed = seed();
    let place = Place::new(kind, SIZE_BYTES);
    let path = place.cold_file(seed);
    let access = Access {
        append: false,
        read: true,
        write: true,
        ..Access::draw(&mut Dice::new(seed))
    };
    let shared = access.open_ours(&path);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared, path) = (&shared, &path);
            scope.spawn(move || {
                let part = thread * PART_BYTES;
                let mut dice = Dice::new(seed + thread + 1);
                let mut oracle = pattern::filled(seed, part, PART_BYTES as usize);
                let mut own = access.open_ours(path);
                let again = format!("repeat with DROPBEHIND_SEED={seed}");
                for step in 0..ops / THREADS {
                    let length = dice.below(64 * KIB);
                    let start = dice.below(PART_BYTES - length);
                    let here = start as usize..(start + length) as usize;
                    let offset = part + start;
                    match dice.below(400) {
                        0..140 => {
                            let data = pattern::filled(seed ^ step, thread, length as usize);
                            let mode = Mode::from_bits(dice.below(12) as u8);
                            let written = match dice.below(3) {
                                0 => shared.write_at_with(&data, offset, mode),
                                1 => shared.write_at(&data, offset),
                                _ => own
                                    .seek(SeekFrom::Start(offset))
                                    .and_then(|_| own.write(&data)),
                            };
                            assert_eq!(written.unwrap(), data.len(), "{again}");
                            oracle[here].copy_from_slice(&data);
                        }
                        140..320 => {
                            let mut data = vec![1; length as usize];
                            let read = match dice.below(2) {
                                0 => shared.read_at(&mut data, offset),
                                _ => own
                                    .seek(SeekFrom::Start(offset))
                                    .and_then(|_| own.read(&mut data)),
                            };
                            assert_eq!(read.unwrap(), data.len(), "{again}");
                            assert!(data == oracle[here], "thread {thread}; {again}");
                        }
                        320..344 => shared.set_mode(Mode::from_bits(dice.below(12) as u8)),
                        344..368 => drop(shared.drop_behind(offset..offset + length).unwrap()),
                        368..380 => shared.start_writeback(offset..offset + length).unwrap(),
                        380 => shared.sync_data().unwrap(),
                        // The other threads keep writing, so it may never settle.
                        381 => drop(shared.settle(Duration::from_millis(20)).unwrap()),
                        382..392 => own = access.open_ours(path),
                        _ => drop(shared.try_clone().unwrap()),
                    }
                }
                let mut data = vec![0; PART_BYTES as usize];
                own.seek(SeekFrom::Start(part)).unwrap();
                own.read_exact(&mut data).unwrap();
                assert!(data == oracle, "thread {thread}; {again}");
            });
        }
    });
    shared.sync_all().unwrap();
    assert!(shared.settle(PATIENCE).unwrap());
}

#[test]
fn threads_in_parts_of_one_file_do_the_same() {
    many_threads(Kind::Mounted(Fs::Ext4), ops(FAST_OPS) / 2);
}

#[test]
fn threads_in_parts_of_one_raw_device_do_the_same() {
    many_threads(Kind::RawDevice, ops(FAST_OPS) / 2);
}
