//! One connection of the system's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown, sockopt};
use xk_core::control::Describe;
use xk_core::object::{Closing, PushError, Refused};
use xk_core::reason::{self, Class};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Reason, Session, SessionRef};
use xk_kit::control::{MaxPacket, NetworkErrorKind, OptPacket, PeerProved};
use xk_kit::net::ports;
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamError, StreamEvent, StreamInfo, StreamNotice, StreamSet,
    StreamSetting, StreamShutdown, StreamSpace, StreamState,
};
use xk_kit::wire::entry::HEADROOM;

use super::protocol::Shared;

/// Octets that one read takes.
const READ_OCTETS: usize = 16 << 10;
/// Pieces that one write gives.
const SLICES_MAX: usize = 64;
/// The longest wait that the system can be told in milliseconds.
const MILLISECONDS_MAX: u128 = u32::MAX as u128;

/// Dropped: octets that the protocol above refused; the connection is broken off, since those that
/// follow would not be what was sent.
pub(crate) static NOT_TAKEN: Reason = Reason::new("refused above", Class::Exhausted);

/// The body of a session.
pub(crate) struct Stream {
    shared: Rc<Shared>,
    pub(crate) upper: ProtocolRef,
    pub(crate) number: u64,
    pub(crate) ends: Cell<(SocketAddrV4, SocketAddrV4)>,
    /// Closed with the end.
    socket: RefCell<Option<OwnedFd>>,
    is_open: Cell<bool>,
    may_read: Cell<bool>,
    may_write: Cell<bool>,
    /// Messages for which the system had no room.
    waiting: RefCell<VecDeque<Message>>,
    waiting_octets: Cell<usize>,
    /// Space was asked for and there was too little.
    wants_space: Cell<bool>,
    /// The end of our direction is to follow what waits; it has followed; that of the peer's came.
    is_shut: Cell<bool>,
    has_ended: Cell<bool>,
    peer_ended: Cell<bool>,
    /// No protocol above holds it any more.
    is_released: Cell<bool>,
    is_manual: Cell<bool>,
    unconsumed: Cell<usize>,
    send_max: Cell<usize>,
    receive_max: Cell<usize>,
    delivered: Cell<u64>,
    taken: Cell<u64>,
}

/// Why it broke, as the stream's users know it.
fn meaning(error: Errno) -> StreamError {
    use NetworkErrorKind as Kind;
    match error {
        Errno::CONNREFUSED => StreamError::Refused,
        Errno::TIMEDOUT => StreamError::TimedOut,
        Errno::NETUNREACH => StreamError::Network(Kind::NetUnreachable),
        Errno::HOSTUNREACH | Errno::HOSTDOWN => StreamError::Network(Kind::HostUnreachable),
        Errno::ACCESS | Errno::PERM => StreamError::Network(Kind::Prohibited),
        Errno::NOBUFS | Errno::NOMEM => StreamError::NoBuffers,
        Errno::CONNABORTED => StreamError::Aborted,
        _ => StreamError::Reset,
    }
}

impl Stream {
    pub(crate) fn new(
        shared: &Rc<Shared>,
        upper: &ProtocolRef,
        (number, socket): (u64, OwnedFd),
        ends: (SocketAddrV4, SocketAddrV4),
        is_open: bool,
    ) -> Self {
        let limits = shared.limits;
        Self {
            shared: Rc::clone(shared),
            upper: upper.clone(),
            number,
            ends: Cell::new(ends),
            socket: RefCell::new(Some(socket)),
            is_open: Cell::new(is_open),
            may_read: Cell::new(false),
            may_write: Cell::new(is_open),
            waiting: RefCell::default(),
            waiting_octets: Cell::new(0),
            wants_space: Cell::new(false),
            is_shut: Cell::new(false),
            has_ended: Cell::new(false),
            peer_ended: Cell::new(false),
            is_released: Cell::new(false),
            is_manual: Cell::new(false),
            unconsumed: Cell::new(0),
            send_max: Cell::new(limits.send_max),
            receive_max: Cell::new(limits.receive_max),
            delivered: Cell::new(0),
            taken: Cell::new(0),
        }
    }

