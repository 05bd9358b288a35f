//! The protocol object: a resource that serves, or a process that calls.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional, word};
use xk_core::object::{CallCause, CallError, OpenError, PushError, Refused};
use xk_core::reason::Class;
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper,
};
use xk_kit::asks::{HEADROOM, SHORTEST};
use xk_kit::group::PROCESS;
use xk_kit::rpc::call::{BAD_ARGUMENTS, MyProcedure, NO_PROCEDURE, PROCEDURE};
use xk_kit::rpc::invoke::{Guard, Invocation, Manner, ProcessRuns, ProgramEnded};

/// An item out of order, or forks that are not free.
pub(crate) static WRONG: Reason = Reason::new("against the rules", Class::Bad);

/// The operations: to take an item, or forks; to give an item, or take forks back.
const FIRST: u32 = 1;
const SECOND: u32 = 2;
/// Octets of an item, its producer and its number, and of a seat.
const ITEM: usize = 8;
const SEAT: usize = 4;
/// Time after which a resource looks again whether its program has ended, and a process whether the
/// machine that it calls has started.
const LOOK: Duration = Duration::from_millis(100);
const PARTS: &[&str] = &["buffer", "producer", "consumer", "table", "philosopher"];

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        capacity: usize = int(1..=65_536, 5, "items for which the buffer has room, or seats"),
        count: u32 = int(0..=u32::MAX as i64, 50, "how many items are produced, or meals eaten"),
        process: u32 = int(0..=255, 0, "the number of the process on its machine, and its seat"),
        pause: Duration = duration(Duration::from_millis(20),
            "the longest time that an item, a thought or a meal takes"),
        patience: Duration = duration(Duration::from_secs(60),
            "how long it waits for its first reply; 0s: for no machine that has not started").or_zero(),
        ..
        /// The part, by its place in the list.
        part: usize = 0,
        /// The machine that is called.
        to: Participant = Participant::new(),
    }
    [
        word("part", PARTS, "buffer", "which part of which program it is"),
        optional("to", ParamKind::Participant("vm0@10.0.0.1"), "the machine of buffer or table"),
    ]
}

const BUFFER: usize = 0;
const PRODUCER: usize = 1;
const CONSUMER: usize = 2;
const TABLE: usize = 3;

/// Events so far.
#[derive(Default)]
struct State {
    items: VecDeque<[u8; ITEM]>,
    /// The seats: whether the philosopher eats, and how often so far.
    seats: Vec<(bool, i64)>,
    taken: u64,
    given: u64,
    most: usize,
    wrong: u64,
    /// Last item of each producer.
    producers: BTreeMap<u32, u32>,
    error: Option<CallError>,
    /// Whether a call has had its reply.
    is_heard: bool,
}

/// One instance.
pub struct Resource {
    lower: ProtocolRef,
    settings: Settings,
    state: RefCell<State>,
    is_over: Cell<bool>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::read(build)?);
    let part = params.text("part").and_then(|part| PARTS.iter().position(|name| *name == part));
    let to = params.participant("to")?.unwrap_or_default();
    let settings = Settings { part: part.unwrap_or(usual.part), to, ..usual };
    let seats = vec![(false, 0); settings.capacity];
    let state = RefCell::new(State { seats, ..State::default() });
    let lower = build.lower(0)?;
    build.add(Resource { lower, settings, state, is_over: Cell::new(false) })
}

fn number_in(octets: &[u8]) -> u32 {
    octets.first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets))
}

/// Whether a call was refused for the reason with this name.
fn is_for(reply: &Result<Message, CallError>, name: &str) -> bool {
    let cause = reply.as_ref().err().map(|error| error.cause);
    matches!(cause, Some(CallCause::Rejected(why)) if why.reason.name == name)
}

/// Lets time pass.
fn wait(cx: &Kernel, time: Duration) {
    // It is never signalled.
    let _ = cx.wait(&Semaphore::new(0), Some(time.max(SHORTEST)));
}

impl Resource {
    fn serves(&self) -> bool {
        matches!(self.settings.part, BUFFER | TABLE)
    }

    // ---- a resource ----

    /// Seats beside this one.
    fn beside(&self, seat: usize) -> [usize; 2] {
        let n = self.settings.capacity;
        [(seat + 1) % n, (seat + n - 1) % n]
    }

