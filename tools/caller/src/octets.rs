//! Requests to the procedures, and the replies that they must give.

use core::time::Duration;
use xk_core::{Kernel, Message};
use xk_kit::asks::{self, HEADROOM, pattern};

/// Octets of an XDR number, and what the octets of an `opaque<>` are filled up to a multiple of
/// (RFC 4506, sections 3 and 4.2).
const UNIT: usize = 4;
/// Kind of a procedure of `procedures`, as far as requests and replies show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Neither takes nor replies anything.
    Null,
    /// Replies the request.
    Echo,
    /// Takes octets, replies nothing.
    Sink,
    /// Takes a number, replies so many octets.
    Source,
    /// Takes a number of milliseconds, replies nothing.
    Sleep,
    /// Another server's: takes octets and replies anything.
    Other,
}

impl Kind {
    /// By the procedure's number; one without a number is taken for an echo.
    pub(crate) fn of(number: Option<u32>) -> Self {
        match number {
            Some(0) => Kind::Null,
            None | Some(1 | 4) => Kind::Echo,
            Some(2) => Kind::Sink,
            Some(3) => Kind::Source,
            Some(5) => Kind::Sleep,
            Some(_) => Kind::Other,
        }
    }
}

/// Whether a request of `size` octets is an XDR `opaque<>` (RFC 4506, section 4.10).
fn is_opaque(size: usize) -> bool {
    size >= UNIT && size.is_multiple_of(UNIT) && u32::try_from(size).is_ok()
}

/// The octet at `at` of a request of `size` octets.
fn octet(call: u64, size: usize, at: usize) -> u8 {
    if at < UNIT && is_opaque(size) {
        let length = (size - UNIT) as u32;
        return length.to_be_bytes()[at];
    }
    pattern(call, at)
}

/// The octet at `at` of what source replies, asked for `len` octets.
fn source_octet(len: usize, at: usize) -> u8 {
    match at.checked_sub(UNIT) {
        None => (len as u32).to_be_bytes()[at],
        Some(at) if at < len => at as u8,
        Some(_) => 0,
    }
}

/// The request of a call.
pub(crate) fn request(
    cx: &Kernel,
    kind: Kind,
    call: u64,
    size: usize,
    time: Duration,
) -> Option<Message> {
    match kind {
        Kind::Null => cx.pool().empty(HEADROOM).ok(),
        Kind::Source => number(cx, size as u32),
        Kind::Sleep => number(cx, u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
        Kind::Echo | Kind::Sink | Kind::Other => {
            asks::message(cx, size, |at| octet(call, size, at))
        }
    }
}

fn number(cx: &Kernel, number: u32) -> Option<Message> {
    cx.pool().copy_from(HEADROOM, &number.to_be_bytes()).ok()
}

/// Whether this is what the procedure replies to that request.
pub(crate) fn is_right(kind: Kind, call: u64, size: usize, reply: &Message) -> bool {
    match kind {
        Kind::Null | Kind::Sink | Kind::Sleep => reply.is_empty(),
        Kind::Other => true,
        Kind::Echo => {
            let mut all = reply.octets().enumerate();
            reply.len() == size && all.all(|(at, found)| found == octet(call, size, at))
        }
        Kind::Source => {
            let mut all = reply.octets().enumerate();
            reply.len() == (UNIT + size).next_multiple_of(UNIT)
                && all.all(|(at, found)| found == source_octet(size, at))
        }
    }
}
