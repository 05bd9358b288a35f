//! Moves by themselves: hosts whose messages are lost, repeated and overtake each other, that are
//! cut off, and that die at every step, for good or to be started again, with what they knew or
//! without it.
//!
//! The law: an object is never at two places with one count, and never at none but where a host has
//! recorded that it gave it up; and every move ends, within a bounded time.

use super::*;
use crate::places::{Act, Known, Place, Places};
use std::vec;
use std::vec::Vec;
use xk_core::Secret;
use xk_core::random::Random;
use xk_testkit::seeds;

/// The time for which a host waits for the answer to an offer.
const ANSWER_MAX: Duration = Duration::from_secs(3);

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
    waits: Vec<(u64, Place, Duration)>,
}

impl Host {
    fn new(boot: u32) -> Self {
        Self {
            places: Places::new(Secret::known([1, 2]), 8, 8),
            moves: Moves::new(boot, 4),
            waits: Vec::new(),
        }
    }
}

struct World {
    hosts: Vec<Host>,
    letters: Vec<Letter>,
    now: Duration,
    boots: u32,
    /// Objects may have been lost with a host.
    has_forgotten: bool,
    /// A host whose letters are lost, both ways.
    cut_off: Option<usize>,
    /// A host has been cut off.
    was_cut: bool,
}

impl World {
    fn new(hosts: u32) -> Self {
        let all = (0..hosts).map(Host::new).collect();
        let letters = Vec::new();
        let (has_forgotten, cut_off, was_cut) = (false, None, false);
        let now = Duration::ZERO;
        Self { hosts: all, letters, now, boots: hosts, has_forgotten, cut_off, was_cut }
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
        if !one.moves.offer((eid, count), host(to)) {
            assert!(one.places.act(eid, Act::Thaw));
            return false;
        }
        one.waits.push((eid, Place { host: host(to), count }, self.now + ANSWER_MAX));
        self.send(from, to, (eid, count), Said::Offer);
        true
    }

    /// Gives up waiting for the answer to an offer.
    fn give_up(&mut self, at: usize, eid: u64) {
        let one = &mut self.hosts[at];
        one.waits.retain(|(waits, ..)| *waits != eid);
        if one.moves.abort(eid) {
            assert!(one.places.act(eid, Act::Thaw));
        }
    }

    /// Ends what is kept at a host.
    fn end(&mut self, at: usize, subject: Subject, from: (usize, u32), act: Act) -> bool {
        let (one, from) = (&mut self.hosts[at], (host(from.0), from.1));
        one.moves.release(subject, from).is_some() && one.places.act(subject.0, act)
    }

    /// Ends what is kept at a host by what the others say, but for one that is cut off.
    fn decide(&mut self, at: usize, (eid, count): Subject, from: (usize, u32)) {
        let is_found = |(other, one): (usize, &Host)| match one.places.look(eid) {
            _ if other == at || [Some(other), Some(at)].contains(&self.cut_off) => false,
            Known::Here(_) => true,
            Known::Coming(place) => place.count > count,
            _ => false,
        };
        let is_elsewhere = self.hosts.iter().enumerate().any(is_found);
        let act = if is_elsewhere { Act::Drop } else { Act::Adopt };
        self.end(at, (eid, count), from, act);
    }

