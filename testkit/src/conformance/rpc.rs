//! Calls, which only protocols of the rpc realm take: everybody else says so, and neither waits nor
//! forgets to count.

use super::messages::pattern;
use super::{Fixture, Side, Verdict, World};
use xk_core::graph::Realm;
use xk_core::object::CallCause;
use xk_core::{SessionRef, reason};

/// A session whose protocol has no calls answers `NotSupported`, a closed one `Closed`, at once; a
/// request from below is refused and counted; and the conversation goes on.
///
/// # Panics
/// If the law is broken.
pub fn takes_no_calls(fixture: &dyn Fixture) -> Verdict {
    if fixture.entry().realm == Realm::Rpc {
        return Verdict::Skipped("it is of the rpc realm");
    }
    let world = World::new(fixture);
    let session = world.converse();
    let cx = &world.cx;
    let octets = pattern(64, 5);
    assert_eq!(world.send(&session, &octets).len(), 1);
    let sent = world.a.bottom.sent();
    let answer = session.call(cx, cx.message(&octets));
    assert!(
        matches!(answer, Err(e) if e.cause == CallCause::NotSupported),
        "law 5: a session whose protocol has no calls answers `NotSupported`, not: {:?}",
        answer.map(drop)
    );
    assert_eq!(world.a.bottom.sent(), sent, "law 5: a call that is not supported sends nothing");

    // Below a cut it is not this session that the protocol knows.
    let known = |lower: &SessionRef| {
        [world.a.tested.id(), world.a.top.id()].contains(&lower.head().upper())
    };
    if let Some(lower) = world.a.bottom.held().first().filter(|lower| known(lower)) {
        let drops = world.a.drops();
        let Err(refused) = world.a.protocol.call_demux(cx, lower, cx.message(&octets)) else {
            panic!("law 5: a protocol without calls refuses a request");
        };
        assert_eq!(
            *refused.reason,
            reason::NOT_SUPPORTED,
            "law 8: a request refused names its reason"
        );
        drop(refused);
        assert_eq!(world.a.drops(), drops + 1, "law 8: a request refused is counted once");
    }
    assert_eq!(
        world.send(&session, &octets).len(),
        1,
        "law 5: after a call refused the session goes on"
    );

    session.abort(cx);
    let drops = world.a.drops();
    assert!(
        matches!(
            session.call(cx, cx.message(&octets)),
            Err(e) if e.cause == CallCause::Closed
        ),
        "law 5: a closed session answers `Closed` to a call"
    );
    assert_eq!(world.a.drops(), drops + 1, "law 8: a call on a closed session is counted");
    let _ = world.open(Side::A);
    if fixture.is_anchor() || fixture.is_cut() {
        // It keeps buffers ready for arrivals, a cut what may be refused late.
        return Verdict::Holds;
    }
    assert_eq!(cx.live(), (0, 0), "law 8: of calls refused no message is left");
    Verdict::Holds
}
