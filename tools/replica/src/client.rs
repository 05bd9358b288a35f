//! # Synopsis
//! `replica-client CALLS { server "..."; ... }` — clients of replicas, which check that they see
//! one store.
//!
//! # Participants
//! It opens the layer below with `local` and each `server`, such as `procedure1@10.0.0.2`. Without
//! `local` the local participant is a wildcard at every layer.
//!
//! # Behaviour
//! From `start` on, each of `clients` clients performs `count` operations, one after the other,
//! `interval` apart. Operations and keys (`keys` at a time) are random: of ten, four are gets,
//! three puts, two swaps, one is a delete; a client's first is a get. Each value is written once. A
//! swap expects the last value that a client has seen. A key that had 64 operations is replaced.
//!
//! A client calls one server as long as it replies. If it does not reply within `deadline`,
//! refuses, or replies with status 7 or 8, the client calls the next server for the same operation.
//! After `limit` it gives up: then the outcome of the operation is unknown.
//!
//! When all operations are over, their history is checked: it is *linearizable* if the operations
//! of each key can be put in an order, each between its call and its reply, in which a single store
//! would have given these replies. An operation of unknown outcome may be in the order at any place
//! after its call, or not at all. A history with more than a million states to visit counts as
//! failed.
//!
//! Its `report` has the `operations` with a reply, also by kind, those `unknown` or refused as
//! `full`, changes of the server (`elsewhere`), times from call to reply (`rtt min` ...), and
//! `history`: "linearizable", or the key at which it is not. It has finished when all operations
//! are over, and has failed if the history is not linearizable, or without a reply.
//!
//! # Example
//! ```kdl
//! host client {
//!     sim            link=lan
//!     eth            sim
//!     arp            eth
//!     ip             arp { address "10.0.0.9/24"; }
//!     mrpc           ip
//!     replica-client mrpc {
//!         server "procedure1@10.0.0.1"
//!         server "procedure1@10.0.0.2"
//!         server "procedure1@10.0.0.3"
//!     }
//! }
//! ```
//!
//! # Standard
//! None. Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects"
//! (1990).

use crate::protocol::participants;
use crate::wire::{self, Reply, Request, Status};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::object::OpenError;
use xk_core::shepherd::Semaphore;
use xk_core::{Answer, Ask, Kernel, Participant, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::asks::{self, HEADROOM, SHORTEST};
use xk_kit::control::TryOpen;
use xk_kit::linear::{Act, OPERATIONS_MAX, Operation, Verdict, check_all};
use xk_kit::rpc::call::CallOptions;
use xk_kit::times::{Figures, Times};

/// Longest time between two tries.
const PAUSE: Duration = Duration::from_millis(50);

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub(crate) struct Settings {
        clients: u64 = int(1..=8, 3, "how many clients"),
        count: u32 = int(1..=10_000, 50, "how many operations each makes"),
        keys: u64 = int(1..=1024, 4, "how many keys at a time"),
        interval: Duration = duration(Duration::from_millis(20),
            "from the end of an operation to the next one"),
        deadline: Duration = duration(Duration::from_secs(1),
            "how long one server is given to reply"),
        limit: Duration = duration(Duration::from_secs(20),
            "how long servers are asked for one operation"),
        start: Duration = duration(Duration::from_secs(2), "the delay before the first operation"),
        ..
        /// The local participant; empty for wildcards at every layer.
        local: Participant = Participant::new(),
        /// The replicas.
        servers: Vec<Participant> = Vec::new(),
    }
    [
        optional("local", ParamKind::Participant("procedure1@10.0.0.2"), "the local participant"),
    ]
}

/// An operation of the history: its key beside it.
type Noted = (u64, Operation<u64>);

/// State of one client.
#[derive(Clone, Copy)]
struct Known {
    /// Number by which servers know it.
    id: u64,
    /// Number of its last request.
    number: u32,
    /// Operations that it has made.
    made: u32,
    /// The server that it asks.
    server: usize,
}

/// Operations so far.
#[derive(Default)]
struct Tally {
    /// All but gets of unknown outcome, which say nothing.
    history: Vec<Noted>,
    /// Number of the last event.
    event: u64,
    /// Number of operations of each key.
    of_key: BTreeMap<u64, usize>,
    /// Value of each key that was seen last.
    seen: BTreeMap<u64, Option<u64>>,
    replied: [u64; KINDS.len()],
    unknown: u64,
    full: u64,
    elsewhere: u64,
    times: Times,
    verdict: Option<Result<(), (u64, Verdict)>>,
}

const KINDS: [&str; 4] = ["gets", "puts", "swaps", "deletes"];

