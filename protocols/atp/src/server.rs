//! The server's side: has requests executed above, and sends their replies.

use crate::calls::{Data, Origin};
use crate::client::{data_octets, send};
use crate::protocol::Own;
use xk_appletalk::atp::{
    DATA_OCTETS_MAX, Header, OptionKind, Options, ReplyError, Segments, Ticket, Verdict,
};
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::net::appletalk::now;
use xk_kit::rpc::call::{BUSY, Transaction};
use xk_kit::rpc::callers;

/// A request that is being executed came again.
pub static REPEATED_REQUEST: Reason = Reason::new("repeated request", Class::NotMine);
/// A request, where no protocol serves.
pub static NOT_A_SERVER: Reason = Reason::new("not a server", Class::NotMine);
/// As many requests are remembered as may be.
pub static TOO_MANY_REMEMBERED: Reason = Reason::new("too many remembered", Class::Exhausted);
/// A request in the name of a host that was sent too much that it did not release.
pub static UNRELEASED: Reason = Reason::new("too much unreleased", Class::Exhausted);
/// A reply of more than eight packets, or of more than the requester takes.
pub static REPLY_TOO_BIG: Reason = Reason::new("reply too big", Class::Bad);
/// A reply that comes after its transaction has ended.
pub static LATE_REPLY: Reason = Reason::new("late reply", Class::NotMine);

/// A request has come.
pub(crate) fn serve(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    header: &Header,
    request: Message,
) -> Result<(), Refused> {
    let layer = &own.all.layer;
    if let Some(local) = own.state.local.get()
        && !layer.serves(&own.upper, local)
    {
        // One that calls was first.
        let server = layer.server_at(local);
        let by = |own: &Own, this: &SessionRef, request| serve(own, cx, this, header, request);
        return callers::serve_by(own, cx, this, server, &NOT_A_SERVER, request, by);
    }
    if request.len() > DATA_OCTETS_MAX {
        return Err(this.refuse(cx, request, &reason::MALFORMED));
    }
    if layer.executing.get() >= layer.settings.requests_max {
        return Err(this.refuse(cx, request, &BUSY));
    }
    let verdict = layer.responder.borrow_mut().request(now(cx), (own.state.origin, 0), header);
    match verdict {
        Verdict::Execute(ticket) => {
            if ticket.once.is_some()
                && let Some(protocol) = this.protocol(cx)
            {
                layer.arm(cx, &protocol);
            }
            execute(own, cx, this, &ticket, header.user, request);
            Ok(())
        }
        Verdict::Repeat(packets) => {
            send_all(own, cx, packets);
            Ok(())
        }
        Verdict::InProgress => {
            this.discard(cx, request, &REPEATED_REQUEST);
            Ok(())
        }
        Verdict::Full => Err(this.refuse(cx, request, &TOO_MANY_REMEMBERED)),
        Verdict::Unreleased => Err(this.refuse(cx, request, &UNRELEASED)),
    }
}

/// Has a request executed above, and sends the reply.
fn execute(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    ticket: &Ticket<Origin>,
    user: [u8; 4],
    mut request: Message,
) {
    let layer = &own.all.layer;
    let asked = Options::asked(ticket, user);
    if request.set_attribute(Transaction(asked.emit())).is_err() {
        layer.responder.borrow_mut().refuse(ticket);
        this.discard(cx, request, &reason::NO_BUFFERS);
        return;
    }
    layer.executing.set(layer.executing.get() + 1);
    // What is in use is not evicted.
    this.hold();
    let result = own.upper.call_demux(cx, this, request);
    layer.executing.set(layer.executing.get() - 1);
    match result {
        Ok(answer) => reply(own, cx, this, ticket, answer),
        // Counted above. The wire has no words for it.
        Err(refused) => {
            drop(refused);
            layer.responder.borrow_mut().refuse(ticket);
        }
    }
    this.ease(cx);
}

fn reply(own: &Own, cx: &Kernel, this: &SessionRef, ticket: &Ticket<Origin>, mut reply: Message) {
    let beside = reply.remove_attribute::<Transaction>();
    reply.clear_attributes();
    let beside = beside.and_then(|Transaction(octets)| Options::parse(&octets).ok());
    let beside = beside.filter(|beside| beside.kind == OptionKind::Response);
    let user = beside.map_or([0; 4], |beside| beside.user);
    let octets = match beside.map_or(0, |beside| usize::from(beside.amount)) {
        0 => data_octets(own),
        octets => octets.min(data_octets(own)),
    };
    let mut responder = own.all.layer.responder.borrow_mut();
    let sent = responder.reply(now(cx), ticket, user, octets, Data(reply));
    drop(responder);
    // Without a reply it is remembered as under way, and is executed no second time.
    match sent {
        Ok(packets) => send_all(own, cx, packets),
        Err((why, Data(reply))) => this.discard(
            cx,
            reply,
            match why {
                ReplyError::TooBig => &REPLY_TOO_BIG,
                ReplyError::NoBuffers => &reason::NO_BUFFERS,
                ReplyError::Unknown | ReplyError::Repeated => &LATE_REPLY,
            },
        ),
    }
}

/// Sends the responses of a reply. What the layer below does not take it has counted, and the
/// requester asks for again.
fn send_all(own: &Own, cx: &Kernel, packets: Segments<Origin, Data>) {
    for packet in packets {
        let _ = send(cx, own.lower(), packet);
    }
}
