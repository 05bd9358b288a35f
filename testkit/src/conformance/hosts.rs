//! Invariant 9 of ARCHITECTURE.md for layers on hosts: what was sent to many is not for one.

use super::messages::pattern;
use super::{Fixture, Side, Verdict, World};
use crate::kernel::{Addressing, Top};
use xk_core::HostAddr;
use xk_core::Question;
use xk_core::object::Enable;
use xk_kit::control::SpecificDestination;

/// Everybody on the link, and a group, of the same family as `own`.
fn several(own: HostAddr) -> [HostAddr; 2] {
    match own.to_v4() {
        Some(_) => [HostAddr::BROADCAST, [224, 0, 0, 9].into()],
        None => {
            [0xff02 << 112 | 1, 0xff0e << 112 | 9].map(|bits: u128| HostAddr::v6(bits.into(), 0))
        }
    }
}

/// Law 9: the specific destination of an arriving message (RFC 1122, section 4.1.3.5) selects the
/// receiver: an enable for our own host gets nothing that was sent to a broadcast or a group,
/// one for a broadcast or a group gets that and nothing else, one for any host gets all; a layer
/// between hosts and ports passes the destination on. Nothing sent to many is answered by the layer
/// itself (RFC 1122, section 3.2.2), and connections are between two hosts (RFC 9293, section
/// 3.9.2.3).
///
/// # Panics
/// If the law is broken.
pub fn tells_one_from_many(fixture: &dyn Fixture) -> Verdict {
    let Addressing::Host(own) = fixture.lower(Side::B).addressing else {
        return Verdict::Skipped("it stands on no hosts");
    };
    if fixture.is_anchor() || fixture.enable(Side::B).is_none() {
        return Verdict::Skipped("it takes no enables from below");
    }
    if fixture.entry().questions.iter().any(|q| q.name == SpecificDestination::NAME) {
        return Verdict::Skipped("it has hosts of its own");
    }
    let Some(_) = fixture.enable_at(Side::B, own) else {
        passes_it_on(fixture, own);
        return Verdict::Holds;
    };
    for many in several(own) {
        let world = World::new(fixture);
        assert_silent(&world, many, "with nobody at the port");
        let (alone, enable) = enabled(&world, "alone", own);
        assert_silent(&world, many, "with somebody at our own host");
        assert_eq!(alone.received(), 0, "law 9: what was sent to {many} is not for our own host");
        let (other, _) = enabled(&world, "many", many);
        arrives(&world, many);
        world.exchange();
        let for_many = u64::from(fixture.takes_many());
        assert_eq!(
            (alone.received(), other.received()),
            (0, for_many),
            "law 9: what was sent to {many} is for who enabled that"
        );
        let session = world.open(Side::A);
        world.exchange();
        let _ = session.push(&world.cx, world.cx.message(&pattern(64, 3)));
        world.cross();
        world.exchange();
        assert_eq!(
            (alone.received(), other.received()),
            (1, for_many),
            "law 9: what was sent to {own} is for who enabled that"
        );
        world.b.protocol.open_disable(&world.cx, enable);
    }
    for many in several(own) {
        let world = World::new(fixture);
        world.enable(Side::B);
        arrives(&world, many);
        world.exchange();
        assert_eq!(
            world.b.top.received(),
            u64::from(fixture.takes_many()),
            "law 9: who enabled any host gets what was sent to {many}"
        );
    }
    Verdict::Holds
}

/// A layer without ports: the one above learns the destination of each message, though one peer
/// sends to several.
fn passes_it_on(fixture: &dyn Fixture, own: HostAddr) {
    let world = World::new(fixture);
    world.enable(Side::B);
    for many in several(own) {
        arrives(&world, many);
        for received in world.b.top.take_received() {
            let said = received.session.ask(&world.cx, SpecificDestination::default());
            assert!(
                said.as_ref().is_some_and(|said| said.many && said.host == many),
                "law 9: the layer above learns that a message was sent to {many}, not: {said:?}"
            );
        }
    }
}

/// One more protocol above B, which enables the fixture's port at a host.
fn enabled(world: &World<'_>, name: &str, host: HostAddr) -> (Top, Enable) {
    let top = world.another_top(Side::B, name);
    let participants = world.fixture.enable_at(Side::B, host).expect("as before");
    let enable = top.enable(&world.cx, &world.b.protocol, participants);
    let enable = enable.unwrap_or_else(|error| {
        panic!("law 9: `open_enable` takes {host}, a host of several at one port, not: {error}")
    });
    (top, enable)
}

/// Lets what A sends first arrive at B as sent to `many`; gives how many of them B has dropped.
fn arrives(world: &World<'_>, many: HostAddr) -> u64 {
    let session = world.open(Side::A);
    // A connection that is not yet there takes nothing: then its first message is its own.
    let _ = session.push(&world.cx, world.cx.message(&pattern(64, 3)));
    world.cross();
    let sent = world.a.bottom.take_sent();
    let first = sent.into_iter().next();
    let first = first.expect("law 5: a session that was opened sends");
    session.abort(&world.cx);
    drop(world.a.bottom.take_sent());
    let peer = world.a.bottom.lower().own();
    let drops = world.b.drops();
    // A refusal is what the layer below would tell the sender of, were it not for many.
    let _ = world.b.bottom.inject_cast(&world.cx, peer, many, first.message);
    world.cross();
    world.b.drops() - drops
}

/// Checks that a message for many, and for no protocol here, is counted once and answered by
/// nothing.
fn assert_silent(world: &World<'_>, many: HostAddr, when: &str) {
    let dropped = arrives(world, many);
    assert_eq!(dropped, 1, "law 8: {when}, what was sent to {many} is counted once");
    let answers = world.b.bottom.take_sent().len();
    assert_eq!(answers, 0, "law 9: {when}, what was sent to {many} is not answered");
}
