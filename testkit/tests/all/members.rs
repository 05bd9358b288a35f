//! Membership in the simulator, below total order: hosts that are cut off from the others, in two
//! sides and in three, and come back; and forged votes.

use crate::total_order::Group;
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::control::ListSessions;
use xk_core::object::PushError;
use xk_core::random::Random;
use xk_kit::group::{MaskOut, Outstanding, TakeOwn, TakeViews, View, ViewChange};
use xk_testkit::seeds;

const MS: Duration = Duration::from_millis(1);
const LAYERS: &str = "psync ip\n membership psync\n order membership";

fn drops(group: &mut Group, at: usize, of: &'static str) -> Vec<(&'static str, u64)> {
    let list = group
        .world
        .enter(group.hosts[at], |cx| cx.find_protocol(of).unwrap().head().drops().list());
    list.unwrap().into_iter().map(|(reason, count)| (reason.name, count)).collect()
}

/// Cuts every two hosts of different sides off from each other, or joins all.
fn part(group: &Group, sides: &[u8]) {
    for (at, one) in sides.iter().enumerate() {
        for (to, other) in sides.iter().enumerate().skip(at + 1) {
            let (a, b) = (group.hosts[at], group.hosts[to]);
            let _ = group.world.network().repair(a, b);
            if one != other {
                group.world.network().partition(a, b);
            }
        }
    }
}

fn view(group: &mut Group, at: usize) -> View {
    group.ask(at, View::default()).unwrap()
}

/// The error of a push at a host; `None` if it has not failed at once.
fn refusal(group: &mut Group, at: usize) -> Option<PushError> {
    let (session, error) = (group.sessions[at].clone(), Rc::new(RefCell::new(None)));
    let failed = Rc::clone(&error);
    group.world.spawn(group.hosts[at], move |cx| {
        let message = cx.pool().copy_from(128, b"refused").unwrap();
        *failed.borrow_mut() = session.push(cx, message).err();
    });
    group.pass(MS);
    error.borrow_mut().take()
}

/// A conversation by chance, of whose members fewer than half are cut off on the way.
fn converse(seed: u64) {
    let random = Random::new(seed);
    let n = 3 + random.below(5) as usize;
    let loss = random.below(16) as f64 / 100.0;
    let link = format!(
        "delay=\"{}us\" jitter=\"{}us\" loss=\"{loss}\" duplicate=\"0.1\" reorder=\"0.2\"",
        10 + random.below(5000),
        1 + random.below(5000)
    );
    let layers = match seed % 2 {
        0 => LAYERS,
        _ => "psync ip upcalls=3\n membership psync\n order membership safe=#true",
    };
    let mut group = Group::new(n, layers, &link, seed);
    let mut pushed: Vec<Vec<String>> = vec![Vec::new(); n];
    let mut talk = |group: &mut Group, most: usize, count: usize| {
        for _ in 0..count {
            let at = random.below(most as u64) as usize;
            let text = format!("{at}:{}", pushed[at].len());
            group.push(at, &text);
            pushed[at].push(text);
            if random.chance(0.4) {
                group.pass(Duration::from_micros(random.below(20_000)));
            }
        }
    };
    let most = n / 2 + 1 + random.below((n as u64).div_ceil(2)) as usize;
    talk(&mut group, n, 10 * n);
    group.pass(random.below(50) as u32 * MS);
    let sides: Vec<u8> = (0..n).map(|at| u8::from(at >= most)).collect();
    part(&group, &sides);
    talk(&mut group, most, 5 * n);
    group.pass(30_000 * MS);
    talk(&mut group, most, 3 * n);
    group.pass(100_000 * MS);
    let one = group.texts(0);
    for (at, pushed) in pushed.iter().enumerate().take(most) {
        let own = view(&mut group, at);
        assert_eq!((own.members, own.has_quorum), ((1 << most) - 1, true), "seed {seed}: {at}");
        assert_eq!(group.ask(at, Outstanding::default()).unwrap().ready, 0, "seed {seed}: {at}");
        assert!(at == 0 || group.texts(at) == one, "seed {seed}: order of {at} of {most} of {n}");
        assert_eq!(drops(&mut group, at, "order"), [], "seed {seed}: at {at}");
        let mut others = drops(&mut group, at, "membership");
        others.retain(|(why, _)| *why != "beyond the cut");
        assert_eq!(others, [], "seed {seed}: at {at}");
        let own = format!("{at}:");
        let heard: Vec<&String> = one.iter().filter(|text| text.starts_with(&own)).collect();
        assert!(heard.into_iter().eq(pushed), "seed {seed}: all of {at}'s in their order");
    }
    for at in most..n {
        let own = view(&mut group, at);
        assert_eq!((own.has_quorum, own.changes), (false, 0), "seed {seed}: {at}");
        assert_eq!(refusal(&mut group, at), Some(PushError::NoRoute), "seed {seed}: {at}");
        // Without `safe` it may have passed up what only members on its side have.
        let is_known = |text: &String| one.contains(text);
        let (known, lone): (Vec<String>, Vec<String>) =
            group.texts(at).into_iter().partition(is_known);
        let is_lost = |text: &String| {
            let sender = text.split(':').next().and_then(|sender| sender.parse().ok());
            seed.is_multiple_of(2) && sender.is_some_and(|sender: usize| sender >= most)
        };
        assert!(one.starts_with(&known), "seed {seed}: {at} has heard others");
        assert!(lone.iter().all(is_lost), "seed {seed}: {at} has heard {lone:?} alone");
    }
    part(&group, &vec![0; n]);
    come_back(&mut group, &(most..n).collect::<Vec<usize>>(), seed);
}

