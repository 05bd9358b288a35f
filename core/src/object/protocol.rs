//! The counted handle of a protocol, and what every protocol has in common.

use super::{Burst, Enable, OpenError, Payer, Protocol, Refused, SessionRef, span};
use crate::control::{Answer, Ask, Question};
use crate::kernel::Kernel;
use crate::message::Message;
use crate::participant::Participants;
use crate::reason::{DropCounters, Reason};
use crate::trace::{Operation, PassiveOpens};
use crate::wire::Wire;
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;
use core::fmt;

/// Names a protocol within its host, in whichever kernel it is: its place in the order of
/// initialization, bottom-up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolId(pub u32);

impl fmt::Debug for ProtocolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// Head of a protocol: the part that every protocol has.
pub struct ProtocolHead {
    id: ProtocolId,
    kind: &'static str,
    name: Box<str>,
    received: Cell<u64>,
    /// Counts of sessions that are gone.
    folded_sent: Cell<u64>,
    folded_received: Cell<u64>,
    drops: DropCounters,
    /// See [`payer`](Self::payer).
    pub(super) payer: Option<Payer>,
}

impl ProtocolHead {
    /// The protocol's number within its host.
    pub fn id(&self) -> ProtocolId {
        self.id
    }

    /// Kind of the protocol, as the catalog names it: `ip`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Name in the graph: the kind, unless the graph says otherwise.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of messages that came to its `demux`.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    /// Messages that sessions which are gone had sent and received.
    pub fn folded(&self) -> (u64, u64) {
        (self.folded_sent.get(), self.folded_received.get())
    }

    /// Counts of drops and refusals, per reason.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    pub(crate) fn fold(&self, sent: u64, received: u64) {
        self.folded_sent.set(self.folded_sent.get() + sent);
        self.folded_received.set(self.folded_received.get() + received);
    }
}

/// See `SessionCell` for why the body is boxed.
struct ProtocolCell {
    head: ProtocolHead,
    body: Box<dyn Protocol>,
}

/// A counted handle of a protocol.
#[derive(Clone)]
pub struct ProtocolRef(Rc<ProtocolCell>);

impl PartialEq for ProtocolRef {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ProtocolRef {}

impl fmt::Debug for ProtocolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.head.name)
    }
}

/// The protocol on whose behalf a session is opened or an enable made.
///
/// The receiver and the one whose type number selects it are two identities, so that a virtual
/// protocol can slip in between: it receives, while the protocol above it is the one that the
/// lower's header names.
#[derive(Clone, Copy)]
pub struct Upper<'a> {
    /// Receives the messages.
    pub receiver: &'a ProtocolRef,
    /// Protocol whose number in the table selects its messages.
    pub selector: ProtocolId,
}

impl<'a> Upper<'a> {
    /// A protocol that receives under its own number.
    pub fn new(receiver: &'a ProtocolRef) -> Self {
        Self { receiver, selector: receiver.id() }
    }

    /// Slips `receiver` in: it receives under the number of the upper so far.
    #[must_use]
    pub fn through(self, receiver: &ProtocolRef) -> Upper<'_> {
        Upper { receiver, selector: self.selector }
    }

    /// The number that selects this upper on the protocol `lower`.
    ///
    /// # Errors
    /// [`OpenError::NoTypeNumber`] if the table has none.
    pub fn number_on(&self, cx: &Kernel, lower: &ProtocolRef) -> Result<u32, OpenError> {
        cx.type_number(self.selector, lower.id()).ok_or(OpenError::NoTypeNumber)
    }
}

impl ProtocolRef {
    /// Returns where its head and its body lie; see [`span`](super::span).
    pub fn spans(&self) -> [(usize, usize); 2] {
        [span(&*self.0), span(&*self.0.body)]
    }

