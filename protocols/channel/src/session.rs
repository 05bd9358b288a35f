//! Sessions: channels of the client's side, which make calls, and of the server's side, which have
//! them executed.

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod state;

use crate::wire::HEADER_OCTETS;
use xk_core::reason::{Class, Reason};
use xk_core::{Answer, Ask};
use xk_kit::control::{MaxPacket, OptPacket};

/// A packet of a call that is over.
pub(crate) static LATE: Reason = Reason::new("late packet", Class::Bad);

/// Takes our header off what a lower layer said of its packets.
pub(crate) fn less_header(ask: &mut Ask<'_>, answer: Answer) -> Answer {
    if answer.is_answered() {
        let header = HEADER_OCTETS as u32;
        let _ = ask.answer::<MaxPacket>(|q| q.octets = q.octets.saturating_sub(header));
        let _ = ask.answer::<OptPacket>(|q| q.octets = q.octets.saturating_sub(header));
    }
    answer
}
