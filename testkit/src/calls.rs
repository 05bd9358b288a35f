//! Hosts with a layer of calls each between a wire that the test rules and an application, in
//! virtual time.
//!
//! [`Host::boot`] makes a host, [`Net`] carries its frames, and [`model`] runs hosts that crash on
//! a bad network against the law that a call is executed once at most.

pub mod model;

use crate::kernel::{Addressing, Bottom, Lower, TestKernel, octets};
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use xk_core::graph::Entry;
use xk_core::object::{CallError, OpenError, Refused};
use xk_core::shepherd::Flow;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Time, Upper,
};
use xk_kit::rpc::call::{MyProcedure, PROCEDURE};
use xk_run::switch::CoroutineSwitch;

/// A procedure, which gets its number and the request.
pub type Procedure = Rc<dyn Fn(&Kernel, u32, Message) -> Result<Message, &'static Reason>>;

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
pub struct Host {
    /// The kernel.
    pub cx: Rc<TestKernel>,
    /// The wire.
    pub bottom: Bottom,
    /// The layer of calls.
    pub layer: ProtocolRef,
    /// The application above it.
    pub app: ProtocolRef,
    /// The host's address; unspecified where the wire knows none.
    pub address: Ipv4Addr,
    inbox: Rc<RefCell<VecDeque<Work>>>,
    body: Rc<dyn Fn() -> Flow>,
}

