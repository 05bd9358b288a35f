//! One end of a stream.

use super::ports::{Sharing, Transport};
use super::segments::Segments;
use super::socket::gather;
use super::{Body, Layer, Socket, ends, participant};
use crate::address::{ANY, Endpoint};
use crate::error;
use crate::ready::{Ready, Status};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use xk_core::control::{Field, Reader, Writer};
use xk_core::object::{PushError, SessionSlot};
use xk_core::{HostAddr, Kernel, Message, Participants, SessionRef, Upper};
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::moving::{self, Nameless};
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamEndRecord, StreamError, StreamEvent, StreamInfo, StreamSet,
    StreamSetNext, StreamSetting, StreamShutdown, StreamSpace,
};

/// Octets of one message at most: what the pool's third class holds.
pub(crate) const CHUNK_OCTETS: usize = 16 << 10;

/// First octets of the state of a stream that moves; the last letter counts on when the format
/// changes.
const MAGIC: [u8; 4] = *b"xkSa";

/// Phase of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Connecting,
    Open,
    /// The stream has been reset or has ended; true if it had been connected.
    Over(bool),
}

/// One end of a stream.
pub(crate) struct Stream {
    session: SessionSlot,
    pub(crate) phase: Cell<Phase>,
    local: Cell<Endpoint>,
    peer: Cell<Endpoint>,
    /// Messages that have arrived and have not been read.
    arrived: RefCell<Segments<Message>>,
    /// The peer sends no more.
    ended: Cell<bool>,
    read_shut: Cell<bool>,
    write_shut: Cell<bool>,
    /// Fate of unsent octets at a close (`SO_LINGER`).
    pub(crate) linger: Cell<Option<Duration>>,
    /// Octets of the receive buffer that was set, which bounds what is kept for the program besides
    /// what the session below keeps.
    pub(crate) receive_buffer: Cell<u32>,
}

impl Stream {
    fn new(session: &SessionRef, phase: Phase, peer: Endpoint) -> Self {
        Self {
            session: SessionSlot::new(Some(session.clone())),
            phase: Cell::new(phase),
            local: Cell::new(ANY),
            peer: Cell::new(peer),
            arrived: RefCell::default(),
            ended: Cell::new(false),
            read_shut: Cell::new(false),
            write_shut: Cell::new(false),
            linger: Cell::new(None),
            receive_buffer: Cell::new(u32::MAX),
        }
    }

    /// The end of a stream that a peer has opened.
    pub(super) fn accepted(session: &SessionRef) -> Self {
        Self::new(session, Phase::Open, ANY)
    }

    /// Asks where the stream's ends are. The session's socket is known before: what it is told
    /// meanwhile finds it.
    pub(super) fn find_ends(&self, cx: &Kernel) -> (Endpoint, Endpoint) {
        let (local, peer) = self.session().map_or((ANY, ANY), |session| ends(cx, &session));
        self.local.set(local);
        self.peer.set(peer);
        (local, peer)
    }

    pub(super) fn addresses(&self) -> (Endpoint, Option<Endpoint>) {
        let stands = self.phase.get() == Phase::Open;
        (self.local.get(), stands.then(|| self.peer.get()))
    }

    pub(super) fn has(&self, session: &SessionRef) -> bool {
        self.session.has(session)
    }

    pub(super) fn forget(&self) {
        drop(self.session.take());
        drop(self.arrived.take());
        self.phase.set(Phase::Over(true));
    }

    fn session(&self) -> Option<SessionRef> {
        self.session.get()
    }

    /// Octets that have arrived and have not been read.
    pub(crate) fn unread(&self) -> usize {
        self.arrived.borrow().unread
    }

    /// Hands over the messages that have arrived, for another thread to read; that thread's octets
    /// are [`consumed`](Self::consumed) then. Answers how many octets there are.
    pub(crate) fn hand_over(&self, each: impl FnMut(Message)) -> usize {
        let mut arrived = self.arrived.borrow_mut();
        let all = arrived.end();
        arrived.pass(all, each);
        all.octets
    }

