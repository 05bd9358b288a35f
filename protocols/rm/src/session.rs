//! A session: a stream of records to one peer, over one connection after the other where this side
//! opens them.

use crate::assembly::{Assembly, Broken, Gather};
use crate::protocol::Shared;
use crate::wire::Mark;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use xk_core::object::{Closing, OpenError, PushError, Refused};
use xk_core::reason::{self, Class, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Session, SessionRef, Time, Upper,
};
use xk_kit::control::{MaxPacket, MinPacket, OptPacket};
use xk_kit::net::stream::{
    CarriesRecords, StreamAbort, StreamConsumed, StreamError, StreamEvent, StreamNotice, StreamSet,
    StreamSetting, StreamSpace,
};

/// A record is larger than this side takes; its connection was broken off.
pub static RECORD_TOO_BIG: Reason = Reason::new("record too big", Class::Bad);
/// Records that waited to be sent when their connection broke.
pub static CONNECTION_LOST: Reason = Reason::new("connection lost", Class::Exhausted);

/// Peers' connections held more than they may together, and this one its share or more, for longer
/// than others.
pub static HELD_MOST: Reason = Reason::new("held most", Class::Exhausted);

/// The side that opens the connection.
pub(crate) enum Role {
    /// This side, as often as needed.
    Active {
        /// The key under which it is known.
        key: (String, u32),
        /// Both ends.
        participants: Box<Participants>,
    },
    /// The peer, once.
    Passive,
}

/// A stream of records.
pub(crate) struct Pipe {
    shared: Rc<Shared>,
    upper: ProtocolRef,
    role: Role,
    connection: RefCell<Option<SessionRef>>,
    /// A connection is being opened.
    connecting: Cell<bool>,
    connected: Cell<bool>,
    /// The protocol above knows of the session.
    is_open: Cell<bool>,
    /// A shepherd sends what waits.
    flushing: Cell<bool>,
    /// Another one would have meanwhile.
    flushes_again: Cell<bool>,
    assembly: RefCell<Assembly>,
    /// Octets that have arrived while nothing is taken: they stay in the peer's window.
    held: RefCell<Gather>,
    queue: RefCell<VecDeque<Message>>,
    /// Octets in the queue.
    queued: Cell<usize>,
    /// Octets that are counted for a peer's connection in what all of them hold.
    counted: Cell<usize>,
    /// Time at which it began to hold anything, a record was whole, or something was sent.
    since: Cell<Time>,
}

impl Pipe {
    pub(crate) fn new(shared: &Rc<Shared>, upper: &ProtocolRef, role: Role) -> Self {
        Self {
            shared: Rc::clone(shared),
            upper: upper.clone(),
            role,
            connection: RefCell::default(),
            connecting: Cell::new(false),
            connected: Cell::new(false),
            is_open: Cell::new(false),
            flushing: Cell::new(false),
            flushes_again: Cell::new(false),
            assembly: RefCell::default(),
            held: RefCell::default(),
            queue: RefCell::default(),
            queued: Cell::new(0),
            counted: Cell::new(0),
            since: Cell::new(Time::ZERO),
        }
    }

    /// Counts what a peer's connection holds by now.
    fn count_held(&self, cx: &Kernel) {
        if matches!(self.role, Role::Active { .. }) {
            return;
        }
        let held = self.assembly.borrow().len() + self.held.borrow().len() + self.queued.get();
        let before = self.counted.replace(held);
        if before == 0 {
            self.since.set(cx.now());
        }
        let all = &self.shared.held;
        all.set((all.get() + held).saturating_sub(before));
    }

    /// Counts what this one holds, and sees that all of peers' hold no more than they may.
    fn bound_held(&self, cx: &Kernel) {
        self.count_held(cx);
        self.shared.relieve(cx);
    }

    fn connection(&self) -> Option<SessionRef> {
        self.connection.borrow().clone()
    }

