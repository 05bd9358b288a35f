use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;
use std::time::Instant;

/// One event more than a tick may have.
const CROWD: usize = if cfg!(miri) { 40 } else { 200 };

fn ns(at: u64) -> Time {
    Time::from_ns(at)
}

/// Runs and finishes everything due at `now`.
fn due<T>(wheel: &mut Wheel<T>, now: Time) -> Vec<T> {
    core::iter::from_fn(|| {
        let (handle, payload) = wheel.pop_due(now)?;
        assert!(wheel.finish(handle));
        Some(payload)
    })
    .collect()
}

#[test]
fn never_early_and_in_order_within_a_tick() {
    let mut wheel = Wheel::new(10);
    for (at, name) in [(1_030, 'c'), (1_025, 'a'), (1_030, 'd'), (1_026, 'b'), (1_024, 'z')] {
        wheel.schedule(ns(at), name).unwrap();
    }
    assert_eq!(due(&mut wheel, ns(1_023)), []);
    assert_eq!(wheel.next_expiry(), Some(ns(1_024)));
    assert_eq!(due(&mut wheel, ns(1_025)), ['z', 'a']);
    wheel.schedule(ns(1_028), 'x').unwrap();
    wheel.schedule(ns(1), 'p').unwrap();
    assert_eq!(wheel.next_expiry(), Some(ns(1)));
    assert_eq!(due(&mut wheel, ns(2_000)), ['p', 'b', 'x', 'c', 'd']);
    assert_eq!((wheel.next_expiry(), wheel.len()), (None, 0));
}

#[test]
fn cancelling_pending_running_and_finished_events() {
    let mut wheel = Wheel::new(10);
    let one = wheel.schedule(ns(5_000), "one").unwrap();
    let two = wheel.schedule(ns(6_000), "two").unwrap();
    assert_eq!(wheel.cancel(one), Cancel::Cancelled("one"));
    assert_eq!(wheel.cancel(one), Cancel::Finished);
    assert!(!wheel.finish(one) && !wheel.finish(two));
    assert_eq!((wheel.len(), wheel.running()), (1, 0));
    let (running, payload) = wheel.pop_due(ns(6_000)).unwrap();
    assert_eq!((running, payload), (two, "two"));
    assert_eq!((wheel.len(), wheel.running()), (0, 1));
    assert_eq!(wheel.deadline(two), Some(ns(6_000)));
    assert_eq!(wheel.cancel(two), Cancel::Running);
    assert!(wheel.finish(two) && !wheel.finish(two));
    assert_eq!((wheel.cancel(two), wheel.deadline(two)), (Cancel::Finished, None));
}

#[test]
fn a_reused_node_does_not_answer_for_an_old_handle() {
    let mut wheel = Wheel::new(1);
    let old = wheel.schedule(ns(1), 1).unwrap();
    assert_eq!(wheel.schedule(ns(1), 9), Err(Full));
    wheel.cancel(old);
    let new = wheel.schedule(ns(1), 2).unwrap();
    assert_eq!((old.index, wheel.cancel(old)), (new.index, Cancel::Finished));
    let (running, _) = wheel.pop_due(ns(1)).unwrap();
    assert_eq!(wheel.schedule(ns(1), 9), Err(Full));
    assert!(!wheel.finish(old) && wheel.finish(running));
    assert_eq!((wheel.running(), wheel.events_max()), (0, 1));
}

#[test]
fn the_ends_of_time() {
    let mut wheel = Wheel::new(10);
    wheel.schedule(Time::MAX, 'z').unwrap();
    wheel.schedule(Time::ZERO, 'a').unwrap();
    wheel.schedule(ns(u64::MAX - 1), 'y').unwrap();
    assert_eq!(due(&mut wheel, Time::ZERO), ['a']);
    assert_eq!(wheel.next_expiry(), Some(ns(u64::MAX - 1)));
    assert_eq!(due(&mut wheel, ns(1 << 63)), []);
    assert_eq!(due(&mut wheel, ns(u64::MAX - 1)), ['y']);
    assert_eq!(due(&mut wheel, ns(5)), []);
    assert_eq!(due(&mut wheel, Time::MAX), ['z']);
}

#[test]
fn an_event_may_schedule_the_next_one_at_once() {
    let mut wheel = Wheel::new(2);
    wheel.schedule(ns(0), 0u64).unwrap();
    let mut runs = 0;
    while let Some((handle, count)) = wheel.pop_due(Time::from_ms(1)) {
        wheel.schedule(ns((count + 1) * 1_000), count + 1).unwrap();
        assert!(wheel.finish(handle));
        runs += 1;
    }
    assert_eq!(runs, 1_001);
}

#[test]
fn an_empty_wheel_is_small() {
    assert!(size_of::<Wheel<[u64; 4]>>() <= 256);
    let slots = LEVELS * size_of::<[u32; SLOTS]>();
    assert!(slots + size_of::<Wheel<[u64; 4]>>() <= 4096);
    assert!(size_of::<Option<Handle>>() == 16);
}