impl Tally {
    fn event(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    /// The key in this place: another one when it has had as many operations as are checked.
    fn key(&mut self, place: u64, keys: u64) -> u64 {
        let mut key = place;
        while self.of_key.get(&key).is_some_and(|count| *count >= OPERATIONS_MAX) {
            key += keys;
        }
        *self.of_key.entry(key).or_default() += 1;
        key
    }

    /// Notes the end of an operation; `act` has its outcome.
    fn note(&mut self, key: u64, called: u64, act: Act<u64>, is_known: bool) {
        let returned = is_known.then(|| self.event());
        match act {
            Act::Read(value) | Act::Write(value) if is_known => drop(self.seen.insert(key, value)),
            Act::Swap { to, is_done: Some(true), .. } => drop(self.seen.insert(key, to)),
            _ => {}
        }
        // A read of unknown outcome says nothing.
        if is_known || !matches!(act, Act::Read(_)) {
            self.history.push((key, Operation { called, returned, act }));
        }
    }
}

/// One instance.
pub(crate) struct Client {
    lower: ProtocolRef,
    settings: Settings,
    /// The session of each client to each server.
    sessions: RefCell<BTreeMap<(usize, usize), SessionRef>>,
    clients: RefCell<Vec<Known>>,
    tally: RefCell<Tally>,
    /// Clients that have made all their operations.
    ended: Cell<u64>,
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings {
        local: build.params.participant("local")?.unwrap_or_default(),
        servers: participants(build, "server")?,
        ..Settings::read(build)?
    };
    let client = |server: u64| {
        let id = build.cx.random().next_u64();
        let server = server as usize % settings.servers.len().max(1);
        Known { id, number: 0, made: 0, server }
    };
    let clients = (0..settings.clients).map(client).collect();
    build.add(Client {
        lower: build.lower(0)?,
        settings,
        sessions: RefCell::default(),
        clients: RefCell::new(clients),
        tally: RefCell::default(),
        ended: Cell::new(0),
    })
}

/// The octets of a key or a value, and back.
fn octets(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number(octets: &[u8]) -> u64 {
    octets.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

/// The outcome of an operation by the reply to it; `None` if that does not tell.
fn outcome(act: &Act<u64>, reply: &Reply) -> Option<Act<u64>> {
    match (act, reply.status) {
        (Act::Read(_), Status::Found) => Some(Act::Read(Some(number(&reply.value)))),
        (Act::Read(_), Status::Missing) => Some(Act::Read(None)),
        (Act::Write(_), Status::Done) => Some(act.clone()),
        (Act::Swap { from, to, .. }, Status::Done | Status::Differs) => {
            let is_done = Some(reply.status == Status::Done);
            Some(Act::Swap { from: *from, to: *to, is_done })
        }
        _ => None,
    }
}

fn kind(act: &Act<u64>) -> usize {
    match act {
        Act::Read(_) => 0,
        Act::Write(Some(_)) => 1,
        Act::Swap { .. } => 2,
        Act::Write(None) => 3,
    }
}

impl Client {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        server: usize,
    ) -> Result<SessionRef, OpenError> {
        let to = self.settings.servers.get(server..=server).unwrap_or(&[]);
        self.lower.open(cx, Upper::new(this), asks::ends(&self.settings.local, to))
    }

    /// The session of a client to a server, opened at first use.
    fn session(&self, cx: &Kernel, this: &ProtocolRef, way: (usize, usize)) -> Option<SessionRef> {
        let kept = self.sessions.borrow().get(&way).cloned();
        if let Some(session) = kept.filter(|session| !session.head().is_closed()) {
            return Some(session);
        }
        let session = self.open(cx, this, way.1).ok()?;
        let before = self.sessions.borrow_mut().insert(way, session.clone());
        drop(before);
        Some(session)
    }

    /// The next operation of a client.
    fn draw(&self, cx: &Kernel, client: usize) -> (u64, Act<u64>) {
        let random = cx.random();
        let known = self.clients.borrow()[client];
        let tally = &mut *self.tally.borrow_mut();
        let key = tally.key(random.below(self.settings.keys), self.settings.keys);
        // No two clients, and no two operations of one, have the same.
        let value = Some((client as u64) << 32 | u64::from(known.made));
        let act = match random.below(10) {
            // A client that is not known begins with a get.
            _ if known.number == 0 => Act::Read(None),
            0..4 => Act::Read(None),
            4..7 => Act::Write(value),
            7..9 => {
                let from = tally.seen.get(&key).copied().flatten();
                Act::Swap { from, to: value, is_done: None }
            }
            _ => Act::Write(None),
        };
        (key, act)
    }

    /// Asks a server; `None` without a reply.
    fn ask(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        way: (usize, usize),
        request: &[u8],
    ) -> Option<Reply> {
        let mut message = cx.pool().copy_from(HEADROOM, request).ok()?;
        let deadline = cx.now().after(self.settings.deadline);
        message.set_attribute(CallOptions { deadline, tag: 0 }).ok()?;
        let reply = self.session(cx, this, way)?.call(cx, message).ok()?;
        let octets: Vec<u8> = reply.octets().take(1 + wire::VALUE_MAX).collect();
        Reply::parse(&octets).ok()
    }

    /// Asks one server after the other for an operation; returns what is known of it.
    fn operate(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        client: usize,
        (key, act): (u64, &Act<u64>),
    ) -> Option<Reply> {
        let until = cx.now().after(self.settings.limit);
        let known = {
            let known = &mut self.clients.borrow_mut()[client];
            known.number += 1;
            *known
        };
        let (key, from, to) = match *act {
            Act::Read(_) => (octets(key), None, None),
            Act::Write(to) => (octets(key), None, to.map(octets)),
            Act::Swap { from, to, .. } => (octets(key), from.map(octets), to.map(octets)),
        };
        let act = match (act, &to) {
            (Act::Swap { .. }, Some(to)) => {
                wire::Act::Swap { from: from.as_ref().map(|from| &from[..]), to }
            }
            (Act::Write(_), Some(to)) => wire::Act::Put(to),
            (Act::Write(_), None) => wire::Act::Delete,
            _ => wire::Act::Get,
        };
        let request = Request { client: known.id, number: known.number, key: &key, act }.emit();
        while cx.now() < until {
            let server = self.clients.borrow()[client].server;
            let reply = self.ask(cx, this, (client, server), &request);
            match reply {
                Some(Reply { status: Status::NoQuorum | Status::Late, .. }) | None => {}
                Some(reply) => return Some(reply),
            }
            self.tally.borrow_mut().elsewhere += 1;
            let next = (server + 1) % self.settings.servers.len().max(1);
            self.clients.borrow_mut()[client].server = next;
            let pause = Duration::from_nanos(1 + cx.random().below(PAUSE.as_nanos() as u64));
            // It is never signalled.
            let _ = cx.wait(&Semaphore::new(0), Some(pause));
        }
        None
    }

    /// Makes one operation of a client.
    fn turn(&self, cx: &Kernel, this: &ProtocolRef, client: usize) {
        let (key, act) = self.draw(cx, client);
        let called = self.tally.borrow_mut().event();
        let begun = cx.now();
        let reply = self.operate(cx, this, client, (key, &act));
        let known = reply.as_ref().and_then(|reply| outcome(&act, reply));
        let status = reply.map(|reply| reply.status);
        self.note(key, called, (act, known), status, cx.now().since(begun));
        let known = &mut self.clients.borrow_mut()[client];
        known.made += 1;
        if status == Some(Status::Unknown) {
            (known.id, known.number) = (cx.random().next_u64(), 0);
        }
    }

    fn note(
        &self,
        key: u64,
        called: u64,
        (act, known): (Act<u64>, Option<Act<u64>>),
        status: Option<Status>,
        took: Duration,
    ) {
        let tally = &mut *self.tally.borrow_mut();
        match known {
            Some(known) => {
                tally.replied[kind(&act)] += 1;
                tally.times.add(took);
                tally.note(key, called, known, true);
            }
            None if status == Some(Status::Full) => tally.full += 1,
            None => {
                tally.unknown += 1;
                tally.note(key, called, act, false);
            }
        }
    }

    fn plan(&self, cx: &Kernel, this: &ProtocolRef, after: Duration, client: u64) {
        if cx.schedule_protocol(this, after.max(SHORTEST), client).is_err() {
            self.end();
        }
    }

    /// One client has made all its operations; behind the last one the history is checked.
    fn end(&self) {
        self.ended.set(self.ended.get() + 1);
        if self.ended.get() == self.settings.clients {
            let tally = &mut *self.tally.borrow_mut();
            tally.verdict = Some(check_all(tally.history.iter().cloned()));
        }
    }

    fn report(&self, report: &mut Report) {
        let tally = self.tally.borrow();
        let replied: u64 = tally.replied.iter().sum();
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.into(), value));
        line("operations", replied.to_string());
        for (name, count) in KINDS.iter().zip(tally.replied) {
            line(name, count.to_string());
        }
        line("unknown", tally.unknown.to_string());
        line("full", tally.full.to_string());
        line("elsewhere", tally.elsewhere.to_string());
        for (name, time) in tally.times.figures().iter().flat_map(Figures::lines) {
            line(name, time);
        }
        let why = |(key, verdict): (u64, Verdict)| {
            let what = match verdict {
                Verdict::Linearizable | Verdict::NotLinearizable => "not linearizable",
                Verdict::TooMany => "too many operations to check",
                Verdict::OverBudget => "takes too long to check",
            };
            format!("key {key}: {what}")
        };
        match tally.verdict {
            None => {}
            Some(Ok(())) => line("history", "linearizable".into()),
            Some(Err(bad)) => line("history", why(bad)),
        }
        report.lines = lines;
        report.finished = tally.verdict.is_some();
        report.failed = report.finished && (replied == 0 || tally.verdict != Some(Ok(())));
    }
}

impl Protocol for Client {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for client in 0..self.settings.clients {
            cx.schedule_protocol(this, self.settings.start.max(SHORTEST), client)?;
        }
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        self.turn(cx, this, token as usize);
        let made = self.clients.borrow()[token as usize].made;
        match made < self.settings.count {
            true => self.plan(cx, this, self.settings.interval, token),
            false => self.end(),
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(tried) = ask.get::<TryOpen>() {
            tried.note(cx, self.open(cx, this, 0));
            return Answer::Answered;
        }
        if let Some(report) = ask.get::<Report>() {
            self.report(report);
            return Answer::Answered;
        }
        self.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.sessions.take());
    }
}
