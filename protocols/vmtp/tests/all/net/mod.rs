//! Hosts with a vmtp each between a wire that the test rules and an application, in virtual time.

#![allow(dead_code, reason = "each test file uses its part")]

use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::object::{CallError, OpenError, Refused};
use xk_core::shepherd::Flow;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Time, Upper,
};
use xk_kit::rpc::call::{MyProcedure, PROCEDURE};
use xk_run::switch::CoroutineSwitch;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, octets};
use xk_vmtp::Settings;
use xk_vmtp::wire::{HEADER_OCTETS, Header};

/// A procedure, which gets its number and the request.
pub(crate) type Procedure = Rc<dyn Fn(&Kernel, u32, Message) -> Result<Message, &'static Reason>>;

/// The application of a host: serves with a closure, calls as the test says.
struct App {
    lower: ProtocolRef,
    procedure: RefCell<Procedure>,
}

impl Protocol for App {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        let procedure = lower.ask(cx, MyProcedure::default()).map_or(0, |q| q.number);
        lower.head().set_tag(procedure);
        Ok(())
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let procedure = self.procedure.borrow().clone();
        procedure(cx, lower.head().tag(), message).map_err(|why| {
            this.head().drops().count(why);
            Refused::new(cx.pool().copy_from(0, &[]).unwrap(), why)
        })
    }
}

type Task = Box<dyn FnOnce(&Kernel)>;

enum Work {
    Task(Task),
    Frame(u32, Vec<u8>),
}

/// One host.
pub(crate) struct Host {
    pub(crate) cx: Rc<TestKernel>,
    pub(crate) bottom: Bottom,
    pub(crate) vmtp: ProtocolRef,
    pub(crate) app: ProtocolRef,
    pub(crate) address: Ipv4Addr,
    inbox: Rc<RefCell<VecDeque<Work>>>,
    body: Rc<dyn Fn() -> Flow>,
}

impl Host {
    /// Boots a host; its boot id follows from the seed.
    pub(crate) fn boot(seed: u64, lower: Lower, config: Settings, procedure: Procedure) -> Self {
        let add = |cx: &Kernel, bottom: ProtocolRef| xk_vmtp::add(cx, "vmtp", bottom, config);
        Self::boot_with(seed, lower, add, procedure)
    }

    /// Boots a host that passes requests of procedures from 3 on to another.
    pub(crate) fn forwarding(seed: u64, lower: Lower, to: Ipv4Addr) -> Self {
        let add = |cx: &Kernel, bottom: ProtocolRef| {
            let (mut params, mut route) = (Params::default(), Params::default());
            route.set("first", Value::Integer(3));
            route.set("last", Value::Integer(9));
            route.set("to", Value::Text(to.to_string()));
            params.add_block("route", route);
            params.set("timers", Value::Text("near".into()));
            xk_vmtp::ENTRY.add(cx, "vmtp", &[bottom], &params).unwrap()
        };
        Self::boot_with(seed, lower, add, nothing())
    }

