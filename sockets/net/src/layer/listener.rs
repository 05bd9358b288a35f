//! Listening: peers that have connected wait here to be accepted.

use super::ports::{Sharing, Transport};
use super::stream::{Stream, reads_by_hand};
use super::{Body, Layer, Socket};
use crate::address::Endpoint;
use crate::error;
use crate::ready::Ready;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xk_core::object::Enable;
use xk_core::{
    HostAddr, Kernel, Part, Participant, Participants, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::net::ports::ephemerals;
use xk_kit::net::stream::StreamRoom;

/// A stream that a peer has opened, and the peer's address.
type Arrived = (Rc<Socket>, Endpoint);

/// A socket that listens.
pub(crate) struct Listener {
    pub(crate) local: Endpoint,
    sharing: Cell<Sharing>,
    /// False while the port is only kept.
    listens: Cell<bool>,
    backlog: Cell<usize>,
    /// Octets of data in the largest segment that peers are told of.
    pub(crate) segment_max: Cell<u16>,
    /// Octets of theirs that are kept at most.
    pub(crate) receive_buffer: Cell<u32>,
    /// Bounds the peers that may have octets here before their handshake is done; as many as the
    /// protocol below lets if it was never set.
    pub(crate) fast_open_max: Cell<Option<u32>>,
    /// Peers that have connected and that no program has been given, be they here or on their way
    /// to it.
    unaccepted: Arc<AtomicUsize>,
    waiting: RefCell<VecDeque<Arrived>>,
    /// None comes any more.
    is_over: Cell<bool>,
}

/// The sockets that listen at one address together; most do so alone.
pub(super) struct Listeners {
    enable: Enable,
    sockets: Vec<Rc<Socket>>,
}

impl Listener {
    pub(super) fn forget(&self) {
        drop(self.waiting.take());
    }

    /// Number of peers that wait for a program which has its own place for them; taking one from
    /// there lowers it.
    pub(crate) fn unaccepted(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.unaccepted)
    }

    /// Ends the listener, whose way to peers is gone.
    pub(super) fn end(&self, socket: &Socket) {
        self.is_over.set(true);
        socket.fail(Errno::NETDOWN);
    }

    /// True if none comes any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    fn is_full(&self) -> bool {
        self.unaccepted.load(Ordering::Relaxed) >= self.backlog.get()
    }

    /// The peer that has waited longest. It counts as one that waits until
    /// [`unaccepted`](Self::unaccepted) says otherwise.
    ///
    /// # Errors
    /// `EAGAIN` if none waits, `ENETDOWN` if none comes any more.
    pub(crate) fn accept(&self, socket: &Socket) -> Result<Arrived, Errno> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.pop_front();
        if waiting.is_empty() && !self.is_over() {
            socket.status.lower(Ready::READABLE);
        }
        first.ok_or(if self.is_over() { Errno::NETDOWN } else { Errno::AGAIN })
    }
}

impl Layer {
    /// Keeps the port of `local`; a free one if that is zero. No peer is answered there yet. Others
    /// may share it.
    pub(crate) fn reserve(
        &self,
        cx: &Kernel,
        local: Endpoint,
        sharing: Sharing,
    ) -> Result<Rc<Socket>, Errno> {
        self.check_local(cx, &self.tcp()?, local.host)?;
        let local = match local.port {
            0 => self.free_port(cx, local, sharing)?,
            _ => {
                self.ports.bind(Transport::Tcp, local, sharing)?;
                local
            }
        };
        let added = self.add(Body::Listener(Listener {
            local,
            sharing: Cell::new(sharing),
            listens: Cell::new(false),
            backlog: Cell::new(1),
            segment_max: Cell::new(u16::MAX),
            receive_buffer: Cell::new(u32::MAX),
            fast_open_max: Cell::new(None),
            unaccepted: Arc::default(),
            waiting: RefCell::default(),
            is_over: Cell::new(false),
        }));
        if added.is_err() {
            self.ports.unbind(Transport::Tcp, local, sharing);
        }
        added
    }

    /// Listens at a port that is kept, for so many peers; no longer if that is `None`: peers
    /// that wait are turned away.
    ///
    /// # Errors
    /// `EADDRINUSE` if others of the graph listen there.
    pub(crate) fn set_backlog(
        &self,
        cx: &Kernel,
        socket: &Socket,
        listener: &Listener,
        backlog: Option<usize>,
    ) -> Result<(), Errno> {
        let Some(backlog) = backlog else {
            self.turn_away(cx, listener);
            return Ok(());
        };
        listener.backlog.set(backlog.max(1));
        if listener.listens.get() {
            return Ok(());
        }
        let own = self.table.borrow().get(socket.place as usize).cloned();
        let own = own.flatten().ok_or(Errno::BADF)?;
        let (local, sharing) = (listener.local, listener.sharing.get());
        self.ports.listen(local, sharing, true)?;
        if let Some(together) = self.listeners.borrow_mut().get_mut(&local) {
            together.sockets.push(own);
            listener.listens.set(true);
            return Ok(());
        }
        match self.enable(cx, &self.tcp()?, &self.this()?, local) {
            Ok(enable) => {
                let sockets = vec![own];
                let alone = Listeners { enable, sockets };
                self.listeners.borrow_mut().insert(local, alone);
                listener.listens.set(true);
                Ok(())
            }
            Err(error) => {
                let _ = self.ports.listen(local, sharing, false);
                Err(error)
            }
        }
    }