    fn deliver(&mut self, letter: Letter) {
        let Letter { from, to, eid, count, boot, said } = letter;
        if [Some(from), Some(to)].contains(&self.cut_off) {
            return;
        }
        let (now, subject) = (self.now, (eid, count));
        let one = &mut self.hosts[to];
        let asked = one.moves.coming.get(&eid).map_or(0, |(half, ())| half.boot);
        match said {
            Said::Offer => {
                let expect = Act::Expect(Place { host: host(from), count });
                let kept = one.moves.keep(subject, (host(from), boot), Some(now), || ());
                let is_kept = kept.is_some() && one.places.act(eid, expect);
                if kept == Some(true) && !is_kept {
                    one.moves.release(subject, (host(from), boot));
                }
                self.send(to, from, subject, if is_kept { Said::Kept } else { Said::NotKept });
            }
            Said::Kept | Said::NotKept => {
                let place = Place { host: host(from), count };
                if !one.waits.iter().any(|(waits, to, _)| (*waits, *to) == (eid, place)) {
                    return;
                }
                if said == Said::NotKept {
                    return self.give_up(to, eid);
                }
                one.waits.retain(|(waits, ..)| *waits != eid);
                assert!(one.moves.commit(subject, now), "an offer that is waited for is open");
                assert!(one.places.act(eid, Act::Depart(place)), "and its object is here");
                self.send(to, from, subject, Said::Take);
            }
            Said::Take => {
                let is_taken = self.end(to, subject, (from, boot), Act::Arrive)
                    || match self.hosts[to].places.look(eid) {
                        Known::Here(place) | Known::Away(place) => place.count >= count,
                        Known::Coming(place) => place.count > count,
                        Known::Nothing => false,
                    };
                self.send(to, from, subject, if is_taken { Said::Taken } else { Said::Unknown });
            }
            Said::Taken | Said::Unknown => {
                let was = one.moves.len().0;
                one.moves.confirmed(subject);
                let lost = said == Said::Unknown && one.moves.len().0 < was;
                assert!(!lost || self.has_forgotten || self.was_cut, "nothing is lost alone");
            }
            Said::Whose(boot) => {
                let whose = one.moves.whose(subject, host(from), boot);
                self.send(to, from, subject, Said::Is(whose));
            }
            Said::Is(Whose::Yours) => {
                let _ = self.end(to, subject, (from, asked), Act::Arrive);
            }
            Said::Is(Whose::NotYours) => drop(self.end(to, subject, (from, asked), Act::Drop)),
            Said::Is(Whose::Wait) => {}
            Said::Is(Whose::Forgotten) => self.decide(to, subject, (from, asked)),
        }
    }

    fn deliver_all(&mut self) {
        while !self.letters.is_empty() {
            let letter = self.letters.remove(0);
            self.deliver(letter);
        }
    }

    /// Does what is due at all hosts after a time.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        for at in 0..self.hosts.len() {
            let late = self.hosts[at].waits.iter().filter(|(_, _, until)| *until <= self.now);
            let late: Vec<u64> = late.map(|(eid, ..)| *eid).collect();
            late.into_iter().for_each(|eid| self.give_up(at, eid));
            for due in self.hosts[at].moves.due(self.now) {
                match due {
                    Due::Tell(subject, to) => self.send(at, at_of(to), subject, Said::Take),
                    Due::Ask(subject, from, boot) => {
                        self.send(at, at_of(from), subject, Said::Whose(boot));
                    }
                    Due::Decide(subject, from, boot) => {
                        self.decide(at, subject, (at_of(from), boot));
                    }
                }
            }
        }
    }

    /// A host dies and is started again: with what it knew of objects, but without shepherds that
    /// wait, or without anything.
    fn restart(&mut self, at: usize, remembers: bool) {
        if remembers {
            let waits: Vec<u64> = self.hosts[at].waits.iter().map(|(eid, ..)| *eid).collect();
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
            let half = one.moves.leaving.get(&eid).filter(|half| half.due.is_some())?;
            let other = &self.hosts[at_of(half.host)];
            let (kept, ()) = other.moves.coming.get(&eid)?;
            (kept.count == half.count).then_some(())
        };
        self.hosts.iter().filter_map(gives).count()
    }

    /// The law: one place, or one transfer that is recorded; never two with one count. A host that
    /// was cut off may have an object that another has taken.
    fn check(&self, eid: u64) {
        let here = self.here(eid);
        let mut counts: Vec<u32> = here.iter().map(|(_, count)| *count).collect();
        counts.sort_unstable();
        counts.dedup();
        assert_eq!(counts.len(), here.len(), "two places have one count: {here:?}");
        let all = here.len() + self.on_the_way(eid);
        let may_be = usize::from(!self.has_forgotten)..=1 + usize::from(self.was_cut);
        assert!(may_be.contains(&all), "object {eid}: {here:?}");
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
    assert_eq!(world.hosts[1].moves.len(), (0, 2), "no more than its share");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Letters alone, and shepherds.
    Letters,
    /// Hosts that are started again without what they knew.
    Forget,
    /// A host that is cut off once, perhaps for good.
    Cut,
}

