//! What all wires have in common, but for the outside: a protocol on which one other stands, with
//! one session.

use crate::control::{LinkType, MaxPacket, OptPacket};
use crate::wire::wire_end::WireEnd;
use crate::wire::{offload, segments};
use alloc::rc::Rc;
use core::any::Any;
use xk_core::object::{Arrivals, Burst, Closing, Enable, OpenError, PushError, Refused};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Time, Upper, reason,
};

/// The link type of Ethernet in captures (`LINKTYPE_ETHERNET`).
pub const ETHERNET: u16 = 1;

/// The outside of a wire: what [`Anchored`] makes a protocol and its session of. The operations are
/// those of [`Protocol`] and [`Wire`] of the same names.
pub trait Anchor: Sized + 'static {
    /// The upper side.
    fn end(&self) -> &WireEnd;

    /// The longest message, in octets, link header included.
    fn frame_octets_max(&self) -> usize;

    /// The link type of what passes, as in captures.
    fn link_type(&self) -> u16;

    /// True if messages may come down with a checksum left open ([`offload`]); otherwise it is
    /// settled before [`send`](Self::send).
    fn takes_partial_checksums(&self) -> bool {
        false
    }

    /// True if messages may come down that stand for a run of segments, their checksum open
    /// ([`segments`]); otherwise they are cut before [`send`](Self::send).
    fn takes_segments(&self) -> bool {
        false
    }

    /// Sends or queues a message that came down through the session `this` and is not too long.
    ///
    /// # Errors
    /// [`PushError`]; the message is gone, and counted.
    fn send(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError>;

    /// Answers a question that is not about the sizes and the kind of link.
    fn answer(&self, ask: &mut Ask<'_>) -> Answer;

    /// Answers a question put to the protocol and not to the session.
    fn answer_protocol(&self, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let _ = (this, ask);
        Answer::Unknown
    }

    /// As [`Protocol::start`].
    ///
    /// # Errors
    /// Whatever prevents the graph from running.
    fn start(self: &Rc<Self>, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let _ = (cx, this);
        Ok(())
    }

    /// As [`Protocol::stop`], before the upper side is let go of. Last words, such as a farewell to
    /// peers, have been pushed.
    fn stop(&self, cx: &Kernel, this: &ProtocolRef);

    /// As [`Wire::poll`].
    fn poll(self: &Rc<Self>, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize;

    /// As [`Wire::flush`].
    fn flush(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// As [`Wire::descriptor`].
    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        let _ = see;
    }

    /// As [`Wire::next_poll`].
    fn next_poll(&self) -> Option<Time> {
        None
    }

    /// As [`Wire::wants_writable`].
    fn wants_writable(&self) -> bool {
        false
    }

    /// As [`Wire::rest`].
    fn rest(&self, cx: &Kernel, this: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        let _ = (cx, this, sleeper);
        true
    }

    /// As [`Wire::woken`].
    fn woken(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// As [`Wire::may_spin`].
    fn may_spin(&self) -> bool {
        true
    }

    /// Passes one arrival up, making the session if need be.
    #[inline]
    fn deliver(self: &Rc<Self>, cx: &Kernel, this: &ProtocolRef, message: Message) {
        let make = |upper| AnchorSession::new(self, upper);
        self.end().deliver(cx, this, message, make);
    }

    /// Passes up what waits, in bursts, at most `budget` messages. Answers how many: for
    /// [`poll`](Self::poll).
    #[inline]
    fn deliver_all(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        arrivals: &Arrivals,
        budget: usize,
    ) -> usize {
        let make = |upper| AnchorSession::new(self, upper);
        self.end().deliver_all(cx, this, arrivals, budget, make)
    }
}

/// The sizes and the kind of link, and what else the wire knows.
fn answer(anchor: &impl Anchor, ask: &mut Ask<'_>) -> Answer {
    let octets = u32::try_from(anchor.frame_octets_max()).unwrap_or(u32::MAX);
    if let Some(q) = ask.get::<MaxPacket>() {
        q.octets = octets;
    } else if let Some(q) = ask.get::<OptPacket>() {
        q.octets = octets;
    } else if let Some(q) = ask.get::<LinkType>() {
        q.number = anchor.link_type();
    } else {
        return anchor.answer(ask);
    }
    Answer::Answered
}

/// A wire as a protocol object. One protocol stands on it.
pub struct Anchored<A>(Rc<A>);

impl<A: Anchor> Anchored<A> {
    /// The protocol object of this wire.
    pub fn new(anchor: A) -> Self {
        Self(Rc::new(anchor))
    }

    /// The same, of a wire that others know as well.
    pub fn of(anchor: Rc<A>) -> Self {
        Self(anchor)
    }
}

impl<A: Anchor> Protocol for Anchored<A> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        self.0.start(cx, this)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let make = |upper| AnchorSession::new(&self.0, upper);
        self.0.end().open(cx, this, upper, make)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.0.end().open_enable(upper)
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.0.end().open_disable(enable);
    }

    fn control(&self, _: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if self.0.end().control(ask).is_answered()
            || self.0.answer_protocol(this, ask).is_answered()
        {
            return Answer::Answered;
        }
        answer(&*self.0, ask)
    }

    fn stop(&self, cx: &Kernel, this: &ProtocolRef) {
        self.0.stop(cx, this);
        self.0.end().stop();
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl<A: Anchor> Wire for Anchored<A> {
    #[inline]
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        self.0.poll(cx, this, budget)
    }

    #[inline]
    fn flush(&self, cx: &Kernel, this: &ProtocolRef) {
        self.0.flush(cx, this);
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.0.descriptor(see);
    }

    fn next_poll(&self) -> Option<Time> {
        self.0.next_poll()
    }

    #[inline]
    fn wants_writable(&self) -> bool {
        self.0.wants_writable()
    }

    fn rest(&self, cx: &Kernel, this: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        self.0.rest(cx, this, sleeper)
    }

    fn woken(&self, cx: &Kernel, this: &ProtocolRef) {
        self.0.woken(cx, this);
    }

    fn may_spin(&self) -> bool {
        self.0.may_spin()
    }
}

/// The wire's only session.
struct AnchorSession<A> {
    anchor: Rc<A>,
    upper: ProtocolRef,
}

impl<A> AnchorSession<A> {
    fn new(anchor: &Rc<A>, upper: ProtocolRef) -> Self {
        let anchor = Rc::clone(anchor);
        Self { anchor, upper }
    }
}

impl<A: Anchor> AnchorSession<A> {
    /// Sends a run of segments packet by packet. What becomes of the first that fails is the
    /// answer.
    #[cold]
    fn push_run(&self, cx: &Kernel, this: &SessionRef, run: Message) -> Result<(), PushError> {
        let pieces = match segments::split(run) {
            Ok(pieces) => pieces,
            Err(why) => {
                count(cx, this, why);
                return Err(PushError::NotSupported);
            }
        };
        let mut result = Ok(());
        for piece in pieces {
            let pushed = match piece {
                Ok(piece) => self.push(cx, this, piece),
                Err(why) => {
                    count(cx, this, why);
                    Err(PushError::NoBuffers)
                }
            };
            result = result.and(pushed);
        }
        result
    }
}

/// Counts a message as dropped at the session's protocol.
#[cold]
fn count(cx: &Kernel, this: &SessionRef, why: &'static Reason) {
    if let Some(protocol) = this.protocol(cx) {
        protocol.head().drops().count(why);
    }
}

impl<A: Anchor> Session for AnchorSession<A> {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let anchor = &self.anchor;
        if !anchor.takes_segments() && segments::of(&message).is_some() {
            return self.push_run(cx, this, message);
        }
        if !anchor.takes_partial_checksums() && offload::settle(cx.pool(), &mut message).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        let octets_max = anchor.frame_octets_max();
        if segments::longest(&message) > octets_max {
            this.discard(cx, message, &reason::TOO_BIG);
            let max = u32::try_from(octets_max).unwrap_or(u32::MAX);
            return Err(PushError::TooBig { max });
        }
        anchor.send(cx, this, message)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    #[inline]
    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        answer(&*self.anchor, ask)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.anchor.end().close()
    }
}
