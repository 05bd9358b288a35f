//! Invariant 8 of ARCHITECTURE.md: nothing from outside panics, disappears, or makes a protocol
//! grow.

use super::world::SEED;
use super::{Fixture, Node, Receiver, Verdict, World};
use crate::kernel::{Sent, octets};
use core::time::Duration;
use xk_core::SessionRef;
use xk_core::random::Random;

/// Frames that are damaged at random.
const RANDOM_FRAMES: usize = 4000;
/// Every bit of so many octets from the front is flipped once.
const FLIPPED_OCTETS: usize = 80;
/// Strangers that send one frame each.
const STRANGERS: u32 = 100_000;

/// Messages accounted for so far: delivered, dropped under a reason, taken.
fn accounted(world: &World<'_>) -> u64 {
    let of =
        |node: &Node| node.drops() + node.top.received() + world.fixture.taken(&world.cx, node);
    of(&world.b)
}

/// A frame cut short, with flipped bits, with octets at random, or with octets too many never
/// panics, and is delivered, dropped and counted, or taken: exactly one of these.
///
/// # Panics
/// If the law is broken.
pub fn survives_damage(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("it stands on nothing of the graph");
    }
    let world = World::new(fixture);
    let session = world.converse();
    let frame = world.capture(&session);
    let whole = octets(&frame.message);
    for node in [&world.a, &world.b] {
        node.bottom.keep(false);
        node.top.forget(true);
    }
    let tried = |octets: &[u8], what: &str| {
        let before = accounted(&world);
        inject(&world, &frame, octets);
        let found = accounted(&world) - before;
        assert_eq!(
            found, 1,
            "law 8: one frame ({what}) is delivered, counted as dropped, or taken; here {found} of it: {octets:02x?}"
        );
    };
    for len in 0..whole.len() {
        tried(&whole[..len], "cut short");
    }
    for bit in 0..8 * whole.len().min(FLIPPED_OCTETS) {
        let mut octets = whole.clone();
        octets[bit / 8] ^= 1 << (bit % 8);
        tried(&octets, "one bit flipped");
    }
    let random = Random::new(SEED);
    for _ in 0..RANDOM_FRAMES {
        let octets = damaged(&random, &whole);
        tried(&octets, "damaged at random");
    }
    drop(frame);
    world.cx.advance(Duration::from_secs(600));
    survives_after(&world)
}

/// A frame with one to eight octets overwritten, a random length, now and then nothing but noise.
pub(super) fn damaged(random: &Random, whole: &[u8]) -> Vec<u8> {
    let mut octets = whole.to_vec();
    if random.below(8) == 0 {
        random.fill(&mut octets);
    }
    for _ in 0..=random.below(8) {
        let at = random.below(octets.len().min(64) as u64) as usize;
        octets[at] = random.next_u64() as u8;
    }
    if random.below(4) == 0 {
        let len = random.below(2 * octets.len() as u64) as usize;
        octets.resize(len, random.next_u64() as u8);
    }
    octets
}

fn inject(world: &World<'_>, like: &Sent, octets: &[u8]) {
    let sent = Sent {
        session: like.session.clone(),
        peer: like.peer,
        selector: like.selector,
        message: world.cx.message(octets),
    };
    world.inject(&world.a, &world.b, sent);
    world.cross();
}

/// After all that, a conversation still works, and the messages are gone.
fn survives_after(world: &World<'_>) -> Verdict {
    for node in [&world.a, &world.b] {
        node.bottom.keep(true);
        node.top.clear();
    }
    world.exchange();
    assert_eq!(
        world.cx.live().0,
        0,
        "law 8: ten minutes after the damage no message is held back any more"
    );
    let session = world.open(super::Side::A);
    let node = world.end();
    let before = node.top.received();
    session
        .push(&world.cx, world.cx.message(&[7; 64]))
        .expect("law 8: a session sends after the damage");
    world.exchange();
    world.cx.advance(Duration::from_secs(5));
    world.exchange();
    assert!(node.top.received() > before, "law 8: after the damage a good message still arrives");
    Verdict::Holds
}

