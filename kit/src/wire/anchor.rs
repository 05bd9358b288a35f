//! Skeleton of wires, but for the outside: a protocol on which one other stands, with one session.

use crate::EthAddr;
use crate::control::{JoinGroup, LeaveGroup, LinkType, MaxPacket, MyEther, OptPacket, WireRoom};
use crate::net::template::Headers;
use crate::wire::offload::{self, Offloads};
use crate::wire::{frames, segments};
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::{Describe, ListSessions};
use xk_core::object::{Arrivals, Burst, Closing, Enable, OpenError, PushError, Refused};
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason,
};

/// The link type of Ethernet in captures (`LINKTYPE_ETHERNET`).
pub const ETHERNET: u16 = 1;
/// The link type of octets without a known form: `LINKTYPE_USER0`.
pub const USER0: u16 = 147;

/// Time after which a full wire may be asked again for room, if its device does not report room.
pub const ROOM_AGAIN: Duration = Duration::from_millis(1);

/// The answer of [`Anchor::room`] for a wire that can only tell whether it has room now.
#[must_use]
pub fn room_if(has_room: bool) -> Option<Duration> {
    Some(if has_room { Duration::ZERO } else { ROOM_AGAIN })
}

/// Sizes, kind and abilities of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The longest message, in octets, link header included.
    pub frame_octets_max: usize,
    /// The link type of what passes, as in captures.
    pub link_type: u16,
    /// Our hardware address, on a link that has such addresses.
    pub address: Option<EthAddr>,
    /// Takes messages with a checksum left open ([`offload`]); otherwise it is finished before
    /// [`Anchor::send`].
    pub takes_partial_checksums: bool,
    /// Packets that a message may stand for at most, its checksum open ([`segments`]); a longer run
    /// is cut before [`Anchor::send`].
    pub run_packets_max: u16,
    /// Has frames for every group arrive without being asked for.
    pub takes_groups: bool,
}

impl Capabilities {
    /// Returns those of an Ethernet for which checksums are finished and runs cut.
    pub const fn ethernet(frame_octets_max: usize, address: EthAddr) -> Self {
        Self { link_type: ETHERNET, address: Some(address), ..Self::bare(frame_octets_max) }
    }

    /// Returns those of a link without addresses, for octets of no known form.
    pub const fn bare(frame_octets_max: usize) -> Self {
        Self {
            frame_octets_max,
            link_type: USER0,
            address: None,
            takes_partial_checksums: false,
            run_packets_max: 0,
            takes_groups: true,
        }
    }

    /// Has checksums left open, and runs of up to so many packets uncut, if it `does` that.
    #[must_use]
    pub const fn offloads(self, does: bool, packets_max: u16) -> Self {
        let run_packets_max = if does { packets_max } else { 0 };
        Self { takes_partial_checksums: does, run_packets_max, ..self }
    }
}

/// The outside of a wire: what [`Anchored`] makes a protocol and its session of. How the executor
/// looks after it is its [`Wire`].
pub trait Anchor: Wire + Sized + 'static {
    /// The upper side.
    fn end(&self) -> &WireEnd<Self>;

    /// Returns sizes, kind and abilities of the wire, as they are now.
    fn capabilities(&self) -> Capabilities;

    /// Sends or queues a message that came down through the session `this` and is not too long.
    ///
    /// # Errors
    /// [`PushError`]; the message is gone, and counted.
    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError>;

    /// Time until it takes one more message, if it can tell: zero if none is refused for want of
    /// room.
    fn room(&self, cx: &Kernel) -> Option<Duration> {
        let _ = cx;
        None
    }

    /// Has frames for this group arrive from now on, or one such wish less; true if they do arrive,
    /// or did. Wishes for one group count.
    fn set_group(&self, group: EthAddr, is_joined: bool) -> bool {
        let _ = (group, is_joined);
        self.capabilities().takes_groups
    }

    /// Description of the wire, for [`Describe`].
    fn describe(&self) -> Option<String> {
        None
    }

    /// As [`Session::control`], of its session.
    fn session_control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let _ = this;
        if let Some(question) = ask.get::<Headers>() {
            return question.found(Some(Headers::of_wire(self.capabilities().frame_octets_max)));
        }
        answer(self, cx, ask)
    }

    /// As [`Protocol::start`].
    fn start(self: &Rc<Self>, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let _ = (cx, this);
        Ok(())
    }

    /// As [`Protocol::timeout`].
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let _ = (cx, this, token);
    }

    /// As [`Protocol::stop`], before arrivals and the upper side are released. Last messages, such
    /// as a notice to peers, have been pushed.
    fn stop(&self, cx: &Kernel, this: &ProtocolRef);
}

