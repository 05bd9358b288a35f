//! Requests and replies of PAP as messages.

use alloc::vec::Vec;
use core::num::NonZeroU8;
use core::time::Duration;
use xk_appletalk::atp::{Options, ReleaseTimer, Want, bitmap_of};
use xk_appletalk::pap::{Function, User};
use xk_core::message::NoBuffers;
use xk_core::object::{CallError, Refused};
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, reason};
use xk_kit::asks::HEADROOM;
use xk_kit::net::appletalk::DdpEnds;
use xk_kit::rpc::call::{BAD_ARGUMENTS, Transaction};

/// Options of a request to the layer below.
pub(crate) fn want(user: User, packets: u8, tries: u8) -> Want {
    Want {
        once: Some(ReleaseTimer::HalfMinute),
        user: user.emit(),
        bitmap: bitmap_of(packets.into()),
        tries: NonZeroU8::new(tries),
        interval: Duration::from_secs(2),
    }
}

/// Calls, and gives the reply's user octets and its own.
pub(crate) fn call(
    cx: &Kernel,
    session: &SessionRef,
    want: &Want,
    data: &[u8],
) -> Result<(Option<User>, Vec<u8>), CallError> {
    let mut request = cx.pool().copy_from(HEADROOM, data)?;
    // A message just made has room for it.
    let _ = request.set_attribute(Transaction(Options::request(want, 0).emit()));
    let reply = session.call(cx, request)?;
    let beside = reply.attribute::<Transaction>();
    let beside = beside.and_then(|Transaction(octets)| Options::parse(&octets).ok());
    let user = beside.and_then(|beside| User::parse(beside.user).ok());
    Ok((user, reply.octets().collect()))
}

/// Reads a request that came up.
pub(crate) fn asked(
    this: &ProtocolRef,
    request: Message,
) -> Result<(Options, User, Message), Refused> {
    let beside = request.attribute::<Transaction>();
    let beside = beside.and_then(|Transaction(octets)| Options::parse(&octets).ok());
    match beside.map(|beside| (beside, User::parse(beside.user))) {
        Some((beside, Ok(user))) => Ok((beside, user, request)),
        _ => Err(this.refuse(request, &BAD_ARGUMENTS)),
    }
}

/// The reply to a request.
pub(crate) fn reply(
    cx: &Kernel,
    this: &ProtocolRef,
    asked: &Options,
    request: Message,
    user: User,
    data: &[u8],
) -> Result<Message, Refused> {
    let made = cx.pool().copy_from(HEADROOM, data);
    let Ok(mut reply) = made.map_err(|NoBuffers| ()) else {
        return Err(this.refuse(request, &reason::NO_BUFFERS));
    };
    let packets = xk_appletalk::pap::PACKET_OCTETS_MAX as u16;
    let beside = Options { amount: packets, ..asked.response(user.emit()) };
    // A message just made has room for it.
    let _ = reply.set_attribute(Transaction(beside.emit()));
    Ok(reply)
}

/// The node at the other end of a session: network and number.
pub(crate) fn node_of(cx: &Kernel, session: &SessionRef) -> Option<(u16, u8)> {
    let ends = session.ask(cx, DdpEnds::default())?;
    let (net, node, _) = ends.peer;
    Some((net, node))
}

/// The user octets of a request for data.
pub(crate) fn send_data(connection: u8, number: u16) -> User {
    User { number, ..User::new(connection, Function::SendData) }
}

/// The number behind this one: 0 means that the order is not kept.
pub(crate) fn next(number: u16) -> u16 {
    number.checked_add(1).unwrap_or(1)
}
