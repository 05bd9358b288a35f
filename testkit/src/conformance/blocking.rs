//! Layers below may block in `open`, `open_enable`, `control` and `push`: other messages are
//! carried meanwhile, and what comes of all of them is what comes of them one by one.

use super::messages::pattern;
use super::{Fixture, Node, Receiver, Side, Verdict, World};
use crate::kernel::{Event, Sent, Task, TestKernel};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::object::OpenError;
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, SessionRef};

/// For how long an operation below blocks at most.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Longer than anything takes that a law does at one time.
const LONG: Duration = Duration::from_secs(600);
/// How many shepherds do the same at one time, and how many messages one sends.
const AT_ONCE: usize = 4;
/// By how many orders of events each law is checked.
const SEEDS: u64 = 8;

/// How many sessions of an instance there are, and how often sessions below are held: what is given
/// back is as before.
type Held = (Option<usize>, u32);

/// What came of messages sent: sessions made, octets of each, and messages dropped.
type Outcome = (usize, Vec<usize>, u64);

/// Checks a law with several orders of events.
fn each_seed(fixture: &dyn Fixture, law: impl Fn(u64)) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("nothing of the graph is below it");
    }
    (0..SEEDS).for_each(law);
    Verdict::Holds
}

/// Two instances on bottoms that block, started on a shepherd.
fn world(fixture: &dyn Fixture, seed: u64, pause: Duration) -> World<'_> {
    let world = World::build(fixture, TestKernel::with_stacks(seed));
    block(&world, pause);
    let kernel = world.cx.share();
    let started = Rc::new(RefCell::new(None));
    let result = Rc::clone(&started);
    run(&world, vec![Box::new(move |_| *result.borrow_mut() = Some(kernel.start()))]);
    match started.take() {
        Some(Ok(())) => {}
        other => panic!("seed {seed}: it starts on layers that block, not: {other:?}"),
    }
    fixture.started(&world);
    run(&world, Vec::new());
    world
}

fn block(world: &World<'_>, pause: Duration) {
    for node in [&world.a, &world.b] {
        node.bottom.block(pause);
    }
}

/// Does each task on a shepherd while frames are carried, until all is still.
fn run(world: &World<'_>, mut tasks: Vec<Task>) {
    let nodes = [world.a.clone(), world.b.clone()];
    let way: RefCell<VecDeque<(usize, Sent)>> = RefCell::default();
    let carry = move |cx: &Kernel| {
        for (side, node) in nodes.iter().enumerate() {
            node.bottom.drain_sent(|sent| way.borrow_mut().push_back((side, sent)));
        }
        let mut carried = 0;
        loop {
            let next = way.borrow_mut().pop_front();
            let Some((side, sent)) = next else { break };
            carried += 1;
            World::deliver(cx, &nodes[side], &nodes[1 - side], sent);
            if cx.must_leave() {
                break;
            }
        }
        carried
    };
    tasks.push(Box::new(|cx| sleep(cx, LONG / 2)));
    assert!(world.cx.run_tasks(LONG, tasks, carry), "what waits below goes on");
}

fn sleep(cx: &Kernel, time: Duration) {
    let _ = cx.wait(&Semaphore::new(0), Some(time));
}

fn held(world: &World<'_>, node: &Node) -> Held {
    let below = node.bottom.held();
    (world.sessions(node), below.iter().map(|session| session.head().opens()).sum())
}

/// Opens the same session several times at one time.
fn open_at_once(world: &World<'_>) -> Vec<Result<SessionRef, OpenError>> {
    let opened: Rc<RefCell<Vec<_>>> = Rc::default();
    let task = |_| {
        let (node, ends) = (world.a.clone(), world.fixture.open(Side::A));
        let opened = Rc::clone(&opened);
        Box::new(move |cx: &Kernel| {
            let result = node.top.open(cx, &node.protocol, ends);
            opened.borrow_mut().push(result);
        }) as Task
    };
    run(world, (0..AT_ONCE).map(task).collect());
    opened.take()
}

/// What several open at one time is one session, held as often, and is given back.
///
/// # Panics
/// If the law is broken.
pub fn opens_once(fixture: &dyn Fixture) -> Verdict {
    each_seed(fixture, |seed| opens_at_once(fixture, seed))
}

