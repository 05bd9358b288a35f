//! Requests and replies that are too big are told of.

use super::laws::{conversation, right, serves};
use super::{CallFixture, Side};
use crate::conformance::Verdict;
use crate::conformance::messages::pattern;
use core::time::Duration;
use xk_core::object::{CallCause, PushError};
use xk_kit::control::MaxPacket;

/// The largest request tried, in octets.
const OCTETS_MAX: u32 = 65_536;
/// Octets of a reply that is too big for most, and those of it in one slice.
const REPLY_OCTETS: usize = 70_000;
const PIECE_OCTETS: usize = 1000;
/// Within so much virtual time a caller is told.
const SOON: Duration = Duration::from_secs(1);

/// A session that has refused a request as too big tells the largest size that it takes, and the
/// next call with that size succeeds.
///
/// # Panics
/// If the law is broken.
pub fn tells_what_it_takes(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    right(world.call(&session, b"first"), b"first");
    let known = || session.ask(&world.cx, MaxPacket::default()).map(|q| q.octets);
    let Some(long) = known().filter(|octets| *octets < OCTETS_MAX).map(|octets| octets + 1) else {
        return Verdict::Skipped("nothing is too big for it");
    };
    let error = world.call(&session, &pattern(long as usize, 1)).map(drop).unwrap_err();
    assert_eq!(error.cause, CallCause::Push(PushError::TooBig), "{long} octets are too big");
    let max = known().expect("a session goes on to answer `max-packet`");
    assert!(max < long, "{long} octets are too big, {max} are not");
    let most = pattern(max as usize, 2);
    right(world.call(&session, &most), &most);
    world.finish();
    Verdict::Holds
}

/// A reply that is too long for the layers below ends the call as refused, within a second, and no
/// caller gets a part of it for the whole. Only a protocol without refusals on the wire may leave
/// the caller waiting. The session goes on.
///
/// # Panics
/// If the law is broken.
pub fn tells_of_long_replies(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    right(world.call(&session, b"first"), b"first");
    let long = pattern(REPLY_OCTETS, 3);
    let reply = long.clone();
    let top = &world.node(Side::B).top;
    top.on_serve(serves(move |cx, _| {
        let mut pieces = reply.chunks(PIECE_OCTETS).map(|piece| {
            let piece = cx.pool().copy_from(crate::kernel::HEADROOM, piece);
            piece.expect("a buffer for a test message")
        });
        let mut whole = pieces.next().expect("at least one piece");
        pieces.for_each(|piece| whole.join(piece));
        Ok(whole)
    }));
    let asked = world.cx.now();
    match world.call(&session, b"long") {
        Ok(whole) => right(Ok(whole), &long),
        Err(error) => {
            let waits = matches!(error.cause, CallCause::TimedOut { .. });
            let is_told = matches!(error.cause, CallCause::Rejected(_));
            let may_wait = waits && fixture.refusals().is_empty();
            assert!(is_told || may_wait, "a reply too big is refused, and not: {error}");
            assert!(error.layer.is_some(), "an error names its layer");
            let passed = world.cx.now().since(asked);
            assert!(waits || passed < SOON + fixture.lateness(), "it is told of after {passed:?}");
        }
    }
    top.on_serve(None);
    right(world.call(&session, b"short"), b"short");
    world.finish();
    Verdict::Holds
}