    /// Sees that there is a connection, or is about to be: what is pushed while one is opened waits
    /// for it.
    fn connect(&self, cx: &Kernel, this: &SessionRef) -> Result<(), PushError> {
        if self.connection.borrow().is_some() || self.connecting.replace(true) {
            return Ok(());
        }
        let opened = self.open(cx, this);
        self.connecting.set(false);
        opened.inspect_err(|_| {
            if !self.queue.borrow().is_empty() {
                self.let_go(cx, this);
                self.notify(cx, this, StreamEvent::Failed(StreamError::Aborted));
            }
        })
    }

    /// Opens a new connection.
    fn open(&self, cx: &Kernel, this: &SessionRef) -> Result<(), PushError> {
        let Role::Active { participants, .. } = &self.role else {
            return Err(PushError::Closed);
        };
        let own = this.protocol(cx).ok_or(PushError::Closed)?;
        let opened =
            self.shared.lower.open(cx, Upper::new(&own), Participants::clone(participants));
        let connection = opened.map_err(|error| match error {
            OpenError::NoRoute => PushError::NoRoute,
            OpenError::NoBuffers => PushError::NoBuffers,
            OpenError::Full | OpenError::InUse => PushError::QueueFull,
            _ => PushError::NotSupported,
        })?;
        let id = connection.id().0;
        let is_stream = connection.ask(cx, StreamSpace::default()).is_some();
        let error = if this.head().is_closed() {
            PushError::Closed
        } else if is_stream && self.shared.active.bind(id, this.clone()).is_ok() {
            self.begin(cx, connection);
            return Ok(());
        } else {
            PushError::NotSupported
        };
        connection.close(cx);
        Err(error)
    }

    /// The peer has connected: takes the connection, which is held already; false if it is no
    /// stream.
    pub(crate) fn connected(&self, cx: &Kernel, connection: &SessionRef) -> bool {
        self.connected.set(true);
        self.begin(cx, connection.clone());
        connection.ask(cx, StreamSpace::default()).is_some()
    }

    /// The protocol above knows of the session by now: what arrived meanwhile goes up.
    pub(crate) fn opened(&self, cx: &Kernel, this: &SessionRef) {
        self.is_open.set(true);
        self.take_held(cx, this);
    }

    /// Octets that the connection holds, and when something of it got done last.
    pub(crate) fn holds(&self) -> (usize, Time) {
        (self.counted.get(), self.since.get())
    }

    /// Breaks the connection off: it holds as much as others or more, and there is too much.
    pub(crate) fn holds_most(&self, cx: &Kernel, this: &SessionRef) {
        this.count_drop(cx, &HELD_MOST);
        self.break_off(cx, this);
    }

    /// Takes a connection, which is held already.
    fn begin(&self, cx: &Kernel, connection: SessionRef) {
        connection.watch();
        drop(self.connection.replace(Some(connection.clone())));
        for setting in [StreamSetting::ManualWindow(true), StreamSetting::NoDelay(true)] {
            let taken = false;
            let _ = connection.ask(cx, StreamSet { setting, taken });
        }
    }

    /// Sends what waits, as far as there is room. A push may block: one shepherd at a time sends,
    /// so that the pieces of records keep their order.
    fn flush(&self, cx: &Kernel) {
        if self.flushing.replace(true) {
            // What it has found may be out of date: there was no room, and now there is.
            self.flushes_again.set(true);
            return;
        }
        loop {
            self.flushes_again.set(false);
            self.send_waiting(cx);
            if !self.flushes_again.get() {
                break;
            }
        }
        self.flushing.set(false);
    }

