//! Total order in the simulator: conversations of two to nine hosts on a network that loses,
//! repeats and delays, with members that are masked out, and the way of a single sender's message.

use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::{ListSessions, Question};
use xk_core::object::PushError;
use xk_core::random::Random;
use xk_core::{Kernel, Part, Participant, Participants, SessionRef, Time};
use xk_kit::group::{
    Commutes, MaskOut, MemberState, MyMember, Node, Outstanding, PROCESS, SendNull, TakeOwn,
};
use xk_sim::{HostId, Sighting, Tap, World};
use xk_testkit::kernel::{Top, octets};
use xk_testkit::seeds;

const MS: Duration = Duration::from_millis(1);

fn process(number: u64) -> Part {
    Part::Number(PROCESS, number)
}

/// Counts the frames of conversations.
#[derive(Default)]
struct Frames(Cell<u64>);

impl Tap for Frames {
    fn frame(&self, sighting: Sighting<'_>) {
        let octets: Vec<u8> = sighting.frame.octets().take(24).collect();
        // The type of IPv4, and the number that `psync` has on it.
        if octets[12..14] == [8, 0] && octets[23] == 253 {
            self.0.set(self.0.get() + 1);
        }
    }
}

/// Hosts of one conversation, which the first of them has opened.
pub(crate) struct Group {
    pub(crate) world: World,
    pub(crate) hosts: Vec<HostId>,
    pub(crate) tops: Vec<Top>,
    pub(crate) sessions: Vec<SessionRef>,
    frames: Rc<Frames>,
    /// Pushes that were done, of those that were begun.
    pub(crate) done: Rc<Cell<usize>>,
}

impl Group {
    /// A conversation of `order`, whose own messages come up as well.
    pub(crate) fn new(n: usize, layers: &str, link: &str, seed: u64) -> Self {
        let mut group = Self::on(n, "order", layers, link, seed);
        (0..n).for_each(|at| assert!(group.ask(at, TakeOwn).is_some()));
        group
    }

    /// A conversation of the highest layer, which has this name.
    pub(crate) fn on(n: usize, top: &'static str, layers: &str, link: &str, seed: u64) -> Self {
        let host = |at: usize| {
            let address = at + 1;
            format!(
                "host h{at} {{\n sim link=lan\n eth sim\n arp eth\n \
                 ip arp {{ address \"10.0.0.{address}/24\"; }}\n {layers}\n}}\n"
            )
        };
        let text: String = (0..n).map(host).chain([format!("link lan {link}\n")]).collect();
        let checked = check(&text, "order", &xk_catalog::standard());
        let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"));
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{e}"));
        let frames = Rc::new(Frames::default());
        world.network().set_tap(Some(Rc::clone(&frames) as Rc<dyn Tap>));
        let hosts: Vec<HostId> = (0..n).map(|at| world.find(&format!("h{at}")).unwrap()).collect();
        let layer = move |cx: &Kernel| cx.find_protocol(top).unwrap();
        let enabled = |host: &HostId| {
            world.enter(*host, |cx| {
                let top = Top::add(cx, "top");
                assert!(top.enable(cx, &layer(cx), Participants::local(process(7))).is_ok());
                top
            })
        };
        let tops: Vec<Top> = hosts.iter().map(enabled).map(Option::unwrap).collect();
        let (top, first) = (tops[0].clone(), Rc::new(RefCell::new(None)));
        let opened = Rc::clone(&first);
        world.spawn(hosts[0], move |cx| {
            let host = |at: usize| Part::Host([10, 0, 0, at as u8 + 1].into());
            let peers = (1..n).map(|at| Participant::of(host(at)).with(process(7)));
            let ends = Participants::among(process(1).into(), peers);
            *opened.borrow_mut() = top.open(cx, &layer(cx), ends).ok();
        });
        // Even where much is lost all members hear of it by then.
        world.run_until(Time::from_ms(60_000));
        let mut sessions = vec![first.borrow().clone().unwrap()];
        for top in &tops[1..] {
            let (session, ends) = top.take_opened().remove(0);
            assert_eq!(ends.len(), n, "the list of members comes up with the session");
            session.hold();
            sessions.push(session);
        }
        Self { world, hosts, tops, sessions, frames, done: Rc::default() }
    }

