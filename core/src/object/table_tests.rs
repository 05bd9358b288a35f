//! Limits of strangers: holds that follow, and shares of networks.

use super::table::SCAN_MAX;
use super::*;
use crate::kernel::Config;
use crate::message::{Pool, PoolConfig, SizeClass};
use crate::random::Random;
use crate::secret::Secret;
use crate::shepherd::{Limits, NoSwitch, Shepherds};
use crate::time::Time;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use proptest::prelude::*;
use std::collections::HashMap;

const SECRET: Secret = Secret::known([3, 5]);
/// Sessions that are held, and that may be idle, where a flood of twenty times as many comes. Miri
/// is slow.
const MANY: u32 = if cfg!(miri) { 12 } else { 500 };

struct Still;
impl Protocol for Still {}

/// A session on another one, or on none.
struct On(Option<SessionRef>, Closing);

impl Session for On {
    fn lower(&self) -> Option<&SessionRef> {
        self.0.as_ref()
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.1
    }
}

/// A session on none.
struct Alone;

impl Session for Alone {}

fn kernel() -> (Kernel, ProtocolRef) {
    let class = SizeClass { octets: 256, octets_max: 4096 };
    let pool = PoolConfig { octets_max: 4096, descriptors_max: 16, classes: vec![class] };
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool: Pool::new(&pool).unwrap(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 8,
    });
    let protocol = cx.add_protocol("still", "still", Still);
    (cx, protocol)
}

fn passive(bench: &(Kernel, ProtocolRef), on: Option<&SessionRef>, closing: Closing) -> SessionRef {
    let (cx, protocol) = bench;
    let source = on.map_or(0, |on| on.head().source());
    cx.new_passive_session(protocol, protocol, source, On(on.cloned(), closing))
}

/// One that a message from `source` made.
fn from(bench: &(Kernel, ProtocolRef), source: u64) -> SessionRef {
    let (cx, protocol) = bench;
    cx.new_passive_session(protocol, protocol, source, Alone)
}

fn opens(sessions: &[&SessionRef]) -> Vec<u32> {
    sessions.iter().map(|s| s.head().opens()).collect()
}

#[test]
fn who_is_held_holds_what_it_stands_on() {
    let bench = kernel();
    let low = passive(&bench, None, Closing::Done);
    let mid = passive(&bench, Some(&low), Closing::Done);
    let top = passive(&bench, Some(&mid), Closing::Idle);
    assert_eq!(opens(&[&low, &mid, &top]), [0, 0, 0]);
    top.hold();
    top.hold();
    assert_eq!(opens(&[&low, &mid, &top]), [1, 1, 2]);
    top.close(&bench.0);
    assert_eq!(opens(&[&low, &mid, &top]), [1, 1, 1]);
    // As idle as before: none of them is closed.
    top.ease(&bench.0);
    assert_eq!(opens(&[&low, &mid, &top]), [0, 0, 0]);
    top.hold();
    top.close(&bench.0);
    assert_eq!(opens(&[&low, &mid, &top]), [0, 0, 0]);
    assert!([&low, &mid, &top].iter().all(|s| !s.head().is_closed()));
    // An end releases what lies below, once.
    top.hold();
    top.abort(&bench.0);
    top.abort(&bench.0);
    assert_eq!(opens(&[&low, &mid]), [0, 0]);
    assert!(!mid.head().is_closed());
}

#[test]
fn what_stands_on_a_session_ends_with_it() {
    let bench = kernel();
    let low = passive(&bench, None, Closing::Done);
    let all = |closing| {
        let mid = passive(&bench, Some(&low), closing);
        let top = passive(&bench, Some(&mid), Closing::Idle);
        top.hold();
        [mid, top]
    };
    let [gone, _] = all(Closing::Done);
    gone.abort(&bench.0);
    let (idle, held) = (all(Closing::Idle), all(Closing::Lingering));
    idle[1].close(&bench.0);
    low.abort(&bench.0);
    assert!(idle.iter().chain(&held).all(|session| session.head().is_closed()));
    let late = passive(&bench, Some(&low), Closing::Done);
    let table = SessionTable::<u32>::new(SECRET, 4);
    assert_eq!(table.bind(&bench.0, 1, late), Err(&reason::CLOSED));
}

