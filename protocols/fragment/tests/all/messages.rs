//! Large messages: what goes over the wire, what is asked for, what is kept and for how long.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::numbers::Number;
use xk_core::object::PushError;
use xk_core::random::Random;
use xk_core::{Kernel, Part, Participants, ProtocolRef, SessionRef};
use xk_fragment::wire::{HEADER_OCTETS, Header, Kind};
use xk_fragment::{FragmentFigures, Limits};
use xk_kit::rpc::retransmit::{AskCopy, CopyState, FreeCopy, LastCopy};
use xk_testkit::kernel::{Bottom, Lower, Task, TestKernel, Top, octets};
use xk_testkit::seeds;

/// Octets of payload in one fragment over hosts.
const SIZE: usize = 1480 - HEADER_OCTETS;

struct Node {
    bottom: Bottom,
    fragment: ProtocolRef,
    top: Top,
}

struct World {
    cx: TestKernel,
    a: Node,
    b: Node,
    session: SessionRef,
}

fn host(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(0x9e37)) as u8)
        .collect()
}

impl World {
    fn new(seed: u64, limits: Limits) -> Self {
        let cx = TestKernel::with_stacks(seed);
        let numbers = [("fragment", "ip", 101), ("top", "fragment", 102)];
        for (upper, lower, number) in numbers {
            let number = Number { upper, lower, number };
            cx.numbers_mut().add(number).expect("a number");
        }
        let [a, b] = [1, 2].map(|n| {
            let bottom = Bottom::add(&cx, "bottom", Lower::host(host(n), 101));
            let fragment = xk_fragment::add(&cx, "fragment", bottom.protocol().clone(), limits);
            let top = Top::add(&cx, "top");
            Node { bottom, fragment, top }
        });
        cx.start().expect("it starts");
        let any = Participants::local(Part::Any);
        let _ = b.top.enable(&cx, &b.fragment, any).expect("enabled");
        let to = Participants::pair(Part::Any, Part::host(host(2)));
        let session = a.top.open(&cx, &a.fragment, to).expect("a session");
        Self { cx, a, b, session }
    }

    fn push(&self, octets: &[u8]) -> Result<(), PushError> {
        self.session.push(&self.cx, self.cx.message(octets))
    }

    fn figures(&self, node: &Node) -> FragmentFigures {
        let figures = node.fragment.ask(&self.cx, FragmentFigures::default());
        figures.expect("figures")
    }

    fn sent(node: &Node) -> Vec<Vec<u8>> {
        let sent = node.bottom.take_sent();
        sent.iter().map(|sent| octets(&sent.message)).collect()
    }

    fn inject(&self, to: &Node, from: u8, octets: &[u8]) {
        // What is refused is counted by what refused it.
        let from = Some(Part::host(host(from)));
        let _ = to.bottom.inject(&self.cx, from, self.cx.message(octets));
    }

    fn to_b(&self, packets: &[Vec<u8>]) {
        packets.iter().for_each(|p| self.inject(&self.b, 1, p));
    }

    fn to_a(&self, packets: &[Vec<u8>]) {
        packets.iter().for_each(|p| self.inject(&self.a, 2, p));
    }

    fn received(&self) -> Vec<Vec<u8>> {
        let received = self.b.top.take_received();
        received.iter().map(|r| octets(&r.message)).collect()
    }

    fn finish(self) {
        let Self { cx, a, b, session, .. } = self;
        drop((session, a, b));
        cx.finish();
        assert_eq!(cx.live(), (0, 0), "nothing is left");
    }
}

fn parse(packet: &[u8]) -> Header {
    let header = packet.first_chunk().expect("a header");
    Header::parse(header, packet.len() - HEADER_OCTETS).expect("a packet")
}

