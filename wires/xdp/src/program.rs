//! The redirect program: which arriving frames go to our sockets, and which on to the host's own
//! stack.
//!
//! It runs in the system for each frame that arrives. Its instructions are written out here; the
//! system's verifier proves them harmless before it takes them.
//!
//! Source: RFC 9669 (instruction set); Linux `include/uapi/linux/bpf.h` (`struct xdp_md`,
//! `bpf_redirect_map`).

use std::net::Ipv4Addr;

/// Most EtherTypes and most hosts of one [`Share`].
pub const MATCHES_MAX: usize = 16;

/// Which arriving frames are ours. The others go on to the host's own stack. With nothing set, all
/// are ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Only frames for this hardware address.
    pub address: Option<[u8; 6]>,
    /// Only frames of these EtherTypes, or with IPv4 packets for one of `hosts`.
    pub ether_types: Vec<u16>,
    /// Only IPv4 packets for these hosts, and ARP packets whose target they are (RFC 826), or
    /// frames of `ether_types`.
    pub hosts: Vec<Ipv4Addr>,
}

impl Share {
    /// Whether every frame is ours.
    pub fn is_all(&self) -> bool {
        self.address.is_none() && self.ether_types.is_empty() && self.hosts.is_empty()
    }
}

/// One instruction (RFC 9669, section 3): code, registers (source in the upper half), offset,
/// immediate value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Codes of RFC 9669, sections 4 and 5: class, operation, and whether the operand is a register.
const LOAD_32: u8 = 0x61;
const LOAD_16: u8 = 0x69;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_GREATER_REGISTER: u8 = 0x2d;
/// These two compare the lower 32 bits.
const JUMP_EQUAL: u8 = 0x16;
const JUMP_UNEQUAL: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The immediate of a 64-bit load is the descriptor of a map (section 5.4).
const MAP_DESCRIPTOR: u8 = 1;
/// The number of `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// `XDP_PASS`: the frame goes on to the host's own stack.
const PASS: i32 = 2;

/// Positions in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// Positions in a frame: IEEE 802.3; RFC 791, section 3.1; RFC 826.
const ETHER_TYPE: i16 = 12;
const ETHER_OCTETS: i32 = 14;
const IPV4_DESTINATION: i16 = 30;
const IPV4_OCTETS: i32 = 34;
const ARP_TARGET: i16 = 38;
const ARP_OCTETS: i32 = 42;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;

/// Where a jump goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Take,
    Pass,
    Ipv4,
    Arp,
    Hosts,
}

#[derive(Default)]
struct Assembler {
    program: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    /// Appends an instruction on register `to` and register `from`.
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.program.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    fn jump(&mut self, code: u8, to: u8, from: u8, immediate: i32, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.add(code, to, from, 0, immediate);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.program.len()));
    }

    /// Passes the frame unless it has `octets` octets: register 2 points to the first, 3 behind the
    /// last.
    fn need(&mut self, octets: i32) {
        self.add(MOVE_REGISTER, 4, 2, 0, 0);
        self.add(ADD, 4, 0, 0, octets);
        self.jump(JUMP_GREATER_REGISTER, 4, 3, 0, Label::Pass);
    }

    /// The program, with its jumps.
    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in &self.jumps {
            let target = self.labels.iter().find(|(known, _)| known == label);
            // A program has at most some 60 instructions, and every label used is set.
            let distance = target.map_or(0, |(_, to)| (*to as i16) - (*at as i16) - 1);
            self.program[*at].offset = distance;
        }
        self.program
    }
}

/// The number as it compares with one loaded from a frame.
fn network_16(number: u16) -> i32 {
    i32::from(number.to_be())
}

fn network_32(octets: [u8; 4]) -> i32 {
    i32::from_ne_bytes(octets)
}

