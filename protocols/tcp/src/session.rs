//! A session: one connection, and its place between the layers.

use crate::checks::Held;
use crate::connection::{Connection, Run};
use crate::moving::GIVING;
use crate::origin::sent;
use crate::output::{Seal, Sealer, forget_origin, mark, seal_out};
use crate::seq::Seq;
use crate::state::State;
use crate::table::{Key, Table};
use crate::wire::{CHECKSUM_AT, Flags, HEADER_LEN, HEADER_LEN_MAX, Header, SEQ_AT};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::object::{BURST_MAX, Burst, Closing, Outgoing, PushError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, ProtocolRef, Reason, Session, SessionRef, Time, reason,
};
use xk_kit::control::{
    KeepWhole, MaxPacket, NetworkError, NetworkErrorKind, OptPacket, PeerProved, WireRoom,
};
use xk_kit::net::moving::GiveState;
use xk_kit::net::ports::{self, Origin};
use xk_kit::net::stream::{
    StreamAbort, StreamConnected, StreamConsumed, StreamCredit, StreamEndRecord, StreamEvent,
    StreamInfo, StreamNotice, StreamSet, StreamSettled, StreamShutdown, StreamSoftError,
    StreamSpace, StreamUse,
};
use xk_kit::net::template::{HeaderField, Headers};
use xk_kit::wire::offload::Offloads;

/// Least number of octets that a message counts against the credit.
const UNSETTLED_LEAST: usize = 256;
/// Time after which octets without room above are handed up again.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(1);
/// Protocols that wait to hear of connections at most.
const WATCHED_MAX: usize = 64;
/// Nothing was handed up yet.
const ALL_UNSETTLED: usize = usize::MAX;

/// The way down.
pub(crate) struct Link {
    pub(crate) lower: SessionRef,
    pub(crate) origin: Origin,
    /// Offloads of the layers below.
    pub(crate) offloads: Offloads,
    /// Number that stands for both hosts.
    pub(crate) hosts: u64,
}

impl Link {
    /// The way through `lower`, which is asked not to cut segments: how large they may be is found
    /// out.
    pub(crate) fn new(cx: &Kernel, lower: &SessionRef, origin: Origin, hosts: u64) -> Self {
        let _ = lower.ask(cx, KeepWhole);
        Self { lower: lower.clone(), origin, offloads: Offloads::of_session(cx, lower), hosts }
    }
}

pub(crate) struct TcpSession {
    pub(crate) table: Rc<Table>,
    pub(crate) link: Link,
    pub(crate) key: Key,
    upper: ProtocolRef,
    /// Octets that may be on the way to the protocol above, if it says ([`StreamCredit`]).
    credit: Option<usize>,
    pub(crate) connection: RefCell<Connection>,
    timer: Cell<Option<(Timer, Time)>>,
    /// Octets are being handed up: what comes meanwhile is left to that, so that they stay in
    /// order.
    is_delivering: Cell<bool>,
    /// Segments are being handed down, likewise.
    is_sending: Cell<bool>,
    /// A full burst was handed down, and more is to follow: the wire is asked before each message.
    /// A message that a full wire refuses is a loss at our own end, and mostly one of a whole tail,
    /// of which no acknowledgment tells.
    is_crowded: Cell<bool>,
    /// The connection is over, and everything was released.
    pub(crate) is_finished: Cell<bool>,
    /// Octets handed to a protocol that gives credit, which may still push as many.
    unsettled: Cell<usize>,
    /// True while it counts among the peers that have data here before their handshake is done.
    pub(crate) is_fast_pending: Cell<bool>,
    /// The connection's state while another place fetches it; here it has stopped.
    pub(crate) given: RefCell<Option<Vec<u8>>>,
    /// Segments that came here before the connection did.
    pub(crate) early: RefCell<Vec<Message>>,
}

/// A session of this protocol that is not over.
fn live(session: &SessionRef) -> Option<&TcpSession> {
    session.body().filter(|_| !session.head().is_closed())
}

