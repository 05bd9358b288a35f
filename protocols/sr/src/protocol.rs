//! The protocol object.

use crate::calls::{Call, Calls, Outlets};
use crate::held::{Choice, HOPS_MAX, Held, Invoked, Most, Whereabouts};
use crate::ledger::{Ledger, Totals};
use crate::orders::Orders;
use crate::wire::{
    FORWARDED, HELLO, Header, IDLE, INVOKE, LOCVM, MACHINE_MAX, NOOP, NULL, RESULT, Reply, STOP,
    STOPPED, TAKEN, UNKNOWN, UNMET, VERSION,
};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Deref;
use core::time::Duration;
use xk_core::graph::{
    Build, BuildError, Family, Guarantees, ParamKind, Realm, optional, question, required,
};
use xk_core::map::{Map, MapStats};
use xk_core::object::{CallCause, CallError, Enable, OpenError, PushError, Refused};
use xk_core::participant::AddressError;
use xk_core::reason::Class;
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, Entry, HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef,
    Reason, Secret, SessionRef, Time, Upper, reason,
};
use xk_kit::answers::{is_for_one, is_proved};
use xk_kit::asks::{HEADROOM, SHORTEST};
use xk_kit::control::PeerHost;
use xk_kit::group::PROCESS;
use xk_kit::rpc::between_hosts::{self, HOSTS};
use xk_kit::rpc::call::{
    BUSY, CallOptions, CancelCall, MyProcedure, NO_PROCEDURE, PROCEDURE, SYSTEM_ERROR,
    pop_definite, pop_local,
};
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, CallLower, Calling, Serving, pop_header, prepend, reply_of,
};
use xk_kit::rpc::codes::{reason_of_status, status_of};
use xk_kit::rpc::invoke::{AskGuards, Guard, Invocation, MACHINE, ProcessRuns, ProgramEnded};

/// The machine does not answer, or knows nothing of the invocation any more.
pub static DEAD: Reason = Reason::new("machine dead", Class::NotMine);
/// All machines of the program were idle, and it has ended.
pub static ENDED: Reason = Reason::new("program ended", Class::Prohibited);
/// A send to an operation that is not served, or not any more.
pub(crate) static DESTROYED: Reason = Reason::new("operation destroyed", Class::NoProtocol);
/// An invocation too far ahead of those before it.
pub(crate) static OUT_OF_ORDER: Reason = Reason::new("order number too far ahead", Class::Bad);
/// A result of a call that does not wait, or has its result.
pub(crate) static NO_CALL: Reason = Reason::new("result of no call", Class::Bad);
/// A result that could not be sent to its caller.
pub(crate) static UNDELIVERED: Reason = Reason::new("result not delivered", Class::NotMine);
/// A reply, or a forward, of an invocation that has its answer.
pub(crate) static ANSWERED: Reason = Reason::new("answered already", Class::Bad);
/// An invocation that too many machines have forwarded.
pub(crate) static TOO_FAR: Reason = Reason::new("too many forwards", Class::Bad);
/// A message that only another machine may send.
pub(crate) static NOT_ITS_PLACE: Reason = Reason::new("not that machine's host", Class::Prohibited);

const HEADER: usize = Header::OCTETS;
const REPLY: usize = Reply::OCTETS;
/// The key of an enable of any operation.
const ANY: u64 = u64::MAX;
const ENABLES_MAX: usize = 65_536;
/// Invocations that a shepherd executes before others have their turn.
const PER_TURN: u32 = 64;
/// Octets of the largest ledger that is read.
const LEDGER_MAX: usize = 2048;
/// Tries to learn where a machine is: it may not have begun yet. The first wait; each is twice that
/// before it.
const PLACE_TRIES: u32 = 8;
const PLACE_WAIT: Duration = Duration::from_millis(25);
/// Time until a message of the protocol's own is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// Time for which a machine is idle before it says so.
const IDLE_WAIT: Duration = Duration::from_millis(10);

/// Longest wait for a host that is asked whether it is still a machine that another says to be.
const ASK_WAIT: Duration = Duration::from_secs(1);
/// Times that a machine is told of the end, in a quarter of an hour.
const STOPS_MAX: u64 = 32;

/// Timers: invocations may be executed; the coordinator is to be told of us; of our idleness;
/// invocations may have waited long enough for others.
const EXECUTE: u64 = 0;
const SAY_HELLO: u64 = 1;
const SAY_IDLE: u64 = 2;
const LOOK_EARLY: u64 = 3;
/// Timer of a machine that is to be told of the end: its number is added, and 256 for each time
/// that it was told.
const SAY_STOP: u64 = 1 << 16;

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        machines: u16 = int(0..=254, 0,
            "on vm 0: how many machines the program has, with numbers from 0 on; 0 if its end is \
             not looked for"),
        upcalls: u32 = int(1..=4096, 8, "how many invocations are executed at one time, at most"),
        queued_max: usize = int(1..=65_536, 1024, "how many invocations are queued, at most"),
        machine_queued_max: usize = int(1..=65_536, 256,
            "how many of them may be one other machine's, with those of which it has not taken the \
             results"),
        calls_max: usize = int(1..=65_536, 4096, "how many calls wait, at most"),
        sessions_max: usize = int(1..=1_048_576, 4096,
            "how many sessions it holds for callers, and how many for servers; idle ones are \
             evicted for new ones"),
        probe: Duration = duration(Duration::from_secs(1),
            "how long a call waits before it asks its machine for the invocation, and how often"),
        order_wait: Duration = duration(Duration::from_secs(10),
            "how long an invocation waits for those made before it, at least"),
        ..
        /// Number of this machine.
        vm: u16 = 0,
        /// The host of vm 0.
        coordinator: Option<HostAddr> = None,
        /// The hosts of all machines, by number, if they are known.
        hosts: Vec<HostAddr> = Vec::new(),
        /// The local participant, a port where the layer below has such.
        at: Participant = Participant::of(Part::Any),
    }
    [
        required("vm", ParamKind::integer(0..=MACHINE_MAX as i64), "the number of this machine"),
        optional("coordinator", ParamKind::Text(COORDINATOR), "the host of vm 0"),
        optional("hosts", ParamKind::Text(HOSTS),
            "the hosts of all machines, from vm 0 on; then no other host is a machine"),
        optional("at", ParamKind::Participant("port2006"),
            "the port of all machines, where the layer below has ports"),
    ]
}

