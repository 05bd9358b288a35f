//! The user of a measured graph: a protocol at its top that sends the next message from where the
//! last one arrives.

use super::course::{Course, Top};
use super::endpoint::{Endpoint, Task};
use super::exchange::{BURST, KNOCK, sent};
use crate::case::Trouble;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::{OpenError, Outgoing, Refused};
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::net::attribute::LinkCast;

/// Room for the headers of UDP, IP and Ethernet, in octets.
const HEADROOM: usize = 128;
/// Octets sent in one turn at most, so that fragments find room in a device's ring.
const BURST_OCTETS: usize = 1 << 16;

/// Time after which a stream begins: a message or two before it find the way.
const STREAM_AFTER: Duration = Duration::from_millis(50);

/// The user; clones are the same one.
#[derive(Clone)]
pub(super) struct User(Rc<Inner>);

struct Inner {
    course: Course,
    lower: ProtocolRef,
    participants: Participants,
    /// Place at which a message's own octets begin.
    at: usize,
    /// The message to send, without its number.
    data: RefCell<Vec<u8>>,
    /// Number of messages in the next burst, and the most that one may have.
    burst: Cell<usize>,
    burst_max: usize,
    session: RefCell<Option<SessionRef>>,
    number: Cell<u64>,
}

impl User {
    /// On `lower`, with what it speaks to or serves there; `header` stands before each message.
    pub(super) fn new(
        end: &Endpoint,
        (lower, participants): (ProtocolRef, Participants),
        header: &[u8],
    ) -> Self {
        let (mut data, at) = (header.to_vec(), header.len());
        let least = if matches!(end.task, Task::Send | Task::Receive) { 8 } else { 1 };
        data.resize(at + end.octets.max(least), 0x5a);
        Self(Rc::new(Inner {
            course: Course::new(end),
            lower,
            participants,
            at,
            burst: Cell::new(1),
            burst_max: (BURST_OCTETS / data.len()).clamp(1, BURST),
            data: RefCell::new(data),
            session: RefCell::default(),
            number: Cell::new(0),
        }))
    }
}

impl Top for User {
    fn course(&self) -> &Course {
        &self.0.course
    }

    fn turn(&self, cx: &Kernel, _: &ProtocolRef) {
        if self.0.course.task == Task::Send && self.0.sending() > Some(Duration::ZERO) {
            self.0.send_some(cx);
        }
    }

    fn result(&self) -> Result<Value, Trouble> {
        match self.0.course.task {
            Task::Send => Ok(sent(self.0.number.get(), self.0.sending().unwrap_or_default())),
            _ => self.0.course.result(),
        }
    }
}

impl Inner {
    /// Time since the stream began, once it has.
    fn sending(&self) -> Option<Duration> {
        let begun = self.course.begun.get()? + STREAM_AFTER;
        Some(self.course.now.get().since(begun))
    }

    /// The message with this number.
    #[inline]
    fn message(&self, cx: &Kernel, number: u64) -> Option<Message> {
        let mut data = self.data.borrow_mut();
        let number = number.to_le_bytes();
        let length = number.len().min(data.len() - self.at);
        data[self.at..self.at + length].copy_from_slice(&number[..length]);
        cx.pool().copy_from(HEADROOM, &data).ok()
    }

    /// Sends the message with the present number; false if it did not go.
    #[inline]
    fn send(&self, cx: &Kernel) -> bool {
        let session = self.session.borrow();
        let Some(session) = &*session else {
            return false;
        };
        let message = self.message(cx, self.number.get());
        message.is_some_and(|message| session.push(cx, message).is_ok())
    }

    /// Sends a burst: one message behind one that did not go, twice as many each time that all
    /// went.
    fn send_some(&self, cx: &Kernel) {
        let session = self.session.borrow();
        let Some(session) = &*session else {
            return;
        };
        let count = self.burst.get();
        let before = self.number.get();
        let mut burst = Outgoing::new();
        burst.extend((1..=count as u64).map_while(|n| self.message(cx, before + n)));
        let made = burst.len();
        let went = session.push_burst(cx, &mut burst).is_ok();
        // Of several it is not known how many went: those that did not are among the lost.
        if went || made > 1 {
            self.number.set(before + made as u64);
        }
        let next = if went { count * 2 } else { 1 };
        self.burst.set(next.min(self.burst_max));
    }

    /// Whether an answer is the one that is waited for, and if so, sends the next question.
    #[inline]
    fn answered(&self, cx: &Kernel, message: &Message) {
        let mut first = [0];
        let number = self.number.get();
        if message.copy_to(self.at, &mut first) == 0
            || first[0] != number as u8
            || self.course.done.get()
        {
            return;
        }
        if !self.course.goes_on(cx.now()) {
            return;
        }
        self.number.set(number + 1);
        self.send(cx);
    }

    #[inline]
    fn received(&self, message: &Message) {
        let mut number = [0; 8];
        if message.copy_to(self.at, &mut number) == number.len() {
            self.course.window.borrow_mut().saw_number(u64::from_le_bytes(number));
        }
    }
}

impl Protocol for User {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let inner = &*self.0;
        let (upper, participants) = (Upper::new(this), inner.participants.clone());
        if inner.course.task.is_passive() || inner.at > 0 {
            let _stands = inner.lower.open_enable(cx, upper, participants.clone())?;
        }
        if matches!(inner.course.task, Task::Ask | Task::Send) {
            *inner.session.borrow_mut() = Some(inner.lower.open(cx, upper, participants)?);
            // A wire may have to find its peer first; a question for an address that goes too early
            // is repeated after a second.
            let _ = cx.schedule_protocol(this, KNOCK, 0);
        }
        Ok(())
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        match self.0.course.task {
            Task::Ask => self.0.answered(cx, &message),
            Task::Receive => self.0.received(&message),
            Task::Answer | Task::Acknowledge => {
                message.remove_attribute::<LinkCast>();
                if self.0.course.task == Task::Acknowledge {
                    message.truncate(self.0.at + 1);
                }
                // An answer that does not go is missed by its asker.
                let _ = lower.push(cx, message);
            }
            _ => {}
        }
        Ok(())
    }

    /// Knocks until an answer comes.
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        let inner = &*self.0;
        let knocks = match inner.course.task {
            Task::Ask => !inner.course.answered.get(),
            Task::Send => inner.number.get() == 0,
            _ => false,
        };
        if knocks {
            inner.send(cx);
            let _ = cx.schedule_protocol(this, KNOCK, 0);
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.session.take());
    }
}
