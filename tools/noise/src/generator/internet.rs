//! Attacks on a host: IPv4 and what it carries.

use super::octets::Octets;
use super::{Generator, TYPE_IP};
use core::net::Ipv4Addr;

/// Octets of an Ethernet header.
pub(super) const ETH: usize = 14;
/// Octets of both headers, without options.
pub(super) const IP_HEADERS: usize = ETH + IP;
/// Octets of an IPv4 header without options.
const IP: usize = 20;
/// Protocol numbers (RFC 792, RFC 9293, RFC 768).
const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// More fragments follow (RFC 791, section 3.1).
const MORE: u16 = 0x2000;

/// Fault of a datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The peer wants no reply.
    PortZero,
    Length,
    /// The datagram has no checksum, which is allowed.
    NoChecksum,
    Checksum,
    Truncated,
}

/// Fields that vary in a correct header.
pub(super) struct Packet {
    pub(super) from: Ipv4Addr,
    protocol: u8,
    id: u16,
    fragment: u16,
}

impl Generator {
    pub(super) fn packet(&self, protocol: u8) -> Packet {
        Packet { from: self.source(), protocol, id: self.word(), fragment: 0 }
    }

    /// Both headers in front; length and checksum are set at the end. Gives the sender.
    pub(super) fn begin(&self, out: &mut Octets<'_>, packet: &Packet) -> Ipv4Addr {
        self.header(out, packet.from, TYPE_IP);
        out.put(&[0x45, 0, 0, 0]);
        out.put(&packet.id.to_be_bytes());
        out.put(&packet.fragment.to_be_bytes());
        out.put(&[64, packet.protocol, 0, 0]);
        out.put(&packet.from.octets());
        out.put(&self.target.host.octets());
        packet.from
    }

    /// Sets length and checksum of the IPv4 header.
    pub(super) fn end(&self, out: &mut Octets<'_>) {
        out.set_u16(ETH + 2, (out.len() - ETH) as u16);
        out.seal_header(ETH, ETH + IP, ETH + 10, false);
    }

    /// A UDP header (RFC 768) and `octets` of payload.
    fn datagram(&self, out: &mut Octets<'_>, from: Ipv4Addr, to: u16, octets: usize, fault: Fault) {
        let start = out.len();
        let port = match fault {
            Fault::PortZero => 0,
            _ => 1024 | self.word(),
        };
        let length = match fault {
            Fault::Length => self.word(),
            _ => (8 + octets) as u16,
        };
        for word in [port, to, length, 0] {
            out.put(&word.to_be_bytes());
        }
        self.garbage(out, octets);
        if fault == Fault::NoChecksum {
            return;
        }
        let pseudo = self.pseudo(from, UDP, length.into());
        out.seal(start, start + 6, &pseudo, fault == Fault::Checksum);
    }

    /// Pseudo-header that a checksum covers besides the segment of `length` octets.
    pub(super) fn pseudo(&self, from: Ipv4Addr, protocol: u8, length: usize) -> [u8; 12] {
        let mut pseudo = [0; 12];
        pseudo[..4].copy_from_slice(&from.octets());
        pseudo[4..8].copy_from_slice(&self.target.host.octets());
        pseudo[9] = protocol;
        pseudo[10..].copy_from_slice(&(length as u16).to_be_bytes());
        pseudo
    }

    /// A datagram for the port from a new peer.
    pub(super) fn session(&self, out: &mut Octets<'_>) {
        let packet = self.packet(UDP);
        self.begin(out, &packet);
        let octets = self.below(64) as usize;
        self.datagram(out, packet.from, self.target.port, octets, Fault::None);
        self.end(out);
    }

