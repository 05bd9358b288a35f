//! The two programs: at the uplink, which channel an arrival is for; at a channel, whether what its
//! user has sent may go out.

use std::io;

use crate::{Rate, VIOLATIONS_MAX};
use xk_xdp::bpf::{
    Assembler, DROP, Function, Label, Map, MapKind, Operand, Operation, PASS, Program, Test, Width,
};

use super::table::{OCTETS, Table};

/// Nanoseconds that an octet takes, in parts of 2^-20: for rates from some octets to a terabyte a
/// second.
const FRACTION_BITS: i32 = 20;
const NS_PER_S: u64 = 1_000_000_000;
/// Octets of each second at least, so that what a frame takes is no more than 64 bits.
const RATE_MIN: u64 = 8;

/// Places of a channel's state: until when what was sent has taken, by the rate; frames that went
/// out, that fit nothing, that came too fast, whose right has ended.
const DUE: i16 = 0;
const ADMITTED: i16 = 8;
const FORGED: i16 = 16;
const LATE: i16 = 24;
const ENDED: i16 = 32;
const STATE_OCTETS: usize = 40;

/// Frames that a channel's user has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that went out.
    pub admitted: u64,
    /// Frames that fit no right. After [`VIOLATIONS_MAX`] of them nothing goes out any more.
    pub forged: u64,
    /// Frames beyond the rate.
    pub late: u64,
    /// Frames that would have fitted a right that has ended, which its user may not know yet.
    pub ended: u64,
}

impl Counts {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            admitted: self.admitted + other.admitted,
            forged: self.forged + other.forged,
            late: self.late + other.late,
            ended: self.ended + other.ended,
        }
    }
}

/// The map in which a channel's program keeps its state.
pub(crate) struct StateMap(Map);

impl StateMap {
    pub(crate) fn new() -> io::Result<Self> {
        Map::new(MapKind::Array, 4, STATE_OCTETS, 1).map(Self)
    }

    pub(crate) fn counts(&self) -> io::Result<Counts> {
        let mut state = [0; STATE_OCTETS];
        self.0.get(&[0; 4], &mut state)?;
        let number = |at: i16| {
            let octets = state.get(at as usize..).and_then(|octets| octets.first_chunk());
            octets.map_or(0, |octets| u64::from_ne_bytes(*octets))
        };
        let [admitted, forged, late, ended] = [ADMITTED, FORGED, LATE, ENDED].map(number);
        Ok(Counts { admitted, forged, late, ended })
    }
}

/// The program at the uplink: what fits a template goes to the channel of its number, all else to
/// the host's own stack.
///
/// # Errors
/// What the system answers.
pub(crate) fn uplink(table: &Table, channels: &Map) -> io::Result<Program> {
    let mut asm = Assembler::default();
    let found = asm.label();
    Table::begin(&mut asm);
    let finds = table.find(&mut asm, found);
    asm.verdict(PASS);
    if finds {
        asm.place(found);
        asm.load(Width::Four, 2, 0, 0);
        send(&mut asm, channels);
    }
    Program::load(&asm.finish())
}

/// The program where a channel's frames come out: what fits a template, within the rate, goes to
/// the uplink, all else nowhere. What fits a template of the second table was right not long ago.
///
/// # Errors
/// What the system answers.
pub(crate) fn channel(
    [table, ended]: [&Table; 2],
    state: &StateMap,
    rate: Rate,
    uplink: &Map,
) -> io::Result<Program> {
    let mut asm = Assembler::default();
    let [found, was_right, drop] = [(); 3].map(|()| asm.label());
    Table::begin(&mut asm);
    asm.store_number(Width::Four, 10, -8, 0);
    asm.set_map(1, state.0.fd());
    asm.set(2, Operand::Register(10));
    asm.compute(Operation::Add, 2, -8);
    asm.call(Function::Find);
    asm.jump_if(Test::Equal, 0, 0, drop);
    // Where the state is; what the frame is like has been loaded.
    asm.set(6, Operand::Register(0));
    asm.load(Width::Eight, 1, 6, FORGED);
    asm.jump_if(Test::GreaterOrEqual, 1, VIOLATIONS_MAX as i32, drop);
    let finds = table.find(&mut asm, found);
    let finds_ended = ended.find(&mut asm, was_right);
    count(&mut asm, FORGED);
    asm.jump(drop);
    if finds_ended {
        asm.place(was_right);
        count(&mut asm, ENDED);
        asm.jump(drop);
    }
    if finds {
        asm.place(found);
        admit(&mut asm, rate, uplink, drop);
    }
    asm.place(drop);
    asm.verdict(DROP);
    Program::load(&asm.finish())
}

/// Sends a frame that fits, and goes on at `drop` if it is beyond the rate: what was sent before
/// has taken until a time further away than a burst takes.
fn admit(asm: &mut Assembler, rate: Rate, uplink: &Map, drop: Label) {
    let [due, in_time] = [(); 2].map(|()| asm.label());
    let rate_octets = rate.octets_per_second.max(RATE_MIN);
    let an_octet = (u128::from(NS_PER_S) << FRACTION_BITS).div_ceil(rate_octets.into());
    let burst = (u128::from(rate.burst_octets) * an_octet) >> FRACTION_BITS;
    let burst = u64::try_from(burst).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64);
    asm.call(Function::Now);
    asm.load(Width::Eight, 1, 6, DUE);
    asm.jump_if(Test::GreaterOrEqual, 1, Operand::Register(0), due);
    asm.set(1, Operand::Register(0));
    asm.place(due);
    asm.set(2, Operand::Register(1));
    asm.compute(Operation::Subtract, 2, Operand::Register(0));
    asm.set_wide(3, burst);
    asm.jump_if(Test::Less, 2, Operand::Register(3), in_time);
    count(asm, LATE);
    asm.jump(drop);
    asm.place(in_time);
    asm.set_wide(3, an_octet as u64);
    asm.compute(Operation::Multiply, 3, Operand::Register(OCTETS));
    asm.compute(Operation::ShiftRight, 3, FRACTION_BITS);
    asm.compute(Operation::Add, 1, Operand::Register(3));
    asm.store(Width::Eight, 6, DUE, 1);
    count(asm, ADMITTED);
    asm.set(2, 0);
    send(asm, uplink);
}

/// Sends the frame to the interface whose key register 2 has.
fn send(asm: &mut Assembler, interfaces: &Map) {
    asm.set_map(1, interfaces.fd());
    asm.set(3, DROP);
    asm.call(Function::RedirectMap);
    asm.exit();
}

/// One more in this place of the state. Frames of a channel come one by one: it has one queue.
fn count(asm: &mut Assembler, place: i16) {
    asm.load(Width::Eight, 1, 6, place);
    asm.compute(Operation::Add, 1, 1);
    asm.store(Width::Eight, 6, place, 1);
}
