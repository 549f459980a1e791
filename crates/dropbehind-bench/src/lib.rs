//! Measures what each way of doing buffered I/O costs on this machine.
//!
//! A [`Scenario`] is something that programs do, a [`Mode`] a way of doing it.
//! A case is a scenario in a mode: [`run()`] prepares its files, starts a worker
//! process for each of its programs inside a memory cgroup, and looks on from
//! outside, with the kernel's own accounts of the page cache, the disk and the
//! processors. Modes take turns, so that what changes on the machine meanwhile
//! changes for all of them; [`Results`] keep every run.
//!
//! The workers are the program itself, started anew: it must call
//! [`worker_main()`] or [`disk_main()`] when it is told to.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod caches;
mod case;
mod change;
mod clock;
mod compare;
mod device;
mod environment;
mod error;
mod export;
mod files;
mod gains;
pub mod html;
mod job;
mod latency;
mod machine;
mod memory_group;
pub mod metric;
mod mode;
mod nfs;
mod options;
mod process;
mod quiet;
mod reclaim;
pub mod results;
mod runner;
mod sampler;
mod scenario;
mod scenarios;
mod series;
mod slow_disk;
mod stage;
pub mod statistics;
mod table;
mod verdict;
mod worker;

pub use compare::compare;
pub use environment::{DiskFacts, Environment};
pub use error::Error;
pub use export::{Reports, csv, markdown, save_comparison};
pub use latency::Latency;
pub use mode::{Mode, UnknownMode};
pub use options::Options;
pub use process::Launcher;
pub use results::Results;
pub use runner::{Terminal, run};
pub use sampler::MemorySample;
pub use scenario::Scenario;
pub use verdict::{Outcome, Verdict, verdict};
pub use worker::worker_main;

/// The main program of the slow disk's server process, of one argument; see
/// [`Launcher::disk`].
pub use dropbehind_slowdisk::server_main as disk_main;