#[test]
fn each_fragment_may_be_lost_and_is_asked_for_once() {
    for lost in 0..16 {
        let world = World::new(1, Limits::default());
        let given = pattern(16 * SIZE, lost as u32);
        world.push(&given).expect("it goes");
        let mut packets = World::sent(&world.a);
        assert_eq!(packets.len(), 16);
        packets.remove(lost);
        world.to_b(&packets);
        assert!(world.received().is_empty());
        world.cx.advance(Duration::from_millis(159));
        assert!(World::sent(&world.b).is_empty(), "ten milliseconds for each");
        world.cx.advance(Duration::from_millis(1));
        let nacks = World::sent(&world.b);
        assert_eq!(nacks.len(), 1);
        let nack = parse(&nacks[0]);
        assert_eq!((nack.kind, nack.mask), (Kind::Nack, !(1 << lost)));
        assert_eq!((nack.client, nack.server), ([10, 0, 0, 1], [10, 0, 0, 2]));
        world.to_a(&nacks);
        let again = World::sent(&world.a);
        assert_eq!(again.len(), 1);
        assert_eq!(parse(&again[0]).kind, Kind::Retransmit);
        world.to_b(&again);
        assert_eq!(world.received(), [given]);
        // What comes once more begins nothing.
        world.to_b(&again);
        world.to_b(&packets);
        assert_eq!(world.figures(&world.b).partial, 0);
        world.cx.advance(Duration::from_secs(2));
        assert_eq!(world.figures(&world.a).outstanding, 0);
        assert!(World::sent(&world.b).is_empty());
        world.finish();
    }
}

#[test]
fn a_receiver_asks_three_times_and_gives_up() {
    let world = World::new(2, Limits::default());
    world.push(&pattern(2 * SIZE, 1)).expect("it goes");
    let packets = World::sent(&world.a);
    world.to_b(&packets[..1]);
    let mut asked = Vec::new();
    for ms in 1..=400 {
        world.cx.advance(Duration::from_millis(1));
        if !World::sent(&world.b).is_empty() {
            asked.push(ms);
        }
    }
    assert_eq!(asked, [20, 60, 140]);
    let figures = world.figures(&world.b);
    assert_eq!((figures.messages_given_up, figures.partial), (1, 0));
    let drops = world.b.fragment.head().drops().total();
    assert_eq!(drops, 1, "the message is counted once");
    // What is sent again of it comes too late.
    let mut late = packets[1].clone();
    late[0] = Kind::Retransmit.code();
    world.to_b(&[late]);
    assert_eq!(world.b.fragment.head().drops().total(), drops + 1);
    world.finish();
}

#[test]
fn a_question_without_need_makes_the_receiver_patient() {
    let world = World::new(3, Limits::default());
    let waits = |expected: u64| {
        world.push(&pattern(2 * SIZE, 1)).expect("it goes");
        let packets = World::sent(&world.a);
        world.to_b(&packets[..1]);
        world.cx.advance(Duration::from_millis(expected) - Duration::from_micros(1));
        assert!(World::sent(&world.b).is_empty(), "{expected} ms");
        world.cx.advance(Duration::from_micros(1));
        assert_eq!(World::sent(&world.b).len(), 1, "{expected} ms");
        world.to_b(&packets[1..]);
        assert_eq!(world.received().len(), 1);
    };
    [20, 40, 80, 124, 124].into_iter().for_each(waits);
    for _ in 0..200 {
        world.push(&pattern(2 * SIZE, 1)).expect("it goes");
        world.to_b(&World::sent(&world.a));
        world.cx.advance(Duration::from_secs(2));
    }
    world.push(&pattern(2 * SIZE, 1)).expect("it goes");
    world.to_b(&World::sent(&world.a)[..1]);
    world.cx.advance(Duration::from_millis(21));
    assert_eq!(World::sent(&world.b).len(), 1, "it has grown hasty again");
    world.finish();
}