    /// A call from a new peer: of program 0x20000001, version 1, procedure 0, without credentials.
    pub(super) fn call(&self, out: &mut Octets<'_>) {
        const OCTETS: usize = 40;
        let packet = self.packet(UDP);
        let from = self.begin(out, &packet);
        let start = out.len();
        let length = (8 + OCTETS) as u16;
        for word in [1024 | self.word(), self.target.port, length, 0] {
            out.put(&word.to_be_bytes());
        }
        let xid = self.random.next_u64() as u32;
        for word in [xid, 0, 2, 0x2000_0001, 1, 0, 0, 0, 0, 0u32] {
            out.put(&word.to_be_bytes());
        }
        let pseudo = self.pseudo(from, UDP, length.into());
        out.seal(start, start + 6, &pseudo, false);
        self.end(out);
    }

    /// A datagram, right or wrong.
    pub(super) fn udp(&self, out: &mut Octets<'_>) {
        let packet = self.packet(UDP);
        self.begin(out, &packet);
        let port = match self.below(3) {
            0 => self.target.port,
            1 => 0,
            _ => self.word(),
        };
        let octets = match self.once_in(8) {
            true => 1472,
            false => self.below(200) as usize,
        };
        let fault = *self.pick(&[
            Fault::None,
            Fault::None,
            Fault::PortZero,
            Fault::Length,
            Fault::NoChecksum,
            Fault::Checksum,
            Fault::Truncated,
        ]);
        self.datagram(out, packet.from, port, octets, fault);
        if fault == Fault::Truncated {
            out.truncate(ETH + IP + self.below(8) as usize);
        }
        self.end(out);
    }

    /// An echo request from a new host.
    pub(super) fn ping(&self, out: &mut Octets<'_>) {
        let packet = self.packet(ICMP);
        self.begin(out, &packet);
        let start = out.len();
        out.put(&[8, 0, 0, 0]);
        self.garbage(out, 4 + self.below(64) as usize);
        out.seal(start, start + 2, &[], false);
        self.end(out);
    }

    /// An ICMP message (RFC 792).
    pub(super) fn icmp(&self, out: &mut Octets<'_>) {
        let packet = self.packet(ICMP);
        self.begin(out, &packet);
        let start = out.len();
        match self.below(8) {
            0..=1 => {
                out.put(&[8, 0, 0, 0]);
                self.garbage(out, 4 + self.below(1400) as usize);
            }
            2 => {
                // Time stamp, information and address mask requests.
                out.put(&[*self.pick(&[13, 15, 17]), 0, 0, 0]);
                self.garbage(out, 16);
            }
            3..=5 => self.icmp_error(out),
            // A reply without a request.
            6 => {
                out.put(&[*self.pick(&[0, 14, 16, 18]), 0, 0, 0]);
                self.garbage(out, 4 + self.below(64) as usize);
            }
            _ => self.garbage(out, self.below(100) as usize),
        }
        out.seal(start, start + 2, &[], self.once_in(8));
        self.end(out);
    }

    /// Unreachable, source quench, redirect, time exceeded or parameter problem, about a packet
    /// that the target may have sent.
    fn icmp_error(&self, out: &mut Octets<'_>) {
        let kind = *self.pick(&[3, 3, 3, 4, 5, 11, 12]);
        let code = match kind {
            // Fragmentation needed, with a small maximum (RFC 1191).
            3 if self.once_in(2) => 4,
            _ => self.below(16) as u8,
        };
        out.put(&[kind, code, 0, 0]);
        let second = match (kind, code) {
            (3, 4) => self.below(1500) as u32,
            (5, _) => self.source().to_bits(),
            _ => self.random.next_u64() as u32,
        };
        out.put(&second.to_be_bytes());
        let start = out.len();
        let quoted = *self.pick(&[ICMP, UDP, 6, 254]);
        out.put(&[0x45, 0, 0, 48, 0, 1, 0, 0, 60, quoted, 0, 0]);
        out.put(&self.target.host.octets());
        out.put(&self.source().octets());
        out.seal_header(start, start + IP, start + 10, self.once_in(8));
        out.put(&self.target.port.to_be_bytes());
        self.garbage(out, self.below(28) as usize);
    }

