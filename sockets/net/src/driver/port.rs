//! The place where the program's threads and the stack's thread meet for one socket: bounded
//! buffers under a lock.

use super::drive::Scatter;
use crate::address::Endpoint;
use crate::layer::{DATAGRAM_OCTETS_MAX, Received, To};
use crate::ready::{Ready, Status, lock};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use xk_kit::net::attribute::Arrived;

/// Octets of a stream that wait here at most, in each direction.
pub(super) const STREAM_OCTETS_MAX: usize = 256 << 10;
/// An empty buffer that is larger than this is given back.
const KEPT_OCTETS_MAX: usize = 16 << 10;
/// Octets of datagrams that wait here at most, in each direction, each counted with its overhead.
pub(super) const DATAGRAMS_OCTETS_MAX: usize = 212_992;
/// Octets that a waiting datagram counts besides its own.
const OVERHEAD_OCTETS: usize = 256;

/// Kind of a port's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    Listener,
    Datagrams,
}

/// One socket, as other threads see it.
pub(super) struct Port {
    pub(super) kind: Kind,
    pub(super) status: Arc<Status>,
    /// The stack is going to look after it.
    pub(super) queued: AtomicBool,
    /// Place of the socket in the stack's table, once it has one.
    pub(super) place: OnceLock<u32>,
    pub(super) state: Mutex<State>,
}

/// Octets that have passed and that wait, and the settings in force.
#[derive(Default)]
pub(super) struct State {
    pub(super) addresses: Option<(Endpoint, Option<Endpoint>)>,
    /// Octets that have arrived.
    pub(super) arrived: VecDeque<u8>,
    /// Octets to be sent.
    pub(super) leaving: VecDeque<u8>,
    /// Octets to be sent that the stack has in hand at present, before those.
    pub(super) in_hand: usize,
    pub(super) datagrams_arrived: Datagrams,
    pub(super) datagrams_leaving: Datagrams,
    /// Peers that have connected, and how many those are, as the stack counts them.
    pub(super) accepted: VecDeque<(Arc<Port>, Endpoint)>,
    pub(super) unaccepted: Option<Arc<AtomicUsize>>,
    /// The stream stands.
    pub(super) connected: bool,
    /// The stream stands or has failed.
    pub(super) settled: bool,
    /// The peer sends no more.
    pub(super) ended: bool,
    /// Nothing more goes out: broken, or ended from the other side.
    pub(super) broken: bool,
    pub(super) error: Option<Errno>,
    pub(super) read_shut: bool,
    pub(super) write_shut: bool,
    /// The stack has been told of the end.
    pub(super) write_shut_told: bool,
    /// No handle is left.
    pub(super) closing: bool,
    /// True if octets that are not sent yet are dropped once it is closed.
    pub(super) abandoned: bool,
    /// The stack has more than there was room for.
    pub(super) more: bool,
    /// Octets to be sent that wait here at most, if fewer than usual.
    pub(super) leaving_max: Option<usize>,
    /// The distances to the ends of records among the octets to be sent.
    pub(super) records: VecDeque<usize>,
}

/// A datagram that waits, and its peer.
pub(super) struct Waiting {
    pub(super) octets: Box<[u8]>,
    pub(super) to: To,
    pub(super) arrived: Option<Arrived>,
}

/// Datagrams that wait.
#[derive(Default)]
pub(super) struct Datagrams {
    pub(super) list: VecDeque<Waiting>,
    octets: usize,
}

impl State {
    /// Octets to be sent that wait.
    pub(super) fn unsent(&self) -> usize {
        self.leaving.len() + self.in_hand
    }

    /// Octets that may still be written.
    fn room(&self) -> usize {
        self.leaving_max.unwrap_or(STREAM_OCTETS_MAX).saturating_sub(self.unsent())
    }

    /// Ends a record behind what was written so far; false if none of it waits here.
    pub(super) fn end_record(&mut self) -> bool {
        let at = self.unsent();
        if at > 0 && self.records.back() != Some(&at) {
            self.records.push_back(at);
        }
        at > 0
    }
}

impl Datagrams {
    pub(super) fn has_room(&self, octets: usize) -> bool {
        self.list.is_empty() || self.octets + octets + OVERHEAD_OCTETS <= DATAGRAMS_OCTETS_MAX
    }

