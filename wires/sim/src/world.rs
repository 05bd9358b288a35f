//! The world: hosts on a simulated network, and the time they share.

mod ahead;
mod domains;
pub(crate) mod pause;
mod reboot;

use crate::network::{HostId, Network, label};
use crate::protocol::{HostSeat, SimPort};
use crate::stats::WorldStats;
use core::fmt;
use core::ops::Range;
use core::time::Duration;
use domains::Cut;
use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use xk_core::control::Report;
use xk_core::kernel::{Config, Started};
use xk_core::object::OpenError;
use xk_core::random::Random;
use xk_core::reason::Class;
use xk_core::shepherd::{Flow, Shepherds};
use xk_core::{Kernel, Message, Pool, ProtocolRef, Reason, Time};
use xk_kit::wire::device::DeviceWire;

/// Arrivals that one look at a wire of another kind takes.
const POLL_BUDGET: usize = 64;
/// Events between two looks whether all have finished.
const FINISHED_EVENTS: u64 = 16;
/// After how long without an event that is looked at, too.
const PAUSE: Duration = Duration::from_millis(100);
/// Turns that suspended shepherds get when a host is taken down.
const INTERRUPTS_MAX: usize = 1000;

/// No shepherd could be had to carry the frame.
pub(crate) static NO_SHEPHERDS: Reason = Reason::new("no shepherds", Class::Exhausted);

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time asked for is reached.
    Time,
    /// Nothing is left to happen: no frame in flight, no timer pending.
    Idle,
    /// Every anchor has done what it was asked to do.
    Finished,
    /// As many events as allowed have happened; see [`World::set_events_max`].
    Events,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The time.
    pub now: Time,
    /// Counters so far.
    pub stats: WorldStats,
    /// Frames in flight.
    pub in_flight: usize,
    /// Hosts.
    pub hosts: usize,
}

/// Something to do on a host, on one of its shepherds.
enum Work {
    Frame(Rc<DeviceWire<SimPort>>, Message),
    Task(Box<dyn FnOnce(&Kernel)>),
}

type Inbox = Rc<RefCell<VecDeque<Work>>>;

/// A host. Fields that every frame needs come first, in one line of memory.
#[repr(C, align(64))]
struct Host {
    kernel: Rc<Kernel>,
    /// Time at which the host is woken for its timers; `MAX` for never.
    wake_at: Time,
    /// Nothing can wait on it and it has no wires of other kinds: it needs no loop. False before
    /// its first run.
    is_plain: bool,
    /// Nothing happens on it until it goes on.
    is_paused: bool,
    inbox: Inbox,
    /// Function that the shepherds run.
    body: Rc<dyn Fn() -> Flow>,
    /// The wires that must be looked at: all but those of this crate. Found at the first run.
    wires: Rc<RefCell<Option<Vec<ProtocolRef>>>>,
    name: Rc<str>,
    /// Number of times that it was built again.
    reboots: u32,
    /// The cuts to other kernels of its host.
    cuts: Vec<Cut>,
}

/// Called every so many events.
struct Watcher {
    every: u64,
    call: Box<dyn FnMut(&Progress)>,
}

/// Hosts on a simulated network, in virtual time, on one thread.
///
/// What happens at one time happens in this order: arrivals as they were scheduled, then timers by
/// the number of the host.
pub struct World {
    network: Rc<Network>,
    pool: Pool,
    chance: Random,
    hosts: Vec<Host>,
    now: Time,
    wakes: BinaryHeap<Reverse<(Time, u32)>>,
    stats: WorldStats,
    events_max: u64,
    watcher: Option<Watcher>,
    turned: Option<Box<dyn FnMut(HostId)>>,
    /// Anchors that have not finished; `None` before the first question.
    unfinished: Option<Vec<(usize, ProtocolRef)>>,
    /// The lines of memory that a frame for each host passes; see [`ahead`].
    passed: Vec<ahead::Passed>,
    /// The least number of hosts with which these are fetched ahead.
    pub(crate) ahead_from: usize,
}

