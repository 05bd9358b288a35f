//! The six procedures.

use crate::number;
use crate::protocol::Procedures;
use core::time::Duration;
use xk_core::object::{CallCause, Refused, Rejection};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Kernel, Message, ProtocolRef, Reason, reason};
use xk_kit::net::attribute::LinkCast;
use xk_kit::rpc::call::{BAD_ARGUMENTS, NO_PROCEDURE, SYSTEM_ERROR};

/// Room for the headers below in front of a reply, in octets.
const HEADROOM: usize = 128;
/// Octets of an XDR number, and what the octets of an `opaque<>` are filled up to a multiple of
/// (RFC 4506, sections 3 and 4.2).
const UNIT: usize = 4;

/// The only argument of a request, an XDR `unsigned int` (RFC 4506, section 4.2).
fn argument(request: &Message) -> Result<u32, &'static Reason> {
    let mut octets = [0; UNIT];
    if request.len() != UNIT || request.copy_to(0, &mut octets) != UNIT {
        return Err(&BAD_ARGUMENTS);
    }
    Ok(u32::from_be_bytes(octets))
}

/// An empty reply: the request's own descriptor, with no octets.
fn empty(mut request: Message) -> Message {
    request.truncate(0);
    request
}

/// The request as its own reply. How it came says nothing about how it goes.
fn echoed(mut request: Message) -> Message {
    if request.has_attributes() {
        request.remove_attribute::<LinkCast>();
    }
    request
}

impl Procedures {
    /// Executes a request; it may block.
    pub(crate) fn execute(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        number: u32,
        request: Message,
    ) -> Result<Message, Refused> {
        match number {
            number::NULL | number::SINK => Ok(empty(request)),
            number::ECHO => Ok(echoed(request)),
            number::SOURCE => match self.source(cx, &request) {
                Ok(reply) => Ok(reply),
                Err(why) => Err(this.refuse(request, why)),
            },
            number::RELAY => self.relay(cx, this, request),
            number::SLEEP => match self.sleep(cx, &request) {
                Ok(()) => Ok(empty(request)),
                Err(why) => Err(this.refuse(request, why)),
            },
            _ => Err(this.refuse(request, &NO_PROCEDURE)),
        }
    }

    /// An XDR `opaque<>` (RFC 4506, section 4.10): its length, then octets that count up, then
    /// zeros to a whole unit.
    fn source(&self, cx: &Kernel, request: &Message) -> Result<Message, &'static Reason> {
        let wanted = argument(request)?;
        let len = wanted as usize;
        if len > self.settings.source_max {
            return Err(&BAD_ARGUMENTS);
        }
        let end = UNIT + len;
        let size = end.next_multiple_of(UNIT);
        let mut reply = cx.pool().alloc(HEADROOM, size).map_err(|_| &reason::NO_BUFFERS)?;
        reply.copy_in(0, &wanted.to_be_bytes());
        let counting: [u8; 256] = core::array::from_fn(|at| at as u8);
        let mut at = UNIT;
        while at < end {
            let piece = counting.len().min(end - at);
            let written = reply.copy_in(at, counting.get(..piece).unwrap_or(&[]));
            if written == 0 {
                return Err(&reason::NO_BUFFERS);
            }
            at += written;
        }
        reply.copy_in(end, [0; UNIT].get(..size - end).unwrap_or(&[]));
        Ok(reply)
    }

    fn relay(&self, cx: &Kernel, this: &ProtocolRef, request: Message) -> Result<Message, Refused> {
        let session = match self.further(cx, this) {
            Ok(session) => session,
            Err(why) => return Err(this.refuse(request, why)),
        };
        // What a refusal needs, as the request itself goes down.
        let Ok(rest) = cx.pool().empty(0) else {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        };
        session.call(cx, request).map_err(|error| {
            if session.head().is_closed() {
                // Opened again by the next one.
                drop(self.further.take());
            }
            let why = match error.cause {
                CallCause::Rejected(Rejection { reason, .. }) => reason,
                _ => &SYSTEM_ERROR,
            };
            this.refuse(rest, why)
        })
    }

    fn sleep(&self, cx: &Kernel, request: &Message) -> Result<(), &'static Reason> {
        let time = Duration::from_millis(argument(request)?.into());
        let time = time.min(self.settings.sleep_max);
        if time.is_zero() {
            return Ok(());
        }
        // It is never signalled.
        match cx.wait(&Semaphore::new(0), Some(time)) {
            Err(WaitError::TimedOut) => Ok(()),
            _ => Err(&SYSTEM_ERROR),
        }
    }
}
