//! Questions that got no answer found nothing: each that a protocol puts to its neighbours is lost
//! once. What it does for it then is refused, and done when it is asked for again.

use super::calls::{CallFixture, CallWorld};
use super::messages::pattern;
use super::{Fixture, Receiver, Side, Verdict, World};
use crate::kernel::{Losses, TestKernel};
use core::time::Duration;
use xk_core::control::Describe;
use xk_core::object::OpenError;
use xk_core::{Kernel, Part, SessionRef};
use xk_kit::control::{
    MaxPacket, MinPacket, MyEther, MyHost, MyPort, OptPacket, PeerEther, PeerHost, PeerPort,
    PseudoHeader,
};

/// All chance of this law comes from this.
const SEED: u64 = 0x6c6f_7374;
/// The procedure that is called.
const PROCEDURE: u32 = 7;
/// Times that a lost question is tried again, and the time between.
const TRIES: usize = 8;
const APART: Duration = Duration::from_secs(1);

/// Outcome in the end: what sessions of both ends say of themselves, and whether a message came
/// through each way.
type Outcome = Vec<String>;

/// Each question that a protocol puts to what stands below and above it is lost once, wherever it
/// is put: at the start, for an enable, an open, the first message and its answer. In the end the
/// protocol's sessions say and do what they do without that.
///
/// # Panics
/// If the law is broken.
pub fn founds_nothing(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("nothing of the graph is below it");
    }
    all_come_alike(|nth| lives(fixture, nth))
}

/// Whether what comes of a life in which one question is lost is what comes of one without that.
fn all_come_alike(life: impl Fn(Option<usize>) -> Life) -> Verdict {
    let (usual, count, _) = life(None);
    for nth in 0..count {
        let (came, _, name) = life(Some(nth));
        let name = name.unwrap_or("none");
        let Some(came) = came else { continue };
        assert_eq!(
            Some(&came),
            usual.as_ref(),
            "law 9: question {nth} of {count}, `{name}`, is lost, and founds nothing"
        );
    }
    Verdict::Holds
}