    fn send_waiting(&self, cx: &Kernel) {
        while let Some(connection) = self.connection()
            && self.connected.get()
        {
            let space = connection.ask(cx, StreamSpace::default());
            let space = space.map_or(0, |space| space.octets as usize);
            let Some(mut first) = self.queue.borrow_mut().pop_front() else {
                return;
            };
            if space == 0 {
                self.queue.borrow_mut().push_front(first);
                return;
            }
            let mut now = first.len();
            if first.len() > space {
                now = space;
                match first.split_front(space) {
                    Ok(front) => {
                        let rest = core::mem::replace(&mut first, front);
                        self.queue.borrow_mut().push_front(rest);
                    }
                    Err(_) => {
                        // Once buffers are free again, the next record gets it going.
                        self.queue.borrow_mut().push_front(first);
                        return;
                    }
                }
            }
            self.queued.set(self.queued.get() - now);
            self.since.set(cx.now());
            if connection.push(cx, first).is_err() {
                // The stream is broken, and says so itself.
                return;
            }
        }
    }

    /// Hands the records up that are whole.
    fn deliver(&self, cx: &Kernel, this: &SessionRef) -> Result<(), Refused> {
        let mut result = Ok(());
        loop {
            let next = self.assembly.borrow_mut().next(cx.pool(), self.shared.settings.record_max);
            let record = match next {
                Ok(Some(record)) => record,
                Ok(None) => return result,
                Err(broken) => {
                    let why = match broken {
                        Broken::TooBig => &RECORD_TOO_BIG,
                        Broken::NoBuffers => &reason::NO_BUFFERS,
                    };
                    this.count_drop(cx, why);
                    self.break_off(cx, this);
                    return result;
                }
            };
            self.since.set(cx.now());
            // No borrow is held: this may block, and others go on meanwhile. What is refused was
            // counted it.
            if let Err(refused) = self.upper.demux(cx, this, record) {
                result = Err(refused);
            }
        }
    }

    /// Takes the octets that came while the peer did not read.
    fn take_held(&self, cx: &Kernel, this: &SessionRef) {
        let held = self.held.borrow_mut().take();
        let Some(held) = held else { return };
        let octets = held.len();
        self.assembly.borrow_mut().put(held);
        self.consumed(cx, octets);
        let _ = self.deliver(cx, this);
    }

    fn consumed(&self, cx: &Kernel, octets: usize) {
        if let Some(connection) = self.connection() {
            let octets = octets as u32;
            let _ = connection.ask(cx, StreamConsumed { octets });
        }
    }

    /// Whether what arrives is not taken yet: the protocol above is being told of the session, or
    /// the peer leaves what it is sent lying, and so gets nothing more done.
    fn is_stalled(&self) -> bool {
        matches!(self.role, Role::Passive) && (self.queued.get() > 0 || !self.is_open.get())
    }

    /// Breaks the connection off.
    fn break_off(&self, cx: &Kernel, this: &SessionRef) {
        if let Some(connection) = self.connection() {
            let _ = connection.ask(cx, StreamAbort);
        }
        self.lose(cx, this, StreamEvent::Failed(StreamError::Aborted));
    }

    /// The connection is gone, with all that was under way.
    fn lose(&self, cx: &Kernel, this: &SessionRef, event: StreamEvent) {
        let Some(connection) = self.let_go(cx, this) else {
            return;
        };
        let is_passive = matches!(self.role, Role::Passive);
        if is_passive {
            self.shared.passive.unbind(&connection.id().0);
        } else {
            self.shared.active.unbind(&connection.id().0);
        }
        connection.close(cx);
        self.notify(cx, this, event);
        if is_passive {
            this.retire(cx);
        }
    }

    fn notify(&self, cx: &Kernel, this: &SessionRef, event: StreamEvent) {
        let session = this.clone();
        let _ = self.upper.ask(cx, StreamNotice { session, event });
    }

    /// Forgets the connection and what waits; answers which it was.
    fn let_go(&self, cx: &Kernel, this: &SessionRef) -> Option<SessionRef> {
        let connection = self.connection.take();
        self.connected.set(false);
        let queue = self.queue.take();
        for _ in &queue {
            this.count_drop(cx, &CONNECTION_LOST);
        }
        self.queued.set(0);
        let (assembly, held) = (self.assembly.take(), self.held.take());
        if !held.is_empty() {
            this.count_drop(cx, &CONNECTION_LOST);
        }
        drop((queue, assembly, held));
        self.count_held(cx);
        connection
    }

