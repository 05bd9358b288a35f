//! The protocol object: invokes the object, and is its server where it is.

use crate::entries::{Entries, REQUEST, request};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::object::{OpenError, Refused, SessionSlot};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Upper,
};
use xk_kit::asks::{HEADROOM, SHORTEST};
use xk_kit::control::MyHost;
use xk_kit::rpc::call::{BAD_ARGUMENTS, MyObject, NO_PROCEDURE, OBJECT, PROCEDURE};

/// The operation that makes an entry.
const ENTER: u32 = 1;
/// Octets of the largest image that is taken.
const IMAGE_MAX: usize = 4096;
/// Tokens of the timers for the next invocation, and for a move.
const INVOKE: u64 = 0;
const MOVE: u64 = 1;

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        eid: u64 = int(1..=i64::MAX, 1, "the number of the object"),
        holds: bool = flag(false, "whether the object is here at first"),
        count: u32 = int(0..=1_000_000_000, 100, "how often it invokes the object"),
        interval: Duration = duration(Duration::from_millis(10),
            "from the end of one invocation to the next"),
        start: Duration = duration(Duration::ZERO, "the delay before the first invocation"),
        worth: usize = int(1..=17, 8,
            "how many more of the last 16 invocations another host has made when the object moves \
             there; 17: it stays"),
        ..
        /// A host that may have the object.
        to: Participant = Participant::of(Part::Any),
    }
    [
        optional("to", ParamKind::Participant("10.0.0.2"), "a host that may have the object"),
    ]
}

/// One instance.
pub struct Directory {
    invokes: ProtocolRef,
    moves: ProtocolRef,
    settings: Settings,
    /// Number by which the object knows it.
    name: u32,
    session: SessionSlot,
    /// The object, if it is here.
    entries: RefCell<Option<Entries>>,
    /// A move is about to begin, or under way.
    is_moving: Cell<bool>,
    begun: Cell<u32>,
    /// Invocations that were executed: of an object that was here, and elsewhere.
    local: Cell<u32>,
    remote: Cell<u32>,
    failed: Cell<u32>,
    lost: Cell<u32>,
    /// Entries that there were when it invoked the object last.
    seen: Cell<u64>,
    why: RefCell<String>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let usual = Settings::read(build)?;
    let to = build.params.participant("to")?.unwrap_or(usual.to);
    let settings = Settings { to, ..usual };
    let entries = settings.holds.then(Entries::default);
    let body = Directory {
        invokes: build.lower(0)?,
        moves: build.lower(1)?,
        settings,
        name: build.cx.random().next_u32(),
        session: SessionSlot::default(),
        entries: RefCell::new(entries),
        is_moving: Cell::new(false),
        begun: Cell::new(0),
        local: Cell::new(0),
        remote: Cell::new(0),
        failed: Cell::new(0),
        lost: Cell::new(0),
        seen: Cell::new(0),
        why: RefCell::default(),
    };
    build.add(body)
}

fn count(of: &Cell<u32>) {
    of.set(of.get() + 1);
}

impl Directory {
    fn object(&self) -> Part {
        Part::Number(OBJECT, self.settings.eid)
    }

    fn my_host(&self, cx: &Kernel) -> HostAddr {
        self.invokes.ask(cx, MyHost::default()).unwrap_or_default().host
    }

    /// The session that invokes the object, opened at first use.
    fn session(&self, cx: &Kernel, this: &ProtocolRef) -> Result<SessionRef, OpenError> {
        if let Some(session) = self.session.live() {
            return Ok(session);
        }
        let enter = Part::Number(PROCEDURE, ENTER.into());
        let peer = self.settings.to.clone().with(self.object()).with(enter);
        let session =
            self.invokes.open(cx, Upper::new(this), Participants::pair(Part::Any, peer))?;
        drop(self.session.replace(Some(session.clone())));
        Ok(session)
    }

    /// Makes one entry.
    fn invoke(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), String> {
        let octets = request(self.name, self.begun.get(), self.my_host(cx));
        let session = self.session(cx, this).map_err(|error| error.to_string())?;
        let request = cx.pool().copy_from(HEADROOM, &octets).map_err(|_| "no buffers left")?;
        let reply = session.call(cx, request).map_err(|error| error.describe(cx))?;
        let mut entries = [0; 8];
        if reply.copy_to(0, &mut entries) != 8 || reply.len() != 8 {
            return Err("a reply that is none".into());
        }
        let entries = u64::from_be_bytes(entries);
        if entries <= self.seen.replace(entries) {
            count(&self.lost);
        }
        Ok(())
    }

    /// Executes an invocation.
    fn execute(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let mut octets = [0; REQUEST];
        let is_whole = request.len() == REQUEST && request.copy_to(0, &mut octets) == REQUEST;
        let host = self.my_host(cx);
        let mut here = self.entries.borrow_mut();
        let Some(entries) = here.as_mut().filter(|_| is_whole) else {
            return Err(this.refuse(request, &BAD_ARGUMENTS));
        };
        let Some(number) = entries.enter(&octets) else {
            return Err(this.refuse(request, &BAD_ARGUMENTS));
        };
        let Ok(reply) = cx.pool().copy_from(HEADROOM, &number.to_be_bytes()) else {
            return Err(this.refuse(request, &xk_core::reason::NO_BUFFERS));
        };
        let better = entries.better(host, self.settings.worth);
        if better.is_some() && !self.is_moving.replace(true) {
            // Not before this invocation has returned.
            let planned = cx.schedule_protocol(this, SHORTEST, MOVE);
            self.is_moving.set(planned.is_ok());
        }
        Ok(reply)
    }

