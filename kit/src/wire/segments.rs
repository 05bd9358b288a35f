//! Messages that stand for a run of segments: the payload of several packets behind one set of
//! headers, as devices and systems join what arrives (receive coalescing) and cut what is sent
//! (segmentation offload).
//!
//! [`Segments`] marks such a message. A transport that knows of it takes the whole run as one
//! segment; what a layer carries at most holds for each packet of the run ([`longest`]). Nothing
//! depends on a wire's doing the cutting: the base of all wires does it for those that do not
//! ([`split`]), and so does a layer that treats packets one by one, such as a fault. The payload is
//! never copied for it.

use crate::net::checksum::{Checksum, checksum};
use crate::wire::offload::{self, TransportChecksum};
use alloc::vec::Vec;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, NoBuffers, Sender};
use xk_core::reason::{self, Reason};
use xk_core::{Message, Pool};

/// Packets of a run that comes from where cutting it is left to others, at most: what one frame
/// has another side do.
pub const RUN_PACKETS_MAX: u16 = 64;

/// A message stands for a run of segments with the same headers, but for what counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Octets from the transport's header to the end of the message: the same whatever headers are
    /// in front.
    pub segment: u32,
    /// Octets of the transport's header.
    pub header: u16,
    /// Octets of payload in each segment but the last.
    pub size: u16,
    /// The header in front of the transport's; none above the network layer.
    pub network: NetworkHeader,
}

impl Segments {
    /// Number of packets in the run.
    pub fn packets(self) -> u16 {
        let payload = self.segment.saturating_sub(self.header.into());
        payload.div_ceil(u32::from(self.size).max(1)).max(1) as u16
    }

    /// True if the transport is UDP, whose header is shorter than TCP's.
    fn is_udp(self) -> bool {
        usize::from(self.header) == UDP_OCTETS
    }

    fn sum_at(self) -> usize {
        sum_at(!self.is_udp())
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
        let is_own = usize::from(self.network.octets) <= start && self.network.is_sound();
        sender == Sender::Domain || has_header && is_own && self.packets() <= RUN_PACKETS_MAX
    }

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..4].copy_from_slice(&self.segment.to_be_bytes());
        octets[4..6].copy_from_slice(&self.header.to_be_bytes());
        octets[6..8].copy_from_slice(&self.size.to_be_bytes());
        octets[8..13].copy_from_slice(&self.network.encode());
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, ..] = octets;
        Self {
            segment: u32::from_be_bytes([a, b, c, d]),
            header: u16::from_be_bytes([e, f]),
            size: u16::from_be_bytes([g, h]),
            network: NetworkHeader::decode([i, j, k, l, m]),
        }
    }
}

/// Fields of the header right in front of the transport's that differ from packet to packet of a
/// run. The network layer tells them ([`note_network`]); a place is an offset in that header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkHeader {
    /// Octets of the header; 0 if no layer has said anything.
    pub octets: u8,
    /// The length of the packet.
    pub length: Option<Length>,
    /// The place of a number of two octets that counts packets.
    pub number: Option<u8>,
    /// The place of an Internet checksum over the header.
    pub sum: Option<u8>,
}

/// A length field of two octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// The place.
    pub at: u8,
    /// Whether the header counts as well.
    pub with_header: bool,
}

impl NetworkHeader {
    /// Whether all fields are in the header.
    fn is_sound(self) -> bool {
        let length = self.length.map(|length| length.at);
        let mut fields = [length, self.number, self.sum].into_iter().flatten();
        fields.all(|at| at.checked_add(2).is_some_and(|end| end <= self.octets))
    }

    /// Writes length and checksum for a transport's segment of so many octets.
    fn renew(self, header: &mut [u8], segment: usize) {
        if let Some(Length { at, with_header }) = self.length {
            let front = if with_header { header.len() } else { 0 };
            put(header, at.into(), (front + segment) as u16);
        }
        if let Some(at) = self.sum {
            put(header, at.into(), 0);
            let sum = checksum(header);
            put(header, at.into(), sum);
        }
    }

    /// Counts the packet.
    fn count_on(self, header: &mut [u8]) {
        if let Some(at) = self.number.map(usize::from)
            && let Some(last) = word(header, at)
        {
            put(header, at, last.wrapping_add(1));
        }
    }

    /// Five octets, all 0 for none.
    fn encode(self) -> [u8; 5] {
        let place = |at: Option<u8>| at.map_or(0, |at| at.saturating_add(1));
        let (at, with_header) = self.length.map_or((None, false), |l| (Some(l.at), l.with_header));
        [self.octets, place(at), with_header.into(), place(self.number), place(self.sum)]
    }

