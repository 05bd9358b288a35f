//! Layers below may block in `open`, `open_enable`, `control` and `push`: other messages are
//! carried meanwhile, and what comes of all of them is what comes of them one by one.

use super::messages::pattern;
use super::world::{Harm, Way, at_once, carrier};
use super::{Fixture, Node, Receiver, Side, Verdict, World};
use crate::kernel::{Event, Lower, Sent, Task, TestKernel};
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{OpenError, WAITING_MAX};
use xk_core::shepherd::Semaphore;
use xk_core::{Entry, Kernel, Message, Part, Participant, Participants, SessionRef};

/// For how long an operation below blocks at most.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Longer than anything takes that a law does at one time.
const LONG: Duration = Duration::from_secs(600);
/// Shepherds that do the same at one time, and messages that one sends.
pub(super) const AT_ONCE: usize = 4;
/// Number of orders of events for which each law is checked.
pub(super) const SEEDS: u64 = 8;

/// Number of sessions of an instance, and of holds on sessions below: both are as before once all
/// is given back.
type Held = (Option<usize>, u32);

/// Outcome of messages: sessions made, octets of each, and messages dropped.
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
    for node in [&world.a, &world.b] {
        node.block(pause);
    }
    let kernel = world.cx.share();
    let started = at_once(1, move |_, _| kernel.start(), |tasks| run(&world, tasks));
    assert!(started[0].is_ok(), "seed {seed}: it starts on layers that block: {started:?}");
    fixture.started(&world);
    run(&world, Vec::new());
    world
}

/// Does each task on a shepherd while frames are carried, until all is still.
fn run(world: &World<'_>, tasks: Vec<Task>) {
    run_with(world, tasks, None);
}

/// As [`run`]; frames come to harm on the way.
fn run_with(world: &World<'_>, mut tasks: Vec<Task>, harm: Harm) {
    let carry = carrier([world.a.clone(), world.b.clone()], Way::default(), harm);
    tasks.push(Box::new(|cx| sleep(cx, LONG / 2)));
    assert!(world.cx.run_tasks(LONG, tasks, carry), "what waits below goes on");
}

pub(super) fn sleep(cx: &Kernel, time: Duration) {
    let _ = cx.wait(&Semaphore::new(0), Some(time));
}

fn held(world: &World<'_>, node: &Node) -> Held {
    (world.sessions(node), node.holds())
}

/// A frame, and before it what `copy` makes of its message.
fn doubled(sent: Sent, copy: impl FnOnce(&Message) -> Option<Message>) -> Vec<Sent> {
    let before =
        copy(&sent.message).map(|message| Sent { message, session: sent.session.clone(), ..sent });
    before.into_iter().chain([sent]).collect()
}

/// A frame behind a copy of it.
fn copied(_: &Kernel, sent: Sent) -> Vec<Sent> {
    doubled(sent, |message| message.try_clone().ok())
}

/// A frame behind a copy of it with one octet damaged.
fn damaged(cx: &Kernel, sent: Sent) -> Vec<Sent> {
    doubled(sent, |message| {
        let mut octets: Vec<u8> = message.octets().collect();
        let at = cx.random().below(octets.len().max(1) as u64) as usize;
        *octets.get_mut(at)? ^= 1 << cx.random().below(8);
        cx.pool().copy_from(crate::kernel::HEADROOM, &octets).ok()
    })
}

/// Opens the same session several times at one time.
fn open_at_once(world: &World<'_>) -> Vec<Result<SessionRef, OpenError>> {
    let (node, ends) = (world.a.clone(), world.fixture.open(Side::A));
    let open = move |cx: &Kernel, _| node.top.open(cx, &node.protocol, ends.clone());
    at_once(AT_ONCE, open, |tasks| run(world, tasks))
}

/// Several shepherds that open the same participants at one time get one session, with a hold for
/// each, and it is released in the end.
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

