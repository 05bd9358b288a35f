//! The stack's side of the ports: moves octets between them and the socket layer, on the stack's
//! own thread.

use super::commands::{CommandQueue, tend};
use super::port::{Kind, Port, STREAM_OCTETS_MAX, State, drain};
use crate::layer::{Body, DATAGRAM_OCTETS_MAX, Datagrams, Layer, Listener, Socket, Stream};
use crate::ready::{Ready, Watch, lock};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io::IoSlice;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use xk_core::Kernel;

/// A port and its socket.
type Held = (Arc<Port>, Rc<Socket>);

/// What the stack's thread knows of the ports.
pub(super) struct Reactor {
    pub(super) layer: Rc<Layer>,
    commands: Arc<CommandQueue>,
    /// By the sockets' places in the layer.
    ports: RefCell<Vec<Option<Held>>>,
}

/// Tells the stack's thread that a socket of the layer has something to move.
struct Mark {
    port: Weak<Port>,
    commands: Arc<CommandQueue>,
}

impl Watch for Mark {
    fn notify(&self, _: Ready) {
        if let Some(port) = self.port.upgrade() {
            tend(&self.commands, &port);
        }
    }
}

impl Reactor {
    pub(super) fn new(layer: Rc<Layer>, commands: Arc<CommandQueue>) -> Self {
        Self { layer, commands, ports: RefCell::default() }
    }

    /// A port for a new socket of the layer.
    pub(super) fn open(&self, cx: &Kernel, socket: Rc<Socket>) -> Arc<Port> {
        let kind = match &socket.body {
            Body::Stream(_) => Kind::Stream,
            Body::Listener(_) => Kind::Listener,
            Body::Datagrams(_) => Kind::Datagrams,
        };
        let port = Port::new(kind);
        if let Body::Listener(listener) = &socket.body {
            lock(&port.state).unaccepted = Some(listener.unaccepted());
        }
        let _ = port.place.set(socket.place);
        socket.status.watch(Arc::new(Mark {
            port: Arc::downgrade(&port),
            commands: Arc::clone(&self.commands),
        }));
        let place = socket.place as usize;
        let mut ports = self.ports.borrow_mut();
        if ports.len() <= place {
            ports.resize_with(place + 1, || None);
        }
        ports[place] = Some((Arc::clone(&port), socket));
        drop(ports);
        self.tend(cx, &port);
        port
    }

    /// The socket of a port.
    pub(super) fn socket(&self, port: &Arc<Port>) -> Option<Rc<Socket>> {
        let place = *port.place.get()? as usize;
        let ports = self.ports.borrow();
        let (kept, socket) = ports.get(place)?.as_ref()?;
        Arc::ptr_eq(kept, port).then(|| Rc::clone(socket))
    }

    fn close(&self, cx: &Kernel, port: &Arc<Port>, socket: &Rc<Socket>) {
        if let Some(place) = self.ports.borrow_mut().get_mut(socket.place as usize) {
            *place = None;
        }
        self.turn_away(port);
        self.layer.close(cx, socket);
    }

    /// Breaks off the streams that wait in a listener's port, as those that the layer has not
    /// handed out yet (RFC 9293, section 3.10.4).
    pub(super) fn turn_away(&self, port: &Arc<Port>) {
        let mut state = lock(&port.state);
        let (waiting, unaccepted) = (std::mem::take(&mut state.accepted), state.unaccepted.clone());
        port.show(&state, Ready::NONE);
        drop(state);
        if let Some(unaccepted) = unaccepted {
            unaccepted.fetch_sub(waiting.len(), Ordering::Relaxed);
        }
        for (waiting, _) in waiting {
            if let Some(socket) = self.socket(&waiting)
                && let Body::Stream(stream) = &socket.body
            {
                stream.set_linger(Some(Duration::ZERO));
            }
            let mut state = lock(&waiting.state);
            (state.closing, state.abandoned) = (true, true);
            drop(state);
            tend(&self.commands, &waiting);
        }
    }

    /// True if what was closed has ended.
    pub(super) fn is_quiet(&self, cx: &Kernel) -> bool {
        self.has_closed() && self.layer.is_quiet(cx)
    }

    /// True if what was closed has at least been sent.
    pub(super) fn has_sent(&self, cx: &Kernel) -> bool {
        self.has_closed() && self.layer.has_sent(cx)
    }

    fn has_closed(&self) -> bool {
        let ports = self.ports.borrow();
        let closing = |(port, _): &Held| lock(&port.state).closing;
        !ports.iter().flatten().any(closing)
    }

    /// The stack has ended: the threads that wait are told.
    pub(super) fn end(&self) {
        self.commands.end();
        for (port, _) in self.ports.take().into_iter().flatten() {
            let mut state = lock(&port.state);
            state.error = Some(Errno::NETDOWN);
            state.broken = true;
            state.settled = true;
            port.show(&state, Ready::READABLE | Ready::WRITABLE);
        }
    }