    /// Notes the system's events of the socket.
    pub(crate) fn learn(&self, events: EventFlags) {
        let broken = EventFlags::ERR | EventFlags::HUP;
        if events.intersects(EventFlags::IN | EventFlags::RDHUP | broken) {
            self.may_read.set(true);
        }
        if events.intersects(EventFlags::OUT | broken) {
            self.may_write.set(true);
        }
    }

    fn with<R>(&self, work: impl FnOnce(&OwnedFd) -> Result<R, Errno>) -> Result<R, Errno> {
        self.socket.borrow().as_ref().map_or(Err(Errno::NOTCONN), work)
    }

    fn notify(&self, cx: &Kernel, this: &SessionRef, event: StreamEvent) {
        if self.is_released.get() {
            return;
        }
        let session = this.clone();
        let is_understood = self.upper.ask(cx, StreamNotice { session, event }).is_some();
        if event == StreamEvent::EndOfStream && !is_understood {
            // A protocol that knows nothing of streams will not end this one.
            self.is_shut.set(true);
        }
    }

    /// Does what can be done now; answers how many messages went up.
    pub(crate) fn work(&self, cx: &Kernel, this: &SessionRef, budget: usize) -> usize {
        if self.socket.borrow().is_none() {
            return 0;
        }
        if !self.is_open.get() {
            if !self.may_write.get() {
                return 0;
            }
            match self.with(|socket| sockopt::socket_error(socket)) {
                Ok(Ok(())) => self.is_open.set(true),
                Ok(Err(error)) | Err(error) => {
                    self.fail(cx, this, meaning(error));
                    return 1;
                }
            }
            self.notify(cx, this, StreamEvent::Connected);
        }
        if let Err(error) = self.write() {
            self.fail(cx, this, meaning(error));
            return 1;
        }
        self.tell_space(cx, this);
        let count = self.read(cx, this, budget);
        // What came may have been answered, or have ended it.
        self.end_if_due(cx, this);
        count
    }

    fn tell_space(&self, cx: &Kernel, this: &SessionRef) {
        if self.wants_space.get() && self.waiting_octets.get() <= self.send_max.get() / 2 {
            self.wants_space.set(false);
            self.notify(cx, this, StreamEvent::Writable);
        }
    }