const COORDINATOR: &str = "a host, such as 10.0.0.1";

impl Settings {
    /// Whether a host may be this machine.
    fn may_be(&self, vm: u16, host: HostAddr) -> bool {
        self.hosts.is_empty() || self.hosts.get(usize::from(vm)) == Some(&host)
    }
}

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("sr", include_str!("lib.rs"), build)
    .summary("operations on virtual machines, by call and send, as in SR")
    .above(Family::Other("operations on virtual machines"))
    .on(&[Realm::Rpc], &[Family::Host, Family::Port])
    .needs(Guarantees::SESSIONS.and(Guarantees::HOSTS))
    .header_octets(HEADER)
    .numbers(&[("channel", 0x6a)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("my-procedure", "which operation a session stands for"),
        question("cancel-call", "ends the wait of a call"),
        question("guard", "asked upwards: may an invocation be executed now"),
        question("ask-guards", "told by what is above: guards may have changed"),
        question("process-runs", "told by what is above: a process begins or ends"),
        question("program-ended", "whether all machines were idle"),
    ])
    .reasons(&[
        &DEAD, &ENDED, &DESTROYED, &OUT_OF_ORDER, &NO_CALL, &UNDELIVERED, &ANSWERED, &TOO_FAR,
        &NOT_ITS_PLACE,
    ]);

/// An invocation that is queued: the session to execute it through, and its arguments.
struct Work {
    session: SessionRef,
    request: Message,
}

/// An invocation that has come before others of its process.
struct Early {
    lower: SessionRef,
    invoked: Invoked,
    request: Message,
    /// Time for which it waits for them.
    until: Time,
}

/// A machine's host, and whether it knows this machine.
#[derive(Clone, Copy)]
struct Place {
    host: HostAddr,
    is_met: bool,
}

/// Number of processes and executions, of those that wait, and what is planned.
#[derive(Default)]
struct Activity {
    running: Cell<u32>,
    waiting: Cell<u32>,
    executing: Cell<u32>,
    is_executing_planned: Cell<bool>,
    is_report_planned: Cell<bool>,
    is_early_planned: Cell<bool>,
    /// Number of the last report, and whether something has changed since.
    reports: Cell<u32>,
    has_changed: Cell<bool>,
    has_ended: Cell<bool>,
}

fn change(cell: &Cell<u32>, by: i32) {
    cell.set(cell.get().saturating_add_signed(by));
}

/// One instance.
pub struct Sr {
    settings: Settings,
    /// The operation, or [`ANY`], to the protocol that serves it.
    enables: Map<u64, ProtocolRef>,
    orders: RefCell<Orders<Early>>,
    /// Last order number of each process on each machine.
    made: RefCell<BTreeMap<(u8, u16), u32>>,
    held: RefCell<Held<Work>>,
    calls: Calls,
    /// The other machines that are known.
    places: RefCell<BTreeMap<u16, Place>>,
    /// Whether a host is being asked for its machine.
    is_asking: Cell<bool>,
    /// Key of the tickets.
    secret: Secret,
    ledger: RefCell<Ledger>,
    totals: RefCell<Totals>,
    activity: Activity,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or the coordinator is no host.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::read(build)?);
    let hosts = between_hosts::listed(params, "hosts")?;
    let coordinator = params.parse("coordinator", COORDINATOR)?;
    let vm = build.int("vm")?;
    let settings = Settings {
        vm,
        coordinator: coordinator.or_else(|| hosts.first().copied().filter(|_| vm != 0)),
        hosts,
        at: params.participant("at")?.unwrap_or(usual.at),
        ..usual
    };
    let (key, lower, most) = (build.cx.secret(), build.lower(0)?, settings.sessions_max);
    let Settings { queued_max: queued, machine_queued_max: of_machine, upcalls, .. } = settings;
    let held = Held::new(settings.vm, Most { queued, of_machine, results: upcalls });
    let coordinator = settings.coordinator.filter(|_| settings.vm != 0);
    let coordinator = coordinator.map(|host| (0, Place { host, is_met: false }));
    let layer = Sr {
        enables: Map::new(key, ENABLES_MAX),
        orders: RefCell::default(),
        made: RefCell::default(),
        held: RefCell::new(held),
        calls: Calls::new(settings.calls_max),
        places: RefCell::new(coordinator.into_iter().collect()),
        is_asking: Cell::new(false),
        secret: build.cx.secret(),
        ledger: RefCell::default(),
        totals: RefCell::new(Totals::new(settings.machines)),
        activity: Activity::default(),
        settings,
    };
    build.add(CallLayered::new(build.cx.secret(), lower, most, Outlets::default(), layer))
}

/// Way of a session to its machine.
pub struct Target {
    /// The host that was named at the open.
    hint: Option<HostAddr>,
    lower: ProtocolRef,
}

impl CallLower for Target {
    type Shared = Outlets;

