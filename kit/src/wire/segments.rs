//! Messages that stand for a run of segments: the payload of several packets behind one set of
//! headers, as devices and systems join what arrives (receive coalescing) and cut what is sent
//! (segmentation offload).
//!
//! [`Segments`] marks such a message. A transport that knows of it takes the whole run as one
//! segment; what a layer carries at most holds for each packet of the run ([`longest`]). Nothing
//! depends on a wire's doing the cutting: the base of all wires does it for those that do not
//! ([`split`]), and so does a layer that treats packets one by one, such as a fault. The payload is
//! never copied for it.

use crate::net::addr::Ipv4;
use crate::net::checksum::{Checksum, checksum};
use crate::wire::offload;
use crate::wire::offload::TransportChecksum;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, NoBuffers, Sender};
use xk_core::reason::{self, Reason};
use xk_core::{Message, Pool};

/// Packets of a run that comes from where cutting it is left to others, at most: what one frame
/// has another side do.
pub const RUN_PACKETS_MAX: u16 = 64;

/// A message stands for a run of segments with the same headers, but for what counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Octets from the transport's header to the end of the message: the same whatever headers are
    /// in front.
    pub segment: u32,
    /// Octets of the transport's header.
    pub header: u16,
    /// Octets of payload in each segment but the last.
    pub size: u16,
}

impl Segments {
    /// Number of packets in the run.
    pub fn packets(self) -> u16 {
        let payload = self.segment.saturating_sub(self.header.into());
        payload.div_ceil(u32::from(self.size).max(1)).max(1) as u16
    }
}

impl Attribute for Segments {
    const KEY: u32 = xk_core::name_key("segments");
    const CROSSES: Crossing = Crossing::BOTH;

    fn fits(self, message: &Message, sender: Sender) -> bool {
        let payload = self.segment.checked_sub(self.header.into());
        let start = message.len().checked_sub(self.segment as usize);
        let (Some(_), Some(start)) = (payload.filter(|_| self.size > 0), start) else {
            return false;
        };
        // What cuts a run writes into the headers of its packets: of a program they are to be its
        // own, and not so many that one frame keeps others waiting.
        let mut length = [0];
        let has_header = message.copy_to(start + LENGTH_AT, &mut length) == 1
            && self.header >= TCP_OCTETS
            && u16::from(length[0] >> 4) * 4 == self.header;
        sender == Sender::Domain || has_header && self.packets() <= RUN_PACKETS_MAX
    }

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..4].copy_from_slice(&self.segment.to_be_bytes());
        octets[4..6].copy_from_slice(&self.header.to_be_bytes());
        octets[6..8].copy_from_slice(&self.size.to_be_bytes());
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = octets;
        Self {
            segment: u32::from_be_bytes([a, b, c, d]),
            header: u16::from_be_bytes([e, f]),
            size: u16::from_be_bytes([g, h]),
        }
    }
}

/// The run that a message stands for; `None` if it is one packet.
#[inline]
#[must_use]
pub fn of(message: &Message) -> Option<Segments> {
    if message.has_attributes() { message.attribute() } else { None }
}

/// Octets of all packets that a message stands for, each with all headers.
#[inline]
#[must_use]
pub fn octets_of_all(message: &Message) -> usize {
    let len = message.len();
    of(message).map_or(len, |run| {
        let payload = run.segment.saturating_sub(run.header.into()) as usize;
        len + usize::from(run.packets() - 1) * len.saturating_sub(payload)
    })
}

/// Octets of the longest packet that a message stands for, with all headers: its length, unless it
/// is a run.
#[inline]
#[must_use]
pub fn longest(message: &Message) -> usize {
    let len = message.len();
    match of(message) {
        None => len,
        Some(run) => {
            let one = u32::from(run.header) + u32::from(run.size);
            len.saturating_sub(run.segment.saturating_sub(one) as usize)
        }
    }
}