    fn decode([octets, at, with_header, number, sum]: [u8; 5]) -> Self {
        let place = |octet: u8| octet.checked_sub(1);
        let length = place(at).map(|at| Length { at, with_header: with_header != 0 });
        Self { octets, length, number: place(number), sum: place(sum) }
    }
}

/// Notes on a run, if the message is one, what the header counts that the network layer is about to
/// put in front. If the transport's header is not what the message begins with, it cannot be cut.
#[inline]
pub fn note_network(message: &mut Message, network: NetworkHeader) {
    if let Some(run) = of(message) {
        let is_behind = message.len() == run.segment as usize;
        let network = if is_behind { network } else { NetworkHeader::default() };
        // It replaces the attribute that is there.
        let _ = message.set_attribute(Segments { network, ..run });
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

/// Offsets in a TCP header (RFC 9293, section 3.1).
const SEQUENCE_AT: usize = 4;
pub(super) const LENGTH_AT: usize = 12;
const TCP_OCTETS: u16 = 20;
const FLAGS_AT: usize = 13;
const TCP_SUM_AT: usize = 16;
const URGENT_AT: usize = 18;
pub(super) const FIN_PSH: u8 = 0x09;
pub(super) const URG: u8 = 0x20;
pub(super) const CWR: u8 = 0x80;
/// Offsets in a UDP header (RFC 768).
const UDP_LENGTH_AT: usize = 4;
const UDP_SUM_AT: usize = 6;
pub(super) const UDP_OCTETS: usize = 8;

/// Octets of the longest headers: a link's, a network layer's and TCP's.
const HEADERS_MAX: usize = 18 + 60 + 60;

pub(super) fn word(octets: &[u8], at: usize) -> Option<u16> {
    let octets = octets.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*octets))
}

pub(super) fn put(octets: &mut [u8], at: usize, value: u16) {
    if let Some(field) = octets.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// The first octets of a message, as many as headers may have.
pub(super) fn front(message: &Message) -> ([u8; HEADERS_MAX], usize) {
    let mut octets = [0; HEADERS_MAX];
    let count = message.copy_to(0, &mut octets);
    (octets, count)
}

/// Position of the checksum in the header of TCP or UDP.
pub(super) fn sum_at(is_tcp: bool) -> usize {
    if is_tcp { TCP_SUM_AT } else { UDP_SUM_AT }
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
    /// Positions of the network layer's header, the transport's header and the payload.
    network: usize,
    transport: usize,
    payload: usize,
    run: Segments,
    /// Flags of the run's header, and its urgent pointer.
    flags: u8,
    urgent: u16,
    /// Octets of payload that went.
    gone: usize,
    sum: Sum,
    rest: Option<Message>,
}

/// Transport checksums of the packets of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    /// UDP without a checksum stays that.
    None,
    /// Left open.
    Open(Pseudo),
    /// Complete, as that of the run was: the sum of what is damaged stays wrong.
    Complete(Pseudo),
}

/// The sum over the pseudo-header of a transport, without the length.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pseudo(Checksum);

impl Pseudo {
    /// Takes the length `segment` out of the folded sum over a pseudo-header with it.
    fn of(folded: u16, segment: usize) -> Self {
        let mut length = Checksum::new();
        length.add_u32(segment as u32);
        let mut sum = Checksum::new();
        sum.add_u16(folded);
        // To take away is to add the complement (RFC 1624, section 3).
        sum.add_u16(length.finish());
        Self(sum)
    }

    fn with(self, segment: usize) -> Checksum {
        let mut sum = self.0;
        sum.add_u32(segment as u32);
        sum
    }
}