    fn open(
        outlets: &Outlets,
        _: &Kernel,
        lower: &ProtocolRef,
        _: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Self, OpenError> {
        let hint = match ends.peer_mut()?.parts().last() {
            Some(Part::Host(host)) => Some(*host),
            _ => None,
        };
        outlets.enter();
        Ok(Self { hint, lower: lower.clone() })
    }

    fn id(&self) -> u64 {
        0
    }

    fn call(&self, _: &Kernel, _: &SessionRef, _: Message) -> Result<Message, CallError> {
        Err(CallCause::NotSupported.into())
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        self.lower.control(cx, ask)
    }

    fn end_calls(&self, cx: &Kernel, this: &SessionRef) {
        if let Some(own) = this.body::<Own>() {
            let is = |call: &Call| call.is(this.id(), None);
            own.all.layer.calls.end(cx, CallCause::Closed.into(), is);
        }
    }

    fn session(&self) -> Option<&SessionRef> {
        None
    }

    fn close(&self, outlets: &Outlets, cx: &Kernel) {
        outlets.leave(cx);
    }

    fn clear(outlets: &Outlets) {
        outlets.clear();
    }
}

/// Operation, machine, and process of the caller.
type Name = (u32, u16, u8);
type All = CallLayered<Sr>;
type Own = Calling<Sr>;
/// Machine, and the host that it is said to be at.
type To = (u16, Option<HostAddr>);

/// Why a message to a machine has no answer: most causes say that the machine is dead.
fn dead(error: CallError, options: Option<CallOptions>, now: Time) -> CallError {
    let is_late = CallOptions::clip(options, now, Duration::MAX).is_none();
    match error.cause {
        CallCause::TimedOut { .. } if is_late => error,
        CallCause::TimedOut { .. }
        | CallCause::Rebooted
        | CallCause::NobodyThere
        | CallCause::Push(PushError::NoRoute | PushError::Unreachable) => {
            CallError::rejected(&DEAD)
        }
        _ => error,
    }
}

/// Refusal of this status.
fn refusal(status: u8) -> CallError {
    let why = match status {
        STOPPED => Some(&ENDED),
        UNMET | UNKNOWN => Some(&NOT_ITS_PLACE),
        _ => reason_of_status(status),
    };
    CallError::rejected(why.unwrap_or(&SYSTEM_ERROR))
}

/// This machine, on a kernel.
#[derive(Clone, Copy)]
struct Vm<'a> {
    all: &'a All,
    cx: &'a Kernel,
    this: &'a ProtocolRef,
}

impl Deref for Vm<'_> {
    type Target = Sr;

    fn deref(&self) -> &Sr {
        &self.all.layer
    }
}

/// Messages to other machines.
impl Vm<'_> {
    /// Carries a message to a host.
    fn carry(self, host: HostAddr, message: Message) -> Result<(Reply, Message), CallError> {
        let Self { all, cx, this } = self;
        let open = || {
            let mut peer = Participant::of(Part::Host(host));
            if let Some(port @ Part::Number(..)) = self.settings.at.top() {
                peer.push(*port);
            }
            let ends = Participants::pair(self.settings.at.clone(), peer);
            all.lower.open(cx, Upper::new(this), ends).map_err(PushError::from)
        };
        let lower = all.shared.take(host).map_or_else(open, Ok)?;
        let carried = lower.call(cx, message);
        all.shared.give_back(cx, host, lower);
        let mut reply = carried?;
        match pop_header(&mut reply).map(|octets| Reply::parse(&octets)) {
            Ok(read) if read.version == VERSION => Ok((read, reply)),
            read => {
                this.discard(reply, read.err().unwrap_or(&reason::MALFORMED));
                Err(CallCause::BadReply.into())
            }
        }
    }

    /// Tells or asks a host something of the protocol's own.
    fn say(
        self,
        host: HostAddr,
        header: Header,
        body: &[u8],
    ) -> Result<(Reply, Message), CallError> {
        let mut message = self.cx.pool().copy_from(HEADROOM, body)?;
        prepend(&mut message, &Header { octets: body.len() as u32, ..header }.emit())?;
        self.carry(host, message)
    }

    /// Host of a machine. The coordinator is asked for one that is not known.
    fn place(self, vm: u16) -> Option<HostAddr> {
        let Settings { vm: own, hosts, .. } = &self.settings;
        if !hosts.is_empty() {
            return hosts.get(usize::from(vm)).copied();
        }
        let own = *own;
        for wait in (0..PLACE_TRIES).map(|n| PLACE_WAIT * (1 << n)) {
            let known = self.places.borrow().get(&vm).map(|place| place.host);
            if known.is_some() || vm > MACHINE_MAX || own == 0 && self.settings.machines == 0 {
                return known;
            }
            if own != 0 {
                let ask = Header { operation: vm.into(), ..Header::of(LOCVM, own, 0) };
                let (reply, body) = self.say(self.settings.coordinator?, ask, &[]).ok()?;
                let mut octets = [0; 16];
                if reply.status == TAKEN && body.copy_to(0, &mut octets) == octets.len() {
                    return Some(HostAddr::from_parts((octets, 0)));
                }
            }
            // It is never signalled.
            let _ = self.cx.wait(&Semaphore::new(0), Some(wait));
        }
        None
    }

    /// Makes this machine known to another one; the host of that.
    fn meet(self, (vm, hint): To) -> Result<HostAddr, CallError> {
        let host = hint.or_else(|| self.place(vm)).ok_or(PushError::NoRoute)?;
        if !self.settings.may_be(vm, host) {
            return Err(CallError::rejected(&NOT_ITS_PLACE));
        }
        let hello = Header::of(HELLO, self.settings.vm, vm);
        let (mut reply, body) = self.say(host, hello, &[])?;
        if reply.status == UNMET {
            let mut ticket = [0; size_of::<u32>()];
            body.copy_to(0, &mut ticket);
            let hello = Header { operation: u32::from_be_bytes(ticket), ..hello };
            (reply, _) = self.say(host, hello, &[])?;
        }
        if reply.status != TAKEN {
            return Err(refusal(reply.status));
        }
        self.places.borrow_mut().insert(vm, Place { host, is_met: true });
        Ok(host)
    }

    /// Carries a message to a machine.
    fn deliver(self, to @ (vm, hint): To, message: Message) -> Result<Reply, CallError> {
        let place = self.places.borrow().get(&vm).copied();
        let met = place.filter(|at| at.is_met && hint.is_none_or(|host| host == at.host));
        let host = met.map_or_else(|| self.meet(to), |place| Ok(place.host))?;
        let (reply, _) = self.carry(host, message)?;
        if reply.status == UNMET
            && let Some(place) = self.places.borrow_mut().get_mut(&vm)
        {
            place.is_met = false;
        }
        Ok(reply)
    }

    /// Invokes an operation, here or on another machine; `Ok` once it is queued.
    fn submit(
        self,
        session: &SessionRef,
        (invoked, to): (Invoked, To),
        mut request: Message,
    ) -> Result<(), CallError> {
        let status = if to.0 == self.settings.vm {
            self.enqueue(session, invoked, request)
        } else {
            let header = Header::invoke(&invoked, to.0, request.len() as u32);
            prepend(&mut request, &header.emit())?;
            let status = self.deliver(to, request)?.status;
            self.sent(to.0);
            status
        };
        if status == TAKEN { Ok(()) } else { Err(refusal(status)) }
    }

    /// Forwards an invocation that is being executed here.
    fn forward(
        self,
        session: &SessionRef,
        (number, operation, to): (u32, u32, To),
        request: Message,
    ) -> Result<(), CallError> {
        let answered = self.held.borrow_mut().answer(number);
        let refuse = |request, why| {
            session.discard(self.cx, request, why);
            Err(CallError::rejected(why))
        };
        let Some(invoked) = answered else { return refuse(request, &ANSWERED) };
        let order = self.settings.vm.into();
        let on = Invoked { hops: invoked.hops + 1, operation, order, ..invoked };
        let forwarded = match invoked.hops < HOPS_MAX {
            true => self.submit(session, (on, to), request),
            false => refuse(request, &TOO_FAR),
        };
        let mut held = self.held.borrow_mut();
        match &forwarded {
            Ok(()) => held.forward(&invoked, to.0),
            Err(_) => held.restore(number),
        }
        forwarded
    }

    /// Waits for the result of a call.
    fn wait(
        self,
        (call, token): (&Call, u32),
        mut to: To,
        options: Option<CallOptions>,
    ) -> Result<Message, CallError> {
        loop {
            if let Some(outcome) = call.take() {
                return outcome;
            }
            let clip = |own| CallOptions::clip(options, self.cx.now(), own);
            let limit = clip(self.settings.probe).ok_or(CallCause::TimedOut { tries: 1 })?;
            match call.wait(self.cx, limit).map_err(|error| CallError::from(error).cause) {
                Ok(Some(outcome)) => return outcome,
                Err(CallCause::TimedOut { .. }) if clip(limit).is_some() => {}
                Ok(None) | Err(CallCause::TimedOut { .. }) => continue,
                Err(cause) => return call.take().unwrap_or(Err(cause.into())),
            }
            match (self.find(to, token), call.take()) {
                (_, Some(outcome)) => return outcome,
                (Ok(Whereabouts::Here), None) => {}
                (Ok(Whereabouts::Forwarded(next)), None) => to = (next, None),
                (Ok(Whereabouts::Unknown), None) => return Err(CallError::rejected(&DEAD)),
                (Err(error), None) => return Err(dead(error, options, self.cx.now())),
            }
        }
    }

    /// Asks a machine where an invocation of ours is.
    fn find(self, to: To, token: u32) -> Result<Whereabouts, CallError> {
        let own = self.settings.vm;
        if to.0 == own {
            return Ok(self.held.borrow().find(own, token));
        }
        let header = Header { token, ..Header::of(HELLO, own, to.0) };
        let reply = self.deliver(to, self.cx.pool().copy_from(HEADROOM, &header.emit())?)?;
        Ok(match reply.status {
            TAKEN => Whereabouts::Here,
            FORWARDED => Whereabouts::Forwarded(reply.machine),
            STOPPED => return Err(refusal(STOPPED)),
            _ => Whereabouts::Unknown,
        })
    }
}