    /// SR's `st` and `by` of an invocation.
    fn guard(&self, guard: &mut Guard) {
        let state = self.state.borrow();
        let seat = number_in(&guard.arguments) as usize;
        (guard.may, guard.by) = match (self.settings.part, guard.operation) {
            (BUFFER, FIRST) => (state.items.len() < self.settings.capacity, 0),
            (BUFFER, SECOND) => (!state.items.is_empty(), 0),
            (TABLE, FIRST) if seat < state.seats.len() => {
                let is_free = self.beside(seat).into_iter().all(|seat| !state.seats[seat].0);
                (is_free && !state.seats[seat].0, state.seats[seat].1)
            }
            _ => (true, i64::MIN),
        };
    }

    /// Executes an operation: the octets of its reply.
    fn execute(&self, operation: u32, arguments: &[u8]) -> Result<Vec<u8>, &'static Reason> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mut reply = Vec::new();
        match (self.settings.part, operation) {
            (BUFFER, FIRST) => {
                let item = arguments.first_chunk().ok_or(&BAD_ARGUMENTS)?;
                state.items.push_back(*item);
                state.taken += 1;
                state.most = state.most.max(state.items.len());
                state.wrong += u64::from(state.items.len() > self.settings.capacity);
            }
            (BUFFER, SECOND) => match state.items.pop_front() {
                Some(item) => {
                    reply.extend(item);
                    state.given += 1;
                }
                None => return Err(&WRONG),
            },
            (TABLE, FIRST | SECOND) => {
                let seat = number_in(arguments) as usize;
                if arguments.len() < SEAT || seat >= state.seats.len() {
                    return Err(&BAD_ARGUMENTS);
                }
                let takes = operation == FIRST;
                let is_free = self.beside(seat).into_iter().all(|seat| !state.seats[seat].0);
                if state.seats[seat].0 == takes || takes && !is_free {
                    state.wrong += 1;
                    return Err(&WRONG);
                }
                state.seats[seat].0 = takes;
                state.seats[seat].1 += i64::from(takes);
                state.given += u64::from(takes);
                state.taken += u64::from(!takes);
                state.most = state.most.max(state.seats.iter().filter(|(eats, _)| *eats).count());
            }
            _ => return Err(&NO_PROCEDURE),
        }
        Ok(reply)
    }

    // ---- a process ----

    fn call(
        &self,
        cx: &Kernel,
        session: &SessionRef,
        manner: Manner,
        arguments: &[u8],
    ) -> Result<Message, CallError> {
        let until = cx.now().after(self.settings.patience);
        loop {
            let mut request = cx.pool().copy_from(HEADROOM, arguments)?;
            // A message just made has room for it.
            let _ = request.set_attribute(Invocation { manner, number: 0 });
            let reply = session.call(cx, request);
            let is_heard = self.state.borrow().is_heard;
            if is_heard || cx.now() >= until || !is_for(&reply, "machine dead") {
                self.state.borrow_mut().is_heard = true;
                return reply;
            }
            wait(cx, LOOK);
        }
    }

    /// Lets a time by chance pass.
    fn pause(&self, cx: &Kernel) {
        let most = u64::try_from(self.settings.pause.as_nanos()).unwrap_or(u64::MAX);
        wait(cx, Duration::from_nanos(cx.random().below(most.max(1))));
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        operation: u32,
    ) -> Result<SessionRef, CallError> {
        let Settings { process, to, .. } = &self.settings;
        let own = Part::Number(PROCESS, (*process).into());
        let to = to.clone().with(Part::Number(PROCEDURE, operation.into()));
        let opened = self.lower.open(cx, Upper::new(this), Participants::pair(own, to));
        Ok(opened.map_err(PushError::from)?)
    }

    /// Lives the life of a process.
    fn run(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), CallError> {
        let opened = [FIRST, SECOND].map(|operation| self.open(cx, this, operation));
        let lived = match &opened {
            [Ok(first), Ok(second)] => self.live(cx, first, second),
            [Err(error), _] | [_, Err(error)] => Err(*error),
        };
        opened.iter().flatten().for_each(|session| session.close(cx));
        lived
    }

    fn live(&self, cx: &Kernel, first: &SessionRef, second: &SessionRef) -> Result<(), CallError> {
        let Settings { part, count, process, .. } = self.settings;
        let own = process.to_be_bytes();
        let mut turn = 0u32;
        while part == CONSUMER || turn < count {
            self.pause(cx);
            match part {
                PRODUCER => {
                    let item = [own, turn.to_be_bytes()].concat();
                    self.call(cx, first, Manner::Call, &item)?;
                    self.state.borrow_mut().given += 1;
                }
                CONSUMER => {
                    let reply = self.call(cx, second, Manner::Call, &[]);
                    if is_for(&reply, "program ended") {
                        break;
                    }
                    let reply = reply?;
                    let mut item = [0; ITEM];
                    reply.copy_to(0, &mut item);
                    let (producer, number) = (number_in(&item), number_in(&item[SEAT..]));
                    let mut state = self.state.borrow_mut();
                    let last = state.producers.insert(producer, number);
                    state.wrong += u64::from(last.is_some_and(|last| last >= number));
                    state.taken += 1;
                }
                _ => {
                    self.call(cx, first, Manner::Call, &own)?;
                    self.state.borrow_mut().taken += 1;
                    self.pause(cx);
                    self.call(cx, second, Manner::Send, &own)?;
                    self.state.borrow_mut().given += 1;
                }
            }
            turn += 1;
        }
        Ok(())
    }

    fn has_ended(&self, cx: &Kernel) -> bool {
        self.lower.ask(cx, ProgramEnded::default()).is_some_and(|program| program.has_ended)
    }

    fn report(&self, cx: &Kernel, report: &mut Report) {
        let state = self.state.borrow();
        let left = match self.settings.part {
            TABLE => state.seats.iter().filter(|(eats, _)| *eats).count(),
            _ => state.items.len(),
        };
        let mut lines: Vec<(String, String)> =
            [("taken", state.taken), ("given", state.given), ("wrong", state.wrong)]
                .map(|(name, n)| (name.into(), n.to_string()))
                .into();
        if self.serves() {
            lines.push(("most".into(), state.most.to_string()));
            lines.push(("left".into(), left.to_string()));
        }
        if self.settings.part == CONSUMER {
            lines.push(("producers".into(), state.producers.len().to_string()));
        }
        if let Some(error) = state.error {
            lines.push(("error".into(), error.describe(cx)));
        }
        report.lines = lines;
        report.finished = self.is_over.get();
        report.failed = state.wrong > 0
            || state.error.is_some()
            || self.serves() && report.finished && left > 0;
    }
}