/// Cuts a message that stands for a run of segments into its packets, each a message with headers
/// of its own: lengths, numbers and flags as if they had been sent singly, payload by reference. A
/// checksum that was left open, or was found right, is left open in each
/// ([`TransportChecksum::Partial`]); one that was complete is complete.
///
/// # Errors
/// Why it cannot be cut, for counting.
pub fn split(mut message: Message) -> Result<Split, &'static Reason> {
    let run = of(&message).filter(|run| run.size > 0).ok_or(&reason::MALFORMED)?;
    let (headers, count) = front(&message);
    let octets = headers.get(..count).unwrap_or_default();
    let segment = run.segment as usize;
    let place = |transport: usize| {
        let network = transport.checked_sub(run.network.octets.into())?;
        // A layer below must have said what a network layer in front counts.
        let is_told = run.network.octets > 0 || transport == 0;
        let payload = transport + usize::from(run.header);
        let is_long = run.is_udp() || run.header >= TCP_OCTETS;
        let fits = is_long && payload <= octets.len() && run.network.is_sound();
        (is_told && fits).then_some((network, transport, payload))
    };
    let transport = message.len().checked_sub(segment);
    let (network, transport, payload) = transport.and_then(place).ok_or(&reason::MALFORMED)?;
    message.remove_attribute::<Segments>();
    let known = message.remove_attribute::<TransportChecksum>();
    let field = word(octets, transport + run.sum_at()).unwrap_or(0);
    let sum = match known {
        Some(TransportChecksum::Partial { .. }) => Sum::Open(Pseudo::of(field, segment)),
        None if run.is_udp() && field == 0 => Sum::None,
        known => {
            // With that over the pseudo-header, this is all ones.
            let rest = offload::with_behind(Checksum::new(), &message, transport);
            let pseudo = Pseudo::of(rest.finish(), segment);
            if known.is_some() { Sum::Open(pseudo) } else { Sum::Complete(pseudo) }
        }
    };
    if !message.strip(payload) {
        return Err(&reason::TRUNCATED);
    }
    let flags = octets.get(transport + FLAGS_AT).copied().filter(|_| !run.is_udp());
    let urgent = word(octets, transport + URGENT_AT).filter(|_| !run.is_udp());
    Ok(Split {
        headers,
        network,
        transport,
        payload,
        run,
        flags: flags.unwrap_or(0),
        urgent: urgent.unwrap_or(0),
        gone: 0,
        sum,
        rest: Some(message),
    })
}

impl Split {
    /// Writes what this packet's headers have of its own.
    fn renew(&mut self, piece: &Message, is_last: bool) {
        let segment = self.payload - self.transport + piece.len();
        if let Some(header) = self.headers.get_mut(self.network..self.transport) {
            self.run.network.renew(header, segment);
        }
        let Some(transport) = self.headers.get_mut(self.transport..self.payload) else {
            return;
        };
        if self.run.is_udp() {
            put(transport, UDP_LENGTH_AT, segment as u16);
        } else {
            let mut now = self.flags;
            if !is_last {
                now &= !FIN_PSH;
            }
            if self.gone > 0 {
                // The sender says once that it has reduced its window (RFC 3168, section 6.1.2).
                now &= !CWR;
            }
            let behind = usize::from(self.urgent).checked_sub(self.gone);
            match behind.filter(|behind| *behind > 0 && now & URG != 0) {
                Some(behind) => put(transport, URGENT_AT, behind as u16),
                None => now &= !URG,
            }
            if let Some(octet) = transport.get_mut(FLAGS_AT) {
                *octet = now;
            }
        }
        let at = self.run.sum_at();
        match self.sum {
            Sum::None => {}
            Sum::Open(pseudo) => put(transport, at, !pseudo.with(segment).finish()),
            Sum::Complete(pseudo) => {
                put(transport, at, 0);
                let mut sum = pseudo.with(segment);
                sum.add(transport);
                let sum = offload::with_behind(sum, piece, 0).finish();
                // RFC 768: zero says that there is no checksum.
                put(transport, at, if self.run.is_udp() && sum == 0 { 0xffff } else { sum });
            }
        }
    }

    /// Counts on what the next packet's headers begin with.
    fn advance(&mut self, payload: usize) {
        self.gone += payload;
        if let Some(header) = self.headers.get_mut(self.network..self.transport) {
            self.run.network.count_on(header);
        }
        let sequence = self.transport + SEQUENCE_AT;
        if !self.run.is_udp()
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
        let size = usize::from(self.run.size);
        let rest = self.rest.as_mut()?;
        let is_last = rest.len() <= size;
        let mut piece = if is_last {
            self.rest.take()?
        } else {
            match rest.split_front(size) {
                Ok(piece) => piece,
                Err(_) => {
                    self.rest = None;
                    return Some(Err(&reason::NO_BUFFERS));
                }
            }
        };
        let payload = piece.len();
        self.renew(&piece, is_last);
        let headers = self.headers.get(..self.payload).unwrap_or_default();
        match piece.push_header(headers.len()) {
            Ok(room) if room.len() == headers.len() => room.copy_from_slice(headers),
            _ => {
                self.rest = None;
                return Some(Err(&reason::NO_BUFFERS));
            }
        }
        if let Sum::Open(_) = self.sum {
            let partial = TransportChecksum::Partial {
                segment: (piece.len() - self.transport) as u32,
                field: self.run.sum_at() as u16,
            };
            // There is room: two attributes were taken off.
            let _ = piece.set_attribute(partial);
        }
        self.advance(payload);
        Some(Ok(piece))
    }
}

#[cfg(test)]
mod tests;