/// Two protocols that enable the same participants at one time succeed as often as in turn, and
/// withdrawn enables are gone.
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
        let (protocol, ends) = (world.b.protocol.clone(), fixture.enable(Side::B).unwrap());
        let enable = move |cx: &Kernel, n: usize| tops[n].enable(cx, &protocol, ends.clone());
        let enables = at_once(2, enable, |tasks| run(&world, tasks));
        let (got, refused): (Vec<_>, Vec<_>) = enables.into_iter().partition(Result::is_ok);
        let why: Vec<_> = refused.into_iter().filter_map(Result::err).collect();
        let count = got.len();
        let (b, cx) = (world.b.protocol.clone(), &world.cx);
        for enable in got.into_iter().flatten() {
            b.open_disable(cx, enable);
        }
        world.cross();
        assert_eq!(world.b.bottom.enables(), before, "seed {seed}: what is taken back is gone");
        (count, why)
    };
    assert_eq!(
        enabled(PAUSE_MAX),
        enabled(Duration::ZERO),
        "seed {seed}: of two enables at one time as many succeed as of two in succession"
    );
}

/// The octets of message number `n`.
fn octets_of(fixture: &dyn Fixture, n: usize) -> Vec<u8> {
    pattern(fixture.message_octets_min().max(64) + n, n as u8)
}

fn push(cx: &Kernel, session: &SessionRef, octets: &[u8]) {
    let message = cx.pool().copy_from(crate::kernel::HEADROOM, octets);
    let sent = session.push(cx, message.expect("a buffer for a test message"));
    assert_eq!(sent, Ok(()), "a session that is open sends");
}

fn send(world: &World<'_>, session: &SessionRef, count: usize) {
    let session = session.clone();
    let messages: Vec<Vec<u8>> = (0..count).map(|n| octets_of(world.fixture, n)).collect();
    let task: Task = Box::new(move |cx| {
        messages.iter().for_each(|octets| push(cx, &session, octets));
    });
    run(world, vec![task]);
}

/// First messages that arrive while their session is made, during which the layer below may block,
/// have the same effect as if nothing blocked: they make one session, none is lost, and none
/// overtakes another.
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

/// Outcome of the first messages to B.
fn first_messages(fixture: &dyn Fixture, seed: u64, pause: Duration) -> Outcome {
    let world = world(fixture, seed, pause);
    world.enable(Side::B);
    let session = open_at_once(&world).into_iter().find_map(Result::ok);
    let session = session.unwrap_or_else(|| panic!("seed {seed}: one `open` succeeds"));
    let before = world.a.drops() + world.b.drops();
    // All of them are under way before B sees one.
    world.a.bottom.block(Duration::ZERO);
    send(&world, &session, AT_ONCE);
    let received = world.end().top.take_received();
    let mut octets: Vec<usize> = received.iter().map(|received| received.message.len()).collect();
    if fixture.is_stream() {
        octets = vec![octets.into_iter().sum()];
    }
    if fixture.receiver() == Receiver::Itself {
        // Its answers are messages of their own.
        octets.sort_unstable();
    }
    let made = world.b.top.take_opened();
    let drops = world.a.drops() + world.b.drops() - before;
    (made.len(), octets, drops)
}

/// Frames that arrive twice at one time make as many sessions as frames that arrive once. Damaged
/// ones among them do no harm: a stream still delivers its octets.
///
/// # Panics
/// If the law is broken.
pub fn bears_copies(fixture: &dyn Fixture) -> Verdict {
    each_seed(fixture, |seed| {
        let (made, missing) = bears(fixture, seed, Some(copied));
        assert!(made <= 1, "seed {seed}: frames that come twice make one session, not {made}");
        assert_eq!(missing, None, "seed {seed}: what arrives twice is delivered");
        // What a damaged header without a checksum says is another matter.
        let (_, missing) = bears(fixture, seed, Some(damaged));
        let missing = missing.filter(|_| fixture.is_stream());
        assert_eq!(missing, None, "seed {seed}: a stream bears damaged segments");
    })
}

