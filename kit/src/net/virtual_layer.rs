//! A layer without a header that has several layers below: each host is reached by one or another
//! of them, and what arrives by any of them comes through one session.
//!
//! [`VirtualLayer`] is what is a protocol's own: which ways a session has, and which of them a
//! message takes. [`Virtual`] is the protocol object and [`VirtualSession`] the session object that
//! are made of it.
//!
//! ```text
//! open         admit -> found again, or begin, connect
//! open_enable  an offer to each layer below
//! open_done    session_for: found, or begin -> the upper's open_done; heard
//! demux        by the mark that the lower session bears; without one as in open_done
//! push         VirtualLayer::push
//! ```

use crate::Marks;
use crate::control::{MinPacket, PeerEther, PeerHost, SpecificDestination};
use crate::net::neighbour::{UNKNOWN_STATION, peer_host};
use crate::net::receivers::{LINK_MIN, UpperReceiver, UpperReceivers, has_no_answer, lead_up};
use crate::net::template::Headers;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Deref;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError, ParamSpec, int};
use xk_core::object::{
    Burst, Closing, Enable, OpenError, Outgoing, PushError, Refused, SessionTable,
};
use xk_core::participant::AddressError;
use xk_core::reason::{self, Class};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason,
    Session, SessionRef, Upper,
};

/// None of the layers below leads to the host.
pub static NO_WAY: Reason = Reason::new("no way to the host", Class::Exhausted);

/// The parameter of such a layer that bounds its sessions.
#[rustfmt::skip]
pub const SESSIONS_MAX: ParamSpec = int("sessions_max", 1..=1_048_575, 65_536,
    "how many sessions it holds");
/// The parameter of such a layer that bounds its idle sessions.
#[rustfmt::skip]
pub const IDLE_MAX: ParamSpec = int("idle_max", 1..=1_048_575, 4096,
    "from how many sessions on each that a message makes takes the place of an idle one");

