//! Streams of the x-kernel's protocol below, by the questions of the kit's `stream`.

use super::{Half, OnXk};
use crate::circuit::{Circuit, Listener, Streams, User, Wanted};
use crate::edge::{Door, Ends, Fault};
use crate::form::{Addr, Service};
use crate::parcel::Parcel;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{Enable, SessionId};
use xk_core::reason::{self, Reason};
use xk_core::{HostAddr, Kernel, Message, Participants, SessionRef, Upper};
use xk_kit::control::{PeerHost, PeerPort};
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamError, StreamEvent, StreamNotice, StreamRoom, StreamSet,
    StreamSetNext, StreamSetting, StreamShutdown, StreamSpace,
};

/// Streams of one adapter at most.
const STREAMS_MAX: usize = 4096;

/// The streams of an adapter, and what it listens for.
#[derive(Default)]
pub(super) struct Circuits {
    by_session: RefCell<BTreeMap<SessionId, Rc<XkCircuit>>>,
    listening: RefCell<Vec<Rc<Listening>>>,
}

/// Settings of a stream whose user says what it has consumed.
fn settings(unread_max: u32) -> [StreamSet; 2] {
    [StreamSetting::ManualWindow(true), StreamSetting::ReceiveBuffer(unread_max)]
        .map(|setting| StreamSet { setting, taken: true })
}

/// One end of a stream.
struct XkCircuit {
    half: Weak<Half>,
    session: RefCell<Option<SessionRef>>,
    user: RefCell<Option<Rc<dyn User>>>,
    /// True if it has failed or ended, and nothing follows.
    is_over: Cell<bool>,
}

impl XkCircuit {
    fn session(&self) -> Option<SessionRef> {
        self.session.borrow().clone()
    }

    fn tell(&self, cx: &Kernel, event: StreamEvent) {
        if matches!(event, StreamEvent::Failed(_) | StreamEvent::Closed) {
            self.is_over.set(true);
        }
        let user = self.user.borrow().clone();
        if let Some(user) = user {
            user.happened(cx, event);
        }
    }

    /// Forgets the session, which the caller closes.
    fn take(&self) -> Option<SessionRef> {
        drop(self.user.take());
        let session = self.session.take()?;
        if let Some(half) = self.half.upgrade() {
            half.circuits.by_session.borrow_mut().remove(&session.id());
        }
        Some(session)
    }
}

impl Circuit for XkCircuit {
    fn space(&self, cx: &Kernel) -> usize {
        let Some(session) = self.session().filter(|_| !self.is_over.get()) else { return 0 };
        session.ask(cx, StreamSpace::default()).map_or(0, |space| space.octets as usize)
    }

    fn send(&self, cx: &Kernel, parcel: Parcel) -> Result<(), Fault> {
        let (half, session) = (self.half.upgrade(), self.session());
        let (Some(half), Some(session)) = (half, session) else { return Err(Fault::Closed) };
        let message = parcel.into_message(cx.pool(), &half.down)?;
        session.push(cx, message).map_err(Fault::from)
    }

    fn consumed(&self, cx: &Kernel, octets: usize) {
        if let Some(session) = self.session().filter(|_| octets > 0) {
            let octets = u32::try_from(octets).unwrap_or(u32::MAX);
            let _ = session.ask(cx, StreamConsumed { octets });
        }
    }

    fn shutdown(&self, cx: &Kernel) {
        if let Some(session) = self.session() {
            let _ = session.ask(cx, StreamShutdown);
        }
    }

    fn close(&self, cx: &Kernel) {
        if let Some(session) = self.take() {
            session.close(cx);
        }
    }

    fn abort(&self, cx: &Kernel) {
        if let Some(session) = self.take() {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        }
    }

    fn ends(&self, cx: &Kernel) -> (Addr, Addr) {
        let any = Addr::any(xk_bsd::sockaddr::AF_INET);
        let (Some(half), Some(session)) = (self.half.upgrade(), self.session()) else {
            return (any, any);
        };
        let local = crate::locals::local_of(cx, half.form, &session).unwrap_or(any);
        let mut peer = any;
        if let Some(host) = session.ask(cx, PeerHost::default()).and_then(|q| q.host.to_v4()) {
            peer.data_mut()[2..6].copy_from_slice(&host.octets());
        }
        if let Some(port) = session.ask(cx, PeerPort::default()) {
            half.form.set_port(&mut peer, port.port);
        }
        (local, peer)
    }
}

/// An address to which peers may open streams.
struct Listening {
    half: Weak<Half>,
    wanted: Wanted,
    enables: RefCell<Vec<Enable>>,
    listener: Rc<dyn Listener>,
}

impl Door for Listening {
    fn send(&self, _: &Kernel, _: &Ends, _: Parcel) -> Result<(), Fault> {
        Err(Fault::NotSupported)
    }

    fn local(&self, _: &Kernel) -> Addr {
        self.wanted.local
    }

    fn close(&self, cx: &Kernel) {
        let Some(half) = self.half.upgrade() else { return };
        let mut all = half.circuits.listening.borrow_mut();
        let gone: Vec<_> = all.extract_if(.., |one| core::ptr::eq(&**one, self)).collect();
        drop(all);
        for enable in self.enables.take() {
            half.lower.open_disable(cx, enable);
        }
        drop(gone);
    }
}

