//! The poll loop of a real host.
//!
//! One turn: look at the clock, take what the wires have, let due timers go off, send what was
//! queued. While messages come the loop turns without a pause; when none come it spins for a
//! bounded time that adapts to how soon the next one came after earlier pauses, lets others have
//! the processor meanwhile, and then sleeps in epoll. To wake a process on another core takes up to
//! some 80 microseconds, a turn well under one: the bound is above that, so that a loop is still
//! awake when what it has woken answers.

use crate::clock::HostClock;
use crate::epoll::Epoll;
use crate::interrupt_unsafe;
use crate::memfd_unsafe::{MemfdArena, Peers};
use crate::spin::Spin;
use crate::switch::CoroutineSwitch;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use xk_core::kernel::{Config, Started};
use xk_core::message::{PoolConfig, PoolError};
use xk_core::random::Random;
use xk_core::shepherd::{Flow, Limits, RunError, Shepherds};
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Pool, ProtocolRef, Time};

/// Behaviour of the loop when no message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Spin for at most this long since the last message, adapting below it, then sleep.
    Adaptive {
        /// The bound of the spinning.
        spin_max: Duration,
    },
    /// Never sleep: the lowest latency for a whole core.
    Spin,
    /// Sleep at once.
    Sleep,
}

impl Default for Idle {
    fn default() -> Self {
        Idle::Adaptive { spin_max: Duration::from_micros(100) }
    }
}

/// Counters of a runner.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunnerStats {
    /// Turns of the loop.
    pub turns: u64,
    /// Arrivals taken from wires.
    pub arrivals: u64,
    /// Timers that went off.
    pub timers: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Times it let others have the processor while it spun.
    pub yields: u64,
}

/// Arrivals taken from one wire in a turn.
const BUDGET: usize = 64;
/// Looks at the wires between two looks at the clock, while nothing comes: reading the clock takes
/// as long as several looks.
const LOOKS: usize = 8;
/// Longest sleep, so that a missed wake-up cannot hang the loop.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Times that shepherds which wait at the end are interrupted: one that waits even then is left
/// alone.
const INTERRUPTS_MAX: usize = 16;
/// Number of the descriptors that wires bring and take away; their events all mean "look again".
const SIGNAL: u64 = WATCHED - 1;
/// Numbers of descriptors that are no wires begin here.
const WATCHED: u64 = 1 << 32;

type Watcher = (OwnedFd, Rc<dyn Fn(&Kernel)>);

/// Runs one kernel in real time on the calling thread.
pub struct Runner {
    inner: Rc<Inner>,
}

struct Inner {
    kernel: Rc<Kernel>,
    clock: HostClock,
    idle: Idle,
    epoll: Epoll,
    wires: Vec<(ProtocolRef, Cell<bool>)>,
    watched: RefCell<Vec<Option<Watcher>>>,
    spin: Spin,
    busy_last: Cell<Time>,
    slept: Cell<bool>,
    /// Looks of the next turn at the wires if nothing comes.
    looks: Cell<usize>,
    stats: Cell<RunnerStats>,
    stop_at: Cell<Time>,
    stop: Cell<bool>,
}

/// A generator with a key of 256 bits from the operating system's random source, which waits until
/// that has been filled (getrandom(2)).
fn host_random() -> io::Result<Random> {
    let mut key = [0; 32];
    let mut filled = 0;
    while filled < key.len() {
        let rest = &mut key[filled..];
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Random::from_key(key))
}

/// A kernel for real time: coroutine shepherds, a heap pool of `pool_octets_max`, secrets and
/// chance from the operating system's random source.
///
/// # Errors
/// If the pool cannot be made, or there is no random source.
pub fn real_kernel(pool_octets_max: usize) -> io::Result<Kernel> {
    kernel_of(Pool::new(&PoolConfig::with_octets_max(pool_octets_max)))
}

/// A kernel for real time whose pool lies in a file in memory, and the file, which neighbours map
/// to read what they are lent.
///
/// # Errors
/// As for [`real_kernel`].
pub fn lending_kernel(pool_octets_max: usize) -> io::Result<(Kernel, OwnedFd)> {
    let config = PoolConfig::with_octets_max(pool_octets_max);
    let arena = MemfdArena::create("xk-pool", config.octets_max, Peers::Read)?;
    let file = arena.as_fd().try_clone_to_owned()?;
    Ok((kernel_of(Pool::with_arena(Box::new(arena), &config))?, file))
}

fn kernel_of(pool: Result<Pool, PoolError>) -> io::Result<Kernel> {
    let pool = pool.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(Kernel::new(Config {
        random: host_random()?,
        pool,
        shepherds: Shepherds::new(Box::new(CoroutineSwitch::new()), Limits::default()),
        timers_max: 1 << 20,
    }))
}