#[test]
fn a_copy_is_kept_for_a_second_after_the_last_question() {
    let world = World::new(4, Limits::default());
    let session = world.session.clone();
    world.push(b"small").expect("it goes");
    let ticket = |s: &SessionRef| s.ask(&world.cx, LastCopy::default()).expect("known").ticket;
    assert_eq!(ticket(&session), 0, "what goes whole is not kept");
    drop(World::sent(&world.a));
    world.push(&pattern(3 * SIZE, 1)).expect("it goes");
    let packets = World::sent(&world.a);
    let kept = ticket(&session);
    let state = |kept| {
        let asked = session.ask(&world.cx, AskCopy::about(kept));
        asked.expect("known").state
    };
    assert_eq!(state(kept), CopyState::Silent);
    let nack = |mask| {
        let header = Header { kind: Kind::Nack, mask, len: 0, ..parse(&packets[1]) };
        header.emit().to_vec()
    };
    world.cx.advance(Duration::from_millis(900));
    world.to_a(&[nack(0b101)]);
    let again = World::sent(&world.a);
    assert_eq!(again.len(), 1);
    assert_eq!(parse(&again[0]).mask, 0b010);
    assert!(again[0][HEADER_OCTETS..] == packets[1][HEADER_OCTETS..]);
    assert_eq!((state(kept), state(kept)), (CopyState::Collecting, CopyState::Silent));
    world.cx.advance(Duration::from_millis(999));
    assert_eq!(state(kept), CopyState::Silent);
    world.cx.advance(Duration::from_millis(1));
    assert_eq!(state(kept), CopyState::Gone);
    let drops = world.a.fragment.head().drops().total();
    world.to_a(&[nack(0b101)]);
    assert_eq!(world.a.fragment.head().drops().total(), drops + 1, "nobody knows it");
    // Released early.
    world.push(&pattern(3 * SIZE, 1)).expect("it goes");
    let kept = ticket(&session);
    assert!(session.ask(&world.cx, FreeCopy { ticket: kept }).is_some());
    assert_eq!(state(kept), CopyState::Gone);
    drop((World::sent(&world.a), session));
    world.finish();
}

#[test]
fn the_message_beyond_the_bound_waits_or_is_refused() {
    let world = World::new(5, Limits::default());
    for n in 0..64 {
        world.push(&pattern(2 * SIZE, n)).expect("it goes");
    }
    // Here no shepherd can block.
    assert_eq!(world.push(&pattern(2 * SIZE, 64)), Err(PushError::QueueFull));
    world.push(b"small ones go").expect("it goes");
    let start = world.cx.now();
    let (session, when) = (world.session.clone(), Rc::new(RefCell::new(None)));
    let note = Rc::clone(&when);
    let message = world.cx.message(&pattern(2 * SIZE, 65));
    let task: Task = Box::new(move |cx: &Kernel| {
        let pushed = session.push(cx, message);
        *note.borrow_mut() = Some((pushed, cx.now()));
    });
    assert!(world.cx.run_tasks(Duration::from_secs(5), vec![task], |_| 0));
    let (pushed, at) = when.take().expect("it came back");
    assert_eq!(pushed, Ok(()));
    assert_eq!(at.as_ns() - start.as_ns(), 1_000_000_000, "until the first is released");
    drop(World::sent(&world.a));
    world.finish();
}

