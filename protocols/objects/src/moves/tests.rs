//! Moves by themselves: hosts whose messages are lost, repeated and overtake each other, and that
//! die at every step and are started again, with what they knew or without it.

use super::*;
use crate::places::{Act, Known, Place, Places};
use std::vec;
use std::vec::Vec;
use xk_core::random::Random;
use xk_testkit::seeds;

fn host(at: usize) -> HostAddr {
    HostAddr::from([10, 0, 0, at as u8])
}

fn at_of(host: HostAddr) -> usize {
    usize::from(host.to_v4().expect("an IPv4 address").octets()[3])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Offer,
    Kept,
    NotKept,
    Take,
    Taken,
    Unknown,
    Whose(u32),
    Is(Whose),
}

#[derive(Clone, Copy, Debug)]
struct Letter {
    from: usize,
    to: usize,
    eid: u64,
    count: u32,
    boot: u32,
    said: Said,
}

/// A host: what it knows, and the moves for whose answers a shepherd waits.
#[derive(Debug)]
struct Host {
    places: Places,
    moves: Moves,
    waits: Vec<(u64, Place)>,
}

impl Host {
    fn new(boot: u32) -> Self {
        Self { places: Places::new(8, 8), moves: Moves::new(boot, 4), waits: Vec::new() }
    }
}

struct World {
    hosts: Vec<Host>,
    letters: Vec<Letter>,
    now: Duration,
    boots: u32,
    /// Objects that were lost with a host.
    has_forgotten: bool,
}

impl World {
    fn new(hosts: u32) -> Self {
        let all = (0..hosts).map(Host::new).collect();
        let letters = Vec::new();
        Self { hosts: all, letters, now: Duration::ZERO, boots: hosts, has_forgotten: false }
    }

    fn send(&mut self, from: usize, to: usize, (eid, count): (u64, u32), said: Said) {
        let boot = self.hosts[from].moves.boot();
        self.letters.push(Letter { from, to, eid, count, boot, said });
    }

    /// Begins to move an object that is at `from`; false if it cannot.
    fn begin(&mut self, eid: u64, from: usize, to: usize) -> bool {
        let one = &mut self.hosts[from];
        if from == to || !one.places.act(eid, Act::Freeze) {
            return false;
        }
        let count = one.places.look(eid).place().unwrap().count + 1;
        if !one.moves.offer(eid, count, host(to), self.now) {
            assert!(one.places.act(eid, Act::Thaw));
            return false;
        }
        one.waits.push((eid, Place { host: host(to), count }));
        self.send(from, to, (eid, count), Said::Offer);
        true
    }

    /// Gives up waiting for the answer to an offer.
    fn give_up(&mut self, at: usize, eid: u64) {
        let one = &mut self.hosts[at];
        one.waits.retain(|(waits, _)| *waits != eid);
        if one.moves.abort(eid) {
            assert!(one.places.act(eid, Act::Thaw));
        }
    }

    /// Ends what is kept at a host.
    fn end(&mut self, at: usize, (eid, count): (u64, u32), from: usize, is_ours: bool) -> bool {
        let one = &mut self.hosts[at];
        let act = if is_ours { Act::Arrive } else { Act::Drop };
        one.moves.release(eid, count, Some(host(from))) && one.places.act(eid, act)
    }

