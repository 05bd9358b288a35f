//! The kernel: one running graph, and everything that its objects are handed.

use crate::control::Losses;
use crate::event::{self, Wheel};
use crate::message::{Message, Pool};
use crate::nodes::{Node, Protocols};
use crate::numbers::Numbers;
use crate::object::{
    OpenError, Opening, Payer, Protocol, ProtocolId, ProtocolRef, Session, SessionId, SessionRef,
    Slots,
};
use crate::random::Random;
use crate::reason::Reason;
use crate::secret::{Secret, Secrets};
use crate::shepherd::{Semaphore, Shepherds, Ticket, WaitError};
use crate::time::Time;
use crate::trace::{Crossing, Observer, Operation};
use crate::waits::{Rang, Waits};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::{Any, TypeId};
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;

/// Configuration of a kernel.
pub struct Config {
    /// All secrets and all chance come from this: from the operating system's random source in a
    /// real kernel, from the seed in a simulation.
    pub random: Random,
    /// Pool of messages; kernels of one thread may share it.
    pub pool: Pool,
    /// The shepherds that carry messages.
    pub shepherds: Shepherds,
    /// Largest number of pending timers.
    pub timers_max: usize,
}

/// Labels of the kernel's two generators.
const SECRETS: u64 = 0;
const DRAWS: u64 = 1;

/// Bounds how many timers one [`Kernel::run_due`] fires beyond those that were pending when it
/// began.
const CHAIN_MAX: usize = 1024;
/// Interval between two notices to protocols of an exhausted pool.
const RELIEF_APART: Duration = Duration::from_millis(10);

/// Whether all protocols have started, or the one that could not, and why.
pub type Started = Result<(), (ProtocolRef, OpenError)>;

/// The object that is told when a timer goes off.
enum Alarm {
    Session(SessionRef, u64),
    Protocol(ProtocolRef, u64),
    /// Timer of the shepherd in this place.
    Wait(u32),
}

/// A pending timer; see [`Kernel::schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(event::Handle);

/// Result of cancelling a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The timer was pending and will not go off.
    Cancelled,
    /// The timer is going off right now.
    Running,
    /// The timer has gone off, or was cancelled before.
    Finished,
}

/// One running graph, single-threaded; nothing to do with the operating system's kernel.
// What every message needs comes first, in one line of memory: among thousands of kernels each line
// is a miss.
#[repr(C)]
pub struct Kernel {
    /// Not 0 while an observer looks on.
    gate: Cell<u8>,
    session_last: Cell<u64>,
    /// See [`payer`](Self::payer).
    pub(crate) payer: Cell<Option<Payer>>,
    now: Cell<Time>,
    /// No timer is due before this; [`Time::ZERO`] if that is not known. Saves the way into the
    /// wheel, which a message alone never needs.
    quiet_until: Cell<Time>,
    /// Refusals of the pool that the protocols were told of, and the time from which they are told
    /// again.
    relief: Cell<(u64, Time)>,
    pool: Pool,
    shepherds: Shepherds,
    wheel: RefCell<Wheel<Alarm>>,
    waits: Waits,
    pub(crate) losses: Losses,
    protocols: RefCell<Protocols>,
    numbers: RefCell<Numbers>,
    observer: RefCell<Option<Rc<dyn Observer>>>,
    /// The burst that the loop's shepherd carries up.
    burst: RefCell<Option<Rc<Slots>>>,
    /// Sessions of which the protocols above are being told.
    openings: RefCell<Vec<(SessionId, Rc<Opening>)>>,
    surroundings: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
    random: Random,
    /// Puts out secrets and nothing else.
    secrets: Secrets,
    boot_id: u32,
}

