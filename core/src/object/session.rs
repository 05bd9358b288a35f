//! The counted handle of a session, and what every session has in common.

use super::{
    Burst, CallCause, CallError, Outgoing, Payer, ProtocolId, ProtocolRef, PushError, Refused,
    Session, span,
};
use crate::control::{Answer, Ask, Question};
use crate::kernel::Kernel;
use crate::message::Message;
use crate::participant::PeerName;
use crate::reason::{self, Reason};
use crate::trace::Operation;
use alloc::boxed::Box;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::fmt;

/// Names a session within its kernel; never used twice: a billion a second would last for
/// centuries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// Answer of a session when its last holder above releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The session is unbound and gone.
    Done,
    /// The session stays bound as an idle one, until it is opened again or its table needs the
    /// room.
    Idle,
    /// The session has things to finish with its peer (nothing comes from above any more) and
    /// retires by itself.
    Lingering,
}

/// Answers nothing at all.
const CLOSED: u8 = 1;
/// Takes nothing from above: its last holder released it.
const RELEASED: u8 = 2;
/// The protocol above is being told of it: what comes up waits.
const OPENING: u8 = 4;
/// The session ends, whatever holds it.
const ABORTED: u8 = 8;

/// Head of a session: the part that every session has.
pub struct SessionHead {
    /// 0 lets everything through; see [`CLOSED`], [`RELEASED`], [`OPENING`] and [`ABORTED`].
    gate: Cell<u8>,
    /// True if a message made it.
    passive: bool,
    /// True while it holds the session below because it is held itself.
    follows: Cell<bool>,
    /// True if the protocol above is told of its end.
    is_watched: Cell<bool>,
    /// True while its last release, or an abort, is carried out.
    is_closing: Cell<bool>,
    opens: Cell<u32>,
    sent: Cell<u64>,
    received: Cell<u64>,
    id: SessionId,
    protocol: ProtocolId,
    upper: ProtocolId,
    tag: Cell<u32>,
    peer: Cell<PeerName>,
    source: u64,
    /// See [`payer`](Self::payer).
    pub(super) payer: Option<Payer>,
    /// The sessions that stand on it ([`Session::lower`]); some have ended.
    above: RefCell<Vec<WeakSession>>,
}

impl SessionHead {
    /// The session's name within its kernel.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The protocol that it is an instance of.
    pub fn protocol(&self) -> ProtocolId {
        self.protocol
    }

    /// The protocol above that receives from it.
    pub fn upper(&self) -> ProtocolId {
        self.upper
    }

    /// Number of messages pushed into it.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Number of messages popped into it.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    /// Number of holders above.
    pub fn opens(&self) -> u32 {
        self.opens.get()
    }

    /// True if a message made it, and not an `open` from above; whatever holds it now.
    pub fn is_passive(&self) -> bool {
        self.passive
    }

    /// True once it is closed.
    pub fn is_closed(&self) -> bool {
        self.gate.get() & CLOSED != 0
    }

    /// True once it is aborted ([`SessionRef::abort`]): its [`close`](Session::close) does not
    /// leave it bound as an idle one.
    pub fn is_aborted(&self) -> bool {
        self.gate.get() & ABORTED != 0
    }

    /// A number that the receiver above keeps on it, such as the index of an interface. Zero at
    /// first.
    pub fn tag(&self) -> u32 {
        self.tag.get()
    }

    /// Sets the receiver's number.
    pub fn set_tag(&self, tag: u32) {
        self.tag.set(tag);
    }

    /// Returns the peer's name, as the receiver above has noted it; unknown at first.
    #[inline]
    pub fn peer(&self) -> PeerName {
        self.peer.get()
    }

    /// Notes the peer's name, for the receiver above.
    pub fn set_peer(&self, name: impl Into<PeerName>) {
        self.peer.set(name.into());
    }

    /// Returns the [source](crate::HostAddr::source) of the peer whose message made the session:
    /// tables share out their room by it. Neighbours' share their upper bits. 0 for a session that
    /// was opened, and for a link without addresses.
    pub fn source(&self) -> u64 {
        self.source
    }
}

/// The body is boxed so that a handle is one pointer wide and the head lies at a fixed place: an
/// unsized tail would cost every crossing the computation of its offset from the vtable.
struct SessionCell {
    head: SessionHead,
    body: Box<dyn Session>,
}

/// A counted handle of a session.
#[derive(Clone)]
pub struct SessionRef(Rc<SessionCell>);

/// A handle that does not keep the session alive.
#[derive(Clone)]
pub struct WeakSession(Weak<SessionCell>);