/// Number of sessions that messages make which arrive with others beside them, and the message that
/// is missing.
fn bears(fixture: &dyn Fixture, seed: u64, harm: Harm) -> (usize, Option<Vec<u8>>) {
    let world = world(fixture, seed, PAUSE_MAX);
    world.enable(Side::B);
    let (node, ends) = (world.a.clone(), fixture.open(Side::A));
    let mut sent: Vec<Vec<u8>> = (0..AT_ONCE).map(|n| octets_of(fixture, n)).collect();
    let messages = sent.clone();
    let task: Task = Box::new(move |cx| {
        let session = node.top.open(cx, &node.protocol, ends).expect("an `open` succeeds");
        messages.iter().for_each(|octets| push(cx, &session, octets));
    });
    run_with(&world, vec![task], harm);
    let mut received = octets_received(&world);
    if fixture.is_stream() {
        (received, sent) = (vec![received.concat()], vec![sent.concat()]);
    }
    let missing = sent.into_iter().find(|octets| !received.contains(octets));
    (world.end().top.take_opened().len(), missing)
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
    let session = open_at_once(&world).into_iter().find_map(Result::ok);
    let session = session.unwrap_or_else(|| panic!("seed {seed}: one `open` succeeds"));
    send(&world, &session, 1);
    drop(world.end().top.take_received());
    send(&world, &session, 2 * AT_ONCE);
    let mut received = octets_received(&world);
    let mut sent: Vec<Vec<u8>> = (0..2 * AT_ONCE).map(|n| octets_of(fixture, n)).collect();
    if fixture.is_stream() {
        (received, sent) = (vec![received.concat()], vec![sent.concat()]);
    }
    assert!(received == sent, "seed {seed}: messages of a conversation keep their order");
}

/// Messages that come during `open_done` of their session, which may block, follow its first
/// message, in order; those beyond the bound of waiting messages are counted.
///
/// # Panics
/// If the law is broken.
pub fn tells_of_sessions_first(fixture: &dyn Fixture) -> Verdict {
    if fixture.receiver() == Receiver::Itself {
        return Verdict::Skipped("its answers are messages of their own");
    }
    each_seed(fixture, |seed| {
        comes_first(fixture, seed, 2 * AT_ONCE);
        comes_first(fixture, seed, 2 * WAITING_MAX as usize);
    })
}

fn comes_first(fixture: &dyn Fixture, seed: u64, count: usize) {
    let world = world(fixture, seed, Duration::ZERO);
    world.enable(Side::B);
    world.b.top.on_open(Some(Rc::new(|cx, _| {
        sleep(cx, Duration::from_nanos(cx.random().below(4_000_000)));
    })));
    let dropped = world.a.drops() + world.b.drops();
    let (node, ends) = (world.a.clone(), fixture.open(Side::A));
    let sent: Vec<Vec<u8>> = (0..count).map(|n| octets_of(fixture, n)).collect();
    let messages = sent.clone();
    let task: Task = Box::new(move |cx| {
        let session = node.top.open(cx, &node.protocol, ends).expect("an `open` succeeds");
        for octets in &messages {
            push(cx, &session, octets);
            if count < WAITING_MAX as usize && cx.random().below(2) == 0 {
                sleep(cx, Duration::from_nanos(cx.random().below(1_000_000)));
            }
        }
    });
    run(&world, vec![task]);
    let received = octets_received(&world);
    let dropped = (world.a.drops() + world.b.drops() - dropped) as usize;
    if fixture.is_stream() {
        assert!(received.concat() == sent.concat(), "seed {seed}: a stream keeps its order");
    } else if count <= WAITING_MAX as usize {
        assert!(received == sent, "seed {seed}: messages behind the first do not overtake it");
    } else {
        let mut rest = sent.iter();
        let in_order = received.iter().all(|octets| rest.any(|sent| sent == octets));
        assert!(in_order, "seed {seed}: messages behind the first do not overtake it");
        let sends_again = !fixture.patience().is_zero();
        let is_sound = received.len() + dropped == count || sends_again && received == sent;
        assert!(is_sound, "seed {seed}: all is accounted for");
    }
    if let Some(Event::Demux(..)) = world.b.top.take_events().first() {
        panic!("seed {seed}: a protocol is told of a session before it has a message of it");
    }
}

