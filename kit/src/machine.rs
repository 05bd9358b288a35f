//! Protocols that are machines: each sends packets of its own, hears those of others, does what is
//! due at a time, and answers questions. AppleTalk's control protocols are such; a protocol of
//! groups on IP, which joins, reports and waits, is another.
//!
//! [`Machine`] is what is a protocol's own. [`Running`] is the machine on its layer below, and the
//! protocol object is made of it: it enables below, counts what is refused, keeps the one timer at
//! the time that the machine names, keeps the sessions that packets went by, passes on questions
//! that the machine does not know, and clears all at the stop. A machine with sessions of its own
//! has the operations that make them, too; its sessions hold the [`Running`] machine.
//!
//! ```text
//! start     Machine::start        -> At::enable, At::schedule
//! demux     Machine::hear, which gets octets; Machine::demux, if it takes messages
//! control   Machine::answer; for another question the layer below
//! timeout   Machine::due; for a timer of its own Machine::timeout
//! behind    Machine::next, which says when it is due
//! ```

use crate::net::waiting::Alarm;
use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::RefCell;
use core::ops::Deref;
use core::time::Duration;
use xk_core::control::{Question, Tables};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Burst, Enable, OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper, reason,
};

/// Token of the timer that is the shell's.
const TOKEN_DUE: u64 = u64::MAX;
/// Sessions that packets went by and that are kept.
const KEPT_MAX: usize = 16;
/// Room for the lower headers in front of a packet, in octets.
const HEADROOM: usize = 128;

/// Timer, and the sessions by which single packets go. They are kept open for a while, for the
/// hardware of a node may still have to be found.
#[derive(Default)]
struct Parts {
    alarm: Alarm,
    kept: RefCell<VecDeque<SessionRef>>,
}

/// Place where a machine acts: the kernel, the protocol object, the layer below.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// The kernel.
    pub cx: &'a Kernel,
    /// The machine's protocol object.
    pub this: &'a ProtocolRef,
    /// The first layer below.
    pub lower: &'a ProtocolRef,
    parts: &'a Parts,
}

impl At<'_> {
    /// The time since the kernel's began.
    #[must_use]
    pub fn now(self) -> Duration {
        Duration::from_nanos(self.cx.now().as_ns())
    }

    /// Counts something dropped, or of no message, at the protocol.
    pub fn count(self, why: &'static Reason) {
        self.this.head().drops().count(why);
    }

    /// Refuses a message, counted.
    ///
    /// # Errors
    /// Always.
    pub fn refuse<T>(self, message: Message, why: &'static Reason) -> Result<T, Refused> {
        Err(self.this.refuse(message, why))
    }

    /// Enables the protocol below for a local participant.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn enable(self, local: impl Into<Participant>) -> Result<(), OpenError> {
        let local = Participants::local(local);
        self.lower.open_enable(self.cx, Upper::new(self.this), local).map(drop)
    }

    /// Opens a session below.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        self,
        local: impl Into<Participant>,
        peer: impl Into<Participant>,
    ) -> Result<SessionRef, OpenError> {
        self.lower.open(self.cx, Upper::new(self.this), Participants::pair(local, peer))
    }

    /// Asks the layer below.
    pub fn ask<Q: Question>(self, question: Q) -> Option<Q> {
        self.lower.ask(self.cx, question)
    }

    /// Tells the layer below; one that does not take it has no use for it.
    pub fn tell<Q: Question>(self, question: Q) {
        let _ = self.ask(question);
    }

    /// Has [`Machine::timeout`] get a token after a time.
    ///
    /// # Errors
    /// [`OpenError::Full`] if the bound on timers is reached.
    pub fn schedule(self, delay: Duration, token: u64) -> Result<(), OpenError> {
        self.cx.schedule_protocol(self.this, delay, token).map(drop)
    }

    /// Has [`Machine::due`] called at a time, unless that is so earlier.
    pub fn wake(self, next: Option<Duration>) {
        if let Some(next) = next {
            self.parts.alarm.set(self.cx, self.this, next, TOKEN_DUE);
        }
    }

    /// Makes a message of octets; `None`, counted, without a buffer.
    #[must_use]
    pub fn message(self, octets: &[u8]) -> Option<Message> {
        let message = self.cx.pool().copy_from(HEADROOM, octets).ok();
        if message.is_none() {
            self.count(&reason::NO_BUFFERS);
        }
        message
    }

    /// Sends octets from a local participant to a peer. What keeps them from going is counted.
    pub fn send(self, local: impl Into<Participant>, peer: impl Into<Participant>, octets: &[u8]) {
        let Some(message) = self.message(octets) else { return };
        match self.open(local, peer) {
            Ok(session) => self.push(session, message),
            Err(_) => self.count(&reason::TABLE_FULL),
        }
    }

    /// Sends a message by a session that was opened for it, and is kept open for a while.
    pub fn push(self, session: SessionRef, message: Message) {
        // A failure below is counted below; what was to be sent is sent again or asked for again.
        let _ = session.push(self.cx, message);
        let mut kept = self.parts.kept.borrow_mut();
        let spare = if kept.contains(&session) {
            Some(session)
        } else {
            kept.push_back(session);
            (kept.len() > KEPT_MAX).then(|| kept.pop_front()).flatten()
        };
        drop(kept);
        spare.into_iter().for_each(|session| session.close(self.cx));
    }
}

