//! The server's side: has requests executed above, and sends the replies that the peer may have.

use crate::dupcache::{Known, Place};
use crate::protocol::Own;
use crate::wire::{HEADER_OCTETS, Kind};
use alloc::string::String;
use core::time::Duration;
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::answers::{AskerProved, UNPROVED};
use xk_kit::net::notice;
use xk_kit::rpc::call::BUSY;
use xk_kit::rpc::callers;

/// A call, at a host that only calls.
pub static NOT_A_SERVER: Reason = Reason::new("not a server", Class::NotMine);
/// A request that is being executed came again.
pub static REPEATED: Reason = Reason::new("repeated request", Class::NotMine);

/// The least time between two notices that replies are held back.
const NOTICES_EVERY: Duration = Duration::from_secs(60);

/// Has a request executed above and sends the reply.
pub(crate) fn serve(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    xid: u32,
    request: Message,
) -> Result<(), Refused> {
    let layer = &own.all.layer;
    // A reply would go to all.
    if own.state.is_to_many() {
        return Err(this.refuse(cx, request, &NOT_A_SERVER));
    }
    let serves = || layer.server.get(0).is_some_and(|(server, _)| server == own.upper);
    if !this.head().is_passive() && !serves() {
        // One that calls was first.
        let server = layer.server.get(0).map(|(server, _)| server);
        let by = |own: &Own, this: &SessionRef, request| match this.head().is_passive() {
            true => serve(own, cx, this, xid, request),
            false => Err(this.refuse(cx, request, &NOT_A_SERVER)),
        };
        return callers::serve_by(own, cx, this, server, &NOT_A_SERVER, request, by);
    }
    if layer.executing.get() >= layer.settings.requests_max {
        return Err(this.refuse(cx, request, &BUSY));
    }
    if let Some(cache) = &layer.dupcache {
        return match cache.begin(cx, own.state.source, xid, &request) {
            Known::New(place) => execute(own, cx, this, xid, request, place),
            Known::InProgress => {
                this.discard(cx, request, &REPEATED);
                Ok(())
            }
            Known::Done(Some(reply)) => {
                send(own, cx, this, request.len() + HEADER_OCTETS, reply);
                Ok(())
            }
            Known::Done(None) => Err(this.refuse(cx, request, &reason::NO_BUFFERS)),
        };
    }
    execute(own, cx, this, xid, request, None)
}

#[inline]
fn execute(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    xid: u32,
    request: Message,
    place: Option<Place>,
) -> Result<(), Refused> {
    let asked = request.len() + HEADER_OCTETS;
    let executing = &own.all.layer.executing;
    executing.set(executing.get() + 1);
    // What is in use is not evicted.
    this.hold();
    let result = own.upper.call_demux(cx, this, request);
    executing.set(executing.get() - 1);
    let reply = match result {
        Ok(mut reply) => {
            let header = own.state.header(xid, Kind::Reply, reply.len());
            match reply.push_array(&header) {
                Ok(()) => Some(reply),
                Err(_) => {
                    this.discard(cx, reply, &reason::NO_BUFFERS);
                    None
                }
            }
        }
        // Counted above. The wire has no words for it.
        Err(refused) => {
            drop(refused);
            None
        }
    };
    if let (Some(place), Some(cache)) = (place, &own.all.layer.dupcache) {
        cache.end(&place, reply.as_ref());
    }
    if let Some(reply) = reply {
        send(own, cx, this, asked, reply);
    }
    this.ease(cx);
    Ok(())
}

/// Sends the reply to a request of so many octets, if the peer may have it. If not, or
/// if the layer below does not take it, that is counted, and the client asks again.
fn send(own: &Own, cx: &Kernel, this: &SessionRef, asked: usize, mut reply: Message) {
    let allowance = &own.all.layer.unproved;
    let has_proved = reply.has_attributes() && reply.remove_attribute::<AskerProved>().is_some();
    let may_have = |source| allowance.may_answer(cx, source, asked, reply.len());
    if has_proved || own.state.unproved.is_none_or(may_have) {
        let _ = own.lower().push(cx, reply);
    } else {
        hold_back(own, cx, this, reply);
    }
}

/// Drops a reply that the peer may not have, and says so from time to time: the client sees but
/// silence.
#[cold]
fn hold_back(own: &Own, cx: &Kernel, this: &SessionRef, reply: Message) {
    let (octets, held) = (reply.len(), &own.all.layer.held);
    this.discard(cx, reply, &UNPROVED);
    let (count, since) = held.get();
    if since.is_some_and(|since| cx.now().since(since) < NOTICES_EVERY) {
        held.set((count + 1, since));
        return;
    }
    held.set((0, Some(cx.now())));
    let name = this.protocol(cx).map_or(String::new(), |protocol| protocol.name().into());
    let (peer, port) = own.state.source;
    notice::notice(cx, || {
        alloc::format!(
            "{name}: a reply of {octets} octets to {peer}, port {port}, was held back, and \
             {count} more since the last such line: datagrams may be forged, and that client \
             has proved nothing (see `xk help reqrep`)"
        )
    });
}