impl Runner {
    /// A runner for a kernel whose graph is built, or has been started.
    ///
    /// # Errors
    /// If the operating system gives no epoll set, or a wire's descriptor cannot be slept on.
    pub fn new(kernel: Rc<Kernel>, idle: Idle) -> io::Result<Self> {
        Self::with_clock(kernel, idle, HostClock::start())
    }

    /// A runner with a clock that others share.
    ///
    /// # Errors
    /// As for [`Runner::new`].
    pub fn with_clock(kernel: Rc<Kernel>, idle: Idle, clock: HostClock) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let wires: Vec<_> = kernel.protocols().into_iter().filter(|p| p.wire().is_some()).collect();
        for (number, wire) in wires.iter().enumerate() {
            let mut added = Ok(());
            if let Some(wire) = wire.wire() {
                wire.descriptor(&mut |fd| {
                    if let Some(fd) = owned(fd) {
                        added = epoll.add(fd, number as u64);
                    }
                });
            }
            added?;
        }
        let spin_max = match idle {
            Idle::Adaptive { spin_max } => spin_max,
            Idle::Spin | Idle::Sleep => Duration::ZERO,
        };
        let inner = Inner {
            kernel,
            clock,
            idle,
            epoll,
            wires: wires.into_iter().map(|w| (w, Cell::new(false))).collect(),
            watched: RefCell::default(),
            spin: Spin::new(spin_max),
            busy_last: Cell::new(Time::ZERO),
            slept: Cell::new(false),
            looks: Cell::new(1),
            stats: Cell::default(),
            stop_at: Cell::new(Time::MAX),
            stop: Cell::new(false),
        };
        Ok(Self { inner: Rc::new(inner) })
    }

    /// The kernel.
    pub fn kernel(&self) -> &Rc<Kernel> {
        &self.inner.kernel
    }

    /// The clock.
    pub fn clock(&self) -> HostClock {
        self.inner.clock
    }

    /// Counters of the runner.
    pub fn stats(&self) -> RunnerStats {
        self.inner.stats.get()
    }

    /// Calls `ready` from the loop whenever `fd` is readable. Answers a number for
    /// [`Runner::unwatch`].
    ///
    /// # Errors
    /// If the descriptor cannot be slept on.
    pub fn watch(&self, fd: OwnedFd, ready: Rc<dyn Fn(&Kernel)>) -> io::Result<usize> {
        let mut watched = self.inner.watched.borrow_mut();
        let free = watched.iter().position(Option::is_none);
        let number = free.unwrap_or(watched.len());
        self.inner.epoll.add(fd.as_fd(), WATCHED + number as u64)?;
        match watched.get_mut(number) {
            Some(place) => *place = Some((fd, ready)),
            None => watched.push(Some((fd, ready))),
        }
        Ok(number)
    }

    /// Stops watching.
    pub fn unwatch(&self, number: usize) {
        // Out of the borrow: what is dropped may watch or unwatch in its turn.
        let place = self.inner.watched.borrow_mut().get_mut(number).and_then(Option::take);
        if let Some((fd, ready)) = place {
            self.inner.epoll.remove(fd.as_fd());
            drop((fd, ready));
        }
    }

    /// Ends [`Runner::run`] after the current turn.
    pub fn stop(&self) {
        self.inner.stop.set(true);
    }

    /// One turn without sleeping, for embedding in another loop. True if there was something to do.
    pub fn turn(&self) -> bool {
        self.inner.turn()
    }

    /// Sends what was pushed between two turns, without waiting for the next one.
    pub fn flush(&self) {
        self.inner.flush();
    }

    /// Starts the kernel's graph on a shepherd of the loop, which turns while a layer below lets
    /// the start wait.
    ///
    /// # Errors
    /// The protocol that could not start, and why.
    pub fn start(&self) -> Started {
        self.start_those(|_| true)
    }

    /// Starts those of the kernel's protocols that are meant, bottom-up, as [`start`](Self::start)
    /// does all.
    ///
    /// # Errors
    /// The protocol that could not start, and why.
    pub fn start_those(&self, is_meant: impl Fn(&ProtocolRef) -> bool + 'static) -> Started {
        let ended = Rc::new(OnceCell::new());
        let (inner, end, begun) = (Rc::clone(&self.inner), Rc::clone(&ended), Cell::new(false));
        let body = move || {
            if begun.replace(true) {
                return inner.turn_and_rest(&|_| false);
            }
            inner.kernel.set_now(inner.clock.now());
            let kernel = &inner.kernel;
            let mut all = kernel.protocols().into_iter().filter(|protocol| is_meant(protocol));
            let _ = end.set(all.try_for_each(|protocol| {
                protocol.start(kernel).map_err(|error| (protocol.clone(), error))
            }));
            Flow::Stop
        };
        // Without a shepherd it has not ended.
        let _ = self.lead(None, Rc::new(body));
        self.interrupt(|| ended.get().is_some());
        self.inner.kernel.started(&ended)
    }

    /// Turns until `finished` says so, `limit` is over, [`Runner::stop`] is called or a signal asks
    /// for the end.
    ///
    /// # Errors
    /// If no shepherd can be made.
    pub fn run(
        &self,
        limit: Option<Duration>,
        finished: Rc<dyn Fn(&Kernel) -> bool>,
    ) -> io::Result<()> {
        let body = Rc::clone(&self.inner);
        let body = Rc::new(move || body.turn_and_rest(&*finished));
        self.lead(limit, body).map_err(|error| io::Error::other(format!("{error:?}")))
    }

    /// Leads the loop with this body.
    fn lead(&self, limit: Option<Duration>, body: Rc<dyn Fn() -> Flow>) -> Result<(), RunError> {
        let inner = &self.inner;
        let now = inner.clock.now();
        inner.stop_at.set(limit.map_or(Time::MAX, |l| now.after(l)));
        inner.stop.set(false);
        inner.busy_last.set(now);
        inner.kernel.shepherds().run(body)
    }

    /// Ends the waits of suspended shepherds with an error until it is `done`, or none is left.
    /// Some wait again, or are ready without an interrupt.
    fn interrupt(&self, done: impl Fn() -> bool) {
        let shepherds = self.inner.kernel.shepherds();
        for _ in 0..INTERRUPTS_MAX {
            if done() || shepherds.stats().suspended == 0 {
                return;
            }
            shepherds.interrupt_all();
            if shepherds.run(Rc::new(|| Flow::Stop)).is_err() {
                return;
            }
        }
    }
}