#[test]
fn a_source_is_that_of_what_lies_below() {
    let bench = kernel();
    let low = from(&bench, 0x0a00_0001);
    let top = passive(&bench, Some(&low), Closing::Done);
    assert_eq!(top.head().source(), 0x0a00_0001);
    let opened = bench.0.new_session(&bench.1, &bench.1, On(Some(low), Closing::Done));
    assert_eq!(opened.head().source(), 0);
}

#[test]
fn a_network_makes_room_among_its_own() {
    const MAX: u32 = if cfg!(miri) { 32 } else { 64 };
    let bench = kernel();
    let table = SessionTable::<u32>::new(SECRET, MAX as usize);
    let bind = |key: u32, session: SessionRef| table.bind(&bench.0, key, session);
    // Each of a network of its own, and older than all of one network.
    for n in 0..MAX / 2 {
        bind(n, from(&bench, (0x0b00_0001 + (n << 16)).into())).unwrap();
    }
    for n in 0..10 * MAX {
        bind(1000 + n, from(&bench, (0x0a01_0001 + n).into())).unwrap();
    }
    for n in 0..MAX / 2 {
        assert!(table.get(&n).is_some(), "{n} went for a crowd");
    }
    // The last quarter is for others, even if nothing of the crowd is idle.
    for n in 0..10 * MAX {
        if let Some(session) = table.get(&(1000 + n)) {
            session.hold();
        }
    }
    let crowded = bind(1, from(&bench, 0x0a01_0002));
    assert_eq!(crowded, Err(&reason::TABLE_FULL));
    let before = table.len();
    assert_eq!(bind(5000, from(&bench, 0x0aff_0001)), Ok(()));
    assert_eq!(table.len(), before + 1);
}

#[test]
fn what_is_held_does_not_count_as_idle() {
    let bench = kernel();
    let table = SessionTable::<u32>::new(SECRET, 1000).with_idle_max(MANY as usize / 5);
    for n in 0..MANY {
        let session = from(&bench, 0);
        session.hold();
        table.bind(&bench.0, n, session).unwrap();
    }
    assert_eq!(table.len(), MANY as usize);
    for n in MANY..20 * MANY {
        table.bind(&bench.0, n, from(&bench, 0)).unwrap();
    }
    assert!(table.len() <= MANY as usize + 20, "{} sessions", table.len());
    for n in 0..MANY {
        assert!(table.get(&n).is_some());
    }
}

#[test]
fn what_nothing_reaches_any_more_goes_first() {
    let bench = kernel();
    let table = SessionTable::<u32>::new(SECRET, 3);
    let low = passive(&bench, None, Closing::Done);
    for n in 0..3 {
        let session = passive(&bench, (n == 1).then_some(&low), Closing::Done);
        table.bind(&bench.0, n, session.clone()).unwrap();
        let message = || bench.0.pool().copy_from(0, b"data").unwrap();
        for _ in 0..3 {
            drop(session.pop(&bench.0, message()));
        }
    }
    low.retire(&bench.0);
    table.bind(&bench.0, 3, from(&bench, 0)).unwrap();
    assert!(table.get(&1).is_none() && table.get(&0).is_some() && table.get(&2).is_some());
}

