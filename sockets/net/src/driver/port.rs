//! The place where the program's threads and the stack's thread meet for one socket: bounded
//! queues under a lock. What has arrived on a stream is read where it lies, outside of that lock.

use super::commands::{Command, CommandQueue};
use super::drive::Scatter;
use crate::address::Endpoint;
use crate::layer::{CHUNK_OCTETS, DATAGRAM_OCTETS_MAX, Octets, Phase, Received, Segments, To};
use crate::ready::{Ready, Status, lock};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use xk_core::Message;
use xk_core::message::{Away, Pool};
use xk_kit::net::attribute::Arrived;

/// Octets of a stream that wait here at most in each direction; of those that have arrived, besides
/// the receive window.
pub(super) const STREAM_OCTETS_MAX: usize = 256 << 10;
/// Octets of datagrams that wait here at most, in each direction, each counted with its overhead.
pub(super) const DATAGRAMS_OCTETS_MAX: usize = 212_992;
/// Octets of a message from which on it is read where it lies. A buffer for frames of Ethernet has
/// four times as many.
const COPIED_BELOW: usize = 512;
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
    /// Place of the socket in the stack's table.
    pub(super) place: u32,
    pub(super) status: Arc<Status>,
    commands: Arc<CommandQueue>,
    /// The stack is going to look after it.
    pub(super) queued: AtomicBool,
    /// Segments for the thread that reads, which copies them under this lock; taken before that of
    /// the state.
    reading: Mutex<Segments<Segment>>,
    pub(super) state: Mutex<State>,
}

/// End of what a program sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Writing {
    #[default]
    On,
    /// The program has ended it.
    Ended,
    /// The stack has been told.
    Told,
}

/// Queues of a socket, its phase, and the settings in force.
#[derive(Default)]
pub(super) struct State {
    pub(super) addresses: Option<(Endpoint, Option<Endpoint>)>,
    /// Segments that no reader has taken up.
    pub(super) arrived: Segments<Segment>,
    /// Octets that have arrived and have not been read, and those that still count against the
    /// receive window, read or not.
    pub(super) unread: usize,
    pub(super) owed: usize,
    /// Something has arrived of which no thread has been told.
    pub(super) fresh: bool,
    /// Segments that have been read, for the stack.
    pub(super) done: Vec<Away>,
    /// Unread octets of a stack that has ended.
    last: VecDeque<u8>,
    /// Octets to be sent, but for those that the stack has in hand, which `unsent` counts as well.
    pub(super) leaving: VecDeque<Piece>,
    pub(super) unsent: usize,
    pub(super) datagrams_arrived: Datagrams,
    pub(super) datagrams_leaving: Datagrams,
    /// Peers that have connected, and how many those are, as the stack counts them.
    pub(super) accepted: VecDeque<(Arc<Port>, Endpoint)>,
    pub(super) unaccepted: Option<Arc<AtomicUsize>>,
    /// Phase of a stream; once it is over, nothing more goes out of a socket of any kind.
    pub(super) phase: Phase,
    pub(super) error: Option<Errno>,
    /// The peer sends no more, or the program reads no more.
    pub(super) read_over: bool,
    pub(super) writing: Writing,
    /// No handle is left.
    pub(super) closing: bool,
    /// True if octets that are not sent yet are dropped once it is closed.
    pub(super) abandoned: bool,
    /// Octets to be sent that wait here at most, if fewer than usual.
    pub(super) leaving_max: Option<usize>,
}

/// Octets of a stream that have arrived.
pub(super) enum Segment {
    /// The message, which goes back to its pool.
    Away(Away),
    /// Octets of small messages, which would keep more of the pool than they hold.
    Copied(Vec<u8>),
}

impl Octets for Segment {
    #[inline]
    fn each_slice(&self, mut take: impl FnMut(&[u8])) {
        match self {
            Self::Away(away) => away.octet_slices().for_each(take),
            Self::Copied(octets) => take(octets),
        }
    }
}

/// Octets of a stream that are to leave in one message.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) octets: Vec<u8>,
    /// Number of octets that have left.
    pub(super) sent: usize,
    pub(super) ends_record: bool,
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
    /// The stack has more than there was room for.
    pub(super) more: bool,
}