    /// Octets have arrived.
    #[inline]
    pub(super) fn take(&self, status: &Arc<Status>, message: Message) {
        let octets = message.len();
        self.arrived.borrow_mut().push(message, octets);
        status.raise(Ready::READABLE);
    }

    /// Something has happened to it.
    pub(super) fn hear(&self, cx: &Kernel, socket: &Socket, event: StreamEvent) {
        let both = Ready::READABLE | Ready::WRITABLE;
        let closed = Ready::READ_CLOSED | Ready::WRITE_CLOSED;
        let status = &socket.status;
        match event {
            StreamEvent::Connected => {
                self.phase.set(Phase::Open);
                let _ = self.find_ends(cx);
                status.raise(Ready::WRITABLE | Ready::SETTLED);
            }
            StreamEvent::Writable => status.raise(Ready::WRITABLE),
            StreamEvent::EndOfStream => {
                self.ended.set(true);
                status.raise(Ready::READABLE | Ready::READ_CLOSED);
            }
            StreamEvent::Failed(why) => {
                let stood = self.phase.get() != Phase::Connecting;
                self.phase.set(Phase::Over(stood));
                socket.error.set(Some(error::of_stream(why)));
                status.raise(both | closed | Ready::ERROR | Ready::SETTLED);
            }
            StreamEvent::Closed => {
                self.phase.set(Phase::Over(true));
                self.ended.set(true);
                status.raise(both | closed | Ready::SETTLED);
            }
        }
    }

    /// Ends the stream, whose session is gone, if it has not ended before: reads and writes fail
    /// with `why`.
    pub(super) fn end(&self, socket: &Socket, why: Errno) {
        let phase = self.phase.get();
        if matches!(phase, Phase::Over(_)) || self.session().is_none() {
            return;
        }
        self.phase.set(Phase::Over(phase == Phase::Open));
        let closed = Ready::READ_CLOSED | Ready::WRITE_CLOSED;
        match self.ended.get() && self.write_shut.get() {
            true => socket.status.raise(closed | Ready::READABLE | Ready::WRITABLE),
            false => {
                socket.status.raise(closed);
                socket.fail(why);
            }
        }
    }

    /// The network reports something: one that is being connected fails by it at once, as on Linux.
    pub(super) fn hear_of_network(&self, cx: &Kernel, socket: &Socket, kind: NetworkErrorKind) {
        if self.phase.get() != Phase::Connecting {
            return;
        }
        self.abort(cx);
        if self.phase.get() == Phase::Connecting {
            self.hear(cx, socket, StreamEvent::Failed(StreamError::Network(kind)));
        }
        socket.error.set(Some(error::of_network(kind)));
    }

    /// Releases the session: what was written goes out in the background, unless something unread
    /// is thrown away with the stream or the program wants it broken off (RFC 9293, section 3.6.1;
    /// RFC 2525, section 2.17).
    pub(super) fn close(&self, cx: &Kernel) {
        let Some(session) = self.session.take() else {
            return;
        };
        let abandoned = self.unread() > 0 || self.phase.get() == Phase::Connecting;
        drop(self.arrived.take());
        if abandoned || self.linger.get() == Some(Duration::ZERO) {
            let _ = session.ask(cx, StreamAbort);
        }
        session.close(cx);
    }

    /// Breaks it off as something between the two would, if it stands and its peer is this host;
    /// false if not.
    pub(super) fn reset(&self, cx: &Kernel, socket: &Socket, peer: HostAddr) -> bool {
        if self.phase.get() != Phase::Open || self.peer.get().host != peer {
            return false;
        }
        self.abort(cx);
        self.hear(cx, socket, StreamEvent::Failed(StreamError::Reset));
        true
    }

    /// Breaks it off.
    pub(super) fn abort(&self, cx: &Kernel) {
        if let Some(session) = self.session() {
            let _ = session.ask(cx, StreamAbort);
        }
    }