    fn boot_with(
        seed: u64,
        lower: Lower,
        add: impl FnOnce(&Kernel, ProtocolRef) -> ProtocolRef,
        procedure: Procedure,
    ) -> Self {
        let cx = Rc::new(TestKernel::with_switch(seed, Box::new(CoroutineSwitch::new())));
        for number in xk_vmtp::ENTRY.type_numbers() {
            cx.numbers_mut().add(number).unwrap();
        }
        let address = match lower.addressing {
            xk_testkit::kernel::Addressing::Host(own) => own.to_v4().expect("of IPv4"),
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let bottom = Bottom::add(&cx, "bottom", lower);
        let vmtp = add(&cx, bottom.protocol().clone());
        let app = App { lower: vmtp.clone(), procedure: RefCell::new(procedure) };
        let app = cx.add_protocol("app", "app", app);
        cx.start().unwrap();
        let inbox: Rc<RefCell<VecDeque<Work>>> = Rc::default();
        let body = body(&cx, &bottom, &inbox);
        Self { cx, bottom, vmtp, app, address, inbox, body }
    }

    fn run(&self) {
        self.cx.shepherds().run(Rc::clone(&self.body)).unwrap();
    }

    /// Has something done on a shepherd of its own.
    pub(crate) fn spawn(&self, task: impl FnOnce(&Kernel) + 'static) {
        self.inbox.borrow_mut().push_back(Work::Task(Box::new(task)));
        self.run();
    }

    /// Opens a procedure of another host.
    pub(crate) fn open(&self, procedure: u32, server: Ipv4Addr) -> SessionRef {
        let peer = match server.is_unspecified() {
            true => Participant::new(),
            false => Participant::of(Part::host(server)),
        };
        let peer = peer.with(Part::Number(PROCEDURE, procedure.into()));
        let both = Participants::pair(Participant::new(), peer);
        self.vmtp.open(&self.cx, Upper::new(&self.app), both).unwrap()
    }

    /// Calls; the outcome is there when the call has ended.
    pub(crate) fn call(&self, session: &SessionRef, request: &[u8]) -> Rc<Outcome> {
        self.call_with(session, self.cx.message(request))
    }

    pub(crate) fn call_with(&self, session: &SessionRef, request: Message) -> Rc<Outcome> {
        let outcome: Rc<Outcome> = Rc::default();
        let (to, session) = (Rc::clone(&outcome), session.clone());
        self.spawn(move |cx| {
            let result = session.call(cx, request).map(|reply| octets(&reply));
            *to.result.borrow_mut() = Some(result);
            to.at.set(cx.now());
        });
        outcome
    }

    pub(crate) fn dropped(&self, reason: &Reason) -> u64 {
        self.vmtp.head().drops().of(reason)
    }

    /// Ends what waits, and takes the graph down; nothing may be left.
    pub(crate) fn stop(self) {
        let shepherds = self.cx.shepherds();
        self.inbox.borrow_mut().clear();
        for _ in 0..100 {
            shepherds.interrupt_all();
            self.run();
            if shepherds.stats().suspended == 0 {
                break;
            }
        }
        assert_eq!(shepherds.stats().suspended, 0);
        self.cx.stop();
        drop(self.bottom.take_sent());
        assert_eq!(self.cx.live(), (0, 0), "no message is left");
    }
}

fn body(
    cx: &Rc<TestKernel>,
    bottom: &Bottom,
    inbox: &Rc<RefCell<VecDeque<Work>>>,
) -> Rc<dyn Fn() -> Flow> {
    let (cx, bottom, inbox) = (cx.share(), bottom.clone(), Rc::clone(inbox));
    Rc::new(move || {
        loop {
            let next = inbox.borrow_mut().pop_front();
            match next {
                None => break,
                Some(Work::Task(task)) => task(&cx),
                Some(Work::Frame(from, frame)) => {
                    let peer = match from {
                        0 => None,
                        from => Some(Part::host(Ipv4Addr::from_bits(from))),
                    };
                    let message = cx.pool().copy_from(128, &frame).unwrap();
                    bottom.inject(&cx, peer, message);
                }
            }
            if !cx.shepherds().on_loop() {
                return Flow::Continue;
            }
        }
        cx.run_due();
        let leads = cx.shepherds().on_loop();
        if !leads || cx.shepherds().has_ready() || !inbox.borrow().is_empty() {
            Flow::Continue
        } else {
            Flow::Stop
        }
    })
}

/// End of a call, and its time.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) result: RefCell<Option<Result<Vec<u8>, CallError>>>,
    pub(crate) at: Cell<Time>,
}

impl Outcome {
    pub(crate) fn is_there(&self) -> bool {
        self.result.borrow().is_some()
    }

    pub(crate) fn get(&self) -> Result<Vec<u8>, CallError> {
        self.result.borrow().clone().expect("the call has ended")
    }
}

/// A frame on its way.
pub(crate) struct Frame {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) octets: Vec<u8>,
}

impl Frame {
    pub(crate) fn header(&self) -> Header {
        Header::parse(self.octets.first_chunk::<HEADER_OCTETS>().unwrap())
    }
}

/// Times after which copies of a frame arrive; without any, the frame is lost.
pub(crate) type Fate = Vec<Duration>;

/// At once.
pub(crate) const PASS: Duration = Duration::ZERO;

struct InFlight {
    at: Time,
    number: u64,
    from: usize,
    to: usize,
    octets: Vec<u8>,
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for InFlight {}

/// Hosts, and the frames between them.
pub(crate) struct Net {
    pub(crate) hosts: Vec<Host>,
    pub(crate) now: Time,
    flying: BinaryHeap<InFlight>,
    number: u64,
    /// Every frame sent, oldest first.
    pub(crate) log: Vec<Frame>,
    pub(crate) keeps_log: bool,
}

impl Net {
    pub(crate) fn new(hosts: Vec<Host>) -> Self {
        Self {
            hosts,
            now: Time::ZERO,
            flying: BinaryHeap::new(),
            number: 0,
            log: Vec::new(),
            keeps_log: true,
        }
    }

