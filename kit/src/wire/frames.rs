//! Frames of devices that leave the transport's checksum open or join segments to runs: Ethernet
//! frames with whole IPv4 packets of TCP or UDP, read to find what has been left open.
//!
//! What is not read here goes packet by packet, its checksum complete.

use crate::net::addr::Ipv4;
use crate::net::checksum::{Checksum, checksum};
use crate::wire::offload::{self, TransportChecksum};
use crate::wire::segments::{
    LENGTH_AT, Length, NetworkHeader, Segments, UDP_OCTETS, front, put, split, sum_at, word,
};
use alloc::collections::VecDeque;
use xk_core::message::NoBuffers;
use xk_core::reason::{self, Reason};
use xk_core::{Message, Pool};

/// Offsets in an Ethernet header (IEEE 802.3), with and without a VLAN tag (IEEE 802.1Q).
const TYPE_AT: usize = 12;
const TAG_OCTETS: usize = 4;
const LINK_OCTETS: usize = TYPE_AT + 2;
const VLAN: u16 = 0x8100;
const IPV4: u16 = 0x0800;
/// Offsets in an IPv4 header (RFC 791, section 3.1).
const TOTAL_AT: usize = 2;
const FRAGMENT_AT: usize = 6;
const PROTOCOL_AT: usize = 9;
const SOURCE_AT: usize = 12;
const DESTINATION_AT: usize = 16;
const TCP: u8 = 6;
const UDP: u8 = 17;

impl NetworkHeader {
    /// Returns the fields of an IPv4 header of so many octets (RFC 791, section 3.1).
    #[must_use]
    pub const fn ipv4(octets: usize) -> Self {
        Self {
            octets: octets as u8,
            length: Some(Length { at: TOTAL_AT as u8, with_header: true }),
            number: Some(4),
            sum: Some(10),
        }
    }
}

/// Offsets of the headers of a packet.
#[derive(Clone, Copy, Debug)]
struct Layout {
    packet: usize,
    transport: usize,
    payload: usize,
    protocol: u8,
}

impl Layout {
    /// Position of the transport's checksum, from its header on.
    fn sum_at(&self) -> usize {
        sum_at(self.protocol == TCP)
    }
}

/// The headers of an IPv4 packet of TCP or UDP at `packet`, in a message of `len` octets that ends
/// with it.
fn layout(octets: &[u8], packet: usize, len: usize) -> Option<Layout> {
    let header = octets.get(packet..)?;
    let first = *header.first()?;
    let header_octets = usize::from(first & 0xf) * 4;
    let total = usize::from(word(header, TOTAL_AT)?);
    // Neither offset nor "more fragments".
    let is_whole = word(header, FRAGMENT_AT)? & 0x3fff == 0;
    if first >> 4 != 4 || header_octets < 20 || packet + total != len || !is_whole {
        return None;
    }
    let transport = packet + header_octets;
    let protocol = *header.get(PROTOCOL_AT)?;
    let transport_octets = match protocol {
        TCP => usize::from(*octets.get(transport + LENGTH_AT)? >> 4) * 4,
        UDP => UDP_OCTETS,
        _ => return None,
    };
    let payload = transport + transport_octets;
    let is_long = protocol == UDP || transport_octets >= 20;
    (is_long && payload <= octets.len() && payload <= len).then_some(Layout {
        packet,
        transport,
        payload,
        protocol,
    })
}

/// The headers of an Ethernet frame with such a packet, and where that ends: padding may follow.
fn in_frame(octets: &[u8]) -> Option<(Layout, usize)> {
    let is_tagged = word(octets, TYPE_AT)? == VLAN;
    let link = LINK_OCTETS + if is_tagged { TAG_OCTETS } else { 0 };
    if word(octets, link - 2)? != IPV4 {
        return None;
    }
    let end = link + usize::from(word(octets, link + TOTAL_AT)?);
    layout(octets, link, end).map(|at| (at, end))
}