/// Two instances with a conversation, its session, and a frame that strangers can send, too; or why
/// there are no strangers.
fn visited(fixture: &dyn Fixture) -> Result<(World<'_>, SessionRef, Sent), &'static str> {
    if fixture.is_anchor() {
        return Err("it stands on nothing of the graph");
    }
    let world = World::new(fixture);
    let session = world.converse();
    let frame = world.capture(&session);
    fixture.stranger(&frame, 0)?;
    Ok((world, session, frame))
}

/// As [`visited`], of a layer of which strangers' messages make sessions.
fn made_by_strangers(fixture: &dyn Fixture) -> Result<(World<'_>, SessionRef, Sent), &'static str> {
    match fixture.opens_nothing() {
        Some(why) => Err(why),
        None => visited(fixture),
    }
}

/// 100 000 strangers with one frame each leave no more sessions than the bound says and no message
/// in the pool, and an earlier conversation goes on.
///
/// # Panics
/// If the law is broken.
pub fn survives_a_flood(fixture: &dyn Fixture) -> Verdict {
    let (world, session, frame) = match visited(fixture) {
        Ok(visited) => visited,
        Err(why) => return Verdict::Skipped(why),
    };
    for node in [&world.a, &world.b] {
        node.bottom.keep(false);
        node.top.clear();
        node.top.forget(true);
    }
    let sessions_max = fixture.sessions_max();
    for n in 0..STRANGERS {
        comes_from_stranger(&world, &frame, n);
        if n % 4096 == 0 {
            bounded(&world, sessions_max, n);
        }
    }
    bounded(&world, sessions_max, STRANGERS);
    world.cx.advance(Duration::from_secs(600));
    drop(frame);
    if !fixture.patience().is_zero() {
        // What was under way then has come.
        world.a.bottom.keep(true);
        world.b.bottom.keep(true);
        world.exchange();
    }
    assert_eq!(
        world.cx.live(),
        (0, 0),
        "law 8: ten minutes after the flood no message is held back any more"
    );
    for node in [&world.a, &world.b] {
        node.bottom.keep(true);
        node.top.forget(false);
    }
    let end = world.end().top.received();
    session
        .push(&world.cx, world.cx.message(&[7; 64]))
        .expect("law 8: who talked before the flood sends on");
    world.exchange();
    if fixture.receiver() == Receiver::Upper {
        assert_eq!(
            world.end().top.received(),
            end + 1,
            "law 8: who talked before the flood is still heard"
        );
    }
    drop(session);
    world.cx.stop();
    assert_eq!(world.cx.live(), (0, 0), "law 8: after `stop` nothing of the flood is left");
    Verdict::Holds
}

/// A session that a stranger's message made holds nothing below, unless a layer above holds it,
/// and then as long: what lies below may be evicted for others, however large the tables above are.
///
/// # Panics
/// If the law is broken.
pub fn pins_nothing(fixture: &dyn Fixture) -> Verdict {
    const STRANGERS: u32 = 100;
    let (world, _session, frame) = match visited(fixture) {
        Ok(visited) => visited,
        Err(why) => return Verdict::Skipped(why),
    };
    let held = || world.b.bottom.held().len();
    let (before, mut opened) = (held(), Vec::new());
    drop(world.b.top.take_opened());
    for n in 0..STRANGERS {
        comes_from_stranger(&world, &frame, n);
        opened.extend(world.b.top.take_opened().into_iter().map(|(made, _)| made));
    }
    assert_eq!(held(), before, "law 5: what {STRANGERS} strangers began holds nothing below");
    let made = fixture.opens_nothing().map_or(STRANGERS as usize, |_| 0);
    assert_eq!(
        opened.len(),
        made,
        "law 2: the first messages of {STRANGERS} strangers make a session each"
    );
    opened.iter().for_each(SessionRef::hold);
    opened.iter().for_each(|session| session.close(&world.cx));
    assert_eq!(held(), before, "law 5: sessions that nobody holds any more hold nothing below");
    Verdict::Holds
}

/// A session that a stranger's message made tells the stranger's source, from behind a cut as well:
/// tables share out their room among networks by it, and one without escapes its share.
///
/// # Panics
/// If the law is broken.
pub fn tells_its_source(fixture: &dyn Fixture) -> Verdict {
    const STRANGERS: u32 = 3;
    let (world, _session, frame) = match made_by_strangers(fixture) {
        Ok(visited) => visited,
        Err(why) => return Verdict::Skipped(why),
    };
    drop(world.b.top.take_opened());
    (0..STRANGERS).for_each(|n| comes_from_stranger(&world, &frame, n));
    let made = world.b.top.take_opened();
    let has_source = |(made, _): &(SessionRef, _)| made.head().source() != 0;
    let has_addresses = fixture.stranger(&frame, 0).is_ok_and(|(peer, _)| peer.is_some());
    if !has_addresses && !made.iter().any(has_source) {
        return Verdict::Skipped("neither it nor what it stands on has addresses");
    }
    assert!(made.iter().all(has_source), "law 8: what a message made tells where that came from");
    Verdict::Holds
}

/// Sessions that layers above hold do not shut a layer to strangers, and strangers do not take
/// their places: these layers bound them.
///
/// # Panics
/// If the law is broken.
pub fn has_room_beside_what_is_held(fixture: &dyn Fixture) -> Verdict {
    /// More than any layer keeps that are idle.
    const HELD_MAX: usize = 5000;
    let (world, session, frame) = match made_by_strangers(fixture) {
        Ok(visited) => visited,
        Err(why) => return Verdict::Skipped(why),
    };
    let next = session.push(&world.cx, world.cx.message(&[7; 64]));
    next.expect("law 5: a session that sent sends again");
    world.cross();
    let next = world.a.bottom.take_sent().pop().expect("what was pushed");
    let top = &world.b.top;
    top.clear();
    let opened = |n: u32| {
        comes_from_stranger(&world, &frame, n);
        drop(top.take_received());
        top.take_opened().pop().map(|(session, _)| session)
    };
    // What is held fills a table by right: a part of it leaves room.
    let to_hold = HELD_MAX.min(fixture.sessions_max() / 3) as u32;
    let mut held = Vec::new();
    for n in 0..to_hold {
        let session = opened(n);
        let session = session.unwrap_or_else(|| {
            panic!("law 8: with {n} sessions held, there is no room for one more")
        });
        session.hold();
        // Across a cut this goes with the next turn.
        world.exchange();
        held.push(session);
    }
    // More than there is room for beside them.
    for n in 0..2 * HELD_MAX as u32 {
        let session = opened(to_hold + n);
        assert!(
            session.is_some(),
            "law 8: with {to_hold} sessions held and {n} not, there is no room for one more"
        );
    }
    for (n, session) in (0..).zip(&held) {
        comes_from_stranger(&world, &next, n);
        let received = top.take_received().pop();
        assert_eq!(
            received.map(|received| received.session.id()),
            Some(session.id()),
            "law 8: a session that is held is still the one of who began it"
        );
    }
    held.iter().for_each(|session| session.close(&world.cx));
    Verdict::Holds
}

/// Stranger number `n` has sent the frame to B, which has not dropped it: a message that no table
/// sees proves nothing of it.
///
/// # Panics
/// If there are no strangers, or this one's frame is dropped.
fn comes_from_stranger(world: &World<'_>, frame: &Sent, n: u32) {
    let (peer, octets) = world.fixture.stranger(frame, n).expect("strangers");
    let (bottom, message) = (&world.b.bottom, world.cx.message(&octets));
    let before = world.b.drops();
    match World::selector(&world.a, &world.b, frame.selector) {
        Some(selector) => drop(bottom.inject_for(&world.cx, peer, selector, message)),
        None => drop(bottom.inject(&world.cx, peer, message)),
    }
    world.cross();
    assert_eq!(
        world.b.drops(),
        before,
        "law 8: stranger number {n} is heard; B dropped so far: {:?}",
        world.b.protocol.head().drops().list()
    );
}

fn bounded(world: &World<'_>, sessions_max: usize, n: u32) {
    if let Some(sessions) = world.sessions(&world.b) {
        assert!(
            sessions <= sessions_max,
            "law 8: after {n} strangers there are {sessions} sessions, more than the bound of {sessions_max}"
        );
    }
}
