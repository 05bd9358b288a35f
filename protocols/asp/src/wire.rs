//! Requests and replies on messages: what ASP says is in the user octets, which go as an attribute.

use core::num::NonZeroU8;
pub use xk_appletalk::asp::{Opened, Request};
use xk_appletalk::atp::{Options, ReleaseTimer, Want, bitmap_of};
use xk_core::object::CallError;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::rpc::call::Transaction;

/// Octets of the request by which a server asks for the data of a write: how many it takes.
pub const CONTINUE_OCTETS: usize = 2;

/// Options of a request to the layer below: exactly once, for this many packets.
fn want(user: [u8; 4], packets: usize, tries: u8) -> Want {
    let tries = NonZeroU8::new(tries);
    let once = (packets > 0).then_some(ReleaseTimer::HalfMinute);
    Want { once, user, bitmap: bitmap_of(packets), tries, ..Want::DEFAULT }
}

/// Calls; the reply, and its user octets.
pub(crate) fn call(
    cx: &Kernel,
    session: &SessionRef,
    user: [u8; 4],
    packets: usize,
    tries: u8,
    mut request: Message,
) -> Result<(Message, [u8; 4]), CallError> {
    let beside = Options::request(&want(user, packets, tries), 0);
    if request.set_attribute(Transaction(beside.emit())).is_err() {
        request.clear_attributes();
        let _ = request.set_attribute(Transaction(beside.emit()));
    }
    let mut reply = session.call(cx, request)?;
    let user = options(&mut reply).map_or([0; 4], |beside| beside.user);
    Ok((reply, user))
}

/// Takes the options that lie beside a message.
pub(crate) fn options(message: &mut Message) -> Option<Options> {
    let Transaction(octets) = message.remove_attribute()?;
    Options::parse(&octets).ok()
}

/// A reply with these user octets.
pub(crate) fn reply(asked: &Options, mut reply: Message, user: [u8; 4]) -> Message {
    reply.clear_attributes();
    // There is room: they were taken off it.
    let _ = reply.set_attribute(Transaction(asked.response(user).emit()));
    reply
}