    /// Packets of conversations that were sent.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.0.get()
    }

    pub(crate) fn ask<Q: Question>(&mut self, at: usize, question: Q) -> Option<Q> {
        let session = self.sessions[at].clone();
        self.world.enter(self.hosts[at], |cx| session.ask(cx, question)).unwrap()
    }

    fn push_as(&mut self, at: usize, text: &str, class: Option<u8>) {
        let (session, text) = (self.sessions[at].clone(), text.to_owned());
        let done = Rc::clone(&self.done);
        self.world.spawn(self.hosts[at], move |cx| {
            let mut message = cx.pool().copy_from(128, text.as_bytes()).unwrap();
            class.iter().for_each(|class| message.set_attribute(Commutes(*class)).unwrap());
            if session.push(cx, message).is_ok() {
                done.set(done.get() + 1);
            }
        });
    }

    pub(crate) fn push(&mut self, at: usize, text: &str) {
        self.push_as(at, text, None);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.world.now().after(time);
        self.world.run_until(until);
    }

    /// The messages that came up at a host since the last time.
    pub(crate) fn texts(&self, at: usize) -> Vec<String> {
        let all = self.tops[at].take_received();
        all.iter().map(|r| String::from_utf8(octets(&r.message)).unwrap()).collect()
    }

    fn drops(&mut self, at: usize) -> Vec<(&'static str, u64)> {
        let list = self.world.enter(self.hosts[at], |cx| {
            let order = cx.find_protocol("order").unwrap();
            order.head().drops().list()
        });
        list.unwrap().into_iter().map(|(reason, count)| (reason.name, count)).collect()
    }
}

/// A conversation by chance. Half of them lose a member on the way, which the others mask out.
fn converse(seed: u64) {
    let random = Random::new(seed);
    let n = 2 + random.below(8) as usize;
    let layers = match seed % 2 {
        0 => format!("psync ip window={}\n order psync", 4 + random.below(28)),
        _ => "psync ip upcalls=3\n order psync safe=#true".into(),
    };
    let loss = random.below(31) as f64 / 100.0;
    let link = format!(
        "delay=\"{}us\" jitter=\"{}us\" loss=\"{loss}\" duplicate=\"0.1\" reorder=\"0.2\"",
        10 + random.below(5000),
        1 + random.below(5000)
    );
    let mut group = Group::new(n, &layers, &link, seed);
    let mut pushed: Vec<Vec<String>> = vec![Vec::new(); n];
    let mut talk = |group: &mut Group, from: usize, count: usize| {
        for _ in 0..count {
            let at = from + random.below((n - from) as u64) as usize;
            let text = format!("{at}:{}", pushed[at].len());
            group.push(at, &text);
            pushed[at].push(text);
            if random.chance(0.4) {
                group.pass(Duration::from_micros(random.below(20_000)));
            }
        }
    };
    talk(&mut group, 0, 15 * n);
    let dies = n > 2 && random.chance(0.5);
    if dies {
        group.pass(random.below(50) as u32 * MS);
        (1..n).for_each(|at| group.world.network().partition(group.hosts[0], group.hosts[at]));
        group.pass(60_000 * MS);
        // What one has of the dead one's precedes this, and so comes to all.
        talk(&mut group, 1, 3 * n);
        group.pass(60_000 * MS);
        let last = |group: &mut Group, at| {
            group.ask(at, MemberState { index: 0, ..MemberState::default() }).unwrap().last
        };
        let all: Vec<u32> = (1..n).map(|at| last(&mut group, at)).collect();
        if all.iter().any(|last| *last != all[0]) {
            // A member that has nothing to say kept it to itself; membership would have it speak.
            return;
        }
        for at in 1..n {
            assert!(group.ask(at, MaskOut { index: 0, last: 0 }).is_some());
        }
        talk(&mut group, 1, 5 * n);
    }
    group.pass(200_000 * MS);
    let first = usize::from(dies);
    let one = group.texts(first);
    for at in first + 1..n {
        assert_eq!(group.texts(at), one, "seed {seed}: members {first} and {at} of {n}");
        assert_eq!(group.ask(at, Outstanding::default()).unwrap().ready, 0, "seed {seed}");
    }
    for (at, pushed) in pushed.iter().enumerate() {
        let own = format!("{at}:");
        let heard: Vec<&String> = one.iter().filter(|text| text.starts_with(&own)).collect();
        let is_dead = at < first;
        assert!(is_dead || heard.len() == pushed.len(), "seed {seed}: of {at}'s {}", heard.len());
        let in_order = heard.iter().zip(pushed).all(|(heard, pushed)| *heard == pushed);
        assert!(in_order, "seed {seed}: {at}'s own in their order");
    }
    for at in first..n {
        assert_eq!(group.drops(at), [], "seed {seed}: at {at}");
    }
}

