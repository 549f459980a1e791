//! Deterministic work of the policy, for callgrind to count the instructions of.
//!
//! `policy_instructions` lists the cases, `policy_instructions CASE` runs one;
//! what counts is below the function `measured`. `.ci/instruction-counts` runs
//! them all.

#[path = "../benches/load/mod.rs"]
mod load;

use load::Load;
use std::hint::black_box;

/// Not the benchmark's 100 000: to open them under valgrind takes 20 s.
const STREAMS: [u64; 3] = [1, 100, 10_000];
/// Name, events, and what one is.
type Kind = (&'static str, u64, fn(&mut Load));

const KINDS: [Kind; 6] = [
    ("told", 20_000, Load::page_told),
    ("next", 20_000, |load| {
        black_box(load.nothing_due());
    }),
    ("batch", 2_000, Load::batch_done),
    ("alone", 2_000, Load::batch_done_alone),
    ("scattered", 20, Load::scattered_done),
    ("small", 2_000, Load::small_file_done),
];

#[inline(never)]
fn measured(load: &mut Load, events: u64, event: fn(&mut Load)) {
    for _ in 0..events {
        event(load);
    }
}

fn main() {
    let Some(case) = std::env::args().nth(1) else {
        for (kind, events, _) in KINDS {
            for streams in STREAMS {
                println!("policy-{kind}-{streams} {events}");
            }
        }
        return;
    };
    for (kind, events, event) in KINDS {
        for streams in STREAMS {
            if case == format!("policy-{kind}-{streams}") {
                let mut load = Load::new(streams);
                load.settle();
                measured(black_box(&mut load), events, event);
                black_box(load.actions);
                return;
            }
        }
    }
    eprintln!("no case {case}");
    std::process::exit(2);
}