/// Offsets in an Ethernet header (IEEE 802.3), with and without a VLAN tag (IEEE 802.1Q).
const TYPE_AT: usize = 12;
const TAG_OCTETS: usize = 4;
const LINK_OCTETS: usize = TYPE_AT + 2;
const VLAN: u16 = 0x8100;
const IPV4: u16 = 0x0800;
/// Offsets in an IPv4 header (RFC 791, section 3.1).
const TOTAL_AT: usize = 2;
const ID_AT: usize = 4;
const FRAGMENT_AT: usize = 6;
const PROTOCOL_AT: usize = 9;
const HEADER_SUM_AT: usize = 10;
const SOURCE_AT: usize = 12;
const DESTINATION_AT: usize = 16;
/// Offsets in a TCP header (RFC 9293, section 3.1).
const SEQUENCE_AT: usize = 4;
const LENGTH_AT: usize = 12;
const TCP_OCTETS: u16 = 20;
const FLAGS_AT: usize = 13;
const TCP_SUM_AT: usize = 16;
const URGENT_AT: usize = 18;
const FIN_PSH: u8 = 0x09;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;
/// Offsets in a UDP header (RFC 768).
const UDP_LENGTH_AT: usize = 4;
const UDP_SUM_AT: usize = 6;
const UDP_OCTETS: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Octets of the longest headers: Ethernet with a tag, IPv4, TCP.
const HEADERS_MAX: usize = LINK_OCTETS + TAG_OCTETS + 60 + 60;

/// Where the headers of a packet are.
#[derive(Clone, Copy, Debug)]
struct Layout {
    packet: usize,
    transport: usize,
    payload: usize,
    protocol: u8,
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    let octets = octets.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*octets))
}