#[test]
fn strangers_and_forgers_are_counted_and_bounded() {
    let limits = Limits { partial_max: 20, partial_per_peer: 6, ..Limits::default() };
    let world = World::new(6, limits);
    world.push(&pattern(3 * SIZE, 1)).expect("it goes");
    let packets = World::sent(&world.a);
    world.to_b(&packets[..1]);
    let forged = |change: &dyn Fn(&mut Header)| {
        let mut header = parse(&packets[1]);
        change(&mut header);
        let mut packet = packets[1].clone();
        packet[..HEADER_OCTETS].copy_from_slice(&header.emit());
        let before = world.b.fragment.head().drops().total();
        world.to_b(&[packet]);
        assert_eq!(world.b.fragment.head().drops().total(), before + 1);
    };
    forged(&|h| h.client = [10, 0, 0, 9]);
    forged(&|h| h.server = [10, 0, 0, 9]);
    forged(&|h| h.count = 4);
    forged(&|h| h.number = 103);
    // A duplicate is none.
    world.to_b(&packets[..1]);
    world.to_b(&packets[1..]);
    assert_eq!(world.received(), [pattern(3 * SIZE, 1)]);
    for sequence in 0..1000_u32 {
        let header = Header { sequence: sequence * 7 + 100, ..parse(&packets[0]) };
        let mut packet = packets[0].clone();
        packet[..HEADER_OCTETS].copy_from_slice(&header.emit());
        world.to_b(&[packet.clone()]);
        for stranger in 3..20 {
            packet[5] = stranger;
            world.inject(&world.b, stranger, &packet);
        }
        assert!(world.figures(&world.b).partial <= 20);
    }
    let figures = world.figures(&world.b);
    assert_eq!(figures.partial, 20);
    world.cx.advance(Duration::from_secs(10));
    assert_eq!(world.figures(&world.b).partial, 0);
    drop(World::sent(&world.b));
    world.finish();
}

/// Loses, doubles and delays; whatever comes up must be what was sent, and most of it must.
fn simulate(seed: u64) -> (u32, u32) {
    let random = Random::new(seed);
    let world = World::new(seed, Limits::default());
    let (loss, twice) = (random.below(150) as u32 * 1000, random.below(150) as u32 * 1000);
    let delay = random.below(30_000) + 1;
    let mut flying: Vec<(u64, bool, Vec<u8>)> = Vec::new();
    let (mut pushed, mut seen) = (0_u32, [false; 40]);
    let end = world.cx.now().after(Duration::from_secs(30));
    while world.cx.now() < end {
        if pushed < 40 && random.below(3) == 0 {
            let len = random.below(16 * SIZE as u64 - 4) as usize;
            let mut octets = pushed.to_be_bytes().to_vec();
            octets.extend(pattern(len, pushed));
            if world.push(&octets).is_ok() {
                pushed += 1;
            }
        }
        let now = world.cx.now().as_ns();
        for (node, to_b) in [(&world.a, true), (&world.b, false)] {
            for packet in World::sent(node) {
                let mut copies = u32::from(!random.chance_per_million(loss));
                copies += u32::from(random.chance_per_million(twice));
                for _ in 0..copies {
                    let at = now + 1000 * random.below(delay);
                    flying.push((at, to_b, packet.clone()));
                }
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = flying.drain(..).partition(|(at, _, _)| *at <= now);
        flying = later;
        for (_, to_b, packet) in due {
            if to_b {
                world.to_b(&[packet]);
            } else {
                world.to_a(&[packet]);
            }
        }
        for message in world.received() {
            let (id, rest) = message.split_first_chunk().expect("a number");
            let id = u32::from_be_bytes(*id);
            assert_eq!(rest, pattern(rest.len(), id), "seed {seed}: message {id}");
            assert!(id < pushed, "seed {seed}: nobody sent message {id}");
            seen[id as usize] = true;
        }
        world.cx.advance(Duration::from_millis(5));
    }
    let figures = [world.figures(&world.a), world.figures(&world.b)];
    assert_eq!(figures.map(|f| (f.partial, f.outstanding)), [(0, 0); 2], "seed {seed}");
    world.finish();
    (pushed, seen.iter().filter(|seen| **seen).count() as u32)
}

#[test]
fn what_comes_is_what_was_sent_in_random_networks() {
    let sum = seeds::of(3).sum(|seed| {
        let (pushed, came) = simulate(seed);
        [pushed.into(), came.into()]
    });
    println!("{sum:?} messages were pushed, and came");
    // A message of one fragment is sent once; up to one in seven of them is lost.
    assert!(sum.is_none_or(|[pushed, came]| came * 100 > pushed * 95), "{sum:?}");
}
