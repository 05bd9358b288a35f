//! The base of layers that fit any edge of a graph and leave addresses alone: fault, tracer,
//! capture.
//!
//! A [`PassThrough`] receives from below what its upper protocol would receive, under that
//! protocol's number ([`Upper::through`]), and wraps every session of the lower protocol into one
//! of its own. What it does with the messages is a [`Filter`]'s business.

use crate::Marks;
use crate::net::receivers::{UpperReceiver, UpperReceivers, lead_up};
use crate::net::template::Headers;
use crate::wire::offload::Offloads;
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::{ListSessions, Report};
use xk_core::fields;
use xk_core::object::{CallError, Closing, Enable, OpenError, PushError, Refused};
use xk_core::reason;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Upper,
};

/// Largest number of lower sessions that one pass-through wraps.
pub const SESSIONS_MAX: usize = Marks::MAX;

/// Distance of the kernel's epoch from 1970, put beside a kernel that runs in real time.
#[derive(Clone, Copy, Debug)]
pub struct EpochOffset(pub Duration);

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the wire.
    Down,
    /// Towards the application.
    Up,
}

fields!(
    enum Direction {
        Down = 0,
        Up = 1,
    }
);

impl Direction {
    /// `down` or `up`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Down => "down",
            Direction::Up => "up",
        }
    }
}

/// Work of a pass-through layer on messages. Everything has a default: to pass them on.
pub trait Filter: 'static {
    /// The graph starts; the layer below has started already.
    ///
    /// # Errors
    /// Whatever prevents the graph from running.
    fn start(&self, cx: &Kernel, this: &ProtocolRef, lower: &ProtocolRef) -> Result<(), OpenError> {
        let _ = (cx, this, lower);
        Ok(())
    }

    /// A message crosses the layer in this direction, a request or reply of the rpc realm too: for
    /// a filter that looks at messages and lets them go on as they are.
    fn seen(&self, cx: &Kernel, hop: Hop<'_>, direction: Direction, message: &Message) {
        let _ = (cx, hop, direction, message);
    }

    /// A message goes down.
    ///
    /// # Errors
    /// [`PushError`].
    fn down(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), PushError> {
        self.seen(cx, hop, Direction::Down, &message);
        hop.push(cx, message)
    }

    /// A message goes up.
    ///
    /// # Errors
    /// The message, with the reason why nothing above wants it.
    fn up(&self, cx: &Kernel, hop: Hop<'_>, message: Message) -> Result<(), Refused> {
        self.seen(cx, hop, Direction::Up, &message);
        hop.deliver(cx, message)
    }

    /// A question, of the layer or one of its sessions; `forward` asks the layer below.
    fn control(
        &self,
        cx: &Kernel,
        ask: &mut Ask<'_>,
        forward: &dyn Fn(&mut Ask<'_>) -> Answer,
    ) -> Answer {
        let _ = cx;
        forward(ask)
    }

    /// True if every message goes on as it came, so that what the layer below does for transports
    /// ([`Offloads`]) is done for those above as well.
    fn leaves_alone(&self) -> bool {
        false
    }

    /// A timer that was set for the layer with [`Kernel::schedule_protocol`] went off.
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let _ = (cx, this, token);
    }

    /// The graph is taken down: release every kept message.
    fn stop(&self, cx: &Kernel) {
        let _ = cx;
    }
}

/// The place where a message crosses the layer: between one lower session and the upper protocol.
#[derive(Clone, Copy)]
pub struct Hop<'a> {
    /// The layer's own session, which the upper protocol knows.
    pub this: &'a SessionRef,
    /// The session that it wraps.
    pub lower: &'a SessionRef,
    /// The receiver.
    pub upper: &'a ProtocolRef,
}

impl Hop<'_> {
    /// Passes a message on downwards.
    ///
    /// # Errors
    /// [`PushError`].
    #[inline]
    pub fn push(&self, cx: &Kernel, message: Message) -> Result<(), PushError> {
        self.lower.push(cx, message)
    }

    /// Passes a message on upwards.
    ///
    /// # Errors
    /// The message, with the reason why it is refused above.
    #[inline]
    pub fn deliver(&self, cx: &Kernel, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, self.this, message)
    }

    /// This place, for later.
    pub fn keep(&self) -> KeptHop {
        KeptHop { this: self.this.clone(), lower: self.lower.clone(), upper: self.upper.clone() }
    }
}

