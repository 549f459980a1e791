//! The program that joins pages to runs. The kernel runs it in the context of the thread that
//! adds a folio, with the tracepoint's data at R1. No other instance runs on that processor
//! meanwhile.

use super::{
    FIRST_PAGE, HEAD, INODE, LOST, OWNER, PAGES, PAGES_OF_RUN, RUN_BYTES, RUN_NS, RUNS, SINCE_WAKE,
    TAIL, TIME, WAKE_PAGES,
};
use crate::bpf::instruction::Condition::{AtLeast, Equal, Greater, Less, NotEqual};
use crate::bpf::instruction::Operation::{Add, And, Move, Mul, Or, ShiftLeft, ShiftRight, Sub};
use crate::bpf::instruction::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use crate::bpf::instruction::Width::{Eight, Four};
use crate::bpf::instruction::{Assembler, Helper};
use crate::cache_trace::format::Format;
use std::os::fd::BorrowedFd;

// The stack's layout.
const NEW_OWNER: i16 = -8;
const NOW: i16 = -16;
const NEW_PAGES: i16 = -24;
const PROCESSOR: i16 = -28;

/// `BPF_RB_FORCE_WAKEUP`
const WAKE: i32 = 1 << 1;

/// Assembles it for rings of `capacity` runs, a power of two.
pub(super) fn write(
    format: &Format,
    rings: BorrowedFd<'_>,
    wake: BorrowedFd<'_>,
    capacity: usize,
) -> Vec<u64> {
    let mask = (capacity - 1) as i32;
    let p = &mut Assembler::default();

    // What was added, when and by whom.
    p.compute(Move, R6, R1);
    p.call(Helper::CurrentTask);
    p.compute(ShiftRight, R0, 32);
    p.compute(ShiftLeft, R0, 32);
    format.device.load(p, R1, R6);
    p.compute(Or, R0, R1);
    p.store(Eight, R10, NEW_OWNER, R0);
    p.call(Helper::MonotonicTime);
    p.store(Eight, R10, NOW, R0);
    format.inode.load(p, R7, R6);
    format.index.load(p, R8, R6);
    format.order.load(p, R1, R6);
    p.compute(Move, R2, 1);
    p.compute(ShiftLeft, R2, R1);
    p.store(Eight, R10, NEW_PAGES, R2);

    // R9: this processor's ring. One that came online later has none.
    p.call(Helper::Processor);
    p.store(Four, R10, PROCESSOR, R0);
    p.load_map(R1, rings);
    p.compute(Move, R2, R10);
    p.compute(Add, R2, i32::from(PROCESSOR));
    p.call(Helper::MapLookup);
    p.jump_if(Equal, R0, 0, "no ring");
    p.compute(Move, R9, R0);

    // R3: its last run, which continues if these pages directly follow, soon enough.
    p.load(Eight, R1, R9, HEAD as i16);
    p.jump_if(Equal, R1, 0, "begin");
    p.compute(Sub, R1, 1);
    address(p, mask);
    p.load(Eight, R4, R3, in_run(OWNER));
    p.load(Eight, R5, R10, NEW_OWNER);
    p.jump_if(NotEqual, R4, R5, "begin");
    p.load(Eight, R4, R3, in_run(INODE));
    p.jump_if(NotEqual, R4, R7, "begin");
    p.load(Eight, R4, R3, in_run(FIRST_PAGE));
    p.load(Eight, R5, R3, in_run(PAGES));
    p.compute(Add, R4, R5);
    p.jump_if(NotEqual, R4, R8, "begin");
    p.load(Eight, R4, R3, in_run(TIME));
    p.load(Eight, R2, R10, NOW);
    p.compute(Sub, R2, R4);
    p.jump_if(Greater, R2, RUN_NS, "begin");
    p.load(Eight, R4, R10, NEW_PAGES);
    p.compute(Add, R5, R4);
    p.store(Eight, R3, in_run(PAGES), R5);
    p.jump("count");

    // R3: a new run.
    p.label("begin");
    p.load(Eight, R1, R9, HEAD as i16);
    p.load(Eight, R2, R9, TAIL as i16);
    p.compute(Move, R3, R1);
    p.compute(Sub, R3, R2);
    p.jump_if(AtLeast, R3, mask + 1, "full");
    address(p, mask);
    p.load(Eight, R4, R10, NEW_OWNER);
    p.store(Eight, R3, in_run(OWNER), R4);
    p.store(Eight, R3, in_run(INODE), R7);
    p.store(Eight, R3, in_run(FIRST_PAGE), R8);
    p.load(Eight, R4, R10, NEW_PAGES);
    p.store(Eight, R3, in_run(PAGES), R4);
    p.load(Eight, R4, R10, NOW);
    p.store(Eight, R3, in_run(TIME), R4);
    p.compute(Move, R4, 1);
    p.fetch_add(R9, HEAD as i16, R4);
    p.load(Eight, R1, R9, SINCE_WAKE as i16);
    p.compute(Add, R1, PAGES_OF_RUN);
    p.store(Eight, R9, SINCE_WAKE as i16, R1);
    p.jump("count");

    p.label("full");
    p.compute(Move, R1, 1);
    p.fetch_add(R9, LOST as i16, R1);

    p.label("count");
    p.load(Eight, R1, R9, SINCE_WAKE as i16);
    p.load(Eight, R2, R10, NEW_PAGES);
    p.compute(Add, R1, R2);
    p.store(Eight, R9, SINCE_WAKE as i16, R1);
    p.jump_if(Less, R1, WAKE_PAGES, "end");
    p.compute(Move, R1, 0);
    p.store(Eight, R9, SINCE_WAKE as i16, R1);
    p.load_map(R1, wake);
    p.compute(Move, R2, R10);
    p.compute(Add, R2, i32::from(NOW));
    p.compute(Move, R3, 8);
    p.compute(Move, R4, WAKE);
    p.call(Helper::RingOutput);

    // What processors without a ring add is lost, which the first ring reports.
    p.jump("end");
    p.label("no ring");
    p.compute(Move, R1, 0);
    p.store(Four, R10, PROCESSOR, R1);
    p.load_map(R1, rings);
    p.compute(Move, R2, R10);
    p.compute(Add, R2, i32::from(PROCESSOR));
    p.call(Helper::MapLookup);
    p.jump_if(Equal, R0, 0, "end");
    p.compute(Move, R1, 1);
    p.fetch_add(R0, LOST as i16, R1);

    // Not 0: that would hide the folio from all others who record this tracepoint.
    p.label("end");
    p.compute(Move, R0, 1);
    p.exit();
    std::mem::take(p).finish()
}

/// R3: the address of the run with the number in R1; runs begin at [`RUNS`] from R9.
fn address(p: &mut Assembler, mask: i32) {
    p.compute(And, R1, mask);
    p.compute(Mul, R1, RUN_BYTES as i32);
    p.compute(Move, R3, R9);
    p.compute(Add, R3, R1);
}

const fn in_run(field: usize) -> i16 {
    (RUNS + field) as i16
}
