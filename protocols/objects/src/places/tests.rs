//! Places and searches against a model: objects that move from host to host, pointers that are
//! forgotten, hosts that do not answer, that lie, and that begin again.

use super::*;
use crate::objinv::{Next, Outcome, Tries};
use std::collections::BTreeMap as Truth;
use std::vec::Vec;
use xk_testkit::seeds;

const OBJECT: u64 = 7;

fn host(at: usize) -> HostAddr {
    HostAddr::from([10, 0, (at >> 8) as u8, at as u8])
}

fn at_of(place: HostAddr) -> usize {
    let [_, _, high, low] = place.to_v4().expect("an IPv4 address").octets();
    usize::from(high) << 8 | usize::from(low)
}

fn place(at: usize, count: u32) -> Place {
    Place { host: host(at), count }
}

/// Moves an object from one host to another, as both know it.
fn move_object(all: &mut [Places], eid: u64, from: usize, to: usize) {
    assert!(all[from].act(eid, Act::Freeze));
    let count = all[from].look(eid).place().unwrap().count + 1;
    assert!(all[to].act(eid, Act::Expect(place(from, count))));
    assert!(all[from].act(eid, Act::Depart(place(to, count))));
    assert!(all[to].act(eid, Act::Arrive));
}

/// Carries out a search, with the answer that `answer` gives for a host; the hosts that were asked
/// alone, and the result.
fn carry_out(
    mut search: Search,
    hosts: usize,
    mut answer: impl FnMut(usize, bool) -> Option<Known>,
) -> (u32, Known) {
    let mut asked = 0;
    loop {
        match search.step() {
            Step::Ask(host) => {
                asked += 1;
                assert!(asked < 500, "a search has an end");
                search.hear(answer(at_of(host), false));
            }
            Step::Broadcast(round) => {
                assert!(round < BROADCASTS);
                (0..hosts).for_each(|at| search.hear(answer(at, true)));
            }
            Step::Done(known) => return (asked, known),
        }
    }
}

/// The answer of an honest host.
fn honest(all: &[Places], at: usize, eid: u64, only_holder: bool) -> Option<Known> {
    let here = |Place { count, .. }| Place { host: host(at), count };
    match all[at].look(eid) {
        Known::Here(place) => Some(Known::Here(here(place))),
        Known::Coming(place) => Some(Known::Coming(here(place))),
        _ if only_holder => None,
        other => Some(other),
    }
}

#[test]
fn a_chain_is_followed_and_then_short() {
    let mut all: Vec<Places> = (0..4).map(|_| Places::new(Secret::known([1, 2]), 8, 8)).collect();
    assert!(all[1].act(OBJECT, Act::Create) && all[1].act(OBJECT, Act::Enter));
    assert!(!all[1].act(OBJECT, Act::Create), "it is here already");
    assert!(all[1].act(OBJECT, Act::Leave));
    assert!(all[0].act(OBJECT, Act::Learn(place(1, 1))));
    move_object(&mut all, OBJECT, 1, 2);
    move_object(&mut all, OBJECT, 2, 3);
    let search = all[0].search(OBJECT, None, &[]);
    let (asked, found) = carry_out(search, 4, |at, only| honest(&all, at, OBJECT, only));
    assert_eq!((asked, found), (3, Known::Here(place(3, 3))));
    assert!(all[0].act(OBJECT, Act::Learn(found.place().unwrap())));
    let search = all[0].search(OBJECT, None, &[]);
    let (asked, _) = carry_out(search, 4, |at, only| honest(&all, at, OBJECT, only));
    assert_eq!(asked, 1, "the chain is short from now on");
    assert!(!all[0].act(OBJECT, Act::Learn(place(1, 2))), "what is older is not believed");
}

#[test]
fn an_object_that_moves_executes_nothing() {
    let mut one = Places::new(Secret::known([1, 2]), 8, 8);
    assert!(one.act(OBJECT, Act::Create) && one.act(OBJECT, Act::Enter));
    assert!(one.act(OBJECT, Act::Freeze), "it may be wanted to move meanwhile");
    assert!(!one.act(OBJECT, Act::Enter) && !one.act(OBJECT, Act::Freeze));
    assert!(!one.act(OBJECT, Act::Depart(place(2, 2))), "but does not while it executes");
    assert!(one.act(OBJECT, Act::Leave) && one.act(OBJECT, Act::Thaw));
    assert_eq!(one.look(OBJECT).place().unwrap().count, 3, "an offer has a count of its own");
    assert!(one.act(OBJECT, Act::Enter) && one.busy(OBJECT) == Some(1));
    assert!(!one.act(OBJECT, Act::Expect(place(2, 9))), "what is here comes from nowhere");
    assert!(!one.act(OBJECT, Act::Learn(place(2, 9))), "and is not elsewhere");
}

