//! The stack's side of the ports: moves octets between them and the socket layer, on the stack's
//! own thread.

use super::commands::{CommandQueue, tend};
use super::port::{Kind, Port, STREAM_OCTETS_MAX, State, Waiting, drain};
use crate::layer::{Body, DATAGRAM_OCTETS_MAX, Datagrams, Layer, Listener, Socket, Stream, To};
use crate::ready::{Ready, Watch, lock};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
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
        let (is_tended, again) = (Rc::default(), Rc::default());
        ports[place] = Some(Held { port: Arc::clone(&port), socket, is_tended, again });
        drop(ports);
        self.tend(cx, &port);
        port
    }

    fn held(&self, port: &Arc<Port>) -> Option<Held> {
        let place = *port.place.get()? as usize;
        let ports = self.ports.borrow();
        let held = ports.get(place)?.as_ref()?;
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
        let closing = |held: &Held| lock(&held.port.state).closing;
        !ports.iter().flatten().any(closing)
    }

    /// The stack has ended: the threads that wait are told.
    pub(super) fn end(&self) {
        self.commands.end();
        for Held { port, .. } in self.ports.take().into_iter().flatten() {
            let mut state = lock(&port.state);
            state.error = Some(Errno::NETDOWN);
            state.broken = true;
            state.settled = true;
            port.show(&state, Ready::READABLE | Ready::WRITABLE);
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
        let news = match &socket.body {
            Body::Stream(stream) => tend_stream(cx, socket, stream, &port.state),
            Body::Datagrams(datagrams) => {
                let (news, again) = tend_datagrams(cx, socket, datagrams, &port.state);
                if again {
                    // A queue below is full: in the next turn it may not be.
                    tend(&self.commands, port);
                }
                news
            }
            Body::Listener(listener) => self.tend_listener(cx, socket, listener, &port.state),
        };
        let mut state = lock(&port.state);
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
            self.close(cx, port, socket);
        }
        done
    }

    fn tend_listener(
        &self,
        cx: &Kernel,
        socket: &Socket,
        listener: &Listener,
        state: &Mutex<State>,
    ) -> Ready {
        let mut news = Ready::NONE;
        // No more than its backlog.
        while let Ok((accepted, peer)) = listener.accept(socket) {
            let accepted = self.open(cx, accepted);
            lock(state).accepted.push_back((accepted, peer));
            news = Ready::READABLE;
        }
        if listener.is_over() {
            lock(state).broken = true;
            news = Ready::READABLE;
        }
        news
    }
}

fn tend_stream(cx: &Kernel, socket: &Socket, stream: &Stream, state: &Mutex<State>) -> Ready {
    let ready = socket.status.now();
    let mut now = lock(state);
    if !now.settled && ready.contains(Ready::SETTLED) {
        now.settled = true;
        now.connected = socket.addresses().1.is_some();
    }
    if now.connected && !now.broken && !now.leaving.is_empty() {
        now = send(cx, socket, stream, (state, now));
    }
    if now.write_shut && now.leaving.is_empty() && !now.write_shut_told {
        now.write_shut_told = true;
        drop(now);
        // If it has broken meanwhile, that is said elsewhere.
        let _ = stream.shutdown(cx, socket, Shutdown::Write);
        now = lock(state);
    }
    let mut news = Ready::NONE;
    let mut taken = 0;
    loop {
        let room = STREAM_OCTETS_MAX.min(stream.kept_max()).saturating_sub(now.arrived.len());
        if room == 0 {
            now.more = true;
            break;
        }
        let arrived = &mut now.arrived;
        match stream.take_arrived(socket, room, false, |octets| arrived.extend(octets)) {
            Ok(0) => {
                now.ended = true;
                break;
            }
            Ok(octets) => {
                news |= Ready::READABLE;
                taken += octets;
            }
            Err(Errno::AGAIN | Errno::NOTCONN) => break,
            Err(error) => {
                now.error = Some(error);
                now.broken = true;
                break;
            }
        }
    }
    if ready.contains(Ready::WRITE_CLOSED) && !now.write_shut_told {
        now.broken = true;
    }
    drop(now);
    stream.consumed(cx, taken);
    news
}