    /// Writes what waits, then the end if it is asked for.
    fn write(&self) -> Result<(), Errno> {
        if !self.is_open.get() {
            return Ok(());
        }
        while self.may_write.get() && self.waiting_octets.get() > 0 {
            let sent = {
                let waiting = self.waiting.borrow();
                let slices = waiting.iter().flat_map(Message::octet_slices);
                let slices: Vec<_> = slices.take(SLICES_MAX).map(IoSlice::new).collect();
                let none = &mut SendAncillaryBuffer::default();
                self.with(|socket| sendmsg(socket, &slices, none, SendFlags::NOSIGNAL))
            };
            match sent {
                Ok(octets) => self.is_taken(octets),
                Err(Errno::AGAIN) => self.may_write.set(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        if self.is_shut.get() && !self.has_ended.get() && self.waiting_octets.get() == 0 {
            self.has_ended.set(true);
            self.with(|socket| shutdown(socket, Shutdown::Write))?;
        }
        Ok(())
    }

    /// The system has taken so many octets.
    fn is_taken(&self, octets: usize) {
        self.waiting_octets.set(self.waiting_octets.get() - octets);
        self.taken.set(self.taken.get() + octets as u64);
        let (mut left, mut gone) = (octets, Vec::new());
        let mut waiting = self.waiting.borrow_mut();
        while let Some(first) = waiting.front_mut() {
            if first.len() > left {
                let _ = first.strip(left);
                break;
            }
            left -= first.len();
            gone.extend(waiting.pop_front());
        }
    }

    fn read(&self, cx: &Kernel, this: &SessionRef, budget: usize) -> usize {
        let mut count = 0;
        let may_go_on = || {
            let is_full = self.is_manual.get() && self.unconsumed.get() >= self.receive_max.get();
            self.may_read.get() && !self.peer_ended.get() && !self.is_released.get() && !is_full
        };
        while may_go_on() {
            if count >= budget || cx.must_leave() {
                self.shared.is_ready(self.number);
                break;
            }
            let Ok(mut message) = cx.pool().alloc(HEADROOM, READ_OCTETS) else {
                self.shared.later(cx, self.number);
                break;
            };
            let room = message.front_mut().unwrap_or_default();
            match self.with(|socket| rustix::io::read(socket, room)) {
                Ok(0) => {
                    self.peer_ended.set(true);
                    self.notify(cx, this, StreamEvent::EndOfStream);
                    return count + 1;
                }
                Ok(octets) => {
                    message.truncate(octets);
                    self.delivered.set(self.delivered.get() + octets as u64);
                    self.unconsumed.set(self.unconsumed.get() + octets);
                    count += 1;
                    if this.pop(cx, message).is_err() && !self.is_released.get() {
                        if let Some(protocol) = this.protocol(cx) {
                            protocol.head().drops().count(&NOT_TAKEN);
                        }
                        self.reset();
                        self.fail(cx, this, StreamError::Aborted);
                    }
                }
                Err(Errno::AGAIN) => self.may_read.set(false),
                Err(Errno::INTR) => {}
                Err(Errno::NOTCONN) if self.socket.borrow().is_none() => break,
                Err(error) => {
                    self.fail(cx, this, meaning(error));
                    return count + 1;
                }
            }
        }
        count
    }

    /// Ends it once both directions have, or what was left behind is written.
    fn end_if_due(&self, cx: &Kernel, this: &SessionRef) {
        if self.socket.borrow().is_none() {
            return;
        }
        if let Err(error) = self.write() {
            self.fail(cx, this, meaning(error));
        } else if self.has_ended.get() && self.is_released.get() {
            self.finish(cx, this);
        } else if self.has_ended.get() && self.peer_ended.get() {
            self.notify(cx, this, StreamEvent::Closed);
            self.finish(cx, this);
        }
    }

    fn fail(&self, cx: &Kernel, this: &SessionRef, error: StreamError) {
        // Before anything is told: what is told may close it.
        drop(self.socket.take());
        self.notify(cx, this, StreamEvent::Failed(error));
        self.finish(cx, this);
    }

    fn finish(&self, cx: &Kernel, this: &SessionRef) {
        let gone = (self.socket.take(), self.waiting.take());
        drop(gone);
        self.waiting_octets.set(0);
        let bound = self.shared.streams.borrow_mut().remove(&self.number);
        drop(bound);
        this.retire(cx);
    }

    /// Has the system break the connection off when the socket is closed (socket(7)).
    fn reset(&self) {
        let _ = self.with(|socket| sockopt::set_socket_linger(socket, Some(Duration::ZERO)));
    }

    fn set(&self, setting: StreamSetting) -> bool {
        let milliseconds = |time: Duration| time.as_millis().clamp(1, MILLISECONDS_MAX) as u32;
        match setting {
            StreamSetting::ManualWindow(on) => self.is_manual.set(on),
            StreamSetting::SendBuffer(octets) => self.send_max.set((octets as usize).max(1)),
            StreamSetting::ReceiveBuffer(octets) => self.receive_max.set((octets as usize).max(1)),
            StreamSetting::NoDelay(on) => {
                return self.with(|socket| sockopt::set_tcp_nodelay(socket, on)).is_ok();
            }
            StreamSetting::Cork(on) => {
                return self.with(|socket| sockopt::set_tcp_cork(socket, on)).is_ok();
            }
            StreamSetting::UserTimeout(time) => {
                let limit = time.map_or(0, milliseconds);
                return self.with(|socket| sockopt::set_tcp_user_timeout(socket, limit)).is_ok();
            }
            StreamSetting::Congestion(name) => {
                let name: &str = &name;
                return self.with(|socket| sockopt::set_tcp_congestion(socket, name)).is_ok();
            }
            StreamSetting::KeepAlive(times) => {
                let set = |socket: &OwnedFd| {
                    if let Some(times) = times {
                        sockopt::set_tcp_keepidle(socket, times.idle)?;
                        sockopt::set_tcp_keepintvl(socket, times.interval)?;
                        sockopt::set_tcp_keepcnt(socket, times.probes_max)?;
                    }
                    sockopt::set_socket_keepalive(socket, times.is_some())
                };
                return self.with(set).is_ok();
            }
            StreamSetting::QuickAcks(on) => {
                return self.with(|socket| sockopt::set_tcp_quickack(socket, on)).is_ok();
            }
            StreamSetting::Hops(0) | StreamSetting::Class(None) => return false,
            StreamSetting::Hops(hops) => {
                return self.with(|socket| sockopt::set_ip_ttl(socket, hops.into())).is_ok();
            }
            StreamSetting::Class(Some(class)) => {
                return self.with(|socket| sockopt::set_ip_tos(socket, class)).is_ok();
            }
            StreamSetting::AnnounceUserTimeout(_)
            | StreamSetting::OrphanTimeout(_)
            | StreamSetting::SegmentMax(_)
            | StreamSetting::UnsentMax(_)
            | StreamSetting::FastOpen(_)
            | StreamSetting::FastOpenMax(_) => return false,
        }
        true
    }

    fn state(&self) -> StreamState {
        match (self.is_open.get(), self.has_ended.get(), self.peer_ended.get()) {
            (false, ..) => StreamState::SynSent,
            (true, false, false) => StreamState::Established,
            (true, true, false) => StreamState::FinWait1,
            (true, false, true) => StreamState::CloseWait,
            (true, true, true) => StreamState::Closed,
        }
    }

    /// A question about the stream; false if it is none.
    fn control_stream(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> bool {
        if let Some(q) = ask.get::<StreamSpace>() {
            let space = self.send_max.get().saturating_sub(self.waiting_octets.get());
            q.octets = u32::try_from(space).unwrap_or(u32::MAX);
            self.wants_space.set(space < self.send_max.get());
        } else if ask.get::<StreamShutdown>().is_some() {
            self.is_shut.set(true);
            self.shared.is_ready(self.number);
        } else if ask.get::<StreamAbort>().is_some() {
            self.reset();
            self.fail(cx, this, StreamError::Aborted);
        } else if let Some(q) = ask.get::<StreamConsumed>() {
            let left = self.unconsumed.get().saturating_sub(q.octets as usize);
            self.unconsumed.set(left);
            self.shared.is_ready(self.number);
        } else if let Some(q) = ask.get::<StreamSet>() {
            q.taken = self.set(q.setting);
        } else if let Some(q) = ask.get::<StreamInfo>() {
            *q = StreamInfo {
                state: self.state(),
                segment: READ_OCTETS as u32,
                unsent: u32::try_from(self.waiting_octets.get()).unwrap_or(u32::MAX),
                acknowledged: self.taken.get(),
                delivered: self.delivered.get(),
                ..StreamInfo::default()
            };
        } else {
            return false;
        }
        true
    }
}

impl Session for Stream {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        if self.is_shut.get() {
            this.discard(cx, message, &reason::CLOSED);
            return Err(PushError::Closed);
        }
        let octets = self.waiting_octets.get() + message.len();
        if octets > self.send_max.get() {
            this.discard(cx, message, &reason::QUEUE_FULL);
            self.wants_space.set(true);
            return Err(PushError::QueueFull);
        }
        if !message.is_empty() {
            self.waiting_octets.set(octets);
            self.waiting.borrow_mut().push_back(message);
        }
        if self.write().is_err() {
            // Told by the next look, not within the push.
            self.shared.is_ready(self.number);
        }
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (local, peer) = self.ends.get();
        let peer_end = Some((peer.port(), Some((*peer.ip()).into())));
        if ports::answer(ask, (local.port(), Some((*local.ip()).into())), peer_end) {
            return Answer::Answered;
        }
        if let Some(q) = ask.get::<Describe>() {
            let waits = self.waiting_octets.get();
            q.text = format!("{local} with {peer}, {}, {waits} octets wait", self.state());
        } else if ask.get::<PeerProved>().is_some() {
            if !self.is_open.get() {
                return Answer::Unknown;
            }
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = u32::try_from(self.send_max.get()).unwrap_or(u32::MAX);
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = READ_OCTETS as u32;
        } else if !self.control_stream(cx, this, ask) {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.is_released.set(true);
        if this.head().is_aborted() {
            self.reset();
            self.waiting.borrow_mut().clear();
            self.waiting_octets.set(0);
        } else {
            self.is_shut.set(true);
            let wrote = self.write();
            if wrote.is_ok() && !self.has_ended.get() && self.socket.borrow().is_some() {
                return Closing::Lingering;
            }
        }
        self.finish(cx, this);
        Closing::Done
    }
}
