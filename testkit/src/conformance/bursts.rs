//! Invariant 5 of ARCHITECTURE.md, for several messages at once: a burst is nothing but its
//! messages, one after the other.

use super::hostile::damaged;
use super::messages::pattern;
use super::world::SEED;
use super::{Fixture, Node, Receiver, Verdict, World};
use crate::kernel::{Event, OnDemux, Sent, TestKernel, octets};
use core::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_core::control::ListSessions;
use xk_core::object::{Arrivals, BURST_MAX, Outgoing};
use xk_core::random::Random;
use xk_core::reason::{self, Reason};
use xk_core::shepherd::{Flow, Semaphore};
use xk_core::{Kernel, Message, SessionRef};
use xk_run::switch::CoroutineSwitch;

/// Messages that are sent.
const MESSAGES: usize = 3 * BURST_MAX + 5;
/// Messages that a shepherd may wait for before the law says that it never ends.
const TURNS_MAX: usize = 10_000;

/// Behaviour of the protocol above.
#[derive(Clone, Copy, Debug)]
enum Above {
    Keeps,
    /// Refuses every third message.
    Refuses,
    /// Sends each back at once.
    Echoes,
    /// Closes the session with every fourth message.
    Closes,
}

/// All that is to be seen from outside.
struct Seen {
    /// Frames that left A, octet for octet.
    sent: Vec<Vec<u8>>,
    events: Vec<Event>,
    delivered: Vec<Vec<u8>>,
    drops: Vec<Vec<(&'static str, u64)>>,
    /// Messages received by the instance and by the protocol above.
    received: [u64; 2],
    /// Sent and received of the sessions, those that are gone included.
    counts: (u64, u64),
    /// Frames that left B, octet for octet.
    answers: Vec<Vec<u8>>,
}

impl Seen {
    /// The first difference of the two.
    fn differs_from(&self, other: &Self) -> Option<String> {
        let lists = [
            ("what is sent", &self.sent, &other.sent),
            ("what is delivered", &self.delivered, &other.delivered),
            ("what is answered", &self.answers, &other.answers),
        ];
        for (what, one, many) in lists {
            if let Some(at) = first_difference(one, many) {
                return Some(format!("{what} differs from message {at} on"));
            }
        }
        if let Some(at) = first_difference(&self.events, &other.events) {
            let (one, many) = (self.events.get(at), other.events.get(at));
            return Some(format!("event {at} is {many:?} and not {one:?}"));
        }
        let counted =
            |seen: &Self| format!("{:?} {:?} {:?}", seen.drops, seen.received, seen.counts);
        let (one, many) = (counted(self), counted(other));
        (one != many).then(|| format!("counted is {many} and not {one}"))
    }
}

fn first_difference<T: PartialEq>(one: &[T], many: &[T]) -> Option<usize> {
    (0..one.len().max(many.len())).find(|at| one.get(*at) != many.get(*at))
}

/// Bursts have the same effect as single messages: the same messages are sent, delivered and
/// answered, in the same order, with the same counters. Some frames are damaged or lie in slices,
/// and the protocol above refuses, answers, or closes.
///
/// # Panics
/// If the law is broken.
pub fn are_messages(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("it stands on nothing of the graph");
    }
    for above in [Above::Keeps, Above::Refuses, Above::Echoes, Above::Closes] {
        let one_by_one = observe(fixture, 1, above);
        for size in [2, 7, BURST_MAX] {
            let seen = observe(fixture, size, above);
            let differs = one_by_one.differs_from(&seen);
            assert!(
                differs.is_none(),
                "law 5: bursts of {size} look like messages one by one; here, while the protocol above {above:?}: {}",
                differs.unwrap_or_default()
            );
        }
    }
    Verdict::Holds
}

