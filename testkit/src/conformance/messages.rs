//! Invariants 6, 7 and 9 of ARCHITECTURE.md: what happens to messages.

use super::{Fixture, Receiver, Verdict, World, allocations, counts_allocations};
use crate::kernel::octets;
use xk_core::object::PushError;
use xk_core::{Message, SessionRef};
use xk_kit::control::MaxPacket;

/// The largest message tried, in octets.
const OCTETS_MAX: u32 = 65_535;
/// The largest message tried where `max-packet` has no answer, in octets.
const OCTETS_UNASKED: u32 = 1400;
/// Messages that go before allocations are counted, and while they are.
const STEADY: usize = 256;

/// `len` octets that differ from those of another `seed`, and from their neighbours.
#[must_use]
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let octet = |at: usize| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed;
    (0..len).map(octet).collect()
}

/// Places of a message's octets in the pool: runs of position and length, neighbours joined.
fn places(message: &Message) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for slice in message.slices() {
        match runs.last_mut() {
            Some((at, len)) if *at + *len == slice.offset => *len += slice.octets.len(),
            _ => runs.push((slice.offset, slice.octets.len())),
        }
    }
    runs
}

/// Laws 1 and 7: what one instance sends the other delivers: each message once, in order, octets
/// unchanged, in the very buffers that it was given in. Sizes from 0 to the largest that the
/// session says it takes.
///
/// # Panics
/// If the law is broken.
pub fn carries(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let session = world.converse();
    let cx = &world.cx;
    let known = session.ask(cx, MaxPacket::default()).map(|q| q.octets);
    assert_ne!(known, Some(0), "law 9: `max-packet` is more than nothing");
    let max = known.unwrap_or(OCTETS_UNASKED).min(OCTETS_MAX) as usize;
    let sizes = [0, 1, 2, 3, 63, 64, 65, 512, max / 2, max - 1, max];
    for size in sizes {
        if !(fixture.message_octets_min()..=max).contains(&size) {
            continue;
        }
        let given = pattern(size, size as u8);
        let message = cx.message(&given);
        let lay = places(&message);
        session.push(cx, message).unwrap_or_else(|error| {
            panic!("law 9: {size} octets are no more than `max-packet`, but: {error}")
        });
        world.exchange();
        let got = world.end().top.take_received();
        assert_eq!(got.len(), 1, "law 8: a message of {size} octets comes once");
        assert!(got[0].message.eq_octets(&given), "law 7: {size} octets arrive unchanged");
        assert!(
            fixture.is_anchor() || fixture.is_cut() || places(&got[0].message) == lay,
            "law 7: {size} octets arrive in the buffer they were given in: nobody copied them"
        );
    }
    if known.is_some_and(|octets| octets < OCTETS_MAX) {
        let long = cx.message(&pattern(max + 1, 0));
        assert!(
            session.push(cx, long).is_err(),
            "law 9: one octet more than `max-packet` ({max}) is refused"
        );
        drop(world.end().top.take_received());
    }
    keeps_order(&world, &session);
    Verdict::Holds
}

fn keeps_order(world: &World<'_>, session: &SessionRef) {
    for number in 0..32_u8 {
        let message = world.cx.message(&pattern(100, number));
        session.push(&world.cx, message).expect("law 5: a session sends 32 messages in a row");
    }
    world.exchange();
    let got = world.end().top.take_received();
    assert_eq!(got.len(), 32, "law 8: 32 messages arrive as 32");
    for (number, received) in (0..32_u8).zip(&got) {
        assert!(
            received.message.eq_octets(&pattern(100, number)),
            "law 7: over a link that keeps order, message {number} comes in its turn"
        );
    }
}

/// Law 8: a session that has refused a message as too big tells the largest size that it takes, and
/// the next push of that size succeeds.
///
/// # Panics
/// If the law is broken.
pub fn tells_what_it_takes(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let session = world.converse();
    let push = |size: usize| session.push(&world.cx, world.cx.message(&pattern(size, 1)));
    let known = || session.ask(&world.cx, MaxPacket::default()).map(|q| q.octets);
    let Some(long) = known().filter(|octets| *octets < OCTETS_MAX).map(|octets| octets + 1) else {
        return Verdict::Skipped("nothing is too big for it");
    };
    if push(long as usize) == Err(PushError::TooBig) {
        let max = known().expect("law 9: a session goes on to answer `max-packet`");
        assert!(max < long, "law 8: {long} octets are too big, {max} are not");
        let taken = push(max as usize);
        assert_eq!(taken, Ok(()), "law 8: {max} octets, which it tells, are taken");
    }
    Verdict::Holds
}

/// Law 8: a push that finds no buffer says so, and what it refuses is counted.
///
/// # Panics
/// If the law is broken.
pub fn counts_what_finds_no_buffer(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("it stands on nothing of the graph");
    }
    let world = World::new(fixture);
    let session = world.converse();
    // In front of it there is no room for a header.
    let message = world.cx.pool().copy_from(0, &pattern(64, 1)).expect("a buffer");
    let sizes = (0..=16).rev().map(|power| 1_usize << power);
    let pool = world.cx.pool();
    let all = sizes.flat_map(|size| core::iter::from_fn(move || pool.alloc(0, size).ok()));
    let held: Vec<Message> = all.collect();
    let before = world.a.drops();
    let pushed = session.push(&world.cx, message);
    if let Err(error) = pushed {
        assert_eq!(error, PushError::NoBuffers, "law 8: a push without a buffer says so");
        assert_eq!(world.a.drops(), before + 1, "law 8: what finds no buffer is counted");
    }
    drop(held);
    Verdict::Holds
}

