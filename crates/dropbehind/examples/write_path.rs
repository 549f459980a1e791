//! What the library adds to a 4 KiB `pwrite` when no kick is due.
//!
//! `write_path FILE [ROUNDS]` writes the same megabyte over and over, alternating between
//! `std::fs::File` and ours, and prints the median time of a call for both. The mode is
//! `write-behind-any`, whose window never fills here. So the pages are in the same state both
//! times, and the difference is the writer's path, which is the same in every mode. One call
//! in 256 kicks the flusher; the median is a call that doesn't.

use std::os::unix::fs::FileExt;
use std::time::Instant;

use dropbehind::{File, Mode};

const BLOCK_BYTES: usize = 4096;
const CALLS: u64 = 20_000;
const SPAN_BYTES: u64 = 1 << 20;

fn median_ns(mut write: impl FnMut(&[u8], u64) -> std::io::Result<usize>) -> std::io::Result<u64> {
    let block = [0x5a; BLOCK_BYTES];
    let mut times_ns = Vec::with_capacity(CALLS as usize);
    for call in 0..CALLS {
        let offset = call * BLOCK_BYTES as u64 % SPAN_BYTES;
        let started = Instant::now();
        write(&block, offset)?;
        times_ns.push(started.elapsed().as_nanos() as u64);
    }
    times_ns.sort_unstable();
    Ok(times_ns[times_ns.len() / 2])
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next();
    let rounds = args.next().map_or(Ok(7), |text| text.parse::<usize>());
    let (Some(path), Ok(rounds @ 1..)) = (path, rounds) else {
        eprintln!("usage: write_path FILE [ROUNDS]");
        std::process::exit(2);
    };
    let plain = std::fs::File::create(&path)?;
    let ours = File::from_std(plain.try_clone()?, Mode::WRITE_BEHIND_ANY)?;
    let mut added_ns = Vec::new();
    for _ in 0..rounds {
        let plain_ns = median_ns(|block, offset| plain.write_at(block, offset))?;
        let ours_ns = median_ns(|block, offset| ours.write_at(block, offset))?;
        println!("plain {plain_ns} ns, ours {ours_ns} ns");
        added_ns.push(ours_ns as i64 - plain_ns as i64);
    }
    added_ns.sort_unstable();
    println!(
        "added: median {} ns, from {} to {} ns",
        added_ns[rounds / 2],
        added_ns[0],
        added_ns[rounds - 1]
    );
    Ok(())
}