fn observe(fixture: &dyn Fixture, size: usize, above: Above) -> Seen {
    let world = World::new(fixture);
    let session = world.converse();
    let like = world.capture(&session);
    for node in [&world.a, &world.b] {
        node.top.clear();
    }
    let sent = send(&world, &session, size);
    let every = |n: u64, what: OnDemux| -> OnDemux {
        Rc::new(move |cx, lower, number| match number % n {
            0 => what(cx, lower, number),
            _ => Ok(()),
        })
    };
    match above {
        Above::Keeps => {}
        Above::Echoes => world.b.top.echo(true),
        Above::Refuses => {
            let refuse: OnDemux = Rc::new(|_, _, _| Err(&reason::PROHIBITED));
            world.b.top.on_demux(Some(every(3, refuse)));
        }
        Above::Closes => {
            let close: OnDemux = Rc::new(|cx, lower, _| {
                lower.abort(cx);
                Ok(())
            });
            world.b.top.on_demux(Some(every(4, close)));
        }
    }
    let arrivals = arrivals(&world, &sent);
    // Looked for again each time: closing the last session above may have closed this one
    // too.
    while let Some(wire) = wire(&world, &like)
        && arrivals.deliver(&world.cx, &wire, size) > 0
    {}
    let answers = world.b.bottom.take_sent();
    let delivered = world.b.top.take_received();
    Seen {
        sent,
        events: world.b.top.take_events(),
        delivered: delivered.iter().map(|r| octets(&r.message)).collect(),
        drops: [&world.a, &world.b].map(drops).concat(),
        received: [&world.b.protocol, world.b.top.protocol()].map(|p| p.head().received()),
        counts: counts(&world),
        answers: answers.iter().map(|s| octets(&s.message)).collect(),
    }
}

/// Sends messages of several sizes, some of which have no room for headers, and answers what left
/// A.
fn send(world: &World<'_>, session: &SessionRef, size: usize) -> Vec<Vec<u8>> {
    let message = |number: usize| {
        let given = pattern(46 + number * 5 % 300, number as u8);
        match number % 11 {
            10 => world.cx.pool().copy_from(0, &given).expect("a buffer"),
            _ => world.cx.message(&given),
        }
    };
    let all: Vec<usize> = (0..MESSAGES).collect();
    for part in all.chunks(size) {
        let mut burst: Outgoing = part.iter().map(|number| message(*number)).collect();
        let result = if size == 1 {
            burst.drain(..).try_for_each(|message| session.push(&world.cx, message))
        } else {
            session.push_burst(&world.cx, &mut burst)
        };
        result.expect("law 5: a session that sent once sends many");
        assert!(burst.is_empty(), "law 5: nothing is left of a burst");
    }
    let sent = world.a.bottom.take_sent();
    sent.iter().map(|sent| octets(&sent.message)).collect()
}

/// Arrivals at B: most frames as they were sent, some damaged, some in slices.
fn arrivals(world: &World<'_>, sent: &[Vec<u8>]) -> Arrivals {
    let arrivals = Arrivals::default();
    let random = Random::new(SEED);
    for whole in sent {
        let message: Message = match random.below(8) {
            0 => world.cx.message(&damaged(&random, whole)),
            1 => {
                let cut = random.below(whole.len() as u64) as usize;
                let mut sliced = world.cx.message(&whole[..cut]);
                sliced.join(world.cx.message(&whole[cut..]));
                sliced
            }
            _ => world.cx.message(whole),
        };
        arrivals.queue_mut().push_back(message);
    }
    arrivals
}

/// The session below B that frames from A come through.
fn wire(world: &World<'_>, like: &Sent) -> Option<SessionRef> {
    let peer = world.a.bottom.lower().own();
    let selector = World::selector(&world.a, &world.b, like.selector);
    world.b.bottom.session(&world.cx, peer, selector).ok()
}

fn drops(node: &Node) -> Vec<Vec<(&'static str, u64)>> {
    let of = [&node.protocol, node.bottom.protocol(), node.top.protocol()];
    let list = |reasons: Vec<(&'static Reason, u64)>| {
        reasons.into_iter().map(|(reason, n)| (reason.name, n))
    };
    of.map(|p| list(p.head().drops().list()).collect()).into()
}

