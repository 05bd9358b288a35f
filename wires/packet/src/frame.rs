//! A frame that has arrived: in its slot, or, if it is longer than one, in the socket's queue.

use std::cell::Cell;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use smallvec::SmallVec;

use xk_kit::wire::virtio::{NOTE_OCTETS, run_of};

use crate::ring_unsafe::{ADDRESSES_OCTETS, Received, VLAN_OCTETS};

/// Parts into which a frame is read without an allocation, with those for its header.
const PARTS: usize = 24;

/// Facts about a received frame beside its octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameInfo {
    /// Length on the wire, in octets, VLAN tag included.
    pub wire_octets: usize,
    /// True if the frame did not fit a slot, nor the queue behind it, and its end is missing.
    pub truncated: bool,
    /// True if its transport checksum has not been computed, for its sender is on this machine; the
    /// field holds a partial sum.
    pub checksum_not_ready: bool,
    /// The interface has found its transport checksum right.
    pub checksum_valid: bool,
    /// Octets of payload in each TCP segment or UDP datagram of the run for which the frame stands,
    /// joined by the interface or left so by a sender on this machine; 0 for a single frame.
    pub segment_octets: u16,
    /// Time of its arrival, in nanoseconds since 1970.
    pub time_ns: u64,
}

impl FrameInfo {
    pub(crate) fn of(slot: &Received<'_>) -> Self {
        let (is_open, segment_octets) = run_of(slot.note);
        let is_queued = slot.status & libc::TP_STATUS_COPY != 0;
        Self {
            wire_octets: slot.wire_octets,
            truncated: slot.frame.len() < slot.wire_octets && !is_queued,
            checksum_not_ready: slot.status & libc::TP_STATUS_CSUMNOTREADY != 0 || is_open,
            checksum_valid: slot.status & libc::TP_STATUS_CSUM_VALID != 0,
            segment_octets,
            time_ns: slot.time_ns,
        }
    }
}

/// A frame that has arrived.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Facts about it.
    pub info: FrameInfo,
    source: Source<'a>,
}

#[derive(Debug)]
enum Source<'a> {
    Slot(&'a [u8]),
    Queue(Queued<'a>),
}

/// A frame in the socket's queue: taken out exactly once.
#[derive(Debug)]
struct Queued<'a> {
    socket: BorrowedFd<'a>,
    /// The VLAN tag that the copy lacks.
    tag: Option<[u8; VLAN_OCTETS]>,
    taken: Cell<bool>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if !self.taken.get() {
            // What does not fit is dropped with the rest of it.
            let _dropped = rustix::io::read(self.socket, &mut [0; NOTE_OCTETS]);
        }
    }
}

impl<'a> Frame<'a> {
    pub(crate) fn new(slot: &Received<'a>, socket: BorrowedFd<'a>) -> Self {
        let source = if slot.status & libc::TP_STATUS_COPY != 0 {
            Source::Queue(Queued { socket, tag: slot.tag, taken: Cell::new(false) })
        } else {
            Source::Slot(slot.frame)
        };
        Self { info: FrameInfo::of(slot), source }
    }

    /// The frame's octets, if they lie in a slot.
    pub fn in_slot(&self) -> Option<&'a [u8]> {
        match self.source {
            Source::Slot(octets) => Some(octets),
            Source::Queue(_) => None,
        }
    }

    /// Writes its octets, [`FrameInfo::wire_octets`] of them unless it was truncated, into the
    /// parts, one behind the other, of which the first has 16 octets at least. False if it cannot
    /// be read, or they are too short or too many (1021).
    #[must_use]
    pub fn read(self, parts: &mut [&mut [u8]]) -> bool {
        match self.source {
            Source::Slot(mut octets) => {
                for part in parts {
                    let (now, rest) = octets.split_at(part.len().min(octets.len()));
                    if let Some(place) = part.get_mut(..now.len()) {
                        place.copy_from_slice(now);
                    }
                    octets = rest;
                }
                octets.is_empty()
            }
            Source::Queue(queued) => queued.read(parts, self.info.wire_octets),
        }
    }
}

impl Queued<'_> {
    fn read(&self, parts: &mut [&mut [u8]], octets: usize) -> bool {
        let mut header = [0; NOTE_OCTETS];
        let Some((first, others)) = parts.split_first_mut() else {
            return false;
        };
        let tag = self.tag.as_ref().map_or(&[][..], <[u8; VLAN_OCTETS]>::as_slice);
        let Some((addresses, rest)) = first.split_at_mut_checked(ADDRESSES_OCTETS) else {
            return false;
        };
        let Some((place, rest)) = rest.split_at_mut_checked(tag.len()) else {
            return false;
        };
        place.copy_from_slice(tag);
        let own = [&mut header[..], addresses, rest].into_iter();
        let all = own.chain(others.iter_mut().map(|part| &mut **part));
        let mut slices: SmallVec<[_; PARTS]> = all.map(IoSliceMut::new).collect();
        self.taken.set(true);
        let wanted = NOTE_OCTETS + octets - tag.len();
        rustix::io::readv(self.socket, &mut slices) == Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_kit::wire::virtio::Note;

    fn slot(note: [u8; NOTE_OCTETS], status: u32) -> Received<'static> {
        Received { frame: &[7; 40], status, wire_octets: 50, time_ns: 3, note, tag: None }
    }

    #[test]
    fn a_run_is_told_from_a_frame() {
        let run = Note::Run {
            start: 34,
            field: 16,
            header_octets: 66,
            segment_octets: 1448,
            reduced: true,
        };
        let info = FrameInfo::of(&slot(run.emit(), libc::TP_STATUS_COPY));
        assert_eq!(info.segment_octets, 1448);
        assert!(info.checksum_not_ready && !info.truncated);
        let info = FrameInfo::of(&slot(Note::Nothing.emit(), 0));
        assert_eq!((info.segment_octets, info.truncated), (0, true));
        assert!(!info.checksum_not_ready);
    }

    #[test]
    fn a_slot_is_read_into_parts() {
        let here = slot(Note::Nothing.emit(), 0);
        let null = std::fs::File::open("/dev/null").unwrap();
        let socket = std::os::fd::AsFd::as_fd(&null);
        let (mut a, mut b) = ([0; 16], [0; 24]);
        assert!(Frame::new(&here, socket).read(&mut [&mut a, &mut b]));
        assert_eq!((a, b), ([7; 16], [7; 24]));
        assert!(!Frame::new(&here, socket).read(&mut [&mut a]));
        // A device that gives nothing: the frame cannot be read.
        let queued = slot(Note::Nothing.emit(), libc::TP_STATUS_COPY);
        assert!(!Frame::new(&queued, socket).read(&mut [&mut a, &mut b]));
    }
}
