//! A simulator by seed of the observed half: one number makes a machine, its
//! faults, its programs and everything that happens to them.
//!
//! **What is simulated.** A page cache that knows of each page who brought it in
//! last. The kernel's two queues, that of opens and closes and that of pages added.
//! The three threads of the shell, in front of the real policy: the observer's with
//! its rounds ([`ObservedFiles`](dropbehind_policy::ObservedFiles)), the disk's with
//! its looks ([`Disk`](dropbehind_policy::Disk) and
//! [`ReadFronts`](dropbehind_policy::ReadFronts)), and that for small files
//! ([`Shelf`](dropbehind_policy::Shelf)). Each takes its turn at any time, and
//! programs go on in the middle of it.
//!
//! **The fault model.** In any mixture:
//!
//! | who | what |
//! |---|---|
//! | kernel | reclaims clean pages at any time; holds pages that were just added, or mapped, back from drops; writes in lumps; by itself after 30 s |
//! | trace | is read up to the moment before the events are, so records come rounds later; records are lost |
//! | events | merge, come late, or never; then `/proc` shows that nobody has the file open, which counts a round later |
//! | outsiders | open, read, write, map, truncate and delete the same files, and bring evicted pages back in |
//! | programs | open files again in the moment they are done with; go on with files whose last close was told; end |
//! | shell | refuses streams, fails in its calls, is behind with what it was told |
//!
//! Not in it: files that share an inode number, folios of several pages, files that
//! grow without being written, and rules that change.
//!
//! **What must hold** is in `watch.rs`.
//!
//! `DROPBEHIND_SEEDS=n` runs so many seeds, `DROPBEHIND_SEED=n` that one, and prints
//! all that happens with `DROPBEHIND_TRACE=1` and `--nocapture`.

mod cache;
mod coverage;
mod disk_thread;
mod kernel;
mod look;
mod observer;
mod plan;
mod programs;
#[path = "../simulator/random.rs"]
mod random;
mod small_files;
mod watch;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use coverage::Coverage;
use world::World;

/// Some 5 to 10 s of one core, with or without optimisation.
const SEEDS: u64 = if cfg!(debug_assertions) {
    3_000
} else {
    10_000
};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

fn run(seed: u64, traced: bool) -> Coverage {
    let mut world = World::new(seed);
    world.traced = traced;
    if traced {
        println!("{:#?}", world.plan);
    }
    world.run();
    world.coverage
}

fn run_or_say_which(seed: u64) -> Coverage {
    catch_unwind(AssertUnwindSafe(|| run(seed, false))).unwrap_or_else(|_| {
        panic!(
            "seed {seed} failed; again with: DROPBEHIND_SEED={seed} \
             cargo test -p dropbehind-policy --test observed"
        )
    })
}

#[test]
fn whoever_brings_pages_in_decides_what_becomes_of_them() {
    if let Some(seed) = number("DROPBEHIND_SEED") {
        run(seed, std::env::var_os("DROPBEHIND_TRACE").is_some());
        return;
    }
    let seeds = number("DROPBEHIND_SEEDS").unwrap_or(SEEDS);
    let mut totals: Vec<(&str, u64, u64)> = Vec::new();
    for seed in 0..seeds {
        let coverage = run_or_say_which(seed);
        if totals.is_empty() {
            totals = coverage.kinds().map(|(kind, _)| (kind, 0, 0)).collect();
        }
        for (total, (_, times)) in totals.iter_mut().zip(coverage.kinds()) {
            total.1 += u64::from(times > 0);
            total.2 += times;
        }
    }
    println!("{seeds} seeds");
    for (kind, seeds, times) in &totals {
        println!("{kind:>40}: {times:>9} times, in {seeds} seeds");
    }
    if seeds >= SEEDS {
        for (kind, seeds, _) in &totals {
            assert!(*seeds > 0, "no seed had {kind}");
        }
    }
}
