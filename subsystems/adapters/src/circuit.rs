//! Streams of octets over an edge: ends of the streams that the x-kernel's protocol below carries.
//! They use the questions of the kit's `stream`.
//!
//! A [`Circuit`] is one end: the octets that have arrived, those to send, and how the stream ended.
//! The half above is its [`User`], by a socket or by the transport interface.

use crate::edge::{Edge, Fault, remove};
use crate::form::Addr;
use crate::parcel::Parcel;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_bsd::errno::Errno;
use xk_core::object::{Enable, ProtocolId, SessionId};
use xk_core::reason::{self, Reason};
use xk_core::{HostAddr, Kernel, Message, Participants, SessionRef, Upper};
use xk_kit::control::{NetworkErrorKind, PeerHost, PeerPort};
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamError, StreamEvent, StreamNotice, StreamRoom, StreamSet,
    StreamSetNext, StreamSetting, StreamShutdown, StreamSpace,
};
use xk_streams::Errno as Number;

/// Largest number of streams of one adapter.
const STREAMS_MAX: usize = 4096;
/// Largest number of octets that go down at once.
pub(crate) const CHUNK: usize = 16 << 10;

/// The error numbers of BSD and of STREAMS with which users see that a stream broke.
pub(crate) fn numbers(error: StreamError) -> (Errno, Number) {
    match error {
        StreamError::Refused => (Errno::ECONNREFUSED, Number::ECONNREFUSED),
        StreamError::Reset => (Errno::ECONNRESET, Number::ECONNRESET),
        StreamError::TimedOut => (Errno::ETIMEDOUT, Number::ETIMEDOUT),
        StreamError::Network(NetworkErrorKind::NetUnreachable | NetworkErrorKind::NetUnknown) => {
            (Errno::ENETUNREACH, Number::EHOSTUNREACH)
        }
        StreamError::Network(_) => (Errno::EHOSTUNREACH, Number::EHOSTUNREACH),
        StreamError::Aborted => (Errno::ECONNABORTED, Number::ECONNABORTED),
        StreamError::NoBuffers => (Errno::ENOBUFS, Number::ENOSR),
    }
}

/// A request for streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The protocol above that sends and receives.
    pub(crate) selector: ProtocolId,
    /// Our end, as far as it is given.
    pub(crate) local: Addr,
    /// Largest number of octets that have arrived and are not consumed.
    pub(crate) unread_max: u32,
}

impl Wanted {
    /// Settings of a stream whose user says what it has consumed.
    fn settings(&self) -> [StreamSet; 2] {
        [StreamSetting::ManualWindow(true), StreamSetting::ReceiveBuffer(self.unread_max)]
            .map(|setting| StreamSet { setting, taken: true })
    }
}

/// User of streams: an endpoint of the half above.
pub(crate) trait User {
    /// Called when octets have arrived.
    fn arrived(&self, cx: &Kernel);

    /// Called for an event, after the circuit has noted it: a circuit that broke or ended is closed
    /// by then.
    fn happened(&self, cx: &Kernel, event: StreamEvent);

    /// Number of octets that wait to be sent.
    fn waiting(&self) -> usize;

    /// Another handle of the first `octets` waiting octets; `None` without buffers.
    fn first(&self, octets: usize) -> Option<Parcel>;

    /// Called when the first `octets` waiting octets have gone.
    fn sent(&self, octets: usize);

    /// Called when waiting octets did not go: the user tries again.
    fn retry(&self, cx: &Kernel) {
        let _ = cx;
    }

    /// Whether a user that listens has room for one peer more.
    fn has_room(&self) -> bool;

    /// Takes a stream that a peer has opened; nothing has arrived on it before.
    ///
    /// # Errors
    /// The reason why it does not take the stream, which is then reset.
    fn accept(&self, cx: &Kernel, circuit: Rc<Circuit>) -> Result<(), &'static Reason>;
}

/// One end of a stream, from its opening on.
pub(crate) struct Circuit {
    circuits: Weak<Circuits>,
    /// The session below, until it is released.
    session: RefCell<Option<SessionRef>>,
    user: RefCell<Option<Weak<dyn User>>>,
    pub(crate) peer: Addr,
    /// Messages that have not gone up yet.
    arrived: RefCell<VecDeque<Message>>,
    is_connected: Cell<bool>,
    /// Whether the peer has ended its stream.
    is_ended: Cell<bool>,
    broken: Cell<Option<StreamError>>,
    /// Whether octets go down now. A further call of `output` meanwhile only sets `again`.
    is_sending: Cell<bool>,
    again: Cell<bool>,
}