/// Invocations that are executed here.
impl Vm<'_> {
    /// Takes an invocation from another machine, in its turn, and answers with the status for its
    /// caller.
    fn arrive(self, lower: &SessionRef, invoked: Invoked, request: Message) -> u8 {
        let Invoked { origin, process, order, .. } = invoked;
        if invoked.hops > 0 || order == 0 {
            return self.enqueue(lower, invoked, request);
        }
        let until = self.cx.now().after(self.settings.order_wait);
        let early = Early { lower: lower.clone(), invoked, request, until };
        let arrived = self.orders.borrow_mut().arrive((origin, process), order, early);
        match arrived {
            Ok(Some(Early { request, .. })) => {
                let status = self.enqueue(lower, invoked, request);
                self.take_turns(&invoked);
                status
            }
            Ok(None) => {
                let activity = &self.activity;
                self.plan(&activity.is_early_planned, self.settings.order_wait, LOOK_EARLY);
                TAKEN
            }
            Err(far) => {
                self.this.discard(far.request, &OUT_OF_ORDER);
                status_of(&BUSY)
            }
        }
    }

    /// Queues the invocations that have waited for this one, which is queued.
    fn take_turns(self, done: &Invoked) {
        let (process, mut order) = ((done.origin, done.process), done.order);
        loop {
            let next = self.orders.borrow_mut().done(process, order);
            let Some(next) = next else { return };
            order = next.invoked.order;
            self.enqueue_late(next);
        }
    }

    /// Queues an invocation whose caller has been told that it is queued.
    fn enqueue_late(self, Early { lower, invoked, request, .. }: Early) {
        let status = self.enqueue(&lower, invoked, request);
        if status != TAKEN {
            // Others do not wait until this caller has been told.
            self.plan(&self.activity.is_early_planned, SHORTEST, LOOK_EARLY);
            self.refuse_late(&invoked, reason_of_status(status).unwrap_or(&SYSTEM_ERROR));
        }
    }

    /// Tells the caller of an invocation that it is not executed.
    fn refuse_late(self, invoked: &Invoked, why: &'static Reason) {
        if let Ok(empty) = self.cx.pool().alloc(HEADROOM, 0) {
            self.answer(invoked, Err(Refused::new(empty, why)));
        }
    }

    /// Queues the invocations that have waited long enough for those before them.
    fn look_early(self) {
        let (activity, now) = (&self.activity, self.cx.now());
        activity.is_early_planned.set(false);
        loop {
            let late = self.orders.borrow_mut().give_up(|early| early.until <= now);
            let Some(late) = late else { break };
            let invoked = late.invoked;
            self.enqueue_late(late);
            self.take_turns(&invoked);
        }
        if self.orders.borrow().early() > 0 {
            self.plan(&activity.is_early_planned, self.settings.order_wait, LOOK_EARLY);
        }
        self.look_idle();
    }

    /// Queues an invocation, and answers with the status for its caller.
    fn enqueue(self, lower: &SessionRef, invoked: Invoked, request: Message) -> u8 {
        let Self { all, cx, this } = self;
        let name = (invoked.operation, self.settings.vm, 0);
        let Some(upper) = self.server(invoked.operation) else {
            return self.refuse_dead(invoked, request);
        };
        let accept =
            || all.accept(cx, this, (lower, &upper), name, || ((), Participants::default()));
        let refuse = |request, why: &'static Reason, told| {
            this.discard(request, why);
            status_of(told)
        };
        let session = match all.serving(lower, name).map_or_else(accept, Ok) {
            Ok(session) => session,
            Err(why) => return refuse(request, why, why),
        };
        if let Err(work) = self.held.borrow_mut().add(invoked, Work { session, request }) {
            return refuse(work.request, &reason::QUEUE_FULL, &BUSY);
        }
        self.plan_execution(SHORTEST);
        TAKEN
    }

    /// Drops an invocation of an operation that no protocol serves: a sender is not told.
    fn refuse_dead(self, invoked: Invoked, request: Message) -> u8 {
        let is_told = invoked.manner.waits();
        self.this.discard(request, if is_told { &NO_PROCEDURE } else { &DESTROYED });
        if is_told { status_of(&NO_PROCEDURE) } else { TAKEN }
    }

    /// Sets a timer, unless it is set.
    fn plan(self, is_planned: &Cell<bool>, after: Duration, token: u64) {
        if !is_planned.get() {
            let planned = self.cx.schedule_protocol(self.this, after.max(SHORTEST), token);
            is_planned.set(planned.is_ok());
        }
    }

    /// Has a shepherd of its own look for an invocation to execute.
    fn plan_execution(self, after: Duration) {
        self.plan(&self.activity.is_executing_planned, after, EXECUTE);
    }

    /// The invocation that is executed next, as the guards say.
    fn choose(self) -> Option<u32> {
        let (mut choice, mut last) = (Choice::default(), 0);
        loop {
            // No guard is asked while the queue is borrowed.
            let held = self.held.borrow();
            let Some((number, invoked, work)) = held.after(last) else { break };
            last = number;
            let octets = work.request.len() as u32;
            let mut guard = Guard { operation: invoked.operation, octets, ..Guard::default() };
            work.request.copy_to(0, &mut guard.arguments);
            drop(held);
            let Some(upper) = self.server(guard.operation) else { return Some(number) };
            match self.cx.unless_lost(|| upper.ask(self.cx, guard)) {
                Ok(None) => return Some(number),
                Ok(Some(guard)) => choice.hear(number, guard.may, guard.by),
                Err(_) => self.plan_execution(PLACE_WAIT),
            }
        }
        choice.chosen()
    }

    /// Executes invocations, one after the other, until none is permitted.
    fn execute(self) {
        let activity = &self.activity;
        activity.is_executing_planned.set(false);
        for turn in 0..=PER_TURN {
            if activity.executing.get() >= self.settings.upcalls {
                break;
            }
            let Some(number) = self.choose() else { break };
            if turn == PER_TURN {
                self.plan_execution(SHORTEST);
                break;
            }
            let taken = self.held.borrow_mut().take(number);
            let Some((manner, Work { session, mut request })) = taken else { continue };
            change(&activity.executing, 1);
            change(&activity.running, 1);
            if !self.held.borrow().is_empty() {
                // This one may wait; another may be permitted all the same.
                self.plan_execution(SHORTEST);
            }
            request.clear_attributes();
            let _ = request.set_attribute(Invocation { manner, number });
            let end = session.call_pop(self.cx, request);
            let _ = self.reply(number, end);
            self.held.borrow_mut().remove(number);
            change(&activity.running, -1);
            change(&activity.executing, -1);
        }
        self.look_idle();
    }

    /// Ends an invocation that is being executed, unless it has an answer. Others are executed
    /// while its result is on the way.
    ///
    /// # Errors
    /// The result, if it has an answer.
    fn reply(
        self,
        number: u32,
        end: Result<Message, Refused>,
    ) -> Result<(), Result<Message, Refused>> {
        let executing = &self.activity.executing;
        let replied = self.held.borrow_mut().reply(number);
        let Some(invoked) = replied else { return Err(end) };
        let is_away = invoked.manner.waits() && invoked.origin != self.settings.vm;
        let plan = || {
            if is_away && !self.held.borrow().is_empty() {
                self.plan_execution(SHORTEST);
            }
        };
        change(executing, -1);
        plan();
        self.answer(&invoked, end);
        change(executing, 1);
        self.held.borrow_mut().sent(&invoked);
        plan();
        Ok(())
    }

    /// Sends the result of an invocation to its caller, if that waits.
    fn answer(self, invoked: &Invoked, end: Result<Message, Refused>) {
        let (cx, own) = (self.cx, self.settings.vm);
        if !invoked.manner.waits() || self.activity.has_ended.get() {
            return;
        }
        if invoked.origin == own {
            let result = end.map_err(|refused| CallError::rejected(refused.reason));
            return self.come(invoked.token, result);
        }
        let (mut status, mut message) = match end {
            Ok(reply) => (TAKEN, reply),
            Err(refused) => (status_of(refused.reason), refused.message),
        };
        if status != TAKEN {
            message.truncate(0);
        }
        message.clear_attributes();
        loop {
            let (octets, to) = (message.len(), (invoked.origin, None));
            let header = Header::result(invoked, own, status, octets as u32);
            let sent = match prepend(&mut message, &header.emit()) {
                Ok(()) => self.deliver(to, message),
                Err(error) => Err(error.into()),
            };
            match sent.map_err(|error| error.cause) {
                Ok(_) => return self.sent(invoked.origin),
                Err(CallCause::Push(PushError::TooBig)) if octets > 0 => {}
                Err(_) => return self.this.head().drops().count(&UNDELIVERED),
            }
            let Ok(empty) = cx.pool().alloc(HEADROOM, 0) else { return };
            (status, message) = (status_of(&reason::TOO_BIG), empty);
        }
    }

    /// A result has come.
    fn come(self, token: u32, result: Result<Message, CallError>) {
        if !self.calls.come(self.cx, token, result) {
            self.this.head().drops().count(&NO_CALL);
        }
    }
}

