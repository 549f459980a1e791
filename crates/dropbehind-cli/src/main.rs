//! The `dropbehind` command: copy, write and read files without filling the
//! page cache, see what is in it, and find out what works here.
//!
//! The commands are in [`commands`], one file each; [`habits`] has other tools' names that it
//! answers to; [`options`] holds the one table of their options; [`session`] is what the
//! commands that move data share.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr)]

/// Writes a line to standard error. If nobody can read that, the rest is done nevertheless:
/// `eprintln!` would panic.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod advice;
mod commands;
mod destination;
mod error;
mod habits;
mod input;
mod options;
mod output;
mod place;
mod progress;
mod report_file;
mod session;
mod sparse;
mod stats_file;
mod trace_file;
mod transfer;
mod unnamed;

use dropbehind_observer::{path_pattern, size};
use nix::sys::signal::{SigSet, Signal};
use std::process::ExitCode;

fn main() -> ExitCode {
    // A write past the limit on file sizes must fail with EFBIG, which can be reported, and not
    // kill us. Threads inherit the mask.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    if let Err(errno) = signals.thread_block() {
        complain!("dropbehind: cannot block SIGXFSZ: {errno}; a file size limit will kill");
    }
    match habits::run(std::env::args_os()) {
        Some(code) => code,
        None => commands::run(std::env::args_os()).into(),
    }
}