impl Host {
    /// Boots a host; its boot id follows from the seed. `add` puts the layer on the wire.
    ///
    /// # Panics
    /// If the host does not start.
    pub fn boot(
        seed: u64,
        lower: Lower,
        entry: &Entry,
        add: impl FnOnce(&Kernel, ProtocolRef) -> ProtocolRef,
        procedure: Procedure,
    ) -> Self {
        let cx = Rc::new(TestKernel::with_switch(seed, Box::new(CoroutineSwitch::new())));
        for number in entry.type_numbers() {
            cx.numbers_mut().add(number).unwrap();
        }
        let address = match lower.addressing {
            Addressing::Host(own) => own.to_v4().expect("of IPv4"),
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let bottom = Bottom::add(&cx, "bottom", lower);
        let layer = add(&cx, bottom.protocol().clone());
        let app = App { lower: layer.clone(), procedure: RefCell::new(procedure) };
        let app = cx.add_protocol("app", "app", app);
        cx.start().unwrap();
        let inbox: Rc<RefCell<VecDeque<Work>>> = Rc::default();
        let body = body(&cx, &bottom, &inbox);
        Self { cx, bottom, layer, app, address, inbox, body }
    }

    fn run(&self) {
        self.cx.shepherds().run(Rc::clone(&self.body)).unwrap();
    }

    /// Has something done on a shepherd of its own.
    pub fn spawn(&self, task: impl FnOnce(&Kernel) + 'static) {
        self.inbox.borrow_mut().push_back(Work::Task(Box::new(task)));
        self.run();
    }

    /// Opens a procedure of another host.
    pub fn open(&self, procedure: u32, server: Ipv4Addr) -> SessionRef {
        let peer = match server.is_unspecified() {
            true => Participant::new(),
            false => Participant::of(Part::host(server)),
        };
        let peer = peer.with(Part::Number(PROCEDURE, procedure.into()));
        let both = Participants::pair(Participant::new(), peer);
        self.layer.open(&self.cx, Upper::new(&self.app), both).unwrap()
    }

    /// Calls; the outcome is there when the call has ended.
    pub fn call(&self, session: &SessionRef, request: &[u8]) -> Rc<Outcome> {
        self.call_with(session, self.cx.message(request))
    }

    /// Calls with a message.
    pub fn call_with(&self, session: &SessionRef, request: Message) -> Rc<Outcome> {
        let outcome: Rc<Outcome> = Rc::default();
        let (to, session) = (Rc::clone(&outcome), session.clone());
        self.spawn(move |cx| {
            let result = session.call(cx, request).map(|reply| octets(&reply));
            *to.result.borrow_mut() = Some(result);
            to.at.set(cx.now());
        });
        outcome
    }

    /// Returns the drops of the layer for this reason.
    pub fn dropped(&self, reason: &Reason) -> u64 {
        self.layer.head().drops().of(reason)
    }

    /// Ends what waits, and takes the graph down; nothing may be left.
    pub fn stop(self) {
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
pub struct Outcome {
    /// Reply or error, once the call has ended.
    pub result: RefCell<Option<Result<Vec<u8>, CallError>>>,
    /// Time of the end.
    pub at: Cell<Time>,
}

impl Outcome {
    /// Says whether the call has ended.
    pub fn is_there(&self) -> bool {
        self.result.borrow().is_some()
    }

    /// Returns reply or error.
    ///
    /// # Panics
    /// If the call has not ended.
    pub fn get(&self) -> Result<Vec<u8>, CallError> {
        self.result.borrow().clone().expect("the call has ended")
    }
}

/// A frame on its way.
pub struct Frame {
    /// Place of the sender among the hosts.
    pub from: usize,
    /// Place of the receiver.
    pub to: usize,
    /// Octets of the frame.
    pub octets: Vec<u8>,
}

/// Times after which copies of a frame arrive; without any, the frame is lost.
pub type Fate = Vec<Duration>;

/// At once.
pub const PASS: Duration = Duration::ZERO;

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
pub struct Net {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// Virtual time.
    pub now: Time,
    flying: BinaryHeap<InFlight>,
    number: u64,
    /// Every frame sent, oldest first.
    pub log: Vec<Frame>,
    /// Whether frames are kept in `log`.
    pub keeps_log: bool,
}

impl Net {
    /// Joins hosts by a network without frames.
    pub fn new(hosts: Vec<Host>) -> Self {
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
    pub fn step(&mut self, until: Time, fate: &mut dyn FnMut(&Frame) -> Fate) -> bool {
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
    pub fn run_until(&mut self, until: Time, fate: &mut dyn FnMut(&Frame) -> Fate) {
        while self.step(until, fate) {}
        self.now = self.now.max(until);
        for host in &self.hosts {
            host.cx.set_now(self.now);
        }
    }

    /// Runs until a call has ended, for ten minutes at most.
    pub fn finish(&mut self, outcome: &Outcome, fate: &mut dyn FnMut(&Frame) -> Fate) {
        let limit = self.now.after(Duration::from_secs(600));
        while !outcome.is_there() && self.step(limit, fate) {}
        assert!(outcome.is_there(), "the call has ended");
    }

    /// As the former, with nothing lost.
    pub fn done(&mut self, outcome: &Outcome) -> Result<Vec<u8>, CallError> {
        self.finish(outcome, &mut |_| vec![PASS]);
        outcome.get()
    }

    /// Replaces a host by one that has just booted; what is under way to it still arrives.
    pub fn reboot(&mut self, at: usize, host: Host) {
        host.cx.set_now(self.now);
        let before = core::mem::replace(&mut self.hosts[at], host);
        before.stop();
    }

    /// Lets octets arrive as if another host had sent them.
    pub fn inject(&mut self, from: usize, to: usize, octets: Vec<u8>) {
        self.number += 1;
        self.flying.push(InFlight { at: self.now, number: self.number, from, to, octets });
    }

    /// Stops all hosts; none keeps a message.
    pub fn stop(self) {
        for host in self.hosts {
            host.stop();
        }
    }
}

/// Address of the host that calls.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Address of the host that serves.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Gives every request back, and counts.
pub fn echo(count: &Rc<Cell<u32>>) -> Procedure {
    let count = Rc::clone(count);
    Rc::new(move |_, _, request| {
        count.set(count.get() + 1);
        Ok(request)
    })
}

/// Serves nothing.
pub fn nothing() -> Procedure {
    Rc::new(|_, _, _| Err(&xk_kit::rpc::call::NO_PROCEDURE))
}