/// The end of the program, and messages of the protocol's own.
impl Vm<'_> {
    /// Plans a report if this machine is idle.
    fn look_idle(self) {
        let (activity, settings) = (&self.activity, &self.settings);
        let is_told = settings.coordinator.is_some() || settings.machines > 0;
        let is_new = activity.has_changed.get() || activity.reports.get() == 0;
        if is_told && is_new && self.is_idle() {
            self.plan(&activity.is_report_planned, IDLE_WAIT, SAY_IDLE);
        }
    }

    /// Reports that this machine is idle, if it still is.
    fn report(self) {
        let activity = &self.activity;
        activity.is_report_planned.set(false);
        if !self.is_idle() || activity.has_ended.get() {
            return;
        }
        activity.reports.set(activity.reports.get().wrapping_add(1).max(1));
        activity.has_changed.set(false);
        let (ledger, order) = (self.ledger.borrow().clone(), activity.reports.get());
        if self.settings.vm == 0 {
            return self.hear(0, order, ledger);
        }
        let Some(host) = self.settings.coordinator else { return };
        let header = Header { order, ..Header::of(IDLE, self.settings.vm, 0) };
        let said = self.say(host, header, &ledger.emit());
        match said.map_or(UNMET, |(reply, _)| reply.status) {
            TAKEN => {}
            STOPPED => self.end(),
            _ => {
                activity.has_changed.set(true);
                self.plan(&activity.is_report_planned, AGAIN, SAY_IDLE);
            }
        }
    }

    /// Hears the report of a machine, on vm 0.
    fn hear(self, vm: u16, number: u32, report: Ledger) {
        self.totals.borrow_mut().hear(vm, number, report);
        if self.totals.borrow().is_over() && !self.activity.has_ended.get() {
            self.end();
            for vm in self.places.borrow().keys() {
                let token = SAY_STOP + u64::from(*vm);
                let _ = self.cx.schedule_protocol(self.this, SHORTEST, token);
            }
        }
    }

    /// Ends the program on this machine.
    fn end(self) {
        self.activity.has_ended.set(true);
        self.calls.end(self.cx, CallError::rejected(&ENDED), |_| true);
        drop(self.held.borrow_mut().destroy(|_| true));
    }

    /// Tells another machine of the end, until it has heard.
    fn say_stop(self, token: u64) {
        let (vm, times) = ((token & 0xff) as u16, (token - SAY_STOP) >> 8);
        let place = self.places.borrow().get(&vm).copied();
        let said = place.map(|place| self.say(place.host, Header::of(STOP, 0, vm), &[]));
        if !matches!(said, Some(Ok((Reply { status: TAKEN, .. }, _)))) && times < STOPS_MAX {
            let _ = self.cx.schedule_protocol(self.this, AGAIN * (1 << times.min(6)), token + 256);
        }
    }

    /// Tells the coordinator of this machine.
    fn say_hello(self) {
        if self.meet((0, self.settings.coordinator)).is_err() {
            let _ = self.cx.schedule_protocol(self.this, AGAIN, SAY_HELLO);
        }
    }

    /// Hears that a machine is at a host: the status, and the ticket that is to be shown if what
    /// comes from there may be forged.
    fn hear_of(
        self,
        lower: &SessionRef,
        header: &Header,
        from: HostAddr,
    ) -> (u8, Option<[u8; 16]>) {
        let vm = header.origin;
        let address = u128::from_be_bytes(from.to_parts().0);
        let ticket = self.secret.hash(&[(address >> 64) as u64, address as u64, vm.into()]) as u32;
        if vm > MACHINE_MAX {
            return (TAKEN, None);
        }
        if header.operation != ticket && !is_proved(self.cx, lower) {
            return (UNMET, Some((u128::from(ticket) << 96).to_be_bytes()));
        }
        let other = || {
            let places = self.places.borrow();
            let other = places.iter().find(|(of, at)| (**of == vm) != (at.host == from));
            other.map(|(of, at)| (*of, at.host))
        };
        // A machine sends itself nothing.
        let mut is_taken = vm == self.settings.vm || !self.settings.may_be(vm, from);
        while let Some((of, host)) = other().filter(|_| !is_taken) {
            is_taken = !self.is_gone(of, host);
            if !is_taken {
                self.places.borrow_mut().remove(&of);
            }
        }
        if is_taken {
            self.this.head().drops().count(&NOT_ITS_PLACE);
            return (UNKNOWN, None);
        }
        self.places.borrow_mut().entry(vm).or_insert(Place { host: from, is_met: false });
        (TAKEN, None)
    }

    /// Whether a machine is not at its host any more. The coordinator is always.
    fn is_gone(self, vm: u16, host: HostAddr) -> bool {
        if vm == 0 && self.settings.coordinator.is_some() || self.is_asking.replace(true) {
            return false;
        }
        let hello = Header::of(HELLO, NULL, vm).emit();
        let asked = self.cx.pool().copy_from(HEADROOM, &hello).map_err(CallError::from);
        let said = asked.and_then(|mut asked| {
            let deadline = self.cx.now().after(ASK_WAIT);
            let _ = asked.set_attribute(CallOptions { deadline, tag: 0 });
            self.carry(host, asked)
        });
        self.is_asking.set(false);
        match said {
            Ok((reply, _)) => reply.status != TAKEN,
            Err(error) => !matches!(error.cause, CallCause::Push(_)),
        }
    }

    /// Takes a message of another machine: the status, the machine and the rest of the reply.
    fn take(
        self,
        lower: &SessionRef,
        header: &Header,
        request: &mut Message,
    ) -> Result<(u8, u16, Option<[u8; 16]>), &'static Reason> {
        let &Header { message, origin, destination, token, .. } = header;
        let is_sound = header.version == VERSION
            && header.octets as usize == request.len()
            && (origin <= MACHINE_MAX || message == HELLO)
            && destination == self.settings.vm;
        if !is_sound {
            return Err(&reason::MALFORMED);
        }
        let from = lower.ask(self.cx, PeerHost::default()).unwrap_or_default().host;
        let place = self.places.borrow().get(&header.sender()).copied();
        let is_known = place.is_some_and(|place| place.host == from);
        if !is_known {
            is_for_one(self.cx, lower)?;
        }
        if message == HELLO && token == 0 {
            let (status, ticket) = self.hear_of(lower, header, from);
            return Ok((status, 0, ticket));
        }
        if message != LOCVM && !is_known {
            self.this.head().drops().count(&NOT_ITS_PLACE);
            return Ok((UNMET, 0, None));
        }
        let body = |request: &mut Message| {
            let body = request.try_clone().map_err(|_| &reason::NO_BUFFERS);
            request.truncate(0);
            body
        };
        let mut status = TAKEN;
        match header.message {
            HELLO | INVOKE | IDLE if self.activity.has_ended.get() => status = STOPPED,
            HELLO => {
                let is =
                    |early: &Early| (early.invoked.origin, early.invoked.token) == (origin, token);
                match self.held.borrow().find(origin, token) {
                    _ if self.orders.borrow().waits(is) => {}
                    Whereabouts::Here => {}
                    Whereabouts::Forwarded(vm) => return Ok((FORWARDED, vm, None)),
                    Whereabouts::Unknown => status = UNKNOWN,
                }
            }
            LOCVM => {
                let vm = u16::try_from(header.operation).unwrap_or(NULL);
                let host = self.places.borrow().get(&vm).map(|place| place.host.to_parts().0);
                return Ok((if host.is_some() { TAKEN } else { UNKNOWN }, 0, host));
            }
            INVOKE => {
                let invoked = header.invoked().ok_or(&reason::MALFORMED)?;
                status = self.arrive(lower, invoked, body(request)?);
                self.received();
            }
            RESULT => {
                let reply = body(request)?;
                let is_reply = header.process == TAKEN;
                self.come(token, if is_reply { Ok(reply) } else { Err(refusal(header.process)) });
                self.received();
            }
            IDLE if self.settings.vm == 0 => {
                let mut octets = vec![0; request.len().min(LEDGER_MAX)];
                request.copy_to(0, &mut octets);
                let ledger = Ledger::parse(&octets).filter(|_| request.len() <= LEDGER_MAX);
                self.hear(origin, header.order, ledger.ok_or(&reason::MALFORMED)?);
            }
            STOP if origin == 0 && self.settings.coordinator.is_some() => self.end(),
            IDLE | STOP => return Err(&NOT_ITS_PLACE),
            _ => return Err(&reason::MALFORMED),
        }
        Ok((status, 0, None))
    }
}

