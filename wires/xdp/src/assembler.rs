//! Programs for the entrance of an interface, instruction by instruction.
//!
//! The system runs them for each frame that arrives. Its verifier proves them harmless before it
//! takes them, so that a mistake here is an error when a program is loaded, and never one later.
//!
//! Source: RFC 9669 (instruction set); Linux `include/uapi/linux/bpf.h` (`struct xdp_md`, the
//! numbers of the system's functions).

use std::os::fd::{AsRawFd, BorrowedFd};

/// One instruction (RFC 9669, section 3): code, registers (source in the upper half), offset,
/// immediate value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Classes, and the bit that says that an operand is a register (RFC 9669, sections 4.1 and 5).
const LOAD_WIDE: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_IMMEDIATE: u8 = 0x62;
const ARITHMETIC: u8 = 0x07;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const OF_REGISTER: u8 = 0x08;
/// The immediate of a wide load is the descriptor of a map (section 5.4).
const MAP_DESCRIPTOR: u8 = 1;

/// Answers of a program (`enum xdp_action`): the frame is dropped.
pub const DROP: i32 = 1;
/// The frame goes on to the host's own stack.
pub const PASS: i32 = 2;
/// The frame goes where a function of the system has been told.
pub const REDIRECT: u32 = 4;

/// Positions in `struct xdp_md`, which register 1 points to at first: where the frame begins.
pub const DATA: i16 = 0;
/// Behind its last octet.
pub const DATA_END: i16 = 4;
/// The queue on which it has come.
pub const QUEUE: i16 = 16;

/// A register: 0 has answers, 1 to 5 arguments, which a call forgets; 6 to 9 are kept; 10 points
/// behind the 512 octets of the stack.
pub type Register = u8;

/// Width of a load or a store, as the bits of a code (RFC 9669, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// One octet.
    One = 0x10,
    /// Two.
    Two = 0x08,
    /// Four.
    Four = 0x00,
    /// Eight.
    Eight = 0x18,
}

impl Width {
    /// Octets.
    #[must_use]
    pub fn octets(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// Arithmetic on 64 bits (RFC 9669, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// To + from.
    Add = 0x00,
    /// To - from.
    Subtract = 0x10,
    /// To * from.
    Multiply = 0x20,
    /// To & from.
    And = 0x50,
    /// To >> from, filled up with zeros.
    ShiftRight = 0x70,
    /// From.
    Move = 0xb0,
}

/// The condition of a jump (RFC 9669, section 4.3); numbers are without sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// If both are equal.
    Equal = 0x10,
    /// If the first is greater.
    Greater = 0x20,
    /// If it is greater or equal.
    GreaterOrEqual = 0x30,
    /// If they differ.
    Unequal = 0x50,
    /// If it is less.
    Less = 0xa0,
}

/// The second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A number, with its sign.
    Number(i32),
    /// Value of a register.
    Register(Register),
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

/// A function of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Map 1, address of a key 2: the address of its value, or zero.
    Find = 1,
    /// Nanoseconds since the system's start.
    Now = 5,
    /// Map 1, key 2, verdict for a key without a value 3: a verdict.
    RedirectMap = 51,
    /// The frame of 1 (`struct xdp_md`): its octets, all buffers together.
    Octets = 188,
}

/// A place in a program that jumps lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program as it is written.
#[derive(Debug, Default)]
pub struct Assembler {
    program: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    /// Place of each label, once it has one.
    labels: Vec<Option<usize>>,
}

impl Assembler {
    fn put(&mut self, code: u8, to: Register, from: Register, offset: i16, immediate: i32) {
        self.program.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    fn operand(code: u8, operand: Operand) -> (u8, Register, i32) {
        match operand {
            Operand::Number(number) => (code, 0, number),
            Operand::Register(register) => (code | OF_REGISTER, register, 0),
        }
    }

    /// A new label, not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Jumps to this label lead to the next instruction.
    pub fn place(&mut self, label: Label) {
        if let Some(at) = self.labels.get_mut(label.0) {
            *at = Some(self.program.len());
        }
    }

    /// `to` becomes what the operation makes of it and the operand.
    pub fn compute(&mut self, operation: Operation, to: Register, operand: impl Into<Operand>) {
        let (code, from, number) = Self::operand(ARITHMETIC | operation as u8, operand.into());
        self.put(code, to, from, 0, number);
    }

    /// `to` becomes the operand.
    pub fn set(&mut self, to: Register, operand: impl Into<Operand>) {
        self.compute(Operation::Move, to, operand);
    }

    /// `to` becomes a number of 64 bits.
    pub fn set_wide(&mut self, to: Register, number: u64) {
        self.put(LOAD_WIDE, to, 0, 0, number as i32);
        self.put(0, 0, 0, 0, (number >> 32) as i32);
    }

    /// `to` becomes the map of this descriptor, as the system's functions take it.
    pub fn set_map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.put(LOAD_WIDE, to, MAP_DESCRIPTOR, 0, map.as_raw_fd());
        self.put(0, 0, 0, 0, 0);
    }

    /// The two lower octets of a register, most significant first in memory, become a number.
    pub fn swap_16(&mut self, to: Register) {
        self.put(TO_BIG_ENDIAN, to, 0, 0, 16);
    }

