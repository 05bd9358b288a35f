//! The protocol object: a session, two timers, what comes back.

use crate::cutter::Cutter;
use crate::tally::{Results, Tally};
use crate::window::Arrival;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::kernel::Timer;
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::reason::{Class, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Protocol, ProtocolRef, SessionRef, Time, Upper,
};
use xk_kit::asks::{self, SHORTEST, pattern};
use xk_kit::control::{NetworkError, TryOpen};
use xk_kit::net::stream::{StreamEvent, StreamNotice, StreamSpace};

/// Came back with other octets than it was sent with, or was never sent.
pub(crate) static CORRUPT: Reason = Reason::new("corrupt", Class::Bad);
/// Came back once more.
pub(crate) static DUPLICATE: Reason = Reason::new("duplicate", Class::Bad);
/// Came back after it was given up.
pub(crate) static LATE: Reason = Reason::new("late", Class::Bad);

/// Octets of the sequence number in front of a message.
const NUMBER: usize = 8;
/// Octets of sequence number and time of sending.
const MARKER: usize = 16;
/// Tokens of the timers for sending and expiry.
const SEND: u64 = 0;
const EXPIRE: u64 = 1;
const PEER: &str = "port7@10.0.0.2";

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        count: u64 = int(0..=i64::MAX, 5, "how many messages; 0 for no end"),
        interval: Duration = duration(Duration::from_secs(1),
            "from one message to the next; 0s: one right behind the other").or_zero(),
        size: usize = octets(56, "octets of a message"),
        size_max: usize = octets(0, "if more than `size`: sizes are random up to it, in octets"),
        timeout: Duration = duration(Duration::from_secs(2), "how long a message is awaited"),
        start: Duration = duration(Duration::ZERO, "the delay before the first message"),
        ..
        /// The peers; empty for wildcards at every layer.
        to: Vec<Participant> = Vec::new(),
        /// The local participant; empty for wildcards at every layer.
        local: Participant = Participant::new(),
    }
    [
        optional("to", ParamKind::Peers(PEER), "the peers, of which each is to answer each message"),
        optional("local", ParamKind::Participant(PEER), "the local participant"),
    ]
}

/// One instance.
pub struct Probe {
    lower: ProtocolRef,
    settings: Settings,
    session: RefCell<Option<SessionRef>>,
    /// Cuts what comes back into messages; only on a stream.
    cutter: RefCell<Option<Cutter>>,
    tally: RefCell<Tally>,
    expiry: Cell<Option<Timer>>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let settings = Settings {
        to: params.peers("to")?,
        local: params.participant("local")?.unwrap_or_default(),
        ..Settings::read(build)?
    };
    asks::check_sizes(&[("size", settings.size), ("size_max", settings.size_max)])?;
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let tally = Tally::new(settings.to.len().max(1));
    cx.add_protocol(
        crate::ENTRY.kind,
        name,
        Probe {
            lower,
            settings,
            session: RefCell::default(),
            cutter: RefCell::default(),
            tally: RefCell::new(tally),
            expiry: Cell::new(None),
        },
    )
}

/// Offset of the pattern in a message of this size.
fn pattern_start(octets: usize) -> usize {
    match octets {
        0..NUMBER => 0,
        NUMBER..MARKER => NUMBER,
        _ => MARKER,
    }
}

/// The number and time of sending that a message carries, as far as it has room for them.
fn marker(message: &Message) -> Option<(u64, Option<Time>)> {
    let mut octets = [0; MARKER];
    let known = message.copy_to(0, &mut octets);
    let [number, sent] = [0, NUMBER].map(|from| {
        let octets = octets.get(from..from + 8).and_then(|o| o.first_chunk());
        u64::from_be_bytes(*octets.unwrap_or(&[0; 8]))
    });
    (known >= NUMBER).then_some((number, (known == MARKER).then_some(Time::from_ns(sent))))
}

/// Whether all octets are as they were sent; one too small for a number says nothing of its
/// pattern.
fn is_unchanged(message: &Message, sequence: u64) -> bool {
    let start = pattern_start(message.len());
    let mut rest = message.octets().enumerate().skip(start);
    rest.all(|(at, octet)| octet == pattern(sequence, at))
}

impl Probe {
    fn open(&self, cx: &Kernel, this: &ProtocolRef) -> Result<SessionRef, OpenError> {
        let participants = asks::ends(&self.settings.local, &self.settings.to);
        let session = self.lower.open(cx, Upper::new(this), participants)?;
        *self.session.borrow_mut() = Some(session.clone());
        // A layer that answers this carries a stream, which keeps no message together.
        if session.ask(cx, StreamSpace::default()).is_some() {
            *self.cutter.borrow_mut() = Some(Cutter::default());
        }
        Ok(session)
    }

    /// The session, opened at first use; `None`, noted, if it does not open.
    fn session(&self, cx: &Kernel, this: &ProtocolRef) -> Option<SessionRef> {
        let kept = self.session.borrow().clone();
        if kept.is_some() {
            return kept;
        }
        let opened = self.open(cx, this);
        opened.map_err(|error| self.tally.borrow_mut().open_error = Some(error)).ok()
    }

    fn message(&self, cx: &Kernel, sequence: u64, size: usize) -> Option<Message> {
        let marker = [sequence, cx.now().as_ns()].map(u64::to_be_bytes);
        let marker = marker.as_flattened().get(..pattern_start(size))?;
        let octet = |at: usize| marker.get(at).copied();
        asks::message(cx, size, |at| octet(at).unwrap_or_else(|| pattern(sequence, at)))
    }