/// A [`Hop`] that was kept for a message that goes on later.
pub struct KeptHop {
    this: SessionRef,
    lower: SessionRef,
    upper: ProtocolRef,
}

impl KeptHop {
    /// The place.
    pub fn hop(&self) -> Hop<'_> {
        Hop { this: &self.this, lower: &self.lower, upper: &self.upper }
    }

    /// Passes a message on that was held back. No caller is left to hear of an error: a message for
    /// a closed session is counted here, any other at the layer that refuses it.
    pub fn go_on(&self, cx: &Kernel, direction: Direction, message: Message) {
        if self.this.head().is_closed() {
            self.this.discard(cx, message, &reason::CLOSED);
            return;
        }
        match direction {
            Direction::Down => drop(self.lower.push(cx, message)),
            Direction::Up => drop(self.hop().deliver(cx, message)),
        }
    }
}

struct Shared<F> {
    lower: ProtocolRef,
    filter: F,
    uppers: UpperReceivers,
    /// The marks of lower sessions.
    marks: Marks,
}

impl<F: Filter> Shared<F> {
    fn find(&self, lower: &SessionRef) -> Option<SessionRef> {
        let session = self.marks.get(lower.head().tag())?;
        // A question that came back down names a session of the layer, whose tag is another's.
        session.body::<PassSession<F>>().is_some_and(|own| own.lower == *lower).then_some(session)
    }

    /// Wraps a session.
    fn wrap(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        lower: &SessionRef,
        held: bool,
    ) -> Result<SessionRef, &'static Reason> {
        let body = PassSession {
            shared: Rc::clone(self),
            lower: lower.clone(),
            upper: upper.clone(),
            holds: Cell::new(held),
        };
        let session = if held {
            cx.new_session(this, upper, body)
        } else {
            cx.new_passive_session(this, upper, lower.head().source(), body)
        };
        lower.head().set_tag(self.marks.mark(&session).ok_or(&reason::TABLE_FULL)?);
        Ok(session)
    }

    /// A question from below goes up: one about a session to whom that belongs, any other to the
    /// protocol that the object receives for which it was asked of. What came back down ends here.
    fn ask_above(&self, cx: &Kernel, place: usize, ask: &mut Ask<'_>) -> Answer {
        if let Some(own) = lead_up(ask, |lower| self.find(lower)) {
            let upper = own.and_then(|own| cx.protocol(own.head().upper()));
            return upper.map_or(Answer::Unknown, |upper| upper.control(cx, ask));
        }
        match self.uppers.get(place).filter(|_| self.uppers.may_ask_above(ask)) {
            Some(receiver) => receiver.upper.control(cx, ask),
            None => Answer::Unknown,
        }
    }
}

/// A pass-through layer as a protocol object.
pub struct PassThrough<F> {
    shared: Rc<Shared<F>>,
    /// The place of the upper protocol that this object receives for.
    place: usize,
}

impl<F: Filter> PassThrough<F> {
    /// A layer on `lower` that does with messages what `filter` says.
    pub fn new(lower: ProtocolRef, filter: F) -> Self {
        let (uppers, marks) = (UpperReceivers::default(), Marks::default());
        Self { shared: Rc::new(Shared { lower, filter, uppers, marks }), place: 0 }
    }

    /// The receiver from below for `upper`.
    fn receiver(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
    ) -> Result<UpperReceiver, OpenError> {
        let object = |place| Self { shared: Rc::clone(&self.shared), place };
        self.shared.uppers.place(cx, this, upper, object).map(|(_, receiver)| receiver)
    }
}