impl Sr {
    fn server(&self, operation: u32) -> Option<ProtocolRef> {
        self.enables.get(&operation.into()).or_else(|| self.enables.get(&ANY))
    }

    /// Counts a message that has gone to another machine.
    fn sent(&self, vm: u16) {
        self.ledger.borrow_mut().sent(vm);
        self.activity.has_changed.set(true);
    }

    /// Counts a message that has come from another machine.
    fn received(&self) {
        self.ledger.borrow_mut().received(self.settings.vm);
        self.activity.has_changed.set(true);
    }

    /// Whether nothing can go on here before a message arrives.
    fn is_idle(&self) -> bool {
        let activity = &self.activity;
        activity.running.get() == activity.waiting.get()
            && !activity.is_executing_planned.get()
            && self.orders.borrow().early() == 0
    }

    /// Number of the next invocation of a process on a machine.
    fn order(&self, process: u8, vm: u16) -> u32 {
        let mut made = self.made.borrow_mut();
        let last = made.entry((process, vm)).or_insert(0);
        *last = last.wrapping_add(1).max(1);
        *last
    }
}

impl CallLayer for Sr {
    type Name = Name;
    type Lower = Target;
    type Calls = ();
    type Serves = ();

    fn request_octets(&self, _: Option<&()>) -> usize {
        HEADER
    }