/// The instructions for `share`, with the sockets in the map of this descriptor.
pub(crate) fn assemble(share: &Share, map: i32) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    asm.add(MOVE_REGISTER, 6, 1, 0, 0);
    if !share.is_all() {
        select(&mut asm, share);
        asm.label(Label::Pass);
        asm.add(MOVE, 0, 0, 0, PASS);
        asm.add(EXIT, 0, 0, 0, 0);
    }
    // To the socket of the frame's queue; without one, on to the host.
    asm.label(Label::Take);
    asm.add(LOAD_32, 2, 6, QUEUE, 0);
    asm.add(LOAD_IMMEDIATE_64, 1, MAP_DESCRIPTOR, 0, map);
    asm.add(0, 0, 0, 0, 0);
    asm.add(MOVE, 3, 0, 0, PASS);
    asm.add(CALL, 0, 0, 0, REDIRECT_MAP);
    asm.add(EXIT, 0, 0, 0, 0);
    asm.finish()
}

/// Jumps to `Take` with a frame that is ours, and ends before `Pass` with any other.
fn select(asm: &mut Assembler, share: &Share) {
    asm.add(LOAD_32, 2, 6, DATA, 0);
    asm.add(LOAD_32, 3, 6, DATA_END, 0);
    asm.need(ETHER_OCTETS);
    if let Some([a, b, c, d, e, f]) = share.address {
        asm.add(LOAD_32, 5, 2, 0, 0);
        asm.jump(JUMP_UNEQUAL, 5, 0, network_32([a, b, c, d]), Label::Pass);
        asm.add(LOAD_16, 5, 2, 4, 0);
        let last = network_16(u16::from_be_bytes([e, f]));
        asm.jump(JUMP_UNEQUAL, 5, 0, last, Label::Pass);
    }
    if share.ether_types.is_empty() && share.hosts.is_empty() {
        asm.jump(JUMP, 0, 0, 0, Label::Take);
        return;
    }
    asm.add(LOAD_16, 5, 2, ETHER_TYPE, 0);
    for number in &share.ether_types {
        asm.jump(JUMP_EQUAL, 5, 0, network_16(*number), Label::Take);
    }
    if share.hosts.is_empty() {
        return;
    }
    asm.jump(JUMP_EQUAL, 5, 0, network_16(TYPE_IPV4), Label::Ipv4);
    asm.jump(JUMP_EQUAL, 5, 0, network_16(TYPE_ARP), Label::Arp);
    asm.jump(JUMP, 0, 0, 0, Label::Pass);
    asm.label(Label::Ipv4);
    asm.need(IPV4_OCTETS);
    asm.add(LOAD_32, 5, 2, IPV4_DESTINATION, 0);
    asm.jump(JUMP, 0, 0, 0, Label::Hosts);
    asm.label(Label::Arp);
    asm.need(ARP_OCTETS);
    asm.add(LOAD_32, 5, 2, ARP_TARGET, 0);
    asm.label(Label::Hosts);
    for host in &share.hosts {
        asm.jump(JUMP_EQUAL, 5, 0, network_32(host.octets()), Label::Take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_frames_take_seven_instructions() {
        assert_eq!(assemble(&Share::default(), 3).len(), 7);
    }

    #[test]
    fn jumps_go_forward_and_stay_inside() {
        let shares = [
            (None, 0, 1),
            (Some([2; 6]), 0, 0),
            (Some([2; 6]), 16, 0),
            (None, 0, 16),
            (Some([2; 6]), 16, 16),
        ];
        for (address, types, hosts) in shares {
            let share = Share {
                address,
                ether_types: (0..types).map(|n| 0x9000 + n).collect(),
                hosts: (0..hosts).map(|n| Ipv4Addr::new(10, 0, 0, n)).collect(),
            };
            let program = assemble(&share, 3);
            let jumps = [JUMP, JUMP_EQUAL, JUMP_UNEQUAL, JUMP_GREATER_REGISTER];
            for (at, instruction) in program.iter().enumerate() {
                if jumps.contains(&instruction.code) {
                    let to = at as i64 + 1 + i64::from(instruction.offset);
                    assert!(instruction.offset >= 0 && to < program.len() as i64);
                }
            }
            assert!(program.len() < 80);
        }
    }
}
