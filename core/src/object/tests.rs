use super::slot_unsafe::KeyedSlot;
use super::*;
use crate::kernel::Config;
use crate::message::{Pool, PoolConfig, SizeClass};
use crate::participant::{AddressError, PARTICIPANTS_MAX, PARTS_MAX, Part, Participant};
use crate::random::Random;
use crate::secret::Secret;
use crate::shepherd::{Limits, NoSwitch, Shepherds};
use crate::trace::{Crossing, Observer};
use alloc::boxed::Box;
use alloc::rc::{Rc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;

const SECRET: Secret = Secret::known([3, 5]);

/// Sessions that a flood makes.
const FLOOD: u32 = if cfg!(miri) { 60 } else { 1000 };

fn kernel() -> Kernel {
    let class = SizeClass { octets: 256, octets_max: 4096 };
    let pool = PoolConfig { octets_max: 4096, descriptors_max: 16, classes: vec![class] };
    Kernel::new(Config {
        random: Random::new(1),
        pool: Pool::new(&pool).unwrap(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 8,
    })
}

struct Still;
impl Protocol for Still {}

/// Log of what a session was asked to do.
#[derive(Default)]
struct Log {
    closes: Cell<u32>,
    timeouts: Cell<u32>,
    drops: Cell<u32>,
}

/// Unbinds itself when it closes, and uses its table, and unbinds another one, while it is dropped.
struct Body {
    table: Weak<SessionTable<u32>>,
    key: u32,
    closing: Closing,
    log: Rc<Log>,
}

impl Session for Body {
    fn push(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        drop(message);
        Ok(())
    }

    fn pop(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), Refused> {
        drop(message);
        Ok(())
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.log.closes.set(self.log.closes.get() + 1);
        if let (Closing::Done, Some(table)) = (self.closing, self.table.upgrade()) {
            table.unbind(&self.key);
        }
        self.closing
    }

    fn timeout(&self, _: &Kernel, _: &SessionRef, _: u64) {
        self.log.timeouts.set(self.log.timeouts.get() + 1);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.log.drops.set(self.log.drops.get() + 1);
        if let Some(table) = self.table.upgrade() {
            table.get(&self.key);
            table.latest(&self.key);
            table.unbind(&(self.key + 1000));
            table.sessions(1);
        }
    }
}

/// A kernel with one protocol, a table of its sessions, and what they were asked to do.
struct Bench {
    cx: Kernel,
    protocol: ProtocolRef,
    table: Rc<SessionTable<u32>>,
    log: Rc<Log>,
}

impl Bench {
    fn new(max: usize) -> Self {
        let cx = kernel();
        Self {
            protocol: cx.add_protocol("still", "still", Still),
            cx,
            table: Rc::new(SessionTable::new(SECRET, max)),
            log: Rc::default(),
        }
    }

    fn body(&self, key: u32, closing: Closing) -> Body {
        Body { table: Rc::downgrade(&self.table), key, closing, log: Rc::clone(&self.log) }
    }

    /// A session that is held from above.
    fn held(&self, key: u32) -> SessionRef {
        let body = self.body(key, Closing::Done);
        self.cx.new_session(&self.protocol, &self.protocol, body)
    }

    /// A session without a holder.
    fn idle(&self, key: u32) -> SessionRef {
        let body = self.body(key, Closing::Done);
        self.cx.new_passive_session(&self.protocol, &self.protocol, 0, body)
    }

    fn bind(&self, key: u32, session: &SessionRef) {
        let bound = self.table.bind(&self.cx, key, session.clone());
        assert_eq!(bound, Ok(()));
    }

    fn message(&self) -> Message {
        self.cx.pool().copy_from(0, b"data").unwrap()
    }
}

#[test]
fn a_slot_gives_handles_and_takes_them_back() {
    let bench = Bench::new(4);
    let (one, two) = (bench.held(1), bench.held(2));
    let slot = SessionSlot::default();
    assert!(slot.get().is_none() && !slot.is_some() && slot.take().is_none());
    assert!(slot.replace(Some(one.clone())).is_none());
    let copies: Vec<_> = (0..3).filter_map(|_| slot.get()).collect();
    assert_eq!(copies, [one.clone(), one.clone(), one.clone()]);
    assert_eq!(slot.replace(Some(two)), Some(one.clone()));
    drop((copies, one));
    assert_eq!(bench.log.drops.get(), 1);
    drop(slot);
    assert_eq!(bench.log.drops.get(), 2);
}

#[test]
fn a_keyed_slot_knows_its_own_key_only() {
    let bench = Bench::new(4);
    let slot = KeyedSlot::new();
    assert!(!slot.has(&1) && slot.get(&1).is_none());
    assert!(slot.replace(Some((1, bench.held(1)))).is_none());
    assert!(slot.has(&1) && !slot.has(&2) && slot.get(&2).is_none());
    let kept = slot.get(&1).unwrap();
    drop(slot.replace(Some((2, bench.held(2)))));
    assert!(slot.get(&1).is_none() && slot.get(&2).is_some());
    assert_eq!(bench.log.drops.get(), 0);
    drop(kept);
    drop(slot.replace(None));
    assert_eq!(bench.log.drops.get(), 2);
}

#[test]
fn holds_are_counted_and_the_last_one_closes() {
    let bench = Bench::new(4);
    let session = bench.held(1);
    bench.bind(1, &session);
    session.hold();
    session.close(&bench.cx);
    assert!(!session.head().is_closed() && bench.log.closes.get() == 0);
    session.push(&bench.cx, bench.message()).unwrap();
    session.pop(&bench.cx, bench.message()).unwrap();
    session.close(&bench.cx);
    assert!(session.head().is_closed() && bench.table.is_empty());
    // Once more does nothing, and neither do an abort and a timer.
    session.close(&bench.cx);
    session.abort(&bench.cx);
    session.retire(&bench.cx);
    assert_eq!(bench.log.closes.get(), 1);
    // What it had counted went over to the protocol once; what comes late is counted there.
    assert_eq!(bench.protocol.head().folded(), (1, 1));
    let late = session.push(&bench.cx, bench.message());
    assert_eq!(late, Err(PushError::Closed));
    assert!(session.pop(&bench.cx, bench.message()).is_err());
    assert_eq!(bench.protocol.head().drops().of(&reason::CLOSED), 2);
    assert_eq!((session.head().sent(), session.head().received()), (1, 1));
}

#[test]
fn a_lingering_session_receives_until_it_is_opened_again() {
    let bench = Bench::new(4);
    let body = bench.body(1, Closing::Lingering);
    let session = bench.cx.new_session(&bench.protocol, &bench.protocol, body);
    session.close(&bench.cx);
    let pushed = session.push(&bench.cx, bench.message());
    assert_eq!(pushed, Err(PushError::Closed));
    assert!(session.pop(&bench.cx, bench.message()).is_ok());
    session.hold();
    assert_eq!(session.push(&bench.cx, bench.message()), Ok(()));
}

#[test]
fn a_tag_is_the_receivers() {
    let bench = Bench::new(4);
    let session = bench.held(1);
    assert_eq!(session.head().tag(), 0);
    session.head().set_tag(7);
    assert_eq!(session.clone().head().tag(), 7);
}

#[test]
fn what_was_found_last_is_forgotten_with_its_key() {
    let bench = Bench::new(4);
    let session = bench.idle(1);
    bench.bind(1, &session);
    assert!(bench.table.latest(&1).is_none());
    assert!(bench.table.get(&1).is_some() && bench.table.latest(&1).is_some());
    assert!(bench.table.get(&2).is_none() && bench.table.latest(&2).is_none());
    drop(bench.table.unbind(&1));
    assert!(bench.table.latest(&1).is_none() && bench.table.get(&1).is_none());
    // No handle was left behind, neither with the last hit nor with the clock.
    drop(session);
    assert_eq!(bench.log.drops.get(), 1);
}

#[test]
fn an_idle_session_makes_room_and_one_in_use_does_not() {
    let bench = Bench::new(2);
    let used = bench.held(1);
    bench.bind(1, &used);
    bench.bind(2, &bench.idle(2));
    assert!(bench.table.get(&2).is_some());
    bench.bind(3, &bench.held(3));
    assert_eq!((bench.table.evicted(), bench.log.closes.get()), (1, 1));
    assert_eq!(bench.log.drops.get(), 1);
    assert!(bench.table.get(&2).is_none() && bench.table.get(&1) == Some(used));
    let full = bench.table.bind(&bench.cx, 4, bench.held(4));
    assert_eq!(full, Err(&reason::TABLE_FULL));
    assert_eq!(bench.table.len(), 2);
}

#[test]
fn nobody_goes_for_a_key_that_is_taken() {
    let bench = Bench::new(2);
    bench.bind(1, &bench.idle(1));
    bench.bind(2, &bench.idle(2));
    let taken = bench.table.bind(&bench.cx, 2, bench.held(2));
    assert_eq!(taken, Err(&reason::TABLE_FULL));
    assert_eq!((bench.table.len(), bench.table.evicted()), (2, 0));
}

#[test]
fn a_session_that_closed_and_was_left_bound_makes_room() {
    let bench = Bench::new(1);
    let session = bench.held(1);
    bench.bind(1, &session);
    session.retire(&bench.cx);
    bench.bind(2, &bench.held(2));
    assert!(bench.table.get(&1).is_none() && bench.table.len() == 1);
}

#[test]
fn eviction_leaves_the_heir_of_a_key_alone() {
    const MAX: u32 = 100;
    let bench = Bench::new(MAX as usize);
    let mut held = Vec::new();
    for key in 0..MAX {
        held.push(bench.held(key));
        bench.bind(key, &held[key as usize]);
    }
    // The clock still has the one before, somewhere in the middle, which is closed.
    held[80].close(&bench.cx);
    held[80] = bench.held(80);
    bench.bind(80, &held[80]);
    let full = bench.table.bind(&bench.cx, MAX, bench.held(MAX));
    assert_eq!(full, Err(&reason::TABLE_FULL));
    assert_eq!(bench.table.get(&80).as_ref(), Some(&held[80]));
    assert_eq!(bench.table.evicted(), 0);
}

#[test]
fn the_clock_drops_last_handles_while_nothing_is_borrowed() {
    let bench = Bench::new(40);
    let idle = |key| bench.bind(key, &bench.idle(key));
    idle(0);
    // Dropped, each of these three unbinds another one.
    let meddlers = [5, 20, 50];
    for key in meddlers {
        idle(key + 1000);
    }
    // Each closes between two others, so that the clock keeps it until it cleans up.
    const KEYS: u32 = if cfg!(miri) { 60 } else { 200 };
    for key in 1..KEYS {
        idle(key);
        idle(key + 500);
        bench.table.get(&key).unwrap().abort(&bench.cx);
        bench.table.get(&(key + 500)).unwrap().abort(&bench.cx);
    }
    assert!(bench.log.drops.get() > 3 * KEYS / 2);
    assert!(meddlers.iter().all(|key| bench.table.get(&(key + 1000)).is_none()));
    assert_eq!(bench.table.len(), 1);
    bench.table.clear();
    assert_eq!(bench.log.drops.get(), 1 + 2 * (KEYS - 1) + 3);
}

#[test]
fn a_closed_session_gets_no_timer() {
    let bench = Bench::new(4);
    let (gone, here) = (bench.held(1), bench.held(2));
    for session in [&gone, &here] {
        let delay = Duration::from_millis(1);
        bench.cx.schedule(session, delay, 0).unwrap();
    }
    gone.close(&bench.cx);
    bench.cx.set_now(bench.cx.now() + Duration::from_millis(2));
    assert_eq!(bench.cx.run_due(), 2);
    assert_eq!(bench.log.timeouts.get(), 1);
}

/// Sets its timer again, to go off at once.
struct Restless;

impl Protocol for Restless {
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let again = cx.schedule_protocol(this, Duration::ZERO, token + 1);
        assert!(again.is_ok());
    }
}

#[test]
fn timers_that_set_each_other_leave_the_wires_their_turn() {
    let cx = kernel();
    let protocol = cx.add_protocol("restless", "restless", Restless);
    cx.schedule_protocol(&protocol, Duration::ZERO, 0).unwrap();
    for _ in 0..2 {
        assert!(cx.run_due() > 1);
        assert_eq!((cx.timers(), cx.next_expiry()), (1, Some(cx.now())));
    }
}

/// Holds its own kernel's handle and uses it when dropped: as a protocol and as an observer.
struct Clinging(Weak<Kernel>, Rc<Cell<u32>>);

impl Protocol for Clinging {}

impl Observer for Clinging {
    fn enter(&self, _: Crossing<'_>) -> u64 {
        0
    }

    fn leave(&self, _: u64) {}
}

impl Drop for Clinging {
    fn drop(&mut self) {
        let Some(cx) = self.0.upgrade() else { return };
        self.1.set(self.1.get() + 1);
        cx.set_observer(None);
        assert!(cx.next_expiry().is_none() && cx.protocols().is_empty());
    }
}

#[test]
fn a_stop_lets_go_of_all_while_nothing_is_borrowed() {
    let cx = Rc::new(kernel());
    let drops = Rc::default();
    let clinging = || Clinging(Rc::downgrade(&cx), Rc::clone(&drops));
    let protocol = cx.add_protocol("clinging", "clinging", clinging());
    let log = Rc::new(Log::default());
    let session = cx.new_session(
        &protocol,
        &protocol,
        Body { table: Weak::new(), key: 0, closing: Closing::Idle, log: Rc::clone(&log) },
    );
    cx.schedule(&session, Duration::from_secs(1), 0).unwrap();
    cx.set_observer(Some(Rc::new(clinging())));
    drop((session, protocol));
    cx.stop();
    assert_eq!((drops.get(), log.drops.get()), (2, 1));
}

/// Releases another session, and looks for it, in the middle of an eviction.
struct Chained {
    next: RefCell<Option<SessionRef>>,
    table: Weak<SessionTable<u32>>,
}

impl Session for Chained {
    fn close(&self, cx: &Kernel, _: &SessionRef) -> Closing {
        if let (Some(next), Some(table)) = (self.next.take(), self.table.upgrade()) {
            table.get(&1);
            next.close(cx);
            table.unbind(&1);
        }
        Closing::Done
    }
}

#[test]
fn an_evicted_session_may_close_others_of_its_table() {
    let bench = Bench::new(2);
    let below = bench.held(1);
    bench.bind(1, &below);
    let body = Chained { next: RefCell::new(Some(below)), table: Rc::downgrade(&bench.table) };
    let above = bench.cx.new_passive_session(&bench.protocol, &bench.protocol, 0, body);
    bench.bind(2, &above);
    bench.bind(3, &bench.held(3));
    assert!(above.head().is_closed());
    assert_eq!((bench.table.len(), bench.log.drops.get()), (1, 1));
}

#[test]
fn what_a_single_message_made_goes_before_what_is_in_use() {
    const MAX: u32 = FLOOD / 10;
    let bench = Bench::new(MAX as usize);
    let used = bench.idle(0);
    bench.bind(0, &used);
    for _ in 0..2 {
        assert!(used.pop(&bench.cx, bench.message()).is_ok());
    }
    for key in 1..FLOOD {
        let session = bench.idle(key);
        bench.bind(key, &session);
        assert!(session.pop(&bench.cx, bench.message()).is_ok());
        if key % (MAX / 2) == 0 {
            assert!(used.pop(&bench.cx, bench.message()).is_ok());
        }
    }
    assert_eq!(bench.table.get(&0), Some(used));
    assert_eq!(bench.table.len(), MAX as usize);
    assert_eq!(bench.table.evicted(), u64::from(FLOOD - MAX));
}

#[test]
fn a_flood_for_one_upper_protocol_costs_the_others_nothing() {
    const MAX: u32 = FLOOD / 10;
    let bench = Bench::new(MAX as usize);
    let other = bench.cx.add_protocol("other", "other", Restless);
    let of_other = |key| {
        let body = bench.body(key, Closing::Done);
        let session = bench.cx.new_passive_session(&bench.protocol, &other, 0, body);
        bench.bind(key, &session);
        session
    };
    let quiet: Vec<_> = (0..MAX / 3).map(of_other).collect();
    for key in MAX / 3..FLOOD {
        bench.bind(key, &bench.idle(key));
    }
    for (key, session) in (0..).zip(&quiet) {
        assert_eq!(bench.table.get(&key).as_ref(), Some(session));
    }
    assert_eq!(bench.table.len(), MAX as usize);
}

#[test]
fn an_upper_protocol_has_its_share_of_passive_sessions() {
    let bench = Bench::new(100);
    let table = SessionTable::<u32>::new(SECRET, 100).with_passive_max(10);
    let mut held = Vec::new();
    for key in 0..50 {
        assert!(table.bind(&bench.cx, key, bench.idle(key)).is_ok());
        let opened = bench.held(key + 1000);
        assert!(table.bind(&bench.cx, key + 1000, opened.clone()).is_ok());
        held.push(opened);
    }
    assert_eq!(table.len(), 60);
    for key in 40..50 {
        table.get(&key).unwrap().hold();
    }
    let full = table.bind(&bench.cx, 60, bench.idle(60));
    assert_eq!(full, Err(&reason::TABLE_FULL));
    table.unbind(&45);
    assert!(table.bind(&bench.cx, 60, bench.idle(60)).is_ok());
}

/// Notes the sessions whose end it is told of.
struct Watcher(Rc<RefCell<Vec<SessionId>>>);

impl Protocol for Watcher {
    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        assert!(lower.head().is_closed(), "it has ended by then");
        self.0.borrow_mut().push(lower.id());
    }
}

