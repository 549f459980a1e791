//! Times writes and reads of one file in one mode, for a first impression.
//!
//! `measure FILE write|read MODE SIZE_MIB BLOCK_BYTES [native]`
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use dropbehind::strategy::Strategy;
use dropbehind::{Mode, OpenOptions};

fn usage() -> ! {
    eprintln!("usage: measure FILE write|read MODE SIZE_MIB BLOCK_BYTES [native]");
    std::process::exit(2);
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (path, what, mode, size, block, native) = match args[..] {
        [path, what @ ("write" | "read"), mode, size, block] => {
            (path, what, mode, size, block, false)
        }
        [path, what @ ("write" | "read"), mode, size, block, "native"] => {
            (path, what, mode, size, block, true)
        }
        _ => usage(),
    };
    let (Ok(mode), Ok(size_mib @ 1..), Ok(block_bytes @ 1..)) =
        (mode.parse::<Mode>(), size.parse::<u64>(), block.parse())
    else {
        usage();
    };
    let size_bytes = size_mib << 20;
    let mut block = vec![0x5a_u8; block_bytes];
    let write = what == "write";
    let mut options = OpenOptions::new();
    options
        .read(!write)
        .write(write)
        .create(write)
        .cache_mode(mode);
    if native {
        options.strategy(Strategy::Native);
    }
    let mut file = options.open(path)?;
    let mut latencies_ns = Vec::new();
    let started = Instant::now();
    let mut done = 0;
    while done < size_bytes {
        let at = Instant::now();
        done += if write {
            file.write(&block)? as u64
        } else {
            match file.read(&mut block)? {
                0 => break,
                count => count as u64,
            }
        };
        latencies_ns.push(at.elapsed().as_nanos() as u64);
    }
    if latencies_ns.is_empty() {
        return Err(std::io::Error::other("the file is empty"));
    }
    let moved = started.elapsed();
    if write {
        file.sync_all()?;
    }
    let synced = started.elapsed();
    let settled = file.settle(Duration::from_secs(60))?;
    let all = started.elapsed();
    let stats = file.stats();
    latencies_ns.sort_unstable();
    let at = |share: f64| latencies_ns[(latencies_ns.len() as f64 * share) as usize] / 1000;
    println!(
        "{what} {mode}: {:.0} MB/s, with sync {:.0}, settled {settled} {:.0} MB/s; p50 {} p99 {} p99.9 {} max {} us",
        done as f64 / 1e6 / moved.as_secs_f64(),
        done as f64 / 1e6 / synced.as_secs_f64(),
        done as f64 / 1e6 / all.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(0.999),
        latencies_ns.last().unwrap_or(&0) / 1000,
    );
    println!("{stats:?}");
    println!("{:?}", file.residency(0..u64::MAX)?);
    Ok(())
}
