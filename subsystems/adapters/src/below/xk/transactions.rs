//! Transactions of the x-kernel's protocol below: a request is a call there, whose reply comes back
//! as a datagram with options; what is called here goes up as one, and waits for the answer.
//!
//! A call waits for its reply, which what sends it may not: it is made by the event of the kernel
//! that follows, on a shepherd of its own right.

use super::{Half, XkDoor};
use crate::edge::{Ends, Fault};
use crate::form::Addr;
use crate::later::{Later, set_options, take_options};
use crate::parcel::Parcel;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::atp::{OptionKind, Options};
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef};
use xk_kit::control::MaxPacket;

/// Calls of one adapter that wait to be made, or for replies, at most.
const CALLS_MAX: usize = 64;
/// Requests that wait for their answers from above at most.
const ASKED_MAX: usize = 64;
/// Time that a request waits for its answer: the longest time for which ATP remembers one.
const ANSWER_WAIT: Duration = Duration::from_secs(8 * 60);

/// The request was not answered above.
pub static NO_ANSWER: Reason = Reason::new("no answer from above", Class::NotMine);

/// The transactions of an adapter.
#[derive(Default)]
pub(super) struct Transactions {
    calls: Later<Call>,
    /// Calls that wait for replies.
    executing: Cell<usize>,
    asked: RefCell<Vec<Rc<Asked>>>,
}

/// A call that waits to be made.
struct Call {
    door: Rc<XkDoor>,
    ends: Ends,
    options: Options,
    message: Message,
}

/// A request that waits for its answer.
struct Asked {
    door: Rc<XkDoor>,
    peer: Addr,
    number: u16,
    outcome: RefCell<Option<Result<Message, &'static Reason>>>,
    done: Semaphore,
}

impl Asked {
    fn end(&self, cx: &Kernel, outcome: Result<Message, &'static Reason>) {
        drop(self.outcome.replace(Some(outcome)));
        cx.signal(&self.done);
    }
}

impl Transactions {
    /// Sends a request, or the answer to one.
    pub(super) fn send(
        &self,
        cx: &Kernel,
        door: &Rc<XkDoor>,
        ends: &Ends,
        parcel: Parcel,
    ) -> Result<(), Fault> {
        let options = ends.options.and_then(|octets| Options::parse(&octets).ok());
        let options = options.ok_or(Fault::NotSupported)?;
        match options.kind {
            OptionKind::Request => {
                if self.calls.len() + self.executing.get() >= CALLS_MAX {
                    return Err(Fault::QueueFull);
                }
                let largest = door.half.edge.lower.ask(cx, MaxPacket::default());
                if largest.is_some_and(|largest| parcel.len() > largest.octets as usize) {
                    return Err(Fault::TooBig);
                }
                let message = parcel.into_message(cx.pool(), &door.half.edge.down)?;
                let call = Call { door: Rc::clone(door), ends: *ends, options, message };
                self.calls.push(cx, &door.half.edge, call);
                Ok(())
            }
            OptionKind::Response | OptionKind::Refused => {
                let asked = self.asked.borrow();
                let is_it = |one: &&Rc<Asked>| {
                    Rc::ptr_eq(&one.door, door)
                        && one.peer == ends.to
                        && one.number == options.number
                        && one.outcome.borrow().is_none()
                };
                let found = asked.iter().find(is_it).cloned();
                drop(asked);
                let Some(found) = found else {
                    door.half.edge.count(&reason::NOT_MINE);
                    return Ok(());
                };
                if options.kind == OptionKind::Refused {
                    found.end(cx, Err(&NO_ANSWER));
                    return Ok(());
                }
                let mut reply = parcel.into_message(cx.pool(), &door.half.edge.down)?;
                set_options(&mut reply, &options);
                found.end(cx, Ok(reply));
                Ok(())
            }
            OptionKind::Failed => Err(Fault::NotSupported),
        }
    }

    /// Makes the first call that waits.
    pub(super) fn make(&self, cx: &Kernel, half: &Rc<Half>) {
        let first = self.calls.next(cx, &half.edge);
        let Some(Call { door, ends, options, mut message }) = first else { return };
        self.executing.set(self.executing.get() + 1);
        set_options(&mut message, &options);
        let reply = match door.session(cx, &ends.from, &ends.to) {
            Ok(session) => session.call(cx, message).map_err(drop),
            Err(fault) => {
                half.edge.count(fault.reason());
                Err(())
            }
        };
        self.executing.set(self.executing.get() - 1);
        let failed = Options { kind: OptionKind::Failed, user: [0; 4], bitmap: 0, ..options };
        let (options, reply) = match reply {
            Ok(mut reply) => {
                let given = take_options(&mut reply);
                let given = given.unwrap_or_else(|| options.response([0; 4]));
                (Options { number: options.number, once: options.once, ..given }, Ok(reply))
            }
            Err(()) => (failed, cx.pool().empty(0)),
        };
        let Ok(reply) = reply else { return half.edge.count(&reason::NO_BUFFERS) };
        let back = Ends { options: Some(options.emit()), ..Ends::new(ends.to, ends.from) };
        if let Err(why) = door.sink.arrive(cx, &back, Parcel::Message(reply)) {
            half.edge.count(why.why);
        }
    }

    /// A request has come up: it goes on as a datagram, and waits for its answer.
    pub(super) fn serve(
        &self,
        cx: &Kernel,
        (half, this): (&Rc<Half>, &ProtocolRef),
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let Some((door, ends)) = half.arriving(lower) else {
            return Err(this.refuse(request, &reason::NO_PORT));
        };
        let Some(options) = take_options(&mut request) else {
            return Err(this.refuse(request, &reason::MALFORMED));
        };
        if self.asked.borrow().len() >= ASKED_MAX {
            return Err(this.refuse(request, &reason::QUEUE_FULL));
        }
        // What is refused goes back.
        let kept = match request.try_clone() {
            Ok(kept) => kept,
            Err(_) => return Err(this.refuse(request, &reason::NO_BUFFERS)),
        };
        let asked = Rc::new(Asked {
            door: Rc::clone(&door),
            peer: ends.from,
            number: options.number,
            outcome: RefCell::default(),
            done: Semaphore::new(0),
        });
        self.asked.borrow_mut().push(Rc::clone(&asked));
        let up = Ends { options: Some(options.emit()), ..ends };
        let arrived = door.sink.arrive(cx, &up, Parcel::Message(request));
        let answer = match arrived {
            Ok(()) => {
                let _ = cx.wait(&asked.done, Some(ANSWER_WAIT));
                asked.outcome.take().unwrap_or(Err(&NO_ANSWER))
            }
            Err(unwanted) => Err(unwanted.why),
        };
        self.asked.borrow_mut().retain(|other| !Rc::ptr_eq(other, &asked));
        answer.map_err(|why| this.refuse(kept, why))
    }

    /// A door closes: nothing is answered there any more, and nothing called.
    pub(super) fn let_go(&self, cx: &Kernel, door: &XkDoor) {
        let of = |one: &Rc<XkDoor>| core::ptr::eq(&**one, door);
        self.calls.retain(|call| !of(&call.door));
        let asked = self.asked.borrow().clone();
        for asked in asked.iter().filter(|asked| of(&asked.door)) {
            asked.end(cx, Err(&NO_ANSWER));
        }
    }
}