/// A protocol's own part.
pub trait Machine: Sized + 'static {
    /// Octets of the longest packet; what is behind them is not heard.
    const OCTETS_MAX: usize = 1500;

    /// Begins: enables below what it is to hear.
    ///
    /// # Errors
    /// Whatever prevents the graph from running.
    fn start(&self, at: At<'_>) -> Result<(), OpenError>;

    /// Takes a packet in that came through a session.
    ///
    /// # Errors
    /// Why the packet is dropped.
    fn hear(&self, at: At<'_>, lower: &SessionRef, octets: &[u8]) -> Result<(), &'static Reason> {
        let _ = (at, lower, octets);
        Err(&reason::NOT_SUPPORTED)
    }

    /// Time at which it is due next, counted as [`At::now`] is. Asked behind each event, so it
    /// does not have to be told.
    fn next(&self) -> Option<Duration> {
        None
    }

    /// Does what is due.
    fn due(&self, at: At<'_>) {
        let _ = at;
    }

    /// A timer goes off that [`At::schedule`] has set.
    fn timeout(all: &Rc<Running<Self>>, at: At<'_>, token: u64) {
        let _ = (all, at, token);
    }

    /// Answers a question; `None` leaves it to the layer below.
    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        let _ = (at, ask);
        None
    }

    /// A line about its state, for `xk dump`.
    fn describe(&self) -> Option<String> {
        None
    }

    /// Shows its tables of sessions.
    fn tables(&self, tables: &mut Tables<'_>) {
        let _ = tables;
    }

    /// Clears its state. The timer and the sessions that packets went by are the shell's.
    fn stop(&self, cx: &Kernel) {
        let _ = cx;
    }

    /// Takes a message in, for a machine that does more with it than hear its octets.
    ///
    /// # Errors
    /// The message, with the reason why it is refused.
    fn demux(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        all.hear(at, lower, message)
    }

    /// As [`Protocol::demux_burst`].
    ///
    /// # Errors
    /// The first message that is refused.
    fn demux_burst(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while let Some(message) = burst.next_through(lower) {
            Self::demux(all, at, lower, message)?;
        }
        Ok(())
    }

    /// A session below has ended by itself, or with what it stood on.
    fn gone(&self, lower: &SessionRef) {
        let _ = lower;
    }

    /// Answers a request that came through a session of a layer of calls.
    ///
    /// # Errors
    /// The request, with the reason why it is refused.
    fn call(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let _ = (all, lower);
        at.refuse(request, &reason::NOT_SUPPORTED)
    }

    /// As [`Protocol::open`].
    ///
    /// # Errors
    /// [`OpenError`].
    fn open(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let _ = (all, at, upper, ends);
        Err(OpenError::NotSupported)
    }

    /// As [`Protocol::open_enable`].
    ///
    /// # Errors
    /// [`OpenError`].
    fn open_enable(
        &self,
        at: At<'_>,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        let _ = (at, upper, ends);
        Err(OpenError::NotSupported)
    }

    /// As [`Protocol::open_disable`].
    fn open_disable(&self, at: At<'_>, enable: Enable) {
        let _ = (at, enable);
    }
}