    /// A fragment (RFC 791, section 3.2) that can never be used, or the next one.
    pub(super) fn fragment(&mut self, out: &mut Octets<'_>) {
        let mut packet = self.packet(*self.pick(&[UDP, ICMP, UDP, 254]));
        let (mut offset, mut octets, mut more) = (0, 8, true);
        match self.second.take() {
            Some((id, from, protocol)) => {
                (packet.id, packet.from, packet.protocol) = (id, from, protocol);
                (offset, octets, more) = match self.below(3) {
                    // Within the one before, as "teardrop" does.
                    0 => (8, 8, true),
                    // Behind it, but overlapping by eight octets.
                    1 => (16, 40, true),
                    // What completes it.
                    _ => (24, 16, false),
                };
            }
            None => match self.below(6) {
                // The first of two.
                0..=1 => {
                    octets = 24;
                    self.second = Some((packet.id, packet.from, packet.protocol));
                }
                // Tiny, somewhere, never complete.
                2 => offset = 8 * self.below(8000) as usize,
                // Full frames of datagrams that never end.
                3 => (offset, octets) = (1480 * self.below(40) as usize, 1480),
                // Beyond the longest datagram: "ping of death".
                4 => {
                    packet.protocol = ICMP;
                    (offset, octets, more) = (65_528, 400, false);
                }
                // Not a multiple of eight, or empty.
                _ => (offset, octets) = (8 * self.below(100) as usize, self.below(8) as usize),
            },
        }
        packet.fragment = ((offset / 8) as u16 & 0x1fff) | if more { MORE } else { 0 };
        self.begin(out, &packet);
        self.garbage(out, octets);
        self.end(out);
    }

    /// A packet with anything in its header.
    pub(super) fn ip(&self, out: &mut Octets<'_>) {
        let mut packet = self.packet(self.word() as u8);
        let odd = [
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::BROADCAST,
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::new(224, 0, 0, 5),
            Ipv4Addr::new(255, 1, 2, 3),
            self.target.host,
        ];
        if self.once_in(6) {
            packet.from = *self.pick(&odd);
        }
        packet.fragment = if self.once_in(4) { self.word() } else { 0 };
        self.begin(out, &packet);
        let options = match self.once_in(2) {
            true => self.options(out),
            false => 0,
        };
        self.garbage(out, self.below(600) as usize);
        let header = IP + options;
        let first = 0x40 | (header / 4) as u8;
        out.set_u16(ETH, u16::from_be_bytes([first, self.word() as u8]));
        out.set_u16(ETH + 2, (out.len() - ETH) as u16);
        if self.once_in(6) {
            // To another host, or to none.
            let [a, b, c, d] = self.pick(&odd).octets();
            out.set_u16(ETH + 16, u16::from_be_bytes([a, b]));
            out.set_u16(ETH + 18, u16::from_be_bytes([c, d]));
        }
        if self.once_in(4) {
            // Version and length of the header, total length, or time to live with protocol.
            out.set_u16(ETH + *self.pick(&[0, 2, 8]), self.word());
        }
        out.seal_header(ETH, ETH + header, ETH + 10, self.once_in(6));
        if self.once_in(10) {
            out.truncate(ETH + self.below(60) as usize);
        }
    }

    /// Options (RFC 791, section 3.1): record route, time stamps, source routes, router alert, and
    /// what looks like some. Answers how many octets they take, a multiple of four.
    fn options(&self, out: &mut Octets<'_>) -> usize {
        let end = out.len() + 4 * (1 + self.below(10) as usize);
        let start = out.len();
        while out.len() < end {
            let left = end - out.len();
            let length = 3 + self.below(12) as usize;
            match self.below(8) {
                0 => out.put(&[1]),
                1 => out.put(&[0]),
                2 => self.garbage(out, left.min(4)),
                _ => {
                    let kind = *self.pick(&[7, 68, 131, 137, 148, 130, 136, 200]);
                    // The pointer too is anything.
                    let option = [kind, length as u8, self.below(length as u64 + 4) as u8];
                    out.put(&option[..left.min(3)]);
                    self.garbage(out, (length - 3).min(left.saturating_sub(3)));
                }
            }
        }
        end - start
    }
}