/// Sleeping until each `next_expiry` finds all deadlines exactly, also where
/// so many fall into one span that it only tells the beginning.
#[test]
fn sleeping_until_the_next_expiry_converges() {
    let random = crate::random::Random::new(4);
    let mut wheel = Wheel::new(100_000);
    let mut deadlines = Vec::new();
    for _ in 0..2_000 {
        let at = Time::from_s(3_600) + core::time::Duration::from_nanos(random.below(1 << 45));
        wheel.schedule(at, at).unwrap();
        deadlines.push(at);
    }
    deadlines.sort_unstable();
    let (mut now, mut empty_rounds, mut seen) = (Time::ZERO, 0, Vec::new());
    while let Some(expiry) = wheel.next_expiry() {
        assert!(expiry > now);
        now = expiry;
        let ran = due(&mut wheel, now);
        assert!(ran.iter().all(|at| *at == now));
        empty_rounds += usize::from(ran.is_empty());
        seen.extend(ran);
    }
    assert_eq!(seen, deadlines);
    assert!(empty_rounds < 200, "{empty_rounds} rounds for nothing");
}

/// The beginning of a span whose events were all cancelled after it was told.
#[test]
fn a_span_that_became_empty_does_not_stop_the_sleeper() {
    let mut wheel = Wheel::new(100);
    let crowd: Vec<_> =
        (0..50).map(|n| wheel.schedule(ns(10_000_000 + n * 100), n).unwrap()).collect();
    wheel.schedule(Time::from_s(1), 99).unwrap();
    wheel.cancel(crowd[0]);
    let bound = wheel.next_expiry().unwrap();
    assert!(bound < ns(10_000_100));
    for handle in crowd {
        wheel.cancel(handle);
    }
    assert_eq!(due(&mut wheel, bound), []);
    assert_eq!(wheel.next_expiry(), Some(Time::from_s(1)));
}

#[derive(Clone, Debug)]
enum Act {
    Schedule(u64),
    SchedulePast(u64),
    Cancel(prop::sample::Index),
    Advance(u64),
    ToNextExpiry,
    StartOne,
    FinishOne,
}

/// Short and long spans alike, in nanoseconds.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..4u64,
        4 => 0..3_000u64,
        4 => (0..64u32, any::<u64>()).prop_map(|(bits, n)| n >> bits),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => span().prop_map(Act::Schedule),
        1 => span().prop_map(Act::SchedulePast),
        5 => any::<prop::sample::Index>().prop_map(Act::Cancel),
        3 => span().prop_map(Act::Advance),
        3 => Just(Act::ToNextExpiry),
        1 => Just(Act::StartOne),
        1 => Just(Act::FinishOne),
    ]
}

/// Model of the wheel: a sorted map, and the fate of each event.
#[derive(Default)]
struct Model {
    pending: BTreeMap<(Time, usize), usize>,
    handles: Vec<(Time, Handle)>,
    running: Vec<usize>,
}

