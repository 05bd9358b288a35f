//! The stack's side of the ports: moves octets between them and the socket layer, on the stack's
//! own thread.

use super::commands::CommandQueue;
use super::port::{Kind, Piece, Port, STREAM_OCTETS_MAX, State, Waiting, Writing};
use crate::layer::{Body, DATAGRAM_OCTETS_MAX, Layer, Listener, Phase, Socket, Stream, To};
use crate::ready::{Ready, Watch, lock};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use xk_core::Kernel;

/// A port and its socket.
#[derive(Clone)]
struct Held {
    port: Arc<Port>,
    socket: Rc<Socket>,
    /// A shepherd looks after it, and whether it is to look once more. What is asked of the layers
    /// below may let it wait, with nothing locked.
    is_tended: Rc<Cell<bool>>,
    again: Rc<Cell<bool>>,
}

/// State of the stack's thread: the layer, the commands and the ports.
pub(super) struct Reactor {
    pub(super) layer: Rc<Layer>,
    commands: Arc<CommandQueue>,
    /// By the sockets' places in the layer.
    ports: RefCell<Vec<Option<Held>>>,
}

/// Tells the stack's thread that a socket of the layer has something to move.
struct Mark(Weak<Port>);

impl Watch for Mark {
    fn notify(&self, _: Ready) {
        if let Some(port) = self.0.upgrade() {
            port.tend(false);
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
            Body::Datagrams(_) | Body::Talk(_) => Kind::Datagrams,
        };
        let port = Port::new(kind, socket.place, &self.commands);
        if let Body::Listener(listener) = &socket.body {
            lock(&port.state).unaccepted = Some(listener.unaccepted());
        }
        socket.status.watch(Arc::new(Mark(Arc::downgrade(&port))));
        let place = socket.place as usize;
        let mut ports = self.ports.borrow_mut();
        if ports.len() <= place {
            ports.resize_with(place + 1, || None);
        }
        let (is_tended, again) = (Rc::default(), Rc::default());
        ports[place] = Some(Held { port: Arc::clone(&port), socket, is_tended, again });
        drop(ports);
        self.tend(cx, &port);
        port
    }

    fn held(&self, port: &Arc<Port>) -> Option<Held> {
        let ports = self.ports.borrow();
        let held = ports.get(port.place as usize)?.as_ref()?;
        Arc::ptr_eq(&held.port, port).then(|| held.clone())
    }

    /// The socket of a port.
    pub(super) fn socket(&self, port: &Arc<Port>) -> Option<Rc<Socket>> {
        self.held(port).map(|held| held.socket)
    }

    fn close(&self, cx: &Kernel, port: &Arc<Port>, socket: &Rc<Socket>) {
        if let Some(place) = self.ports.borrow_mut().get_mut(socket.place as usize) {
            *place = None;
        }
        self.turn_away(port);
        port.withdraw(cx.pool());
        self.layer.close(cx, socket);
    }