/// Has a new session send its first segment.
pub(crate) fn start(cx: &Kernel, session: &SessionRef) {
    if let Some(own) = live(session) {
        own.work(cx, session);
    }
}

/// First sequence number of a connection that takes the place of `session`; `None` if that is in
/// use.
pub(crate) fn can_be_replaced(session: &SessionRef) -> Option<Seq> {
    match live(session) {
        Some(own) => own.connection.borrow().replacement(),
        None => Some(Seq(0)),
    }
}

/// Ends a session without a word to its peer.
pub(crate) fn end_silently(cx: &Kernel, session: &SessionRef) {
    if let Some(own) = live(session) {
        own.finish(cx, session);
    }
}

/// Tells `session` what the network says about the segment at `seq`, or all.
pub(crate) fn report(cx: &Kernel, session: &SessionRef, kind: NetworkErrorKind, seq: Option<Seq>) {
    if let Some(own) = live(session) {
        own.report(cx, session, kind, seq);
    }
}

/// Whether what arrives is kept for later, in the window: while the protocol above is told of the
/// session. One that gives credit may find that there is no room on the way: nothing is
/// acknowledged to the peer until then.
pub(crate) fn keep_back(session: &SessionRef, keeps: bool) {
    if let Some(own) = live(session) {
        own.is_delivering.set(keeps);
        own.is_sending.set(keeps && own.credit.is_some());
    }
}

/// Whether the protocol above gives credit to the session.
pub(crate) fn gives_credit(session: &SessionRef) -> bool {
    session.body().is_some_and(|own: &TcpSession| own.credit.is_some())
}

/// Whether `session` stands on `lower`.
pub(crate) fn is_over(session: &SessionRef, lower: &SessionRef) -> bool {
    live(session).is_some_and(|own| own.link.lower == *lower)
}

/// Whether what `session` sent at `seq` is not acknowledged.
pub(crate) fn has_outstanding(session: &SessionRef, seq: Seq) -> bool {
    live(session).is_some_and(|own| own.connection.borrow().is_outstanding(seq))
}

impl TcpSession {
    pub(crate) fn new(
        cx: &Kernel,
        table: &Rc<Table>,
        link: Link,
        key: Key,
        upper: &ProtocolRef,
        mut connection: Connection,
    ) -> Self {
        connection.set_runs(link.offloads.tx_segments);
        let credit = upper.ask(cx, StreamCredit::default()).map(|credit| credit.octets as usize);
        // Whether the protocol above holds it is not known yet.
        let is_offered = !connection.is_active() && credit.is_some();
        Self {
            table: Rc::clone(table),
            link,
            key,
            upper: upper.clone(),
            credit,
            connection: RefCell::new(connection),
            timer: Cell::new(None),
            is_delivering: Cell::new(false),
            is_sending: Cell::new(false),
            is_crowded: Cell::new(false),
            is_finished: Cell::new(false),
            unsettled: Cell::new(if is_offered { ALL_UNSETTLED } else { 0 }),
            is_fast_pending: Cell::new(false),
            given: RefCell::default(),
            early: RefCell::default(),
        }
    }

    pub(crate) fn peer_port(&self) -> u16 {
        (self.key.1 >> 16) as u16
    }

    /// Does whatever the connection has to do now.
    fn work(&self, cx: &Kernel, this: &SessionRef) {
        loop {
            let delivered = self.deliver(cx, this);
            let sent = self.transmit(cx, this);
            if !delivered && !sent {
                break;
            }
        }
        if self.connection.borrow().state() == State::Closed && !self.is_delivering.get() {
            if self.given.borrow().is_none() {
                self.finish(cx, this);
            }
        } else {
            self.arm(cx, this);
        }
    }