#[test]
fn conversations_have_one_order() {
    seeds::of(4).run(converse);
}

/// Time from each push of one busy sender to the last member that it came up at.
fn ways(group: &mut Group, from: usize, count: usize, every: Duration) -> Vec<Duration> {
    let mut all = Vec::new();
    for n in 0..count {
        let at = group.world.now();
        group.push(from, &format!("{n}"));
        group.pass(every);
        let arrived = group.tops.iter().map(|top| top.take_received()).collect::<Vec<_>>();
        let last = arrived.iter().map(|all| {
            assert_eq!(all.len(), 1, "message {n} comes up once at each");
            all[0].at.since(at)
        });
        all.push(last.max().unwrap());
    }
    all
}

#[test]
fn a_single_sender_is_heard_after_one_round_trip() {
    for (layers, n) in [("", 2), ("", 5), ("safe=#true", 5), ("classes=2", 3)] {
        let layers = format!("psync ip\n order psync {layers}");
        let mut group = Group::new(n, &layers, "delay=\"5ms\"", 1);
        // Addresses are resolved by now, but between those that have sent nothing.
        let _ = ways(&mut group, 1, 3, 500 * MS);
        let before = group.frames.0.get();
        let all = ways(&mut group, 1, 20, 500 * MS);
        let frames = (group.frames.0.get() - before) as f64 / 20.0;
        let worst = all.iter().max().unwrap();
        println!("{layers:?}, {n} members: {worst:?} at most, {frames} frames a message");
        assert!(*worst <= 2 * 5 * MS * 12 / 10, "{layers:?} of {n}: {worst:?}");
        // A message, answering nulls, and what acknowledges those.
        assert!(frames <= (2 * n * (n - 1)) as f64, "{frames} frames a message");
    }
}

#[test]
fn a_sender_that_does_not_wait_gets_few_answers() {
    for (n, window) in [(3, 16), (5, 16), (5, 64), (9, 64)] {
        let layers = format!("psync ip window={window}\n order psync");
        let mut group = Group::new(n, &layers, "delay=\"1ms\" rate=\"1Gbit\" queue=10000", 1);
        let _ = ways(&mut group, 1, 3, 500 * MS);
        let (before, count) = (group.frames.0.get(), 1000);
        let start = group.world.now();
        let (session, done) = (group.sessions[1].clone(), Rc::clone(&group.done));
        group.world.spawn(group.hosts[1], move |cx| {
            for _ in 0..count {
                let message = cx.pool().copy_from(128, &[7; 64]).unwrap();
                assert_eq!(session.push(cx, message), Ok(()));
            }
            done.set(count);
        });
        for _ in 0..60_000 {
            if group.done.get() == count {
                break;
            }
            group.pass(MS);
        }
        let took = group.world.now().since(start);
        group.pass(1000 * MS);
        let frames = (group.frames.0.get() - before) as f64 / count as f64;
        println!("{n} members, window {window}: {frames} frames a message, {count} in {took:?}");
        assert!((0..n).all(|at| group.texts(at).len() == count));
        assert!(frames <= (n + 4) as f64, "{frames} frames a message, {n} members");
    }
}

