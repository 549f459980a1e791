//! The programs that keep the table. The kernel runs them in the context of the thread that adds
//! or uses pages, with the tracepoint's data at R1. Two processors may change an entry at once,
//! and then some use is lost, or counts for a page that came just then. Either only costs a read
//! or some memory.

use super::{
    AGAIN, BLOCK_PAGES, BLOCK_SHIFT, BLOCKS, FIELD_BYTES, INODE_FACTOR, LAST, MIX_FACTOR,
    MIX_SHIFT, ORDER, SET_MASK, SET_SHIFT, TAG, USED, USER, UseFormat, WAYS, WORD_BYTES,
};
use crate::bpf::instruction::Condition::{AtLeast, Equal, Greater, Less};
use crate::bpf::instruction::Operation::{
    Add, And, Move, Mul, Or, ShiftLeft, ShiftRight, Sub, Xor,
};
use crate::bpf::instruction::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use crate::bpf::instruction::Width::{Eight, Four};
use crate::bpf::instruction::{Assembler, Helper};
use crate::cache_trace::format::{Field, Format};
use std::os::fd::BorrowedFd;

// The stack's layout.
const WANTED_TAG: i16 = -8;
const COUNT: i16 = -16;
const SET: i16 = -20;
const THREAD: i16 = -32;
const NEW_ORDER: i16 = -36;

const LAST_PAGE: i32 = BLOCK_PAGES as i32 - 1;

const fn word(field: usize) -> i16 {
    field as i16
}

/// Pages that enter the cache have not been used. A block that is not in the table takes the
/// place of the one of its set that entered first.
pub(super) fn of_arrivals(format: &Format, table: BorrowedFd<'_>) -> Vec<u64> {
    let p = &mut Assembler::default();
    p.compute(Move, R6, R1);
    hash_file(p, format.inode, format.device);
    format.index.load(p, R8, R6);
    format.order.load(p, R1, R6);
    p.store(Four, R10, NEW_ORDER, R1);
    p.compute(Move, R2, 1);
    p.compute(ShiftLeft, R2, R1);
    // R9: the folio's pages in its first block, and how many blocks it has. A folio is aligned
    // to its size.
    p.jump_if(AtLeast, R1, BLOCK_SHIFT, "whole blocks");
    p.compute(Move, R3, R8);
    p.compute(And, R3, LAST_PAGE);
    p.compute(Move, R9, 1);
    p.compute(ShiftLeft, R9, R2);
    p.compute(Sub, R9, 1);
    p.compute(ShiftLeft, R9, R3);
    p.compute(Move, R2, 1);
    p.jump("blocks");
    p.label("whole blocks");
    p.compute(Move, R9, -1);
    p.compute(ShiftRight, R2, BLOCK_SHIFT);
    p.label("blocks");
    p.store(Eight, R10, COUNT, R2);
    p.compute(ShiftRight, R8, BLOCK_SHIFT);
    for _ in 0..BLOCKS {
        p.compute(Move, R1, R8);
        find_set(p, table);
        p.jump_if(Equal, R0, 0, "end");
        find_entry(p, "found");
        p.compute(Sub, R0, FIELD_BYTES as i32);
        for field in [TAG, USED, AGAIN, LAST, USER] {
            for entry in (1..WAYS).rev() {
                p.load(Eight, R3, R0, word(field + (entry - 1) * WORD_BYTES));
                p.store(Eight, R0, word(field + entry * WORD_BYTES), R3);
            }
        }
        p.compute(Move, R3, 0);
        for field in [USED, AGAIN, LAST] {
            p.store(Eight, R0, word(field), R3);
        }
        p.store(Eight, R0, word(TAG), R1);
        p.jump("next");
        p.label("found");
        p.compute(Move, R4, R9);
        p.compute(Xor, R4, -1);
        for field in [USED, AGAIN, LAST] {
            p.load(Eight, R3, R0, word(field));
            p.compute(And, R3, R4);
            p.store(Eight, R0, word(field), R3);
        }
        p.label("next");
        p.load(Four, R1, R10, NEW_ORDER);
        p.store(Four, R0, word(ORDER), R1);
        p.load(Eight, R1, R10, COUNT);
        p.compute(Sub, R1, 1);
        p.jump_if(Equal, R1, 0, "end");
        p.store(Eight, R10, COUNT, R1);
        p.compute(Add, R8, 1);
    }
    end(p)
}

