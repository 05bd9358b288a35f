//! Calls where the protocol below has transactions, whose requests and replies are datagrams with
//! options there.
//!
//! A request that arrives is executed by the event of the kernel that follows, on a shepherd of
//! its own right: what it does may wait, and neither BSD's software interrupt nor the scheduler of
//! STREAMS may.

use super::session::XkSession;
use super::{Half, Key};
use crate::edge::{Door, Ends, Fault, Options as Octets};
use crate::form::Addr;
use crate::later::{set_options, take_options};
use crate::parcel::Parcel;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::time::Duration;
use xk_appletalk::atp::{OptionKind, Options, Want};
use xk_core::object::{CallCause, CallError, ProtocolId, PushError};
use xk_core::reason::{self, Reason};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Message};
use xk_kit::rpc::call::{CallOptions, UsualTransaction};

/// Calls of one session that wait at most.
const CALLS_MAX: usize = 256;
/// Requests that wait to be executed at most.
pub(crate) const REQUESTS_MAX: usize = 64;

/// A call that waits for its reply.
pub(crate) struct Pending {
    /// The key of its session.
    pub(super) key: Key,
    port: Addr,
    outcome: RefCell<Option<Result<Message, CallCause>>>,
    done: Semaphore,
}

impl Pending {
    pub(super) fn end(&self, cx: &Kernel, cause: CallCause) {
        *self.outcome.borrow_mut() = Some(Err(cause));
        cx.signal(&self.done);
    }
}

/// A request that waits to be executed.
pub(crate) struct Request {
    ends: Ends,
    selector: ProtocolId,
    door: Rc<dyn Door>,
    options: Options,
    message: Message,
}

/// Sends a request, and waits for the reply.
pub(super) fn call(
    session: &XkSession,
    cx: &Kernel,
    mut message: Message,
) -> Result<Message, CallError> {
    let limit = message.attribute::<CallOptions>();
    let given = take_options(&mut message);
    let half = Rc::clone(&session.half);
    let number = half.free_number().filter(|_| session.calls.get() < CALLS_MAX);
    let number = number.ok_or(PushError::QueueFull)?;
    let options = match given {
        Some(given) => Options { kind: OptionKind::Request, number, ..given },
        None => half.usual(cx, number),
    };
    let (key, port) = (session.key, half.form.port_of(&session.ends.from));
    let (outcome, done) = (RefCell::default(), Semaphore::new(0));
    let pending = Rc::new(Pending { key, port, outcome, done });
    half.calls.borrow_mut().insert(number, Rc::clone(&pending));
    session.calls.set(session.calls.get() + 1);
    let ends = Ends { options: Some(options.emit()), ..session.ends };
    let sent = session.door.send(cx, &ends, Parcel::Message(message));
    let result = match sent {
        Ok(()) => wait(cx, &pending, limit, latest(&options)),
        Err(fault) => Err(PushError::from(fault).into()),
    };
    session.calls.set(session.calls.get() - 1);
    drop(half.calls.borrow_mut().remove(&number));
    result
}

impl Half {
    /// The options of a request that comes without: those that the protocol below is set to, as if
    /// no adapter were between.
    fn usual(&self, cx: &Kernel, number: u16) -> Options {
        let usual = self.edge.lower.ask(cx, UsualTransaction::default());
        let given = usual.and_then(|usual| Options::parse(&usual.octets).ok());
        let options = given.unwrap_or_else(|| Options::request(&Want::DEFAULT, number));
        Options { number, ..options }
    }

    /// A number that no call that waits has.
    fn free_number(&self) -> Option<u16> {
        let (calls, last) = (self.calls.borrow(), self.number_last.get());
        let mut free = (1..=u16::MAX).map(|n| last.wrapping_add(n));
        let number = free.find(|number| !calls.contains_key(number))?;
        self.number_last.set(number);
        Some(number)
    }
}

/// Latest time after a request at which the protocol below has given up. It says so by itself,
/// unless it had no buffer for that.
fn latest(options: &Options) -> Duration {
    const LATE: Duration = Duration::from_millis(500);
    let Want { tries, interval, .. } = options.want();
    let tries = tries.map(|tries| u32::from(tries.get()));
    tries.map_or(Duration::MAX, |tries| (interval + LATE).saturating_mul(tries + 1))
}

fn wait(
    cx: &Kernel,
    pending: &Pending,
    limit: Option<CallOptions>,
    latest: Duration,
) -> Result<Message, CallError> {
    let timeout = CallOptions::clip(limit, cx.now(), latest);
    let timeout = timeout.ok_or(CallCause::TimedOut { tries: 0 })?;
    cx.wait(&pending.done, (timeout < Duration::MAX).then_some(timeout))?;
    let outcome = pending.outcome.take().unwrap_or(Err(CallCause::Closed));
    outcome.map_err(CallError::from)
}

