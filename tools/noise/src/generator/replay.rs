//! Attacks that listen first: handshakes that are completed, and what others have sent, under other
//! names.

use super::internet::{ETH, IP_HEADERS, TCP, UDP};
use super::octets::Octets;
use super::{FRAME_OCTETS_MAX, Generator, Kind, TYPE_IP};
use core::net::Ipv4Addr;

/// Sorts of packets that are remembered.
const HEARD_MAX: usize = 32;
/// Flags of an answer to a SYN, and of what completes the handshake (RFC 9293, section 3.5).
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;

/// The option with the times of both ends (RFC 7323, section 3.2), and its octets.
const TIMESTAMPS: u8 = 8;
const TIMESTAMPS_LEN: u8 = 10;

/// Packets that do the same: the number of the protocol, and the port if it has one, else the
/// length, by which requests differ from acknowledgements.
pub(super) type Sort = (u8, u16);

fn host_at(frame: &[u8], at: usize) -> Option<Ipv4Addr> {
    let octets = frame.get(at..at + 4)?;
    <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
}

fn word_at(frame: &[u8], at: usize) -> Option<u16> {
    let octets = frame.get(at..at + 2)?;
    <[u8; 2]>::try_from(octets).ok().map(u16::from_be_bytes)
}

/// The times that a segment says of its sender and echoes.
fn timestamps_at(frame: &[u8]) -> Option<([u8; 4], [u8; 4])> {
    let words = usize::from(frame.get(IP_HEADERS + 12)? >> 4);
    let mut options = frame.get(IP_HEADERS + 20..IP_HEADERS + 4 * words)?;
    loop {
        options = match options {
            [TIMESTAMPS, TIMESTAMPS_LEN, a, b, c, d, e, f, g, h, ..] => {
                return Some(([*a, *b, *c, *d], [*e, *f, *g, *h]));
            }
            [1, rest @ ..] => rest,
            [2..=255, len @ 2..=255, ..] => options.get(usize::from(*len)..)?,
            _ => return None,
        };
    }
}

/// Whether it is a whole packet of IPv4 with a plain header.
fn is_plain(frame: &[u8]) -> bool {
    let is_whole = word_at(frame, ETH + 6).is_some_and(|fragment| fragment & 0x3fff == 0);
    word_at(frame, 12) == Some(TYPE_IP) && frame.get(ETH) == Some(&0x45) && is_whole
}

impl Generator {
    /// Notes a frame that came along the link.
    pub fn hear(&mut self, frame: &[u8]) {
        if self.target.node.is_one() {
            return self.hear_apple(frame);
        }
        let Some(from) = host_at(frame, ETH + 12).filter(|_| is_plain(frame)) else {
            return;
        };
        let is_for_target = host_at(frame, ETH + 16) == Some(self.target.host);
        if self.kind != Kind::Replays || !is_for_target || self.target.sources.contains(from) {
            return;
        }
        let protocol = frame.get(ETH + 9).copied().unwrap_or_default();
        let port = match protocol {
            TCP | UDP => word_at(frame, IP_HEADERS + 2).unwrap_or_default(),
            _ => word_at(frame, ETH + 2).unwrap_or_default(),
        };
        let sort = (protocol, port);
        let end = ETH + usize::from(word_at(frame, ETH + 2).unwrap_or_default());
        let Some(packet) = frame.get(..end.min(FRAME_OCTETS_MAX)) else {
            return;
        };
        self.note(sort, packet);
    }

    /// Keeps a packet in place of one that does the same.
    pub(super) fn note(&mut self, sort: Sort, packet: &[u8]) {
        let known = self.heard.iter().position(|(known, _)| *known == sort);
        if let Some(at) = known {
            self.heard.swap_remove(at);
        }
        if self.heard.len() < HEARD_MAX {
            self.heard.push((sort, packet.to_vec()));
        }
    }

    /// Something that was heard, from another host; before anything is, a ping or, for a node, any
    /// frame of AppleTalk.
    pub(super) fn replay(&self, out: &mut Octets<'_>) {
        let is_apple = self.target.node.is_one();
        if self.heard.is_empty() {
            return if is_apple { self.apple(out) } else { self.ping(out) };
        }
        let ((protocol, _), packet) = self.pick(&self.heard);
        if is_apple {
            return self.replay_apple(packet, out);
        }
        let from = self.source();
        self.header(out, from, TYPE_IP);
        let body = packet.get(ETH..).unwrap_or_default();
        out.put(body);
        // Layers above IP may name the sender, too.
        if let Some(sender) = body.get(12..16) {
            let places = body.windows(4).enumerate().skip(12);
            for (at, _) in places.filter(|(_, octets)| *octets == sender) {
                out.write(ETH + at, &from.octets());
            }
        }
        let sum_at = match *protocol {
            TCP => Some(IP_HEADERS + 16),
            UDP if word_at(packet, IP_HEADERS + 6) != Some(0) => Some(IP_HEADERS + 6),
            _ => None,
        };
        if let Some(at) = sum_at {
            let pseudo = self.pseudo(from, *protocol, out.len() - IP_HEADERS);
            out.seal(IP_HEADERS, at, &pseudo, false);
        }
        self.end(out);
    }

    /// Writes what completes the handshake that the target's `frame` answers, if there is one;
    /// answers how many octets.
    pub fn complete(&self, frame: &[u8], reply: &mut [u8; FRAME_OCTETS_MAX]) -> Option<usize> {
        let from = host_at(frame, ETH + 16).filter(|_| is_plain(frame))?;
        let is_answer = frame.get(ETH + 9) == Some(&TCP)
            && frame.get(IP_HEADERS + 13) == Some(&SYN_ACK)
            && host_at(frame, ETH + 12) == Some(self.target.host);
        if self.kind != Kind::Connects || !is_answer || !self.target.sources.contains(from) {
            return None;
        }
        let word = |at| word_at(frame, IP_HEADERS + at);
        let number = |at| Some(u32::from(word(at)?) << 16 | u32::from(word(at + 2)?));
        let mut out = Octets::new(reply);
        let mut packet = self.packet(TCP);
        packet.from = from;
        self.begin(&mut out, &packet);
        out.put(&word(2)?.to_be_bytes());
        out.put(&word(0)?.to_be_bytes());
        out.put(&number(8)?.to_be_bytes());
        out.put(&number(4)?.wrapping_add(1).to_be_bytes());
        // A peer that agreed on timestamps has one in each segment (RFC 7323, section 3.2).
        let times = timestamps_at(frame);
        let offset = if times.is_some() { 0x80 } else { 0x50 };
        out.put(&[offset, ACK, 0xfa, 0xf0, 0, 0, 0, 0]);
        if let Some((theirs, ours)) = times {
            out.put(&[1, 1, TIMESTAMPS, TIMESTAMPS_LEN]);
            out.put(&ours);
            out.put(&theirs);
        }
        self.segment_end(&mut out, from, false);
        Some(out.len())
    }
}