impl Protocol for Resource {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        if self.serves() {
            let all = Participants::local(Part::Any);
            let _ = self.lower.open_enable(cx, Upper::new(this), all)?;
        } else {
            let _ = self.lower.ask(cx, ProcessRuns { begins: true });
        }
        cx.schedule_protocol(this, SHORTEST, 0).map(drop)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        if self.serves() {
            // A report is asked for where none can wait for an answer from below.
            self.is_over.set(self.has_ended(cx));
            if !self.is_over.get() {
                let _ = cx.schedule_protocol(this, LOOK, 0);
            }
            return;
        }
        if let Err(error) = self.run(cx, this) {
            self.state.borrow_mut().error = Some(error);
        }
        self.is_over.set(true);
        let _ = self.lower.ask(cx, ProcessRuns { begins: false });
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

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let operation = lower.ask(cx, MyProcedure::default()).map_or(0, |asked| asked.number);
        let mut arguments = [0; ITEM];
        let octets = request.copy_to(0, &mut arguments);
        match self.execute(operation, &arguments[..octets]) {
            Ok(reply) => match cx.pool().copy_from(HEADROOM, &reply) {
                Ok(reply) => Ok(reply),
                Err(_) => Err(this.refuse(request, &xk_core::reason::NO_BUFFERS)),
            },
            Err(why) => Err(this.refuse(request, why)),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(guard) = ask.get::<Guard>()
            && self.serves()
        {
            self.guard(guard);
            return Answer::Answered;
        }
        if let Some(report) = ask.get::<Report>() {
            self.report(cx, report);
            return Answer::Answered;
        }
        self.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }
}