/// The sizes and the kind of link, and what else is known of the wire.
fn answer(wire: &impl Anchor, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
    let able = wire.capabilities();
    let octets = u32::try_from(able.frame_octets_max).unwrap_or(u32::MAX);
    if let Some(q) = ask.get::<MaxPacket>() {
        q.octets = octets;
    } else if let Some(q) = ask.get::<OptPacket>() {
        q.octets = octets;
    } else if let Some(q) = ask.get::<LinkType>() {
        q.number = able.link_type;
    } else if let (Some(q), Some(address)) = (ask.get::<MyEther>(), able.address) {
        q.address = address.0;
    } else if let Some(q) = ask.get::<WireRoom>() {
        match wire.room(cx) {
            Some(after) => q.after = after,
            None => return Answer::Unknown,
        }
    } else if let Some(q) = ask.get::<Describe>() {
        match wire.describe() {
            Some(text) => q.text = text,
            None => return Answer::Unknown,
        }
    } else {
        let is_taken = match (ask.get::<JoinGroup>().copied(), ask.get::<LeaveGroup>()) {
            (Some(join), _) => wire.set_group(EthAddr(join.address), true),
            (None, Some(leave)) => wire.set_group(EthAddr(leave.address), false),
            (None, None) => false,
        };
        return if is_taken { Answer::Answered } else { Answer::Unknown };
    }
    Answer::Answered
}

/// The upper side of a wire: the protocol above, the only session, and what has arrived for it.
///
/// The upper protocol opens the session, or enables, or both; without an open, the first arrival
/// makes the session.
pub struct WireEnd<A> {
    wire: Weak<A>,
    arrivals: Arrivals,
    upper: RefCell<Option<ProtocolRef>>,
    /// The number of the enable in force; 0 if there is none.
    enabled: Cell<u64>,
    /// Number of the last enable.
    enable_last: Cell<u64>,
    session: RefCell<Option<SessionRef>>,
}

impl<A: Anchor> WireEnd<A> {
    fn claim(&self, receiver: &ProtocolRef) -> Result<(), OpenError> {
        match &*self.upper.borrow() {
            Some(upper) if upper != receiver => return Err(OpenError::InUse),
            _ => {}
        }
        *self.upper.borrow_mut() = Some(receiver.clone());
        Ok(())
    }

    fn is_enabled(&self) -> bool {
        self.enabled.get() != 0
    }

    /// Takes the wire from a protocol that neither enables any more nor holds the session which its
    /// enable once made.
    fn evict_idle(&self, cx: &Kernel, receiver: &ProtocolRef) {
        let session = self.session().filter(|_| !self.is_enabled());
        if let Some(idle) = session
            && idle.head().opens() == 0
            && idle.head().upper() != receiver.id()
        {
            idle.abort(cx);
        }
    }

    /// The session, if there is one.
    pub fn session(&self) -> Option<SessionRef> {
        self.session.borrow().clone()
    }

    /// Messages that have arrived and have not been delivered yet.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Passes an arrival up, making the session if need be. A refusal ends here: the refuser has
    /// counted it.
    pub fn deliver(&self, cx: &Kernel, this: &ProtocolRef, message: Message) {
        if let Some(session) = self.session() {
            drop(session.pop(cx, message));
            return;
        }
        let upper = self.upper.borrow().clone().filter(|_| self.is_enabled());
        let (Some(upper), Some(wire)) = (upper, self.wire.upgrade()) else {
            this.discard(message, &reason::NO_PROTOCOL);
            return;
        };
        let body = WireSession { wire, upper: upper.clone() };
        let session = cx.new_passive_session(this, &upper, 0, body);
        *self.session.borrow_mut() = Some(session.clone());
        match session.announce(cx, &upper, Participants::default()) {
            Ok(()) => drop(session.pop(cx, message)),
            Err(why) => {
                self.session.take();
                session.retire(cx);
                this.discard(message, why);
            }
        }
    }

