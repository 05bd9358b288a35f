//! Attacks on TCP (RFC 9293): floods of correct SYNs, and incorrect segments.

use super::Generator;
use super::internet::{IP_HEADERS, TCP};
use super::octets::Octets;
use core::net::Ipv4Addr;

/// A SYN's flags.
const SYN: u8 = 2;
/// Offset of the data offset in a header.
const OFFSET_AT: usize = 12;

/// Options that every sender of today offers on a SYN: segments of 1460 octets, SACK, timestamps,
/// windows in units of 128 octets.
const OFFER: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];

impl Generator {
    /// A header of 20 octets, to be completed behind its options and data.
    fn segment_header(&self, out: &mut Octets<'_>, to: u16, flags: u8) {
        let ack = if flags == SYN { 0 } else { self.word() };
        let port = 1024 | self.word();
        for word in [port, to, self.word(), self.word(), ack, ack] {
            out.put(&word.to_be_bytes());
        }
        out.put(&[0x50, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
    }

    /// Sets the checksum of the segment that begins behind the headers below.
    pub(super) fn segment_end(&self, out: &mut Octets<'_>, from: Ipv4Addr, wrong: bool) {
        let pseudo = self.pseudo(from, TCP, out.len() - IP_HEADERS);
        out.seal(IP_HEADERS, IP_HEADERS + 16, &pseudo, wrong);
        self.end(out);
    }

    /// A SYN for the port that is all right, from a new peer.
    pub(super) fn syn(&self, out: &mut Octets<'_>) {
        let packet = self.packet(TCP);
        let from = self.begin(out, &packet);
        self.segment_header(out, self.target.port, SYN);
        out.put(&OFFER);
        out.set_u16(IP_HEADERS + OFFSET_AT, 0xa000 | u16::from(SYN));
        self.segment_end(out, from, false);
    }

    /// A segment, right or wrong: any flags, options and data, some with an offset or sum that is
    /// not theirs.
    pub(super) fn segment(&self, out: &mut Octets<'_>) {
        let packet = self.packet(TCP);
        let from = self.begin(out, &packet);
        let to = match self.once_in(4) {
            true => self.word(),
            false => self.target.port,
        };
        let flags = match self.once_in(3) {
            true => SYN,
            false => self.word() as u8,
        };
        self.segment_header(out, to, flags);
        let words = self.below(11);
        self.garbage(out, 4 * words as usize);
        let offset = match self.once_in(6) {
            true => self.below(16),
            false => 5 + words,
        };
        out.set_u16(IP_HEADERS + OFFSET_AT, (offset as u16) << 12 | u16::from(flags));
        self.garbage(out, self.below(100) as usize);
        if self.once_in(16) {
            out.truncate(IP_HEADERS + self.below(20) as usize);
            self.end(out);
            return;
        }
        self.segment_end(out, from, self.once_in(8));
    }
}