/// Hosts move three objects by chance, and anything may happen to letters and hosts. In the end
/// each object is at one host, but for those that were lost with theirs, and no move goes on.
fn wander(seed: u64, trouble: Trouble) {
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
            // Less than a minute in all: so long a host may be silent.
            2 => world.pass(Duration::from_millis(100 * below(20) as u64)),
            3 if below(4) == 0 => match trouble {
                Trouble::Letters => world.restart(below(count), true),
                Trouble::Forget => world.restart(below(count), below(4) > 0),
                Trouble::Cut if world.was_cut => world.cut_off = None,
                Trouble::Cut => (world.cut_off, world.was_cut) = (Some(below(count)), true),
            },
            4 => {
                let at = below(count);
                if let Some((eid, ..)) = world.hosts[at].waits.first().copied() {
                    world.give_up(at, eid);
                }
            }
            5 if world.was_cut => {
                world.deliver_all();
                world.pass(Duration::from_secs(15));
                world.deliver_all();
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
    // From now on nothing is lost but what a host that is cut off sends or should get.
    for _ in 0..40 {
        world.pass(Duration::from_secs(10));
        world.deliver_all();
        (1..4).for_each(|eid| world.check(eid));
    }
    assert!(world.hosts.iter().all(|one| one.moves.len() == (0, 0)), "no move goes on");
    for eid in 1..4 {
        let here = world.here(eid).len();
        let may_be = usize::from(trouble != Trouble::Forget)..=1 + usize::from(world.was_cut);
        assert!(may_be.contains(&here), "object {eid} is at {here} hosts");
    }
}

#[test]
fn objects_on_the_move_are_at_one_host() {
    seeds::of(1).run(|seed| wander(seed, Trouble::Letters));
}

#[test]
fn hosts_that_forget_make_no_second_object() {
    seeds::of(1).run(|seed| wander(seed, Trouble::Forget));
}

#[test]
fn moves_from_and_to_a_host_that_is_cut_off_have_an_end() {
    seeds::of(1).run(|seed| wander(seed, Trouble::Cut));
}

/// An offer that may be forged does nothing before the host that it seems to be from confirms it.
#[test]
fn what_may_be_forged_is_not_kept_yet() {
    let (mut moves, subject, run) = (Moves::new(1, 64), (7, 2), (host(1), 9));
    assert_eq!(moves.keep(subject, run, None, || ()), Some(true));
    assert_eq!(moves.keep(subject, run, None, || ()), None, "one that is asked for");
    assert_eq!((moves.next(), moves.release(subject, run)), (None, None));
    moves.offered(7, Duration::ZERO);
    assert_eq!(moves.keep(subject, run, None, || ()), Some(false));
    assert_eq!(moves.release(subject, (host(1), 8)), None, "of another run");
    assert_eq!((moves.next(), moves.release(subject, run)), (Some(FIRST_WAIT), Some(())));
}

#[test]
fn a_host_that_offers_leaves_others_their_room() {
    let mut moves: Moves = Moves::new(1, 64);
    let mut keep = |eid, from| moves.keep((eid, 2), (host(from), 9), Some(Duration::ZERO), || ());
    let kept = (0..64).filter(|eid| keep(*eid, 1) == Some(true)).count();
    assert_eq!(kept, 16);
    assert_eq!(keep(0, 1), Some(false), "one that is kept already");
    assert_eq!(keep(100, 2), Some(true));
    let all = (0..640).filter(|eid| keep(1000 + eid, 3 + *eid as usize) == Some(true)).count();
    assert_eq!(all, 64 - 17);
}
