//! The writer's path, for callgrind to count its instructions.
//!
//! `write_path_instructions` lists the cases, `write_path_instructions CASE` runs one. Only
//! what runs below the function `measured` counts. `.ci/instruction-counts` runs them all.
//!
//! callgrind doesn't count the kernel's part. So `pwrite` is the bare call, and `buffered` is
//! what the library adds to a file with nothing to report. Reporting is measured on a slot
//! without a flusher: beside a flusher's thread, callgrind's counts are not reproducible.

use dropbehind::{File, Mode};
use dropbehind_policy::ByteRange;
use dropbehind_slot::{Run, Slot};
use std::hint::black_box;
use std::os::unix::fs::FileExt;

const WRITES: u64 = 20_000;
const BLOCK_BYTES: u64 = 4096;
const SPAN_BYTES: u64 = 1 << 20;

const CASES: [(&str, fn()); 4] = [
    ("write-4k-pwrite", || {
        let file = scratch();
        measured(&mut |call| write(&file, call));
    }),
    ("write-4k-buffered", || {
        let file = File::from_std(scratch(), Mode::BUFFERED).expect("a file");
        measured(&mut |call| {
            let written = file.write_at(&[0x5a; BLOCK_BYTES as usize], offset(call));
            black_box(written.expect("a write"));
        });
    }),
    ("slot-4k-sequential", || {
        let slot = Slot::new(u64::MAX, SPAN_BYTES);
        measured(&mut |call| tell(&slot, call));
    }),
    ("slot-4k-scattered", || {
        let slot = Slot::new(u64::MAX, SPAN_BYTES);
        // Every other page, so that no two join into one range. A flusher would empty the
        // ring long before it is full.
        measured(&mut |call| {
            tell(&slot, 2 * call);
            if call % 256 == 255 {
                slot.writes.drain(|run| {
                    black_box(run);
                });
            }
        });
    }),
];

#[inline(never)]
fn measured(event: &mut dyn FnMut(u64)) {
    for call in 0..WRITES {
        event(call);
    }
}

/// An unnamed file wherever there is room: the writes themselves don't count.
fn scratch() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("dropbehind-count-{}", std::process::id()));
    let file = std::fs::File::create_new(&path).expect("a file in the temporary folder");
    std::fs::remove_file(&path).expect("its name to be removed");
    file
}

fn offset(call: u64) -> u64 {
    call * BLOCK_BYTES % SPAN_BYTES
}

fn write(file: &std::fs::File, call: u64) {
    let written = file.write_at(&[0x5a; BLOCK_BYTES as usize], offset(call));
    black_box(written.expect("a write"));
}

fn tell(slot: &Slot, page: u64) {
    let range = ByteRange::new(page * BLOCK_BYTES, (page + 1) * BLOCK_BYTES);
    for run in Run::covering(range, Mode::DONTCACHE) {
        black_box(slot.wrote(run, BLOCK_BYTES));
    }
}

fn main() {
    match std::env::args().nth(1) {
        None => CASES
            .iter()
            .for_each(|(name, _)| println!("{name} {WRITES}")),
        Some(wanted) => match CASES.iter().find(|(name, _)| *name == wanted) {
            Some((_, case)) => case(),
            None => {
                eprintln!("no case {wanted}");
                std::process::exit(2);
            }
        },
    }
}
