//! A member of a conversation of xk: a process with a graph, and a protocol at its top that sends
//! and hears the messages of one row after the other.
//!
//! The first member opens the conversation, waits until all have greeted, and tells of each row
//! when the one before is over. What it says comes before all that is sent for it, since that
//! follows it.

use super::super::child::begin;
use super::super::course::{Course, Top};
use super::super::endpoint::{Endpoint, System, Wire, say};
use super::super::space::HUB;
use super::super::stack::run_under;
use crate::case::Trouble;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::{OpenError, Refused};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Kernel, Message, Part as Name, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper,
};
use xk_kit::group::{PROCESS, TakeOwn};

/// Messages of one row: of the first so many members, each so many, one in each gap if there is
/// one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Phase {
    pub(super) senders: usize,
    pub(super) each: u32,
    pub(super) octets: usize,
    pub(super) gap: Duration,
}

impl Phase {
    /// Messages of all senders.
    pub(super) fn all(&self) -> u64 {
        u64::from(self.each) * self.senders as u64
    }
}

/// The part of one member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) end: Endpoint,
    pub(super) members: usize,
    /// The layer of the conversation.
    pub(super) layer: String,
    pub(super) phases: Vec<Phase>,
}

impl Part {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    fn address(side: usize) -> String {
        format!("10.78.1.{}", side + 1)
    }

    fn graph(&self) -> String {
        let wire = match &self.end.meeting {
            Some(path) if self.end.system == System::Xk(Wire::Shm) => {
                format!("shm path=\"{path}\" name=wire")
            }
            _ => format!("packet device={HUB} name=wire"),
        };
        let address = Self::address(self.end.side);
        format!(
            "host end {{\n{wire}\neth wire\narp eth\nip arp {{ address \"{address}/24\"; }}\n\
             psync ip window=64\norder psync\n}}\n"
        )
    }
}

/// Is a member, as the text says.
///
/// # Errors
/// That it could not.
pub(crate) fn member(text: &str) -> Result<Vec<f64>, String> {
    let part: Part = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let kind = match part.end.system.wire() {
        Some(Wire::Shm) => "shm",
        _ => "packet",
    };
    let lower = if part.layer == "order" { "order" } else { "psync" };
    let run = || -> Result<(), Trouble> {
        begin(&part.end)?;
        let make = |lower| Member(Rc::new(Inner::new(part.clone(), lower)));
        run_under(&part.end, kind, &part.graph(), lower, make).map(drop)
    };
    match run() {
        Ok(()) => Ok(Vec::new()),
        Err(Trouble::Skipped(why) | Trouble::Failed(why)) => Err(why),
    }
}

/// The number of a message that greets, in the place of its row's, and of one that tells of a row,
/// in the place of its own.
const WORD: u32 = u32::MAX;
const HEADER_OCTETS: usize = 16;
/// Room for the headers of the layers below.
const HEADROOM: usize = 128;
/// A timer of nothing would keep a kernel from looking at its wires.
const SOON: Duration = Duration::from_nanos(1);
/// From one look whether all are there or done to the next.
const PAUSE: Duration = Duration::from_millis(2);
/// The token of the timer on which the first member leads.
const LEAD: u64 = u64::MAX;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The header of a message.
#[derive(Clone, Copy)]
struct Header {
    sent_ns: u64,
    row: u32,
    number: u32,
}

impl Header {
    fn of(message: &Message) -> Option<Self> {
        let mut octets = [0; HEADER_OCTETS];
        (message.copy_to(0, &mut octets) == HEADER_OCTETS).then_some(())?;
        let (sent, rest) = octets.split_first_chunk()?;
        let (row, rest) = rest.split_first_chunk()?;
        let number = rest.first_chunk()?;
        let [row, number] = [row, number].map(|part| u32::from_le_bytes(*part));
        Some(Self { sent_ns: u64::from_le_bytes(*sent), row, number })
    }
}

#[derive(Clone)]
struct Member(Rc<Inner>);

struct Inner {
    course: Course,
    part: Part,
    lower: ProtocolRef,
    session: RefCell<Option<SessionRef>>,
    hears_own: Cell<bool>,
    greeted: Cell<usize>,
    data: RefCell<Vec<u8>>,
    /// The row that goes on.
    row: Cell<usize>,
    /// Messages that are still to be heard and to be sent.
    unheard: Cell<u64>,
    unsent: Cell<u32>,
    is_over: Cell<bool>,
    first_ns: Cell<u64>,
    last_ns: Cell<u64>,
    took_ns: RefCell<Vec<u64>>,
}

impl Inner {
    fn new(part: Part, lower: ProtocolRef) -> Self {
        Self {
            course: Course::new(&part.end),
            part,
            lower,
            session: RefCell::default(),
            hears_own: Cell::new(false),
            greeted: Cell::new(0),
            data: RefCell::default(),
            row: Cell::new(0),
            unheard: Cell::new(0),
            unsent: Cell::new(0),
            is_over: Cell::new(false),
            first_ns: Cell::new(0),
            last_ns: Cell::new(0),
            took_ns: RefCell::default(),
        }
    }

    fn phase(&self) -> Phase {
        self.part.phases[self.row.get()]
    }

    fn takes(&self, cx: &Kernel, session: &SessionRef) {
        session.hold();
        self.hears_own.set(session.ask(cx, TakeOwn).is_some());
        *self.session.borrow_mut() = Some(session.clone());
    }