/// Place of the transport checksum that the sender of an Ethernet frame left unfinished: the first
/// octet to be summed, and the field's position from there on. `None` if the frame is no whole IPv4
/// packet of TCP or UDP.
#[must_use]
pub fn sum_place(frame: &[u8]) -> Option<(usize, usize)> {
    let (at, end) = in_frame(frame)?;
    (end <= frame.len()).then_some((at.transport, at.sum_at()))
}

/// Completes the transport checksum of an Ethernet frame whose sender has only begun it, if that is
/// what the field looks like, as a device that takes open checksums would have. True if it did.
pub fn finish_begun(frame: &mut [u8]) -> bool {
    let Some((at, end)) = in_frame(frame).filter(|(at, end)| is_begun(frame, at, *end)) else {
        return false;
    };
    let Some(segment) = frame.get_mut(at.transport..end) else {
        return false;
    };
    let sum = match checksum(segment) {
        // RFC 768: zero says that there is no checksum. For TCP both mean the same sum.
        0 => 0xffff,
        sum => sum,
    };
    put(segment, at.sum_at(), sum);
    true
}

/// Whether an Ethernet frame ends with the IPv4 packet in it, and has no tag.
pub(crate) fn ends_with_packet(frame: &Message) -> bool {
    frame.peek::<{ LINK_OCTETS + TOTAL_AT + 2 }>().is_some_and(|octets| {
        let total = word(octets, LINK_OCTETS + TOTAL_AT).map_or(0, usize::from);
        word(octets, TYPE_AT) == Some(IPV4) && LINK_OCTETS + total == frame.len()
    })
}

/// Whether a run is one that a device can cut: of TCP over IPv4, without a tag.
pub(crate) fn is_for_devices(run: &Message) -> bool {
    let (octets, count) = front(run);
    let found = octets.get(..count).and_then(in_frame);
    found
        .is_some_and(|(at, end)| at.protocol == TCP && at.packet == LINK_OCTETS && end == run.len())
}

/// Marks an Ethernet frame as a run of segments of `size` octets each, with its checksum left open,
/// as `checksum` says it is; the answer tells whether it is TCP's, without a VLAN tag.
fn mark(frame: &mut Message, size: u16, checksum: bool) -> Option<bool> {
    let (octets, count) = front(frame);
    let (at, end) = in_frame(octets.get(..count)?)?;
    if end != frame.len() || size == 0 {
        return None;
    }
    let segment = u32::try_from(frame.len() - at.transport).ok()?;
    let header = u16::try_from(at.payload - at.transport).ok()?;
    let network = NetworkHeader::ipv4(at.transport - at.packet);
    let run = Segments { segment, header, size, network };
    frame.set_attribute(run).ok()?;
    if checksum {
        let field = at.sum_at() as u16;
        let partial = TransportChecksum::Partial { segment, field };
        frame.set_attribute(partial).ok()?;
    }
    Some(at.protocol == TCP && at.packet == LINK_OCTETS)
}

/// Marks an Ethernet frame of which another side says that its checksum is open, the field at
/// `field` behind `start`, and that it is a run of segments of `size` octets each if that is not 0:
/// if its headers agree. True if they do; otherwise the frame is as it was.
pub fn believe(frame: &mut Message, (start, field): (u16, u16), size: u16) -> bool {
    let (octets, count) = front(frame);
    let found = octets.get(..count).and_then(in_frame);
    let Some((at, _)) = found.filter(|(_, end)| *end == frame.len()) else {
        return false;
    };
    if (at.transport, at.sum_at()) != (start.into(), field.into()) {
        return false;
    }
    if size > 0 {
        return at.protocol == TCP && at.packet == LINK_OCTETS && mark(frame, size, true).is_some();
    }
    let segment = (frame.len() - at.transport) as u32;
    frame.set_attribute(TransportChecksum::Partial { segment, field }).is_ok()
}