impl Circuit {
    fn new(circuits: &Rc<Circuits>, session: SessionRef, peer: Addr, is_connected: bool) -> Self {
        Self {
            circuits: Rc::downgrade(circuits),
            session: RefCell::new(Some(session)),
            user: RefCell::default(),
            peer,
            arrived: RefCell::default(),
            is_connected: Cell::new(is_connected),
            is_ended: Cell::new(false),
            broken: Cell::new(None),
            is_sending: Cell::new(false),
            again: Cell::new(false),
        }
    }

    fn session(&self) -> Option<SessionRef> {
        self.session.borrow().clone()
    }

    fn user(&self) -> Option<Rc<dyn User>> {
        self.user.borrow().as_ref()?.upgrade()
    }

    /// Sets the user, which the circuit does not keep alive.
    pub(crate) fn set_user(&self, user: Weak<dyn User>) {
        drop(self.user.replace(Some(user)));
    }

    /// Whether the session below is there.
    pub(crate) fn is_open(&self) -> bool {
        self.session.borrow().is_some()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.get()
    }

    /// Error with which the stream broke.
    pub(crate) fn broken(&self) -> Option<StreamError> {
        self.broken.get()
    }

    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.borrow().is_empty()
    }

    /// Whether all that arrives has gone up.
    pub(crate) fn is_at_end(&self) -> bool {
        self.is_ended.get() && !self.has_arrived()
    }

    /// The next message that goes up.
    pub(crate) fn next_arrived(&self) -> Option<Message> {
        self.arrived.borrow_mut().pop_front()
    }

    /// Keeps a message that found no buffers, to go up later. It is kept slice by slice, because a
    /// message with more slices than the pool has buffers could never go up whole.
    pub(crate) fn put_back(&self, mut message: Message) {
        let mut arrived = self.arrived.borrow_mut();
        if message.single_slice().is_none()
            && let Ok(first) = message.split_front(message.front_slice().len())
        {
            arrived.push_front(message);
            message = first;
        }
        arrived.push_front(message);
    }

    /// Notes that the protocol above has consumed `octets` more of the octets that arrived: as many
    /// may come again.
    pub(crate) fn consumed(&self, cx: &Kernel, octets: usize) {
        if let Some(session) = self.session().filter(|_| octets > 0) {
            let octets = u32::try_from(octets).unwrap_or(u32::MAX);
            let _ = session.ask(cx, StreamConsumed { octets });
        }
    }

    /// Number of octets that the stream takes now. If it is small, [`StreamEvent::Writable`]
    /// follows.
    pub(crate) fn space(&self, cx: &Kernel) -> usize {
        let space = self.session().and_then(|session| session.ask(cx, StreamSpace::default()));
        space.map_or(0, |space| space.octets as usize)
    }

    /// Sends the user's waiting octets as far as there is room; returns whether any went.
    pub(crate) fn output(&self, cx: &Kernel, user: &dyn User) -> bool {
        if self.is_sending.replace(true) {
            self.again.set(true);
            return false;
        }
        let mut any = false;
        while let Some(session) = self.session() {
            self.again.set(false);
            let waiting = user.waiting().min(CHUNK);
            let octets = if waiting > 0 { self.space(cx).min(waiting) } else { 0 };
            if octets == 0 {
                break;
            }
            let first = user.first(octets).ok_or(Fault::NoBuffers);
            match first.and_then(|first| self.send(cx, &session, first)) {
                // It may have ended meanwhile.
                Ok(()) if !self.is_open() => break,
                Ok(()) => {
                    user.sent(octets);
                    any = true;
                }
                Err(_) if self.again.get() => {}
                Err(_) => {
                    user.retry(cx);
                    break;
                }
            }
        }
        self.is_sending.set(false);
        any
    }

    fn send(&self, cx: &Kernel, session: &SessionRef, parcel: Parcel) -> Result<(), Fault> {
        let circuits = self.circuits.upgrade().ok_or(Fault::Closed)?;
        let message = parcel.into_message(cx.pool(), &circuits.edge.down)?;
        session.push(cx, message).map_err(Fault::from)
    }

    /// Ends our stream behind the octets that were sent.
    pub(crate) fn shutdown(&self, cx: &Kernel) {
        if let Some(session) = self.session() {
            let _ = session.ask(cx, StreamShutdown);
        }
    }

    /// Takes the session out, for the caller to close.
    fn take(&self) -> Option<SessionRef> {
        let session = self.session.take()?;
        if let Some(circuits) = self.circuits.upgrade() {
            circuits.all.borrow_mut().remove(&session.id());
        }
        Some(session)
    }

    /// Releases the session: octets that were sent still go, then the end of the stream.
    pub(crate) fn close(&self, cx: &Kernel) {
        if let Some(session) = self.take() {
            session.close(cx);
        }
    }

    /// Resets the stream and releases the session.
    pub(crate) fn abort(&self, cx: &Kernel) {
        drop(self.arrived.take());
        if let Some(session) = self.take() {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        }
    }

    /// Our address and the peer's, while it is open.
    pub(crate) fn ends(&self, cx: &Kernel) -> Option<(Addr, Addr)> {
        Some(self.circuits.upgrade()?.ends(cx, &self.session()?))
    }

    fn happened(&self, cx: &Kernel, event: StreamEvent) {
        match event {
            StreamEvent::Connected => self.is_connected.set(true),
            StreamEvent::EndOfStream => self.is_ended.set(true),
            StreamEvent::Writable => {}
            StreamEvent::Failed(error) => {
                self.broken.set(Some(error));
                self.close(cx);
            }
            // What has arrived still goes up.
            StreamEvent::Closed => self.close(cx),
        }
        if let Some(user) = self.user() {
            user.happened(cx, event);
        }
    }
}

