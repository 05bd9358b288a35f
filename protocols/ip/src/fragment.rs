//! Cutting a datagram into fragments (RFC 791, section 3.2), without a copy of its payload.

use crate::wire::{Fragment, HEADER_LEN, HEADER_LEN_MAX, Header, OPTIONS_LEN_MAX, Options};
use xk_core::object::PushError;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::wire::offload;
use xk_kit::wire::segments::Segments;

/// Plan for cutting a packet.
pub(crate) struct Cut<'a> {
    /// The header of the whole; if that is a fragment itself, its place counts.
    pub(crate) header: Header,
    /// The options of the first piece; later ones carry those that are to be copied.
    pub(crate) first: Options<'a>,
    /// Octets of the largest piece, header included.
    pub(crate) mtu: usize,
}

/// Cuts the payload and sends the pieces in order. Answers how many went; an error ends it.
pub(crate) fn send(
    cx: &Kernel,
    lower: &SessionRef,
    cut: Cut<'_>,
    mut payload: Message,
) -> (u64, Result<(), PushError>) {
    let mut sent = 0;
    // No layer further down sees the whole segment, or knows where a run's segments end.
    payload.remove_attribute::<Segments>();
    if offload::finish_checksum(cx.pool(), &mut payload).is_err() {
        return (sent, Err(PushError::NoBuffers));
    }
    let mut copied = [0; OPTIONS_LEN_MAX];
    let copied = cut.first.copied(&mut copied);
    let (start, tail_follows) = (cut.header.fragment.offset(), cut.header.fragment.more());
    let mut offset = start;
    loop {
        let options = if offset == start { cut.first } else { copied };
        let room = cut.mtu.saturating_sub(HEADER_LEN + options.octets().len());
        let last = payload.len() <= room;
        let piece = if last {
            None
        } else {
            let len = room & !7;
            if len == 0 {
                return (sent, Err(PushError::TooBig));
            }
            match payload.split_front(len) {
                Ok(piece) => Some(piece),
                Err(_) => return (sent, Err(PushError::NoBuffers)),
            }
        };
        let more = piece.is_some() || tail_follows;
        let Some(place) = Fragment::new(offset, more) else {
            return (sent, Err(PushError::TooBig));
        };
        let (piece, rest) = match piece {
            Some(piece) => (piece, Some(payload)),
            None => (payload, None),
        };
        offset += piece.len();
        if let Err(error) = send_one(cx, lower, cut.header, place, options, piece) {
            return (sent, Err(error));
        }
        sent += 1;
        match rest {
            Some(rest) => payload = rest,
            None => return (sent, Ok(())),
        }
    }
}

/// Puts the header in front of one piece and sends it.
fn send_one(
    cx: &Kernel,
    lower: &SessionRef,
    mut header: Header,
    place: Fragment,
    options: Options<'_>,
    mut piece: Message,
) -> Result<(), PushError> {
    header.fragment = place;
    put_header(header, options, &mut piece)?;
    lower.push(cx, piece)
}

/// Puts a header with options in front of a packet.
pub(crate) fn put_header(
    mut header: Header,
    options: Options<'_>,
    piece: &mut Message,
) -> Result<(), PushError> {
    let mut octets = [0; HEADER_LEN_MAX];
    let too_big = |_| PushError::TooBig;
    header.set_lengths(options, piece.len()).map_err(too_big)?;
    let octets = header.emit_with(options, &mut octets).map_err(too_big)?;
    piece.push_header(octets.len()).map_err(|_| PushError::NoBuffers)?.copy_from_slice(octets);
    Ok(())
}