    /// `to` becomes what lies at `from` + `offset`.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.put(LOAD & !0x18 | width as u8, to, from, offset, 0);
    }

    /// Stores the value of `from` at `to` + `offset`.
    pub fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.put(STORE & !0x18 | width as u8, to, from, offset, 0);
    }

    /// Stores this number at `to` + `offset`.
    pub fn store_number(&mut self, width: Width, to: Register, offset: i16, number: i32) {
        self.put(STORE_IMMEDIATE & !0x18 | width as u8, to, 0, offset, number);
    }

    /// Goes on at `label`.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.put(JUMP, 0, 0, 0, 0);
    }

    /// Goes on at `label` if the test holds of a register and the operand.
    pub fn jump_if(
        &mut self,
        test: Test,
        register: Register,
        operand: impl Into<Operand>,
        label: Label,
    ) {
        self.branch(JUMP, test, register, operand.into(), label);
    }

    /// Goes on at `label` if the test holds of the lower 32 bits.
    pub fn jump_if_32(
        &mut self,
        test: Test,
        register: Register,
        operand: impl Into<Operand>,
        label: Label,
    ) {
        self.branch(JUMP_32, test, register, operand.into(), label);
    }

    fn branch(
        &mut self,
        class: u8,
        test: Test,
        register: Register,
        operand: Operand,
        label: Label,
    ) {
        let (code, from, number) = Self::operand(class | test as u8, operand);
        self.jumps.push((self.program.len(), label));
        self.put(code, register, from, 0, number);
    }

    /// Goes on at `label` unless `octets` octets lie between the first octet of the frame, which
    /// `data` points to, and `data_end`. Register 4 is used for it.
    pub fn need(&mut self, octets: usize, [data, data_end]: [Register; 2], label: Label) {
        self.set(4, Operand::Register(data));
        self.compute(Operation::Add, 4, i32::try_from(octets).unwrap_or(i32::MAX));
        self.jump_if(Test::Greater, 4, Operand::Register(data_end), label);
    }

    /// Register 0 becomes what a function of the system answers.
    pub fn call(&mut self, function: Function) {
        self.put(CALL, 0, 0, 0, function as i32);
    }

    /// Ends with the verdict that register 0 has.
    pub fn exit(&mut self) {
        self.put(EXIT, 0, 0, 0, 0);
    }

    /// Ends with this verdict.
    pub fn verdict(&mut self, verdict: i32) {
        self.set(0, verdict);
        self.exit();
    }

    /// The program, with its jumps. A jump to a label that was not placed, or too far away, leads
    /// to where the verifier refuses it.
    #[must_use]
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in &self.jumps {
            let target = self.labels.get(label.0).copied().flatten();
            let distance = target.and_then(|to| i16::try_from(to as i64 - *at as i64 - 1).ok());
            self.program[*at].offset = distance.unwrap_or(i16::MIN);
        }
        self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As octets, in the order of RFC 9669, section 3.
    fn octets(instruction: Instruction) -> [u8; 8] {
        let Instruction { code, registers, offset, immediate } = instruction;
        let ([a, b], [c, d, e, f]) = (offset.to_le_bytes(), immediate.to_le_bytes());
        [code, registers, a, b, c, d, e, f]
    }

    /// Codes that `llvm-objdump` and the tables of RFC 9669 (appendix A) name so.
    #[test]
    fn codes_are_those_of_the_standard() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.set(1, 5);
        asm.set(2, Operand::Register(1));
        asm.compute(Operation::Add, 2, -1);
        asm.compute(Operation::Subtract, 2, Operand::Register(1));
        asm.compute(Operation::And, 2, 0xff);
        asm.compute(Operation::ShiftRight, 2, 20);
        asm.compute(Operation::Multiply, 2, Operand::Register(3));
        asm.load(Width::Eight, 3, 7, 8);
        asm.load(Width::Four, 3, 7, 8);
        asm.load(Width::Two, 3, 7, 8);
        asm.load(Width::One, 3, 7, 8);
        asm.store(Width::Eight, 10, -8, 3);
        asm.store_number(Width::Eight, 10, -8, 0);
        asm.swap_16(3);
        asm.jump_if(Test::Greater, 4, Operand::Register(3), end);
        asm.jump_if_32(Test::Equal, 5, 7, end);
        asm.jump_if_32(Test::Unequal, 5, 7, end);
        asm.jump(end);
        asm.place(end);
        asm.call(Function::RedirectMap);
        asm.exit();
        let codes: Vec<u8> = asm.finish().into_iter().map(|one| octets(one)[0]).collect();
        let expected = [
            0xb7, 0xbf, 0x07, 0x1f, 0x57, 0x77, 0x2f, 0x79, 0x61, 0x69, 0x71, 0x7b, 0x7a, 0xdc,
            0x2d, 0x16, 0x56, 0x05, 0x85, 0x95,
        ];
        assert_eq!(codes, expected);
    }

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut asm = Assembler::default();
        let (over, lost) = (asm.label(), asm.label());
        asm.jump(over);
        asm.set_wide(1, 0x1122_3344_5566_7788);
        asm.place(over);
        asm.jump(lost);
        let program = asm.finish();
        assert_eq!(octets(program[0]), [0x05, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(octets(program[1]), [0x18, 1, 0, 0, 0x88, 0x77, 0x66, 0x55]);
        assert_eq!(octets(program[2]), [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(program[3].offset, i16::MIN, "nowhere");
    }
}