    pub(crate) fn new<P: Protocol + 'static>(
        id: ProtocolId,
        kind: &'static str,
        name: &str,
        body: P,
    ) -> Self {
        let head = ProtocolHead {
            id,
            kind,
            name: name.into(),
            received: Cell::new(0),
            folded_sent: Cell::new(0),
            folded_received: Cell::new(0),
            drops: DropCounters::default(),
            payer: None,
        };
        Self(Rc::new(ProtocolCell { head, body: Box::new(body) }))
    }

    /// The protocol, just made, as one that stands for a user's.
    pub(crate) fn charged_to(mut self, payer: Option<Payer>) -> Self {
        if let Some(cell) = Rc::get_mut(&mut self.0) {
            cell.head.payer = payer;
        }
        self
    }

    /// Head of the protocol.
    #[inline]
    pub fn head(&self) -> &ProtocolHead {
        &self.0.head
    }

    /// The protocol's number within its host.
    #[inline]
    pub fn id(&self) -> ProtocolId {
        self.0.head.id
    }

    /// Name in the graph.
    pub fn name(&self) -> &str {
        &self.0.head.name
    }

    /// See [`Protocol::start`].
    ///
    /// # Errors
    /// Whatever prevents the graph from running; [`OpenError::NoAnswer`] if a question was lost.
    pub fn start(&self, cx: &Kernel) -> Result<(), OpenError> {
        cx.unless_lost(|| self.0.body.start(cx, self)).map_err(|_| OpenError::NoAnswer)?
    }

    /// See [`Protocol::open`]. What was made while a question was lost is taken back.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::NoAnswer`] if a question was lost.
    pub fn open(
        &self,
        cx: &Kernel,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        participants.check()?;
        let before = cx.lost();
        let opened = self.0.body.open(cx, self, upper, participants);
        if cx.lost() == before { opened } else { Err(take_back(cx, opened)) }
    }

    /// See [`Protocol::open_enable`]. What was made while a question was lost is taken back.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::NoAnswer`] if a question was lost.
    pub fn open_enable(
        &self,
        cx: &Kernel,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        participants.check()?;
        let before = cx.lost();
        let enabled = self.0.body.open_enable(cx, self, upper, participants);
        if cx.lost() == before {
            return enabled;
        }
        if let Ok(enable) = enabled {
            self.open_disable(cx, enable);
        }
        Err(OpenError::NoAnswer)
    }

    /// See [`Protocol::open_disable`].
    pub fn open_disable(&self, cx: &Kernel, enable: Enable) {
        self.0.body.open_disable(cx, self, enable);
    }

    /// See [`Protocol::open_done`].
    ///
    /// # Errors
    /// The reason why this protocol does not want the session.
    pub fn open_done(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        self.0.body.open_done(cx, self, lower, participants)?;
        if let Some(opens) = cx.surroundings::<PassiveOpens>() {
            (opens.0)(cx, self, lower);
        }
        Ok(())
    }

    /// See [`Protocol::gone`].
    pub(crate) fn gone(&self, cx: &Kernel, lower: &SessionRef) {
        self.0.body.gone(cx, self, lower);
    }

    /// Passes a message up to this protocol, as it came through the session `lower`.
    ///
    /// # Errors
    /// The message, with the reason why it is refused.
    #[inline(always)]
    pub fn demux(&self, cx: &Kernel, lower: &SessionRef, message: Message) -> Result<(), Refused> {
        let head = &self.0.head;
        head.received.set(head.received.get() + 1);
        if cx.gate() != 0 {
            return self.demux_gated(cx, lower, message);
        }
        self.0.body.demux(cx, self, lower, message)
    }

    #[cold]
    fn demux_gated(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let crossing = (Operation::Demux, self.id());
        cx.traced(crossing, lower, message, |message| self.0.body.demux(cx, self, lower, message))
    }

    /// Passes several messages up to this protocol, as they came through the session `lower`.
    ///
    /// # Errors
    /// The first message that is refused; those behind it are still in the burst.
    #[inline]
    pub fn demux_burst(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        if cx.gate() != 0 {
            return self.demux_one_by_one(cx, lower, burst);
        }
        let before = burst.taken();
        let result = self.0.body.demux_burst(cx, self, lower, burst);
        let taken = burst.taken() - before;
        let head = &self.0.head;
        head.received.set(head.received.get() + taken as u64);
        if taken == 0 && result.is_ok() {
            // One that leaves messages lying gets them singly, so that every round of every caller
            // makes progress.
            return self.demux_one_by_one(cx, lower, burst);
        }
        result
    }

    #[cold]
    fn demux_one_by_one(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while let Some(message) = burst.next_through(lower) {
            self.demux(cx, lower, message)?;
        }
        Ok(())
    }

    /// Passes a request up to this protocol, as it came through the session `lower`, and answers
    /// with the reply.
    ///
    /// # Errors
    /// The request, with the reason why it is refused.
    #[inline]
    pub fn call_demux(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let head = &self.0.head;
        head.received.set(head.received.get() + 1);
        if cx.gate() != 0 {
            return self.call_demux_gated(cx, lower, message);
        }
        self.0.body.call_demux(cx, self, lower, message)
    }

    #[cold]
    fn call_demux_gated(
        &self,
        cx: &Kernel,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let crossing = (Operation::CallDemux, self.id());
        cx.traced(crossing, lower, message, |message| {
            self.0.body.call_demux(cx, self, lower, message)
        })
    }

    /// Asks a question.
    pub fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if !ask.reaches_next() {
            return Answer::Unknown;
        }
        let body = &self.0.body;
        match ask.describes(|| body.describe()) || ask.shows(|tables| body.tables(tables)) {
            true => Answer::Answered,
            false => body.control(cx, self, ask),
        }
    }

    /// See [`Protocol::lower`]: the protocol below that questions are forwarded to.
    pub fn lower(&self) -> Option<&ProtocolRef> {
        self.0.body.lower()
    }

    /// See [`Protocol::passes_numbers`]: the layer whose numbers hold on this one.
    pub fn numbers_below(&self) -> Option<&ProtocolRef> {
        self.0.body.lower().filter(|_| self.0.body.passes_numbers())
    }

    /// Asks a question and gives back what was answered.
    pub fn ask<Q: Question>(&self, cx: &Kernel, mut question: Q) -> Option<Q> {
        self.control(cx, &mut Ask::new(&mut question)).is_answered().then_some(question)
    }

    /// The message's first `N` octets, which stay in it.
    ///
    /// # Errors
    /// A message that has fewer, refused.
    #[inline]
    pub fn header<const N: usize>(
        &self,
        mut message: Message,
    ) -> Result<([u8; N], Message), Refused> {
        match message.header() {
            Ok(header) => Ok((header, message)),
            Err(error) => Err(self.refuse(message, error.into())),
        }
    }

    /// Counts a refusal and makes it.
    #[cold]
    pub fn refuse(&self, message: Message, reason: &'static Reason) -> Refused {
        self.0.head.drops.count(reason);
        Refused::new(message, reason)
    }

    /// Drops a message, counted.
    #[cold]
    pub fn discard(&self, message: Message, reason: &'static Reason) {
        drop(message);
        self.0.head.drops.count(reason);
    }

    /// Delivers a timer.
    pub(crate) fn timeout(&self, cx: &Kernel, token: u64) {
        self.0.body.timeout(cx, self, token);
    }

    /// See [`Protocol::relieve`].
    pub(crate) fn relieve(&self, cx: &Kernel) {
        self.0.body.relieve(cx, self);
    }

    /// See [`Protocol::stop`].
    pub fn stop(&self, cx: &Kernel) {
        self.0.body.stop(cx, self);
    }

    /// See [`Protocol::is_proxy`].
    pub fn is_proxy(&self) -> bool {
        self.0.body.is_proxy()
    }

    /// See [`Protocol::wire`].
    pub fn wire(&self) -> Option<&dyn Wire> {
        self.0.body.wire()
    }
}

/// Gives back a session that was opened while a question was lost.
#[cold]
fn take_back(cx: &Kernel, opened: Result<SessionRef, OpenError>) -> OpenError {
    if let Ok(session) = opened {
        // One that others hold was there before.
        match session.head().opens() {
            0 | 1 => session.abort(cx),
            _ => session.close(cx),
        }
    }
    OpenError::NoAnswer
}