#[test]
fn all_busy_need_no_answers() {
    let (n, rounds) = (4, 50);
    let mut group = Group::new(n, "psync ip\n order psync", "delay=\"1ms\"", 1);
    (0..n).for_each(|at| group.push(at, "first"));
    group.pass(500 * MS);
    let before = group.frames.0.get();
    for _ in 0..rounds {
        (0..n).for_each(|at| group.push(at, "all at once"));
        group.pass(5 * MS);
    }
    group.pass(500 * MS);
    let frames = (group.frames.0.get() - before) as f64 / (rounds * n) as f64;
    println!("{frames} frames a message of {n} busy members");
    assert!(frames < n as f64, "{frames}");
    assert!((0..n).all(|at| group.texts(at).len() == n * (rounds + 1)));
}

/// Members answer so many of the messages of a pipelining sender, and of each other, in upcalls.
fn answers(most: u64) -> (usize, u64) {
    let n = 3;
    let mut group = Group::new(n, "psync ip\n order psync", "delay=\"1ms\"", 1);
    let failed = Rc::new(Cell::new(0));
    for at in 1..n {
        let (session, failed) = (group.sessions[at].clone(), Rc::clone(&failed));
        group.tops[at].on_demux(Some(Rc::new(move |cx, _, n| {
            let message = cx.pool().copy_from(128, b"answer").unwrap();
            if n <= most && session.push(cx, message).is_err() {
                failed.set(failed.get() + 1);
            }
            Ok(())
        })));
    }
    (0..40).for_each(|n| group.push(0, &format!("{n}")));
    group.pass(600_000 * MS);
    group.tops.iter().for_each(|top| top.on_demux(None));
    let one = group.texts(0);
    assert!((1..n).all(|at| group.texts(at) == one), "one order");
    assert_eq!(one.len() as u64 + failed.get(), 40 + 2 * most, "all that were pushed");
    assert_eq!(group.done.get(), 40);
    (one.len(), failed.get())
}

#[test]
fn answers_may_be_pushed_in_upcalls() {
    assert_eq!(answers(30), (100, 0));
    // Each upcall waits for the others': then some pushes fail, but nothing stands still.
    let (heard, failed) = answers(300);
    println!("{heard} were heard, {failed} pushes failed");
}

#[test]
fn messages_of_a_class_do_not_wait() {
    let n = 3;
    let mut group = Group::new(n, "psync ip\n order psync classes=2", "delay=\"5ms\"", 1);
    group.push_as(0, "begin", Some(1));
    group.pass(500 * MS);
    let at = group.world.now();
    (0..n).for_each(|at| group.push_as(at, "add", Some(1)));
    group.pass(6 * MS);
    for top in &group.tops {
        let all = top.take_received();
        assert_eq!(all.len(), 1 + n);
        assert!(all[1..].iter().all(|one| one.at.since(at) <= 6 * MS), "half a round trip");
    }
    (0..n).for_each(|at| group.push_as(at, &format!("set {at}"), None));
    group.push_as(1, "add", Some(1));
    group.pass(500 * MS);
    let one = group.texts(0);
    assert_eq!(one.len(), n + 1);
    assert!((1..n).all(|at| group.texts(at) == one), "all others are ordered");
}