    fn send(&self, cx: &Kernel, row: u32, number: u32, octets: usize) {
        let session = self.session.borrow().clone();
        let sent = session.ok_or("no session".to_owned()).and_then(|session| {
            let mut data = self.data.borrow_mut();
            data.resize(octets.max(HEADER_OCTETS), 0);
            let sent_ns = now_ns();
            if self.first_ns.get() == 0 {
                self.first_ns.set(sent_ns);
            }
            data[..8].copy_from_slice(&sent_ns.to_le_bytes());
            data[8..12].copy_from_slice(&row.to_le_bytes());
            data[12..HEADER_OCTETS].copy_from_slice(&number.to_le_bytes());
            let message = cx.pool().copy_from(HEADROOM, &data);
            let message = message.map_err(|error| error.to_string())?;
            drop(data);
            session.push(cx, message).map_err(|error| error.to_string())
        });
        if let Err(wrong) = sent {
            self.course.breaks(format!("push: {wrong}"));
        }
    }

    /// Begins a row.
    fn begin(&self, cx: &Kernel, this: &ProtocolRef, row: usize) {
        self.row.set(row);
        let phase = self.phase();
        let sends = self.part.end.side < phase.senders;
        let own = if sends && !self.hears_own.get() { phase.each } else { 0 };
        self.unheard.set(phase.all() - u64::from(own));
        self.unsent.set(if sends { phase.each } else { 0 });
        self.is_over.set(false);
        self.first_ns.set(0);
        self.took_ns.borrow_mut().clear();
        if sends {
            let _ = cx.schedule_protocol(this, SOON, row as u64);
        }
    }

    /// Sends this member's messages of the row.
    fn send_all(&self, cx: &Kernel) {
        let phase = self.phase();
        let row = self.row.get() as u32;
        let mut next = now_ns();
        for number in 0..phase.each {
            next += phase.gap.as_nanos() as u64;
            let wait = Duration::from_nanos(next.saturating_sub(now_ns()));
            if !phase.gap.is_zero() && !wait.is_zero() {
                let _ = cx.wait(&Semaphore::new(0), Some(wait));
            }
            self.send(cx, row, number, phase.octets);
            self.unsent.set(self.unsent.get() - 1);
        }
        self.last_ns.set(now_ns().max(self.last_ns.get()));
        self.look();
    }

    /// Says what was found once the row is over.
    fn look(&self) {
        if self.unheard.get() > 0 || self.unsent.get() > 0 || self.is_over.replace(true) {
            return;
        }
        let mut line = format!("{} {}", self.first_ns.get(), self.last_ns.get());
        if !self.phase().gap.is_zero() {
            for took in &*self.took_ns.borrow() {
                let _ = write!(line, " {took}");
            }
        }
        say(&line);
    }

    fn wait_until(&self, cx: &Kernel, is: impl Fn() -> bool) {
        while !is() {
            let _ = cx.wait(&Semaphore::new(0), Some(PAUSE));
        }
    }

    /// Has all greet, and leads them through the rows.
    fn lead(&self, cx: &Kernel, this: &ProtocolRef) {
        self.send(cx, WORD, 0, 0);
        self.wait_until(cx, || self.greeted.get() + 1 >= self.part.members);
        for row in 0..self.part.phases.len() {
            self.send(cx, row as u32, WORD, 0);
            self.begin(cx, this, row);
            self.wait_until(cx, || self.is_over.get());
        }
    }
}

impl Top for Member {
    fn course(&self) -> &Course {
        &self.0.course
    }
}

impl Protocol for Member {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (inner, process) = (&*self.0, Name::Number(PROCESS, 7));
        let upper = Upper::new(this);
        if inner.part.end.side > 0 {
            let _stands = inner.lower.open_enable(cx, upper, Participants::local(process))?;
            return Ok(());
        }
        let peer = |side| {
            let host = Part::address(side).parse().unwrap_or(xk_core::HostAddr::UNSPECIFIED);
            Participant::of(Name::Host(host)).with(process)
        };
        let ends = Participants::among(process.into(), (1..inner.part.members).map(peer));
        let session = inner.lower.open(cx, upper, ends)?;
        inner.takes(cx, &session);
        let _ = cx.schedule_protocol(this, SOON, LEAD);
        Ok(())
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        self.0.takes(cx, lower);
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let inner = &*self.0;
        let Some(header) = Header::of(&message) else {
            return Ok(());
        };
        let leads = inner.part.end.side == 0;
        match (header.row, header.number) {
            // A member greets the others once the first has greeted it.
            (WORD, 0) if !leads => inner.send(cx, WORD, 1, 0),
            (WORD, 1) => inner.greeted.set(inner.greeted.get() + 1),
            (row, WORD) if !leads => inner.begin(cx, this, row as usize),
            (WORD, _) | (_, WORD) => {}
            _ => {
                let now = now_ns();
                inner.last_ns.set(now);
                if !inner.phase().gap.is_zero() {
                    inner.took_ns.borrow_mut().push(now.saturating_sub(header.sent_ns));
                }
                inner.unheard.set(inner.unheard.get().saturating_sub(1));
                inner.look();
            }
        }
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        match token {
            LEAD => self.0.lead(cx, this),
            _ => self.0.send_all(cx),
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.session.take());
    }
}