/// A layer without a header above several others.
pub trait VirtualLayer: Sized + 'static {
    /// State of a session.
    type State: 'static;

    /// Refuses an upper protocol that cannot stand on the layer.
    ///
    /// # Errors
    /// [`OpenError`].
    fn admit(&self, cx: &Kernel, upper: Upper<'_>) -> Result<(), OpenError> {
        let _ = (cx, upper);
        Ok(())
    }

    /// Participants that are offered to the layer below at `at` for an offer with these.
    fn offered(at: usize, ends: &Participants) -> Participants {
        let _ = at;
        ends.clone()
    }

    /// The state of a session with these participants, which a message began or an open.
    fn begin(
        all: &Virtual<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        ends: &Participants,
        is_passive: bool,
    ) -> Self::State;

    /// Finds the ways of a session that was opened from above.
    ///
    /// # Errors
    /// [`OpenError`] if none leads to the host.
    fn connect(own: &VirtualSession<Self>, cx: &Kernel) -> Result<(), OpenError>;

    /// The session that what comes through `lower`, with these participants, belongs to.
    ///
    /// # Errors
    /// Why there is none.
    fn session_for(
        all: &Virtual<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        ends: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        all.session_for(cx, this, lower, ends)
    }

    /// Marks a lower session as leading to this one.
    fn heard(own: &VirtualSession<Self>, lower: &SessionRef) {
        lower.head().set_tag(own.mark.get());
    }

    /// As [`push`](Session::push) of a session.
    ///
    /// # Errors
    /// [`PushError`].
    fn push(
        own: &VirtualSession<Self>,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError>;

    /// As [`push_burst`](Session::push_burst) of a session.
    ///
    /// # Errors
    /// [`PushError`].
    fn push_burst(
        own: &VirtualSession<Self>,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        own.push_each(cx, this, burst)
    }

    /// A line about a session, for `xk dump`.
    fn describe(own: &VirtualSession<Self>) -> String;

    /// The protocol above refuses a message late, which came one of the ways. By default it ends
    /// here.
    fn refused(own: &VirtualSession<Self>, cx: &Kernel, refused: Refused) {
        let _ = (own, cx, refused);
    }

    /// As [`control`](Session::control) of a session; [`VirtualSession::answer`] has what all
    /// answer.
    fn session_control(own: &VirtualSession<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer;

    /// The headers of a session's messages: those of the way that the smallest take.
    fn headers(own: &VirtualSession<Self>, cx: &Kernel) -> Option<Headers> {
        let _ = (own, cx);
        None
    }

    /// Takes what a layer below tells of a host; false if the question is another.
    fn told(all: &Virtual<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> bool {
        let _ = (all, cx, ask);
        false
    }

    /// A session is closed: its ways are given back.
    fn end(own: &VirtualSession<Self>, cx: &Kernel);

    /// The graph starts.
    fn start(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// A timer of the layer goes off.
    fn timeout(all: &Virtual<Self>, cx: &Kernel, this: &ProtocolRef) {
        let _ = (all, cx, this);
    }

    /// The graph is being taken down.
    fn stop(&self) {}
}

/// Shared state of the objects of one layer.
pub struct Parts<V> {
    /// The layer's own part.
    pub layer: V,
    /// The layers below; questions that no session answers go to the last.
    pub lowers: Vec<ProtocolRef>,
    /// The protocols above.
    pub uppers: UpperReceivers,
    sessions: SessionTable<Key>,
    /// The marks of lower sessions.
    pub marks: Marks,
}

/// The protocol object of a layer, or that by which it receives for one of those above.
pub struct Virtual<V> {
    parts: Rc<Parts<V>>,
    /// The place of the upper protocol that this object receives for.
    place: usize,
}

impl<V> Deref for Virtual<V> {
    type Target = Parts<V>;

    #[inline(always)]
    fn deref(&self) -> &Parts<V> {
        &self.parts
    }
}

/// The peer's host, the place of the upper protocol, and the broadcast or group that messages are
/// sent to, or none.
type Key = (HostAddr, u32, HostAddr);

/// The host of ours in these participants; unspecified if answers cannot come from it.
pub fn local_host(ends: &Participants) -> HostAddr {
    match ends.iter().next().and_then(|local| local.top()) {
        Some(Part::Host(host)) if !host.is_group() => *host,
        _ => HostAddr::UNSPECIFIED,
    }
}

impl<V: VirtualLayer> Virtual<V> {
    /// Adds a layer to a kernel at its place in a graph; its entry has the parameters
    /// [`SESSIONS_MAX`] and [`IDLE_MAX`].
    ///
    /// # Errors
    /// [`BuildError::Param`].
    pub fn build(build: &Build<'_>, layer: V) -> Result<ProtocolRef, BuildError> {
        let sessions_max: usize = build.int(SESSIONS_MAX.name)?;
        let sessions = SessionTable::new(build.cx.secret(), sessions_max.min(Marks::MAX));
        let parts = Parts {
            layer,
            lowers: build.lowers.to_vec(),
            uppers: UpperReceivers::default(),
            sessions: sessions.with_idle_max(build.int(IDLE_MAX.name)?),
            marks: Marks::default(),
        };
        build.add(Self { parts: Rc::new(parts), place: 0 })
    }

    /// Calls `see` with the session of each upper protocol to a host.
    pub fn for_host(&self, host: HostAddr, see: impl Fn(&VirtualSession<V>)) {
        for place in 0..self.uppers.len() {
            let session = self.sessions.get(&(host, place as u32, HostAddr::UNSPECIFIED));
            if let Some(own) = session.as_ref().and_then(SessionRef::body) {
                see(own);
            }
        }
    }

    /// Calls `see` with each session; false if there is none.
    pub fn for_each(&self, see: impl Fn(&VirtualSession<V>)) -> bool {
        let all = self.sessions.sessions(usize::MAX);
        all.iter().filter_map(SessionRef::body).for_each(see);
        !all.is_empty()
    }

    fn receiver(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
    ) -> Result<(usize, UpperReceiver), OpenError> {
        self.layer.admit(cx, upper)?;
        let object = |place| Self { parts: Rc::clone(&self.parts), place };
        self.uppers.place(cx, this, upper, object)
    }

    fn make(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (key, receiver): (Key, UpperReceiver),
        ends: &Participants,
        (is_passive, sent_to): (bool, Option<HostAddr>),
    ) -> Result<SessionRef, OpenError> {
        let upper = receiver.upper.clone();
        let body = VirtualSession {
            state: V::begin(self, cx, this, ends, is_passive),
            all: Self { parts: Rc::clone(&self.parts), place: self.place },
            key,
            receiver,
            sent_to,
            mark: Cell::new(0),
            is_closed: Cell::new(false),
        };
        let session = match is_passive {
            true => cx.new_passive_session(this, &upper, key.0.source(), body),
            false => cx.new_session(this, &upper, body),
        };
        let bound = self.sessions.bind(cx, key, session.clone());
        let mark = bound.ok().and_then(|()| self.marks.mark(&session));
        match (mark, session.body::<VirtualSession<V>>()) {
            (Some(mark), Some(own)) => own.mark.set(mark),
            _ => {
                session.abort(cx);
                return Err(OpenError::Full);
            }
        }
        Ok(session)
    }

    /// The session that a message's peer has with the upper protocol of this object, made if there
    /// is none. What is sent to many hosts has one of its own: it is not for upper protocols that
    /// serve one peer at a time.
    ///
    /// # Errors
    /// Why there is none.
    pub fn session_for(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        ends: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        let receiver = self.uppers.get(self.place).ok_or(&reason::NO_PROTOCOL)?;
        let local = local_host(&ends);
        let find = |below| peer_host(cx, below, lower, ends.clone()).ok();
        let (host, sent_to) = cx.unless_lost(|| {
            let host = self.lowers.iter().find_map(find);
            (host, lower.ask(cx, SpecificDestination::default()))
        })?;
        let host = host.ok_or(&UNKNOWN_STATION)?;
        let sent_to = sent_to.filter(|to| to.many).map(|to| to.host);
        let key = (host, self.place as u32, sent_to.unwrap_or_default());
        if let Some(session) = self.sessions.get(&key) {
            return Ok(session);
        }
        let upper = receiver.upper.clone();
        let both = Participants::pair(Part::host_or_any(local), Part::Host(host));
        let made = self.make(cx, this, (key, receiver), &both, (true, sent_to));
        let session = made.map_err(|_| &reason::TABLE_FULL)?;
        session.announce(cx, &upper, both).inspect_err(|_| session.abort(cx))?;
        Ok(session)
    }

    /// Leads a lower session to the one above that it belongs to.
    fn adopt(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        ends: Participants,
    ) -> Result<SessionRef, &'static Reason> {
        let session = V::session_for(self, cx, this, lower, ends)?;
        if let Some(own) = session.body::<VirtualSession<V>>() {
            V::heard(own, lower);
        }
        Ok(session)
    }

    /// A message through a lower session that leads nowhere: its peer was forgotten, or has become
    /// another.
    #[cold]
    #[inline(never)]
    fn demux_lost(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let host = lower.ask(cx, PeerHost::default());
        let peer = match host {
            Some(host) => Some(Part::Host(host.host)),
            None => lower.ask(cx, PeerEther::default()).map(|ether| Part::Ether(ether.address)),
        };
        let Some(peer) = peer else {
            return Err(this.refuse(message, &UNKNOWN_STATION));
        };
        match self.adopt(cx, this, lower, Participants::pair(Part::Any, peer)) {
            Ok(session) => session.pop(cx, message),
            Err(why) => Err(this.refuse(message, why)),
        }
    }

    /// The protocol above the session that a layer below asks about, named as it is known there.
    fn asked_about(&self, ask: &mut Ask<'_>) -> Option<ProtocolRef> {
        let session = lead_up(ask, |lower| self.marks.get(lower.head().tag()))??;
        Some(session.body::<VirtualSession<V>>()?.receiver.upper.clone())
    }
}

impl<V: VirtualLayer> Protocol for Virtual<V> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if self.place == 0 {
            self.layer.start(cx, this);
        }
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let mut parts = ends.clone();
        let host = parts.peer_mut()?.pop_host()?.definite()?;
        parts.local_mut()?.pop_host()?;
        if host.is_unspecified() {
            return Err(OpenError::Address(AddressError::OutOfRange));
        }
        let (place, receiver) = self.receiver(cx, this, upper)?;
        let key = (host, place as u32, HostAddr::UNSPECIFIED);
        if let Some(session) = self.sessions.found(&key, upper.receiver)? {
            return Ok(session);
        }
        let session = self.make(cx, this, (key, receiver), &ends, (false, None))?;
        let own = session.body::<VirtualSession<V>>();
        let connected = own.map_or(Err(OpenError::NoLower), |own| V::connect(own, cx));
        connected.inspect_err(|_| session.abort(cx))?;
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        let (_, receiver) = self.receiver(cx, this, upper)?;
        self.uppers.offer(cx, &receiver, &self.lowers, |at| V::offered(at, &ends))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.uppers.withdraw(cx, enable);
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        ends: Participants,
    ) -> Result<(), &'static Reason> {
        self.adopt(cx, this, lower, ends).map(drop)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.marks.get(lower.head().tag()) {
            Some(session) => session.pop(cx, message),
            None => self.demux_lost(cx, this, lower, message),
        }
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        if let Some(session) = self.marks.get(lower.head().tag()) {
            return session.pop_burst(cx, burst);
        }
        while let Some(message) = burst.next_through(lower) {
            self.demux(cx, this, lower, message)?;
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if V::told(self, cx, ask) {
            return Answer::Answered;
        }
        if has_no_answer(ask) {
            return Answer::Unknown;
        }
        let above = self.uppers.ask_above(cx, ask, |ask| self.asked_about(ask));
        let below = || self.lowers.last().map_or(Answer::Unknown, |last| last.control(cx, ask));
        above.unwrap_or_else(below)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.sessions);
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.lowers.last()
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        V::timeout(self, cx, this);
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        if self.place != 0 {
            return;
        }
        for session in self.sessions.sessions(usize::MAX) {
            session.abort(cx);
        }
        self.sessions.clear();
        drop(self.marks.take_all());
        self.uppers.clear();
        self.layer.stop();
    }
}