/// Members that the others are without come back: all have one view, and receive the same.
fn come_back(group: &mut Group, all: &[usize], seed: u64) {
    group.pass(60_000 * MS);
    let n = group.hosts.len();
    for at in all {
        let mut opened = group.tops[*at].take_opened();
        let (session, ends) = opened.pop().unwrap_or_else(|| panic!("seed {seed}: {at} is out"));
        assert_eq!(ends.len(), n);
        session.hold();
        group.sessions[*at] = session;
        group.ask(*at, TakeOwn);
    }
    (0..2 * n).for_each(|round| group.push(round % n, &format!("{} again {round}", round % n)));
    group.pass(60_000 * MS);
    let one = group.texts(0);
    assert_eq!(one.len(), 2 * n, "seed {seed}: {one:?}");
    for at in 0..n {
        let View { members, has_quorum, .. } = view(group, at);
        assert_eq!((members, has_quorum), ((1 << n) - 1, true), "seed {seed}: {at} of {n}");
        assert!(at == 0 || group.texts(at) == one, "seed {seed}: {at} of {n}");
        assert_eq!(
            drops(group, at, "order").iter().filter(|(why, _)| *why == "after its wave").count(),
            0
        );
    }
}

#[test]
fn the_majority_goes_on_without_those_that_are_cut_off() {
    seeds::of(4).run(converse);
}

#[test]
fn a_member_that_fails_is_missed_after_two_seconds() {
    let mut group = Group::new(3, LAYERS, "delay=\"5ms\"", 1);
    group.ask(0, TakeViews);
    (0..3).for_each(|at| group.push(at, "before"));
    group.pass(500 * MS);
    part(&group, &[0, 0, 1]);
    let (at, _) = (group.world.now(), (0..3).for_each(|at| drop(group.texts(at))));
    group.push(0, "after");
    group.pass(10_000 * MS);
    let all = group.tops[0].take_received();
    let changes: Vec<ViewChange> = all.iter().filter_map(|one| one.message.attribute()).collect();
    let [change] = changes[..] else { panic!("{changes:?}") };
    assert_eq!((change.members, change.member, change.has_quorum), (0b11, Some(2), true));
    assert_eq!(all.len(), 2);
    let took = all.iter().map(|one| one.at.since(at)).max().unwrap();
    println!("gone on after {took:?}");
    assert!((1500 * MS..2700 * MS).contains(&took), "{took:?}");
    assert_eq!(refusal(&mut group, 2), Some(PushError::NoRoute));
    assert!(drops(&mut group, 2, "order").contains(&("too few members", 1)));
}