    /// The whole stream as octets, with what was not read; here it is over, without a word to its
    /// peer.
    ///
    /// # Errors
    /// `ENOTCONN` if it does not stand, `EOPNOTSUPP` if the protocol below cannot let it go.
    pub(crate) fn give(&self, cx: &Kernel, socket: &Socket) -> Result<Vec<u8>, Errno> {
        let session = match (self.phase.get(), self.session()) {
            (Phase::Open, Some(session)) => session,
            _ => return Err(Errno::NOTCONN),
        };
        let ends = moving::ends_of(cx, &session).ok_or(Errno::OPNOTSUPP)?;
        let state = moving::state_of(cx, &session).ok_or(Errno::OPNOTSUPP)?;
        let names = Nameless(cx.pool());
        let mut out = Writer::new(&names);
        (MAGIC, ends).put(&mut out);
        (self.ended.get(), self.read_shut.get(), self.write_shut.get()).put(&mut out);
        (self.unread() as u32).put(&mut out);
        self.arrived.borrow().look(usize::MAX, |octets| out.put_octets(octets));
        out.put_octets(&state);
        let octets = out.finish().ok_or(Errno::OPNOTSUPP)?;
        // What ends now is no end of the stream.
        drop(self.session.take());
        if !moving::release(cx, &session, state.len()) {
            drop(self.session.replace(Some(session)));
            return Err(Errno::AGAIN);
        }
        session.close(cx);
        self.forget();
        let gone = Ready::READ_CLOSED | Ready::WRITE_CLOSED;
        socket.status.raise(gone | Ready::READABLE | Ready::WRITABLE | Ready::SETTLED);
        Ok(octets)
    }

    /// Passes at most `octets_max` octets that have arrived to `take`, slice by slice; they stay if
    /// it is but a `peek`.
    ///
    /// # Errors
    /// `EAGAIN` if there are none yet; whatever has broken the stream.
    pub(crate) fn read(
        &self,
        cx: &Kernel,
        socket: &Socket,
        octets_max: usize,
        peek: bool,
        take: impl FnMut(&[u8]),
    ) -> Result<usize, Errno> {
        if octets_max == 0 {
            return Ok(0);
        }
        let mut arrived = self.arrived.borrow_mut();
        if arrived.unread == 0 {
            return self.read_nothing(socket).map(|()| 0);
        }
        let read = arrived.look(octets_max, take);
        if peek {
            return Ok(read.octets);
        }
        arrived.pass(read, drop);
        let left = arrived.unread;
        drop(arrived);
        if left == 0
            && !self.ended.get()
            && self.phase.get() == Phase::Open
            && !self.read_shut.get()
        {
            socket.status.lower(Ready::READABLE);
        }
        self.consumed(cx, read.octets);
        Ok(read.octets)
    }

    /// Tells the session below that so many octets have been taken.
    pub(crate) fn consumed(&self, cx: &Kernel, octets: usize) {
        if let Some(session) = self.session().filter(|_| octets > 0) {
            let octets = u32::try_from(octets).unwrap_or(u32::MAX);
            let _ = session.ask(cx, StreamConsumed { octets });
        }
    }