impl<F: Filter> Protocol for PassThrough<F> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        self.shared.filter.start(cx, this, &self.shared.lower)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let receiver = self.receiver(cx, this, upper)?;
        let lower = self.shared.lower.open(cx, receiver.upper(), participants)?;
        let Some(session) = self.shared.find(&lower) else {
            let wrapped = self.shared.wrap(cx, this, upper.receiver, &lower, true);
            return wrapped.map_err(|_| {
                lower.close(cx);
                OpenError::Full
            });
        };
        if session.head().upper() != upper.receiver.id() {
            lower.close(cx);
            return Err(OpenError::InUse);
        }
        // Held, the session holds the lower one itself.
        session.hold();
        lower.close(cx);
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let receiver = self.receiver(cx, this, upper)?;
        self.shared.lower.open_enable(cx, receiver.upper(), participants)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.lower.open_disable(cx, enable);
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        let uppers = &self.shared.uppers;
        // All sessions are the layer's own, whichever of its objects receives.
        let (layer, own) = uppers.get(0).zip(uppers.get(self.place)).ok_or(&reason::NO_PROTOCOL)?;
        let upper = own.upper;
        let session = self.shared.wrap(cx, &layer.object, &upper, lower, false)?;
        session.announce(cx, &upper, participants).inspect_err(|_| {
            self.shared.marks.leave(lower.head().tag());
            session.abort(cx);
        })
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.shared.find(lower) {
            Some(session) => session.pop(cx, message),
            None => Err(this.refuse(message, &reason::CLOSED)),
        }
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        match self.shared.find(lower) {
            Some(session) => session.call_pop(cx, message),
            None => Err(this.refuse(message, &reason::CLOSED)),
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Offloads>() {
            if self.shared.filter.leaves_alone() {
                let lower = &self.shared.lower;
                question.answer(this.id(), || Offloads::of_protocol(cx, lower));
            }
            return Answer::Answered;
        }
        if let Some(list) = ask.get::<ListSessions>() {
            self.shared.marks.list(list);
            return Answer::Answered;
        }
        if ask.is_upward() {
            return self.shared.ask_above(cx, self.place, ask);
        }
        // What the layer below has to tell it tells itself.
        let forward = |ask: &mut Ask<'_>| match ask.get::<Report>() {
            Some(_) => Answer::Unknown,
            None => self.shared.lower.control(cx, ask),
        };
        self.shared.filter.control(cx, ask, &forward)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn passes_numbers(&self) -> bool {
        true
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        self.shared.filter.timeout(cx, this, token);
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.shared.filter.stop(cx);
        drop(self.shared.marks.take_all());
        self.shared.uppers.clear();
    }
}

struct PassSession<F> {
    shared: Rc<Shared<F>>,
    lower: SessionRef,
    upper: ProtocolRef,
    /// True while the hold is there that an `open` of the lower session took.
    holds: Cell<bool>,
}

impl<F: Filter> PassSession<F> {
    #[inline]
    fn hop<'a>(&'a self, this: &'a SessionRef) -> Hop<'a> {
        Hop { this, lower: &self.lower, upper: &self.upper }
    }
}

impl<F: Filter> Session for PassSession<F> {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        self.shared.filter.down(cx, self.hop(this), message)
    }

    fn call(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<Message, CallError> {
        let (hop, filter) = (self.hop(this), &self.shared.filter);
        filter.seen(cx, hop, Direction::Down, &message);
        let reply = hop.lower.call(cx, message)?;
        filter.seen(cx, hop, Direction::Up, &reply);
        Ok(reply)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.shared.filter.up(cx, self.hop(this), message)
    }

    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let (hop, filter) = (self.hop(this), &self.shared.filter);
        filter.seen(cx, hop, Direction::Up, &message);
        let reply = self.upper.call_demux(cx, this, message)?;
        filter.seen(cx, hop, Direction::Down, &reply);
        Ok(reply)
    }

    fn refused(&self, cx: &Kernel, _: &SessionRef, refused: Refused) {
        self.lower.refused(cx, refused);
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Offloads>() {
            if self.shared.filter.leaves_alone() {
                let lower = &self.lower;
                question.answer(this.head().protocol(), || Offloads::of_session(cx, lower));
            }
            return Answer::Answered;
        }
        if self.shared.filter.leaves_alone()
            && let Some(question) = ask.get::<Headers>()
        {
            return question.found(Headers::of(cx, &self.lower));
        }
        let forward = |ask: &mut Ask<'_>| self.lower.control(cx, ask);
        self.shared.filter.control(cx, ask, &forward)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let (lower, head) = (&self.lower, this.head());
        let forget = || self.shared.marks.leave(lower.head().tag());
        if head.is_aborted() && forget().is_some() && head.is_passive() {
            // As an `open_done` that is refused: the layer below forgets it, too.
            lower.abort(cx);
        }
        if self.holds.replace(false) {
            lower.close(cx);
        }
        if lower.head().is_closed() {
            forget();
            return Closing::Done;
        }
        // It may still receive, or be opened again.
        Closing::Idle
    }
}

#[cfg(test)]
mod tests;
