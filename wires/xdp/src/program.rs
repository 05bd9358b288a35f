//! The redirect program: which arriving frames go to our sockets, and which on to the host's own
//! stack.
//!
//! Source: Linux `include/uapi/linux/bpf.h` (`bpf_redirect_map`).

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use crate::assembler::{
    Assembler, DATA, DATA_END, Function, Instruction, Label, Operand, PASS, QUEUE, Register, Test,
    Width,
};

/// Most EtherTypes and most hosts of one [`Share`].
pub const MATCHES_MAX: usize = 16;

/// Arriving frames that are for the graph. The others go on to the host's own stack. Without any
/// condition all are for the graph.
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

/// Positions in a frame: IEEE 802.3; RFC 791, section 3.1; RFC 826.
const ETHER_TYPE: i16 = 12;
const ETHER_OCTETS: usize = 14;
const IPV4_DESTINATION: i16 = 30;
const IPV4_OCTETS: usize = 34;
const ARP_TARGET: i16 = 38;
const ARP_OCTETS: usize = 42;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;

/// The number as it compares with one loaded from a frame.
fn network_16(number: u16) -> i32 {
    i32::from(number.to_be())
}

fn network_32(octets: [u8; 4]) -> i32 {
    i32::from_ne_bytes(octets)
}

/// The register with the first octet of the frame, and that with the end.
const FRAME: [Register; 2] = [2, 3];

/// The instructions for `share`, with the sockets in this map.
pub(crate) fn assemble(share: &Share, sockets: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    asm.set(6, Operand::Register(1));
    if !share.is_all() {
        let (take, pass) = (asm.label(), asm.label());
        select(&mut asm, share, take, pass);
        asm.place(pass);
        asm.verdict(PASS);
        asm.place(take);
    }
    // To the socket of the frame's queue; without one, on to the host.
    asm.load(Width::Four, 2, 6, QUEUE);
    asm.set_map(1, sockets);
    asm.set(3, PASS);
    asm.call(Function::RedirectMap);
    asm.exit();
    asm.finish()
}

/// Jumps to `take` with a frame that is ours, to `pass` or behind its last instruction with any
/// other.
fn select(asm: &mut Assembler, share: &Share, take: Label, pass: Label) {
    asm.load(Width::Four, 2, 6, DATA);
    asm.load(Width::Four, 3, 6, DATA_END);
    asm.need(ETHER_OCTETS, FRAME, pass);
    if let Some([a, b, c, d, e, f]) = share.address {
        asm.load(Width::Four, 5, 2, 0);
        asm.jump_if_32(Test::Unequal, 5, network_32([a, b, c, d]), pass);
        asm.load(Width::Two, 5, 2, 4);
        asm.jump_if_32(Test::Unequal, 5, network_16(u16::from_be_bytes([e, f])), pass);
    }
    if share.ether_types.is_empty() && share.hosts.is_empty() {
        asm.jump(take);
        return;
    }
    asm.load(Width::Two, 5, 2, ETHER_TYPE);
    for number in &share.ether_types {
        asm.jump_if_32(Test::Equal, 5, network_16(*number), take);
    }
    if share.hosts.is_empty() {
        return;
    }
    let (ipv4, arp, hosts) = (asm.label(), asm.label(), asm.label());
    asm.jump_if_32(Test::Equal, 5, network_16(TYPE_IPV4), ipv4);
    asm.jump_if_32(Test::Equal, 5, network_16(TYPE_ARP), arp);
    asm.jump(pass);
    asm.place(ipv4);
    asm.need(IPV4_OCTETS, FRAME, pass);
    asm.load(Width::Four, 5, 2, IPV4_DESTINATION);
    asm.jump(hosts);
    asm.place(arp);
    asm.need(ARP_OCTETS, FRAME, pass);
    asm.load(Width::Four, 5, 2, ARP_TARGET);
    asm.place(hosts);
    for host in &share.hosts {
        asm.jump_if_32(Test::Equal, 5, network_32(host.octets()), take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_program_is_as_long_as_what_it_tells_apart() {
        let octets = |types, hosts| {
            let share = Share {
                address: None,
                ether_types: (0..types).map(|n| 0x9000 + n).collect(),
                hosts: (0..hosts).map(|n| Ipv4Addr::new(10, 0, 0, n)).collect(),
            };
            assemble(&share, std::io::stdin().as_fd()).len()
        };
        assert_eq!(octets(0, 0), 7, "all frames");
        assert!(octets(16, 16) < 80);
    }
}