    /// Result of a read when nothing has arrived: the end of the stream, unless it is an error.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn read_nothing(&self, socket: &Socket) -> Result<(), Errno> {
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        match self.phase.get() {
            Phase::Over(false) => Err(Errno::NOTCONN),
            Phase::Over(true) => Ok(()),
            _ if self.ended.get() || self.read_shut.get() => Ok(()),
            _ => {
                socket.status.lower(Ready::READABLE);
                Err(Errno::AGAIN)
            }
        }
    }

    /// Sends as much of `from` as there is room for; answers how many octets that was.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room at all; `EPIPE` behind the end; whatever has broken the stream.
    pub(crate) fn write(
        &self,
        cx: &Kernel,
        socket: &Socket,
        from: &[IoSlice<'_>],
    ) -> Result<usize, Errno> {
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        let session = match (self.phase.get(), self.session()) {
            (Phase::Connecting, _) => return Err(Errno::AGAIN),
            (Phase::Open, Some(session)) if !self.write_shut.get() => session,
            (Phase::Over(false), _) => return Err(Errno::NOTCONN),
            _ => return Err(Errno::PIPE),
        };
        let total = from.iter().map(|slice| slice.len()).sum::<usize>();
        if total == 0 {
            return Ok(0);
        }
        let mut done = 0;
        while done < total {
            let mut space = self::space(cx, &session);
            if space == 0 {
                // Room that is told of while it is asked for counts.
                socket.status.lower(Ready::WRITABLE);
                space = self::space(cx, &session);
                if space > 0 {
                    socket.status.raise(Ready::WRITABLE);
                }
            }
            let octets = space.min(CHUNK_OCTETS).min(total - done);
            let result = match octets {
                0 => Err(Errno::AGAIN),
                _ => push(cx, &session, from, done, octets),
            };
            match result {
                Ok(()) => done += octets,
                Err(error) => {
                    if error == Errno::AGAIN && space > 0 {
                        socket.status.lower(Ready::WRITABLE);
                        retry(cx, &session, socket);
                    }
                    return if done > 0 { Ok(done) } else { Err(error) };
                }
            }
        }
        Ok(done)
    }

    /// Ends a record behind what was written so far.
    pub(crate) fn end_record(&self, cx: &Kernel) {
        if let Some(session) = self.session() {
            // A transport without records sends octets as it likes.
            let _ = session.ask(cx, StreamEndRecord);
        }
    }

    /// Ends one direction or both.
    ///
    /// # Errors
    /// `ENOTCONN` if it does not stand.
    pub(crate) fn shutdown(
        &self,
        cx: &Kernel,
        socket: &Socket,
        how: Shutdown,
    ) -> Result<(), Errno> {
        let session = match (self.phase.get(), self.session()) {
            (Phase::Open, Some(session)) => session,
            _ => return Err(Errno::NOTCONN),
        };
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.read_shut.set(true);
            socket.status.raise(Ready::READABLE | Ready::READ_CLOSED);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) && !self.write_shut.replace(true) {
            let _ = session.ask(cx, StreamShutdown);
            socket.status.raise(Ready::WRITABLE | Ready::WRITE_CLOSED);
        }
        Ok(())
    }

    /// Sets something on the stream below.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if no layer below knows it, `EINVAL` if the value is out of bounds.
    pub(crate) fn set(&self, cx: &Kernel, setting: StreamSetting) -> Result<(), Errno> {
        let Some(session) = self.session() else {
            return Err(Errno::INVAL);
        };
        match session.ask(cx, StreamSet { setting, taken: true }) {
            Some(answer) if answer.taken => {
                if let StreamSetting::ReceiveBuffer(octets) = setting {
                    self.receive_buffer.set(octets);
                }
                Ok(())
            }
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::NOPROTOOPT),
        }
    }

    /// State of the stream.
    pub(crate) fn info(&self, cx: &Kernel) -> Result<StreamInfo, Errno> {
        let session = self.session().ok_or(Errno::NOTCONN)?;
        session.ask(cx, StreamInfo::default()).ok_or(Errno::NOPROTOOPT)
    }
}

/// Number of octets that the stream takes at present.
fn space(cx: &Kernel, session: &SessionRef) -> usize {
    session.ask(cx, StreamSpace::default()).map_or(CHUNK_OCTETS, |q| q.octets as usize)
}

/// After how long what a queue below had no room for is tried again: of that room nothing tells.
const RETRY: Duration = Duration::from_millis(1);

/// Has the socket be ready again in a moment.
fn retry(cx: &Kernel, session: &SessionRef, socket: &Socket) {
    let upper = cx.protocol(session.head().upper());
    let timer = upper.map(|upper| cx.schedule_protocol(&upper, RETRY, socket.tag().into()));
    if !matches!(timer, Some(Ok(_))) {
        socket.status.raise(Ready::WRITABLE);
    }
}

