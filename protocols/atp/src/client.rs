//! The client's side: sends requests until all responses are there.

use crate::calls::{Call, Data, Origin};
use crate::protocol::{Atp, Own};
use core::time::Duration;
use xk_appletalk::atp::{Arrived, Due, Header, Heard, OptionKind, Options, Packet, Unheard, Want};
use xk_core::object::{CallCause, CallError, PushError};
use xk_core::reason::{self, Class, Reason};
use xk_core::shepherd::WaitError;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::asks::HEADROOM;
use xk_kit::net::appletalk::now;
use xk_kit::rpc::call::{CallOptions, Transaction};

/// A response or a release that belongs to no transaction: it came late, or its number was guessed.
pub static NO_TRANSACTION: Reason = Reason::new("no such transaction", Class::NotMine);
/// A response that is there already, or was not asked for.
pub static REPEATED_RESPONSE: Reason = Reason::new("repeated response", Class::NotMine);
/// As many calls wait as may.
pub static TOO_MANY_CALLS: Reason = Reason::new("too many calls", Class::Exhausted);

/// Octets of data in a packet, at most.
pub(crate) fn data_octets(own: &Own) -> usize {
    own.octets_max.max(1)
}

/// Options of this call: the caller's, or else the graph's.
#[inline]
pub(crate) fn want(own: &Own, request: &mut Message) -> Want {
    let said = request.has_attributes().then(|| request.remove_attribute::<Transaction>());
    let options = said.flatten().and_then(|Transaction(octets)| Options::parse(&octets).ok());
    options.map_or_else(|| own.all.layer.settings.usual(), |options| options.want())
}

/// Waits until all responses are there, and sends the request again meanwhile.
#[inline(always)]
pub(crate) fn converse(
    own: &Own,
    cx: &Kernel,
    tid: u16,
    call: &Call,
    options: Option<CallOptions>,
) -> Result<(u8, Arrived<Data>), CallError> {
    let requester = &own.all.layer.requester;
    let mut tries = 1;
    loop {
        let due = requester.borrow().due_of(tid);
        // Over, so that the signal is there.
        let usual = due.map_or(Duration::MAX, |due| due.saturating_sub(now(cx)));
        let Some(time) = CallOptions::clip(options, cx.now(), usual) else {
            return Err(CallCause::TimedOut { tries }.into());
        };
        let begun = cx.now();
        match call.wait(cx, time) {
            Ok(Some(outcome)) => {
                let (wanted, arrived, release) = outcome?;
                // The caller itself sends it, so that nothing of a call is under way when it has
                // its reply.
                if let Some(packet) = release {
                    let _ = send(cx, own.lower(), packet);
                }
                return Ok((wanted, arrived));
            }
            Ok(None) => {}
            Err(WaitError::TimedOut) => {
                // Without a timer a wait is over at once, and would be again and again.
                if time < usual || cx.now().since(begun) < time {
                    return Err(CallCause::TimedOut { tries }.into());
                }
                let due = requester.borrow_mut().expire(tid, now(cx));
                match due {
                    Some(Due::Again(packet)) => {
                        tries += 1;
                        if let Err(error) = send(cx, own.lower(), packet)
                            && error.is_final()
                        {
                            return Err(error.into());
                        }
                    }
                    Some(Due::Failed { .. }) => {
                        return Err(CallCause::TimedOut { tries }.into());
                    }
                    None => {}
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The reply of a call, with what goes beside it.
#[inline(always)]
pub(crate) fn reply_of((wanted, arrived): (u8, Arrived<Data>)) -> Result<Message, CallError> {
    let beside = Options {
        kind: OptionKind::Response,
        once: None,
        end_of_message: arrived.end_of_message,
        number: 0,
        user: arrived.user(),
        bitmap: arrived.bitmap(),
        tries: 0,
        amount: 0,
    };
    let Some(Data(mut reply)) = arrived.join(wanted) else {
        return Err(CallCause::BadReply.into());
    };
    reply.clear_attributes();
    // There is room: they were taken off it.
    let _ = reply.set_attribute(Transaction(beside.emit()));
    Ok(reply)
}

/// Ends calls of this session: those with this tag, or all. Whether there are any.
pub(crate) fn end(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    tag: Option<u64>,
    cause: CallCause,
) -> bool {
    let mut is_any = false;
    loop {
        let mut requester = own.all.layer.requester.borrow_mut();
        let found = requester.find(|call| call.is(this.id(), tag));
        let Some((call, _)) = found.and_then(|tid| requester.cancel(tid)) else {
            return is_any;
        };
        drop(requester);
        call.finish(cx, Err(cause));
        is_any = true;
    }
}

/// Takes a response that has come through the session `lower`, for whichever call it is.
#[inline]
pub(crate) fn hear(
    atp: &Atp,
    cx: &Kernel,
    (lower, origin): (&SessionRef, Origin),
    header: &Header,
    data: Message,
) -> Result<(), (Message, &'static Reason)> {
    let from = (origin, 0);
    let heard = atp.requester.borrow_mut().response(now(cx), from, header, Data(data));
    match heard {
        Ok(Heard::Kept(again)) => {
            if let Some(packet) = again {
                let _ = send(cx, lower, packet);
            }
            Ok(())
        }
        Ok(Heard::Done { owner, wanted, arrived, release }) => {
            owner.finish(cx, Ok((wanted, arrived, release)));
            Ok(())
        }
        Err((Unheard::Unknown, Data(data))) => Err((data, &NO_TRANSACTION)),
        Err((Unheard::Repeated, Data(data))) => Err((data, &REPEATED_RESPONSE)),
        Err((Unheard::TooBig, Data(data))) => Err((data, &reason::MALFORMED)),
    }
}

/// Sends a packet of a machine's.
#[inline]
pub(crate) fn send(
    cx: &Kernel,
    lower: &SessionRef,
    packet: Packet<Origin, Data>,
) -> Result<(), PushError> {
    let mut message = match packet.data {
        Some(Data(message)) => message,
        None => empty(cx)?,
    };
    message.push_array(&packet.header.emit()).map_err(|_| PushError::NoBuffers)?;
    lower.push(cx, message)
}

/// A message without octets.
pub(crate) fn empty(cx: &Kernel) -> Result<Message, PushError> {
    cx.pool().empty(HEADROOM).map_err(|_| PushError::NoBuffers)
}
