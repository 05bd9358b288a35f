//! The laws that every protocol keeps, checked for the layers of messages that stand on calls or on
//! streams: `rdgram` and `rm`. Each stands on a layer that does what it asks for and nothing else,
//! straight on the bottom: so each message is a frame, and what blocks there blocks the layer.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::object::{CallError, Closing, Enable, OpenError, PushError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Entry, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session,
    SessionRef, Upper, reason,
};
use xk_kit::net::stream::{
    StreamAbort, StreamConsumed, StreamEvent, StreamNotice, StreamSet, StreamSetting, StreamSpace,
    StreamUse,
};
use xk_kit::rpc::call::CallOptions;
use xk_testkit::conformance::{Fixture, Side, Verdict, blocking, headers, keeps_all_but};
use xk_testkit::kernel::{Family, Lower, ReachedBottom};

/// Room in front of an empty reply.
const HEADROOM: usize = 128;
/// Number of sessions of peers that the layer in between holds.
const SESSIONS_MAX: usize = 16_384;

/// Octets of a piece of a stream, at most.
const SEGMENT_OCTETS: usize = 60_000;

/// Kind of session that the layer in between makes of the bottom's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A call is a push, and its reply is there at once: empty.
    Calls,
    /// A push is a piece of a stream. Streams are connected as soon as they are set up.
    Streams,
    /// So is one of a few octets: there is never room for more.
    NarrowStreams,
}

/// The layer in between.
#[derive(Clone)]
struct Between(Rc<Shared>);

struct Shared {
    kind: Kind,
    lower: ProtocolRef,
    upper: RefCell<Option<ProtocolRef>>,
    sessions: SessionTable<u64>,
}

/// Stands it on the bottom.
fn between(cx: &Kernel, side: Side, kind: Kind, lower: &ProtocolRef) -> ProtocolRef {
    let sessions = SessionTable::new(cx.secret(), SESSIONS_MAX);
    let shared = Shared { kind, lower: lower.clone(), upper: RefCell::default(), sessions };
    let name = match kind {
        Kind::Calls => "channel",
        Kind::Streams | Kind::NarrowStreams => "tcp",
    };
    cx.add_protocol(name, &format!("{name}-{side:?}"), Between(Rc::new(shared)))
}

impl Between {
    fn begin(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        (key, source): (u64, u64),
        body: Way,
    ) -> Result<SessionRef, &'static Reason> {
        let session = cx.new_passive_session(this, upper, source, body);
        self.0.sessions.bind(cx, key, session.clone())?;
        let told = upper.open_done(cx, &session, Participants::default());
        told.inspect_err(|_| session.abort(cx))?;
        Ok(session)
    }
}

impl Protocol for Between {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = self.0.lower.open(cx, Upper::new(this), ends)?;
        let upper = upper.receiver;
        let body = Way::new(self, &lower, upper, VecDeque::new());
        match self.0.kind {
            // As with `channel`, each is one of its own.
            Kind::Calls => Ok(cx.new_session(this, upper, body)),
            _ => self.0.sessions.open(cx, this, upper, lower.id().0, body),
        }
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        *self.0.upper.borrow_mut() = Some(upper.receiver.clone());
        self.0.lower.open_enable(cx, Upper::new(this), ends)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.0.lower.open_disable(cx, enable);
    }

    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let (key, source) = (lower.id().0, lower.head().source());
        if let Some(session) = self.0.sessions.get(&key) {
            return session.pop(cx, message);
        }
        let upper = self.0.upper.borrow().clone();
        let Some(upper) = upper else {
            return Err(self.0.lower.refuse(message, &reason::NO_PROTOCOL));
        };
        let body = Way::new(self, lower, &upper, VecDeque::from([message]));
        let made = match self.0.kind {
            Kind::Calls => {
                let make = || (body, Participants::default());
                self.0.sessions.accept(cx, this, &upper, key, source, make)
            }
            // A stream drops nothing, and keeps by itself what is early.
            _ => self.begin(cx, this, &upper, (key, source), body),
        };
        match made {
            Ok(session) => session.body::<Way>().map_or(Ok(()), |way| way.opened(cx, &session)),
            Err(why) => {
                // At the bottom, whose drops are among those of the instance.
                self.0.lower.head().drops().count(why);
                Ok(())
            }
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.0.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.sessions.clear();
        self.0.upper.take();
    }
}

/// A session of the layer in between.
struct Way {
    all: Between,
    lower: SessionRef,
    upper: ProtocolRef,
    /// Messages that arrived while the layer above was told of the session.
    early: RefCell<VecDeque<Message>>,
    is_opening: Cell<bool>,
}