/// Notes a use of pages in blocks that the table has.
pub(super) fn of_uses(format: UseFormat, table: BorrowedFd<'_>) -> Vec<u64> {
    let p = &mut Assembler::default();
    p.compute(Move, R6, R1);
    hash_file(p, format.inode, format.device);
    format.first.load(p, R8, R6);
    format.last.load(p, R9, R6);
    p.jump_if(Greater, R8, R9, "end");
    // The thread is the lower half.
    p.call(Helper::CurrentTask);
    p.store(Four, R10, THREAD, R0);
    for _ in 0..BLOCKS {
        p.compute(Move, R1, R8);
        p.compute(ShiftRight, R1, BLOCK_SHIFT);
        find_set(p, table);
        p.jump_if(Equal, R0, 0, "end");
        find_entry(p, "found");
        p.jump("next");
        // R4: the pages in this block, from R2 to R3.
        p.label("found");
        p.compute(Move, R2, R8);
        p.compute(And, R2, LAST_PAGE);
        p.compute(Move, R3, R9);
        p.compute(Sub, R3, R8);
        p.compute(Add, R3, R2);
        p.jump_if(Less, R3, LAST_PAGE, "ends here");
        p.compute(Move, R3, LAST_PAGE);
        p.label("ends here");
        p.compute(Move, R5, LAST_PAGE);
        p.compute(Sub, R5, R3);
        p.compute(Move, R3, -1);
        p.compute(ShiftRight, R3, R5);
        p.compute(Move, R4, -1);
        p.compute(ShiftLeft, R4, R2);
        p.compute(And, R4, R3);
        p.load(Eight, R1, R0, word(USED));
        p.load(Eight, R2, R0, word(LAST));
        p.load(Four, R3, R0, word(USER));
        p.load(Four, R5, R10, THREAD);
        p.store(Four, R0, word(USER), R5);
        p.jump_if(Equal, R3, R5, "same thread");
        // Where another thread goes on, the page that both share was used once: R3 is the first
        // page of this use, which has more, and the last one's ends there.
        p.jump_if(Equal, R8, R9, "another use");
        p.compute(Move, R3, 0);
        p.compute(Sub, R3, R4);
        p.compute(And, R3, R4);
        p.compute(Move, R5, R3);
        p.compute(ShiftLeft, R5, 1);
        p.compute(And, R5, R2);
        p.compute(And, R2, R3);
        p.jump_if(Equal, R5, 0, "same thread");
        p.label("another use");
        p.compute(Move, R2, 0);
        p.label("same thread");
        p.compute(Xor, R2, -1);
        p.compute(And, R2, R1);
        p.compute(And, R2, R4);
        p.load(Eight, R3, R0, word(AGAIN));
        p.compute(Or, R3, R2);
        p.store(Eight, R0, word(AGAIN), R3);
        p.compute(Or, R1, R4);
        p.store(Eight, R0, word(USED), R1);
        p.store(Eight, R0, word(LAST), R4);
        p.label("next");
        p.compute(Or, R8, LAST_PAGE);
        p.compute(Add, R8, 1);
        p.jump_if(Greater, R8, R9, "end");
    }
    end(p)
}

/// R7: the part of the tag that all blocks of a file have, from the record at R6.
fn hash_file(p: &mut Assembler, inode: Field, device: Field) {
    inode.load(p, R7, R6);
    p.compute(Mul, R7, INODE_FACTOR);
    device.load(p, R1, R6);
    p.compute(ShiftLeft, R1, 32);
    p.compute(Xor, R7, R1);
}

/// R0: the set of the block with the number in R1, whose tag is then on the stack.
fn find_set(p: &mut Assembler, table: BorrowedFd<'_>) {
    p.compute(Xor, R1, R7);
    p.compute(Move, R2, R1);
    p.compute(ShiftRight, R2, MIX_SHIFT);
    p.compute(Xor, R1, R2);
    p.compute(Mul, R1, MIX_FACTOR);
    p.store(Eight, R10, WANTED_TAG, R1);
    p.compute(ShiftRight, R1, SET_SHIFT);
    p.compute(And, R1, SET_MASK);
    p.store(Four, R10, SET, R1);
    p.load_map(R1, table);
    p.compute(Move, R2, R10);
    p.compute(Add, R2, i32::from(SET));
    p.call(Helper::MapLookup);
}

/// Jumps to `found` with the entry that has the wanted tag in R0. If the set in R0 has none, R0 is
/// `FIELD_BYTES` higher, and the tag in R1.
fn find_entry(p: &mut Assembler, found: &'static str) {
    p.load(Eight, R1, R10, WANTED_TAG);
    for _ in 0..WAYS {
        p.load(Eight, R2, R0, word(TAG));
        p.jump_if(Equal, R2, R1, found);
        p.compute(Add, R0, WORD_BYTES as i32);
    }
}

fn end(p: &mut Assembler) -> Vec<u64> {
    // Not 0: that would hide the event from all others who record this tracepoint.
    p.label("end");
    p.compute(Move, R0, 1);
    p.exit();
    std::mem::take(p).finish()
}