#[test]
fn members_that_order_otherwise_are_told_apart() {
    let mut group = Group::new(2, "psync ip\n order psync classes=2", "delay=\"1ms\"", 1);
    group.push(0, "here");
    group.pass(100 * MS);
    assert_eq!(group.texts(1), ["here"]);
    // What has no header of this layer comes from below.
    let host = group.hosts[0];
    group.world.enter(host, |cx| {
        let list = cx.find_protocol("psync").unwrap().ask(cx, ListSessions::first(9)).unwrap();
        let lower = list.here().next().expect("it stands on one").clone();
        for octets in [&[][..], &[1], &[0, 0, 9], &[1, 3, 9], &[2, 0, 9]] {
            lower.push(cx, cx.pool().copy_from(128, octets).unwrap()).unwrap();
        }
    });
    group.pass(100 * MS);
    assert_eq!((group.texts(1), group.drops(1)), (vec![], vec![("ordered otherwise", 5)]));
}

#[test]
fn storms_of_nulls_are_not_answered() {
    let n = 4;
    let mut group = Group::new(n, "psync ip\n order psync", "delay=\"1ms\"", 1);
    group.push(0, "one");
    group.pass(500 * MS);
    let before = group.frames.0.get();
    for _ in 0..200 {
        group.ask(1, SendNull);
        group.pass(MS / 4);
    }
    group.pass(5000 * MS);
    let frames = group.frames.0.get() - before;
    // Themselves, and acknowledgements of half a window each.
    assert!(frames <= 200 * (n as u64 - 1) * 2, "{frames}");
    group.push(2, "two");
    group.pass(500 * MS);
    assert!((0..n).all(|at| group.texts(at) == ["one", "two"]));
    assert_eq!(group.drops(0), []);
}

/// One masks another out by itself, which goes on: the order may part there, but nothing hangs or
/// grows, and what comes too late is counted.
#[test]
fn masks_that_disagree_do_no_harm() {
    let n = 3;
    let mut group = Group::new(n, "psync ip\n order psync", "delay=\"1ms\" jitter=\"3ms\"", 3);
    for round in 0..200 {
        (0..n).for_each(|at| group.push(at, &format!("{round}")));
        if round == 50 {
            assert!(group.ask(1, MaskOut { index: 0, last: 0 }).is_some());
        }
        group.pass(MS);
    }
    group.pass(30_000 * MS);
    let mut waiting = BTreeMap::new();
    for at in 0..n {
        let outstanding = group.ask(at, Outstanding::default()).unwrap();
        waiting.insert(at, outstanding);
        assert!(outstanding.ready <= (n * n * 16) as u32, "{outstanding:?}");
        let my = group.ask(at, MyMember::default()).unwrap();
        assert_eq!(usize::from(my.index), at);
    }
    println!("{waiting:?}");
    let _ = (0..n).map(|at| group.texts(at)).collect::<Vec<_>>();
}

#[test]
fn what_comes_up_bears_its_place() {
    let mut group = Group::new(2, "psync ip\n order psync", "delay=\"1ms\"", 1);
    group.push(1, "one");
    group.push(1, "two");
    group.pass(100 * MS);
    let all = group.tops[0].take_received();
    let places: Vec<Node> = all.iter().map(|one| one.message.attribute().unwrap()).collect();
    assert_eq!(
        places.iter().map(|node| (node.id.sender, node.id.seq)).collect::<Vec<_>>(),
        [(1, 1), (1, 2)]
    );
    let own: Vec<Node> =
        group.tops[1].take_received().iter().map(|one| one.message.attribute().unwrap()).collect();
    assert_eq!(own, places, "the sender's own as well");
    let host = group.hosts[1];
    let session = group.sessions[1].clone();
    group.world.enter(host, |cx| {
        let big = cx.pool().copy_from(128, &vec![0; 60_000]).unwrap();
        assert_eq!(session.push(cx, big), Err(PushError::TooBig));
        session.close(cx);
        assert_eq!(session.push(cx, cx.pool().empty(128).unwrap()), Err(PushError::Closed));
    });
}