fn push(
    cx: &Kernel,
    session: &SessionRef,
    from: &[IoSlice<'_>],
    skip: usize,
    octets: usize,
) -> Result<(), Errno> {
    let message = gather(cx, from, skip, octets).map_err(|_| Errno::NOBUFS)?;
    session.push(cx, message).map_err(|error| match error {
        // The stream has less room than it said: as if it had said so.
        PushError::TooBig => Errno::AGAIN,
        error => error::of_push(error),
    })
}

/// Has the session below wait for what the program reads.
pub(super) fn reads_by_hand(cx: &Kernel, session: &SessionRef) {
    let setting = StreamSetting::ManualWindow(true);
    let taken = true;
    let _ = session.ask(cx, StreamSet { setting, taken });
}

impl Layer {
    /// The stream that was given elsewhere as these octets goes on here.
    ///
    /// # Errors
    /// `EINVAL` if they are no stream's, `EADDRINUSE` and the like if its ends cannot be had.
    pub(crate) fn resume(&self, cx: &Kernel, octets: &[u8]) -> Result<Rc<Socket>, Errno> {
        let (tcp, this) = (self.tcp()?, self.this()?);
        let names = Nameless(cx.pool());
        let mut from = Reader::new(octets, &names);
        let read = |from: &mut Reader<'_>| {
            let (magic, ends) = <([u8; 4], Participants)>::take(from)?;
            let shut = <(bool, bool, bool)>::take(from)?;
            let count = u32::take(from)? as usize;
            let mut unread = Segments::default();
            for chunk in from.octets(count)?.chunks(CHUNK_OCTETS) {
                unread.push(cx.pool().copy_from(0, chunk).ok()?, chunk.len());
            }
            Some((ends, shut, unread)).filter(|_| magic == MAGIC)
        };
        let (ends_there, shut, unread) = read(&mut from).ok_or(Errno::INVAL)?;
        if !self.has_place() {
            return Err(Errno::MFILE);
        }
        if !moving::bring(cx, &tcp, &ends_there, from.rest()) {
            return Err(Errno::INVAL);
        }
        let opened = tcp.open(cx, Upper::new(&this), ends_there);
        let session = opened.map_err(|error| error::of_open(error, false))?;
        let body = Stream::new(&session, Phase::Open, ANY);
        body.ended.set(shut.0);
        body.read_shut.set(shut.1);
        body.write_shut.set(shut.2);
        let count = unread.unread;
        drop(body.arrived.replace(unread));
        let socket = self.begin(cx, &session, body)?;
        socket.status.raise(Ready::WRITABLE | Ready::SETTLED);
        if count > 0 || shut.0 || shut.1 {
            socket.status.raise(Ready::READABLE);
        }
        Ok(socket)
    }

    /// The socket of a stream that this side has opened.
    fn begin(&self, cx: &Kernel, session: &SessionRef, body: Stream) -> Result<Rc<Socket>, Errno> {
        let socket = self.add(Body::Stream(body))?;
        session.head().set_tag(socket.tag());
        session.watch();
        if let Body::Stream(stream) = &socket.body {
            let _ = stream.find_ends(cx);
            if session.head().is_closed() {
                stream.end(&socket, Errno::NETDOWN);
            }
        }
        Ok(socket)
    }

    /// Begins to connect to `peer`, with these settings where they can be had; the socket is ready
    /// to be written once the stream stands or has failed.
    pub(crate) fn connect(
        &self,
        cx: &Kernel,
        local: Option<Endpoint>,
        peer: Endpoint,
        before: &[StreamSetting],
    ) -> Result<Rc<Socket>, Errno> {
        let (tcp, this) = (self.tcp()?, self.this()?);
        let local = local.unwrap_or(ANY);
        if peer.port == 0 {
            return Err(Errno::CONNREFUSED);
        }
        self.check_local(cx, &tcp, local.host)?;
        let peer = Self::definite(cx, &tcp, peer);
        let participants = Participants::pair(participant(local), participant(peer));
        let bound = local.port != 0;
        if bound {
            // Others may be bound there as well, if they do not listen.
            self.ports.bind(Transport::Tcp, local, Sharing::ANY)?;
        }
        for setting in before {
            let (setting, taken) = (*setting, true);
            let _ = tcp.ask(cx, StreamSetNext { set: StreamSet { setting, taken } });
        }
        let opened = tcp.open(cx, Upper::new(&this), participants);
        if bound {
            // From now on the session itself keeps others away from both ends.
            self.ports.unbind(Transport::Tcp, local, Sharing::ANY);
        }
        let session = opened.map_err(|error| error::of_open(error, false))?;
        let body = Stream::new(&session, Phase::Connecting, peer);
        let socket = self.begin(cx, &session, body).inspect_err(|_| {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        })?;
        reads_by_hand(cx, &session);
        Ok(socket)
    }
}