/// An address to which peers may open streams.
pub(crate) struct Listening {
    circuits: Weak<Circuits>,
    wanted: Wanted,
    enable: Cell<Option<Enable>>,
    user: Weak<dyn User>,
}

impl Listening {
    pub(crate) fn close(&self, cx: &Kernel) {
        let Some(circuits) = self.circuits.upgrade() else { return };
        remove(&circuits.listening, self);
        if let Some(enable) = self.enable.take() {
            circuits.edge.lower.open_disable(cx, enable);
        }
    }
}

/// The streams of an adapter, and the addresses at which it listens.
pub(crate) struct Circuits {
    edge: Rc<Edge>,
    all: RefCell<BTreeMap<SessionId, Rc<Circuit>>>,
    listening: RefCell<Vec<Rc<Listening>>>,
}

impl Circuits {
    pub(crate) fn new(edge: &Rc<Edge>) -> Rc<Self> {
        let (all, listening) = (RefCell::default(), RefCell::default());
        Rc::new(Self { edge: Rc::clone(edge), all, listening })
    }

    fn is_full(&self) -> bool {
        self.all.borrow().len() >= STREAMS_MAX
    }

    fn keep(&self, session: &SessionRef, circuit: &Rc<Circuit>) {
        session.watch();
        self.all.borrow_mut().insert(session.id(), Rc::clone(circuit));
    }

    fn ends(&self, cx: &Kernel, session: &SessionRef) -> (Addr, Addr) {
        let (form, any) = (self.edge.form, self.edge.form.any());
        let local = crate::locals::local_of(cx, form, session).unwrap_or(any);
        let host = session.ask(cx, PeerHost::default()).and_then(|q| q.host.to_v4());
        let mut peer = host.map_or(any, Addr::inet);
        if let Some(port) = session.ask(cx, PeerPort::default()) {
            form.set_port(&mut peer, port.port);
        }
        (local, peer)
    }

