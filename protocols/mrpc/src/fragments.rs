//! Messages in several packets: how they are cut, and put together again.

use crate::wire::{AREA1_LEN_MAX, AREA2_LEN_MAX, FRAGMENTS_MAX, Header, LASTFRAG, all_of};
use core::cell::Cell;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, Sender};
use xk_core::object::PushError;
use xk_core::{Kernel, Message, SessionRef};

/// Number of octets at the front of a message that are area 1, Sprite's parameters. An attribute of
/// requests and replies, on their way down and up; without it all is area 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Octets, at most 1024.
    pub octets: u16,
}

impl Attribute for Parameters {
    const KEY: u32 = xk_core::name_key("mrpc-parameters");
    const CROSSES: Crossing = Crossing { down: Some(Sender::Domain), up: Some(Sender::Domain) };

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..2].copy_from_slice(&self.octets.to_le_bytes());
        octets
    }

    fn decode([a, b, ..]: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Self { octets: u16::from_le_bytes([a, b]) }
    }
}

/// Plan for cutting a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Octets in all, and of area 1, which comes first.
    len: usize,
    area1: usize,
    /// Octets of each fragment but the last.
    payload: usize,
    /// 0 if the message goes in one packet.
    pub(crate) fragments: u16,
}

impl Cut {
    /// Plans a message of `len` octets, `area1` of them area 1, in packets of `usual` octets, or of
    /// up to `max` octets if the fragments would be too many otherwise. `None` if it is too big.
    #[inline]
    pub(crate) fn new(len: usize, area1: usize, (usual, max): (usize, usize)) -> Option<Self> {
        if len <= usual && area1 == 0 {
            return Some(Self { len, area1, payload: usual, fragments: 0 });
        }
        Self::several(len, area1, usual, max)
    }

    fn several(len: usize, area1: usize, usual: usize, max: usize) -> Option<Self> {
        let area2 = len.checked_sub(area1)?;
        if area1 > AREA1_LEN_MAX || area2 > AREA2_LEN_MAX {
            return None;
        }
        let payload = usual.max(len.div_ceil(FRAGMENTS_MAX));
        if payload > max || payload == 0 {
            return None;
        }
        let fragments = match len.div_ceil(payload) {
            0 | 1 => 0,
            count => count as u16,
        };
        Some(Self { len, area1, payload, fragments })
    }

    /// Octets of the message that a fragment holds.
    fn range(&self, index: usize) -> (usize, usize) {
        let start = (index * self.payload).min(self.len);
        (start, (start + self.payload).min(self.len))
    }

    /// The header of a fragment, or of the whole if it is not fragmented.
    pub(crate) fn header(&self, template: &Header, index: usize) -> Header {
        let (start, end) = self.range(index);
        let [first, second] = [(0, self.area1), (self.area1, self.len)].map(|(from, to)| {
            let (from_here, to_here) = (start.clamp(from, to), end.clamp(from, to));
            match to_here - from_here {
                0 => (0, 0),
                size => (size as u16, (from_here - from) as u16),
            }
        });
        Header {
            fragments: self.fragments,
            mask: if self.fragments == 0 { 0 } else { 1 << index },
            sizes: [first.0, second.0],
            offsets: [first.1, second.1],
            ..*template
        }
    }

    /// The mask of all fragments.
    pub(crate) fn all(&self) -> u16 {
        all_of(self.fragments)
    }

    /// The mask of the last one.
    pub(crate) fn last(&self) -> u16 {
        match self.fragments {
            0 => 0,
            count => 1 << (count - 1),
        }
    }

    /// Sends those fragments of a message that `mask` names, the last with `extra` flags; if it is
    /// not fragmented, the whole. `None` stands for an empty message. Counts nothing: what does not
    /// go is sent again.
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        template: &Header,
        extra: u16,
        message: Option<&Message>,
        mask: u16,
    ) -> Result<(), PushError> {
        if self.fragments == 0 {
            let mut header = self.header(template, 0);
            header.flags |= extra;
            return push(cx, lower, &header, copy(cx, message, 0, self.len)?);
        }
        let mask = mask & self.all();
        let mut result = Ok(());
        for index in (0..FRAGMENTS_MAX).filter(|index| mask & 1 << index != 0) {
            let mut header = self.header(template, index);
            if mask >> index == 1 {
                header.flags |= LASTFRAG | extra;
            }
            let (start, end) = self.range(index);
            let part = copy(cx, message, start, end);
            result = result.and(part.and_then(|part| push(cx, lower, &header, part)));
        }
        result
    }
}

fn copy(
    cx: &Kernel,
    message: Option<&Message>,
    start: usize,
    end: usize,
) -> Result<Message, PushError> {
    match message {
        Some(message) => {
            message.try_clone_part(start, end - start).map_err(|_| PushError::NoBuffers)
        }
        None => empty(cx),
    }
}

/// Room for the headers of this layer and those below, in octets.
const HEADROOM: usize = 128;

/// A message without octets.
fn empty(cx: &Kernel) -> Result<Message, PushError> {
    cx.pool().copy_from(HEADROOM, &[]).map_err(|_| PushError::NoBuffers)
}

/// Sends a packet without a body. What does not go is as good as lost: it is asked for again.
pub(crate) fn push_bare(cx: &Kernel, lower: &SessionRef, header: &Header) {
    let _ = empty(cx).and_then(|body| push(cx, lower, header, body));
}