    /// Sends the next message.
    fn send(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.tally.borrow().is_broken {
            return;
        }
        let Some(session) = self.session(cx, this) else {
            return;
        };
        let size = asks::size(cx, self.settings.size, self.settings.size_max);
        let sequence = {
            let tally = &mut *self.tally.borrow_mut();
            let limit = cx.now().before(self.settings.timeout);
            if cx.now().since(limit) == self.settings.timeout {
                tally.window.expire(limit);
            }
            let sequence = tally.window.next();
            tally.window.send(cx.now(), size);
            sequence
        };
        // Before it goes: the answer may be here when `push` returns.
        if let Some(cutter) = &mut *self.cutter.borrow_mut() {
            cutter.expect(size);
        }
        let pushed = match self.message(cx, sequence, size) {
            Some(message) => session.push(cx, message),
            None => Err(PushError::NoBuffers),
        };
        if let Err(error) = pushed {
            if let Some(cutter) = &mut *self.cutter.borrow_mut() {
                cutter.forget_last();
            }
            let tally = &mut *self.tally.borrow_mut();
            tally.window.fail(sequence);
            tally.push_error(error);
        }
        self.plan(cx, this);
    }

    /// True if another message is to be sent.
    fn has_more(&self) -> bool {
        let count = self.settings.count;
        count == 0 || self.tally.borrow().window.next() < count
    }

    /// Sets the timers after a message was sent.
    fn plan(&self, cx: &Kernel, this: &ProtocolRef) {
        let interval = self.settings.interval;
        let awaited = self.tally.borrow().window.awaited();
        let planned = if !interval.is_zero() && self.has_more() {
            cx.schedule_protocol(this, interval, SEND)
        } else if awaited > 0 {
            let timer = cx.schedule_protocol(this, self.settings.timeout.max(SHORTEST), EXPIRE);
            timer.inspect(|timer| self.expiry.set(Some(*timer)))
        } else if self.has_more() {
            // It failed, or was answered at once: there is nothing to wait for.
            cx.schedule_protocol(this, self.settings.timeout.max(SHORTEST), SEND)
        } else {
            return;
        };
        if let Err(error) = planned {
            self.tally.borrow_mut().open_error = Some(error);
        }
    }

    /// Goes on at once if only this answer was waited for.
    fn go_on(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.tally.borrow().window.awaited() > 0 {
            return;
        }
        let Some(timer) = self.expiry.take() else {
            return;
        };
        cx.cancel(timer);
        if self.has_more()
            && let Err(error) = cx.schedule_protocol(this, SHORTEST, SEND)
        {
            self.tally.borrow_mut().open_error = Some(error);
        }
    }

    /// The next whole message of what a stream has brought.
    fn next_of_stream(&self) -> Option<Message> {
        self.cutter.borrow_mut().as_mut()?.next()
    }

    fn take(&self, cx: &Kernel, this: &ProtocolRef, message: Message) -> Result<(), Refused> {
        match self.judge(cx.now(), &message) {
            None => self.go_on(cx, this),
            Some(why) => this.discard(message, why),
        }
        Ok(())
    }

    /// Judges an arrival; returns a reason if it is not the answer.
    fn judge(&self, now: Time, message: &Message) -> Option<&'static Reason> {
        let tally = &mut *self.tally.borrow_mut();
        let octets = message.len();
        let Some((sequence, sent)) = marker(message) else {
            if tally.window.arrive_unnumbered(octets) {
                tally.received += 1;
                return None;
            }
            tally.duplicates += 1;
            return Some(&DUPLICATE);
        };
        if !is_unchanged(message, sequence) {
            tally.corrupt += 1;
            return Some(&CORRUPT);
        }
        match tally.window.arrive(now, sequence, sent, octets) {
            Arrival::Answer(time) => {
                tally.received += 1;
                tally.times.add(time);
                None
            }
            Arrival::Duplicate => {
                tally.duplicates += 1;
                Some(&DUPLICATE)
            }
            Arrival::Late => {
                tally.late += 1;
                Some(&LATE)
            }
            Arrival::Foreign => {
                tally.corrupt += 1;
                Some(&CORRUPT)
            }
        }
    }
}

impl Protocol for Probe {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        cx.schedule_protocol(this, self.settings.start.max(SHORTEST), SEND).map(drop)
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match &mut *self.cutter.borrow_mut() {
            Some(cutter) => cutter.put(message),
            None => return self.take(cx, this, message),
        }
        while let Some(message) = self.next_of_stream() {
            self.take(cx, this, message)?;
        }
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        if token == EXPIRE {
            self.expiry.set(None);
            self.tally.borrow_mut().window.expire(cx.now());
            if !self.has_more() {
                return;
            }
        }
        self.send(cx, this);
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(tried) = ask.get::<TryOpen>() {
            let ends = asks::ends(&self.settings.local, &self.settings.to);
            tried.note(cx, self.lower.open(cx, Upper::new(this), ends));
            return Answer::Answered;
        }
        if let Some(report) = ask.get::<Report>() {
            let tally = self.tally.borrow();
            tally.report(report, &tally.results(self.settings.count));
        } else if let Some(results) = ask.get::<Results>() {
            *results = self.tally.borrow().results(self.settings.count);
        } else if let Some(error) = ask.get::<NetworkError>() {
            self.tally.borrow_mut().network_error(error.kind);
        } else if let Some(StreamNotice { event: StreamEvent::Failed(error), .. }) =
            ask.get::<StreamNotice>()
        {
            self.tally.borrow_mut().stream_error(*error);
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
        drop(self.cutter.take());
    }
}