/// Sends what there is room for of what leaves.
fn send<'a>(
    cx: &Kernel,
    socket: &Socket,
    stream: &Stream,
    (state, mut now): (&'a Mutex<State>, MutexGuard<'a, State>),
) -> MutexGuard<'a, State> {
    let mut leaving = std::mem::take(&mut now.leaving);
    let mut records = std::mem::take(&mut now.records);
    let in_hand = leaving.len();
    now.in_hand = in_hand;
    drop(now);
    let failed = write(cx, socket, stream, (&mut leaving, &mut records));
    let mut now = lock(state);
    now.in_hand = 0;
    let gone = in_hand - leaving.len();
    records.extend(now.records.iter().map(|at| at - gone));
    now.records = records;
    if now.leaving.is_empty() || !leaving.is_empty() {
        // Behind what is left comes what was written meanwhile.
        let meanwhile = std::mem::replace(&mut now.leaving, leaving);
        now.leaving.extend(meanwhile);
    }
    if let Some(error) = failed {
        now.broken = true;
        now.error = (error != Errno::PIPE).then_some(error);
    }
    now
}

/// Sends what there is room for off the front of `leaving`, in which records end; answers what has
/// broken the stream.
fn write(
    cx: &Kernel,
    socket: &Socket,
    stream: &Stream,
    (leaving, records): (&mut VecDeque<u8>, &mut VecDeque<usize>),
) -> Option<Errno> {
    while !leaving.is_empty() {
        let (front, back) = leaving.as_slices();
        let most = records.front().copied().unwrap_or(usize::MAX);
        let front = &front[..front.len().min(most)];
        let back = &back[..back.len().min(most - front.len())];
        match stream.write(cx, socket, &[IoSlice::new(front), IoSlice::new(back)]) {
            Ok(octets) => {
                drain(leaving, octets);
                records.iter_mut().for_each(|at| *at -= octets);
                if records.front() == Some(&0) {
                    records.pop_front();
                    stream.end_record(cx);
                }
            }
            Err(Errno::AGAIN) => break,
            Err(error) => return Some(error),
        }
    }
    None
}

/// True besides if something could not be sent yet.
fn tend_datagrams(
    cx: &Kernel,
    socket: &Socket,
    datagrams: &Datagrams,
    state: &Mutex<State>,
) -> (Ready, bool) {
    let mut news = Ready::NONE;
    let mut again = false;
    let mut now = lock(state);
    if let Some(error) = socket.take_error() {
        now.error = Some(error);
    }
    while let Some(datagram) = now.datagrams_leaving.pop() {
        drop(now);
        let octets = &[IoSlice::new(&datagram.octets)];
        let sent = datagrams.send(cx, socket, octets, datagram.to);
        now = lock(state);
        match sent {
            Err(Errno::AGAIN) => {
                now.datagrams_leaving.put_back(datagram);
                again = true;
                break;
            }
            Err(error) => now.error = Some(error),
            Ok(_) => {}
        }
    }
    while now.datagrams_arrived.has_room(DATAGRAM_OCTETS_MAX) {
        let mut datagram = Vec::with_capacity(datagrams.unread());
        let put = |octets: &[u8]| datagram.extend_from_slice(octets);
        match datagrams.receive(socket, usize::MAX, false, put) {
            Ok(received) => {
                let to = To { peer: Some(received.from), ..To::default() };
                let (octets, arrived) = (datagram.into(), received.arrived);
                now.datagrams_arrived.push(Waiting { octets, to, arrived });
                news = Ready::READABLE;
            }
            Err(error) => {
                if error != Errno::AGAIN {
                    now.error = Some(error);
                }
                now.broken |= datagrams.is_over();
                return (news, again);
            }
        }
    }
    now.more = true;
    (news, again)
}