fn opens_at_once(fixture: &dyn Fixture, seed: u64) {
    let alone = World::new(fixture);
    drop(alone.converse());
    let is_shared = alone.try_open(Side::A).is_ok();
    let world = world(fixture, seed, PAUSE_MAX);
    world.enable(Side::B);
    let before = held(&world, &world.a);
    let mut sessions: Vec<SessionRef> = Vec::new();
    for result in open_at_once(&world) {
        match result {
            Ok(session) => sessions.push(session),
            Err(OpenError::InUse) if !is_shared => {}
            Err(error) => panic!("seed {seed}: one of {AT_ONCE} opens at one time fails: {error}"),
        }
    }
    let [first, ..] = sessions.as_slice() else {
        panic!("seed {seed}: of {AT_ONCE} opens at one time one succeeds");
    };
    if is_shared {
        let same = sessions.iter().filter(|session| *session == first).count();
        assert_eq!(same, AT_ONCE, "seed {seed}: opened several times at once it is one session");
        assert_eq!(first.head().opens() as usize, AT_ONCE, "seed {seed}: and has all holders");
    }
    assert!(!first.head().is_closed(), "seed {seed}: no session is closed that is held");
    send(&world, first, 1);
    let received = world.end().top.take_received().len();
    assert_eq!(received, 1, "seed {seed}: a session opened several times at once sends");
    for session in &sessions {
        session.close(&world.cx);
    }
    run(&world, Vec::new());
    assert_eq!(held(&world, &world.a), before, "seed {seed}: what is closed is given back");
}

/// Two protocols enable the same at one time: as many get it as one after the other, and what they
/// take back is gone.
///
/// # Panics
/// If the law is broken.
pub fn enables_once(fixture: &dyn Fixture) -> Verdict {
    if fixture.enable(Side::B).is_none() {
        return Verdict::Skipped("it takes no enables");
    }
    each_seed(fixture, |seed| enables_at_once(fixture, seed))
}

fn enables_at_once(fixture: &dyn Fixture, seed: u64) {
    let enabled = |pause| {
        let world = world(fixture, seed, pause);
        let other = world.another_top(Side::B, "other");
        let tops = [world.b.top.clone(), other];
        let before = world.b.bottom.enables();
        let enables: Rc<RefCell<Vec<_>>> = Rc::default();
        let task = |top| {
            let (protocol, ends) = (world.b.protocol.clone(), fixture.enable(Side::B));
            let enables = Rc::clone(&enables);
            Box::new(move |cx: &Kernel| {
                let result = crate::kernel::Top::enable(&top, cx, &protocol, ends.unwrap());
                enables.borrow_mut().push(result);
            }) as Task
        };
        run(&world, tops.into_iter().map(task).collect());
        let (got, refused): (Vec<_>, Vec<_>) = enables.take().into_iter().partition(Result::is_ok);
        let why: Vec<_> = refused.into_iter().filter_map(Result::err).collect();
        let count = got.len();
        let (b, cx) = (world.b.protocol.clone(), &world.cx);
        for enable in got.into_iter().flatten() {
            b.open_disable(cx, enable);
        }
        assert_eq!(world.b.bottom.enables(), before, "seed {seed}: what is taken back is gone");
        (count, why)
    };
    assert_eq!(
        enabled(PAUSE_MAX),
        enabled(Duration::ZERO),
        "seed {seed}: of two enables at one time as many succeed as of two in succession"
    );
}

fn send(world: &World<'_>, session: &SessionRef, count: usize) {
    let session = session.clone();
    let least = world.fixture.message_octets_min().max(64);
    let task: Task = Box::new(move |cx| {
        for n in 0..count {
            let octets = pattern(least + n, 7);
            let message = cx.pool().copy_from(crate::kernel::HEADROOM, &octets);
            let sent = session.push(cx, message.expect("a buffer for a test message"));
            assert_eq!(sent, Ok(()), "a session that is open sends");
        }
    });
    run(world, vec![task]);
}

/// First messages that arrive while the session for them is made fare as if nothing blocked: they
/// make one session, and none is lost.
///
/// # Panics
/// If the law is broken.
pub fn makes_one_session(fixture: &dyn Fixture) -> Verdict {
    each_seed(fixture, |seed| {
        let [still, blocks] =
            [Duration::ZERO, PAUSE_MAX].map(|pause| first_messages(fixture, seed, pause));
        assert_eq!(blocks, still, "seed {seed}: first messages fare as if nothing blocked");
    })
}

