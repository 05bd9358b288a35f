//! The header in front of a frame by which a system tells of its transport checksum, and of the run
//! of segments that it may stand for: `struct virtio_net_hdr` of Linux
//! `include/uapi/linux/virtio_net.h` (Virtio 1.2, section 5.1.6).

use crate::wire::{offload, segments};
use xk_core::Message;

/// Octets of the header.
pub const NOTE_OCTETS: usize = 10;
/// Octets of the longest frame that stands for a run of segments: an IPv4 packet of any length
/// behind its header with a VLAN tag.
pub const RUN_OCTETS_MAX: usize = u16::MAX as usize + 18;

/// Flags: the checksum is open; it is verified.
const NEEDS_SUM: u8 = 1;
const SUM_VALID: u8 = 2;
/// Kinds of runs: TCP over IPv4, UDP. `ECN`: the first segment has the flag CWR.
const TCP_RUN: u8 = 1;
const UDP_RUN: u8 = 5;
const ECN: u8 = 0x80;
/// The octet of a TCP header that holds the flags, and the one that says that the window was
/// reduced (RFC 3168, section 6.1).
const TCP_FLAGS_AT: usize = 13;
const CWR: u8 = 0x80;

/// State of a frame's transport checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Note {
    /// Nothing: it is there, and not verified.
    #[default]
    Nothing,
    /// The system has found it right.
    Verified,
    /// The field holds the sum over the pseudo-header; the rest is to be added.
    Partial {
        /// The first octet of the frame to be summed; all behind it are.
        start: u16,
        /// Position of the field of two octets, from `start` on.
        field: u16,
    },
    /// As `Partial`, where the frame stands for a run of TCP segments.
    Run {
        /// As above.
        start: u16,
        /// As above.
        field: u16,
        /// Octets of all headers.
        header_octets: u16,
        /// Octets of payload in each segment but the last.
        segment_octets: u16,
        /// The first segment alone says that the sender has reduced its window (RFC 3168, section
        /// 6.1.2).
        reduced: bool,
    },
}

impl Note {
    /// Note to the system about a frame to be sent; `None` if there are no words for it.
    #[must_use]
    pub fn of(frame: &Message) -> Option<Self> {
        let place = offload::place(frame);
        let run = segments::of(frame);
        let Some(place) = place else {
            return run.is_none().then_some(Self::Nothing);
        };
        let start = u16::try_from(place.start).ok()?;
        let field = u16::try_from(place.field).ok()?;
        let Some(run) = run else {
            return Some(Self::Partial { start, field });
        };
        let mut flags = [0];
        frame.copy_to(place.start + TCP_FLAGS_AT, &mut flags);
        Some(Self::Run {
            start,
            field,
            header_octets: start.checked_add(run.header)?,
            segment_octets: run.size,
            reduced: flags[0] & CWR != 0,
        })
    }

    /// The header.
    #[must_use]
    pub fn emit(self) -> [u8; NOTE_OCTETS] {
        let mut octets = [0; NOTE_OCTETS];
        let (start, field) = match self {
            Self::Partial { start, field } | Self::Run { start, field, .. } => (start, field),
            Self::Nothing | Self::Verified => return octets,
        };
        octets[0] = NEEDS_SUM;
        octets[6..8].copy_from_slice(&start.to_ne_bytes());
        octets[8..10].copy_from_slice(&field.to_ne_bytes());
        if let Self::Run { header_octets, segment_octets, reduced, .. } = self {
            octets[1] = TCP_RUN | if reduced { ECN } else { 0 };
            octets[2..4].copy_from_slice(&header_octets.to_ne_bytes());
            octets[4..6].copy_from_slice(&segment_octets.to_ne_bytes());
        }
        octets
    }

    /// Reads a header; `None` if the frame stands for other than TCP segments.
    #[must_use]
    pub fn parse(octets: [u8; NOTE_OCTETS]) -> Option<Self> {
        let [flags, joined, a, b, c, d, e, f, g, h] = octets;
        let (start, field) = (u16::from_ne_bytes([e, f]), u16::from_ne_bytes([g, h]));
        let is_open = flags & NEEDS_SUM != 0;
        if joined != 0 {
            return (joined & !ECN == TCP_RUN && is_open).then_some(Self::Run {
                start,
                field,
                header_octets: u16::from_ne_bytes([a, b]),
                segment_octets: u16::from_ne_bytes([c, d]),
                reduced: joined & ECN != 0,
            });
        }
        Some(if is_open {
            Self::Partial { start, field }
        } else if flags & SUM_VALID != 0 {
            Self::Verified
        } else {
            Self::Nothing
        })
    }
}

/// Reads a header whose frame may stand for a run of any kind: whether its checksum is open, and
/// the octets of payload in each packet of the run, 0 for a single packet.
#[must_use]
pub fn run_of([flags, kind, _, _, a, b, ..]: [u8; NOTE_OCTETS]) -> (bool, u16) {
    let is_run = matches!(kind & !ECN, TCP_RUN | UDP_RUN);
    (flags & NEEDS_SUM != 0, if is_run { u16::from_ne_bytes([a, b]) } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_told_is_understood(octets: [u8; NOTE_OCTETS], parts: [u16; 4], reduced: bool) {
            let [start, field, header_octets, segment_octets] = parts;
            let run = Note::Run { start, field, header_octets, segment_octets, reduced };
            for note in [run, Note::Partial { start, field }, Note::Nothing] {
                prop_assert_eq!(Note::parse(note.emit()), Some(note));
            }
            prop_assert_eq!(run_of(run.emit()), (true, segment_octets));
            if let Some(note) = Note::parse(octets).filter(|note| *note != Note::Verified) {
                prop_assert_eq!(Note::parse(note.emit()), Some(note));
            }
        }
    }
}