#[test]
fn the_least_goes_held_or_not_however_often_the_hand_has_passed() {
    let rank: Rank = |_, session| match session.head().tag() {
        0 => None,
        tag => Some((tag, Time::ZERO)),
    };
    let bench = kernel();
    let table = SessionTable::<u32>::new(SECRET, 8).with_rank(rank);
    let bind = |key, tag| {
        let session = from(&bench, 0);
        session.head().set_tag(tag);
        if key % 2 == 0 {
            session.hold();
        }
        table.bind(&bench.0, key, session)
    };
    for key in 0..8 {
        bind(key, if key == 7 { 0 } else { 100 - key }).unwrap();
    }
    let newcomers = if cfg!(miri) { 20 } else { 100 };
    for key in 8..newcomers {
        bind(key, 50).unwrap();
        assert!(table.get(&7).is_some(), "it has no rank");
        assert_eq!(table.get(&6).is_some(), key < 8, "the least of all");
        assert!((0..6).all(|used| table.get(&used).is_some()));
        assert_eq!(table.len(), 8);
    }
    for key in newcomers..newcomers + 7 {
        bind(key, 0).unwrap();
    }
    assert!(bind(newcomers + 7, 1).is_err(), "all stay");
}

#[test]
fn an_idle_one_is_found_behind_however_many_that_are_held() {
    let bench = kernel();
    let table = SessionTable::<u32>::new(SECRET, 2 * MANY as usize);
    let held: Vec<_> = (0..2 * MANY).map(|_| from(&bench, 0)).collect();
    for (n, session) in (0..).zip(&held) {
        if n < MANY {
            session.hold();
        }
        table.bind(&bench.0, n, session.clone()).unwrap();
    }
    // For each that is idle one newcomer, which is held.
    for n in 2 * MANY..3 * MANY {
        let session = from(&bench, 0);
        session.hold();
        assert_eq!(table.bind(&bench.0, n, session), Ok(()), "{n}");
    }
    assert_eq!(table.bind(&bench.0, 9999, from(&bench, 0)), Err(&reason::TABLE_FULL));
    // One that was passed as it was held is found when it is no more.
    for n in [0, MANY / 2, MANY - 1] {
        held[n as usize].ease(&bench.0);
        let refused = (0..MANY).take_while(|_| {
            let bound = table.bind(&bench.0, 9999, from(&bench, 0));
            bound.is_err()
        });
        assert!(refused.count() <= 2 * MANY as usize / SCAN_MAX + 1, "of {}", 2 * MANY);
        assert!(table.get(&n).is_none() && table.get(&9999).is_some());
        table.get(&9999).unwrap().hold();
        let kept = table.unbind(&9999).unwrap();
        table.bind(&bench.0, 10_000 + n, kept).unwrap();
    }
}

#[test]
fn looking_for_one_to_evict_has_a_bound_on_average() {
    static LOOKS: AtomicUsize = AtomicUsize::new(0);
    let rank: Rank = |_, _| {
        LOOKS.fetch_add(1, Relaxed);
        None
    };
    let bench = kernel();
    let table = SessionTable::<u32>::new(SECRET, MANY as usize).with_rank(rank);
    for n in 0..MANY {
        table.bind(&bench.0, n, from(&bench, 0)).unwrap();
    }
    for n in MANY..3 * MANY {
        assert_eq!(table.bind(&bench.0, n, from(&bench, 0)), Err(&reason::TABLE_FULL));
    }
    let looks = LOOKS.load(Relaxed);
    let most = MANY as usize + 2 * MANY as usize * SCAN_MAX;
    assert!(looks <= most, "{looks} looks for {} sessions, of {most}", 2 * MANY);
}

/// Has a hold on another session.
struct Holds(SessionRef);

impl Session for Holds {
    fn close(&self, cx: &Kernel, _: &SessionRef) -> Closing {
        self.0.close(cx);
        Closing::Done
    }
}

/// Holds every session that is announced, and agrees to it if the cell says so.
struct Picky(Rc<Cell<bool>>);

impl Protocol for Picky {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        session: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        session.hold();
        match self.0.get() {
            true => Ok(()),
            false => Err(&reason::NO_PROTOCOL),
        }
    }
}

