//! Transport checksums that another computes or has verified: the attribute, the question,
//! and the completion.
//!
//! A wire whose other end is memory, or a device that sums by itself, says so when asked
//! ([`Offloads`]). A transport then leaves the sum over its pseudo-header in the checksum's field
//! and says by [`TransportChecksum::Partial`] where the sum goes. Nothing depends on the answer
//! being right for every message: a wire that does not do it completes what comes to it all the
//! same ([`complete`]), so a packet forwarded from one that does to one that does not is whole, and
//! so does a layer that cuts a message ([`complete`] before fragmenting) or damages it
//! ([`finish_checksum`]).

use crate::Checksum;
use crate::wire::frames;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, NoBuffers, Sender};
use xk_core::object::ProtocolId;
use xk_core::question;
use xk_core::{Kernel, Message, Pool, ProtocolRef, SessionRef};

/// State of a message's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChecksum {
    /// The checksum of an arrival was found right, by a device or because the message never left
    /// this machine's memory.
    Verified,
    /// The field holds the sum over the pseudo-header, not complemented, and without the
    /// rest.
    Partial {
        /// Octets from the first one to be summed to the end of the message: the same whatever
        /// headers are in front.
        segment: u32,
        /// Position of the field of two octets in the segment.
        field: u16,
    },
}

impl Attribute for TransportChecksum {
    const KEY: u32 = xk_core::name_key("transport-checksum");
    const CROSSES: Crossing = Crossing::BOTH;

    fn fits(self, message: &Message, sender: Sender) -> bool {
        match self {
            // What was found right was found by a side that is believed.
            Self::Verified => sender == Sender::Domain,
            Self::Partial { segment, field } => place_of(message, segment, field).is_some(),
        }
    }

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        if let TransportChecksum::Partial { segment, field } = self {
            octets[0] = 1;
            octets[2..4].copy_from_slice(&field.to_be_bytes());
            octets[4..8].copy_from_slice(&segment.to_be_bytes());
        }
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let [kind, _, a, b, c, d, e, f, ..] = octets;
        if kind == 0 {
            return TransportChecksum::Verified;
        }
        TransportChecksum::Partial {
            segment: u32::from_be_bytes([c, d, e, f]),
            field: u16::from_be_bytes([a, b]),
        }
    }
}

impl TransportChecksum {
    /// Notes on a message, the transport's header of so many octets not yet in front, that its
    /// checksum is completed below; its place in the header is at `field`. False if there is no
    /// room for the note.
    pub fn leave(message: &mut Message, header: usize, field: u16) -> bool {
        let segment = (header + message.len()) as u32;
        message.set_attribute(Self::Partial { segment, field }).is_ok()
    }

    /// Takes off what is known of an arriving message's checksum; true if that needs no look.
    pub fn take(message: &mut Message) -> bool {
        message.has_attributes() && message.remove_attribute::<Self>().is_some()
    }
}

/// The place of a sum in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumField {
    /// The first octet to be summed; all behind it are.
    pub start: usize,
    /// Offset of the field, from `start` on.
    pub field: usize,
}

/// Place of a partial checksum; `None` if there is none, or none that fits the message.
#[must_use]
pub fn place(message: &Message) -> Option<SumField> {
    let TransportChecksum::Partial { segment, field } = message.attribute()? else {
        return None;
    };
    place_of(message, segment, field)
}

fn place_of(message: &Message, segment: u32, field: u16) -> Option<SumField> {
    let (segment, field) = (usize::try_from(segment).ok()?, usize::from(field));
    let start = message.len().checked_sub(segment)?;
    (field + 2 <= segment).then_some(SumField { start, field })
}

/// The checksum that completes a partial one: what a device would write into the field.
#[must_use]
pub fn sum(message: &Message, place: SumField) -> u16 {
    match with_behind(Checksum::new(), message, place.start).finish() {
        // RFC 768: zero says that there is none. In TCP's header it is what the sum comes to (RFC
        // 1624, section 3).
        0 if place.field == UDP_FIELD => 0xffff,
        sum => sum,
    }
}

/// A sum, with the octets of a message behind the first `front`.
#[inline]
#[must_use]
pub fn with_behind(mut sum: Checksum, message: &Message, mut front: usize) -> Checksum {
    if let Some(octets) = message.single_slice().and_then(|octets| octets.get(front..)) {
        sum.add(octets);
        return sum;
    }
    for slice in message.slices() {
        let skipped = front.min(slice.octets.len());
        front -= skipped;
        sum.add(&slice.octets[skipped..]);
    }
    sum
}

