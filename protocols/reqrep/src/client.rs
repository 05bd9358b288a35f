//! The client's side: sends requests until replies come.

use crate::calls::Call;
use crate::protocol::{Own, ReqRep};
use crate::wire::Kind;
use core::time::Duration;
use xk_core::object::{CallCause, CallError, PushError};
use xk_core::shepherd::WaitError;
use xk_core::{Kernel, Message, SessionRef};
use xk_kit::rpc::call::{CallOptions, Gather};
use xk_kit::rpc::retransmit::SavedMessage;

/// Pushes a request, or what is `kept` of it, if the layer below fails the first push for what
/// is known already.
#[inline(always)]
fn send(own: &Own, cx: &Kernel, kept: &SavedMessage, request: Message) -> Result<(), PushError> {
    let pushed = own.lower().push(cx, request);
    if !own.state.told.replace(false) || pushed != Err(PushError::Unreachable) {
        return pushed;
    }
    match kept.again(cx.pool()) {
        Ok(Some(request)) => own.lower().push(cx, request),
        _ => pushed,
    }
}

/// Sends the request until a reply comes or the time is over.
#[inline(always)]
pub(crate) fn converse(
    own: &Own,
    cx: &Kernel,
    call: &Call,
    mut request: Message,
    options: Option<CallOptions>,
) -> Result<Message, CallError> {
    let settings = &own.all.layer.settings;
    if let Some(options) = options
        && request.len() > own.state.whole_max
    {
        // It may have to wait below, whenever it is sent. There is room: they were taken off
        // it.
        let _ = request.set_attribute(options);
    }
    let mut left = settings.total;
    let mut wait = settings.first_wait;
    let mut tries = 0;
    let no_buffers = |_| CallError::from(PushError::NoBuffers);
    let mut kept = SavedMessage::new();
    kept.save(&request).map_err(no_buffers)?;
    let mut next = Some(request);
    loop {
        if CallOptions::clip(options, cx.now(), left).is_none() {
            return Err(CallCause::TimedOut { tries }.into());
        }
        if let Some(request) = next
            && let Err(error) = send(own, cx, &kept, request)
            && (tries == 0 || error.is_final())
        {
            return Err(error.into());
        }
        tries += 1;
        match await_reply(own, cx, call, options, &mut wait, &mut left) {
            Wait::Over(result) => return result,
            Wait::Again => next = kept.again(cx.pool()).map_err(no_buffers)?,
            Wait::TimedOut => return Err(CallCause::TimedOut { tries }.into()),
        }
    }
}

/// Waits until the reply is there, or the request is to be sent again.
#[inline(always)]
fn await_reply(
    own: &Own,
    cx: &Kernel,
    call: &Call,
    options: Option<CallOptions>,
    wait: &mut Duration,
    left: &mut Duration,
) -> Wait {
    loop {
        let usual = (*wait).min(*left);
        let Some(time) = CallOptions::clip(options, cx.now(), usual) else {
            return Wait::TimedOut;
        };
        let begun = cx.now();
        match call.pending.wait(cx, time) {
            Ok(Some(outcome)) => return Wait::Over(outcome.map_err(CallError::from)),
            Ok(None) => {
                // The stream broke. Sent over a new one at once, but not again and again.
                *left = left.saturating_sub(cx.now().since(begun));
                if *wait == own.all.layer.settings.first_wait && call.take_lost() {
                    *wait = own.all.layer.settings.longer(*wait);
                    return Wait::Again;
                }
            }
            Err(WaitError::TimedOut) => {
                // Not by the clock: a timer that could not be set ends a wait at once.
                *left = left.saturating_sub(time);
                if left.is_zero() || time < usual {
                    return Wait::TimedOut;
                }
                *wait = own.all.layer.settings.longer(*wait);
                if !own.state.carries_records || call.take_lost() {
                    return Wait::Again;
                }
            }
            Err(error) => return Wait::Over(Err(error.into())),
        }
    }
}

/// A call to many hosts, or for the next reply to one.
#[cold]
pub(crate) fn gather(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    what: Gather,
    options: CallOptions,
    request: Message,
) -> Result<Message, CallError> {
    let ReqRep { gatherings, calls, settings, .. } = &own.all.layer;
    match what {
        Gather::First => {
            let number = calls.number(cx);
            let header = (number, own.state.header(number, Kind::Call, request.len()));
            let sessions = (this, own.lower());
            gatherings.begin(cx, sessions, (header, settings), request, options)
        }
        Gather::Next => gatherings.next(cx, this.id(), options.tag),
    }
}

/// End of a wait.
enum Wait {
    Over(Result<Message, CallError>),
    Again,
    TimedOut,
}