/// Law 1: a layer below may deliver a header in several slices; it is understood all the same.
///
/// # Panics
/// If the law is broken.
pub fn takes_slices(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("it stands on nothing of the graph");
    }
    let world = World::new(fixture);
    let session = world.converse();
    let cuts = world.capture(&session).message.len().min(80);
    for cut in 0..cuts {
        drop(world.end().top.take_received());
        session
            .push(&world.cx, world.cx.message(&pattern(64, 1)))
            .expect("law 5: a session that sent once sends again");
        world.cross();
        let Some(mut sent) = world.a.bottom.take_sent().pop() else {
            panic!("law 5: a message pushed reaches the layer below");
        };
        let whole = octets(&sent.message);
        let mut sliced = world.cx.message(&whole[..cut]);
        sliced.join(world.cx.message(&whole[cut..]));
        sent.message = sliced;
        world.inject(&world.a, &world.b, sent);
        world.exchange();
        let got = world.end().top.take_received();
        assert!(
            got.len() == 1 && got[0].message.eq_octets(&pattern(64, 1)),
            "law 1: a message whose first {cut} octets lie in a buffer of their own is understood"
        );
    }
    Verdict::Holds
}

/// Law 6: a copy that the sender keeps is never altered by sending the original, and can be sent in
/// its turn.
///
/// # Panics
/// If the law is broken.
pub fn leaves_copies_alone(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let session = world.converse();
    let given = pattern(200, 9);
    let message = world.cx.message(&given);
    let kept = message.try_clone().expect("a descriptor for a clone");
    session.push(&world.cx, message).expect("law 6: a message of which a copy is kept goes");
    assert!(kept.eq_octets(&given), "law 6: the kept copy is unchanged after `push`");
    world.exchange();
    let first = world.end().top.take_received();
    assert!(kept.eq_octets(&given), "law 6: the kept copy is unchanged after the message arrived");
    session.push(&world.cx, kept).expect("law 6: the kept copy goes too");
    world.exchange();
    let second = world.end().top.take_received();
    for got in first.iter().chain(&second) {
        assert!(
            got.message.eq_octets(&given),
            "law 6: original and copy arrive with the same octets"
        );
    }
    assert_eq!((first.len(), second.len()), (1, 1), "law 6: original and copy arrive once each");
    Verdict::Holds
}

/// Law 7 and 8: in a steady conversation neither sending nor receiving allocates.
///
/// # Panics
/// If the law is broken.
pub fn allocates_nothing(fixture: &dyn Fixture) -> Verdict {
    if !counts_allocations() {
        return Verdict::Skipped("the test binary installs no `CountingAllocator`");
    }
    let world = World::new(fixture);
    let session = world.converse();
    if fixture.is_anchor() {
        return allocates_nothing_on_the_system(&world, &session);
    }
    let frame = world.capture(&session);
    let (cx, given) = (&world.cx, pattern(64, 1));
    for node in [&world.a, &world.b] {
        node.bottom.keep(false);
        node.top.forget(true);
    }
    let send = || {
        let message = cx.message(&given);
        session.push(cx, message).expect("law 5: a session sends");
    };
    let peer = world.a.bottom.lower().own();
    let selector = World::selector(&world.a, &world.b, frame.selector);
    let receive = |message| match selector {
        Some(selector) => drop(world.b.bottom.inject_for(cx, peer, selector, message)),
        None => drop(world.b.bottom.inject(cx, peer, message)),
    };
    // Every frame must be one that a fresh conversation would accept: numbers that must differ are
    // those of the protocol.
    let mut frames: Vec<Vec<u8>> = Vec::new();
    world.a.bottom.keep(true);
    for _ in 0..2 * STEADY {
        send();
        let sent = world.a.bottom.take_sent();
        frames.extend(sent.iter().map(|sent| octets(&sent.message)));
    }
    world.a.bottom.keep(false);
    let (warm, steady) = frames.split_at(frames.len() / 2);
    for frame in warm {
        send();
        receive(cx.message(frame));
    }
    let before = allocations();
    for _ in 0..STEADY {
        send();
    }
    assert_eq!(allocations() - before, 0, "law 7: sending {STEADY} messages allocates nothing");
    let (before, heard) = (allocations(), world.b.top.received());
    for frame in steady {
        receive(cx.message(frame));
    }
    assert_eq!(allocations() - before, 0, "law 7: receiving {STEADY} messages allocates nothing");
    if fixture.receiver() == Receiver::Upper {
        assert_eq!(
            world.b.top.received() - heard,
            steady.len() as u64,
            "law 8: all of them are received"
        );
    }
    Verdict::Holds
}

/// No allocation by an anchor: there and back through the system.
fn allocates_nothing_on_the_system(world: &World<'_>, session: &SessionRef) -> Verdict {
    let given = pattern(64, 1);
    for node in [&world.a, &world.b] {
        node.top.forget(true);
    }
    let rounds = || {
        for _ in 0..STEADY {
            let message = world.cx.message(&given);
            session.push(&world.cx, message).expect("law 5: a session sends");
            world.exchange();
        }
    };
    rounds();
    let (before, heard) = (allocations(), world.end().top.received());
    rounds();
    assert_eq!(
        allocations() - before,
        0,
        "law 7: sending and receiving {STEADY} messages allocates nothing"
    );
    assert_eq!(
        world.end().top.received() - heard,
        STEADY as u64,
        "law 8: all of them are received"
    );
    Verdict::Holds
}