impl State {
    /// Nothing more goes out.
    pub(super) fn break_off(&mut self) {
        if !self.is_over() {
            self.phase = Phase::Over(self.phase == Phase::Open);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Octets that may still be written.
    fn room(&self) -> usize {
        self.leaving_max.unwrap_or(STREAM_OCTETS_MAX).saturating_sub(self.unsent)
    }

    /// Takes a message that has arrived, on its pool's thread.
    pub(super) fn arrive(&mut self, message: Message) {
        let octets = message.len();
        if octets >= COPIED_BELOW {
            return self.arrived.push(Segment::Away(Away::new(message)), octets);
        }
        match self.arrived.last_mut() {
            Some(Segment::Copied(last)) if last.len() < CHUNK_OCTETS => {
                message.octet_slices().for_each(|slice| last.extend_from_slice(slice));
                self.arrived.unread += octets;
            }
            _ => {
                let mut copied = Vec::with_capacity(octets);
                message.octet_slices().for_each(|slice| copied.extend_from_slice(slice));
                self.arrived.push(Segment::Copied(copied), octets);
            }
        }
    }

    /// Ends a record behind what was written so far; false if none of it waits here.
    pub(super) fn end_record(&mut self) -> bool {
        if self.unsent == 0 {
            return false;
        }
        match self.leaving.back_mut() {
            Some(last) => last.ends_record = true,
            None => self.leaving.push_back(Piece { ends_record: true, ..Piece::default() }),
        }
        true
    }

    /// Takes octets that are to be sent, as many as there is room for; answers how many.
    fn put(&mut self, octets: &[u8]) -> usize {
        let mut left = &octets[..octets.len().min(self.room())];
        let taken = left.len();
        self.unsent += taken;
        while !left.is_empty() {
            match self.leaving.back_mut() {
                Some(last) if last.octets.len() < CHUNK_OCTETS && !last.ends_record => {
                    let (now, behind) =
                        left.split_at(left.len().min(CHUNK_OCTETS - last.octets.len()));
                    last.octets.extend_from_slice(now);
                    left = behind;
                }
                _ => self.leaving.push_back(Piece::default()),
            }
        }
        taken
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

impl Port {
    pub(super) fn new(kind: Kind, place: u32, commands: &Arc<CommandQueue>) -> Arc<Self> {
        Arc::new(Self {
            kind,
            place,
            status: Arc::default(),
            commands: Arc::clone(commands),
            queued: AtomicBool::new(false),
            reading: Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// Has the stack look after the port: at once, or when its loop turns next.
    pub(super) fn tend(self: &Arc<Self>, at_once: bool) {
        // The flag is set in the queue's lock: the stack finds the command of a flag that is set
        // once it has that lock, and a thread that finds it set need but ring. With a stack that
        // has ended there is nothing to look after.
        if !self.queued.load(Ordering::SeqCst) {
            let tend = || Command::Tend(Arc::clone(self));
            let _ = self.commands.put(|| (!self.queued.swap(true, Ordering::SeqCst)).then(tend));
        }
        if at_once {
            self.commands.bell().ring();
        }
    }

    /// Says what can be done now, and tells of what could not before.
    pub(super) fn show(&self, state: &State) {
        let (over, failed) = (state.is_over(), state.error.is_some());
        let (ended, shut) = (state.read_over || over, state.writing != Writing::On);
        let readable = match self.kind {
            Kind::Stream => state.unread > 0,
            Kind::Listener => !state.accepted.is_empty(),
            Kind::Datagrams => !state.datagrams_arrived.list.is_empty(),
        };
        let writable = match self.kind {
            Kind::Stream => over || state.phase == Phase::Open && state.room() > 0,
            Kind::Listener => false,
            Kind::Datagrams => state.datagrams_leaving.has_room(DATAGRAM_OCTETS_MAX),
        };
        let now = Ready::READABLE.when(readable || ended || failed)
            | Ready::WRITABLE.when(writable || shut || failed)
            | Ready::READ_CLOSED.when(ended)
            | Ready::WRITE_CLOSED.when(shut || over)
            | Ready::ERROR.when(failed)
            | Ready::SETTLED.when(state.phase != Phase::Connecting);
        let before = self.status.now();
        self.status.lower(!now);
        let raised = now & (Ready::READABLE.when(state.fresh) | !before);
        if !raised.is_empty() {
            self.status.raise(raised);
        }
    }

    /// Gives back all messages, from the stack's thread, to whose pool they belong. Octets that
    /// have not been read can still be.
    pub(super) fn withdraw(&self, pool: &Pool) {
        let (mut reading, mut state) = (lock(&self.reading), lock(&self.state));
        reading.append(&mut state.arrived);
        let end = reading.look(usize::MAX, |octets| state.last.extend(octets));
        reading.pass(end, |segment| {
            if let Segment::Away(message) = segment {
                drop(message.back(pool));
            }
        });
        state.done.drain(..).for_each(|message| drop(message.back(pool)));
    }

    fn take_error(&self, state: &mut State) -> Option<Errno> {
        let error = state.error.take();
        if error.is_some() {
            self.show(state);
        }
        error
    }

    /// The error that waits, told once.
    pub(super) fn error(&self) -> Option<Errno> {
        self.take_error(&mut lock(&self.state))
    }

    /// Octets that a read finds at once.
    pub(super) fn unread(&self) -> usize {
        let (reading, state) = (lock(&self.reading), lock(&self.state));
        let first = state.datagrams_arrived.list.front();
        let stream = reading.unread + state.arrived.unread + state.last.len();
        stream + first.map_or(0, |datagram| datagram.octets.len())
    }

    /// Reads from a stream.
    pub(super) fn read(
        self: &Arc<Self>,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize, Errno> {
        let mut scatter = Scatter::new(into);
        let room = scatter.room();
        if room == 0 {
            return Ok(0);
        }
        let mut reading = lock(&self.reading);
        if reading.unread <= room {
            let mut state = lock(&self.state);
            reading.append(&mut state.arrived);
            if reading.unread == 0 {
                return self.read_nothing(&mut state, &mut scatter, peek);
            }
            if reading.unread <= room && !peek {
                state.unread = 0;
                self.show(&state);
            }
        }
        let read = reading.look(room, |octets| scatter.put(octets));
        if peek {
            return Ok(read.octets);
        }
        if read.whole == 0 {
            reading.pass(read, drop);
            return Ok(read.octets);
        }
        let mut state = lock(&self.state);
        reading.pass(read, |segment| {
            if let Segment::Away(message) = segment {
                state.done.push(message);
            }
        });
        state.unread = state.arrived.unread + reading.unread;
        let hungry = state.owed > 0 && state.unread <= STREAM_OCTETS_MAX / 2;
        // A program that reads no more leaves no buffers of the pool here.
        let is_over = state.unread == 0 && !state.done.is_empty();
        drop(state);
        if hungry || is_over {
            self.tend(hungry);
        }
        Ok(read.octets)
    }

    /// Reads where no segment is left.
    fn read_nothing(
        self: &Arc<Self>,
        state: &mut State,
        scatter: &mut Scatter<'_, '_>,
        peek: bool,
    ) -> Result<usize, Errno> {
        let octets = state.last.len().min(scatter.room());
        if octets > 0 {
            scatter.put(&state.last.make_contiguous()[..octets]);
            if !peek {
                state.last.drain(..octets);
            }
            return Ok(octets);
        }
        match self.take_error(state) {
            Some(error) => Err(error),
            None if state.read_over || state.phase == Phase::Over(true) => Ok(0),
            None if state.is_over() => Err(Errno::NOTCONN),
            None => {
                if !state.done.is_empty() {
                    // They need not wait for what comes next.
                    self.tend(false);
                }
                Err(Errno::AGAIN)
            }
        }
    }

    /// Writes as much as there is room for.
    pub(super) fn write(self: &Arc<Self>, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut state = lock(&self.state);
        if let Some(error) = self.take_error(&mut state) {
            return Err(error);
        }
        match state.phase {
            Phase::Over(false) => return Err(Errno::NOTCONN),
            Phase::Over(true) => return Err(Errno::PIPE),
            _ if state.writing != Writing::On => return Err(Errno::PIPE),
            Phase::Connecting => return Err(Errno::AGAIN),
            Phase::Open => {}
        }
        let mut done = 0;
        for slice in from {
            done += state.put(slice);
        }
        if state.room() == 0 {
            self.show(&state);
            if done == 0 && from.iter().any(|slice| !slice.is_empty()) {
                return Err(Errno::AGAIN);
            }
        }
        drop(state);
        if done > 0 {
            self.tend(true);
        }
        Ok(done)
    }

    /// Receives a datagram.
    pub(super) fn receive(
        self: &Arc<Self>,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received, Errno> {
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
            return match state.read_over {
                true => Ok(nobody),
                false if state.is_over() => Err(Errno::NETDOWN),
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
            return Ok(received);
        }
        state.datagrams_arrived.pop();
        let hungry = std::mem::take(&mut state.datagrams_arrived.more);
        if state.datagrams_arrived.list.is_empty() {
            self.show(&state);
        }
        drop(state);
        if hungry {
            self.tend(true);
        }
        Ok(received)
    }

    /// Sends a datagram as soon as the stack comes to it.
    pub(super) fn send(self: &Arc<Self>, from: &[IoSlice<'_>], to: To) -> Result<usize, Errno> {
        let length = from.iter().map(|slice| slice.len()).sum::<usize>();
        let mut state = lock(&self.state);
        if let Some(error) = self.take_error(&mut state) {
            return Err(error);
        }
        let connected = matches!(state.addresses, Some((_, Some(_))));
        match to.peer {
            _ if state.is_over() => return Err(Errno::NETDOWN),
            _ if state.writing != Writing::On => return Err(Errno::PIPE),
            _ if length > DATAGRAM_OCTETS_MAX => return Err(Errno::MSGSIZE),
            None if !connected => return Err(Errno::DESTADDRREQ),
            Some(to) if to.port == 0 => return Err(Errno::INVAL),
            _ => {}
        }
        if !state.datagrams_leaving.has_room(length) {
            self.show(&state);
            return Err(Errno::AGAIN);
        }
        let mut datagram = Vec::with_capacity(length);
        for slice in from {
            datagram.extend_from_slice(slice);
        }
        let datagram = Waiting { octets: datagram.into(), to, arrived: None };
        state.datagrams_leaving.push(datagram);
        drop(state);
        self.tend(true);
        Ok(length)
    }

    /// Takes the peer that has waited longest.
    pub(super) fn accept(&self) -> Result<(Arc<Self>, Endpoint), Errno> {
        let mut state = lock(&self.state);
        let first = state.accepted.pop_front();
        if state.accepted.is_empty() {
            self.show(&state);
        }
        let first = first.ok_or(if state.is_over() { Errno::NETDOWN } else { Errno::AGAIN })?;
        if let Some(unaccepted) = &state.unaccepted {
            unaccepted.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(first)
    }

    /// Ends one direction or both.
    pub(super) fn shutdown(self: &Arc<Self>, how: Shutdown) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        let stands = match self.kind {
            Kind::Stream => state.phase == Phase::Open,
            Kind::Datagrams => matches!(state.addresses, Some((_, Some(_)))),
            Kind::Listener => false,
        };
        if !stands {
            return Err(Errno::NOTCONN);
        }
        state.read_over |= matches!(how, Shutdown::Read | Shutdown::Both);
        if how != Shutdown::Read && state.writing == Writing::On {
            state.writing = Writing::Ended;
        }
        self.show(&state);
        drop(state);
        self.tend(true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::message::PoolConfig;

    #[test]
    fn what_has_arrived_is_read_behind_the_end_of_the_stack() {
        let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        let port = Port::new(Kind::Stream, 0, &Arc::new(CommandQueue::new().unwrap()));
        let read = |most: usize, peek| {
            let mut octets = vec![0; most];
            let count = port.read(&mut [IoSliceMut::new(&mut octets)], peek)?;
            Ok(String::from_utf8(octets[..count].to_vec()).unwrap())
        };
        for text in ["one ", "segment ", "and another"] {
            let mut state = lock(&port.state);
            let message = pool.copy_from(0, text.as_bytes()).unwrap();
            state.arrived.push(Segment::Away(Away::new(message)), text.len());
            state.unread += text.len();
        }
        assert_eq!((read(2, false), read(9, true)), (Ok("on".into()), Ok("e segment".into())));
        assert_eq!((read(9, false), port.unread()), (Ok("e segment".into()), 12));
        assert_eq!(lock(&port.state).done.len(), 1);
        port.withdraw(&pool);
        assert_eq!(pool.stats().buffers_live, 0);
        (lock(&port.state).error, lock(&port.state).phase) =
            (Some(Errno::NETDOWN), Phase::Over(true));
        assert_eq!((read(9, false), read(9, false)), (Ok(" and anot".into()), Ok("her".into())));
        assert_eq!((read(9, false), read(9, false)), (Err(Errno::NETDOWN), Ok(String::new())));
    }

    #[test]
    fn small_messages_keep_nothing_of_the_pool() {
        let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        let port = Port::new(Kind::Stream, 0, &Arc::new(CommandQueue::new().unwrap()));
        let long = "l".repeat(COPIED_BELOW);
        for text in ["a", "b", &long, "c", "d"] {
            lock(&port.state).arrive(pool.copy_from(0, text.as_bytes()).unwrap());
        }
        assert_eq!((pool.stats().buffers_live, port.unread()), (1, COPIED_BELOW + 4));
        let mut read = vec![0; COPIED_BELOW + 10];
        let octets = port.read(&mut [IoSliceMut::new(&mut read)], false);
        assert_eq!(octets, Ok(COPIED_BELOW + 4));
        assert_eq!(read[..COPIED_BELOW + 4], *["ab", &long, "cd"].concat().as_bytes());
        // The stack is asked to take the long one back.
        assert_eq!((lock(&port.state).done.len(), port.queued.load(Ordering::SeqCst)), (1, true));
        port.withdraw(&pool);
        assert_eq!(pool.stats().buffers_live, 0);
    }
}