#[test]
fn the_object_of_a_host_stays() {
    let mut one = Places::new(Secret::known([1, 2]), 4, 4);
    for act in [Act::Freeze, Act::Drop, Act::Expect(place(2, 9)), Act::Learn(place(2, 9))] {
        assert!(!one.act(NODE, act), "{act:?}");
    }
    assert!(one.act(NODE, Act::Create) && one.act(NODE, Act::Enter) && one.act(NODE, Act::Leave));
    assert!(matches!(one.look(NODE), Known::Here(_)));
    assert_eq!(one.len(), (0, 0));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut one = Places::new(Secret::known([1, 2]), 4, 4);
    for eid in 1..=100 {
        let made = one.act(eid, Act::Create);
        assert_eq!(made, eid < 5);
        one.act(1000 + eid, Act::Learn(place(1, 1)));
        one.act(1000 + eid, Act::Forget);
        one.act(1000 + eid, Act::Learn(place(1, 2)));
        let may_come = one.act(2000 + eid, Act::Expect(place(1, 1)));
        assert_eq!(may_come, eid < 2 && one.act(2000 + eid, Act::Drop), "half of the room is left");
        one.meet(host(eid as usize));
        let (own, hints) = one.len();
        assert!(own <= 4 && hints <= 4 && one.nodes.len() <= NODES_MAX);
    }
    assert_eq!(one.len(), (4, 4));
    assert!(matches!(one.look(1100), Known::Away(_)), "the newest are known");
}

#[test]
fn forged_answers_lead_round_no_circle() {
    // Each says that the object is at the next, always with the next count.
    let one = Places::new(Secret::known([1, 2]), 4, 4);
    let nodes: Vec<HostAddr> = (0..NODES_MAX).map(host).collect();
    let mut count = 1;
    let search = one.search(OBJECT, Some(host(1)), &nodes);
    let (asked, found) = carry_out(search, NODES_MAX, |at, _| {
        count += 1;
        Some(Known::Away(place((at + 1) % NODES_MAX, count)))
    });
    assert_eq!(found, Known::Nothing);
    let chain = u32::from(HOPS_MAX) + 1;
    let most = 4 * chain + u32::from(ROUNDS) * NODES_MAX as u32;
    assert!(asked <= most, "{asked} of {most}");
    // Those in a circle of old counts are seen through at once.
    let search = one.search(OBJECT, Some(host(1)), &[]);
    let (asked, _) =
        carry_out(search, 2, |at, only| (!only).then(|| Known::Away(place(1 - at.min(1), 5))));
    assert_eq!(asked, 2);
    // An invocation is not led round, either.
    let mut tries = Tries::default();
    let (mut hops, mut count) = (0, 0);
    loop {
        count += 1;
        match tries.after(Outcome::Away(place(1, count))) {
            Next::There => (hops, tries.count) = (hops + 1, count),
            Next::Search => hops += 1,
            _ => break,
        }
    }
    assert!(hops <= u32::from(HOPS_MAX) + 2);
}

#[test]
fn tries_have_an_end() {
    let mut tries = Tries::default();
    let mut waited = core::time::Duration::ZERO;
    while let Next::After(time) = tries.after(Outcome::Moving) {
        waited += time;
    }
    assert!((15..25).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(tries.after(Outcome::Nothing), Next::Search);
    assert_eq!(tries.after(Outcome::Away(place(1, 0))), Next::Search, "what is older is nothing");
    assert!(matches!(tries.after(Outcome::Nothing), Next::Fail(_)));
}

/// Hosts among which an object moves; some forget, some are silent, some lie. An object at a host
/// that answers is found, and the search ends within its bounds.
fn wander(seed: u64) {
    let random = xk_core::random::Random::new(seed);
    let below = |most: u64| random.below(most) as usize;
    let hosts = 2 + below(8);
    let mut all: Vec<Places> =
        (0..hosts).map(|_| Places::new(Secret::known([1, 2]), 8, 8)).collect();
    let mut truth: Truth<u64, usize> = Truth::new();
    for eid in 1..4 {
        let at = below(hosts as u64);
        assert!(all[at].act(eid, Act::Create));
        truth.insert(eid, at);
    }
    let nodes: Vec<HostAddr> = (0..hosts).map(host).collect();
    let liar = below(2 * hosts as u64);
    for _ in 0..60 {
        let eid = 1 + below(3) as u64;
        let from = truth[&eid];
        match below(8) {
            0..=3 => {
                let to = below(hosts as u64);
                if to != from {
                    move_object(&mut all, eid, from, to);
                    truth.insert(eid, to);
                }
            }
            4 => {
                // A host begins again, without its hints.
                let at = below(hosts as u64);
                for eid in 1..4 {
                    all[at].act(eid, Act::Forget);
                }
            }
            _ => {
                let by = below(hosts as u64);
                let silent = below(hosts as u64);
                let can_broadcast = below(2) == 0;
                let mut lies = [0_u32; 2];
                let hint = (below(2) == 0).then(|| host(below(hosts as u64)));
                let search = all[by].search(eid, hint, &nodes);
                let (_, found) = carry_out(search, hosts, |at, only_holder| {
                    if at == silent || only_holder && !can_broadcast {
                        return None;
                    }
                    if at == liar {
                        lies[0] += 1;
                        let lie = place((at + 1) % hosts, below(100) as u32);
                        return Some(Known::Away(lie));
                    }
                    honest(&all, at, eid, only_holder)
                });
                if from != silent && from != liar {
                    let right = all[from].look(eid).place().unwrap().count;
                    assert_eq!(found, Known::Here(place(from, right)), "object {eid}");
                }
                if let Some(place) = found.place() {
                    all[by].act(eid, Act::Forget);
                    all[by].act(eid, Act::Learn(place));
                }
            }
        }
        for (eid, at) in &truth {
            let here = |(_, one): &(usize, &Places)| matches!(one.look(*eid), Known::Here(_));
            let places: Vec<usize> =
                all.iter().enumerate().filter(here).map(|(at, _)| at).collect();
            assert_eq!(places, [*at], "object {eid} is at one host");
        }
    }
}

#[test]
fn objects_that_wander_are_found() {
    seeds::of(1).run(wander);
}