    /// Hands up what arrived and what happened; false if there was nothing.
    fn deliver(&self, cx: &Kernel, this: &SessionRef) -> bool {
        if self.is_delivering.replace(true) {
            return false;
        }
        let mut any = false;
        loop {
            let unsettled = self.unsettled.get();
            if let Some(message) = self.next_message(this) {
                if !self.hand_up(cx, this, message) {
                    self.unsettled.set(unsettled);
                    break;
                }
            } else if self.catch_up(cx, this) {
                continue;
            } else if let Some(event) = self.next_event() {
                self.notify(cx, this, event);
            } else {
                break;
            }
            any = true;
        }
        self.is_delivering.set(false);
        any
    }

    /// Hands octets up; false if they wait for room on the way to a protocol that gives credit.
    /// Those that are refused for another reason are counted where they are refused.
    fn hand_up(&self, cx: &Kernel, this: &SessionRef, message: Message) -> bool {
        let find_no_room = [&reason::QUEUE_FULL, &reason::TOO_BIG];
        let waits = |refused: &Refused| {
            let mut all = find_no_room.into_iter();
            self.credit.is_some() && all.any(|reason| core::ptr::eq(refused.reason, reason))
        };
        match self.upper.demux(cx, this, message) {
            Err(refused) if waits(&refused) => {
                // They are acknowledged: they stay in the window, and the peer waits in the end.
                self.connection.borrow_mut().deliver_again(refused.message);
                self.wake(cx, this, cx.now().after(LOOK_FOR_ROOM), 0);
                false
            }
            _ => true,
        }
    }

    fn next_message(&self, this: &SessionRef) -> Option<Message> {
        let connection = &mut *self.connection.borrow_mut();
        let octets = connection.next_len()?;
        let unsettled = self.unsettled.get();
        if unsettled == ALL_UNSETTLED {
            return None;
        }
        // A protocol that does not hold the session keeps no account of it either, and may want to
        // send back what it gets (an echo does): it gets no more than there is room for then.
        let is_unattended = this.head().opens() == 0 && connection.state().takes_data();
        if is_unattended {
            let (space, buffer) = (connection.space() as usize, connection.buffer() as usize);
            // Of a run that is longer than what may be on its way up, as much as that goes first.
            let (octets, space) = match self.credit {
                Some(most) => (octets.min(most), space.min(most).saturating_sub(unsettled)),
                None => (octets, space),
            };
            if unsettled > 0 && octets > space {
                return None;
            }
            if octets > space && (octets <= buffer || space < buffer / 2) {
                return None;
            }
            // Runs that were kept out of order may have become more than would ever fit.
            let message = connection.deliver_at_most(space.max(1))?;
            if self.credit.is_some() {
                self.unsettled.set(unsettled + message.len().max(UNSETTLED_LEAST));
            }
            return Some(message);
        }
        match self.credit {
            // More would be refused.
            Some(most) => connection.deliver_at_most(most),
            None => connection.deliver(),
        }
    }

    /// Makes sure, if the protocol above gives credit and more waits for it, that it has received
    /// the octets handed up, whose answers take space in this buffer; false if there is no need.
    fn catch_up(&self, cx: &Kernel, this: &SessionRef) -> bool {
        if self.unsettled.get() == 0 || self.connection.borrow().next_len().is_none() {
            return false;
        }
        let _ = self.upper.ask(cx, StreamSettled { session: this.clone() });
        self.unsettled.set(0);
        true
    }

    fn next_event(&self) -> Option<StreamEvent> {
        self.connection.borrow_mut().event()
    }

    fn notify(&self, cx: &Kernel, this: &SessionRef, event: StreamEvent) {
        let session = this.clone();
        let is_understood = self.upper.ask(cx, StreamNotice { session, event }).is_some();
        if event == StreamEvent::Connected {
            self.tell_watchers(cx, this, event);
        }
        if event == StreamEvent::EndOfStream && !is_understood {
            // A protocol that knows nothing of streams will not end this one.
            self.connection.borrow_mut().shut();
        }
    }