/// Takes what arrives: a reply for the call that waits for it, or a request.
pub(super) fn arrive(
    half: &Rc<Half>,
    cx: &Kernel,
    (ends, selector, door): (&Ends, ProtocolId, Option<Rc<dyn Door>>),
    parcel: Parcel,
) -> Result<(), &'static Reason> {
    let options = ends.options.and_then(|octets: Octets| Options::parse(&octets).ok());
    let options = options.ok_or(&reason::MALFORMED)?;
    match options.kind {
        OptionKind::Request => {}
        _ => return reply(half, cx, (ends, options), parcel),
    }
    let door = door.ok_or(&reason::NO_PORT)?;
    let kept = keep(half, cx, (ends, selector, &door), options, parcel);
    if kept.is_err() {
        // The protocol below remembers it as one that is executed, and would wait for the reply.
        refuse(cx, &door, ends, &options);
    }
    kept
}

fn keep(
    half: &Rc<Half>,
    cx: &Kernel,
    (ends, selector, door): (&Ends, ProtocolId, &Rc<dyn Door>),
    options: Options,
    parcel: Parcel,
) -> Result<(), &'static Reason> {
    if half.waiting.len() >= REQUESTS_MAX {
        half.waiting.arm(cx, &half.edge);
        return Err(&reason::QUEUE_FULL);
    }
    let message = parcel.into_message(cx.pool(), &half.edge.up).map_err(Fault::reason)?;
    let request = Request { ends: *ends, selector, door: Rc::clone(door), options, message };
    half.waiting.push(cx, &half.edge, request);
    Ok(())
}

/// Tells the protocol below that a request is not executed, so that it offers it again when it
/// comes again.
fn refuse(cx: &Kernel, door: &Rc<dyn Door>, ends: &Ends, options: &Options) {
    let Ok(nothing) = cx.pool().empty(0) else { return };
    let refused = Options { kind: OptionKind::Refused, ..options.response([0; 4]) };
    let back = Ends { options: Some(refused.emit()), ..Ends::new(ends.to, ends.from) };
    // What cannot be told is as good as lost.
    let _ = door.send(cx, &back, Parcel::Message(nothing));
}

fn reply(
    half: &Rc<Half>,
    cx: &Kernel,
    (ends, options): (&Ends, Options),
    parcel: Parcel,
) -> Result<(), &'static Reason> {
    let waits = half.calls.borrow().get(&options.number).cloned();
    let pending = waits
        .filter(|call| call.port == half.form.port_of(&ends.to) && call.outcome.borrow().is_none());
    let pending = pending.ok_or(&reason::NOT_MINE)?;
    let outcome = match options.kind {
        OptionKind::Response => match parcel.into_message(cx.pool(), &half.edge.up) {
            Ok(mut message) => {
                // Those above that know of transactions find the user octets there.
                set_options(&mut message, &options);
                Ok(message)
            }
            Err(_) => Err(CallCause::Push(PushError::NoBuffers)),
        },
        _ => Err(CallCause::TimedOut { tries: u32::from(options.tries) }),
    };
    *pending.outcome.borrow_mut() = Some(outcome);
    cx.signal(&pending.done);
    Ok(())
}

/// Executes the first request that waits.
pub(super) fn serve(half: &Rc<Half>, cx: &Kernel) {
    let first = half.waiting.next(cx, &half.edge);
    let Some(Request { ends, selector, door, options, mut message }) = first else { return };
    set_options(&mut message, &options);
    let back = Ends::new(ends.to, ends.from);
    let served = half.session_for(cx, &ends, selector, Some(Rc::clone(&door)));
    let reply = match served {
        Ok(session) => session.call_pop(cx, message).map_err(|refused| refused.reason),
        Err(why) => Err(why),
    };
    let (options, parcel) = match reply {
        Ok(mut reply) => {
            // A server that gives back the message it got gives back what came with it, too.
            let given = take_options(&mut reply).filter(|given| given.kind == OptionKind::Response);
            let user = given.map_or([0; 4], |given| given.user);
            let amount = given.map_or(0, |given| given.amount);
            (Options { amount, ..options.response(user) }, reply)
        }
        Err(why) => {
            half.edge.count(why);
            return refuse(cx, &door, &ends, &options);
        }
    };
    let ends = Ends { options: Some(options.emit()), ..back };
    if let Err(fault) = door.send(cx, &ends, Parcel::Message(parcel)) {
        half.edge.count(fault.reason());
    }
}