impl Kernel {
    /// A kernel with no protocols yet, at time zero.
    pub fn new(config: Config) -> Self {
        let random = config.random.fork(DRAWS);
        let boot_id = random.next_u32().max(1);
        Self {
            gate: Cell::new(0),
            session_last: Cell::new(0),
            payer: Cell::new(None),
            now: Cell::new(Time::ZERO),
            quiet_until: Cell::new(Time::ZERO),
            relief: Cell::default(),
            pool: config.pool,
            shepherds: config.shepherds,
            wheel: RefCell::new(Wheel::new(config.timers_max)),
            waits: Waits::default(),
            losses: Losses::default(),
            protocols: RefCell::default(),
            numbers: RefCell::default(),
            observer: RefCell::default(),
            burst: RefCell::default(),
            openings: RefCell::default(),
            surroundings: RefCell::default(),
            random,
            secrets: Secrets::new(&config.random.fork(SECRETS)),
            boot_id,
        }
    }

    // ---- what objects use ----

    /// The time, as of when the executor last looked at its clock.
    #[inline]
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Random numbers that may be shown to anyone: a cipher makes them, apart from the secrets.
    pub fn random(&self) -> &Random {
        &self.random
    }

    /// The pool from which messages come.
    #[inline]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A new secret: a key for one purpose that is not known outside, and that no other tells
    /// anything of.
    ///
    /// A number that others see must not be one that they can predict: not from what they were
    /// shown before, and not from what another peer is shown. It is either drawn from
    /// [`Kernel::random`], or the hash under a secret of what it is to depend on.
    pub fn secret(&self) -> Secret {
        self.secrets.draw()
    }

    /// Names this boot to peers, which tell by it that what they knew of us is gone. Never 0, which
    /// stands for a boot not known.
    pub fn boot_id(&self) -> u32 {
        self.boot_id
    }