    /// Looks after a port: moves what can be moved.
    pub(super) fn tend(&self, cx: &Kernel, port: &Arc<Port>) {
        let Some(socket) = self.socket(port) else {
            return;
        };
        let mut state = lock(&port.state);
        let news = match &socket.body {
            Body::Stream(stream) => tend_stream(cx, &socket, stream, &mut state),
            Body::Datagrams(datagrams) => {
                let (news, again) = tend_datagrams(cx, &socket, datagrams, &mut state);
                if again {
                    // A queue below is full: in the next turn it may not be.
                    tend(&self.commands, port);
                }
                news
            }
            Body::Listener(listener) => self.tend_listener(cx, &socket, listener, &mut state),
        };
        state.addresses = Some(socket.addresses());
        port.show(&state, news);
        let sent = state.leaving.is_empty() && state.datagrams_leaving.list.is_empty();
        let done = state.closing && (sent || state.broken || state.abandoned);
        let unread = !state.arrived.is_empty();
        drop(state);
        if done {
            if let (Body::Stream(stream), true) = (&socket.body, unread) {
                // As any stream that is closed with octets unread.
                stream.set_linger(Some(Duration::ZERO));
            }
            self.close(cx, port, &socket);
        }
    }

    fn tend_listener(
        &self,
        cx: &Kernel,
        socket: &Socket,
        listener: &Listener,
        state: &mut State,
    ) -> Ready {
        let mut news = Ready::NONE;
        // No more than its backlog.
        while let Ok((accepted, peer)) = listener.accept(socket) {
            state.accepted.push_back((self.open(cx, accepted), peer));
            news = Ready::READABLE;
        }
        news
    }
}

fn tend_stream(cx: &Kernel, socket: &Socket, stream: &Stream, state: &mut State) -> Ready {
    let mut news = Ready::NONE;
    let ready = socket.status.now();
    if !state.settled && ready.contains(Ready::SETTLED) {
        state.settled = true;
        state.connected = socket.addresses().1.is_some();
    }
    while state.connected && !state.broken && !state.leaving.is_empty() {
        let (front, back) = state.leaving.as_slices();
        match stream.write(cx, socket, &[IoSlice::new(front), IoSlice::new(back)]) {
            Ok(octets) => drain(&mut state.leaving, octets),
            Err(Errno::AGAIN) => break,
            Err(error) => {
                state.broken = true;
                state.error = (error != Errno::PIPE).then_some(error);
            }
        }
    }
    if state.write_shut && state.leaving.is_empty() && !state.write_shut_told {
        state.write_shut_told = true;
        // If it has broken meanwhile, that is said elsewhere.
        let _ = stream.shutdown(cx, socket, Shutdown::Write);
    }
    loop {
        let room = STREAM_OCTETS_MAX.saturating_sub(state.arrived.len());
        if room == 0 {
            state.more = true;
            break;
        }
        let arrived = &mut state.arrived;
        match stream.read(cx, socket, room, false, |octets| arrived.extend(octets)) {
            Ok(0) => {
                state.ended = true;
                break;
            }
            Ok(_) => news |= Ready::READABLE,
            Err(Errno::AGAIN | Errno::NOTCONN) => break,
            Err(error) => {
                state.error = Some(error);
                state.broken = true;
                break;
            }
        }
    }
    if ready.contains(Ready::WRITE_CLOSED) && !state.write_shut_told {
        state.broken = true;
    }
    news
}

/// True besides if something could not be sent yet.
fn tend_datagrams(
    cx: &Kernel,
    socket: &Socket,
    datagrams: &Datagrams,
    state: &mut State,
) -> (Ready, bool) {
    let mut news = Ready::NONE;
    let mut again = false;
    if let Some(error) = socket.take_error() {
        state.error = Some(error);
    }
    while let Some((datagram, to)) = state.datagrams_leaving.list.front() {
        match datagrams.send(cx, socket, &[IoSlice::new(datagram)], *to) {
            Err(Errno::AGAIN) => {
                again = true;
                break;
            }
            Err(error) => state.error = Some(error),
            Ok(_) => {}
        }
        state.datagrams_leaving.pop();
    }
    while state.datagrams_arrived.has_room(DATAGRAM_OCTETS_MAX) {
        let mut datagram = Vec::with_capacity(datagrams.unread());
        let put = |octets: &[u8]| datagram.extend_from_slice(octets);
        match datagrams.receive(socket, usize::MAX, false, put) {
            Ok(received) => {
                state.datagrams_arrived.push(datagram.into(), Some(received.from));
                news = Ready::READABLE;
            }
            Err(error) => {
                if error != Errno::AGAIN {
                    state.error = Some(error);
                }
                return (news, again);
            }
        }
    }
    state.more = true;
    (news, again)
}