    /// Hands down what is to be sent; false if there was nothing.
    fn transmit(&self, cx: &Kernel, this: &SessionRef) -> bool {
        if self.is_sending.replace(true) {
            return false;
        }
        let mut burst = Outgoing::new();
        let mut any = false;
        while !self.connection.borrow().is_quiet(cx.now()) {
            if self.is_crowded.get() && !self.finds_room(cx, this) {
                self.is_sending.set(false);
                return any;
            }
            if !self.gather(cx, this, &mut burst) {
                break;
            }
            any = true;
            self.is_crowded.set(self.is_crowded.get() || burst.is_full());
            self.flush(cx, &mut burst);
        }
        self.is_crowded.set(false);
        self.is_sending.set(false);
        any
    }

    /// Asks the wire; has the connection woken when it may have room.
    #[cold]
    fn finds_room(&self, cx: &Kernel, this: &SessionRef) -> bool {
        let after =
            self.link.lower.ask(cx, WireRoom::default()).map_or(Duration::ZERO, |q| q.after);
        if after.is_zero() {
            return true;
        }
        let at = cx.now().after(after);
        if self.timer.get().is_none_or(|(_, set)| set > at) {
            self.wake(cx, this, at, 0);
        }
        false
    }

    /// Puts segments to be sent behind those in `burst` until it is full; false if there was none.
    fn gather(&self, cx: &Kernel, this: &SessionRef, burst: &mut Outgoing) -> bool {
        let before = burst.len();
        let connection = &mut *self.connection.borrow_mut();
        let is_single = self.is_crowded.get();
        let most = if is_single { before + 1 } else { BURST_MAX };
        while burst.len() < most {
            let first = burst.len();
            if !is_single && let Some(run) = connection.transmit_run(cx.now(), burst) {
                self.seal_run(cx, this, &run, burst, first);
            } else if let Some(out) = connection.transmit(cx.now()) {
                match seal_out(cx, self.how(), out) {
                    Ok(message) => burst.push(message),
                    Err(_) => this.count_drop(cx, &reason::NO_BUFFERS),
                }
            } else {
                break;
            }
            if connection.is_quiet(cx.now()) {
                break;
            }
        }
        burst.len() > before
    }

    /// Puts their headers in front of the messages of `burst` from `first` on.
    fn seal_run(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        run: &Run,
        burst: &mut Outgoing,
        first: usize,
    ) {
        let mut sealer = Sealer::new(self.how(), &run.header);
        let (mut seq, mut at) = (run.header.seq, first);
        let mut left = burst.len() - first;
        while let Some(message) = burst.get_mut(at) {
            left -= 1;
            let octets = message.len() as u32;
            let flags = if run.pushes && left == 0 {
                run.header.flags | Flags::PSH
            } else {
                run.header.flags
            };
            if sealer.seal(seq, flags, message).is_ok() {
                mark(message, run.markable);
                at += 1;
            } else {
                // As if it were lost on the way.
                burst.remove(at);
                this.count_drop(cx, &reason::NO_BUFFERS);
            }
            seq += octets;
        }
    }

    fn how(&self) -> Seal {
        Seal { pseudo: sent(&self.link.origin), leaves_sums: self.link.offloads.tx_checksum }
    }

    fn flush(&self, cx: &Kernel, burst: &mut Outgoing) {
        if let Some(sending) = self.connection.borrow().sending() {
            for message in burst.iter_mut() {
                // One full of attributes goes as usual.
                let _ = message.set_attribute(sending);
            }
        }
        let pushed = match burst.len() {
            0 => return,
            1 => match burst.pop() {
                Some(message) => self.link.lower.push(cx, message),
                None => return,
            },
            _ => self.link.lower.push_burst(cx, burst),
        };
        match pushed {
            Err(PushError::TooBig) => {
                let path = crate::origin::path(cx, &self.link.lower);
                self.connection.borrow_mut().set_path(path, cx.now());
            }
            Err(PushError::Closed) => self.connection.borrow_mut().cut_off(),
            // Anything else is a loss like one on the way, counted below.
            Ok(()) | Err(_) => {}
        }
    }