    pub(super) fn push(&mut self, datagram: Waiting) {
        self.octets += datagram.octets.len() + OVERHEAD_OCTETS;
        self.list.push_back(datagram);
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let first = self.list.pop_front()?;
        self.octets -= first.octets.len() + OVERHEAD_OCTETS;
        Some(first)
    }

    /// Puts back the first.
    pub(super) fn put_back(&mut self, datagram: Waiting) {
        self.octets += datagram.octets.len() + OVERHEAD_OCTETS;
        self.list.push_front(datagram);
    }
}

/// Takes octets off the front; an empty buffer does not keep much memory.
pub(super) fn drain(queue: &mut VecDeque<u8>, octets: usize) {
    if octets < queue.len() {
        queue.drain(..octets);
        return;
    }
    queue.clear();
    if queue.capacity() > KEPT_OCTETS_MAX {
        *queue = VecDeque::new();
    }
}

impl Port {
    pub(super) fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            kind,
            status: Arc::default(),
            queued: AtomicBool::new(false),
            place: OnceLock::new(),
            state: Mutex::default(),
        })
    }

    /// Says what can be done now; `news` is what has come since.
    pub(super) fn show(&self, state: &State, news: Ready) {
        let mut now = Ready::NONE;
        let over = state.error.is_some() || state.broken;
        let readable = match self.kind {
            Kind::Stream => {
                !state.arrived.is_empty() || state.ended || (state.broken && state.settled)
            }
            Kind::Listener => !state.accepted.is_empty() || state.broken,
            Kind::Datagrams => !state.datagrams_arrived.list.is_empty() || state.broken,
        };
        let writable = match self.kind {
            Kind::Stream => (state.connected && state.room() > 0) || state.write_shut || over,
            Kind::Listener => false,
            Kind::Datagrams => {
                state.datagrams_leaving.has_room(DATAGRAM_OCTETS_MAX) || state.write_shut
            }
        };
        let flags = [
            (readable || state.read_shut || state.error.is_some(), Ready::READABLE),
            (writable || state.error.is_some(), Ready::WRITABLE),
            (state.ended || state.read_shut || state.broken, Ready::READ_CLOSED),
            (state.write_shut || state.broken, Ready::WRITE_CLOSED),
            (state.error.is_some(), Ready::ERROR),
            (state.settled, Ready::SETTLED),
        ];
        for (_, flag) in flags.iter().filter(|(on, _)| *on) {
            now |= *flag;
        }
        let before = self.status.now();
        self.status.lower(!now);
        let raised = now & (news | !before);
        if !raised.is_empty() {
            self.status.raise(raised);
        }
    }

    fn take_error(&self, state: &mut State) -> Option<Errno> {
        let error = state.error.take();
        if error.is_some() {
            self.show(state, Ready::NONE);
        }
        error
    }

    /// The error that waits, told once.
    pub(super) fn error(&self) -> Option<Errno> {
        self.take_error(&mut lock(&self.state))
    }

    /// Octets that a read finds at once.
    pub(super) fn unread(&self) -> usize {
        let state = lock(&self.state);
        let first = state.datagrams_arrived.list.front();
        state.arrived.len() + first.map_or(0, |datagram| datagram.octets.len())
    }

    /// Reads; true if the stack is to be told that there is room.
    pub(super) fn read(
        &self,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<(usize, bool), Errno> {
        let mut scatter = Scatter::new(into);
        let room = scatter.room();
        let mut state = lock(&self.state);
        if room == 0 {
            return Ok((0, false));
        }
        if state.arrived.is_empty() {
            return match self.take_error(&mut state) {
                Some(error) => Err(error),
                None if state.ended || state.read_shut => Ok((0, false)),
                None if state.broken && !state.connected => Err(Errno::NOTCONN),
                None if state.broken => Ok((0, false)),
                None => Err(Errno::AGAIN),
            };
        }
        let octets = room.min(state.arrived.len());
        let (front, back) = state.arrived.as_slices();
        let front = &front[..front.len().min(octets)];
        scatter.put(front);
        scatter.put(&back[..octets - front.len()]);
        if peek {
            return Ok((octets, false));
        }
        drain(&mut state.arrived, octets);
        let hungry = state.more && state.arrived.len() <= STREAM_OCTETS_MAX / 2;
        if hungry {
            state.more = false;
        }
        if state.arrived.is_empty() {
            self.show(&state, Ready::NONE);
        }
        Ok((octets, hungry))
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut state = lock(&self.state);
        if let Some(error) = self.take_error(&mut state) {
            return Err(error);
        }
        if state.broken && !state.connected {
            return Err(Errno::NOTCONN);
        }
        if state.write_shut || state.broken {
            return Err(Errno::PIPE);
        }
        if !state.connected {
            return Err(Errno::AGAIN);
        }
        let mut done = 0;
        for slice in from {
            let octets = &slice[..slice.len().min(state.room())];
            state.leaving.extend(octets);
            done += octets.len();
        }
        if state.room() == 0 {
            self.show(&state, Ready::NONE);
            if done == 0 && from.iter().any(|slice| !slice.is_empty()) {
                return Err(Errno::AGAIN);
            }
        }
        Ok(done)
    }

    /// Receives a datagram; true if the stack is to be told that there is room.
    pub(super) fn receive(
        &self,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<(Received, bool), Errno> {
        let mut scatter = Scatter::new(into);
        let room = scatter.room();
        let mut state = lock(&self.state);
        if let Some(error) = self.take_error(&mut state) {
            return Err(error);
        }
        let Some(Waiting { octets: datagram, to, arrived }) = state.datagrams_arrived.list.front()
        else {
            let from = crate::address::ANY;
            let nobody = Received { octets: 0, length: 0, from, arrived: None };
            return match state.read_shut {
                true => Ok((nobody, false)),
                false if state.broken => Err(Errno::NETDOWN),
                false => Err(Errno::AGAIN),
            };
        };
        let received = Received {
            octets: room.min(datagram.len()),
            length: datagram.len(),
            from: to.peer.unwrap_or(crate::address::ANY),
            arrived: *arrived,
        };
        scatter.put(&datagram[..received.octets]);
        if peek {
            return Ok((received, false));
        }
        state.datagrams_arrived.pop();
        let hungry = std::mem::take(&mut state.more);
        if state.datagrams_arrived.list.is_empty() {
            self.show(&state, Ready::NONE);
        }
        Ok((received, hungry))
    }

    /// Sends a datagram as soon as the stack comes to it.
    pub(super) fn send(&self, from: &[IoSlice<'_>], to: To) -> Result<usize, Errno> {
        let length = from.iter().map(|slice| slice.len()).sum::<usize>();
        let mut state = lock(&self.state);
        if let Some(error) = self.take_error(&mut state) {
            return Err(error);
        }
        let connected = matches!(state.addresses, Some((_, Some(_))));
        match to.peer {
            _ if state.broken => return Err(Errno::NETDOWN),
            _ if state.write_shut => return Err(Errno::PIPE),
            _ if length > DATAGRAM_OCTETS_MAX => return Err(Errno::MSGSIZE),
            None if !connected => return Err(Errno::DESTADDRREQ),
            Some(to) if to.port == 0 => return Err(Errno::INVAL),
            _ => {}
        }
        if !state.datagrams_leaving.has_room(length) {
            self.show(&state, Ready::NONE);
            return Err(Errno::AGAIN);
        }
        let mut datagram = Vec::with_capacity(length);
        for slice in from {
            datagram.extend_from_slice(slice);
        }
        let datagram = Waiting { octets: datagram.into(), to, arrived: None };
        state.datagrams_leaving.push(datagram);
        Ok(length)
    }

    /// Takes the peer that has waited longest.
    pub(super) fn accept(&self) -> Result<(Arc<Self>, Endpoint), Errno> {
        let mut state = lock(&self.state);
        let first = state.accepted.pop_front();
        if state.accepted.is_empty() {
            self.show(&state, Ready::NONE);
        }
        let first = first.ok_or(if state.broken { Errno::NETDOWN } else { Errno::AGAIN })?;
        if let Some(unaccepted) = &state.unaccepted {
            unaccepted.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(first)
    }

    /// Ends one direction or both.
    pub(super) fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        let stands = match self.kind {
            Kind::Stream => state.connected && !state.broken,
            Kind::Datagrams => matches!(state.addresses, Some((_, Some(_)))),
            Kind::Listener => false,
        };
        if !stands {
            return Err(Errno::NOTCONN);
        }
        state.read_shut |= matches!(how, Shutdown::Read | Shutdown::Both);
        state.write_shut |= matches!(how, Shutdown::Write | Shutdown::Both);
        self.show(&state, Ready::NONE);
        Ok(())
    }
}