impl World {
    /// A world without hosts at time zero. All chance comes from `seed`; all messages from `pool`.
    pub fn new(seed: u64, pool: Pool) -> Self {
        Self {
            network: Network::new(seed, pool.clone()),
            pool,
            chance: Random::new(seed),
            hosts: Vec::new(),
            now: Time::ZERO,
            wakes: BinaryHeap::new(),
            stats: WorldStats::default(),
            events_max: u64::MAX,
            watcher: None,
            turned: None,
            unfinished: None,
            passed: Vec::new(),
            ahead_from: ahead::HOSTS_MIN,
        }
    }

    /// The network, for adding links.
    pub fn network(&self) -> &Rc<Network> {
        &self.network
    }

    /// Configuration of the next kernel of the host `name`: the common pool, and a seed that
    /// depends on the world's, on the name and on how often the host was built before.
    pub fn host_config(&self, name: &str, shepherds: Shepherds, timers_max: usize) -> Config {
        // The next boot of a host has other chance, and another name to its peers, than the one
        // before.
        let boot = self.find(name).and_then(|id| self.hosts.get(id.0 as usize));
        let random = self.chance.fork(label("host", name));
        Config {
            random: match boot {
                Some(host) => random.fork(u64::from(host.reboots) + 1),
                None => random,
            },
            pool: self.pool.clone(),
            shepherds,
            timers_max,
        }
    }

    /// Adds a host and tells its kernel of the network and its place in the world. Its graph may be
    /// built before (if the network was put beside the kernel) or after; it is to be started after.
    pub fn add_host(&mut self, name: &str, kernel: impl Into<Rc<Kernel>>) -> HostId {
        let id = HostId(self.hosts.len() as u32);
        let name: Rc<str> = name.into();
        let host = self.seat(id, name, kernel.into(), 0);
        self.hosts.push(host);
        self.unfinished = None;
        id
    }

    /// A kernel in its place in the world.
    fn seat(&self, id: HostId, name: Rc<str>, kernel: Rc<Kernel>, reboots: u32) -> Host {
        kernel.surround(Rc::clone(&self.network));
        kernel.surround(Rc::new(HostSeat { id, name: Rc::clone(&name) }));
        kernel.set_now(self.now);
        let inbox = Inbox::default();
        let wires = Rc::new(RefCell::new(None));
        let body = body(Rc::clone(&kernel), Rc::clone(&inbox), Rc::clone(&wires));
        let (wake_at, cuts) = (Time::MAX, Vec::new());
        let (is_plain, is_paused) = (false, false);
        Host { kernel, wake_at, is_plain, is_paused, inbox, body, wires, name, reboots, cuts }
    }

    /// Starts the graph of one host, on one of its shepherds. Time passes while a layer below lets
    /// the start wait.
    ///
    /// # Errors
    /// The protocol that could not start, and why.
    pub fn start_host(&mut self, host: HostId) -> Started {
        self.start_all(host.0..host.0.saturating_add(1))
            .map_err(|(_, protocol, error)| (protocol, error))
    }

    /// Starts every host's graph at one time, in the order of adding; a domain once those below it
    /// have started.
    ///
    /// # Errors
    /// The first host and protocol that could not start, and why.
    pub fn start(&mut self) -> Result<(), (HostId, ProtocolRef, OpenError)> {
        self.start_all(0..self.hosts.len() as u32)
    }

    fn start_all(&mut self, hosts: Range<u32>) -> Result<(), (HostId, ProtocolRef, OpenError)> {
        let (mut rest, mut begun): (Vec<HostId>, Vec<_>) =
            (hosts.map(HostId).collect(), Vec::new());
        while !rest.is_empty() {
            let (now, later): (Vec<HostId>, _) =
                rest.iter().copied().partition(|id| !self.stands_on(*id, &rest));
            rest = later;
            for id in now {
                self.look_again(id);
                let ended = Rc::new(OnceCell::new());
                let end = Rc::clone(&ended);
                self.spawn(id, move |kernel| drop(end.set(kernel.start())));
                begun.push((id, ended));
            }
            for (id, ended) in begun.drain(..) {
                while ended.get().is_none() && self.step() {}
                self.look_again(id);
                if let Some(kernel) = self.kernel(id) {
                    kernel.started(&ended).map_err(|(protocol, error)| (id, protocol, error))?;
                }
            }
        }
        Ok(())
    }