    /// Breaks off the streams that wait in a listener's port, as those that the layer has not
    /// handed out yet (RFC 9293, section 3.10.4).
    pub(super) fn turn_away(&self, port: &Arc<Port>) {
        let mut state = lock(&port.state);
        let (waiting, unaccepted) = (std::mem::take(&mut state.accepted), state.unaccepted.clone());
        port.show(&state);
        drop(state);
        if let Some(unaccepted) = unaccepted {
            unaccepted.fetch_sub(waiting.len(), Ordering::Relaxed);
        }
        for (waiting, _) in waiting {
            if let Some(socket) = self.socket(&waiting)
                && let Body::Stream(stream) = &socket.body
            {
                stream.linger.set(Some(Duration::ZERO));
            }
            let mut state = lock(&waiting.state);
            (state.closing, state.abandoned) = (true, true);
            drop(state);
            waiting.tend(false);
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
        let closing = |held: &Held| lock(&held.port.state).closing;
        !ports.iter().flatten().any(closing)
    }

    /// The stack has ended: the threads that wait are told.
    pub(super) fn end(&self, cx: &Kernel) {
        self.commands.end();
        for Held { port, .. } in self.ports.take().into_iter().flatten() {
            port.withdraw(cx.pool());
            let mut state = lock(&port.state);
            state.error = Some(Errno::NETDOWN);
            state.break_off();
            port.show(&state);
        }
    }

    /// Looks after a port: moves what can be moved.
    pub(super) fn tend(&self, cx: &Kernel, port: &Arc<Port>) {
        let Some(held) = self.held(port) else {
            return;
        };
        if held.is_tended.replace(true) {
            held.again.set(true);
            return;
        }
        while !self.tend_once(cx, &held) && held.again.take() {}
        held.is_tended.set(false);
    }

    /// True if that was the last time.
    fn tend_once(&self, cx: &Kernel, held: &Held) -> bool {
        let (port, socket) = (&held.port, &held.socket);
        match &socket.body {
            Body::Stream(stream) => tend_stream(cx, socket, stream, &port.state),
            Body::Datagrams(_) | Body::Talk(_) => tend_datagrams(cx, &self.layer, socket, port),
            Body::Listener(listener) => self.tend_listener(cx, socket, listener, port),
        }
        let mut state = lock(&port.state);
        state.addresses = Some(socket.addresses());
        port.show(&state);
        state.fresh = false;
        let sent = state.leaving.is_empty() && state.datagrams_leaving.list.is_empty();
        let done = state.closing && (sent || state.is_over() || state.abandoned);
        let unread = state.unread > 0;
        drop(state);
        if done {
            if let (Body::Stream(stream), true) = (&socket.body, unread) {
                // As any stream that is closed with octets unread.
                stream.linger.set(Some(Duration::ZERO));
            }
            self.close(cx, port, socket);
        }
        done
    }

    fn tend_listener(&self, cx: &Kernel, socket: &Socket, listener: &Listener, port: &Port) {
        // No more than its backlog.
        while let Ok((accepted, peer)) = listener.accept(socket) {
            let accepted = self.open(cx, accepted);
            let mut state = lock(&port.state);
            state.accepted.push_back((accepted, peer));
            state.fresh = true;
        }
        if listener.is_over() {
            lock(&port.state).break_off();
        }
    }
}

fn tend_stream(cx: &Kernel, socket: &Socket, stream: &Stream, state: &Mutex<State>) {
    let ready = socket.status.now();
    let mut now = lock(state);
    if now.phase == Phase::Connecting && ready.contains(Ready::SETTLED) {
        now.phase = stream.phase.get();
    }
    if now.phase == Phase::Open && !now.leaving.is_empty() {
        let mut leaving = std::mem::take(&mut now.leaving);
        drop(now);
        let (sent, failed) = send(cx, socket, stream, &mut leaving);
        now = lock(state);
        now.unsent -= sent;
        // Behind what is left comes what was written meanwhile.
        leaving.append(&mut now.leaving);
        now.leaving = leaving;
        if let Some(error) = failed {
            now.break_off();
            now.error = (error != Errno::PIPE).then_some(error);
        }
    }
    if now.writing == Writing::Ended && now.leaving.is_empty() {
        now.writing = Writing::Told;
        drop(now);
        // If it has broken meanwhile, that is said elsewhere.
        let _ = stream.shutdown(cx, socket, Shutdown::Write);
        now = lock(state);
    }
    let octets = stream.hand_over(|message| now.arrive(message));
    now.unread += octets;
    now.owed += octets;
    now.fresh = octets > 0;
    match stream.read_nothing(socket) {
        Ok(()) => now.read_over = true,
        Err(Errno::AGAIN | Errno::NOTCONN) => {}
        Err(error) => {
            now.error = Some(error);
            now.break_off();
        }
    }
    if ready.contains(Ready::WRITE_CLOSED) && now.writing != Writing::Told {
        now.break_off();
    }
    // A reader that is slower than this closes the window.
    let most = STREAM_OCTETS_MAX.min(stream.receive_buffer.get() as usize);
    let consumed = now.owed.min((most + now.owed).saturating_sub(now.unread));
    now.owed -= consumed;
    let done = std::mem::take(&mut now.done);
    drop(now);
    done.into_iter().for_each(|message| drop(message.back(cx.pool())));
    stream.consumed(cx, consumed);
}

/// Sends what there is room for off the front of `leaving`; answers how many octets, and what has
/// broken the stream.
fn send(
    cx: &Kernel,
    socket: &Socket,
    stream: &Stream,
    leaving: &mut VecDeque<Piece>,
) -> (usize, Option<Errno>) {
    let mut sent = 0;
    while let Some(piece) = leaving.front_mut() {
        match stream.write(cx, socket, &[IoSlice::new(&piece.octets[piece.sent..])]) {
            Ok(octets) => {
                piece.sent += octets;
                sent += octets;
            }
            Err(Errno::AGAIN) => break,
            Err(error) => return (sent, Some(error)),
        }
        if piece.sent == piece.octets.len() {
            if piece.ends_record {
                stream.end_record(cx);
            }
            leaving.pop_front();
        }
    }
    (sent, None)
}

fn tend_datagrams(cx: &Kernel, layer: &Layer, socket: &Socket, port: &Arc<Port>) {
    let mut now = lock(&port.state);
    if let Some(error) = socket.take_error() {
        now.error = Some(error);
    }
    while let Some(datagram) = now.datagrams_leaving.pop() {
        drop(now);
        let octets = &[IoSlice::new(&datagram.octets)];
        let sent = socket.send(cx, layer, octets, datagram.to);
        now = lock(&port.state);
        match sent {
            Err(Errno::AGAIN) => {
                now.datagrams_leaving.put_back(datagram);
                // A queue below is full: in the next turn it may not be. A conversation says when.
                if matches!(socket.body, Body::Datagrams(_)) {
                    port.tend(false);
                }
                break;
            }
            Err(error) => now.error = Some(error),
            Ok(_) => {}
        }
    }
    while now.datagrams_arrived.has_room(DATAGRAM_OCTETS_MAX) {
        let mut datagram = Vec::with_capacity(socket.unread());
        let put = |octets: &[u8]| datagram.extend_from_slice(octets);
        match socket.receive(cx, usize::MAX, false, put) {
            Ok(received) => {
                let to = To { peer: Some(received.from), ..To::default() };
                let (octets, arrived) = (datagram.into(), received.arrived);
                now.datagrams_arrived.push(Waiting { octets, to, arrived });
                now.fresh = true;
            }
            Err(error) => {
                if error != Errno::AGAIN {
                    now.error = Some(error);
                }
                let is_over = match &socket.body {
                    Body::Datagrams(datagrams) => datagrams.is_over(),
                    Body::Talk(talk) => talk.is_over(),
                    Body::Stream(_) | Body::Listener(_) => false,
                };
                if is_over {
                    now.break_off();
                }
                return;
            }
        }
    }
    now.datagrams_arrived.more = true;
}