    /// Passes up what has arrived, in bursts, but for a first arrival that makes the session. Takes
    /// at most `budget` messages, and stops when the shepherd that carries them no longer leads the
    /// loop. Answers how many it took: for the wire's `poll`.
    pub fn deliver_all(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        let mut count = 0;
        while count < budget && !cx.must_leave() {
            let taken = match self.session() {
                Some(session) => self.arrivals.deliver(cx, &session, budget - count),
                None => match self.arrivals.pop_front() {
                    Some(message) => {
                        self.deliver(cx, this, message);
                        1
                    }
                    None => 0,
                },
            };
            if taken == 0 {
                break;
            }
            count += taken;
        }
        count
    }
}

/// A wire as a protocol object. One protocol stands on it.
pub struct Anchored<A>(Rc<A>);

impl<A: Anchor> Anchored<A> {
    /// The protocol object of the wire that `make` makes around its upper side.
    pub fn new(make: impl FnOnce(WireEnd<A>) -> A) -> Self {
        Self(Rc::new_cyclic(|wire| {
            make(WireEnd {
                wire: wire.clone(),
                arrivals: Arrivals::default(),
                upper: RefCell::default(),
                enabled: Cell::new(0),
                enable_last: Cell::new(0),
                session: RefCell::default(),
            })
        }))
    }

    /// The wire, for what makes messages arrive on its own.
    pub fn wire(&self) -> &Rc<A> {
        &self.0
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
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        ends.check_one_peer()?;
        let end = self.0.end();
        end.evict_idle(cx, upper.receiver);
        end.claim(upper.receiver)?;
        if let Some(session) = end.session() {
            session.hold();
            return Ok(session);
        }
        let body = WireSession { wire: Rc::clone(&self.0), upper: upper.receiver.clone() };
        let session = cx.new_session(this, upper.receiver, body);
        *end.session.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    /// Enabled once more, a protocol has one enable all the same.
    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let end = self.0.end();
        end.claim(upper.receiver)?;
        if !end.is_enabled() {
            end.enable_last.set(end.enable_last.get() + 1);
            end.enabled.set(end.enable_last.get());
        }
        Ok(Enable(end.enabled.get()))
    }

    /// An enable withdrawn before withdraws nothing of a later one. A session that it made stays
    /// until another protocol opens the wire.
    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        let end = self.0.end();
        if !end.is_enabled() || enable.0 != end.enabled.get() {
            return;
        }
        end.enabled.set(0);
        if end.session.borrow().is_none() {
            drop(end.upper.take());
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let wire = &*self.0;
        if let Some(list) = ask.get::<ListSessions>() {
            wire.end().session().iter().for_each(|session| list.push(session));
        } else if let Some(question) = ask.get::<Offloads>() {
            let able = wire.capabilities();
            let segments = able.run_packets_max > 0;
            question.answer_wire(this.id(), able.takes_partial_checksums, segments);
        } else {
            return answer(wire, cx, ask);
        }
        Answer::Answered
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        self.0.timeout(cx, this, token);
    }

    fn stop(&self, cx: &Kernel, this: &ProtocolRef) {
        self.0.stop(cx, this);
        let end = self.0.end();
        end.arrivals.clear();
        end.enabled.set(0);
        drop(end.session.take());
        drop(end.upper.take());
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(&*self.0)
    }
}

/// The wire's only session.
struct WireSession<A> {
    wire: Rc<A>,
    upper: ProtocolRef,
}

impl<A: Anchor> WireSession<A> {
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

impl<A: Anchor> Session for WireSession<A> {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let able = self.wire.capabilities();
        if let Some(run) = segments::of(&message)
            && (run.packets() > able.run_packets_max || !frames::is_for_devices(&message))
        {
            return self.push_run(cx, this, message);
        }
        if !able.takes_partial_checksums
            && offload::finish_checksum(cx.pool(), &mut message).is_err()
        {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if segments::longest(&message) > able.frame_octets_max {
            this.discard(cx, message, &reason::TOO_BIG);
            return Err(PushError::TooBig);
        }
        self.wire.send(cx, this, message)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    #[inline]
    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        self.wire.session_control(cx, this, ask)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        let end = self.wire.end();
        if end.is_enabled() && !this.head().is_aborted() {
            return Closing::Idle;
        }
        drop(end.session.take());
        if !end.is_enabled() {
            drop(end.upper.take());
        }
        Closing::Done
    }
}