    /// Sees to it that a timer goes off no later than the connection's deadline.
    fn arm(&self, cx: &Kernel, this: &SessionRef) {
        if self.is_finished.get() {
            return;
        }
        let Some(deadline) = self.connection.borrow().deadline() else {
            return;
        };
        // One that goes off early finds nothing to do and is set again: that is cheaper than to
        // move it each time.
        if self.timer.get().is_none_or(|(_, at)| at > deadline) {
            self.wake(cx, this, deadline, 0);
        }
    }

    /// Has the timer go off at `at`, whatever it was set to.
    pub(crate) fn wake(&self, cx: &Kernel, this: &SessionRef, at: Time, token: u64) {
        if let Some((timer, _)) = self.timer.take() {
            cx.cancel(timer);
        }
        match cx.schedule(this, at.since(cx.now()), token) {
            Ok(timer) => self.timer.set(Some((timer, at))),
            // Without timers a connection might hang without end.
            Err(_) => {
                self.take_back(cx, this);
                self.give_up(cx, this, &reason::TABLE_FULL);
            }
        }
    }

    /// Octets that it keeps of the pool; see [`Connection::held`].
    pub(crate) fn held(&self) -> (u64, u64) {
        self.connection.borrow().held()
    }

    /// See [`Connection::drop_runs`].
    pub(crate) fn drop_runs(&self) -> u32 {
        self.connection.borrow_mut().drop_runs()
    }

    /// Breaks off for want of room, and tells both ends.
    #[cold]
    pub(crate) fn give_up(&self, cx: &Kernel, this: &SessionRef, why: &'static Reason) {
        if this.head().opens() > 0 {
            self.connection.borrow_mut().exhausted(cx.now());
            this.count_drop(cx, why);
            self.deliver(cx, this);
        } else {
            self.connection.borrow_mut().abort(cx.now());
        }
        self.transmit(cx, this);
        self.finish(cx, this);
    }

    /// Releases everything.
    pub(crate) fn finish(&self, cx: &Kernel, this: &SessionRef) {
        if self.is_finished.replace(true) {
            return;
        }
        if let Some((timer, _)) = self.timer.take() {
            cx.cancel(timer);
        }
        if self.is_bound(this) {
            self.table.sessions.unbind(&self.key);
        }
        self.leave_fast(cx, false);
        self.link.lower.close(cx);
        this.retire(cx);
        self.tell_watchers(cx, this, StreamEvent::Closed);
    }

    fn is_connecting(&self) -> bool {
        let connection = self.connection.borrow();
        matches!(connection.state(), State::SynSent | State::SynReceived) && !connection.is_fast()
    }

    /// Has `watcher` hear when the connection is there, or over.
    fn watch(&self, this: &SessionRef, watcher: ProtocolRef) {
        let mut watched = self.table.watched.borrow_mut();
        watched.push_back((this.clone(), watcher));
        if watched.len() > WATCHED_MAX {
            watched.pop_front();
        }
    }

    /// Tells those that want to hear of the connection.
    fn tell_watchers(&self, cx: &Kernel, this: &SessionRef, event: StreamEvent) {
        while let Some(watcher) = self.next_watcher(this) {
            let _ = watcher.ask(cx, StreamNotice { session: this.clone(), event });
        }
    }

    fn next_watcher(&self, this: &SessionRef) -> Option<ProtocolRef> {
        let mut watched = self.table.watched.borrow_mut();
        let at = watched.iter().position(|(session, _)| session == this)?;
        watched.remove(at).map(|(_, watcher)| watcher)
    }

    pub(crate) fn is_bound(&self, this: &SessionRef) -> bool {
        self.table.sessions.get(&self.key).as_ref() == Some(this)
    }

    fn report(&self, cx: &Kernel, this: &SessionRef, kind: NetworkErrorKind, seq: Option<Seq>) {
        let connection = &self.connection;
        match (kind, seq) {
            (NetworkErrorKind::PacketTooBig { .. }, Some(seq)) => {
                if connection.borrow().is_outstanding(seq) {
                    let path = crate::origin::path(cx, &self.link.lower);
                    connection.borrow_mut().set_path(path, cx.now());
                }
            }
            (NetworkErrorKind::PacketTooBig { .. }, None) => {}
            (kind, seq) => {
                connection.borrow_mut().unreachable(kind, seq);
                self.settle_fast(cx, &mut connection.borrow_mut(), false);
                self.pass_on(cx, this, kind);
            }
        }
        self.work(cx, this);
    }