/// Position of the checksum in UDP's header, in octets (RFC 768); in TCP's it is 16.
const UDP_FIELD: usize = 6;

/// Takes the attribute off and, if the checksum is partial, completes it, without touching octets
/// that another message sees.
///
/// # Errors
/// [`NoBuffers`], counted at the pool; the message is not fit for sending then.
pub fn complete(pool: &Pool, message: &mut Message) -> Result<(), NoBuffers> {
    let place = place(message);
    message.remove_attribute::<TransportChecksum>();
    let Some(place) = place else { return Ok(()) };
    let octets = sum(message, place).to_be_bytes();
    let at = place.start + place.field;
    if message.copy_in(at, &octets) == octets.len() {
        return Ok(());
    }
    // Another message sees the buffer: two octets of our own take the field's place.
    let field = pool.copy_from(0, &octets)?;
    let split = |message: &mut Message, at| message.split_off(at).map_err(|_| NoBuffers);
    let mut rest = split(message, at)?;
    let behind = split(&mut rest, octets.len())?;
    message.join(field);
    message.join(behind);
    Ok(())
}

/// Completes the checksum of a message that arrives where it cannot be trusted further: afterwards
/// a receiver verifies it.
#[inline]
pub fn finish_checksum(pool: &Pool, message: &mut Message) -> Result<(), NoBuffers> {
    if message.has_attributes() {
        complete(pool, message)?;
    }
    Ok(())
}

/// Notes on a frame that arrived what its sender left open, as the device below tells it: the sum
/// over the octets from `start` on belongs at `field` behind it. A frame whose end is not its IPv4
/// packet's (padded, tagged, or something else) is completed at once, since layers above cut the
/// end off.
///
/// # Errors
/// [`NoBuffers`], counted at the pool.
pub fn note_partial(
    pool: &Pool,
    frame: &mut Message,
    (start, field): (usize, usize),
) -> Result<(), NoBuffers> {
    let (Some(segment), Ok(field)) = (frame.len().checked_sub(start), u16::try_from(field)) else {
        return Ok(());
    };
    let segment = u32::try_from(segment).unwrap_or(u32::MAX);
    let partial = TransportChecksum::Partial { segment, field };
    let noted = frame.set_attribute(partial).is_ok();
    if noted && frames::ends_with_packet(frame) {
        return Ok(());
    }
    complete(pool, frame)
}

/// Offloads on the way down for a transport. Asked of a protocol or session.
///
/// A layer that knows nothing of the question forwards it, as it does with every other, and might
/// change messages all the same: so the question names the layer that it is put to, and one that
/// finds another name there answers that nothing is done.
#[derive(Clone, Copy, Debug)]
pub struct Offloads {
    to: ProtocolId,
    /// Partial checksums are completed, or carried to a receiver that knows.
    pub tx_checksum: bool,
    /// Runs of TCP segments ([`crate::wire::segments`]) with a partial checksum are cut by the
    /// wire's device, or carried to a receiver that knows.
    pub tx_segments: bool,
}

question!(Offloads { to, tx_checksum, tx_segments }, "offloads", Fact);

impl Offloads {
    fn none(to: ProtocolId) -> Self {
        Self { to, tx_checksum: false, tx_segments: false }
    }

    /// Offloads of `lower` and the layers below it.
    #[must_use]
    pub fn of_protocol(cx: &Kernel, lower: &ProtocolRef) -> Self {
        let question = Self::none(lower.id());
        lower.ask(cx, question).unwrap_or(question)
    }

    /// Offloads of the session `lower` and the layers below it.
    #[must_use]
    pub fn of_session(cx: &Kernel, lower: &SessionRef) -> Self {
        let question = Self::none(lower.head().protocol());
        lower.ask(cx, question).unwrap_or(question)
    }

    /// Answers for the protocol `this`, with what `find` finds if it is the one that is asked.
    pub fn answer(&mut self, this: ProtocolId, find: impl FnOnce() -> Self) {
        if self.to != this {
            *self = Self::none(self.to);
            return;
        }
        let found = find();
        self.tx_checksum = found.tx_checksum;
        self.tx_segments = found.tx_segments;
    }

