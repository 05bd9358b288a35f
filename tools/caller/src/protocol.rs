//! The protocol object: sessions, and shepherds that call through it.

use crate::octets::{Kind, is_right, request};
use crate::tally::{Failure, Tally};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::object::OpenError;
use xk_core::reason::{Class, Reason};
use xk_core::{Answer, Ask, Kernel, Part, Participant, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::asks::{self, SHORTEST};
use xk_kit::control::TryOpen;
use xk_kit::rpc::call::{CallOptions, PROCEDURE};

/// Not what the procedure replies.
pub(crate) static WRONG: Reason = Reason::new("wrong reply", Class::Bad);

/// Token of the timer for the next call, one every interval.
const NEXT: u64 = 0;
/// The turn of a shepherd that makes one call after the other.
const TURN: u64 = 1;
/// Time between a call that failed and the next one of the same shepherd.
const PAUSE: Duration = Duration::from_millis(1);
/// Calls that a shepherd makes before others have their turn, should none of them block.
const CALLS_PER_TURN: usize = 64;
const PEER: ParamKind = ParamKind::Participant("procedure1@10.0.0.2");

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        count: u64 = int(0..=i64::MAX, 5, "how many calls; 0 for no end"),
        interval: Duration = duration(Duration::ZERO,
            "from the beginning of one call to the next; 0s: as soon as the one before is over"),
        concurrency: u64 = int(1..=65_536, 1, "how many calls wait at a time"),
        size: usize = octets(0, "octets of a request, or of what source replies"),
        size_max: usize = octets(0, "if more than `size`: sizes are random up to it, in octets"),
        time: Duration = duration(Duration::from_millis(1),
            "how long the procedure sleeps, in whole milliseconds"),
        deadline: Duration = duration(Duration::ZERO,
            "how long after its beginning a call is given up; 0s: never"),
        check: bool = flag(true, "whether replies are compared with what they must be"),
        start: Duration = duration(Duration::ZERO, "the delay before the first call"),
        ..
        /// The peers, without the procedure if that is given.
        to: Vec<Participant> = Vec::new(),
        /// The local participant; empty for wildcards at every layer.
        local: Participant = Participant::new(),
        /// The procedure's number, on top of `to`.
        procedure: Option<u32> = None,
    }
    [
        optional("to", ParamKind::Peers("procedure1@10.0.0.2"), "the peer, or several"),
        optional("local", PEER, "the local participant"),
        optional("procedure", ParamKind::integer(0..=u32::MAX as i64),
            "the procedure's number, on top of `to`, or of the first of several"),
    ]
}

/// One instance.
pub struct Caller {
    lower: ProtocolRef,
    settings: Settings,
    kind: Kind,
    /// Sessions that no call is using.
    idle: RefCell<Vec<SessionRef>>,
    tally: RefCell<Tally>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let settings = Settings {
        to: params.peers("to")?,
        local: params.participant("local")?.unwrap_or_default(),
        procedure: params.get("procedure").map(|_| build.int("procedure")).transpose()?,
        ..Settings::read(build)?
    };
    asks::check_sizes(&[("size", settings.size), ("size_max", settings.size_max)])?;
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, mut settings: Settings) -> ProtocolRef {
    if let Some(number) = settings.procedure {
        if settings.to.is_empty() {
            settings.to.push(Participant::new());
        }
        settings.to[0].push(Part::Number(PROCEDURE, number.into()));
    }
    let number = match settings.to.first().and_then(Participant::top) {
        Some(Part::Number(PROCEDURE, number)) => u32::try_from(*number).ok(),
        _ => None,
    };
    cx.add_protocol(
        crate::ENTRY.kind,
        name,
        Caller {
            lower,
            settings,
            kind: Kind::of(number),
            idle: RefCell::default(),
            tally: RefCell::default(),
        },
    )
}