    /// The kernel of a host. After calling into it from outside, [`World::enter`] is what makes the
    /// world see new timers at once; every run looks at all hosts when it begins.
    pub fn kernel(&self, host: HostId) -> Option<&Rc<Kernel>> {
        self.hosts.get(host.0 as usize).map(|h| &h.kernel)
    }

    /// The name of a host.
    pub fn name(&self, host: HostId) -> Option<&str> {
        self.hosts.get(host.0 as usize).map(|h| &*h.name)
    }

    /// The host of this name.
    pub fn find(&self, name: &str) -> Option<HostId> {
        self.hosts.iter().position(|h| &*h.name == name).map(|at| HostId(at as u32))
    }

    /// Number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// True if there is no host.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Counters so far.
    pub fn stats(&self) -> WorldStats {
        self.stats
    }

    /// Ends runs after this many events, counted from the world's beginning.
    pub fn set_events_max(&mut self, events: u64) {
        self.events_max = events;
    }

    /// Has `call` told of the progress every so many events.
    pub fn on_progress(&mut self, every_events: u64, call: impl FnMut(&Progress) + 'static) {
        self.watcher = Some(Watcher { every: every_events.max(1), call: Box::new(call) });
    }

    /// Has `call` told of every host that something has just happened on: a frame, a timer, what a
    /// program did there.
    pub fn on_turn(&mut self, call: impl FnMut(HostId) + 'static) {
        self.turned = Some(Box::new(call));
    }

    /// Progress of the run.
    pub fn progress(&self) -> Progress {
        Progress {
            now: self.now,
            stats: self.stats,
            in_flight: self.network.in_flight(),
            hosts: self.hosts.len(),
        }
    }

    /// Does something on a host now, outside of any shepherd: what must wait does not. `None` if
    /// there is no such host.
    pub fn enter<R>(&mut self, host: HostId, what: impl FnOnce(&Kernel) -> R) -> Option<R> {
        let at = host.0 as usize;
        let found = self.hosts.get_mut(at)?;
        let kernel = Rc::clone(&found.kernel);
        kernel.set_now(self.now);
        let result = what(&kernel);
        self.look_again(host);
        self.run_host(at);
        Some(result)
    }

    /// The graph of a host may have grown.
    fn look_again(&mut self, host: HostId) {
        if let Some(found) = self.hosts.get_mut(host.0 as usize) {
            found.is_plain = false;
            found.wires.borrow_mut().take();
        }
    }

    /// Does something on a host now, on one of its shepherds, where it may block. False if there is
    /// no such host.
    pub fn spawn(&mut self, host: HostId, what: impl FnOnce(&Kernel) + 'static) -> bool {
        let at = host.0 as usize;
        let Some(found) = self.hosts.get(at) else {
            return false;
        };
        found.kernel.set_now(self.now);
        found.inbox.borrow_mut().push_back(Work::Task(Box::new(what)));
        self.run_host(at);
        true
    }

    /// Runs up to and including `until`; then it is that time.
    pub fn run_until(&mut self, until: Time) -> Ended {
        let ended = self.run(until, false);
        if matches!(ended, Ended::Time | Ended::Idle) {
            self.now = self.now.max(until);
            return Ended::Time;
        }
        ended
    }

    /// Runs until nothing is left to happen, at most up to `limit`.
    pub fn run_until_idle(&mut self, limit: Time) -> Ended {
        self.run(limit, false)
    }

    /// Runs until every anchor that can be asked for a [`Report`] says that it has finished, at
    /// most up to `limit`.
    pub fn run_until_finished(&mut self, limit: Time) -> Ended {
        self.run(limit, true)
    }

    fn run(&mut self, until: Time, finish: bool) -> Ended {
        for at in 0..self.hosts.len() {
            self.arm(at);
        }
        loop {
            if finish && self.stats.events.is_multiple_of(FINISHED_EVENTS) && self.all_finished() {
                return Ended::Finished;
            }
            if self.stats.events >= self.events_max {
                return Ended::Events;
            }
            match self.next_event() {
                None if finish && self.all_finished() => return Ended::Finished,
                None => return Ended::Idle,
                // Before a pause it is looked as well, so that no shepherd waits for what comes
                // after it.
                Some(at) if finish && at.since(self.now) >= PAUSE && self.all_finished() => {
                    return Ended::Finished;
                }
                Some(at) if at > until => {
                    self.now = self.now.max(until);
                    return Ended::Time;
                }
                Some(_) => self.step(),
            };
        }
    }