    pub(crate) fn event(&self, cx: &Kernel, this: &SessionRef, event: StreamEvent) {
        match event {
            StreamEvent::Connected | StreamEvent::Writable => {
                self.connected.set(true);
                self.flush(cx);
                if !self.is_stalled() {
                    self.take_held(cx, this);
                }
                self.count_held(cx);
            }
            StreamEvent::EndOfStream | StreamEvent::Failed(_) | StreamEvent::Closed => {
                self.lose(cx, this, event);
            }
        }
    }
}

impl Session for Pipe {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut record: Message) -> Result<(), PushError> {
        let settings = &self.shared.settings;
        if record.len() > settings.record_max {
            this.discard(cx, record, &reason::TOO_BIG);
            return Err(PushError::TooBig);
        }
        let mark = Mark { is_last: true, len: record.len() as u32 };
        if record.push_array(&mark.emit()).is_err() {
            this.discard(cx, record, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if let Err(error) = self.connect(cx, this) {
            this.discard(cx, record, &reason::CLOSED);
            return Err(error);
        }
        if self.queued.get() + record.len() > settings.queue_max {
            this.discard(cx, record, &reason::QUEUE_FULL);
            if matches!(self.role, Role::Passive) {
                // A reply left out would be awaited without end: the peer has to notice.
                self.break_off(cx, this);
            }
            return Err(PushError::QueueFull);
        }
        self.queued.set(self.queued.get() + record.len());
        self.queue.borrow_mut().push_back(record);
        self.flush(cx);
        self.bound_held(cx);
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        // What came before and has not been taken yet goes first.
        if self.is_stalled() || !self.held.borrow().is_empty() {
            let held = self.held.borrow_mut().add(cx.pool(), message);
            if held.is_err() {
                this.count_drop(cx, &reason::NO_BUFFERS);
                self.break_off(cx, this);
            }
            self.bound_held(cx);
            if !self.is_stalled() {
                self.take_held(cx, this);
            }
            return Ok(());
        }
        let octets = message.len();
        // First: to tell may block, and what arrives then comes behind.
        self.assembly.borrow_mut().put(message);
        self.consumed(cx, octets);
        let delivered = self.deliver(cx, this);
        self.bound_held(cx);
        delivered
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let queued = self.queued.get();
        Some(match self.connection() {
            Some(connection) => alloc::format!("records on {connection:?}, {queued} octets wait"),
            None => "records, not connected".into(),
        })
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<MinPacket>() {
            question.octets = 0;
            return Answer::Answered;
        }
        if ask.get::<StreamAbort>().is_some() {
            self.break_off(cx, this);
            return Answer::Answered;
        }
        if ask.get::<CarriesRecords>().is_some() {
            return Answer::Answered;
        }
        if ask.get::<StreamSpace>().is_some() || ask.get::<StreamSet>().is_some() {
            // It is no stream of octets any more.
            return Answer::Unknown;
        }
        let octets = self.shared.settings.record_max as u32;
        if ask.answer::<MaxPacket>(|q| q.octets = octets).is_answered()
            || ask.answer::<OptPacket>(|q| q.octets = octets).is_answered()
        {
            return Answer::Answered;
        }
        match self.connection() {
            Some(connection) => connection.control(cx, ask),
            None => Answer::Unknown,
        }
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if let Role::Active { key, .. } = &self.role {
            let mut opened = self.shared.opened.borrow_mut();
            let is_bound = opened.get(key) == Some(this);
            let gone = if is_bound { opened.remove(key) } else { None };
            drop(opened);
            drop(gone);
        }
        if let Some(connection) = self.let_go(cx, this) {
            let id = connection.id().0;
            let gone = (self.shared.passive.unbind(&id), self.shared.active.unbind(&id));
            connection.close(cx);
            drop(gone);
        }
        Closing::Done
    }
}