    /// Moves the object to the host that invokes it most.
    fn move_there(&self, cx: &Kernel, this: &ProtocolRef) {
        let host = self.my_host(cx);
        let better = {
            let here = self.entries.borrow();
            here.as_ref().and_then(|entries| entries.better(host, self.settings.worth))
        };
        let Some(host) = better else { return };
        let peer = Participant::of(Part::Host(host)).with(self.object());
        let ends = Participants::pair(Part::Any, peer);
        let Ok(session) = self.moves.open(cx, Upper::new(this), ends) else { return };
        let request = cx.pool().empty(HEADROOM);
        let moved = request.is_ok_and(|request| session.call(cx, request).is_ok());
        // At once: what follows may block, and the object come back.
        match moved {
            true => drop(self.entries.take()),
            false => self.entries.borrow_mut().iter_mut().for_each(Entries::count_again),
        }
        session.close(cx);
    }

    /// Gives the image of the object, for an empty request, or takes that of one that has come.
    fn image(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let eid = lower.ask(cx, MyObject::default()).unwrap_or_default().eid;
        if request.is_empty() {
            let image = self.entries.borrow().as_ref().map(Entries::image);
            let image = image.filter(|_| eid == self.settings.eid);
            let image = image.and_then(|image| cx.pool().copy_from(HEADROOM, &image).ok());
            return image.ok_or_else(|| this.refuse(request, &BAD_ARGUMENTS));
        }
        let octets: Vec<u8> = request.octets().take(IMAGE_MAX).collect();
        match Entries::read(&octets).filter(|_| eid == self.settings.eid) {
            Some(entries) => {
                *self.entries.borrow_mut() = Some(entries);
                request.truncate(0);
                Ok(request)
            }
            None => Err(this.refuse(request, &BAD_ARGUMENTS)),
        }
    }

    fn report(&self, report: &mut Report) {
        let Self { begun, local, remote, failed, lost, .. } = self;
        let [begun, local, remote, failed, lost] =
            [begun, local, remote, failed, lost].map(Cell::get);
        let invoked = local + remote;
        let (here, mut twice) = (self.entries.borrow(), 0);
        let mut figures: Vec<(&str, u64)> = [
            ("invoked", invoked),
            ("local", local),
            ("remote", remote),
            ("failed", failed),
            ("lost", lost),
        ]
        .map(|(name, n)| (name, n.into()))
        .to_vec();
        if let Some(entries) = &*here {
            twice = entries.twice;
            figures.push(("entries", entries.entries));
            figures.extend([("twice", twice.into()), ("moves", entries.moves.into())]);
        }
        let mut lines: Vec<(String, String)> =
            figures.into_iter().map(|(name, n)| (name.into(), n.to_string())).collect();
        if failed > 0 {
            lines.push(("why".into(), self.why.borrow().clone()));
        }
        report.lines = lines;
        report.finished = begun >= self.settings.count && invoked + failed >= self.settings.count;
        report.failed = failed + lost + twice > 0;
    }
}

impl Protocol for Directory {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let object = if self.settings.holds { self.object() } else { Part::Any };
        let all = Participant::of(object).with(Part::Any);
        let _ = self.invokes.open_enable(cx, Upper::new(this), Participants::local(all))?;
        let _ = self.moves.open_enable(cx, Upper::new(this), Participants::local(Part::Any))?;
        match self.settings.count {
            0 => Ok(()),
            _ => cx.schedule_protocol(this, self.settings.start.max(SHORTEST), INVOKE).map(drop),
        }
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        if lower.head().protocol() == self.moves.id() {
            return self.image(cx, this, lower, request);
        }
        let asked = lower.ask(cx, xk_kit::rpc::call::MyProcedure::default());
        match asked.is_some_and(|asked| asked.number == ENTER) {
            true => self.execute(cx, this, request),
            false => Err(this.refuse(request, &NO_PROCEDURE)),
        }
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        if token == MOVE {
            self.move_there(cx, this);
            return self.is_moving.set(false);
        }
        count(&self.begun);
        let is_here = self.entries.borrow().is_some();
        match self.invoke(cx, this) {
            Ok(()) if is_here => count(&self.local),
            Ok(()) => count(&self.remote),
            Err(why) => {
                count(&self.failed);
                *self.why.borrow_mut() = why;
            }
        }
        if self.begun.get() < self.settings.count {
            let interval = self.settings.interval.max(SHORTEST);
            if cx.schedule_protocol(this, interval, INVOKE).is_err() {
                count(&self.failed);
            }
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match ask.get::<Report>() {
            Some(report) => self.report(report),
            None => return self.invokes.control(cx, ask),
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.invokes)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.session.take());
    }
}