/// What comes of the first messages to B.
fn first_messages(fixture: &dyn Fixture, seed: u64, pause: Duration) -> Outcome {
    let world = world(fixture, seed, pause);
    world.enable(Side::B);
    let Ok(session) = open_at_once(&world).remove(0) else {
        panic!("seed {seed}: the first `open` succeeds");
    };
    let before = world.a.drops() + world.b.drops();
    // All of them are under way before B sees one.
    world.a.bottom.block(Duration::ZERO);
    send(&world, &session, AT_ONCE);
    let mut octets: Vec<usize> =
        world.end().top.take_received().iter().map(|received| received.message.len()).collect();
    octets.sort_unstable();
    let made = world.b.top.take_opened();
    let drops = world.a.drops() + world.b.drops() - before;
    (made.len(), octets, drops)
}

/// Messages of a conversation come up in the order in which they went down.
///
/// # Panics
/// If the law is broken.
pub fn keeps_order(fixture: &dyn Fixture) -> Verdict {
    if fixture.receiver() == Receiver::Itself {
        return Verdict::Skipped("its answers are messages of their own");
    }
    each_seed(fixture, |seed| sends_in_order(fixture, seed))
}

fn sends_in_order(fixture: &dyn Fixture, seed: u64) {
    let world = world(fixture, seed, PAUSE_MAX);
    world.enable(Side::B);
    let Ok(session) = open_at_once(&world).remove(0) else {
        panic!("seed {seed}: the first `open` succeeds");
    };
    send(&world, &session, 1);
    drop((world.end().top.take_events(), world.end().top.take_received()));
    send(&world, &session, 2 * AT_ONCE);
    let received = world.end().top.take_events();
    let octets: Vec<usize> = received
        .iter()
        .filter_map(|event| match event {
            Event::Demux(_, octets) => Some(*octets),
            _ => None,
        })
        .collect();
    let least = fixture.message_octets_min().max(64);
    let sent: Vec<usize> = (0..2 * AT_ONCE).map(|n| least + n).collect();
    assert_eq!(octets, sent, "seed {seed}: messages of a conversation keep their order");
}

/// Sessions are opened, used and closed by several at any time: every message arrives or is
/// counted, and in the end all is given back.
///
/// # Panics
/// If the law is broken.
pub fn gives_back(fixture: &dyn Fixture) -> Verdict {
    each_seed(fixture, |seed| comes_and_goes(fixture, seed))
}

fn comes_and_goes(fixture: &dyn Fixture, seed: u64) {
    let world = world(fixture, seed, PAUSE_MAX);
    world.enable(Side::B);
    let before = held(&world, &world.a);
    let dropped = world.a.drops() + world.b.drops();
    let sent = Rc::new(Cell::new(0));
    let task = |_| {
        let (node, sent) = (world.a.clone(), Rc::clone(&sent));
        let ends = fixture.open(Side::A);
        Box::new(move |cx: &Kernel| {
            for n in 0..AT_ONCE {
                let session = match node.top.open(cx, &node.protocol, ends.clone()) {
                    Ok(session) => session,
                    Err(OpenError::InUse) => continue,
                    Err(error) => panic!("seed {seed}: an `open` among others fails: {error}"),
                };
                let octets = pattern(100 + n, 7);
                let message = cx.pool().copy_from(crate::kernel::HEADROOM, &octets);
                let pushed = session.push(cx, message.expect("a buffer for a test message"));
                assert_eq!(pushed, Ok(()), "seed {seed}: who holds a session can send");
                sent.set(sent.get() + 1);
                sleep(cx, Duration::from_nanos(cx.random().below(2_000_000)));
                session.close(cx);
            }
        }) as Task
    };
    run(&world, (0..AT_ONCE).map(task).collect());
    assert_eq!(held(&world, &world.a), before, "seed {seed}: what is closed is given back");
    if world.fixture.receiver() == Receiver::Upper {
        let received = world.end().top.received();
        let dropped = world.a.drops() + world.b.drops() - dropped;
        assert_eq!(received + dropped, sent.get(), "seed {seed}: what was sent is accounted for");
    }
}
