//! The decisions of dropbehind, and nothing else.
//!
//! This crate makes no system calls, reads no clock and starts no threads. The shell, which
//! calls it, reports what happened: a file was opened, written, read, counted or closed. The
//! policy returns what to do next ([`Action`]). Time is an argument, in nanoseconds of any
//! monotonic clock. The same events in the same order give the same actions, which makes the
//! simulator in `tests/` possible.
//!
//! | module | the one idea in it |
//! |---|---|
//! | [`mode`] | the two controls, writeback and residency, and their named pairs |
//! | [`range`], [`range_set`], [`range_counts`] | byte ranges, sets of them, and how often each byte is covered |
//! | [`bisection`] | finding parts of a range by halving it |
//! | [`write_behind`] | the write-behind window of the 2019 kernel proposal |
//! | [`read_fronts`] | where readers are, as far as the page cache shows it |
//! | [`residency`] | what was in the page cache before our I/O |
//! | [`drop_planner`] | which ranges to drop, when, and what to try again |
//! | [`neighbours`] | room for programs that read from the disk |
//! | [`pace`] | the disk's measured speed, and what follows from it: how much may be in flight, batches, polls |
//! | [`throttle`] | how long a writer ahead of the disk pauses |
//! | [`grace`] | files too small or too young to be worth a write |
//! | [`reason`] | why writeback was started, counted |
//! | [`stream`] | one open file: its dirty, requested, clean and dropped ranges |
//! | [`disk`] | all streams of one backing device, oldest first |
//! | [`observed_files`] | whose pages: the files that observed programs use |
//! | [`observed_stream`] | what happened to an observed file's pages since the last look |
//! | [`brake`] | when to hold processes that write to observed files too fast |
//! | [`shelf`] | small files that observed programs have closed |
//! | [`reuse`] | which pages are used once, and which again |
//! | [`range_queue`] | byte ranges of many files, the oldest first |
//! | [`lessons`] | who was found to use pages again |
//! | [`action`] | what the shell has to do, and what it reports back |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod action;
pub mod bisection;
pub mod brake;
pub mod disk;
pub mod drop_planner;
pub mod grace;
pub mod lessons;
pub mod mode;
pub mod neighbours;
pub mod observed_files;
pub mod observed_stream;
pub mod pace;
mod queue_length;
pub mod range;
pub mod range_counts;
mod range_list;
pub mod range_queue;
pub mod range_set;
pub mod read_fronts;
pub mod reason;
pub mod residency;
pub mod reuse;
pub mod shelf;
mod stats;
pub mod stream;
pub mod throttle;
pub mod write;
pub mod write_behind;

pub use action::{Action, Counted, Dropped, Inspected, Next, StreamId};
pub use disk::{Disk, DiskConfig};
pub use mode::{Mode, Residency, Writeback};
pub use observed_files::{Brought, FileAction, FileNumber, Inode, ObservedFiles, Unread};
pub use observed_stream::{ObservedCounts, ObservedStream, ObservedStreamConfig, Pages};
pub use range::ByteRange;
pub use range_set::RangeSet;
pub use read_fronts::ReadFronts;
pub use reason::{Reason, ReasonBytes};
pub use reuse::{Reuse, Used};
pub use shelf::{Fate, Shelf, ShelfAction, ShelfPlace};
pub use stats::Stats;
pub use stream::StreamConfig;
pub use write::{Found, Write};
