//! A simulator by seed: one number makes a machine, its faults, its programs
//! and everything that happens to them.
//!
//! **What is simulated.** A page cache of some files: pages absent, clean,
//! dirty, under writeback or both, in folios of 1 to 512 pages. A disk that
//! serves one request at a time. The library's rings, counters, waits and
//! flusher thread, in front of the real policy. Programs that open, read,
//! write, sync, truncate, close and delete.
//!
//! **The fault model.** Everything below happens at any time, in any mixture:
//!
//! | who | what |
//! |---|---|
//! | disk | 4 MB/s to 2.4 GB/s, steady or varying to a fifth; stalls of 50 ms to 3 s; requests done in order, or any of the next 8 or 64; failed writes, after which pages are clean (and lost), or dirty again |
//! | kernel | `WB_SYNC_NONE` skips locked pages; `DONTNEED` skips folios that straddle the range, are dirty, under writeback, or pinned for milliseconds (a CPU's batch) or for good (mapped); cachestat counts whole folios as dirty or page by page, and pages dirty again under writeback twice; its flusher wakes every 5 s for pages older than 30 s; memory is reclaimed, clean folios of anybody |
//! | others | processes that read, write, sync and truncate parts of the same files; the policy hears nothing of it; up to 63 other flushers of the same disk, which it hears of |
//! | programs | 1 to 64; sequential, appending, random, overlapping, rewriting one hot place, a byte a page, small files; all modes, also for single writes; windows and requests of any size, 0 and the largest number included; files deleted while open, soon after closing, or replaced; truncated |
//! | shell | actions take 1 µs to 2 ms and so do answers, and events reach the policy in between; calls fail for good, or without effect; answers never come; rings overflow, and what they lost is told as all that is cached there |
//! | crash | the policy is thrown away and a new one starts with what is open |
//!
//! Not in it: memory that runs out, clocks that go back, and two threads in one
//! call of the policy.
//!
//! **What must hold** is in `watch.rs`. The same seed gives the same actions.
//!
//! `DROPBEHIND_SEEDS=n` runs so many seeds, `DROPBEHIND_SEED=n` that one, and
//! prints all that happens with `DROPBEHIND_TRACE=1` and `--nocapture`.

mod cache;
mod coverage;
mod disk;
mod plan;
mod program;
mod random;
mod shell;
mod watch;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use coverage::Coverage;
use world::{Log, World};

/// About 20 s of one core, with or without optimisation.
const SEEDS: u64 = if cfg!(debug_assertions) { 800 } else { 8_000 };
/// One in so many seeds is run twice.
const REPEAT: u64 = 16;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

fn run(seed: u64) -> (Log, Coverage) {
    let mut world = World::new(seed);
    world.run();
    world.coverage.stalls = world.disk.stalls;
    (world.log, world.coverage)
}

fn run_or_say_which(seed: u64) -> (Log, Coverage) {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|_| {
        panic!(
            "seed {seed} failed; again with: DROPBEHIND_SEED={seed} \
             cargo test -p dropbehind-policy --test simulator"
        )
    })
}

#[test]
fn whatever_happens_the_promises_hold() {
    if let Some(seed) = number("DROPBEHIND_SEED") {
        let mut world = World::new(seed);
        world.traced = std::env::var_os("DROPBEHIND_TRACE").is_some();
        println!("{:#?}", world.plan);
        world.run();
        println!("{:?} {:?}", world.log, world.coverage.kinds());
        return;
    }
    let seeds = number("DROPBEHIND_SEEDS").unwrap_or(SEEDS);
    let mut totals: Vec<(&str, u64, u64)> = Vec::new();
    for seed in 0..seeds {
        let (log, coverage) = run_or_say_which(seed);
        if seed.is_multiple_of(REPEAT) {
            let (again, _) = run_or_say_which(seed);
            assert_eq!(log, again, "seed {seed} gave other actions the second time");
        }
        let kinds = coverage.kinds();
        if totals.is_empty() {
            totals = kinds.iter().map(|(kind, _)| (*kind, 0, 0)).collect();
        }
        for (total, (_, times)) in totals.iter_mut().zip(kinds) {
            total.1 += u64::from(times > 0);
            total.2 += times;
        }
    }
    println!("{seeds} seeds");
    for (kind, seeds, times) in &totals {
        println!("{kind:>26}: {times:>9} times, in {seeds} seeds");
    }
    if seeds >= SEEDS {
        for (kind, seeds, _) in &totals {
            assert!(*seeds > 0, "no seed had {kind}");
        }
    }
}
