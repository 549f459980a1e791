//! The ways of doing buffered I/O side by side, on one file or raw block device.
//!
//! ```text
//! compare PATH write|overwrite|read SIZE_MIB BLOCK_BYTES [RUNS] [WAY...]
//! ```
//!
//! Ways: `buffered` (plain), `native` (`RWF_DONTCACHE`), `direct` (`O_DIRECT`), and
//! dropbehind's modes by name, with `@` and a window in MiB to override the default
//! (`dontcache@16`). Each run is a process of its own, so that its CPU time includes the
//! flusher. The order of the ways rotates from run to run. The parent samples the file's
//! pages with cachestat meanwhile, so peaks don't rest on the measured process's counters. It
//! prints medians, and the range of the throughput.
//!
//! CPU time is given twice: for the process, and for the whole machine without its idle time.
//! The kernel drops the pages of native uncached writes in worker threads that are charged to
//! no process. So only the second compares like with like, and needs an otherwise idle
//! machine.

use std::alloc::{Layout, alloc_zeroed};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dropbehind::strategy::Strategy;
use dropbehind::{Mode, OpenOptions};

const WAYS: [&str; 4] = ["buffered", "native", "direct", "dontcache"];

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "--worker") {
        return work(&args[1..]);
    }
    let [path, what, size, block, rest @ ..] = args.as_slice() else {
        usage();
    };
    let runs = rest.first().map_or(Ok(5), |text| text.parse());
    let (Ok(1..), Ok(1..), Ok(runs @ 1..)) = (size.parse::<u64>(), block.parse::<usize>(), runs)
    else {
        usage();
    };
    if !matches!(what.as_str(), "write" | "overwrite" | "read") {
        usage();
    }
    let mut ways: Vec<&str> = rest.iter().skip(1).map(String::as_str).collect();
    if ways.is_empty() {
        ways.extend(WAYS);
    }
    let mut results: Vec<Vec<Run>> = ways.iter().map(|_| Vec::new()).collect();
    for run in 0..runs {
        for turn in 0..ways.len() {
            let index = (run + turn) % ways.len();
            results[index].push(one_run(path, what, size, block, ways[index])?);
        }
    }
    println!("{what} {size} MiB in blocks of {block} bytes, {runs} runs, medians");
    println!(
        "{:<17}{:>7} {:>13} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>7}",
        "way",
        "MB/s",
        "(range)",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "cpu/GiB",
        "all cpu",
        "peak MiB",
        "dirty MiB",
        "left",
        "extents"
    );
    for (way, runs) in ways.iter().zip(&results) {
        let of = |field: fn(&Run) -> f64| median(runs.iter().map(field).collect());
        let speeds: Vec<f64> = runs.iter().map(|run| run.mb_per_s).collect();
        let low = speeds.iter().copied().fold(f64::MAX, f64::min);
        let high = speeds.iter().copied().fold(0.0, f64::max);
        println!(
            "{way:<17}{:>7.0} {:>13} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.3} {:>8.3} {:>9.1} {:>9.1} {:>7.1} {:>7.0}",
            of(|run| run.mb_per_s),
            format!("({low:.0}-{high:.0})"),
            of(|run| run.p50_us),
            of(|run| run.p99_us),
            of(|run| run.p999_us),
            of(|run| run.max_us),
            of(|run| run.cpu_s_per_gib),
            of(|run| run.machine_cpu_s_per_gib),
            of(|run| run.peak_cached_mib),
            of(|run| run.peak_dirty_mib),
            of(|run| run.left_mib),
            of(|run| run.extents),
        );
    }
    Ok(())
}

fn usage() -> ! {
    eprintln!("usage: compare PATH write|overwrite|read SIZE_MIB BLOCK_BYTES [RUNS] [WAY...]");
    std::process::exit(2);
}