    /// Tells above what does not break a connection, as long as no peer has answered: the protocol
    /// above may not want to wait (RFC 9293, section 3.9.2.2; RFC 5461, section 4.1).
    fn pass_on(&self, cx: &Kernel, this: &SessionRef, kind: NetworkErrorKind) {
        let is_meant = {
            let connection = self.connection.borrow();
            connection.state() == State::SynSent && connection.soft_error().is_some()
        };
        if is_meant {
            let _ = NetworkError::new(kind).tell(cx, this, 0);
        }
    }

    /// A question about the stream; `Unknown` if it is none.
    fn control_stream(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<StreamSpace>() {
            question.octets = self.connection.borrow_mut().space();
            return Answer::Answered;
        } else if let Some(question) = ask.get::<StreamInfo>() {
            *question = self.connection.borrow().info(cx.now());
            return Answer::Answered;
        } else if let Some(question) = ask.get::<StreamSoftError>() {
            question.error = self.connection.borrow().soft_error();
            return Answer::Answered;
        } else if let Some(question) = ask.get::<StreamConnected>() {
            question.connecting = self.is_connecting();
            let watcher = question.watcher.take().filter(|_| question.connecting);
            watcher.into_iter().for_each(|watcher| self.watch(this, watcher));
            return Answer::Answered;
        } else if let Some(question) = ask.get::<GiveState>() {
            return self.give_state(cx, this, question);
        } else if ask.get::<StreamShutdown>().is_some() {
            self.connection.borrow_mut().shut();
        } else if ask.get::<StreamEndRecord>().is_some() {
            self.connection.borrow_mut().end_record();
        } else if ask.get::<StreamAbort>().is_some() {
            self.connection.borrow_mut().abort(cx.now());
        } else if let Some(question) = ask.get::<StreamConsumed>() {
            self.connection.borrow_mut().consumed(question.octets);
        } else if let Some(question) = ask.get::<StreamSet>() {
            question.taken = self.connection.borrow_mut().set(question.setting, cx.now());
        } else {
            return Answer::Unknown;
        }
        self.work(cx, this);
        Answer::Answered
    }
}

/// The headers of segments between these ports: both, and the checksum. All else is the
/// connection's to say.
pub(crate) fn headers(
    cx: &Kernel,
    (origin, lower): (&Origin, &SessionRef),
    (local, peer): (u16, u16),
) -> Option<Headers> {
    let header = |(src, dst)| {
        let mut octets = [0; HEADER_LEN_MAX];
        Header::new(src, dst, Seq(0), Seq(0), Flags::NONE).emit(&mut octets);
        octets.first_chunk::<HEADER_LEN>().copied().unwrap_or_default()
    };
    let numbers = HeaderField::Free((CHECKSUM_AT - SEQ_AT) as u8);
    let urgent = HeaderField::Free((HEADER_LEN - CHECKSUM_AT - 2) as u8);
    let fields = [(SEQ_AT as u8, numbers), (CHECKSUM_AT as u8 + 2, urgent)];
    let below = Headers::of(cx, lower)?;
    origin.headers(below, (local, peer), header, (CHECKSUM_AT as u8, &fields))
}