/// Outcome of a conversation in which a question is lost, the number of questions, and the name of
/// the lost one; no outcome where the start says so.
type Life = (Option<Outcome>, usize, Option<&'static str>);

fn lives(fixture: &dyn Fixture, nth: Option<usize>) -> Life {
    let world = World::build(fixture, TestKernel::new(SEED));
    let losses = Losses::among(&world.cx, nth);
    losses.count(true);
    let started = world.cx.start();
    losses.count(false);
    if let Err((protocol, error)) = started {
        assert_eq!(error, OpenError::NoAnswer, "law 9: {protocol:?} does not start");
        assert!(losses.lost().is_some(), "law 9: {protocol:?} starts unless a question is lost");
        return (None, 0, losses.lost());
    }
    fixture.started(&world);
    world.exchange();
    losses.count(true);
    let (opened, made) = converse(&world);
    losses.count(false);
    let mut outcome = vec![format!("{made:?}")];
    outcome.push(format!("message {}", comes(&world, &opened, Side::A)));
    outcome.push(said(&world.cx, &opened));
    let text = opened.ask(&world.cx, Describe::default()).unwrap_or_default().text;
    // Sessions below have other numbers, and some of a session are drawn by chance.
    let text = text.split(" on s").next().unwrap_or_default();
    outcome.push(text.replace(|digit: char| digit.is_ascii_digit(), ""));
    if let Some((session, ends)) = world.b.top.take_opened().pop() {
        // Its own host may be told or be left open, as the message came.
        let hosts =
            ends.iter().skip(1).flat_map(|peer| peer.parts()).filter_map(|part| match part {
                Part::Host(host) => Some(*host),
                _ => None,
            });
        outcome.push(format!("{:?}", hosts.collect::<Vec<_>>()));
        outcome.push(format!("answer {}", comes(&world, &session, Side::B)));
        outcome.push(said(&world.cx, &session));
    }
    (Some(outcome), losses.put(), losses.lost())
}

/// Makes a conversation and sends a message, each as often as needed.
fn converse(world: &World<'_>) -> (SessionRef, bool) {
    let (b, cx) = (&world.b, &world.cx);
    let ready = || world.exchange();
    again(ready, "an enable", || match world.fixture.enable(Side::B) {
        Some(ends) => b.top.enable(cx, &b.protocol, ends).map(drop),
        None => Ok(()),
    });
    let opened = again(ready, "an open", || world.try_open(Side::A));
    let made = comes(world, &opened, Side::A);
    // One that was founded on nothing is gone by now.
    match opened.head().is_closed() {
        true => (again(ready, "an open", || world.try_open(Side::A)), made),
        false => (opened, made),
    }
}

/// Does what a question was lost for once more.
fn again<T>(ready: impl Fn(), what: &str, act: impl Fn() -> Result<T, OpenError>) -> T {
    for _ in 0..TRIES {
        match act() {
            Ok(done) => return done,
            Err(error) => {
                assert_eq!(error, OpenError::NoAnswer, "law 9: {what} that lost a question")
            }
        }
        ready();
    }
    panic!("law 9: {what} is done once no question is lost any more");
}

/// As [`founds_nothing`], of a protocol of the rpc realm.
///
/// # Panics
/// If the law is broken.
pub fn founds_no_calls(fixture: &dyn CallFixture) -> Verdict {
    all_come_alike(|nth| calls(fixture, nth))
}

fn calls(fixture: &dyn CallFixture, nth: Option<usize>) -> Life {
    let world = CallWorld::build(fixture, SEED);
    let losses = Losses::among(&world.cx, nth);
    losses.count(true);
    if let Err((protocol, error)) = world.cx.start() {
        assert_eq!(error, OpenError::NoAnswer, "law 9: {protocol:?} does not start");
        return (None, 0, losses.lost());
    }
    let [a, b] = &world.nodes;
    let ready = || world.cross();
    again(ready, "an enable", || {
        b.top.enable(&world.cx, &b.protocol, fixture.enable(Side::B)).map(drop)
    });
    let open = || a.top.open(&world.cx, &a.protocol, fixture.open(Side::A, PROCEDURE));
    let session = again(ready, "an open", open);
    let octets = pattern(64, 5);
    let replies = |session: &SessionRef| {
        (0..TRIES).any(|_| world.call(session, &octets).is_ok_and(|reply| reply.eq_octets(&octets)))
    };
    let first = replies(&session);
    losses.count(false);
    let session = match session.head().is_closed() {
        true => again(ready, "an open", open),
        false => session,
    };
    let then = replies(&session);
    let mut outcome = vec![format!("{first} {then}"), said(&world.cx, &session)];
    if let Some((served, _)) = b.top.take_opened().pop() {
        outcome.push(said(&world.cx, &served));
    }
    drop(session);
    world.cx.finish();
    (Some(outcome), losses.put(), losses.lost())
}

/// Whether a message of this side comes through, if it is sent as often as needed.
fn comes(world: &World<'_>, session: &SessionRef, side: Side) -> bool {
    let end = match (world.fixture.receiver(), side) {
        (Receiver::Itself, _) | (_, Side::B) => &world.a,
        _ => &world.b,
    };
    let octets = pattern(world.fixture.message_octets_min().max(64), 5);
    drop(end.top.take_received());
    for _ in 0..TRIES {
        let _ = session.push(&world.cx, world.cx.message(&octets));
        world.exchange();
        if end.top.take_received().iter().any(|received| !received.message.is_empty()) {
            return true;
        }
        world.cx.advance(APART);
        world.exchange();
    }
    false
}

/// Facts that a session tells about itself, as text.
fn said(cx: &Kernel, session: &SessionRef) -> String {
    let sizes = (
        session.ask(cx, MaxPacket::default()).map(|q| q.octets),
        session.ask(cx, OptPacket::default()).map(|q| q.octets),
        session.ask(cx, MinPacket::default()).map(|q| q.octets),
    );
    let hosts = (
        session.ask(cx, MyHost::default()).map(|q| q.host),
        session.ask(cx, PeerHost::default()).map(|q| q.host),
        session.ask(cx, PseudoHeader::default()).map(|q| (q.sum, q.sum_sent)),
    );
    let ports = (
        session.ask(cx, MyPort::default()).map(|q| q.port),
        session.ask(cx, PeerPort::default()).map(|q| q.port),
    );
    let stations = (
        session.ask(cx, MyEther::default()).map(|q| q.address),
        session.ask(cx, PeerEther::default()).map(|q| q.address),
    );
    format!("{sizes:?} {hosts:?} {ports:?} {stations:?}")
}