/// The descriptor that a wire shows.
fn owned(fd: &dyn Any) -> Option<BorrowedFd<'_>> {
    fd.downcast_ref::<OwnedFd>().map(AsFd::as_fd)
}

impl Sleeper for Epoll {
    fn add(&self, fd: &dyn Any) -> bool {
        owned(fd).is_some_and(|fd| self.add_edge(fd, SIGNAL).is_ok())
    }

    fn remove(&self, fd: &dyn Any) {
        if let Some(fd) = owned(fd) {
            Epoll::remove(self, fd);
        }
    }

    fn until_readable(&self, fd: &dyn Any) {
        if let Some(fd) = fd.downcast_ref::<Rc<OwnedFd>>() {
            self.polled.borrow_mut().push(Rc::clone(fd));
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // So that their stacks are given back.
        self.interrupt(|| false);
    }
}

impl Inner {
    fn turn(&self) -> bool {
        let kernel = &*self.kernel;
        let now = self.clock.now();
        kernel.set_now(now);
        let mut arrivals = self.poll();
        // Nothing can be due between looks so close to each other that would not be due a moment
        // later.
        for _ in 1..self.looks.get() {
            if arrivals > 0 || kernel.must_leave() {
                break;
            }
            std::hint::spin_loop();
            arrivals = self.poll();
        }
        let timers = kernel.run_due();
        self.flush();
        let mut stats = self.stats.get();
        stats.turns += 1;
        stats.arrivals += arrivals as u64;
        stats.timers += timers as u64;
        self.stats.set(stats);
        if arrivals > 0 {
            self.note_arrival(now);
        }
        arrivals + timers > 0
    }

    /// Sends what the wires have queued.
    fn flush(&self) {
        for (number, (protocol, wants)) in self.wires.iter().enumerate() {
            let Some(wire) = protocol.wire() else {
                continue;
            };
            wire.flush(&self.kernel, protocol);
            let wanted = wire.wants_writable();
            if wanted != wants.replace(wanted) {
                wire.descriptor(&mut |fd| {
                    if let Some(fd) = owned(fd) {
                        // If it fails the next sleep is short all the same: `SLEEP_MAX`.
                        let _ = self.epoll.want_writable(fd, number as u64, wanted);
                    }
                });
            }
        }
    }

    /// One look at each wire. Answers how many arrivals there were.
    fn poll(&self) -> usize {
        let mut arrivals = 0;
        for (protocol, _) in &self.wires {
            if let Some(wire) = protocol.wire() {
                arrivals += wire.poll(&self.kernel, protocol, BUDGET);
            }
            if self.kernel.must_leave() {
                break;
            }
        }
        arrivals
    }