#[test]
fn who_watches_a_session_is_told_once_of_its_end() {
    let bench = Bench::new(4);
    let told = Rc::new(RefCell::default());
    let watcher = bench.cx.add_protocol("watcher", "watcher", Watcher(Rc::clone(&told)));
    let session = |key, closing| {
        let session = bench.cx.new_session(&bench.protocol, &watcher, bench.body(key, closing));
        session.watch();
        session
    };
    let closed = session(1, Closing::Done);
    closed.close(&bench.cx);
    assert_eq!(told.take(), [closed.id()]);
    let aborted = session(2, Closing::Done);
    aborted.abort(&bench.cx);
    aborted.abort(&bench.cx);
    // It lingers, and ends by itself.
    let lingers = session(3, Closing::Lingering);
    lingers.close(&bench.cx);
    assert_eq!(*told.borrow(), [aborted.id()]);
    lingers.retire(&bench.cx);
    assert_eq!(*told.borrow(), [aborted.id(), lingers.id()]);
    // One that is not watched says nothing.
    bench.cx.new_session(&bench.protocol, &watcher, bench.body(4, Closing::Done)).abort(&bench.cx);
    assert_eq!(told.borrow().len(), 2);
}

#[test]
fn an_open_refuses_more_ends_than_cross_a_cut() {
    let bench = Bench::new(1);
    let open = |ends: Participants| {
        let (cx, protocol) = (&bench.cx, &bench.protocol);
        let opened = protocol.open(cx, Upper::new(protocol), ends.clone()).map(drop);
        let enabled = protocol.open_enable(cx, Upper::new(protocol), ends).map(drop);
        assert_eq!(opened, enabled);
        opened
    };
    let ends = |count: usize, deep: usize| {
        let mut ends = Participants::default();
        let end = (0..deep).fold(Participant::new(), |end, _| end.with(Part::Any));
        (0..count).for_each(|_| ends.push(end.clone()));
        ends
    };
    // The protocol opens nothing, and is asked.
    assert_eq!(open(ends(PARTICIPANTS_MAX, PARTS_MAX)), Err(OpenError::NotSupported));
    let too_many = open(ends(PARTICIPANTS_MAX + 1, 1));
    assert_eq!(too_many, Err(OpenError::Address(AddressError::Count)));
    let too_deep = open(ends(2, PARTS_MAX + 1));
    assert_eq!(too_deep, Err(OpenError::Address(AddressError::OutOfRange)));
}
