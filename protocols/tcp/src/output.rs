//! Segments on their way down: header, checksum, and those that answer for nobody (RFC 9293, section 3.10.7.1).

use crate::origin::sent;
use crate::seq::Seq;
use crate::wire::{CHECKSUM_AT, Flags, HEADER_LEN_MAX, Header};
use xk_core::message::NoBuffers;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::Checksum;
use xk_kit::checksum::LONG;
use xk_kit::offload::TransportChecksum;
use xk_kit::ports::Origin;
use xk_kit::segments::Segments;

/// Room for the headers of this layer and those below, in octets.
pub(crate) const HEADROOM: usize = 128;

/// What a segment needs besides its content.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    /// The sum over addresses and protocol number.
    pub(crate) pseudo: Checksum,
    /// The layers below complete checksums.
    pub(crate) leaves_sums: bool,
    /// They cut it into segments of so many octets of data, unless this is 0.
    pub(crate) run: u16,
}

/// Puts a header in front of `payload`, with its checksum.
#[inline]
pub(crate) fn seal(
    cx: &Kernel,
    seal: Seal,
    header: &Header,
    payload: Option<Message>,
) -> Result<Message, NoBuffers> {
    let mut octets = [0; HEADER_LEN_MAX];
    let length = header.emit(&mut octets);
    let mut message = match payload {
        Some(payload) => payload,
        None => cx.pool().empty(HEADROOM)?,
    };
    let segment = length + message.len();
    let mut sum = seal.pseudo;
    sum.add_u32(segment as u32);
    let is_left = seal.leaves_sums && message.len() >= LONG && {
        let partial = TransportChecksum::Partial {
            segment: segment as u32,
            field: CHECKSUM_AT as u16,
        };
        message.set_attribute(partial).is_ok()
    };
    let checksum = if is_left {
        !sum.finish()
    } else {
        sum.add(octets.get(..length).unwrap_or_default());
        for slice in message.slices() {
            sum.add(slice.octets);
        }
        sum.finish()
    };
    let [a, b] = checksum.to_be_bytes();
    (octets[CHECKSUM_AT], octets[CHECKSUM_AT + 1]) = (a, b);
    if seal.run > 0 {
        let run = Segments {
            segment: segment as u32,
            header: length as u16,
            size: seal.run,
        };
        // Without it nothing this long could go: it is lost, and sent again in single segments.
        message.set_attribute(run).map_err(|_| NoBuffers)?;
    }
    let room = message.push_header(length)?;
    if let Some(octets) = octets.get(..room.len()) {
        room.copy_from_slice(octets);
    }
    Ok(message)
}

/// The reset that answers a segment which belongs to no connection; `None` if that is a reset itself.
pub(crate) fn reset_for(header: &Header, octets: usize) -> Option<Header> {
    if header.flags.has(Flags::RST) {
        return None;
    }
    let reset = if header.flags.has(Flags::ACK) {
        Header::new(header.dst, header.src, header.ack, Seq(0), Flags::RST)
    } else {
        let ack = header.seq + header.span(octets);
        Header::new(header.dst, header.src, Seq(0), ack, Flags::RST | Flags::ACK)
    };
    Some(reset)
}

/// Sends a segment without data through a session below that no connection stands on; false if it could not go.
pub(crate) fn send_alone(
    cx: &Kernel,
    lower: &SessionRef,
    origin: &Origin,
    header: &Header,
) -> bool {
    let how = Seal {
        pseudo: sent(origin),
        leaves_sums: false,
        run: 0,
    };
    // The pool has counted what it could not give, the layer below what it did not take.
    seal(cx, how, header, None).is_ok_and(|segment| lower.push(cx, segment).is_ok())
}