/// Puts a header in front of a message and sends it.
pub(crate) fn push(
    cx: &Kernel,
    lower: &SessionRef,
    header: &Header,
    mut message: Message,
) -> Result<(), PushError> {
    message.push_array(&header.emit()).map_err(|_| PushError::NoBuffers)?;
    lower.push(cx, message)
}

/// Result of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The fragment was there already.
    Duplicate,
    /// The fragment contradicts the others: dropped.
    Forged,
    /// Others are missing.
    New,
    /// All are there.
    Complete,
}

/// A message of which some fragments have come.
#[derive(Default)]
pub(crate) struct Partial {
    parts: [Cell<Option<Message>>; FRAGMENTS_MAX],
    sizes: [Cell<[u16; 2]>; FRAGMENTS_MAX],
    offsets: [Cell<[u16; 2]>; FRAGMENTS_MAX],
    held: Cell<u16>,
    fragments: Cell<u16>,
    command: Cell<u16>,
}

impl Partial {
    /// The mask of the fragments held.
    pub(crate) fn held(&self) -> u16 {
        self.held.get()
    }

    /// Drops what is held.
    pub(crate) fn clear(&self) {
        if self.held.replace(0) == 0 {
            return;
        }
        for part in &self.parts {
            drop(part.take());
        }
    }

    /// Takes a fragment whose header was checked; `body` is what lies behind it and belongs to it.
    pub(crate) fn take(&self, header: &Header, body: Message) -> Taken {
        let index = header.mask.trailing_zeros() as usize % FRAGMENTS_MAX;
        if self.held.get() == 0 {
            self.fragments.set(header.fragments);
            self.command.set(header.command);
        } else if (self.fragments.get(), self.command.get()) != (header.fragments, header.command) {
            return Taken::Forged;
        }
        if self.held.get() & header.mask != 0 {
            return Taken::Duplicate;
        }
        self.held.set(self.held.get() | header.mask);
        self.sizes[index].set(header.sizes);
        self.offsets[index].set(header.offsets);
        drop(self.parts[index].replace(Some(body)));
        if self.held.get() == header.all() { Taken::Complete } else { Taken::New }
    }

    /// The whole message and how much of it is area 1, if the fragments fit together; nothing is
    /// held then.
    pub(crate) fn join(&self) -> Option<(Message, u16)> {
        let (mut whole, mut ends): (Option<Message>, [u16; 2]) = (None, [0, 0]);
        let mut fits = true;
        for index in 0..usize::from(self.fragments.get()).min(FRAGMENTS_MAX) {
            let (sizes, offsets) = (self.sizes[index].get(), self.offsets[index].get());
            // Area 1 comes first, and nothing overlaps or is left out.
            fits &= sizes[0] == 0 || offsets[0] == ends[0] && ends[1] == 0;
            fits &= sizes[1] == 0 || offsets[1] == ends[1];
            ends = [0, 1].map(|area| ends[area].wrapping_add(sizes[area]));
            match (&mut whole, self.parts[index].take()) {
                (Some(whole), Some(part)) => whole.join(part),
                (None, part) => whole = part,
                (Some(_), None) => fits = false,
            }
        }
        self.clear();
        whole.filter(|_| fits).map(|whole| (whole, ends[0]))
    }
}

/// Marks how much of a message on its way up is area 1.
pub(crate) fn mark(message: &mut Message, area1: u16) {
    if area1 > 0 {
        // A message that came from below bears fewer attributes than there is room for.
        let _ = message.set_attribute(Parameters { octets: area1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_kilooctets_are_sixteen_fragments() {
        let cut = Cut::new(16_384, 0, (1024, 1464)).expect("it fits");
        assert_eq!((cut.fragments, cut.all(), cut.last()), (16, 0xffff, 0x8000));
        let last = cut.header(&Header::default(), 15);
        assert_eq!((last.mask, last.sizes, last.offsets), (0x8000, [0, 1024], [0, 15_360]));
        assert_eq!(Cut::new(16_385, 0, (1024, 1464)), None);
    }

    #[test]
    fn both_areas_still_are_sixteen_fragments() {
        let cut = Cut::new(16_384 + 1024, 1024, (1024, 1464)).expect("it fits");
        assert_eq!((cut.fragments, cut.payload), (16, 1088));
        let headers: alloc::vec::Vec<_> =
            (0..16).map(|i| cut.header(&Header::default(), i)).collect();
        assert_eq!((headers[0].sizes, headers[0].offsets), ([1024, 64], [0, 0]));
        assert_eq!((headers[1].sizes, headers[1].offsets), ([0, 1088], [0, 64]));
        assert_eq!(Cut::new(2000, 1025, (1024, 1464)), None);
        assert_eq!(Cut::new(16_384 + 1024, 1024, (1024, 1080)), None);
    }

    #[test]
    fn what_fits_one_packet_is_not_fragmented() {
        for (len, area1) in [(0, 0), (1024, 0), (1024, 1024), (10, 3)] {
            let cut = Cut::new(len, area1, (1024, 1464)).expect("it fits");
            let header = cut.header(&Header::default(), 0);
            assert_eq!((cut.fragments, header.mask, header.offsets), (0, 0, [0, 0]));
            assert_eq!(header.sizes, [area1 as u16, (len - area1) as u16]);
        }
    }
}