impl Session for TcpSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        forget_origin(&mut message);
        let taken = self.connection.borrow_mut().send(message);
        if taken.is_err() {
            this.count_drop(cx, &reason::QUEUE_FULL);
            return taken;
        }
        self.work(cx, this);
        Ok(())
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let mut result = Ok(());
        for mut message in burst.drain(..) {
            forget_origin(&mut message);
            let taken = self.connection.borrow_mut().send(message);
            if taken.is_err() {
                this.count_drop(cx, &reason::QUEUE_FULL);
            }
            result = result.and(taken);
        }
        self.work(cx, this);
        result
    }

    /// The protocol has read the ports; the header is still in front.
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        if self.gives_way(&mut message)
            && let Some(protocol) = this.protocol(cx)
        {
            // The answer goes through the session below, which stays that long.
            let lower = &self.link.lower;
            lower.hold();
            self.finish(cx, this);
            let taken = protocol.demux(cx, lower, message);
            lower.close(cx);
            return taken;
        }
        let mut held = Held::default();
        self.take(cx, this, message, &mut held);
        self.take_in(cx, &mut held);
        self.work(cx, this);
        Ok(())
    }

    /// All segments are taken in before anything is handed up, and acknowledged on the way as if
    /// they had come alone.
    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        if self.is_sending.get() || self.connection.borrow().state() == State::TimeWait {
            while let Some(message) = burst.next_through(this) {
                self.pop(cx, this, message)?;
            }
            return Ok(());
        }
        self.is_sending.set(true);
        let mut outgoing = Outgoing::new();
        let mut held = Held::default();
        while let Some(message) = burst.next() {
            if self.take(cx, this, message, &mut held) {
                self.gather(cx, this, &mut outgoing);
                if outgoing.is_full() {
                    self.flush(cx, &mut outgoing);
                }
            }
        }
        self.take_in(cx, &mut held);
        self.flush(cx, &mut outgoing);
        self.is_sending.set(false);
        self.work(cx, this);
        Ok(())
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let connection = self.connection.borrow();
        let (ends, lower) = (connection.ends(), &self.link.lower);
        let between = alloc::format!("port {} with port {} on {lower:?}", ends.local, ends.peer);
        Some(alloc::format!("{between}, {}", connection.describe()))
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let ends = *self.connection.borrow().ends();
        if ports::answer(ask, (ends.local, None), Some((ends.peer, None))) {
            return Answer::Answered;
        } else if ask.get::<PeerProved>().is_some() {
            if !self.connection.borrow().state().is_synchronized() {
                return Answer::Unknown;
            }
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = self.connection.borrow().buffer();
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = u32::from(self.connection.borrow().segment_octets());
        } else if let Some(question) = ask.get::<StreamUse>() {
            // What this host opened stays while it is held.
            let may_go = this.head().is_passive() || this.head().opens() == 0;
            question.rank = may_go.then(|| self.connection.borrow().used(cx.now()));
        } else if let Some(question) = ask.get::<Headers>() {
            let link = &self.link;
            let found = headers(cx, (&link.origin, &link.lower), (ends.local, ends.peer));
            return question.found(found);
        } else if self.control_stream(cx, this, ask) == Answer::Unknown {
            return self.link.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.link.lower)
    }

    fn lower_gone(&self, cx: &Kernel, this: &SessionRef, _: &SessionRef) {
        self.connection.borrow_mut().cut_off();
        self.work(cx, this);
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if self.is_finished.get() {
            return Closing::Done;
        }
        self.take_back(cx, this);
        if !self.is_bound(this) {
            // Evicted, or never bound: the peer is told, and what holds it.
            self.give_up(cx, this, &reason::TABLE_FULL);
            return Closing::Done;
        }
        self.connection.borrow_mut().close(cx.now());
        self.transmit(cx, this);
        if self.connection.borrow().state() == State::Closed {
            self.finish(cx, this);
            return Closing::Done;
        }
        self.arm(cx, this);
        Closing::Lingering
    }

    fn timeout(&self, cx: &Kernel, this: &SessionRef, token: u64) {
        self.timer.set(None);
        if token == GIVING {
            self.take_back(cx, this);
        }
        let mut held = Held::default();
        for message in self.early.take() {
            self.take(cx, this, message, &mut held);
        }
        self.take_in(cx, &mut held);
        self.connection.borrow_mut().timer(cx.now());
        self.settle_fast(cx, &mut self.connection.borrow_mut(), false);
        self.work(cx, this);
    }
}