    fn deliver(&mut self, letter: Letter) {
        let Letter { from, to, eid, count, boot, said } = letter;
        let (now, subject) = (self.now, (eid, count));
        let one = &mut self.hosts[to];
        match said {
            Said::Offer => {
                let expect = Act::Expect(Place { host: host(from), count });
                let keeps = one.moves.keep(subject, host(from), boot, now);
                let is_kept = keeps && one.places.act(eid, expect);
                if keeps && !is_kept {
                    one.moves.release(eid, count, Some(host(from)));
                }
                self.send(to, from, subject, if is_kept { Said::Kept } else { Said::NotKept });
            }
            Said::Kept | Said::NotKept => {
                let place = Place { host: host(from), count };
                if !one.waits.contains(&(eid, place)) {
                    return;
                }
                if said == Said::NotKept {
                    return self.give_up(to, eid);
                }
                one.waits.retain(|(waits, _)| *waits != eid);
                assert!(one.moves.commit(eid, count), "an offer that is waited for is open");
                assert!(one.places.act(eid, Act::Depart(place)), "and its object is here");
                self.send(to, from, subject, Said::Take);
            }
            Said::Take => {
                let is_taken = self.end(to, subject, from, true)
                    || match self.hosts[to].places.look(eid) {
                        Known::Here(place) | Known::Away(place) => place.count >= count,
                        Known::Coming(place) => place.count > count,
                        Known::Nothing => false,
                    };
                self.send(to, from, subject, if is_taken { Said::Taken } else { Said::Unknown });
            }
            Said::Taken | Said::Unknown => {
                let was = one.moves.len().0;
                one.moves.confirmed(eid, count);
                let lost = said == Said::Unknown && one.moves.len().0 < was;
                assert!(!lost || self.has_forgotten, "nothing is lost but with a host");
            }
            Said::Whose(boot) => {
                let whose = one.moves.whose(subject, host(from), boot);
                self.send(to, from, subject, Said::Is(whose));
            }
            Said::Is(Whose::Yours) => drop(self.end(to, subject, from, true)),
            Said::Is(Whose::NotYours) => drop(self.end(to, subject, from, false)),
            Said::Is(Whose::Wait) => {}
            Said::Is(Whose::Forgotten) => {
                let others = self.hosts.iter().enumerate().filter(|(at, _)| *at != to);
                let is_elsewhere =
                    others.into_iter().any(|(_, other)| match other.places.look(eid) {
                        Known::Here(_) => true,
                        Known::Coming(place) => place.count > count,
                        _ => false,
                    });
                self.end(to, subject, from, !is_elsewhere);
            }
        }
    }

    /// Does what is due at all hosts after a time.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        for at in 0..self.hosts.len() {
            for due in self.hosts[at].moves.due(self.now) {
                match due {
                    Due::Tell(eid, count, to) => self.send(at, at_of(to), (eid, count), Said::Take),
                    Due::Ask(eid, count, from, boot) => {
                        self.send(at, at_of(from), (eid, count), Said::Whose(boot));
                    }
                }
            }
        }
    }

    /// A host dies and is started again: with what it knew of objects, but without shepherds that
    /// wait, or without anything.
    fn restart(&mut self, at: usize, remembers: bool) {
        if remembers {
            let waits: Vec<u64> = self.hosts[at].waits.iter().map(|(eid, _)| *eid).collect();
            waits.into_iter().for_each(|eid| self.give_up(at, eid));
        } else {
            self.hosts[at] = Host::new(self.boots);
            (self.boots, self.has_forgotten) = (self.boots + 1, true);
        }
    }

    /// Hosts that have the object, each with its count.
    fn here(&self, eid: u64) -> Vec<(usize, u32)> {
        let here = |(at, one): (usize, &Host)| match one.places.look(eid) {
            Known::Here(place) => Some((at, place.count)),
            _ => None,
        };
        self.hosts.iter().enumerate().filter_map(here).collect()
    }

    /// Hosts to which the object was given up, and that have not heard of it.
    fn on_the_way(&self, eid: u64) -> usize {
        let gives = |one: &Host| {
            let half = one.moves.leaving.get(&eid).filter(|half| half.is_settled)?;
            let other = &self.hosts[at_of(half.host)];
            let kept = other.moves.coming.get(&eid)?;
            (kept.count == half.count).then_some(())
        };
        self.hosts.iter().filter_map(gives).count()
    }

    /// The law: one place, or one transfer that is recorded; never two with one count.
    fn check(&self, eid: u64) {
        let here = self.here(eid);
        let mut counts: Vec<u32> = here.iter().map(|(_, count)| *count).collect();
        counts.sort_unstable();
        counts.dedup();
        assert_eq!(counts.len(), here.len(), "two places have one count: {here:?}");
        let all = here.len() + self.on_the_way(eid);
        match self.has_forgotten {
            false => assert_eq!(all, 1, "object {eid}: {here:?}"),
            true => assert!(all <= 1, "object {eid}: {here:?}"),
        }
    }
}

#[test]
fn a_move_takes_two_round_trips() {
    let mut world = World::new(2);
    assert!(world.hosts[0].places.act(7, Act::Create) && world.begin(7, 0, 1));
    assert!(!world.begin(7, 0, 1), "one move at a time");
    for said in [Said::Offer, Said::Kept, Said::Take, Said::Taken] {
        let letter = world.letters.remove(0);
        assert_eq!(letter.said, said);
        world.deliver(letter);
        world.check(7);
    }
    assert_eq!((world.here(7), world.letters.len()), (vec![(1, 2)], 0));
    assert_eq!((world.hosts[0].moves.next(), world.hosts[1].moves.next()), (None, None));
}