/// Takes in an Ethernet frame that arrived as a run of segments of `size` octets each, its checksum
/// left open if `open` says so, else there: a run of TCP's goes on whole, anything else packet by
/// packet.
pub fn arrive(
    pool: &Pool,
    mut frame: Message,
    (size, open): (u16, bool),
    arrivals: &mut VecDeque<Message>,
) -> Result<(), &'static Reason> {
    let goes_whole = mark(&mut frame, size, open).ok_or(&reason::MALFORMED)?;
    if goes_whole {
        arrivals.push_back(frame);
        return Ok(());
    }
    for piece in split(frame)? {
        let mut piece = piece?;
        offload::finish_checksum(pool, &mut piece).map_err(|_| &reason::NO_BUFFERS)?;
        arrivals.push_back(piece);
    }
    Ok(())
}

/// Whether an Ethernet frame is longer than its link's MTU of `mtu` octets allows.
#[inline]
#[must_use]
pub fn is_long(frame: &Message, mtu: usize) -> bool {
    frame.len() > LINK_OCTETS + TAG_OCTETS + mtu
}

/// Takes in an Ethernet frame that is longer than its link's MTU of `mtu` octets allows, so that it
/// can only be a run, from a wire that does not say of what: TCP's, of segments as long as the link
/// carries; of another's the ends are lost.
pub fn arrive_long(
    pool: &Pool,
    frame: Message,
    mtu: usize,
    arrivals: &mut VecDeque<Message>,
) -> Result<(), &'static Reason> {
    if !is_long(&frame, mtu) {
        arrivals.push_back(frame);
        return Ok(());
    }
    let (octets, count) = front(&frame);
    let octets = octets.get(..count).unwrap_or_default();
    let found = in_frame(octets).filter(|(at, end)| at.protocol == TCP && *end == frame.len());
    let (at, _) = found.ok_or(&reason::TOO_BIG)?;
    let size = (at.packet + mtu).saturating_sub(at.payload);
    let size = u16::try_from(size).unwrap_or(u16::MAX);
    let is_open = is_begun(octets, &at, frame.len());
    arrive(pool, frame, (size, is_open), arrivals)
}

/// Whether the checksum's field of a packet that ends with a message of `len` octets holds the sum
/// over the pseudo-header alone.
fn is_begun(octets: &[u8], at: &Layout, len: usize) -> bool {
    let begun = !pseudo(octets, at, len - at.transport).finish();
    word(octets, at.transport + at.sum_at()) == Some(begun)
}

/// Notes on an Ethernet frame that its sender has only begun the transport checksum, for the wire
/// to go on from, if that is what the field looks like: where it is not told. One whose right
/// checksum happens to be the same number loses nothing by it.
///
/// # Errors
/// [`NoBuffers`], counted at the pool.
pub fn note_begun(pool: &Pool, frame: &mut Message) -> Result<(), NoBuffers> {
    let (octets, count) = front(frame);
    let octets = octets.get(..count).unwrap_or_default();
    let found = in_frame(octets).filter(|(at, end)| is_begun(octets, at, *end));
    match found {
        Some((at, end)) if end == frame.len() => {
            offload::note_partial(pool, frame, (at.transport, at.sum_at()))
        }
        _ => Ok(()),
    }
}

/// The sum over the pseudo-header of a transport's segment of `segment` octets.
fn pseudo(octets: &[u8], at: &Layout, segment: usize) -> Checksum {
    let host = |offset| {
        let octets = octets.get(at.packet + offset..);
        let host = octets.and_then(<[u8]>::first_chunk::<4>).copied();
        host.map_or(Ipv4::UNSPECIFIED, Ipv4::from)
    };
    let (from, to) = (host(SOURCE_AT), host(DESTINATION_AT));
    Checksum::pseudo_header(from, to, at.protocol, segment as u32)
}

#[cfg(test)]
mod tests;