    /// Begins to open a stream to `peer`; [`StreamEvent::Connected`] follows.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn connect(
        self: &Rc<Self>,
        cx: &Kernel,
        wanted: Wanted,
        peer: Addr,
        user: Weak<dyn User>,
    ) -> Result<Rc<Circuit>, Fault> {
        if self.is_full() {
            return Err(Fault::NoBuffers);
        }
        let upper = Upper { receiver: &self.edge.node()?, selector: wanted.selector };
        // What the first segment announces has to be known before.
        for set in wanted.settings() {
            let _ = self.edge.lower.ask(cx, StreamSetNext { set });
        }
        let form = self.edge.form;
        let (local, to) = (form.to_local(&wanted.local), form.to_participant(&peer));
        let session = self.edge.lower.open(cx, upper, Participants::pair(local, to))?;
        let circuit = Rc::new(Circuit::new(self, session.clone(), peer, false));
        circuit.set_user(user);
        self.keep(&session, &circuit);
        Ok(circuit)
    }

    /// Takes streams that peers open, until the listener is closed.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn listen(
        self: &Rc<Self>,
        cx: &Kernel,
        wanted: Wanted,
        user: Weak<dyn User>,
    ) -> Result<Rc<Listening>, Fault> {
        let local = Participants::local(self.edge.form.to_local(&wanted.local));
        let upper = Upper { receiver: &self.edge.node()?, selector: wanted.selector };
        let enable = self.edge.lower.open_enable(cx, upper, local)?;
        let (circuits, enable) = (Rc::downgrade(self), Cell::new(Some(enable)));
        let listening = Rc::new(Listening { circuits, wanted, enable, user });
        self.listening.borrow_mut().push(Rc::clone(&listening));
        Ok(listening)
    }

    fn of(&self, session: &SessionRef) -> Option<Rc<Circuit>> {
        self.all.borrow().get(&session.id()).cloned()
    }

    /// Passes an event of a stream below to its circuit; false if no circuit has that stream.
    pub(crate) fn notice(&self, cx: &Kernel, notice: &StreamNotice) -> bool {
        let circuit = self.of(&notice.session);
        if let Some(circuit) = &circuit {
            circuit.happened(cx, notice.event);
        }
        circuit.is_some()
    }

    /// Passes octets of a stream below to its circuit; false if no circuit has that stream.
    pub(crate) fn arrive(&self, cx: &Kernel, session: &SessionRef, message: Message) -> bool {
        let Some(circuit) = self.of(session) else { return false };
        let Some(user) = circuit.user() else { return false };
        circuit.arrived.borrow_mut().push_back(message);
        user.arrived(cx);
        true
    }

    /// Finds the listener at this address of ours: one for this host before one for all.
    fn listening_at(&self, local: &Addr) -> Option<Rc<Listening>> {
        let all = self.listening.borrow();
        let port = self.edge.form.port_of(local);
        let exact = all.iter().find(|one| one.wanted.local == *local);
        exact.or_else(|| all.iter().find(|one| one.wanted.local == port)).cloned()
    }

    /// Answers whether there is room for one peer more.
    pub(crate) fn answer_room(&self, room: &mut StreamRoom) {
        let host = room.host.and_then(HostAddr::to_v4);
        let mut local = host.map_or(self.edge.form.any(), Addr::inet);
        self.edge.form.set_port(&mut local, room.port);
        let user = self.listening_at(&local).and_then(|one| one.user.upgrade());
        room.full = self.is_full() || user.is_none_or(|user| !user.has_room());
    }

    /// Takes a stream that a peer has opened.
    pub(crate) fn accept(
        self: &Rc<Self>,
        cx: &Kernel,
        (session, local): (&SessionRef, &Addr),
    ) -> Result<(), &'static Reason> {
        let listening = self.listening_at(local).ok_or(&reason::NO_PORT)?;
        if self.is_full() {
            return Err(&reason::TABLE_FULL);
        }
        for set in listening.wanted.settings() {
            let _ = session.ask(cx, set);
        }
        let (_, peer) = self.ends(cx, session);
        let circuit = Rc::new(Circuit::new(self, session.clone(), peer, true));
        let user = listening.user.upgrade().ok_or(&reason::CLOSED)?;
        user.accept(cx, Rc::clone(&circuit))?;
        session.hold();
        self.keep(session, &circuit);
        Ok(())
    }

    /// Ends the circuit of a session below that has ended, perhaps without an event.
    pub(crate) fn gone(&self, cx: &Kernel, session: &SessionRef) {
        let circuit = self.all.borrow_mut().remove(&session.id());
        if let Some(circuit) = circuit {
            drop(circuit.session.take());
            circuit.happened(cx, StreamEvent::Failed(StreamError::Reset));
        }
    }

    /// Releases all streams.
    pub(crate) fn stop(&self, cx: &Kernel) {
        let all = self.listening.borrow().clone();
        for listening in all {
            listening.close(cx);
        }
        let all: Vec<_> = self.all.borrow().values().cloned().collect();
        for circuit in all {
            circuit.abort(cx);
        }
    }
}