impl Caller {
    /// A session that no call is using: opened if there is none. So a layer whose sessions take one
    /// call at a time is opened as often as calls wait.
    fn session(&self, cx: &Kernel, this: &ProtocolRef) -> Result<SessionRef, OpenError> {
        let idle = self.idle.borrow_mut().pop();
        if let Some(session) = idle {
            return Ok(session);
        }
        let both = asks::ends(&self.settings.local, &self.settings.to);
        self.lower.open(cx, Upper::new(this), both)
    }

    /// True if another call is to be made.
    fn has_more(&self) -> bool {
        let count = self.settings.count;
        count == 0 || self.tally.borrow().begun < count
    }

    /// Makes one call and waits for its end. False if it brought no reply.
    fn call(&self, cx: &Kernel, this: &ProtocolRef) -> bool {
        let number = self.tally.borrow_mut().begin();
        match self.call_numbered(cx, this, number) {
            Ok(()) => true,
            Err(failure) => {
                self.tally.borrow_mut().fail(failure);
                false
            }
        }
    }

    fn call_numbered(&self, cx: &Kernel, this: &ProtocolRef, number: u64) -> Result<(), Failure> {
        let size = asks::size(cx, self.settings.size, self.settings.size_max);
        let mut message =
            request(cx, self.kind, number, size, self.settings.time).ok_or(Failure::NoBuffers)?;
        let session = self.session(cx, this).map_err(Failure::Open)?;
        let begun = cx.now();
        if !self.settings.deadline.is_zero() {
            let deadline = begun.after(self.settings.deadline);
            // A message just made has room for it.
            let _ = message.set_attribute(CallOptions { deadline, tag: 0 });
        }
        let result = session.call(cx, message);
        if !session.head().is_closed() {
            self.idle.borrow_mut().push(session);
        }
        let reply = result.map_err(Failure::Call)?;
        let is_wrong = self.settings.check && !is_right(self.kind, number, size, &reply);
        let time = cx.now().since(begun);
        let tally = &mut *self.tally.borrow_mut();
        tally.reply(reply.len(), time);
        if is_wrong {
            tally.wrong += 1;
            this.discard(reply, &WRONG);
        }
        Ok(())
    }

    /// Begins the next call of those that begin every interval.
    fn next(&self, cx: &Kernel, this: &ProtocolRef) {
        if !self.has_more() {
            return;
        }
        // First the one after it: this one may block for longer.
        self.plan(cx, this, self.settings.interval, NEXT);
        if self.tally.borrow().waiting < self.settings.concurrency {
            self.call(cx, this);
        }
    }

    /// Makes one call after the other.
    fn turn(&self, cx: &Kernel, this: &ProtocolRef) {
        for _ in 0..CALLS_PER_TURN {
            if !self.has_more() {
                return;
            }
            if !self.call(cx, this) {
                return self.plan(cx, this, PAUSE, TURN);
            }
        }
        self.plan(cx, this, SHORTEST, TURN);
    }

    fn plan(&self, cx: &Kernel, this: &ProtocolRef, delay: Duration, token: u64) {
        if let Err(error) = cx.schedule_protocol(this, delay.max(SHORTEST), token) {
            let tally = &mut *self.tally.borrow_mut();
            tally.begin();
            tally.fail(Failure::Open(error));
        }
    }
}

impl Protocol for Caller {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let start = self.settings.start.max(SHORTEST);
        if !self.settings.interval.is_zero() {
            return cx.schedule_protocol(this, start, NEXT).map(drop);
        }
        for _ in 0..self.settings.concurrency {
            cx.schedule_protocol(this, start, TURN)?;
        }
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            NEXT => self.next(cx, this),
            _ => self.turn(cx, this),
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(tried) = ask.get::<TryOpen>() {
            tried.note(cx, self.session(cx, this));
            return Answer::Answered;
        }
        if let Some(report) = ask.get::<Report>() {
            let tally = self.tally.borrow();
            tally.report(cx, report, self.settings.count);
            return Answer::Answered;
        }
        self.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.idle.take());
    }
}