    /// Time of the next event.
    pub fn next_event(&mut self) -> Option<Time> {
        let frame = self.network.next();
        let wake = self.next_wake().map(|(at, _)| at);
        match (frame, wake) {
            (Some(frame), Some(wake)) => Some(frame.min(wake)),
            (frame, wake) => frame.or(wake),
        }
    }

    /// The next host to be woken, and when; forgets entries that are out of date.
    fn next_wake(&mut self) -> Option<(Time, u32)> {
        loop {
            let Reverse((at, host)) = *self.wakes.peek()?;
            if self.hosts.get(host as usize).is_some_and(|h| h.wake_at == at) {
                return Some((at, host));
            }
            self.wakes.pop();
        }
    }

    /// Lets time pass up to `until`, or to the next thing that happens if that comes before.
    pub fn pass(&mut self, until: Time) {
        let next = self.next_event().unwrap_or(Time::MAX);
        self.now = self.now.max(until.min(next));
    }

    /// Lets the next thing happen; false if there is nothing.
    pub fn step(&mut self) -> bool {
        let frame = self.network.next();
        let wake = self.next_wake();
        match (frame, wake) {
            (None, None) => return false,
            (Some(at), None) => self.arrive(at),
            (Some(at), Some((wake, _))) if at <= wake => self.arrive(at),
            (_, Some((at, host))) => {
                self.now = self.now.max(at);
                self.wakes.pop();
                self.stats.wakeups += 1;
                let host = host as usize;
                if let Some(found) = self.hosts.get_mut(host) {
                    found.wake_at = Time::MAX;
                    found.kernel.set_now(self.now);
                }
                self.run_host(host);
            }
        }
        self.stats.events += 1;
        if let Some(mut watcher) = self.watcher.take() {
            if self.stats.events.is_multiple_of(watcher.every) {
                (watcher.call)(&self.progress());
            }
            self.watcher = Some(watcher);
        }
        true
    }

    /// Hands an arrived frame to its receivers.
    fn arrive(&mut self, at: Time) {
        self.now = self.now.max(at);
        self.look_ahead();
        let network = Rc::clone(&self.network);
        let Some(mut spreading) = network.arrive() else {
            return;
        };
        while let Some((port, host, message)) = network.spread(&mut spreading) {
            self.stats.frames += 1;
            let at = host.0 as usize;
            let Some(host) = self.hosts.get(at) else {
                continue;
            };
            host.kernel.set_now(self.now);
            if host.is_plain {
                SimPort::arrive(&port, &host.kernel, message);
                host.kernel.run_due();
                self.turned(at);
                continue;
            }
            if host.is_full() {
                port.device().discard(message, &pause::PAUSED_FULL);
                continue;
            }
            let work = Work::Frame(port, message);
            host.inbox.borrow_mut().push_back(work);
            self.run_host(at);
        }
    }

    /// Lets a host's shepherds do what there is, and sees when the host is to be woken next.
    fn run_host(&mut self, at: usize) {
        let Some(host) = self.hosts.get_mut(at).filter(|host| !host.is_paused) else {
            return;
        };
        if host.kernel.shepherds().run(Rc::clone(&host.body)).is_err() {
            // The system gives no stack: what came has no shepherd to carry it.
            for work in host.inbox.borrow_mut().drain(..) {
                if let Work::Frame(port, message) = work {
                    port.device().discard(message, &NO_SHEPHERDS);
                }
            }
            host.kernel.run_due();
        }
        let has_others = host.wires.borrow().as_ref().is_none_or(|w| !w.is_empty());
        host.is_plain = !has_others && !host.kernel.shepherds().may_suspend();
        self.turned(at);
        self.arm_neighbours(at);
    }

    /// A host has had a turn: sees when it is to be woken next.
    fn turned(&mut self, at: usize) {
        if let Some(call) = &mut self.turned {
            call(HostId(at as u32));
        }
        self.arm(at);
    }