impl Streams for OnXk {
    fn connect(
        &self,
        cx: &Kernel,
        wanted: Wanted,
        peer: Addr,
        user: Rc<dyn User>,
    ) -> Result<Rc<dyn Circuit>, Fault> {
        let half = &self.0;
        if half.form.service != Service::Streams {
            return Err(Fault::NotSupported);
        }
        if half.circuits.by_session.borrow().len() >= STREAMS_MAX {
            return Err(Fault::NoBuffers);
        }
        let this = half.this()?;
        // What the first segment announces has to be known before.
        for set in settings(wanted.unread_max) {
            let _ = half.lower.ask(cx, StreamSetNext { set });
        }
        let upper = Upper { receiver: this, selector: wanted.selector };
        let (local, to) = (half.form.to_local(&wanted.local), half.form.to_participant(&peer));
        let session = half.lower.open(cx, upper, Participants::pair(local, to))?;
        session.watch();
        let circuit = Rc::new(XkCircuit {
            half: Rc::downgrade(half),
            session: RefCell::new(Some(session.clone())),
            user: RefCell::new(Some(user)),
            is_over: Cell::new(false),
        });
        half.circuits.by_session.borrow_mut().insert(session.id(), Rc::clone(&circuit));
        Ok(circuit)
    }

    fn listen(
        &self,
        cx: &Kernel,
        wanted: Wanted,
        listener: Rc<dyn Listener>,
    ) -> Result<Rc<dyn Door>, Fault> {
        let half = &self.0;
        if half.form.service != Service::Streams {
            return Err(Fault::NotSupported);
        }
        let upper = Upper { receiver: half.this()?, selector: wanted.selector };
        let enables = half.enable(cx, upper, &wanted.local)?;
        let half = Rc::downgrade(half);
        let listening = Listening { half, wanted, enables: RefCell::new(enables), listener };
        let listening = Rc::new(listening);
        self.0.circuits.listening.borrow_mut().push(Rc::clone(&listening));
        Ok(listening)
    }
}

impl Circuits {
    fn of(&self, session: &SessionRef) -> Option<Rc<XkCircuit>> {
        self.by_session.borrow().get(&session.id()).cloned()
    }

    /// Something has happened to a stream below; false if it is none of these.
    pub(super) fn notice(&self, cx: &Kernel, notice: &StreamNotice) -> bool {
        let circuit = self.of(&notice.session);
        if let Some(circuit) = &circuit {
            circuit.tell(cx, notice.event);
        }
        circuit.is_some()
    }

    /// Octets have come up a stream.
    pub(super) fn arrive(&self, cx: &Kernel, session: &SessionRef, message: Message) -> bool {
        let user = self.of(session).and_then(|circuit| circuit.user.borrow().clone());
        if let Some(user) = &user {
            user.arrive(cx, Parcel::Message(message));
        }
        user.is_some()
    }

    /// Finds the listener at this address of ours: one for this host before one for all.
    fn listening_at(&self, half: &Half, local: &Addr) -> Option<Rc<Listening>> {
        let all = self.listening.borrow();
        let port = half.form.port_of(local);
        let at_port = |one: &&Rc<Listening>| half.form.port_of(&one.wanted.local) == port;
        let exact = all.iter().filter(at_port).find(|one| one.wanted.local == *local);
        exact.or_else(|| all.iter().filter(at_port).find(|one| one.wanted.local == port)).cloned()
    }

    /// Answers whether there is room for one peer more.
    pub(super) fn answer_room(&self, half: &Half, room: &mut StreamRoom) {
        let mut local = half.form.any();
        half.form.set_port(&mut local, room.port);
        if let Some(host) = room.host.and_then(HostAddr::to_v4) {
            local.data_mut()[2..6].copy_from_slice(&host.octets());
        }
        let listening = self.listening_at(half, &local);
        room.full = self.by_session.borrow().len() >= STREAMS_MAX
            || listening.is_none_or(|one| !one.listener.has_room());
    }

    /// A peer has opened a stream.
    pub(super) fn accept(
        &self,
        cx: &Kernel,
        half: &Rc<Half>,
        (session, local): (&SessionRef, &Addr),
    ) -> Result<(), &'static Reason> {
        let listening = self.listening_at(half, local).ok_or(&reason::NO_PORT)?;
        if self.by_session.borrow().len() >= STREAMS_MAX {
            return Err(&reason::TABLE_FULL);
        }
        for StreamSet { setting, taken } in settings(listening.wanted.unread_max) {
            let _ = session.ask(cx, StreamSet { setting, taken });
        }
        let circuit = Rc::new(XkCircuit {
            half: Rc::downgrade(half),
            session: RefCell::new(Some(session.clone())),
            user: RefCell::default(),
            is_over: Cell::new(false),
        });
        let user = listening.listener.accept(cx, Rc::clone(&circuit) as _)?;
        drop(circuit.user.replace(Some(user)));
        session.hold();
        session.watch();
        self.by_session.borrow_mut().insert(session.id(), circuit);
        Ok(())
    }

    /// A session has gone, perhaps without a word.
    pub(super) fn gone(&self, cx: &Kernel, session: &SessionRef) {
        let circuit = self.by_session.borrow_mut().remove(&session.id());
        let Some(circuit) = circuit else { return };
        if !circuit.is_over.get() {
            circuit.tell(cx, StreamEvent::Failed(StreamError::Reset));
        }
        drop(circuit.session.take());
        drop(circuit.user.take());
    }

    /// Releases all.
    pub(super) fn stop(&self, cx: &Kernel) {
        let all = self.listening.borrow().clone();
        for listening in all {
            listening.close(cx);
        }
        let all: Vec<_> = self.by_session.borrow().values().cloned().collect();
        for circuit in all {
            circuit.abort(cx);
        }
    }
}