    fn reply_octets(&self, (): &()) -> usize {
        HEADER
    }

    fn start(all: &All, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (settings, at) = (&all.layer.settings, all.layer.settings.at.clone());
        let _ = all.lower.open_enable(cx, Upper::new(this), Participants::local(at))?;
        if settings.vm != 0 && settings.coordinator.is_some() {
            cx.schedule_protocol(this, SHORTEST, SAY_HELLO)?;
        }
        Vm { all, cx, this }.look_idle();
        Ok(())
    }

    fn pop_name(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<Name, OpenError> {
        let process = pop_local(ends.local_mut()?, PROCESS)?.value().unwrap_or(0);
        let peer = ends.peer_mut()?;
        let operation = pop_definite(peer, PROCEDURE)?;
        let vm = u16::try_from(pop_definite(peer, MACHINE)?).ok().filter(|vm| *vm <= NULL);
        let vm = vm.ok_or(AddressError::OutOfRange)?;
        let is_known = vm == self.settings.vm || vm > MACHINE_MAX;
        let Settings { coordinator, machines, hosts, .. } = &self.settings;
        let is_found = coordinator.is_some() || *machines > 0 || !hosts.is_empty();
        if !is_known && !is_found && !matches!(peer.parts().last(), Some(Part::Host(_))) {
            return Err(AddressError::Missing.into());
        }
        let process = u8::try_from(process).map_err(|_| AddressError::OutOfRange)?;
        *ends = Participants::pair(Part::Any, core::mem::take(peer));
        Ok((operation, vm, process))
    }

    fn name_in(_: &Message) -> Option<Name> {
        None
    }

    fn answer_name((operation, ..): Name, ask: &mut Ask<'_>) -> bool {
        ask.answer::<MyProcedure>(|question| question.number = operation).is_answered()
    }

    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    fn call(
        own: &Own,
        cx: &Kernel,
        session: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let this = &session.protocol(cx).ok_or(PushError::Closed)?;
        let machine = Vm { all: &own.all, cx, this };
        let (activity, calls) = (&own.all.layer.activity, &own.all.layer.calls);
        let ((operation, vm, process), to) = (own.name, (own.name.1, own.lower.hint));
        let options = request.attribute::<CallOptions>();
        let Invocation { manner, number } = request.remove_attribute().unwrap_or_default();
        let empty = || Ok(cx.pool().alloc(HEADROOM, 0)?);
        let limit = CallOptions::clip(options, cx.now(), Duration::MAX);
        limit.ok_or(CallCause::TimedOut { tries: 0 })?;
        match vm {
            _ if activity.has_ended.get() => return Err(CallError::rejected(&ENDED)),
            NOOP => return empty(),
            NULL if manner.waits() => return Err(CallError::rejected(&NO_PROCEDURE)),
            NULL => {
                this.discard(request, &DESTROYED);
                return empty();
            }
            _ if number != 0 => {
                machine.forward(session, (number, operation, to), request)?;
                return empty();
            }
            _ => {}
        }
        let (token, tag) = (calls.token(cx), options.map_or(0, |options| options.tag));
        let call = manner.waits().then(|| calls.begin(token, session.id(), tag));
        if let Some(None) = call {
            this.discard(request, &reason::TABLE_FULL);
            return Err(CallError::rejected(&BUSY));
        }
        let (origin, order) = (machine.settings.vm, machine.order(process, vm));
        let invoked = Invoked { manner, origin, process, hops: 0, operation, token, order };
        // A caller that no process is known to be runs while it calls.
        let is_stranger = activity.waiting.get() >= activity.running.get();
        change(&activity.running, is_stranger.into());
        let submitted = machine.submit(session, (invoked, to), request);
        let submitted = submitted.map_err(|error| dead(error, options, cx.now()));
        let mut end = submitted.and_then(|()| empty());
        if let Some(call) = call.flatten() {
            if end.is_ok() {
                change(&activity.waiting, 1);
                machine.look_idle();
                end = machine.wait((&call, token), to, options);
                change(&activity.waiting, -1);
            }
            // One that was closed or taken back meanwhile ends as such.
            end = call.take().unwrap_or(end);
            calls.finish(token);
        }
        change(&activity.running, -i32::from(is_stranger));
        machine.look_idle();
        end
    }

    fn first(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (octets, mut request) = this.header::<HEADER>(request)?;
        let _ = request.strip(HEADER);
        let (machine, header) = (Vm { all, cx, this }, Header::parse(&octets));
        let (status, vm, more) = match machine.take(lower, &header, &mut request) {
            Ok(taken) => taken,
            Err(why) => return Err(this.refuse(request, why)),
        };
        machine.look_idle();
        let mut octets = [0; REPLY + 16];
        octets[..REPLY].copy_from_slice(&Reply { version: VERSION, status, machine: vm }.emit());
        octets[REPLY..].copy_from_slice(&more.unwrap_or_default());
        reply_of(cx, request, &octets[..if more.is_some() { octets.len() } else { REPLY }])
    }

    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        own.next(cx, this, request)
    }