    fn note_arrival(&self, now: Time) {
        if self.slept.replace(false) {
            self.spin.slept(now.since(self.busy_last.get()));
        }
        self.busy_last.set(now);
    }

    fn turn_and_rest(&self, finished: &dyn Fn(&Kernel) -> bool) -> Flow {
        let busy = self.turn();
        if self.kernel.must_leave() {
            return Flow::Continue;
        }
        // The turn began with a look at the clock, a moment ago unless it was a busy one.
        let now = if busy { self.clock.now() } else { self.kernel.now() };
        if finished(&self.kernel)
            || self.stop.get()
            || now >= self.stop_at.get()
            || interrupt_unsafe::is_requested()
        {
            return Flow::Stop;
        }
        let resting = !busy && !self.kernel.shepherds().has_ready();
        let spins = resting && self.may_spin(now);
        self.looks.set(if spins { LOOKS } else { 1 });
        if resting && !spins {
            self.sleep(now);
        } else if self.stats.get().turns.is_multiple_of(64) && !self.watched.borrow().is_empty() {
            // Others are looked after now and then while messages keep coming.
            self.report(Some(Duration::ZERO));
        } else if resting {
            self.spin_once(now);
        }
        // A watcher that has stopped it wants no more arrivals taken.
        if self.stop.get() { Flow::Stop } else { Flow::Continue }
    }

    /// Whether to look again rather than to sleep.
    fn may_spin(&self, now: Time) -> bool {
        let may = |(wire, _): &(ProtocolRef, Cell<bool>)| wire.wire().is_none_or(|w| w.may_spin());
        match self.idle {
            Idle::Spin => true,
            Idle::Sleep => false,
            Idle::Adaptive { .. } => {
                let idle = now.since(self.busy_last.get());
                self.spin.goes_on(now, idle) && self.wires.iter().all(may)
            }
        }
    }

    /// Between two looks that found nothing.
    fn spin_once(&self, now: Time) {
        let yields = self.idle != Idle::Spin && self.spin.yields(now.since(self.busy_last.get()));
        if !yields {
            return std::hint::spin_loop();
        }
        let begun = self.clock.now();
        std::thread::yield_now();
        let ended = self.clock.now();
        self.spin.yielded(ended, ended.since(begun));
        let mut stats = self.stats.get();
        stats.yields += 1;
        self.stats.set(stats);
    }

    fn sleep(&self, now: Time) {
        let mut rests = true;
        for (protocol, _) in &self.wires {
            if let Some(wire) = protocol.wire() {
                rests &= wire.rest(&self.kernel, protocol, &self.epoll);
            }
        }
        if rests {
            self.sleep_until_signalled(now);
        }
        // What was not polled after all is not kept open.
        self.epoll.polled.borrow_mut().clear();
        for (protocol, _) in &self.wires {
            if let Some(wire) = protocol.wire() {
                wire.woken(&self.kernel, protocol);
            }
        }
    }

    fn sleep_until_signalled(&self, now: Time) {
        let next_poll =
            self.wires.iter().filter_map(|(p, _)| p.wire().and_then(|w| w.next_poll())).min();
        let until = [self.kernel.next_expiry(), next_poll, Some(self.stop_at.get())];
        let until = until.into_iter().flatten().min().unwrap_or(Time::MAX);
        let timeout = until.since(now).min(SLEEP_MAX);
        let mut stats = self.stats.get();
        stats.sleeps += 1;
        self.stats.set(stats);
        self.slept.set(true);
        if !self.sleeps_on_its_wire(timeout) {
            self.report(Some(timeout));
        }
    }

    /// Leaves the sleep to the only wire, if there is nothing else to sleep on and it can.
    fn sleeps_on_its_wire(&self, timeout: Duration) -> bool {
        let [(only, _)] = &*self.wires else {
            return false;
        };
        self.watched.borrow().iter().all(Option::is_none)
            && only.wire().is_some_and(|wire| wire.sleep(&self.kernel, only, timeout))
    }

    /// Sleeps for at most `timeout` and calls the watchers whose descriptors report.
    fn report(&self, timeout: Option<Duration>) {
        let mut ready = Vec::new();
        self.epoll.wait(timeout, |number| {
            if let Some(at) = number.checked_sub(WATCHED) {
                ready.push(at as usize);
            }
        });
        for at in ready {
            let watcher = match self.watched.borrow().get(at) {
                Some(Some((_, watcher))) => Rc::clone(watcher),
                _ => continue,
            };
            watcher(&self.kernel);
        }
    }
}
