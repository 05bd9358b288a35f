//! Segments on their way down: header, checksum, and answers of no connection (RFC 9293,
//! section 3.10.7.1).

use crate::connection::Out;
use crate::origin::{add_octets, sent};
use crate::seq::Seq;
use crate::wire::{CHECKSUM_AT, FLAGS_AT, Flags, HEADER_LEN_MAX, Header, PLAIN_LEN, SEQ_AT};
use xk_core::message::NoBuffers;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::Checksum;
use xk_kit::net::attribute::{Arrived, Ecn, LinkCast};
use xk_kit::net::ports::Origin;
use xk_kit::wire::offload::TransportChecksum;
use xk_kit::wire::segments::Segments;

/// Room for the headers of this layer and those below, in octets.
pub(crate) const HEADROOM: usize = 128;

/// The flags that lie in an octet of their own; the others are the same in all segments that one
/// header goes in front of.
const LOW: u16 = 0xff;

/// Facts that a segment needs besides its content.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    /// The sum over addresses and protocol number.
    pub(crate) pseudo: Checksum,
    /// The layers below complete checksums.
    pub(crate) leaves_sums: bool,
}

/// A header ready to go in front of segments that differ in their numbers, flags and data alone.
pub(crate) struct Sealer {
    how: Seal,
    octets: [u8; HEADER_LEN_MAX],
    length: usize,
    /// Over the header without number and flags.
    sum: Checksum,
}

impl Sealer {
    #[inline]
    pub(crate) fn new(how: Seal, header: &Header) -> Self {
        let (octets, sum) = ([0; HEADER_LEN_MAX], Checksum::new());
        let mut sealer = Self { how, octets, length: 0, sum };
        sealer.length = header.emit(&mut sealer.octets);
        sealer.octets[SEQ_AT..SEQ_AT + 4].fill(0);
        sealer.octets[FLAGS_AT] = 0;
        match sealer.octets.first_chunk::<PLAIN_LEN>() {
            Some(plain) if sealer.length == PLAIN_LEN => sealer.sum.add(plain),
            _ => sealer.sum.add(sealer.octets.get(..sealer.length).unwrap_or_default()),
        }
        sealer
    }

    /// Puts the header in front of a segment's data, with its checksum.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        seq: Seq,
        flags: Flags,
        message: &mut Message,
    ) -> Result<(), NoBuffers> {
        let segment = self.length + message.len();
        let mut sum = self.how.pseudo;
        let is_left = self.how.leaves_sums && message.len() >= Checksum::LONG && {
            let partial =
                TransportChecksum::Partial { segment: segment as u32, field: CHECKSUM_AT as u16 };
            message.set_attribute(partial).is_ok()
        };
        // The data come last: there may be an odd number of them.
        sum.add_u32(segment as u32);
        let checksum = if is_left {
            !sum.finish()
        } else {
            sum.join(self.sum);
            sum.add_u32(seq.0);
            sum.add_u16(flags.0 & LOW);
            add_octets(&mut sum, message);
            sum.finish()
        };
        self.octets[SEQ_AT..SEQ_AT + 4].copy_from_slice(&seq.0.to_be_bytes());
        self.octets[FLAGS_AT] = flags.0 as u8;
        self.octets[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        match self.octets.first_chunk::<PLAIN_LEN>() {
            // Nearly all: a copy of a length that is known takes no call.
            Some(plain) if self.length == PLAIN_LEN => message.push_array(plain),
            _ => {
                let header = self.octets.get(..self.length).unwrap_or_default();
                message.push_header(header.len())?.copy_from_slice(header);
                Ok(())
            }
        }
    }
}

/// Puts a header in front of `payload`, with its checksum.
#[inline]
pub(crate) fn seal(
    cx: &Kernel,
    how: Seal,
    header: &Header,
    payload: Option<Message>,
) -> Result<Message, NoBuffers> {
    let mut message = match payload {
        Some(payload) => payload,
        None => cx.pool().empty(HEADROOM)?,
    };
    Sealer::new(how, header).seal(header.seq, header.flags, &mut message)?;
    Ok(message)
}

/// Seals what a connection gives, be it a run of segments that a layer below cuts, with
/// what a router may do to it.
#[inline]
pub(crate) fn seal_out(cx: &Kernel, how: Seal, out: Out) -> Result<Message, NoBuffers> {
    let data = out.payload.as_ref().map_or(0, Message::len);
    let mut message = seal(cx, how, &out.header, out.payload)?;
    if out.run > 0 {
        let segment = message.len();
        let run = Segments {
            segment: segment as u32,
            header: (segment - data) as u16,
            size: out.run,
            ..Segments::default()
        };
        // Without it nothing this long could go: it is lost, and sent again in single segments.
        message.set_attribute(run).map_err(|_| NoBuffers)?;
    }
    mark(&mut message, out.markable);
    Ok(message)
}

/// Says whether a router may mark the segment.
#[inline]
pub(crate) fn mark(message: &mut Message, is_markable: bool) {
    if is_markable {
        // There are few attributes on a fresh segment: this one finds room.
        let _ = message.set_attribute(Ecn::CapableZero);
    }
}

/// Removes the attributes with which octets came: they say nothing about how the octets go.
#[inline]
pub(crate) fn forget_origin(message: &mut Message) {
    if message.has_attributes() {
        message.remove_attribute::<TransportChecksum>();
        message.remove_attribute::<LinkCast>();
        message.remove_attribute::<Ecn>();
        message.remove_attribute::<Arrived>();
        message.remove_attribute::<Segments>();
    }
}

/// Sends a segment without data through a session below that no connection stands on; false if it
/// could not go.
pub(crate) fn send_alone(
    cx: &Kernel,
    lower: &SessionRef,
    origin: &Origin,
    header: &Header,
) -> bool {
    let how = Seal { pseudo: sent(origin), leaves_sums: false };
    // The pool has counted what it could not give, the layer below what it did not take.
    seal(cx, how, header, None).is_ok_and(|segment| lower.push(cx, segment).is_ok())
}