    fn collect(&mut self, fate: &mut dyn FnMut(&Frame) -> Fate) {
        for from in 0..self.hosts.len() {
            for sent in self.hosts[from].bottom.take_sent() {
                let to: Vec<usize> = match sent.peer {
                    Some(Part::Host(to)) if to.is_group() => {
                        (0..self.hosts.len()).filter(|host| *host != from).collect()
                    }
                    Some(Part::Host(to)) => {
                        self.hosts.iter().position(|h| to == h.address).into_iter().collect()
                    }
                    _ => vec![1 - from],
                };
                let octets = octets(&sent.message);
                for to in to {
                    let frame = Frame { from, to, octets: octets.clone() };
                    for after in fate(&frame) {
                        self.number += 1;
                        let (at, number) = (self.now.after(after), self.number);
                        let octets = frame.octets.clone();
                        self.flying.push(InFlight { at, number, from, to, octets });
                    }
                    if self.keeps_log {
                        self.log.push(frame);
                    }
                }
            }
        }
    }

    /// Lets the next thing happen, not later than `until`; false if there is none.
    pub(crate) fn step(&mut self, until: Time, fate: &mut dyn FnMut(&Frame) -> Fate) -> bool {
        self.collect(fate);
        let timers = self.hosts.iter().filter_map(|h| h.cx.next_expiry()).min();
        let frame = self.flying.peek().map(|f| f.at);
        let Some(at) = timers.into_iter().chain(frame).min().filter(|at| *at <= until) else {
            return false;
        };
        self.now = self.now.max(at);
        for host in &self.hosts {
            host.cx.set_now(self.now);
        }
        if frame.is_some_and(|at| at <= self.now) {
            let frame = self.flying.pop().unwrap();
            let from = self.hosts[frame.from].address.to_bits();
            let host = &self.hosts[frame.to];
            host.inbox.borrow_mut().push_back(Work::Frame(from, frame.octets));
            host.run();
        } else {
            for host in &self.hosts {
                host.run();
            }
        }
        true
    }

    /// Lets happen what happens, until then.
    pub(crate) fn run_until(&mut self, until: Time, fate: &mut dyn FnMut(&Frame) -> Fate) {
        while self.step(until, fate) {}
        self.now = self.now.max(until);
        for host in &self.hosts {
            host.cx.set_now(self.now);
        }
    }

    /// Runs until a call has ended, for two minutes at most.
    pub(crate) fn finish(&mut self, outcome: &Outcome, fate: &mut dyn FnMut(&Frame) -> Fate) {
        let limit = self.now.after(Duration::from_secs(600));
        while !outcome.is_there() && self.step(limit, fate) {}
        assert!(outcome.is_there(), "the call has ended");
    }

    /// As the former, with nothing lost.
    pub(crate) fn done(&mut self, outcome: &Outcome) -> Result<Vec<u8>, CallError> {
        self.finish(outcome, &mut |_| vec![PASS]);
        outcome.get()
    }

    /// Replaces a host by one that has just booted; what is under way to it still arrives.
    pub(crate) fn reboot(&mut self, at: usize, host: Host) {
        host.cx.set_now(self.now);
        let before = core::mem::replace(&mut self.hosts[at], host);
        before.stop();
    }

    /// Lets octets arrive as if another host had sent them.
    pub(crate) fn inject(&mut self, from: usize, to: usize, octets: Vec<u8>) {
        self.number += 1;
        self.flying.push(InFlight { at: self.now, number: self.number, from, to, octets });
    }

    pub(crate) fn stop(self) {
        for host in self.hosts {
            host.stop();
        }
    }
}

/// A lower that looks like Ethernet from above: hosts, 1500 octets.
pub(crate) fn ethernet(own: Ipv4Addr) -> Lower {
    Lower { opt_packet: 1500, ..Lower::host(own, 81) }
}

pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// With the waits of an Ethernet.
pub(crate) fn config() -> Settings {
    Settings { timers: Some(xk_vmtp::NEAR), ..Settings::default() }
}

/// Gives every request back, and counts.
pub(crate) fn echo(count: &Rc<Cell<u32>>) -> Procedure {
    let count = Rc::clone(count);
    Rc::new(move |_, _, request| {
        count.set(count.get() + 1);
        Ok(request)
    })
}

/// Serves nothing.
pub(crate) fn nothing() -> Procedure {
    Rc::new(|_, _, _| Err(&xk_kit::rpc::call::NO_PROCEDURE))
}

/// A client and a server that gives requests back; how often it did.
pub(crate) fn pair() -> (Net, Rc<Cell<u32>>) {
    let count = Rc::default();
    let client = Host::boot(1, ethernet(CLIENT), config(), nothing());
    let server = Host::boot(2, ethernet(SERVER), config(), echo(&count));
    (Net::new(vec![client, server]), count)
}

/// Octets that differ from place to place.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8 ^ seed).collect()
}
