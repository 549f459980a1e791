//! Instructions of the kernel's virtual machine, and an assembler for them:
//! Documentation/bpf/standardization/instruction-set.rst.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `R0` holds results. `R1` to `R5` hold arguments, which a call clobbers. `R6` to `R9` are
/// preserved. `R10` is the end of a 512-byte stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How much a load or store moves. Loads are zero-extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Width {
    Four = 0x00,
    Two = 0x08,
    One = 0x10,
    Eight = 0x18,
}

/// An operation on 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// When a jump is taken; numbers are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    NotEqual = 0x50,
    Less = 0xa0,
}

/// What the kernel does for a program: bpf-helpers(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Helper {
    MapLookup = 1,
    MonotonicTime = 5,
    Processor = 8,
    CurrentTask = 14,
    RingOutput = 130,
}

/// A constant, or a register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Constant(i32),
    Of(Register),
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Self {
        Self::Constant(constant)
    }
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Of(register)
    }
}

// Classes.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const STX: u8 = 0x03;
const JMP: u8 = 0x05;
const ALU64: u8 = 0x07;
// Modes and sources.
const MEMORY: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
const REGISTER: u8 = 0x08;
// Unconditional jumps.
const ALWAYS: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// `BPF_ADD | BPF_FETCH`.
const FETCH_ADD: i32 = 0x01;
/// `BPF_PSEUDO_MAP_FD`.
const MAP: u8 = 1;

/// A program being assembled. Jumps go forward, to labels that are set later.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<u64>,
    jumps: HashMap<&'static str, Vec<usize>>,
}

impl Assembler {
    fn push(&mut self, code: u8, target: Register, source: u8, offset: i16, constant: i32) {
        // The fields in the order of a little-endian machine's memory.
        self.instructions.push(
            u64::from(code)
                | u64::from(target as u8 | source << 4) << 8
                | u64::from(offset.cast_unsigned()) << 16
                | u64::from(constant.cast_unsigned()) << 32,
        );
    }

    fn push_with(&mut self, code: u8, target: Register, operand: Operand) {
        match operand {
            Operand::Constant(constant) => self.push(code, target, 0, 0, constant),
            Operand::Of(source) => self.push(code | REGISTER, target, source as u8, 0, 0),
        }
    }

    pub(crate) fn compute(
        &mut self,
        operation: Operation,
        target: Register,
        operand: impl Into<Operand>,
    ) {
        self.push_with(ALU64 | operation as u8, target, operand.into());
    }

    pub(crate) fn load(&mut self, width: Width, target: Register, from: Register, offset: i16) {
        self.push(LDX | MEMORY | width as u8, target, from as u8, offset, 0);
    }

    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, source: Register) {
        self.push(STX | MEMORY | width as u8, to, source as u8, offset, 0);
    }

    /// Adds to a 64-bit word in memory, with a full barrier: others see it after everything
    /// stored before. `source` gets the old value.
    pub(crate) fn fetch_add(&mut self, to: Register, offset: i16, source: Register) {
        let code = STX | ATOMIC | Width::Eight as u8;
        self.push(code, to, source as u8, offset, FETCH_ADD);
    }

    /// Loads a map, as an argument for helpers.
    pub(crate) fn load_map(&mut self, target: Register, map: BorrowedFd<'_>) {
        let code = LD | Width::Eight as u8;
        self.push(code, target, MAP, 0, map.as_raw_fd());
        self.push(0, Register::R0, 0, 0, 0);
    }

    pub(crate) fn jump_if(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        label: &'static str,
    ) {
        self.jump_to(label);
        self.push_with(JMP | condition as u8, left, right.into());
    }

    pub(crate) fn jump(&mut self, label: &'static str) {
        self.jump_to(label);
        self.push(JMP | ALWAYS, Register::R0, 0, 0, 0);
    }

    fn jump_to(&mut self, label: &'static str) {
        let at = self.instructions.len();
        self.jumps.entry(label).or_default().push(at);
    }

    /// Jumps to this label lead to the next instruction.
    pub(crate) fn label(&mut self, label: &'static str) {
        let here = self.instructions.len();
        for at in self.jumps.remove(label).unwrap_or_default() {
            // Counted from the instruction after the jump.
            let distance = (here - at - 1) as u64;
            self.instructions[at] |= distance << 16;
        }
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(JMP | CALL, Register::R0, 0, 0, helper as i32);
    }

    pub(crate) fn exit(&mut self) {
        self.push(JMP | EXIT, Register::R0, 0, 0, 0);
    }

    /// # Panics
    ///
    /// If a jump leads to a label that was not set.
    pub(crate) fn finish(self) -> Vec<u64> {
        assert!(self.jumps.is_empty(), "{:?}", self.jumps);
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R2, R10};
    use super::*;

    /// The examples in the standard's text, and what clang generates for similar code.
    #[test]
    fn instructions_are_encoded_as_the_standard_says() {
        let mut program = Assembler::default();
        program.compute(Operation::Move, R0, 1);
        program.compute(Operation::Add, R1, R2);
        program.load(Width::Four, R1, R2, -4);
        program.store(Width::Eight, R10, -8, R1);
        program.fetch_add(R1, 8, R2);
        program.call(Helper::MonotonicTime);
        program.exit();
        let bytes: Vec<[u8; 8]> = program.finish().iter().map(|i| i.to_le_bytes()).collect();
        assert_eq!(
            bytes,
            [
                [0xb7, 0x00, 0, 0, 1, 0, 0, 0],
                [0x0f, 0x21, 0, 0, 0, 0, 0, 0],
                [0x61, 0x21, 0xfc, 0xff, 0, 0, 0, 0],
                [0x7b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0],
                [0xdb, 0x21, 8, 0, 1, 0, 0, 0],
                [0x85, 0x00, 0, 0, 5, 0, 0, 0],
                [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut program = Assembler::default();
        program.jump_if(Condition::Equal, R0, 0, "end");
        program.jump("end");
        program.compute(Operation::Move, R0, 1);
        program.label("end");
        program.exit();
        let distances: Vec<u64> = program.finish().iter().map(|i| i >> 16 & 0xFFFF).collect();
        assert_eq!(distances, [2, 1, 0, 0]);
    }
}