impl Way {
    fn new(
        all: &Between,
        lower: &SessionRef,
        upper: &ProtocolRef,
        early: VecDeque<Message>,
    ) -> Self {
        Self {
            all: all.clone(),
            lower: lower.clone(),
            upper: upper.clone(),
            is_opening: Cell::new(!early.is_empty()),
            early: RefCell::new(early),
        }
    }

    /// The layer above knows of the session: what has arrived goes up, in its order.
    fn opened(&self, cx: &Kernel, this: &SessionRef) -> Result<(), Refused> {
        let mut result = Ok(());
        loop {
            let next = self.early.borrow_mut().pop_front();
            let Some(next) = next else { break };
            result = self.deliver(cx, this, next).and(result);
        }
        self.is_opening.set(false);
        result
    }

    fn deliver(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        match self.all.0.kind {
            Kind::Calls => self.upper.call_demux(cx, this, message).map(drop),
            _ => self.upper.demux(cx, this, message),
        }
    }

    /// Answers of a stream.
    fn stream_control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        // Where the bottom blocks, every answer may take its time.
        let _ = self.lower.ask(cx, ReachedBottom);
        if let Some(question) = ask.get::<StreamSpace>() {
            question.octets = match self.all.0.kind {
                Kind::NarrowStreams => 48,
                _ => u32::MAX,
            };
        } else if let Some(question) = ask.get::<StreamUse>() {
            question.rank = Some((0, cx.now()));
        } else if let Some(question) = ask.get::<StreamSet>() {
            question.taken = true;
            if question.setting == StreamSetting::NoDelay(true) && !this.head().is_passive() {
                let (session, event) = (this.clone(), StreamEvent::Connected);
                let _ = self.upper.ask(cx, StreamNotice { session, event });
            }
        } else if ask.get::<StreamAbort>().is_some() {
            this.abort(cx);
        } else if ask.get::<StreamConsumed>().is_none() {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }
}

impl Session for Way {
    fn call(
        &self,
        cx: &Kernel,
        _: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        CallOptions::take(&mut request);
        self.lower.push(cx, request)?;
        cx.pool().empty(HEADROOM).map_err(|_| PushError::NoBuffers.into())
    }

    fn push(&self, cx: &Kernel, _: &SessionRef, mut message: Message) -> Result<(), PushError> {
        while message.len() > SEGMENT_OCTETS {
            let front = message.split_front(SEGMENT_OCTETS).map_err(|_| PushError::NoBuffers)?;
            self.lower.push(cx, front)?;
        }
        self.lower.push(cx, message)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        if self.is_opening.get() && self.all.0.kind != Kind::Calls {
            self.early.borrow_mut().push_back(message);
            return Ok(());
        }
        self.deliver(cx, this, message)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        match self.all.0.kind {
            Kind::Calls => self.lower.control(cx, ask),
            _ => self.stream_control(cx, this, ask),
        }
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.all.0.sessions.release(&self.lower.id().0, this);
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }
}

fn entry(kind: &str) -> &'static Entry {
    xk_catalog::find(kind).expect("a protocol of the catalog")
}

/// A layer on the one in between.
struct On(Family, Kind);

impl Fixture for On {
    fn entry(&self) -> &'static Entry {
        match self.1 {
            Kind::Calls => entry("rdgram"),
            _ => entry("rm"),
        }
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(self.0), 0)
    }

    fn number(&self) -> Option<u32> {
        (self.1 == Kind::Calls).then_some(7)
    }

    fn lowers(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> Vec<ProtocolRef> {
        vec![between(cx, side, self.1, bottom)]
    }
}

/// The law that is left out: no layer below hears of a late refusal, because by then a request is
/// answered and a record joined.
const LATE: &str = "one that comes late is as one at once";

/// Requests are what it receives.
#[test]
fn rdgram_keeps_the_laws() {
    for family in Family::ALL {
        keeps_all_but(
            &On(family, Kind::Calls),
            &["calls are for the rpc realm", LATE, headers::NAME],
        );
    }
}

/// A stream that was damaged is one no more, a connection is held as long as it stands, and nothing
/// below selects by a number or bounds records.
#[test]
fn rm_keeps_the_laws() {
    for family in Family::ALL {
        keeps_all_but(
            &On(family, Kind::Streams),
            &[
                "damage is counted",
                "strangers pin nothing below",
                "no type number, no session",
                "what is too big is told what is not",
                LATE,
                headers::NAME,
            ],
        );
    }
}

/// Records go in pieces while the layer below blocks.
#[test]
fn rm_keeps_the_order_of_pieces() {
    let fixture = On(Family::V6, Kind::NarrowStreams);
    for law in [blocking::keeps_order, blocking::gives_back] {
        assert_eq!(law(&fixture), Verdict::Holds);
    }
}