fn counts(world: &World<'_>) -> (u64, u64) {
    let question = ListSessions::first(usize::MAX);
    let answer = world.b.protocol.ask(&world.cx, question);
    let sessions = answer.unwrap_or_default();
    let own = |s: &&SessionRef| s.head().protocol() == world.b.protocol.id();
    let folded = world.b.protocol.head().folded();
    sessions
        .here()
        .filter(own)
        .fold(folded, |sum, s| (sum.0 + s.head().sent(), sum.1 + s.head().received()))
}

/// If the protocol above blocks in the middle of a burst, the messages behind are delivered
/// meanwhile, in order.
///
/// # Panics
/// If the law is broken.
pub fn pass_who_waits(fixture: &dyn Fixture) -> Verdict {
    if cfg!(miri) {
        return Verdict::Skipped("Miri cannot switch stacks");
    }
    if fixture.is_anchor() {
        return Verdict::Skipped("it stands on nothing of the graph");
    }
    if fixture.receiver() == Receiver::Itself {
        return Verdict::Skipped("nobody above takes what is sent");
    }
    let world = World::on(fixture, TestKernel::with_switch(SEED, Box::new(CoroutineSwitch::new())));
    let session = world.converse();
    let like = world.capture(&session);
    let first = world.b.top.received();
    world.b.top.clear();
    world.a.top.clear();
    for number in 0..8 {
        let given = pattern(64 + number, number as u8);
        session
            .push(&world.cx, world.cx.message(&given))
            .expect("law 5: a session that sent once sends again");
    }
    let sent = world.a.bottom.take_sent();
    let Some(wire) = wire(&world, &like) else {
        return Verdict::Skipped("nothing arrives without an enable");
    };
    let arrivals = Rc::new(Arrivals::default());
    let frames = sent.iter().map(|sent| octets(&sent.message));
    let frames = frames.map(|octets| world.cx.message(&octets));
    arrivals.queue_mut().extend(frames);
    // The third waits for the sixth, the fourth for the eighth.
    let semaphores = [Semaphore::new(0), Semaphore::new(0)];
    let ended = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&ended);
    world.b.top.on_demux(Some(Rc::new(move |cx: &Kernel, _, number| {
        let number = number - first;
        match number {
            3 | 4 => drop(cx.wait(&semaphores[number as usize - 3], None)),
            6 => cx.signal(&semaphores[0]),
            8 => cx.signal(&semaphores[1]),
            _ => {}
        }
        note.borrow_mut().push(number);
        Ok(())
    })));
    run(&world, &arrivals, wire);
    let ended = ended.take();
    let ours: Vec<u64> = ended.iter().copied().filter(|n| !matches!(n, 3 | 4)).collect();
    assert_eq!(
        (ours, ended.len()),
        (vec![1, 2, 5, 6, 7, 8], 8),
        "law 5: while two messages of a burst wait, those behind them pass in order, and the two end; ended: {ended:?}"
    );
    let mut got = world.b.top.take_received();
    got.sort_by_key(|received| received.message.len());
    let is_right = |(n, message): (usize, &Message)| message.eq_octets(&pattern(64 + n, n as u8));
    assert!(
        got.len() == 8 && got.iter().map(|r| &r.message).enumerate().all(is_right),
        "law 7: each of them comes once, as it was sent"
    );
    Verdict::Holds
}

/// Runs a loop as an executor does until nothing arrives and no shepherd waits.
fn run(world: &World<'_>, arrivals: &Rc<Arrivals>, wire: SessionRef) {
    let (cx, arrivals, turns) = (world.cx.share(), Rc::clone(arrivals), Cell::new(0));
    let shepherds = world.cx.shepherds();
    let body = move || {
        turns.set(turns.get() + 1);
        let taken = arrivals.deliver(&cx, &wire, usize::MAX);
        let idle = taken == 0 && cx.shepherds().stats().suspended == 0;
        if idle || turns.get() == TURNS_MAX { Flow::Stop } else { Flow::Continue }
    };
    shepherds.run(Rc::new(body)).expect("a shepherd can be made");
    assert_eq!(
        shepherds.stats().suspended,
        0,
        "law 5: nobody waits for what is behind him in his own burst"
    );
}