    /// A reply before the end of its operation.
    fn push(
        own: &Serving<Self>,
        cx: &Kernel,
        session: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let this = &session.protocol(cx).ok_or(PushError::Closed)?;
        let machine = Vm { all: &own.all, cx, this };
        let number = message.attribute::<Invocation>().map_or(0, |invocation| invocation.number);
        let replied = machine.reply(number, Ok(message));
        replied.map_err(|end| {
            if let Ok(message) = end {
                session.discard(cx, message, &ANSWERED);
            }
            PushError::NotSupported
        })
    }

    fn timeout(all: &All, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let machine = Vm { all, cx, this };
        match token {
            EXECUTE => machine.execute(),
            SAY_HELLO => machine.say_hello(),
            SAY_IDLE => machine.report(),
            LOOK_EARLY => machine.look_early(),
            _ => machine.say_stop(token),
        }
    }

    fn control(all: &All, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let (machine, activity) = (Vm { all, cx, this }, &all.layer.activity);
        if ask.get::<Guard>().is_some() {
            // One that was asked upwards, and comes back.
            return Answer::Unknown;
        }
        if let Some(asked) = ask.get::<ProgramEnded>() {
            asked.has_ended = activity.has_ended.get();
        } else if let Some(told) = ask.get::<ProcessRuns>() {
            change(&activity.running, if told.begins { 1 } else { -1 });
            machine.look_idle();
        } else if ask.get::<AskGuards>().is_some() {
            machine.plan_execution(SHORTEST);
        } else {
            return all.answer(cx, ask);
        }
        Answer::Answered
    }

    fn calls_control(own: &Own, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let Some(CancelCall { tag }) = ask.get::<CancelCall>().copied() else {
            return own.answer(cx, this, ask);
        };
        let is = |call: &Call| tag != 0 && call.is(this.id(), Some(tag));
        match own.all.layer.calls.end(cx, CallCause::Cancelled.into(), is) {
            true => Answer::Answered,
            false => Answer::Unknown,
        }
    }

    fn describe_calls(own: &Own) -> Option<String> {
        let (operation, vm, process) = own.name;
        Some(alloc::format!("process {process} calls operation {operation} of vm {vm}"))
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        let (queued, held) = own.all.layer.held.borrow().len();
        Some(alloc::format!("serves operation {}; {queued} of {held} queued", own.name.0))
    }

    fn enable(
        all: &All,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        let key = pop_local(ends.local_mut()?, PROCEDURE)?.value().map_or(ANY, u64::from);
        all.layer.enables.enable(key, upper.receiver.clone(), |_| false)?;
        Ok(Enable(key))
    }

    /// Destroys an operation: those that wait for it are told.
    fn disable(all: &All, cx: &Kernel, enable: Enable) {
        let layer = &all.layer;
        if layer.enables.unbind(&enable.0).is_none() {
            return;
        }
        let gone = layer.held.borrow_mut().destroy(|operation| layer.server(operation).is_none());
        for (invoked, work) in gone {
            let Some(this) = &work.session.protocol(cx) else { continue };
            let machine = Vm { all, cx, this };
            if machine.refuse_dead(invoked, work.request) != TAKEN {
                machine.refuse_late(&invoked, &NO_PROCEDURE);
            }
            machine.look_idle();
        }
    }

    fn map(&self) -> Option<(&'static str, MapStats)> {
        Some(("enables", self.enables.stats()))
    }

    fn stop(&self) {
        self.enables.clear();
        self.calls.clear();
        drop(self.held.borrow_mut().destroy(|_| true));
        drop(self.orders.take());
    }
}