    fn arm(&mut self, at: usize) {
        let Some(host) = self.hosts.get_mut(at).filter(|host| !host.is_paused) else {
            return;
        };
        let mut next = host.kernel.next_expiry().unwrap_or(Time::MAX);
        if !host.is_plain && !host.cuts.is_empty() && host.wires.borrow().is_none() {
            // It is to hear of what is sent to it before it has run.
            drop(others(&host.kernel, &host.wires));
        }
        if !host.is_plain
            && let Some(wires) = &*host.wires.borrow()
        {
            for due in wires.iter().filter_map(|w| w.wire()?.next_poll()) {
                next = next.min(due);
            }
        }
        let next = next.max(self.now);
        // A later wake-up than the one that is noted is seen when that one comes.
        if next < host.wake_at {
            host.wake_at = next;
            self.wakes.push(Reverse((next, at as u32)));
        }
    }

    fn all_finished(&mut self) -> bool {
        if self.unfinished.is_none() {
            let hosts = self.hosts.iter().enumerate();
            let all =
                hosts.flat_map(|(at, h)| h.kernel.protocols().into_iter().map(move |p| (at, p)));
            let anchors = all.filter(|(at, p)| self.report(*at, p).is_some()).collect();
            self.unfinished = Some(anchors);
        }
        let mut list = self.unfinished.take().unwrap_or_default();
        while let Some((at, anchor)) = list.last() {
            if self.report(*at, anchor).is_some_and(|report| !report.finished) {
                break;
            }
            list.pop();
        }
        let finished = list.is_empty();
        self.unfinished = Some(list);
        finished
    }

    fn report(&self, at: usize, anchor: &ProtocolRef) -> Option<Report> {
        if anchor.is_proxy() {
            return None;
        }
        anchor.ask(&self.hosts.get(at)?.kernel, Report::default())
    }

    /// Takes every host down: what waits is interrupted, then every graph is stopped.
    pub fn stop(&mut self) {
        for host in &self.hosts {
            take_down(host);
        }
        self.unfinished = None;
    }
}

/// Interrupts shepherds that wait, then stops the graph.
fn take_down(host: &Host) {
    let shepherds = host.kernel.shepherds();
    for _ in 0..INTERRUPTS_MAX {
        if shepherds.stats().suspended == 0 {
            break;
        }
        shepherds.interrupt_all();
        if shepherds.run(Rc::clone(&host.body)).is_err() {
            break;
        }
    }
    host.wires.borrow_mut().take();
    host.kernel.stop();
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("World").field(&self.progress()).finish()
    }
}

/// One turn of a host's loop: the arrivals, the timers that are due, the wires of other kinds.
fn body(
    kernel: Rc<Kernel>,
    inbox: Inbox,
    wires: Rc<RefCell<Option<Vec<ProtocolRef>>>>,
) -> Rc<dyn Fn() -> Flow> {
    Rc::new(move || {
        let shepherds = kernel.shepherds();
        // A shepherd that blocked on the way no longer leads the loop and leaves; without switching
        // none ever blocks.
        let leads = || shepherds.current().is_none() || shepherds.on_loop();
        loop {
            let next = inbox.borrow_mut().pop_front();
            let Some(work) = next else { break };
            match work {
                Work::Frame(port, message) => SimPort::arrive(&port, &kernel, message),
                Work::Task(task) => task(&kernel),
            }
            if !leads() {
                return Flow::Continue;
            }
        }
        kernel.run_due();
        if !leads() {
            return Flow::Continue;
        }
        for wire in others(&kernel, &wires) {
            let Some(end) = wire.wire() else { continue };
            if end.next_poll().is_some_and(|at| at <= kernel.now()) {
                end.poll(&kernel, &wire, POLL_BUDGET);
            }
            if !leads() {
                return Flow::Continue;
            }
            end.flush(&kernel, &wire);
        }
        if shepherds.has_ready() { Flow::Continue } else { Flow::Stop }
    })
}

/// The wires that are not of this crate. Most hosts have none, and then this allocates nothing.
fn others(kernel: &Kernel, wires: &RefCell<Option<Vec<ProtocolRef>>>) -> Vec<ProtocolRef> {
    if let Some(found) = &*wires.borrow() {
        return found.clone();
    }
    let other = |p: &ProtocolRef| p.wire().is_some() && p.head().kind() != crate::ENTRY.kind;
    let found: Vec<_> = kernel.protocols().into_iter().filter(other).collect();
    *wires.borrow_mut() = Some(found.clone());
    found
}