#[test]
fn sides_without_a_majority_wait_and_go_on_together() {
    for sides in [&[0, 0, 1, 1, 2][..], &[0, 1], &[0, 0, 1, 1], &[0, 1, 2, 3, 4]] {
        let n = sides.len();
        let mut group = Group::new(n, LAYERS, "delay=\"1ms\"", 1);
        (0..n).for_each(|at| group.push(at, &format!("{at} before")));
        group.pass(500 * MS);
        part(&group, sides);
        (0..n).for_each(|at| group.push(at, &format!("{at} into the cut")));
        group.pass(60_000 * MS);
        for at in 0..n {
            let View { has_quorum, changes, .. } = view(&mut group, at);
            assert_eq!((has_quorum, changes), (false, 0), "{sides:?}: {at}");
            assert_eq!(refusal(&mut group, at), Some(PushError::NoRoute), "{sides:?}: {at}");
        }
        part(&group, &vec![0; n]);
        group.pass(20_000 * MS);
        (0..n).for_each(|at| group.push(at, &format!("{at} after")));
        group.pass(20_000 * MS);
        let one = group.texts(0);
        assert_eq!(one.len(), 3 * n, "{sides:?}");
        for at in 0..n {
            let View { members, has_quorum, changes } = view(&mut group, at);
            assert_eq!((members, has_quorum, changes), ((1 << n) - 1, true, 0), "{sides:?}: {at}");
            assert!(at == 0 || group.texts(at) == one, "{sides:?}: {at}");
        }
    }
}

/// A link between two members fails: the others pass on what they say.
#[test]
fn members_that_hear_each_other_by_others_stay() {
    let n = 4;
    let mut group = Group::new(n, LAYERS, "delay=\"1ms\"", 1);
    group.world.network().partition(group.hosts[1], group.hosts[2]);
    for round in 0..100 {
        (0..n).for_each(|at| group.push(at, &format!("{at}:{round}")));
        group.pass(500 * MS);
    }
    group.pass(20_000 * MS);
    let one = group.texts(0);
    assert_eq!(one.len(), 100 * n);
    for at in 0..n {
        let View { members, changes, .. } = view(&mut group, at);
        assert_eq!((members, changes), (0b1111, 0), "{at}");
        assert!(at == 0 || group.texts(at) == one);
    }
}

/// A member tells votes that it has not made up its mind to.
#[test]
fn forged_votes_are_counted_and_change_nothing() {
    let n = 5;
    let mut group = Group::new(n, LAYERS, "delay=\"1ms\"", 1);
    let host = group.hosts[4];
    assert!(group.ask(4, MaskOut { index: 0, last: 0 }).is_none(), "one alone does not decide");
    group.world.enter(host, |cx| {
        let list = cx.find_protocol("psync").unwrap().ask(cx, ListSessions::first(9)).unwrap();
        let lower = list.here().next().expect("it stands on one").clone();
        let vote = |numbers: [u64; 5]| {
            [1, 5]
                .into_iter()
                .chain(numbers.into_iter().flat_map(u64::to_be_bytes))
                .collect::<Vec<u8>>()
        };
        const OUT: u64 = 1 << 48;
        let votes: [Vec<u8>; 10] = [
            vec![],
            vec![2, 0],
            vec![1, 4, 0, 0, 0, 0, 0, 0, 0, 0],
            vote([0; 5])[..41].to_vec(),
            // Nothing new, numbers that none has reached, too few left.
            vote([0; 5]),
            vote([0xffff << 48, 0, 0, 0, 0]),
            vote([2 * OUT, 0, 0, 0, 0]),
            vote([1, 0, 0, 0, 0]),
            vote([OUT, OUT, OUT, 0, 0]),
            vote([OUT, OUT, OUT, 0, 0]),
        ];
        for octets in votes {
            lower.push(cx, cx.pool().copy_from(128, &octets).unwrap()).unwrap();
        }
    });
    group.pass(1000 * MS);
    for at in 0..4 {
        let counted = drops(&mut group, at, "membership");
        let of = |name| counted.iter().find(|(reason, _)| *reason == name).map_or(0, |(_, n)| *n);
        assert_eq!((of("malformed"), of("old vote"), of("too few left")), (4, 5, 1), "{counted:?}");
        assert_eq!(view(&mut group, at).members, 0b11111);
    }
}