/// A machine on its layer below.
pub struct Running<M> {
    /// The first layer below.
    pub lower: ProtocolRef,
    machine: M,
    parts: Parts,
    /// The protocol object, from start to stop.
    me: RefCell<Option<ProtocolRef>>,
}

impl<M> Deref for Running<M> {
    type Target = M;

    #[inline]
    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M: Machine> Running<M> {
    /// The place where the machine acts as `this`, its protocol object.
    #[inline]
    pub fn at<'a>(&'a self, cx: &'a Kernel, this: &'a ProtocolRef) -> At<'a> {
        At { cx, this, lower: &self.lower, parts: &self.parts }
    }

    /// The protocol object, from the start to the stop.
    pub fn me(&self) -> Option<ProtocolRef> {
        self.me.borrow().clone()
    }

    /// Has a session act in the protocol's name; `None` before the start and after the stop.
    pub fn act<T>(&self, cx: &Kernel, act: impl FnOnce(At<'_>) -> T) -> Option<T> {
        self.me().map(|me| act(self.at(cx, &me)))
    }

    /// Does what is due, and sets the timer.
    pub fn look(&self, at: At<'_>) {
        self.machine.due(at);
        at.wake(self.machine.next());
    }

    /// Has the machine hear a message's octets.
    fn hear(&self, at: At<'_>, lower: &SessionRef, message: Message) -> Result<(), Refused> {
        self.hear_by(at, message, |octets| self.machine.hear(at, lower, octets))
    }

    /// Has a machine that looks at more than a message's octets hear these.
    ///
    /// # Errors
    /// The message, with the reason why the machine refuses it.
    pub fn hear_by(
        &self,
        at: At<'_>,
        message: Message,
        hear: impl FnOnce(&[u8]) -> Result<(), &'static Reason>,
    ) -> Result<(), Refused> {
        let length = message.len().min(M::OCTETS_MAX);
        let octets = message.peek_slice(length).map_or_else(
            || {
                let mut octets = alloc::vec![0; length];
                message.copy_to(0, &mut octets);
                Cow::Owned(octets)
            },
            Cow::Borrowed,
        );
        let heard = hear(&octets);
        at.wake(self.machine.next());
        drop(octets);
        heard.map_err(|why| at.this.refuse(message, why))
    }
}

/// The protocol object.
struct Shell<M>(Rc<Running<M>>);

/// Adds a machine to the graph, on the first layer below.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn add<M: Machine>(build: &mut Build<'_>, machine: M) -> Result<ProtocolRef, BuildError> {
    let (lower, parts, me) = (build.lower(0)?, Parts::default(), RefCell::default());
    build.add(Shell(Rc::new(Running { lower, machine, parts, me })))
}

impl<M: Machine> Protocol for Shell<M> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        *self.0.me.borrow_mut() = Some(this.clone());
        let started = self.0.machine.start(self.0.at(cx, this));
        started.inspect_err(|_| drop(self.0.me.take()))
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        M::open(&self.0, self.0.at(cx, this), upper, ends)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        self.0.machine.open_enable(self.0.at(cx, this), upper, ends)
    }

    fn open_disable(&self, cx: &Kernel, this: &ProtocolRef, enable: Enable) {
        self.0.machine.open_disable(self.0.at(cx, this), enable);
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        M::demux(&self.0, self.0.at(cx, this), lower, message)
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        M::demux_burst(&self.0, self.0.at(cx, this), lower, burst)
    }

    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        self.0.machine.gone(lower);
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        M::call(&self.0, self.0.at(cx, this), lower, request)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let at = self.0.at(cx, this);
        let Some(answer) = self.0.machine.answer(at, ask) else {
            return self.0.lower.control(cx, ask);
        };
        at.wake(self.0.machine.next());
        answer
    }

    fn describe(&self) -> Option<String> {
        self.0.machine.describe()
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        self.0.machine.tables(tables);
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let at = self.0.at(cx, this);
        if token == TOKEN_DUE {
            self.0.parts.alarm.went_off();
            return self.0.look(at);
        }
        M::timeout(&self.0, at, token);
        at.wake(self.0.machine.next());
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.0.machine.stop(cx);
        self.0.parts.alarm.cancel(cx);
        let kept = self.0.parts.kept.take();
        kept.into_iter().for_each(|session| session.close(cx));
        drop(self.0.me.take());
    }
}