    /// Makes a session of the protocol `this` that was opened from above; it has one holder.
    pub fn new_session<S: Session + 'static>(
        &self,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        body: S,
    ) -> SessionRef {
        self.make_session(this, upper, 1, 0, body)
    }

    /// Makes a session of the protocol `this` because a message arrived; it has no holder yet.
    /// `source` is that of the session which the message came by, or of the peer where the layer's
    /// own addresses name it ([`SessionHead::source`](crate::object::SessionHead::source)).
    pub fn new_passive_session<S: Session + 'static>(
        &self,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        source: u64,
        body: S,
    ) -> SessionRef {
        self.make_session(this, upper, 0, source, body)
    }

    fn make_session<S: Session + 'static>(
        &self,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        opens: u32,
        source: u64,
        body: S,
    ) -> SessionRef {
        let id = self.session_last.get() + 1;
        self.session_last.set(id);
        // What a message makes is its receiver's, whatever brought that about.
        let payer = upper.head().payer().or(if opens > 0 { self.payer.get() } else { None });
        SessionRef::new(SessionId(id), this.id(), upper.id(), payer, (opens, source), body)
    }

    /// Sets a timer for a session: its `timeout` gets `token` after `delay`, unless it is closed by
    /// then.
    ///
    /// # Errors
    /// [`OpenError::Full`] if the bound on timers is reached.
    pub fn schedule(
        &self,
        session: &SessionRef,
        delay: Duration,
        token: u64,
    ) -> Result<Timer, OpenError> {
        self.arm(delay, Alarm::Session(session.clone(), token))
    }

    /// Sets a timer for a protocol: its `timeout` gets `token` after `delay`.
    ///
    /// # Errors
    /// [`OpenError::Full`] if the bound on timers is reached.
    pub fn schedule_protocol(
        &self,
        protocol: &ProtocolRef,
        delay: Duration,
        token: u64,
    ) -> Result<Timer, OpenError> {
        self.arm(delay, Alarm::Protocol(protocol.clone(), token))
    }

    fn arm(&self, delay: Duration, alarm: Alarm) -> Result<Timer, OpenError> {
        self.arm_at(self.now().after(delay), alarm)
    }

    fn arm_at(&self, at: Time, alarm: Alarm) -> Result<Timer, OpenError> {
        if self.waits.has_left() && self.wheel.borrow().is_full() {
            self.take_left();
        }
        let scheduled = self.wheel.borrow_mut().schedule(at, alarm);
        let timer = scheduled.map(Timer).map_err(|_| OpenError::Full)?;
        self.quiet_until.set(self.quiet_until.get().min(at));
        Ok(timer)
    }

    /// Cancels a timer; that there is none is found to have finished.
    pub fn cancel(&self, timer: impl Into<Option<Timer>>) -> Cancel {
        let Some(timer) = timer.into() else { return Cancel::Finished };
        let mut wheel = self.wheel.borrow_mut();
        if wheel.deadline(timer.0) == Some(self.quiet_until.get()) {
            self.quiet_until.set(Time::ZERO);
        }
        let found = wheel.cancel(timer.0);
        drop(wheel);
        match found {
            event::Cancel::Cancelled(_alarm) => Cancel::Cancelled,
            event::Cancel::Running => Cancel::Running,
            event::Cancel::Finished => Cancel::Finished,
        }
    }

    /// Blocks this shepherd on a semaphore, without end or for at most `timeout`.
    ///
    /// # Errors
    /// [`WaitError`]: no signal in time, the semaphore closed, or no shepherd left to go on
    /// meanwhile.
    pub fn wait(&self, semaphore: &Semaphore, timeout: Option<Duration>) -> Result<(), WaitError> {
        if semaphore.try_wait() {
            return Ok(());
        }
        self.set_burst_aside();
        let payer = self.payer.take();
        let waited = self.wait_here(semaphore, timeout);
        self.payer.set(payer);
        waited
    }

    fn wait_here(&self, semaphore: &Semaphore, timeout: Option<Duration>) -> Result<(), WaitError> {
        let Some(timeout) = timeout else {
            return semaphore.wait(&self.shepherds);
        };
        let until = self.now().after(timeout);
        let result = semaphore.wait_ticketed(&self.shepherds, |ticket| {
            if !self.waits.begin(ticket, until) {
                self.set_alarm(ticket, until);
            }
        });
        if let Some(slot) = self.shepherds.current() {
            self.waits.end(slot);
        }
        result
    }

    /// Sets the alarm for a wait, as its shepherd's first or in place of one that would be late.
    #[cold]
    fn set_alarm(&self, ticket: Ticket, until: Time) {
        let Ok(timer) = self.arm_at(until, Alarm::Wait(ticket.slot())) else {
            // Without a timer the wait might never end: it is over at once.
            self.shepherds.time_out(ticket);
            return;
        };
        if let Some(late) = self.waits.set(ticket, until, timer.0) {
            self.cancel(Timer(late));
        }
    }

    /// The alarm of the shepherd in this place goes off.
    fn ring(&self, slot: u32) {
        match self.waits.rang(slot, self.now()) {
            // False if the signal was first.
            Rang::Over(ticket) => drop(self.shepherds.time_out(ticket)),
            Rang::Early(until) => match self.arm_at(until, Alarm::Wait(slot)) {
                Ok(timer) => self.waits.set_again(slot, until, timer.0),
                Err(_) => drop(self.waits.ticket(slot).map(|t| self.shepherds.time_out(t))),
            },
            Rang::Idle => {}
        }
    }

    /// Takes the alarms back whose shepherds do not wait.
    #[cold]
    fn take_left(&self) {
        while let Some(alarm) = self.waits.take_left() {
            self.cancel(Timer(alarm));
        }
    }

    /// Signals a semaphore: the shepherd that waits longest becomes ready.
    pub fn signal(&self, semaphore: &Semaphore) {
        semaphore.signal(&self.shepherds);
    }

    /// The shepherds that carry messages.
    pub fn shepherds(&self) -> &Shepherds {
        &self.shepherds
    }

    /// The number that selects messages for the protocol `upper` on the protocol `lower`, or on
    /// what lies below that if it passes numbers through.
    pub fn type_number(&self, upper: ProtocolId, lower: ProtocolId) -> Option<u32> {
        let protocols = self.protocols.borrow();
        let (kind, _) = protocols.node(upper)?;
        let upper = (upper, kind);
        let numbers = self.numbers.borrow();
        let mut lower = lower;
        loop {
            let (kind, _) = protocols.node(lower)?;
            let found = numbers.find(upper, (lower, kind));
            if found.is_some() {
                return found;
            }
            lower = protocols.numbers_below(lower)?;
        }
    }

    /// Something that the executor of the kernel has put beside it, such as a simulated network.
    pub fn surroundings<T: 'static>(&self) -> Option<Rc<T>> {
        let list = self.surroundings.borrow();
        let (_, found) = list.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        Rc::clone(found).downcast().ok()
    }

    /// The protocol with this number, if it is in this kernel.
    pub fn protocol(&self, id: ProtocolId) -> Option<ProtocolRef> {
        self.protocols.borrow().get(id).cloned()
    }

    /// The name of the protocol with this number, in whichever kernel of the host it is.
    pub fn name_of(&self, id: ProtocolId) -> Option<String> {
        self.protocols.borrow().node(id).map(|(_, name)| name.into())
    }

    // ---- what the composer uses ----

    /// Makes it one of several kernels of a host that has these nodes, bottom-up, in numbers from 0
    /// on. What is added besides gets numbers from `own_first` on, which no other of these kernels
    /// gives. To be called before the first protocol is added.
    pub fn join_host(&self, nodes: Vec<Node>, own_first: u32) {
        *self.protocols.borrow_mut() = Protocols::of_host(nodes, own_first);
    }

    /// Adds a protocol on top of those there are. In a host of several kernels one that has the
    /// kind and the name of a node gets that node's number: the node itself, or what stands for it
    /// here.
    pub fn add_protocol<P: Protocol + 'static>(
        &self,
        kind: &'static str,
        name: &str,
        body: P,
    ) -> ProtocolRef {
        let make = |id| ProtocolRef::new(id, kind, name, body);
        self.protocols.borrow_mut().add(kind, name, make)
    }

    /// Adds what stands for a protocol of a program that comes and goes, under the number that it
    /// has there, until [`remove_guest`](Self::remove_guest); it is charged to the
    /// [`payer`](Self::payer) of now. `None` if the number is taken, or below those that this
    /// kernel gives ([`join_host`](Self::join_host)).
    pub fn add_guest<P: Protocol + 'static>(
        &self,
        id: ProtocolId,
        kind: &'static str,
        name: &str,
        body: P,
    ) -> Option<ProtocolRef> {
        let guest = ProtocolRef::new(id, kind, name, body).charged_to(self.payer.get());
        self.protocols.borrow_mut().add_guest(guest)
    }

    /// Takes out what [`add_guest`](Self::add_guest) added, with its type numbers. Its sessions and
    /// enables are to be withdrawn before.
    pub fn remove_guest(&self, id: ProtocolId) {
        let gone = self.protocols.borrow_mut().remove_guest(id);
        if gone.is_some() {
            self.numbers.borrow_mut().forget(id);
        }
        drop(gone);
    }

    /// The table of type numbers, for filling.
    pub fn numbers_mut(&self) -> core::cell::RefMut<'_, Numbers> {
        self.numbers.borrow_mut()
    }

    /// Puts something beside the kernel for its protocols to find; replaces one of the same type.
    pub fn surround<T: 'static>(&self, thing: Rc<T>) {
        let mut list = self.surroundings.borrow_mut();
        list.retain(|(id, _)| *id != TypeId::of::<T>());
        list.push((TypeId::of::<T>(), thing));
    }

    /// Starts every protocol, bottom-up. What runs the kernel calls it on a shepherd of its loop,
    /// for a layer below may block.
    ///
    /// # Errors
    /// The protocol that could not start, and why.
    pub fn start(&self) -> Started {
        for protocol in self.protocols() {
            protocol.start(self).map_err(|error| (protocol.clone(), error))?;
        }
        Ok(())
    }

    /// Result of [`start`](Self::start); an error if it waits and nothing is left that could end
    /// the wait.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn started(&self, ended: &OnceCell<Started>) -> Started {
        ended.get().cloned().unwrap_or_else(|| {
            let top = self.protocols().pop();
            top.map_or(Ok(()), |protocol| Err((protocol, OpenError::NoLower)))
        })
    }

    /// Takes the graph down, top-down: every protocol releases what it holds, every timer is
    /// forgotten.
    pub fn stop(&self) {
        for protocol in self.protocols().iter().rev() {
            protocol.stop(self);
        }
        let protocols = self.protocols.take();
        let observer = self.observer.take();
        let wheel = self.wheel.replace(Wheel::new(0));
        self.waits.clear();
        self.quiet_until.set(Time::ZERO);
        // Outside of the borrows: what is dropped may be a last handle.
        drop((protocols, observer, wheel));
    }

    // ---- what the executor uses ----

    /// Tells the time. It never goes back.
    #[inline]
    pub fn set_now(&self, now: Time) {
        self.now.set(self.now.get().max(now));
    }

    /// Lets every timer go off that is due. Answers how many did. If the pool has refused messages
    /// meanwhile, the protocols release some ([`Protocol::relieve`]).
    ///
    /// Those that go off may set others that are due at once, without end: beyond a bound they are
    /// left to the next call, so that the wires have their turn.
    #[inline]
    pub fn run_due(&self) -> usize {
        if self.pool.failures() != self.relief.get().0 {
            self.relieve();
        }
        if self.now() < self.quiet_until.get() {
            return 0;
        }
        self.run_wheel()
    }

    /// The pool has refused messages since the protocols were told the last time.
    #[cold]
    fn relieve(&self) {
        if self.now() < self.relief.get().1 {
            return;
        }
        self.relief.set((self.pool.failures(), self.now().after(RELIEF_APART)));
        for protocol in self.protocols() {
            protocol.relieve(self);
        }
    }

    fn run_wheel(&self) -> usize {
        let fired_max = self.wheel.borrow().len().saturating_add(CHAIN_MAX);
        let mut fired = 0;
        loop {
            let mut wheel = self.wheel.borrow_mut();
            let Some((handle, alarm)) = wheel.pop_due(self.now()) else {
                self.quiet_until.set(wheel.next_expiry().unwrap_or(Time::MAX));
                return fired;
            };
            drop(wheel);
            self.quiet_until.set(Time::ZERO);
            fired += 1;
            match &alarm {
                Alarm::Session(session, token) => session.timeout(self, *token),
                Alarm::Protocol(protocol, token) => protocol.timeout(self, *token),
                Alarm::Wait(slot) => self.ring(*slot),
            }
            self.wheel.borrow_mut().finish(handle);
            if fired == fired_max || self.must_leave() {
                return fired;
            }
        }
    }

    /// Earliest time at which the next timer may go off.
    #[inline]
    pub fn next_expiry(&self) -> Option<Time> {
        if self.waits.has_left() {
            self.take_left();
        }
        let known = self.quiet_until.get();
        if known > self.now() {
            return (!known.is_never()).then_some(known);
        }
        self.wheel.borrow().next_expiry()
    }

    /// True if the caller's shepherd blocked and another one carries the loop on: leave the loop's
    /// body.
    #[inline]
    pub fn must_leave(&self) -> bool {
        self.shepherds.current().is_some() && !self.shepherds.on_loop()
    }

    /// Number of pending timers.
    pub fn timers(&self) -> usize {
        if self.waits.has_left() {
            self.take_left();
        }
        self.wheel.borrow().len()
    }

    /// All protocols, bottom-up.
    pub fn protocols(&self) -> Vec<ProtocolRef> {
        self.protocols.borrow().iter().cloned().collect()
    }

    /// The protocol with this name in the graph.
    pub fn find_protocol(&self, name: &str) -> Option<ProtocolRef> {
        self.protocols.borrow().iter().find(|p| p.name() == name).cloned()
    }

    // ---- passive opens ----

    /// The protocol above is about to be told of a session.
    pub(crate) fn begin_opening(&self, session: SessionId, opening: Opening) -> Rc<Opening> {
        let opening = Rc::new(opening);
        let mut openings = self.openings.borrow_mut();
        if openings.capacity() == 0 {
            openings.reserve_exact(1);
        }
        openings.push((session, Rc::clone(&opening)));
        drop(openings);
        opening
    }

    /// Record of a session of which the protocol above is being told.
    pub(crate) fn opening(&self, session: SessionId) -> Option<Rc<Opening>> {
        let openings = self.openings.borrow();
        openings.iter().find(|(id, _)| *id == session).map(|(_, opening)| Rc::clone(opening))
    }

    /// The protocol above knows of a session, and nothing waits for that any more.
    pub(crate) fn end_opening(&self, session: SessionId) {
        self.openings.borrow_mut().retain(|(id, _)| *id != session);
    }

    // ---- bursts ----

    /// True while a wire delivers a burst.
    pub(crate) fn carries_burst(&self) -> bool {
        self.burst.borrow().is_some()
    }

    /// A wire begins to deliver a burst.
    pub(crate) fn begin_burst(&self, slots: &Rc<Slots>) {
        *self.burst.borrow_mut() = Some(Rc::clone(slots));
    }

    /// A wire has delivered its burst. The kernel may have another by now, if this one was set
    /// aside.
    pub(crate) fn end_burst(&self, slots: &Rc<Slots>) {
        let mut burst = self.burst.borrow_mut();
        if burst.as_ref().is_some_and(|kept| Rc::ptr_eq(kept, slots)) {
            *burst = None;
        }
    }

    /// The shepherd is about to block: what is left of the burst that it carries goes back to the
    /// wire, for the next one.
    #[cold]
    fn set_burst_aside(&self) {
        let burst = self.burst.take();
        if let Some(slots) = burst {
            slots.give_back();
        }
    }

    // ---- counting and looking on ----

    #[inline]
    pub(crate) fn gate(&self) -> u8 {
        self.gate.get()
    }

    pub(crate) fn count_drop(&self, protocol: ProtocolId, reason: &'static Reason) {
        if let Some(protocol) = self.protocols.borrow().get(protocol) {
            protocol.head().drops().count(reason);
        }
    }

    pub(crate) fn fold_counts(&self, protocol: ProtocolId, sent: u64, received: u64) {
        if let Some(protocol) = self.protocols.borrow().get(protocol) {
            protocol.head().fold(sent, received);
        }
    }

    /// Returns whether an observer looks on.
    pub fn is_observed(&self) -> bool {
        self.gate.get() != 0
    }

    /// Sets the observer that sees every crossing, or none.
    pub fn set_observer(&self, observer: Option<Rc<dyn Observer>>) {
        self.gate.set(u8::from(observer.is_some()));
        drop(self.observer.replace(observer));
    }

    /// Does `act` with a message that crosses into or out of `session`, and shows it to the
    /// observer.
    pub(crate) fn traced<T>(
        &self,
        (operation, upper): (Operation, ProtocolId),
        session: &SessionRef,
        message: Message,
        act: impl FnOnce(Message) -> T,
    ) -> T {
        let observer = self.observer.borrow().clone();
        let span = observer.map(|observer| {
            let (lower, session, message) = (session.head().protocol(), session.id(), &message);
            let crossing = Crossing { operation, upper, lower, session, message };
            (observer.enter(crossing), observer)
        });
        let done = act(message);
        if let Some((number, observer)) = span {
            observer.leave(number);
        }
        done
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.stop();
    }
}