/// A protocol with ports that is opened with any port of ours, and holds as many sessions as there
/// are ports.
struct AnyPort<'f>(&'f dyn Fixture);

impl Fixture for AnyPort<'_> {
    fn entry(&self) -> &'static Entry {
        self.0.entry()
    }

    fn lower(&self, side: Side) -> Lower {
        self.0.lower(side)
    }

    fn open(&self, side: Side) -> Participants {
        let mut ends = self.0.open(side);
        *ends.local_mut().expect("a local participant") = Participant::of(Part::Any);
        ends
    }

    fn sessions_max(&self) -> usize {
        65_536
    }
}

/// Sessions opened without a port get one each, even if several are opened at one time and few
/// ports are left.
///
/// # Panics
/// If the law is broken.
pub fn chooses_numbers_of_their_own(fixture: &dyn Fixture) {
    let fixture = &AnyPort(fixture);
    for seed in 0..SEEDS {
        let world = world(fixture, seed, Duration::ZERO);
        world.a.bottom.keep(false);
        let mut sessions: Vec<SessionRef> = Vec::new();
        let full = loop {
            match world.try_open(Side::A) {
                Ok(session) => sessions.push(session),
                Err(error) => break error,
            }
        };
        assert_eq!(full, OpenError::Full, "seed {seed}: numbers are bounded");
        for _ in 0..AT_ONCE {
            let at = world.cx.random().below(sessions.len() as u64) as usize;
            sessions.swap_remove(at).close(&world.cx);
        }
        world.a.block(PAUSE_MAX);
        let (node, ends) = (world.a.clone(), fixture.open(Side::A));
        let open = move |cx: &Kernel, _| node.top.open(cx, &node.protocol, ends.clone());
        let opened = at_once(AT_ONCE, open, |tasks| {
            assert!(world.cx.run_tasks(LONG, tasks, |_| 0), "what waits below goes on");
        });
        for session in opened {
            let session = session.expect("a session, for a number is left");
            assert_eq!(session.head().opens(), 1, "seed {seed}: each has a number of its own");
            assert!(!sessions.contains(&session), "seed {seed}: and a session");
            sessions.push(session);
        }
        world.cx.finish();
    }
}

fn octets_received(world: &World<'_>) -> Vec<Vec<u8>> {
    let received = world.end().top.take_received();
    received.iter().map(|received| received.message.octets().collect()).collect()
}

/// Several shepherds open, use and close sessions at any time: every message arrives or is counted,
/// and in the end everything is released.
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
    let is_stream = fixture.is_stream();
    let (node, ends) = (world.a.clone(), fixture.open(Side::A));
    let come_and_go = move |cx: &Kernel, _| {
        let mut sent = 0;
        for n in 0..AT_ONCE {
            let session = match node.top.open(cx, &node.protocol, ends.clone()) {
                Ok(session) => session,
                Err(OpenError::InUse) => continue,
                Err(error) => panic!("seed {seed}: an `open` among others fails: {error}"),
            };
            let octets = pattern(100 + n, 7);
            push(cx, &session, &octets);
            sent += if is_stream { octets.len() as u64 } else { 1 };
            sleep(cx, Duration::from_nanos(cx.random().below(2_000_000)));
            session.close(cx);
        }
        sent
    };
    let sent: u64 = at_once(AT_ONCE, come_and_go, |tasks| run(&world, tasks)).iter().sum();
    assert_eq!(held(&world, &world.a), before, "seed {seed}: what is closed is given back");
    if is_stream {
        let received = world.end().top.take_received();
        let octets: usize = received.iter().map(|received| received.message.len()).sum();
        assert_eq!(octets as u64, sent, "seed {seed}: a stream loses nothing");
    } else if world.fixture.receiver() == Receiver::Upper {
        let received = world.end().top.received();
        let dropped = world.a.drops() + world.b.drops() - dropped;
        let sends_again = !fixture.patience().is_zero();
        let is_sound = received + dropped == sent || sends_again && received + dropped > sent;
        assert!(
            is_sound,
            "seed {seed}: what was sent is accounted for: {received}, {dropped}, {sent}"
        );
    }
}