impl Model {
    fn first_due(&mut self, now: Time) -> Option<usize> {
        let entry = self.pending.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

fn agree(acts: Vec<Act>, bound: usize) -> Result<(), TestCaseError> {
    let mut wheel = Wheel::new(bound);
    let mut model = Model::default();
    let mut now = Time::ZERO;
    for act in acts {
        match act {
            Act::Schedule(_) | Act::SchedulePast(_) => {
                let at = match act {
                    Act::Schedule(span) => ns(now.as_ns().saturating_add(span)),
                    Act::SchedulePast(span) => ns(now.as_ns().saturating_sub(span)),
                    _ => now,
                };
                let number = model.handles.len();
                let scheduled = wheel.schedule(at, number);
                let fits = model.pending.len() + model.running.len() < bound;
                prop_assert_eq!(scheduled.is_ok(), fits);
                if let Ok(handle) = scheduled {
                    model.handles.push((at, handle));
                    model.pending.insert((at, number), number);
                }
            }
            Act::Cancel(_) if model.handles.is_empty() => {}
            Act::Cancel(which) => {
                let number = which.index(model.handles.len());
                let (at, handle) = model.handles[number];
                let expected = if model.running.contains(&number) {
                    Cancel::Running
                } else if model.pending.remove(&(at, number)).is_some() {
                    Cancel::Cancelled(number)
                } else {
                    Cancel::Finished
                };
                prop_assert_eq!(wheel.cancel(handle), expected);
            }
            Act::Advance(_) | Act::ToNextExpiry => {
                now = match act {
                    Act::Advance(span) => ns(now.as_ns().saturating_add(span)),
                    _ => wheel.next_expiry().map_or(now, |expiry| expiry.max(now)),
                };
                while let Some((handle, number)) = wheel.pop_due(now) {
                    prop_assert_eq!(Some(number), model.first_due(now));
                    prop_assert!(wheel.finish(handle));
                }
                prop_assert_eq!(model.first_due(now), None);
                prop_assert!(wheel.next_expiry().is_none_or(|expiry| expiry > now));
            }
            Act::StartOne => {
                let started = wheel.pop_due(now).map(|(_, number)| number);
                prop_assert_eq!(started, model.first_due(now));
                model.running.extend(started);
            }
            Act::FinishOne => {
                if let Some(number) = model.running.pop() {
                    prop_assert!(wheel.finish(model.handles[number].1));
                }
            }
        }
        prop_assert_eq!(wheel.len(), model.pending.len());
        prop_assert_eq!(wheel.running(), model.running.len());
        // Fewer events than SCAN_MAX: the answer is exact.
        let earliest = model.pending.first_key_value().map(|((at, _), _)| *at);
        if bound <= SCAN_MAX {
            prop_assert_eq!(wheel.next_expiry(), earliest);
        } else {
            prop_assert_eq!(wheel.next_expiry().is_some(), earliest.is_some());
            prop_assert!(wheel.next_expiry() <= earliest);
        }
    }
    let mut left = 0;
    wheel.for_each(|at, number| left += usize::from(model.pending.contains_key(&(at, *number))));
    prop_assert_eq!(left, model.pending.len());
    Ok(())
}

proptest! {
    #[test]
    fn agrees_with_a_sorted_map(acts in prop::collection::vec(act(), 0..300)) {
        agree(acts, SCAN_MAX)?;
    }

    #[test]
    fn agrees_with_a_sorted_map_when_crowded(acts in prop::collection::vec(act(), 300..900)) {
        agree(acts, 10_000)?;
    }

    /// All in one tick, which is the heap's affair, in any order and with
    /// cancelling from its middle.
    #[test]
    fn a_crowded_tick_is_in_order(spans in prop::collection::vec(0..50u64, 1..CROWD), cancelled in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        let mut wheel = Wheel::new(1_000);
        let mut model = BTreeMap::new();
        let handles: Vec<_> = spans.iter().enumerate().map(|(number, span)| {
            model.insert((*span, number), number);
            (wheel.schedule(ns(*span), number).unwrap(), (*span, number))
        }).collect();
        let (half, rest) = cancelled.split_at(cancelled.len() / 2);
        for which in half {
            let (handle, key) = handles[which.index(handles.len())];
            prop_assert_eq!(wheel.cancel(handle) == Cancel::Cancelled(key.1), model.remove(&key).is_some());
        }
        for _ in 0..model.len() / 4 {
            let popped = wheel.pop_due(ns(100)).map(|(handle, number)| { wheel.finish(handle); number });
            prop_assert_eq!(popped, model.pop_first().map(|(_, number)| number));
        }
        for which in rest {
            let (handle, key) = handles[which.index(handles.len())];
            prop_assert_eq!(wheel.cancel(handle) == Cancel::Cancelled(key.1), model.remove(&key).is_some());
        }
        prop_assert_eq!(due(&mut wheel, ns(100)), model.into_values().collect::<Vec<_>>());
    }
}

/// Prints nanoseconds per operation: `cargo test --release -p xk-core
/// figures_of -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures, asserts none"]
fn figures_of_the_wheel() {
    const OPERATIONS: u32 = 1_000_000;
    let per = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS);
    for pending in [0usize, 1_000, 1_000_000] {
        let random = crate::random::Random::new(1);
        let spans: Vec<_> = (0..1024).map(|_| 1_000_000 + random.below(60_000_000_000)).collect();
        let mut wheel = Wheel::new(2_000_000);
        let mut handles: Vec<_> = (0..pending)
            .map(|n| wheel.schedule(ns(1_000_000 + random.below(60_000_000_000)), n).unwrap())
            .collect();
        let mut pairs = f64::MAX;
        for _ in 0..5 {
            let start = Instant::now();
            for n in 0..OPERATIONS as usize {
                let handle = wheel.schedule(ns(spans[n % 1024]), n).unwrap();
                std::hint::black_box(wheel.cancel(std::hint::black_box(handle)));
            }
            pairs = pairs.min(per(start));
        }
        std::print!("{pending:>8} pending: schedule + cancel {pairs:5.1} ns");
        if pending > 0 {
            let start = Instant::now();
            for n in 0..OPERATIONS as usize {
                let which = random.below(pending as u64) as usize;
                wheel.cancel(handles[which]);
                handles[which] = wheel.schedule(ns(spans[n % 1024]), n).unwrap();
            }
            std::print!(", of a random one {:6.1} ns", per(start));
            let start = Instant::now();
            let ran = due(&mut wheel, Time::from_s(100)).len();
            let each = start.elapsed().as_nanos() as f64 / ran as f64;
            std::print!(", run each {each:6.1} ns");
        }
        std::println!();
    }
}