#[test]
fn an_open_keeps_one_hold_below_for_each_session() {
    let (cx, upper) = kernel();
    let other = cx.add_protocol("still", "other", Still);
    let lower = cx.new_passive_session(&other, &upper, 0, On(None, Closing::Idle));
    let table = SessionTable::new(SECRET, 1);
    let open = |upper: &ProtocolRef, key: u32| {
        lower.hold();
        table.open(&cx, &other, upper, key, Holds(lower.clone()))
    };
    let session = open(&upper, 1).unwrap();
    assert_eq!((session.head().opens(), lower.head().opens()), (1, 1));
    assert_eq!(open(&upper, 1), Ok(session.clone()));
    assert_eq!((session.head().opens(), lower.head().opens()), (2, 1));
    assert_eq!(open(&other, 1), Err(OpenError::InUse));
    assert_eq!(open(&upper, 2), Err(OpenError::Full));
    assert_eq!((session.head().opens(), lower.head().opens()), (2, 1));
    assert_eq!((table.get(&1), table.len()), (Some(session), 1));
}

#[test]
fn a_session_that_is_not_wanted_leaves_nothing_bound_or_held() {
    let (cx, this) = kernel();
    let wants = Rc::new(Cell::new(false));
    let upper = cx.add_protocol("still", "picky", Picky(Rc::clone(&wants)));
    let lower = cx.new_passive_session(&this, &this, 0, On(None, Closing::Idle));
    let table = SessionTable::new(SECRET, 1);
    let accept = |key: u32| {
        // Closed, it would stay bound as an idle one.
        let make = || (On(Some(lower.clone()), Closing::Idle), Participants::default());
        table.accept(&cx, &this, &upper, key, 0, make)
    };
    assert_eq!(accept(1), Err(&reason::NO_PROTOCOL));
    assert_eq!((table.len(), lower.head().opens()), (0, 0));
    wants.set(true);
    let session = accept(1).unwrap();
    assert_eq!((table.get(&1), lower.head().opens()), (Some(session), 1));
    assert_eq!(accept(2), Err(&reason::TABLE_FULL));
    assert_eq!((table.len(), lower.head().opens()), (1, 1));
}

#[test]
fn sessions_in_turn_are_found_but_not_kept() {
    const MAX: u32 = 16;
    let bench = kernel();
    let table = SessionTable::<u32>::new(SECRET, MAX as usize);
    for way in 0..4 {
        let weak: Vec<_> = (0..MAX)
            .map(|n| {
                let session = from(&bench, 0);
                table.bind(&bench.0, n, session.clone()).unwrap();
                session.downgrade()
            })
            .collect();
        for n in (0..MAX).cycle().take(5 * MAX as usize) {
            let found = table.get(&n);
            assert!(found.is_some() && found == weak[n as usize].upgrade());
        }
        let stats = table.stats();
        assert!(stats.cache_hits > 0 && stats.cache_hits < stats.lookups);
        match way {
            0 => (0..MAX).for_each(|n| drop(table.unbind(&n))),
            1 => (0..MAX).for_each(|n| {
                let session = weak[n as usize].upgrade().unwrap();
                table.release(&n, &session);
            }),
            2 => (0..MAX).for_each(|n| table.bind(&bench.0, 100 + n, from(&bench, 0)).unwrap()),
            _ => {}
        }
        table.clear();
        for (n, session) in (0..).zip(&weak) {
            assert!(session.upgrade().is_none(), "{n} is kept, way {way}");
            assert!(table.get(&n).is_none() && table.latest(&n).is_none());
        }
    }
}

/// Stand-in for a program's protocol of this user, under this number.
fn guest(cx: &Kernel, uid: u32, number: u32) -> ProtocolRef {
    let add = || cx.add_guest(ProtocolId(number), "program", "guest", Still);
    cx.charging(Payer::user(uid), add).expect("a free number")
}