/// One upper protocol's end of the traffic with one host.
pub struct VirtualSession<V: VirtualLayer> {
    /// The layer that it is of.
    pub all: Virtual<V>,
    /// The upper protocol.
    pub receiver: UpperReceiver,
    /// Mark of the lower sessions that lead here.
    pub mark: Cell<u32>,
    /// Whether it is closed, and opens nothing more.
    pub is_closed: Cell<bool>,
    /// The layer's own state of the session.
    pub state: V::State,
    key: Key,
    /// The broadcast or group that its messages are sent to, if it is for those.
    sent_to: Option<HostAddr>,
}

impl<V: VirtualLayer> VirtualSession<V> {
    /// The host at the other end.
    pub fn host(&self) -> HostAddr {
        self.key.0
    }

    /// Pushes the messages of a burst one by one.
    ///
    /// # Errors
    /// The first [`PushError`].
    pub fn push_each(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let mut result = Ok(());
        for message in burst.drain(..) {
            result = result.and(V::push(self, cx, this, message));
        }
        result
    }

    /// Answers as the session `way` does, or the last layer below while there is none.
    pub fn answer(&self, cx: &Kernel, way: Option<SessionRef>, ask: &mut Ask<'_>) -> Answer {
        if has_no_answer(ask) {
            return Answer::Unknown;
        }
        match (way, self.all.lowers.last()) {
            (Some(way), _) => way.control(cx, ask),
            (None, Some(lower)) => lower.control(cx, ask),
            (None, None) => Answer::Unknown,
        }
    }
}

impl<V: VirtualLayer> Session for VirtualSession<V> {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        V::push(self, cx, this, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        V::push_burst(self, cx, this, burst)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.receiver.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.receiver.upper.demux_burst(cx, this, burst)
    }

    fn refused(&self, cx: &Kernel, _: &SessionRef, refused: Refused) {
        V::refused(self, cx, refused);
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<PeerHost>() {
            question.host = self.host();
        } else if let Some(question) = ask.get::<MinPacket>() {
            question.octets = LINK_MIN;
        } else if let Some(question) = ask.get::<Headers>() {
            return question.found(V::headers(self, cx));
        } else if let Some(host) = self.sent_to
            && let Some(question) = ask.get::<SpecificDestination>()
        {
            (question.host, question.many) = (host, true);
        } else {
            return V::session_control(self, cx, ask);
        }
        Answer::Answered
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        Some(V::describe(self))
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.is_closed.set(true);
        self.all.sessions.release(&self.key, this);
        V::end(self, cx);
        self.all.marks.leave(self.mark.get());
        Closing::Done
    }
}