fn put(octets: &mut [u8], at: usize, value: u16) {
    if let Some(field) = octets.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
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

/// Where the transport checksum goes that the sender of an Ethernet frame left open: the first
/// octet to be summed, and the field's place from there on. `None` if the frame is no whole IPv4
/// packet of TCP or UDP.
#[must_use]
pub fn sum_place(frame: &[u8]) -> Option<(usize, usize)> {
    let (at, end) = in_frame(frame)?;
    (end <= frame.len()).then_some((at.transport, sum_at(at.protocol)))
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
    put(segment, sum_at(at.protocol), sum);
    true
}

/// The first octets of a message, as many as headers may have.
fn front(message: &Message) -> ([u8; HEADERS_MAX], usize) {
    let mut octets = [0; HEADERS_MAX];
    let count = message.copy_to(0, &mut octets);
    (octets, count)
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
    let run = Segments { segment, header: u16::try_from(at.payload - at.transport).ok()?, size };
    frame.set_attribute(run).ok()?;
    if checksum {
        let field = sum_at(at.protocol) as u16;
        let partial = TransportChecksum::Partial { segment, field };
        frame.set_attribute(partial).ok()?;
    }
    Some(at.protocol == TCP && at.packet == LINK_OCTETS)
}

fn sum_at(protocol: u8) -> usize {
    if protocol == TCP { TCP_SUM_AT } else { UDP_SUM_AT }
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
    if (at.transport, sum_at(at.protocol)) != (start.into(), field.into()) {
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

/// Octets of a buffer for a run: most of it lies in such ones.
const PIECE_OCTETS: usize = 16 << 10;
/// Octets of a buffer for what is left of it.
const SMALL_OCTETS: usize = 2 << 10;

/// Makes room for an arrival of `octets` octets in buffers that it fills at least half, whatever
/// its length: puts messages into `pieces`, of which the first has `headroom`, to be filled and
/// [joined](join).
///
/// # Errors
/// [`NoBuffers`], counted at the pool; then `pieces` is empty.
pub fn room(
    pool: &Pool,
    headroom: usize,
    octets: usize,
    pieces: &mut Vec<Message>,
) -> Result<(), NoBuffers> {
    pieces.clear();
    let mut left = octets;
    while left > 0 || pieces.is_empty() {
        let headroom = if pieces.is_empty() { headroom } else { 0 };
        let most = match left {
            left if left >= PIECE_OCTETS / 2 => PIECE_OCTETS,
            _ => SMALL_OCTETS.saturating_sub(headroom).max(1),
        };
        let now = left.min(most);
        match pool.alloc(headroom, now) {
            Ok(piece) => pieces.push(piece),
            Err(error) => {
                pieces.clear();
                return Err(error);
            }
        }
        left -= now;
    }
    Ok(())
}

/// A message that fills less than half of its buffer of `buffer_octets` octets, copied into smaller
/// ones if there are any.
#[must_use]
pub fn compact(pool: &Pool, message: Message, buffer_octets: usize) -> Message {
    let octets = message.len();
    if octets >= buffer_octets / 2 {
        return message;
    }
    let mut pieces = Vec::new();
    if room(pool, 0, octets, &mut pieces).is_err() {
        return message;
    }
    let mut at = 0;
    for piece in pieces.iter_mut().filter_map(Message::front_mut) {
        at += message.copy_to(at, piece);
    }
    join(&mut pieces).unwrap_or(message)
}

/// Joins pieces that were filled into one message; `None` if there are none.
pub fn join(pieces: &mut Vec<Message>) -> Option<Message> {
    let mut pieces = pieces.drain(..);
    let mut whole = pieces.next()?;
    for piece in pieces {
        whole.join(piece);
    }
    Some(whole)
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
    word(octets, at.transport + sum_at(at.protocol)) == Some(begun)
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
            offload::note_partial(pool, frame, (at.transport, sum_at(at.protocol)))
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

/// Hands on each packet that a message stands for, nothing of it left to others: for what is above
/// or below and knows neither of runs nor of open checksums.
///
/// # Errors
/// The last reason for which one of them did not go.
pub fn each_whole(
    pool: &Pool,
    message: Message,
    mut take: impl FnMut(Message) -> Result<(), &'static Reason>,
) -> Result<(), &'static Reason> {
    let mut take = |mut packet: Message| {
        offload::finish_checksum(pool, &mut packet).map_err(|_| &reason::NO_BUFFERS)?;
        take(packet)
    };
    if of(&message).is_none() {
        return take(message);
    }
    let mut result = Ok(());
    for packet in split(message)? {
        let taken = packet.and_then(&mut take);
        result = result.and(taken);
    }
    result
}

/// Takes a run apart: see [`split`].
pub struct Split {
    /// The headers of the next packet.
    headers: [u8; HEADERS_MAX],
    at: Layout,
    size: usize,
    /// Flags of the run's header, and its urgent pointer.
    flags: u8,
    urgent: u16,
    /// Octets of payload that went.
    gone: usize,
    /// UDP without a checksum stays that.
    has_sum: bool,
    rest: Option<Message>,
}

/// Cuts a message that stands for a run of segments into its packets, each a message with headers
/// of its own: lengths, IPv4 identification, sequence numbers and flags as if they had been sent
/// singly, transport checksums left open ([`TransportChecksum::Partial`]), payload by reference. In
/// front of the IPv4 header may be that of Ethernet, or nothing.
///
/// # Errors
/// Why it cannot be cut, for counting.
pub fn split(mut message: Message) -> Result<Split, &'static Reason> {
    let run = of(&message).ok_or(&reason::MALFORMED)?;
    let (headers, count) = front(&message);
    let transport = message.len().wrapping_sub(run.segment as usize);
    let octets = headers.get(..count).unwrap_or_default();
    let found = [0, LINK_OCTETS, LINK_OCTETS + TAG_OCTETS]
        .into_iter()
        .filter_map(|packet| layout(octets, packet, message.len()))
        .find(|at| at.transport == transport);
    let at = found.filter(|_| run.size > 0).ok_or(&reason::MALFORMED)?;
    message.remove_attribute::<Segments>();
    let known = message.remove_attribute::<TransportChecksum>();
    let has_sum = at.protocol == TCP || known.is_some() || {
        let field = word(octets, at.transport + UDP_SUM_AT);
        field != Some(0)
    };
    if known.is_none() && has_sum {
        // New sums for each packet would hide what befell the run.
        let mut sum = pseudo(octets, &at, run.segment as usize);
        let mut skip = at.transport;
        for slice in message.slices() {
            match slice.octets.get(skip..) {
                Some(octets) => {
                    sum.add(octets);
                    skip = 0;
                }
                None => skip -= slice.octets.len(),
            }
        }
        if !sum.is_valid() {
            return Err(&reason::BAD_CHECKSUM);
        }
    }
    if !message.strip(at.payload) {
        return Err(&reason::TRUNCATED);
    }
    let flag = |offset: usize| octets.get(at.transport + offset).copied().unwrap_or(0);
    let is_tcp = at.protocol == TCP;
    Ok(Split {
        headers,
        at,
        size: usize::from(run.size),
        flags: if is_tcp { flag(FLAGS_AT) } else { 0 },
        urgent: word(octets, at.transport + URGENT_AT).filter(|_| is_tcp).unwrap_or(0),
        gone: 0,
        has_sum,
        rest: Some(message),
    })
}

impl Split {
    /// Writes what this packet's headers have of its own.
    fn renew(&mut self, payload: usize, is_last: bool) {
        let Self { headers, at, flags, urgent, gone, .. } = self;
        let segment = at.payload - at.transport + payload;
        let total = at.transport - at.packet + segment;
        let transport_at = at.transport;
        if let Some(packet) = headers.get_mut(at.packet..at.transport) {
            put(packet, TOTAL_AT, total as u16);
            put(packet, HEADER_SUM_AT, 0);
            let sum = checksum(packet);
            put(packet, HEADER_SUM_AT, sum);
        }
        let begun = match self.has_sum {
            true => !pseudo(&*headers, at, segment).finish(),
            false => 0,
        };
        let Some(transport) = headers.get_mut(transport_at..) else {
            return;
        };
        put(transport, sum_at(at.protocol), begun);
        if at.protocol != TCP {
            put(transport, UDP_LENGTH_AT, segment as u16);
            return;
        }
        let mut now = *flags;
        if !is_last {
            now &= !FIN_PSH;
        }
        if *gone > 0 {
            // The sender says once that it has reduced its window (RFC 3168, section 6.1.2).
            now &= !CWR;
        }
        let behind = usize::from(*urgent).checked_sub(*gone);
        match behind.filter(|behind| *behind > 0 && now & URG != 0) {
            Some(behind) => put(transport, URGENT_AT, behind as u16),
            None => now &= !URG,
        }
        if let Some(octet) = transport.get_mut(FLAGS_AT) {
            *octet = now;
        }
    }

    /// Counts on what the next packet's headers begin with.
    fn advance(&mut self, payload: usize) {
        self.gone += payload;
        let id = self.at.packet + ID_AT;
        if let Some(last) = word(&self.headers, id) {
            put(&mut self.headers, id, last.wrapping_add(1));
        }
        let sequence = self.at.transport + SEQUENCE_AT;
        if self.at.protocol == TCP
            && let Some(field) = self.headers.get_mut(sequence..sequence + 4)
            && let Some(octets) = field.first_chunk_mut()
        {
            let next = u32::from_be_bytes(*octets).wrapping_add(payload as u32);
            *octets = next.to_be_bytes();
        }
    }
}

impl Iterator for Split {
    type Item = Result<Message, &'static Reason>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.as_mut()?;
        let is_last = rest.len() <= self.size;
        let piece = if is_last {
            self.rest.take()?
        } else {
            match rest.split_front(self.size) {
                Ok(piece) => piece,
                Err(_) => {
                    self.rest = None;
                    return Some(Err(&reason::NO_BUFFERS));
                }
            }
        };
        let mut piece = piece;
        let payload = piece.len();
        self.renew(payload, is_last);
        let headers = self.headers.get(..self.at.payload).unwrap_or_default();
        match piece.push_header(headers.len()) {
            Ok(room) if room.len() == headers.len() => room.copy_from_slice(headers),
            _ => {
                self.rest = None;
                return Some(Err(&reason::NO_BUFFERS));
            }
        }
        let partial = TransportChecksum::Partial {
            segment: (piece.len() - self.at.transport) as u32,
            field: sum_at(self.at.protocol) as u16,
        };
        if self.has_sum {
            // There is room: two attributes were taken off.
            let _ = piece.set_attribute(partial);
        }
        self.advance(payload);
        Some(Ok(piece))
    }
}

#[cfg(test)]
mod tests;