impl WeakSession {
    /// The session, if it still exists.
    pub fn upgrade(&self) -> Option<SessionRef> {
        self.0.upgrade().map(SessionRef)
    }
}

impl PartialEq for SessionRef {
    fn eq(&self, other: &Self) -> bool {
        self.0.head.id == other.0.head.id
    }
}

impl Eq for SessionRef {}

impl fmt::Debug for SessionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.head.id)
    }
}

impl SessionRef {
    /// Returns where its head and its body lie; see [`span`](super::span).
    pub fn spans(&self) -> [(usize, usize); 2] {
        [span(&*self.0), span(&*self.0.body)]
    }

    /// A session of `protocol` whose messages `upper` receives, with one holder if it was asked for
    /// from above (`opens` 1) or none if a message from `source` made it (`opens` 0).
    pub(crate) fn new<S: Session + 'static>(
        id: SessionId,
        protocol: ProtocolId,
        upper: ProtocolId,
        payer: Option<Payer>,
        (opens, source): (u32, u64),
        body: S,
    ) -> Self {
        let session = Self(Rc::new(SessionCell {
            head: SessionHead {
                gate: Cell::new(0),
                passive: opens == 0,
                follows: Cell::new(false),
                is_watched: Cell::new(false),
                is_closing: Cell::new(false),
                opens: Cell::new(opens),
                sent: Cell::new(0),
                received: Cell::new(0),
                id,
                protocol,
                upper,
                tag: Cell::new(0),
                peer: Cell::new(PeerName::UNKNOWN),
                source,
                payer,
                above: RefCell::default(),
            },
            body: Box::new(body),
        }));
        session.0.body.stands_on(&mut |way| way.carry(&session));
        session
    }

    /// Has the session told when `way`, a session below that it goes by from now on, has ended
    /// ([`Session::lower_gone`]). It is told once, however often it was said.
    pub fn stand_on(&self, way: &Self) {
        let is_this = |other: &WeakSession| core::ptr::eq(other.0.as_ptr(), Rc::as_ptr(&self.0));
        if !way.0.head.above.borrow().iter().any(is_this) {
            way.carry(self);
        }
    }

    /// Notes a session that stands on this one.
    fn carry(&self, upper: &Self) {
        let mut above = self.0.head.above.borrow_mut();
        if above.len() == above.capacity() {
            above.retain(|other| other.upgrade().is_some_and(|other| !other.head().is_closed()));
            // At least as many come before the next look.
            let left = above.len();
            above.reserve(left);
        }
        above.push(upper.downgrade());
    }

    /// Head of the session.
    #[inline]
    pub fn head(&self) -> &SessionHead {
        &self.0.head
    }

    /// The session as its own type, for the protocol that made it; `None` if it is of another.
    #[inline]
    pub fn body<S: 'static>(&self) -> Option<&S> {
        let body: &dyn Any = &*self.0.body;
        body.downcast_ref()
    }

    /// A handle that does not keep it alive.
    pub fn downgrade(&self) -> WeakSession {
        WeakSession(Rc::downgrade(&self.0))
    }

    /// The session's name within its kernel.
    #[inline]
    pub fn id(&self) -> SessionId {
        self.0.head.id
    }

    /// Sends a message down. `Ok` means that it was taken, not that it has left the host: a layer
    /// below may wait, queue or lie in another address space, and drop it then, counted.
    ///
    /// # Errors
    /// [`PushError`], the message being gone. Where a layer below answers later than it takes, the
    /// error may be of a message pushed before.
    #[inline(always)]
    pub fn push(&self, cx: &Kernel, message: Message) -> Result<(), PushError> {
        let head = &self.0.head;
        if head.gate.get() | cx.gate() != 0 {
            return self.push_gated(cx, message);
        }
        head.sent.set(head.sent.get() + 1);
        self.0.body.push(cx, self, message)
    }

    #[cold]
    fn push_gated(&self, cx: &Kernel, message: Message) -> Result<(), PushError> {
        let head = &self.0.head;
        if head.gate.get() & (CLOSED | RELEASED) != 0 {
            cx.count_drop(head.protocol, &reason::CLOSED);
            return Err(PushError::Closed);
        }
        head.sent.set(head.sent.get() + 1);
        let crossing = (Operation::Push, head.upper);
        cx.traced(crossing, self, message, |message| self.0.body.push(cx, self, message))
    }

    /// Sends several messages down, one behind the other, and leaves none in `burst`.
    ///
    /// # Errors
    /// The first error; the messages behind it have been sent all the same, or dropped for a reason
    /// of their own.
    #[inline]
    pub fn push_burst(&self, cx: &Kernel, burst: &mut Outgoing) -> Result<(), PushError> {
        let head = &self.0.head;
        if head.gate.get() | cx.gate() != 0 {
            return self.push_burst_gated(cx, burst);
        }
        head.sent.set(head.sent.get() + burst.len() as u64);
        self.0.body.push_burst(cx, self, burst)
    }

    #[cold]
    fn push_burst_gated(&self, cx: &Kernel, burst: &mut Outgoing) -> Result<(), PushError> {
        let mut result = Ok(());
        for message in burst.drain(..) {
            result = result.and(self.push(cx, message));
        }
        result
    }

    /// Pushes a layer's burst into this session, the one below it: `prepare` puts the layer's
    /// header in front of a message, or answers false and leaves it as it is. Such a message goes
    /// to `other`, by itself and behind those before it.
    ///
    /// # Errors
    /// The first error, as of [`push_burst`](Self::push_burst).
    #[inline]
    pub fn push_prepared(
        &self,
        cx: &Kernel,
        burst: &mut Outgoing,
        mut prepare: impl FnMut(&mut Message) -> bool,
        mut other: impl FnMut(Message) -> Result<(), PushError>,
    ) -> Result<(), PushError> {
        let mut result = Ok(());
        while let Some(ready) = burst.iter_mut().position(|message| !prepare(message)) {
            let mut rest: Outgoing = burst.drain(ready..).collect();
            let message = rest.pop_at(0);
            result = result.and(self.push_burst(cx, burst));
            if let Some(message) = message {
                result = result.and(other(message));
            }
            core::mem::swap(burst, &mut rest);
        }
        result.and(self.push_burst(cx, burst))
    }

    /// Sends a request down and waits for the reply.
    ///
    /// # Errors
    /// [`CallError`], the request being gone.
    #[inline]
    pub fn call(&self, cx: &Kernel, message: Message) -> Result<Message, CallError> {
        let head = &self.0.head;
        if head.gate.get() | cx.gate() != 0 {
            return self.call_gated(cx, message);
        }
        head.sent.set(head.sent.get() + 1);
        let result = self.0.body.call(cx, self, message);
        result.map_err(|error| error.at(head.protocol))
    }

    #[cold]
    fn call_gated(&self, cx: &Kernel, message: Message) -> Result<Message, CallError> {
        let head = &self.0.head;
        if head.gate.get() & (CLOSED | RELEASED) != 0 {
            cx.count_drop(head.protocol, &reason::CLOSED);
            return Err(CallError::from(CallCause::Closed).at(head.protocol));
        }
        head.sent.set(head.sent.get() + 1);
        let crossing = (Operation::Call, head.upper);
        let act = |message| self.0.body.call(cx, self, message);
        cx.traced(crossing, self, message, act).map_err(|error| error.at(head.protocol))
    }

    /// Passes a request up into the session; used by its own protocol's `call_demux`.
    ///
    /// # Errors
    /// The request, with the reason why it is refused above.
    #[inline]
    pub fn call_pop(&self, cx: &Kernel, message: Message) -> Result<Message, Refused> {
        let head = &self.0.head;
        if head.gate.get() & (CLOSED | OPENING) | cx.gate() != 0 {
            return self.call_pop_gated(cx, message);
        }
        head.received.set(head.received.get() + 1);
        self.0.body.call_pop(cx, self, message)
    }

    #[cold]
    fn call_pop_gated(&self, cx: &Kernel, message: Message) -> Result<Message, Refused> {
        let (head, message) = (&self.0.head, self.admit(cx, message)?);
        head.received.set(head.received.get() + 1);
        let crossing = (Operation::CallPop, head.upper);
        cx.traced(crossing, self, message, |message| self.0.body.call_pop(cx, self, message))
    }

    /// Passes a message up into the session; used by its own protocol's `demux`.
    ///
    /// # Errors
    /// The message, with the reason why it is refused above.
    #[inline(always)]
    pub fn pop(&self, cx: &Kernel, message: Message) -> Result<(), Refused> {
        let head = &self.0.head;
        if head.gate.get() & (CLOSED | OPENING) | cx.gate() != 0 {
            return self.pop_gated(cx, message);
        }
        head.received.set(head.received.get() + 1);
        self.0.body.pop(cx, self, message)
    }

    /// [`pop`](Self::pop) through a handle that is needed no more: on the way of every message no
    /// register is kept for what is refused while the handle is dropped.
    ///
    /// # Errors
    /// As of [`pop`](Self::pop).
    #[inline(always)]
    pub fn pop_owned(self, cx: &Kernel, message: Message) -> Result<(), Refused> {
        match self.pop(cx, message) {
            Ok(()) => Ok(()),
            Err(refused) => self.pass_refused(refused),
        }
    }

    #[cold]
    #[inline(never)]
    fn pass_refused(self, refused: Refused) -> Result<(), Refused> {
        Err(refused)
    }

    /// The message, once the protocol above knows of the session, and if that is open then.
    fn admit(&self, cx: &Kernel, message: Message) -> Result<Message, Refused> {
        let head = &self.0.head;
        if head.gate.get() & OPENING != 0
            && let Err(why) = self.wait_until_open(cx)
        {
            return Err(self.refuse(cx, message, why));
        }
        match head.is_closed() {
            true => Err(self.refuse(cx, message, &reason::CLOSED)),
            false => Ok(message),
        }
    }

    /// Notes whether what comes up waits.
    pub(super) fn set_opening(&self, is_opening: bool) {
        let (gate, bit) = (&self.0.head.gate, u8::from(is_opening) * OPENING);
        gate.set(gate.get() & !OPENING | bit);
    }

    #[cold]
    fn pop_gated(&self, cx: &Kernel, message: Message) -> Result<(), Refused> {
        let (head, message) = (&self.0.head, self.admit(cx, message)?);
        head.received.set(head.received.get() + 1);
        let crossing = (Operation::Pop, head.upper);
        cx.traced(crossing, self, message, |message| self.0.body.pop(cx, self, message))
    }

    /// Passes several messages up into the session; used by its own protocol's `demux_burst`.
    ///
    /// # Errors
    /// The first message that is refused above; those behind it are still in the burst.
    #[inline]
    pub fn pop_burst(&self, cx: &Kernel, burst: Burst<'_>) -> Result<(), Refused> {
        let head = &self.0.head;
        if head.gate.get() & (CLOSED | OPENING) | cx.gate() != 0 || burst.is_empty() {
            return self.pop_one_by_one(cx, burst);
        }
        // The first counts at once, so that the session does not look idle; the others when it is
        // known how many were taken.
        head.received.set(head.received.get() + 1);
        let before = burst.taken();
        let result = self.0.body.pop_burst(cx, self, burst);
        let taken = (burst.taken() - before) as u64;
        head.received.set(head.received.get() + taken - 1);
        if head.is_closed() && taken > 1 {
            // Its counts were added to the protocol's when it closed.
            cx.fold_counts(head.protocol, 0, taken - 1);
        } else if taken == 0 && result.is_ok() {
            // As in `ProtocolRef::demux_burst`.
            return self.pop_one_by_one(cx, burst);
        }
        result
    }

    #[cold]
    fn pop_one_by_one(&self, cx: &Kernel, burst: Burst<'_>) -> Result<(), Refused> {
        while let Some(message) = burst.next() {
            self.pop(cx, message)?;
        }
        Ok(())
    }

    /// Refuses late what came through this session and was taken: the form of [`demux`]'s error
    /// for a receiver that queues. The message is as it was handed over, with nothing written in
    /// front. A closed session tells no sender.
    ///
    /// [`demux`]: super::Protocol::demux
    pub fn refused(&self, cx: &Kernel, refused: Refused) {
        if !self.0.head.is_closed() {
            self.0.body.refused(cx, self, refused);
        }
    }

    /// Asks a question; one put to a closed session is lost.
    pub fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if self.0.head.is_closed() {
            return cx.lose_question();
        }
        if !ask.reaches_next() {
            return Answer::Unknown;
        }
        match ask.describes(|| self.0.body.describe(self)) {
            true => Answer::Answered,
            false => self.0.body.control(cx, self, ask),
        }
    }

    /// Asks a question and gives back what was answered.
    pub fn ask<Q: Question>(&self, cx: &Kernel, mut question: Q) -> Option<Q> {
        self.control(cx, &mut Ask::new(&mut question)).is_answered().then_some(question)
    }

    /// Takes a hold on the session: it stays until as many [`SessionRef::close`] follow. Protocols
    /// call it when `open` finds the session already there; uppers call it in `open_done`.
    ///
    /// One without a holder, such as one that a message made, holds the session below
    /// ([`Session::lower`]) from now on, until its last holder releases it: a stranger's message
    /// pins nothing. What a protocol opens itself is its own to close.
    #[inline]
    pub fn hold(&self) {
        let head = &self.0.head;
        let before = head.opens.get();
        head.opens.set(before + 1);
        head.gate.set(head.gate.get() & !RELEASED);
        if before == 0 && !head.is_closed() {
            self.follow();
        }
    }

    fn follow(&self) {
        if !self.0.head.follows.replace(true) {
            self.0.body.held(self);
        }
    }

    fn unfollow(&self, cx: &Kernel) {
        if self.0.head.follows.replace(false) {
            self.0.body.eased(cx, self);
        }
    }

    /// The session that it stands on, if that has ended: nothing reaches it any more.
    pub(super) fn lost_lower(&self) -> Option<&Self> {
        self.0.body.lower().filter(|lower| lower.head().is_closed())
    }

    /// Takes back a [`hold`](Self::hold) that was there only so that no table evicts the session
    /// meanwhile. One that a message made is then as idle as before; another closes with its last
    /// hold.
    #[inline]
    pub fn ease(&self, cx: &Kernel) {
        let head = &self.0.head;
        if head.passive && head.opens.get() == 1 && !head.is_closed() {
            head.opens.set(0);
            self.unfollow(cx);
        } else {
            self.close(cx);
        }
    }

    /// Has the protocol above told by [`Protocol::gone`](super::Protocol::gone) when the session
    /// ends: by a last hold given back, its own or another's, or by its protocol.
    pub fn watch(&self) {
        self.0.head.is_watched.set(true);
    }

    /// Releases the session. With the last hold it closes; see [`Closing`].
    pub fn close(&self, cx: &Kernel) {
        let head = &self.0.head;
        let Some(left) = head.opens.get().checked_sub(1) else {
            return;
        };
        head.opens.set(left);
        if left > 0 || head.is_closed() {
            return;
        }
        match self.finish(cx) {
            Closing::Done => self.retire(cx),
            Closing::Idle => self.unfollow(cx),
            Closing::Lingering => head.gate.set(head.gate.get() | RELEASED),
        }
        if !head.is_closed()
            && let Some(lower) = self.lost_lower()
        {
            self.0.body.lower_gone(cx, self, lower);
        }
    }

    /// Has the body close, which may end what the session stands on.
    fn finish(&self, cx: &Kernel) -> Closing {
        let is_closing = &self.0.head.is_closing;
        let before = is_closing.replace(true);
        let closing = self.0.body.close(cx, self);
        is_closing.set(before);
        closing
    }

    /// Closes the session whatever holds it: for its own protocol, when it evicts an idle one,
    /// resets it, or a lingering one has finished; and where the protocol above says late that it
    /// does not want one of which it was told.
    pub fn abort(&self, cx: &Kernel) {
        let head = &self.0.head;
        if !head.is_closed() && !head.is_aborted() {
            head.gate.set(head.gate.get() | ABORTED);
            let _ = self.finish(cx);
            self.retire(cx);
        }
    }

    /// Marks it closed: from now on it answers nothing. What stands on it is told
    /// ([`Session::lower_gone`]).
    pub fn retire(&self, cx: &Kernel) {
        let head = &self.0.head;
        if head.is_closed() {
            return;
        }
        head.gate.set(head.gate.get() & ABORTED | CLOSED | RELEASED);
        cx.fold_counts(head.protocol, head.sent.get(), head.received.get());
        self.unfollow(cx);
        for upper in head.above.take().iter().filter_map(WeakSession::upgrade) {
            let head = upper.head();
            // One that closes itself has released this one.
            if !head.is_closed() && !head.is_closing.get() {
                upper.0.body.lower_gone(cx, &upper, self);
            }
        }
        if head.is_watched.get()
            && let Some(upper) = cx.protocol(head.upper)
        {
            upper.gone(cx, self);
        }
    }

    /// Counts a refusal at the session's protocol and makes it.
    #[cold]
    pub fn refuse(&self, cx: &Kernel, message: Message, reason: &'static Reason) -> Refused {
        self.count_drop(cx, reason);
        Refused::new(message, reason)
    }

    /// Drops a message, counted at the session's protocol.
    #[cold]
    pub fn discard(&self, cx: &Kernel, message: Message, reason: &'static Reason) {
        drop(message);
        self.count_drop(cx, reason);
    }

    /// Counts something dropped at the session's protocol.
    #[cold]
    pub fn count_drop(&self, cx: &Kernel, reason: &'static Reason) {
        cx.count_drop(self.0.head.protocol, reason);
    }

    /// Delivers a timer.
    pub(crate) fn timeout(&self, cx: &Kernel, token: u64) {
        if !self.0.head.is_closed() {
            self.0.body.timeout(cx, self, token);
        }
    }

    /// The protocol that it is an instance of.
    pub fn protocol(&self, cx: &Kernel) -> Option<ProtocolRef> {
        cx.protocol(self.0.head.protocol)
    }
}
