//! One peer of several protocols above.

use super::CallFixture;
use super::laws::{PROCEDURE, conversation, right};
use crate::conformance::{Side, Verdict};

/// Any number of protocols above may call one peer, and closing sessions of one does not end those
/// of another.
///
/// # Panics
/// If the law is broken.
pub fn shares_its_peer(fixture: &dyn CallFixture) -> Verdict {
    let (world, first) = conversation(fixture);
    let other = world.another_top(Side::A, "other");
    let open = || {
        let both = fixture.open(Side::A, PROCEDURE);
        let opened = other.open(&world.cx, &world.node(Side::A).protocol, both);
        opened.unwrap_or_else(|error| panic!("a second protocol opens the same peer: {error}"))
    };
    let second = open();
    for (session, request) in [(&first, &b"one"[..]), (&second, b"two"), (&first, b"three")] {
        right(world.call(session, request), request);
    }
    first.close(&world.cx);
    world.cross();
    right(world.call(&second, b"four"), b"four");
    let again = world.open(Side::A, PROCEDURE);
    for (session, request) in [(&again, &b"five"[..]), (&second, b"six"), (&open(), b"seven")] {
        right(world.call(session, request), request);
    }
    assert_eq!(world.node(Side::B).top.served(), 7, "each call is executed once");
    world.finish();
    Verdict::Holds
}
