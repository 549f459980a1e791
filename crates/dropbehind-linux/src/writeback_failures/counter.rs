//! How often writeback has failed, counted by a program in the kernel.
//!
//! A perf event belongs to a processor and ends when that goes offline. A program runs on
//! every processor that passes the tracepoint, also on those that come online later. It is one
//! for a raw tracepoint: any other would keep perf from recording a failure that interrupts
//! some program.

use crate::bpf::instruction::Condition::Equal;
use crate::bpf::instruction::Operation::{Add, Move};
use crate::bpf::instruction::Register::{R0, R1, R2, R10};
use crate::bpf::instruction::Width::Four;
use crate::bpf::instruction::{Assembler, Helper};
use crate::bpf::{ArrayMap, Program, ProgramKind};
use crate::deferred_close::close_deferred;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Acquire;

#[derive(Debug)]
pub(super) struct Counter {
    count: ArrayMap,
    program: Program,
    /// Runs the program on all processors while it is open.
    link: Option<OwnedFd>,
}

impl Counter {
    /// # Errors
    ///
    /// Those of bpf(2): `EINVAL` before Linux 5.12.
    pub(super) fn new() -> io::Result<Self> {
        let count = ArrayMap::new(1, 8)?;
        let program = Program::load(ProgramKind::RawTracepoint, &write(count.as_fd()))?;
        let link = program.attach(c"filemap_set_wb_err")?;
        Ok(Self {
            count,
            program,
            link: Some(link),
        })
    }

    /// The failures so far.
    pub(super) fn failures(&self) -> u64 {
        // The kernel skips the program where it interrupts itself.
        let misses = self.program.misses().unwrap_or(0);
        self.count.word(0, 0).load(Acquire) + misses
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        close_deferred(self.link.take().into_iter().collect());
    }
}

/// Adds one to the word in `count`.
fn write(count: BorrowedFd<'_>) -> Vec<u64> {
    const KEY: i16 = -4;
    let mut p = Assembler::default();
    p.compute(Move, R1, 0);
    p.store(Four, R10, KEY, R1);
    p.load_map(R1, count);
    p.compute(Move, R2, R10);
    p.compute(Add, R2, i32::from(KEY));
    p.call(Helper::MapLookup);
    p.jump_if(Equal, R0, 0, "end");
    p.compute(Move, R1, 1);
    p.fetch_add(R0, 0, R1);
    p.label("end");
    p.compute(Move, R0, 0);
    p.exit();
    p.finish()
}