#[test]
fn a_user_has_a_share_of_a_table_and_takes_from_its_own() {
    let bench = kernel();
    let (cx, own) = &bench;
    let table = SessionTable::<u32>::new(SECRET, 64);
    let open = |key, upper: &ProtocolRef| {
        table.bind(cx, key, cx.new_session(own, upper, Alone)).map_err(|why| why.name)
    };
    let (one, two) = (guest(cx, 7, 1000), guest(cx, 7, 1001));
    for key in 0..8 {
        assert_eq!(open(key, if key % 2 == 0 { &one } else { &two }), Ok(()), "{key}");
    }
    for upper in [&one, &two] {
        assert_eq!(open(8, upper), Err(reason::TABLE_FULL.name), "an eighth is all it has");
    }
    // What a protocol of the kernel's own opens for it is charged to it, and what it opens for
    // itself is not: behind a wait as well.
    let charged = || open(8, own);
    assert_eq!(cx.charging(Payer::user(7), charged), Err(reason::TABLE_FULL.name));
    assert_eq!((open(8, own), open(9, &guest(cx, 8, 1002))), (Ok(()), Ok(())));
    // What messages make for it takes the place of what is idle of it, not of another's.
    let idle = from(&bench, 0);
    table.bind(cx, 10, idle.clone()).unwrap();
    let (session, upper) = (table.unbind(&0).unwrap(), &one);
    session.abort(cx);
    let arrives = |key| {
        let session = cx.new_passive_session(own, upper, 0, Alone);
        table.bind(cx, key, session.clone()).map(|()| session)
    };
    let first = arrives(20).unwrap();
    let (second, third) = (arrives(21).unwrap(), arrives(22).unwrap());
    let closed = [&idle, &first, &second, &third].map(|session| session.head().is_closed());
    assert_eq!(closed, [false, true, true, false]);
    assert_eq!(table.len(), 8 + 3);
}

#[test]
fn a_table_keeps_nothing_of_protocols_that_are_gone() {
    let bench = kernel();
    let (cx, own) = &bench;
    let table = SessionTable::<u32>::new(SECRET, 64);
    table.bind(cx, 0, cx.new_session(own, own, Alone)).unwrap();
    for number in 0..4 * MANY {
        let upper = guest(cx, 7, 1000 + number);
        for key in 1..4 {
            let session = match key {
                1 => cx.new_session(own, &upper, Alone),
                _ => cx.new_passive_session(own, &upper, 0, Alone),
            };
            table.bind(cx, key, session).unwrap();
        }
        // From the middle, from either end, and by a clean-up.
        for key in [2, 1, 3] {
            table.unbind(&key).unwrap().abort(cx);
        }
        cx.remove_guest(upper.id());
    }
    // Entries of 32 sessions are left before they are cleaned up.
    assert!(table.uppers() <= 33, "of {} protocols", table.uppers());
}

#[derive(Clone, Debug)]
enum Act {
    Bind(u32),
    Unbind(u32),
    Get(u32),
    Turns,
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0..24_u32;
    prop_oneof![
        8 => key.clone().prop_map(Act::Bind),
        3 => key.clone().prop_map(Act::Unbind),
        6 => key.prop_map(Act::Get),
        3 => Just(Act::Turns),
        1 => Just(Act::Clear),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_hash_map_of_what_is_not_evicted(acts in proptest::collection::vec(act(), 0..150)) {
        let bench = kernel();
        let table = SessionTable::<u32>::new(SECRET, 16);
        let mut model: HashMap<u32, SessionRef> = HashMap::new();
        for act in acts {
            let mut keys = 0..0;
            match act {
                Act::Bind(key) => {
                    let session = from(&bench, 0);
                    let bound = table.bind(&bench.0, key, session.clone());
                    prop_assert_eq!(bound.is_ok(), !model.contains_key(&key));
                    model.entry(key).or_insert(session);
                    // What was evicted for it is closed.
                    model.retain(|_, session| !session.head().is_closed());
                }
                Act::Unbind(key) => prop_assert_eq!(table.unbind(&key), model.remove(&key)),
                Act::Get(key) => keys = key..key + 1,
                Act::Turns => keys = 0..24,
                Act::Clear => {
                    table.clear();
                    model.clear();
                }
            }
            for key in keys.clone().chain(keys) {
                let latest = table.latest(&key);
                prop_assert!(latest.is_none() || latest.as_ref() == model.get(&key));
                prop_assert_eq!(table.get(&key), model.get(&key).cloned());
            }
            prop_assert_eq!(table.len(), model.len());
        }
    }
}