    /// Sets how a socket that keeps a port shares it from now on.
    pub(crate) fn share_listener(&self, listener: &Listener, sharing: Sharing) {
        let change = (listener.sharing.replace(sharing), sharing);
        self.ports.share(Transport::Tcp, listener.local, change);
    }

    fn enable(
        &self,
        cx: &Kernel,
        tcp: &ProtocolRef,
        this: &ProtocolRef,
        local: Endpoint,
    ) -> Result<Enable, Errno> {
        let port = Part::port(local.port);
        let offer = match local.host.is_unspecified() {
            true => Participant::of(port),
            false => Participant::of(Part::host(local.host)).with(port),
        };
        let enabled = tcp.open_enable(cx, Upper::new(this), Participants::local(offer));
        enabled.map_err(|error| error::of_open(error, true))
    }

    /// A free port, kept from now on.
    fn free_port(&self, cx: &Kernel, local: Endpoint, sharing: Sharing) -> Result<Endpoint, Errno> {
        for port in ephemerals(cx) {
            let local = Endpoint { host: local.host, port };
            // A port that is free shares nothing yet.
            let alone = Sharing::default();
            if self.ports.bind(Transport::Tcp, local, alone).is_ok() {
                self.ports.share(Transport::Tcp, local, (alone, sharing));
                return Ok(local);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// The socket that listens at `local` and has room: of several the one that a hash of the
    /// peer's address names. Without room the first.
    fn listener_at(&self, local: Endpoint, peer: Option<Endpoint>) -> Option<Rc<Socket>> {
        let any = Endpoint { host: HostAddr::UNSPECIFIED, ..local };
        let listeners = self.listeners.borrow();
        let found = listeners.get(&local).or_else(|| listeners.get(&any))?;
        let has_room = |socket: &&Rc<Socket>| match &socket.body {
            Body::Listener(listener) => !listener.is_full(),
            Body::Stream(_) | Body::Datagrams(_) | Body::Talk(_) => false,
        };
        let all = found.sockets.iter();
        let count = all.clone().filter(has_room).count();
        let at = match peer {
            Some(peer) if count > 1 => self.place_among(count, peer),
            _ => 0,
        };
        let chosen = all.filter(has_room).nth(at);
        chosen.or_else(|| found.sockets.first()).map(Rc::clone)
    }

    /// Whether there is room for one peer more, and what that is told.
    pub(super) fn answer_room(&self, room: &mut StreamRoom) {
        let host = room.host.unwrap_or_default();
        room.full = !self.has_place();
        let socket = self.listener_at(Endpoint { host, port: room.port }, None);
        if let Some(Body::Listener(listener)) = socket.as_ref().map(|socket| &socket.body) {
            room.full |= listener.is_full();
            room.segment_max = listener.segment_max.get();
            room.receive_buffer = listener.receive_buffer.get();
            room.fast_open = listener.fast_open_max.get().unwrap_or(room.fast_open);
        }
    }

    /// A peer has connected.
    pub(super) fn arrive(&self, cx: &Kernel, session: &SessionRef) -> Result<(), &'static Reason> {
        let stream = Stream::accepted(session);
        let Ok(accepted) = self.add(Body::Stream(stream)) else {
            return Err(&reason::TABLE_FULL);
        };
        session.head().set_tag(accepted.tag());
        let Body::Stream(stream) = &accepted.body else {
            return Err(&reason::NO_PORT);
        };
        let (local, peer) = stream.find_ends(cx);
        let socket = self.listener_at(local, Some(peer));
        let body = socket.as_ref().map(|socket| &socket.body);
        let (Some(socket), Some(Body::Listener(listener))) = (&socket, body) else {
            self.remove(&accepted);
            return Err(&reason::NO_PORT);
        };
        stream.receive_buffer.set(listener.receive_buffer.get());
        session.hold();
        session.watch();
        reads_by_hand(cx, session);
        accepted.status.raise(Ready::WRITABLE | Ready::SETTLED);
        listener.unaccepted.fetch_add(1, Ordering::Relaxed);
        listener.waiting.borrow_mut().push_back((accepted, peer));
        socket.status.raise(Ready::READABLE);
        Ok(())
    }

    /// Listens no longer; peers that wait are turned away (RFC 9293, section 3.10.4).
    fn turn_away(&self, cx: &Kernel, listener: &Listener) {
        if listener.listens.replace(false) {
            let (local, sharing) = (listener.local, listener.sharing.get());
            let _ = self.ports.listen(local, sharing, false);
            self.stop_listening(cx, local);
        }
        for (socket, _) in listener.waiting.take() {
            listener.unaccepted.fetch_sub(1, Ordering::Relaxed);
            if let Body::Stream(stream) = &socket.body {
                stream.abort(cx);
            }
            self.close(cx, &socket);
        }
    }

    /// Forgets those at an address that do not listen any more.
    fn stop_listening(&self, cx: &Kernel, local: Endpoint) {
        let mut listeners = self.listeners.borrow_mut();
        let Some(together) = listeners.get_mut(&local) else {
            return;
        };
        let listens =
            |socket: &Rc<Socket>| matches!(&socket.body, Body::Listener(one) if one.listens.get());
        together.sockets.retain(listens);
        if !together.sockets.is_empty() {
            return;
        }
        let last = listeners.remove(&local);
        drop(listeners);
        if let (Some(last), Ok(tcp)) = (last, self.tcp()) {
            tcp.open_disable(cx, last.enable);
        }
    }

    /// Gives the port back.
    pub(super) fn close_listener(&self, cx: &Kernel, listener: &Listener) {
        self.turn_away(cx, listener);
        self.ports.unbind(Transport::Tcp, listener.local, listener.sharing.get());
    }
}