#[derive(Clone, Copy, Debug)]
struct Run {
    mb_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    cpu_s_per_gib: f64,
    machine_cpu_s_per_gib: f64,
    peak_cached_mib: f64,
    peak_dirty_mib: f64,
    left_mib: f64,
    extents: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn one_run(path: &str, what: &str, size: &str, block: &str, way: &str) -> io::Result<Run> {
    let device = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    if what == "write" && !device {
        let _ = fs::remove_file(path);
        fs::File::create(path)?;
    }
    // The witness's descriptor. For a device it also keeps the cache from being dropped at
    // the last close.
    let witness = fs::OpenOptions::new().read(true).write(true).open(path)?;
    witness.sync_all()?;
    dropbehind_linux::drop_clean(witness.as_fd(), 0, 0)?;
    std::thread::sleep(Duration::from_millis(50));
    let busy_before = machine_busy_seconds();
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--worker", path, what, size, block, way])
        .stdout(Stdio::piped())
        .spawn()?;
    let (peak_cached_mib, peak_dirty_mib) = sample(&mut child, &witness)?;
    let output = child.wait_with_output()?;
    let gib = size.parse::<f64>().unwrap_or(f64::NAN) / 1024.0;
    let machine_cpu_s_per_gib = (machine_busy_seconds() - busy_before) / gib;
    if !output.status.success() {
        return Err(io::Error::other(format!("{way} failed")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [mb_per_s, p50_us, p99_us, p999_us, max_us, cpu_s_per_gib] = numbers[..] else {
        return Err(io::Error::other(format!("{way} answered {text:?}")));
    };
    let left = dropbehind_linux::cachestat(witness.as_fd(), 0, 0)?;
    let extents = dropbehind_linux::extent_count(witness.as_fd()).unwrap_or(0);
    Ok(Run {
        mb_per_s,
        p50_us,
        p99_us,
        p999_us,
        max_us,
        cpu_s_per_gib,
        machine_cpu_s_per_gib,
        peak_cached_mib,
        peak_dirty_mib,
        left_mib: mib(left.cached_pages),
        extents: extents as f64,
    })
}

fn mib(pages: u64) -> f64 {
    (pages * dropbehind_linux::page_size()) as f64 / f64::from(1 << 20)
}

/// Peaks of cached, and of dirty or writeback pages, until the worker ends.
fn sample(child: &mut Child, witness: &fs::File) -> io::Result<(f64, f64)> {
    let (mut cached, mut dirty) = (0, 0);
    while child.try_wait()?.is_none() {
        let now = dropbehind_linux::cachestat(witness.as_fd(), 0, 0)?;
        cached = cached.max(now.cached_pages);
        dirty = dirty.max(now.dirty_pages + now.writeback_pages);
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((mib(cached), mib(dirty)))
}

/// A buffer aligned for `O_DIRECT`.
fn aligned(bytes: usize) -> &'static mut [u8] {
    let layout = Layout::from_size_align(bytes, 4096).expect("a block size");
    assert!(bytes > 0, "a block size");
    // SAFETY: the layout has a size, as was just checked.
    let memory = unsafe { alloc_zeroed(layout) };
    assert!(!memory.is_null(), "memory for a block");
    // SAFETY: the memory is there, it is zeroed, and it is never freed.
    unsafe { std::slice::from_raw_parts_mut(memory, bytes) }
}

fn work(args: &[String]) -> io::Result<()> {
    let [path, what, size, block, way] = args else {
        return Err(io::Error::other("five arguments"));
    };
    let size_bytes = size.parse::<u64>().expect("MiB") << 20;
    let block = aligned(block.parse().expect("bytes"));
    block.fill(0x5a);
    let write = what != "read";
    let direct = way == "direct";
    let (way, window_mib) = match way.split_once('@') {
        Some((way, window)) => (way, Some(window.parse::<u64>().expect("MiB"))),
        None => (way.as_str(), None),
    };
    let mode = match way {
        "buffered" | "direct" => Mode::BUFFERED,
        "native" => Mode::DONTCACHE,
        name => name.parse().map_err(io::Error::other)?,
    };
    let plain = fs::OpenOptions::new()
        .read(!write)
        .write(write)
        .custom_flags(if direct { libc::O_DIRECT } else { 0 })
        .open(path)?;
    let mut options = OpenOptions::new();
    if let Some(window_mib) = window_mib {
        options.window_bytes(window_mib << 20);
    }
    let ours = options
        .read(!write)
        .write(write)
        .cache_mode(mode)
        .strategy(if way == "native" {
            Strategy::Native
        } else {
            Strategy::Emulated
        })
        .open(path)?;
    let bare = matches!(way, "buffered" | "direct");
    let started = Instant::now();
    let mut latencies_ns = Vec::with_capacity((size_bytes / block.len() as u64) as usize);
    let mut at = 0;
    while at < size_bytes {
        let begun = Instant::now();
        let count = match (write, bare) {
            (true, true) => plain.write_at(block, at)?,
            (true, false) => ours.write_at(block, at)?,
            (false, true) => plain.read_at(block, at)?,
            (false, false) => ours.read_at(block, at)?,
        };
        latencies_ns.push(begun.elapsed().as_nanos() as u64);
        if count == 0 {
            break;
        }
        at += count as u64;
    }
    if write {
        if bare {
            plain.sync_all()?;
        } else {
            ours.sync_all()?;
        }
    }
    let elapsed = started.elapsed();
    ours.settle(Duration::from_secs(60))?;
    latencies_ns.sort_unstable();
    let share = |share: f64| {
        let index = (latencies_ns.len() as f64 * share) as usize;
        latencies_ns[index.min(latencies_ns.len() - 1)] as f64 / 1000.0
    };
    println!(
        "{} {} {} {} {} {}",
        at as f64 / 1e6 / elapsed.as_secs_f64(),
        share(0.5),
        share(0.99),
        share(0.999),
        share(1.0),
        cpu_seconds() / (at as f64 / f64::from(1 << 30)),
    );
    Ok(())
}

/// CPU time of this process, all threads, user and system.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    // Fields 14 and 15 of proc(5), counted after the command's name, in hundredths of a
    // second (what Linux shows to user space).
    let ticks: u64 = fields[11..13]
        .iter()
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    ticks as f64 / 100.0
}

/// CPU time of the machine since it started: all but idle and iowait, from the first line of
/// `/proc/stat`, in hundredths of a second.
fn machine_busy_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or("");
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; user includes guest time.
    let busy: u64 = [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|index| ticks.get(*index))
        .sum();
    busy as f64 / 100.0
}