#[test]
fn a_mover_that_dies_at_any_step_leaves_one_place() {
    for (dies_at, victim, remembers) in
        (0..5).flat_map(|step| [(step, 0, true), (step, 1, true), (step, 0, false)])
    {
        let mut world = World::new(3);
        assert!(world.hosts[0].places.act(7, Act::Create) && world.begin(7, 0, 1));
        for step in 0..200 {
            if step == dies_at {
                world.restart(victim, remembers);
            }
            match world.letters.is_empty() {
                true => world.pass(Duration::from_secs(1)),
                false => {
                    let letter = world.letters.remove(0);
                    world.deliver(letter);
                }
            }
            world.check(7);
        }
        let what = std::format!("host {victim} died at step {dies_at}, remembers: {remembers}");
        assert_eq!(world.here(7).len(), 1, "{what}");
        assert!(world.hosts.iter().all(|one| one.moves.len() == (0, 0)), "{what}");
    }
}

#[test]
fn forged_moves_are_bounded_and_take_nothing() {
    let mut world = World::new(3);
    assert!(world.hosts[0].places.act(7, Act::Create) && world.begin(7, 0, 1));
    let offer = world.letters.remove(0);
    world.deliver(offer);
    // A third host gives away what is not its own, and asks for it.
    for (said, to) in [
        (Said::Take, 1),
        (Said::Kept, 0),
        (Said::Whose(0), 0),
        (Said::Is(Whose::Yours), 1),
        (Said::Is(Whose::NotYours), 1),
        (Said::Offer, 0),
        (Said::Taken, 0),
    ] {
        for count in [1, 2, 9] {
            let boot = 0;
            world.deliver(Letter { from: 2, to, eid: 7, count, boot, said });
        }
    }
    assert_eq!(world.here(7), [(0, 1)], "it is where it was");
    assert_eq!(world.hosts[1].moves.len(), (0, 1), "and kept where it goes");
    for eid in 100..200 {
        world.deliver(Letter { from: 2, to: 1, eid, count: 5, boot: 0, said: Said::Offer });
    }
    assert_eq!(world.hosts[1].moves.len(), (0, 4), "no more than there may be");
}

/// Hosts move three objects by chance, and anything may happen to letters and hosts. In the end
/// each object is at one host, but for those that were lost with theirs.
fn wander(seed: u64, forget: bool) {
    let random = Random::new(seed);
    let below = |most: usize| random.below(most as u64) as usize;
    let count = 2 + below(5);
    let mut world = World::new(count as u32);
    for eid in 1..4 {
        assert!(world.hosts[below(count)].places.act(eid, Act::Create));
    }
    for _ in 0..400 {
        match below(12) {
            0 | 1 => {
                let eid = 1 + below(3) as u64;
                if let Some((from, _)) = world.here(eid).first() {
                    world.begin(eid, *from, below(count));
                }
            }
            2 => world.pass(Duration::from_millis(200 * below(20) as u64)),
            3 if below(4) == 0 => world.restart(below(count), !forget || below(4) > 0),
            4 => {
                let at = below(count);
                if let Some((eid, _)) = world.hosts[at].waits.first().copied() {
                    world.give_up(at, eid);
                }
            }
            _ if !world.letters.is_empty() => {
                let at = below(world.letters.len());
                match below(10) {
                    0 | 1 => drop(world.letters.swap_remove(at)),
                    2 => world.deliver(world.letters[at]),
                    _ => {
                        let letter = world.letters.swap_remove(at);
                        world.deliver(letter);
                    }
                }
            }
            _ => {}
        }
        (1..4).for_each(|eid| world.check(eid));
    }
    // From now on nothing is lost.
    for _ in 0..200 {
        world.pass(Duration::from_secs(30));
        while !world.letters.is_empty() {
            let letter = world.letters.remove(0);
            world.deliver(letter);
            (1..4).for_each(|eid| world.check(eid));
        }
        (0..count).for_each(|at| {
            let waits: Vec<u64> = world.hosts[at].waits.iter().map(|(eid, _)| *eid).collect();
            waits.into_iter().for_each(|eid| world.give_up(at, eid));
        });
    }
    for eid in 1..4 {
        let here = world.here(eid).len();
        assert!(here == 1 || forget && here == 0, "object {eid} is at {here} hosts");
    }
    assert!(world.hosts.iter().all(|one| one.moves.len() == (0, 0)), "no move goes on");
}

#[test]
fn objects_on_the_move_are_at_one_host() {
    seeds::of(1).run(|seed| wander(seed, false));
}

#[test]
fn hosts_that_forget_make_no_second_object() {
    seeds::of(1).run(|seed| wander(seed, true));
}