    /// Answers for the wire `this`.
    pub fn answer_wire(&mut self, this: ProtocolId, tx_checksum: bool, tx_segments: bool) {
        let is_asked = self.to == this;
        self.tx_checksum = is_asked && tx_checksum;
        self.tx_segments = is_asked && tx_checksum && tx_segments;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use xk_core::message::PoolConfig;

    /// A transport header of eight octets with the field at 6, in front of `payload`, behind
    /// `front` octets.
    fn packet(front: usize, payload: &[u8], pseudo: u16) -> Vec<u8> {
        let mut octets = alloc::vec![0xaa; front];
        octets.extend([0x13, 0x88, 0, 7]);
        octets.extend((8 + payload.len() as u16).to_be_bytes());
        octets.extend(pseudo.to_be_bytes());
        octets.extend(payload);
        octets
    }

    fn expected(front: usize, payload: &[u8], pseudo: u16) -> Vec<u8> {
        let mut octets = packet(front, payload, 0);
        let mut sum = Checksum::new();
        sum.add_u16(pseudo);
        sum.add(&octets[front..]);
        let sum = match sum.finish() {
            0 => 0xffff,
            sum => sum,
        };
        octets[front + 6..front + 8].copy_from_slice(&sum.to_be_bytes());
        octets
    }

    #[test]
    fn a_sum_of_zero_is_zero_in_tcp_and_all_ones_in_udp() {
        let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        for (field, sum_sent) in [(UDP_FIELD, 0xffff), (16, 0)] {
            let mut octets = alloc::vec![0; 20];
            octets[..2].copy_from_slice(&[0xff, 0xff]);
            let message = pool.copy_from(0, &octets).unwrap();
            assert_eq!(sum(&message, SumField { start: 0, field }), sum_sent);
        }
    }

    fn sliced(pool: &Pool, octets: &[u8], cuts: &[usize]) -> Message {
        let mut message = pool.empty(0).unwrap();
        let mut at = 0;
        for cut in cuts.iter().copied().chain([octets.len()]) {
            let end = cut.clamp(at, octets.len());
            message.join(pool.copy_from(0, &octets[at..end]).unwrap());
            at = end;
        }
        message
    }

    proptest! {
        #[test]
        fn completing_gives_the_software_checksum(
            front in 0..60_usize,
            payload in proptest::collection::vec(any::<u8>(), 0..600),
            pseudo in any::<u16>(),
            mut cuts in proptest::collection::vec(0..660_usize, 0..4),
            shared in any::<bool>(),
        ) {
            let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
            cuts.sort_unstable();
            let octets = packet(front, &payload, pseudo);
            let mut message = sliced(&pool, &octets, &cuts);
            let segment = (octets.len() - front) as u32;
            let partial = TransportChecksum::Partial { segment, field: 6 };
            message.set_attribute(partial).unwrap();
            prop_assert_eq!(TransportChecksum::decode(partial.encode()), partial);
            let kept = shared.then(|| message.try_clone().unwrap());
            complete(&pool, &mut message).unwrap();
            prop_assert!(message.eq_octets(&expected(front, &payload, pseudo)));
            prop_assert!(!message.has_attributes());
            if let Some(kept) = kept {
                prop_assert!(kept.eq_octets(&octets), "a kept copy is left alone");
            }
        }

        #[test]
        fn places_that_do_not_fit_are_ignored(
            segment in any::<u32>(),
            field in any::<u16>(),
            octets in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
            let mut message = pool.copy_from(0, &octets).unwrap();
            message.set_attribute(TransportChecksum::Partial { segment, field }).unwrap();
            complete(&pool, &mut message).unwrap();
            prop_assert_eq!(message.len(), octets.len());
        }
    }

    #[test]
    fn only_plain_frames_stay_open() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let payload = [7; 100];
        let mut octets = packet(34, &payload, 0x1234);
        octets[12..14].copy_from_slice(&[8, 0]);
        octets[16..18].copy_from_slice(&128_u16.to_be_bytes());
        let mut frame = pool.copy_from(0, &octets).unwrap();
        note_partial(&pool, &mut frame, (34, 6)).unwrap();
        assert_eq!(place(&frame), Some(SumField { start: 34, field: 6 }));
        assert!(frame.eq_octets(&octets));
        octets.extend([0; 4]);
        let mut padded = pool.copy_from(0, &octets).unwrap();
        note_partial(&pool, &mut padded, (34, 6)).unwrap();
        assert!(!padded.has_attributes());
        let mut field = [0; 2];
        padded.copy_to(40, &mut field);
        assert_eq!(field, expected(34, &payload, 0x1234)[40..42]);
    }
}
