//! Invariant 9 of ARCHITECTURE.md: questions.

use super::crossing::put_across;
use super::{Fixture, Side, Verdict, World};
use crate::kernel::ReachedBottom;
use xk_core::control::{Describe, ListMaps, ListSessions, Question, Report, question};
use xk_core::{Answer, Ask, HostAddr, Part, SessionRef};
use xk_kit::control::{
    ClaimHost, HostConflict, IsLocalHost, IsOutstanding, JoinGroup, LeaveGroup, LinkType,
    MaxPacket, MyEther, MyHost, MyPort, NetworkError, NetworkErrorKind, OptPacket, PeerEther,
    PeerHost, PeerPort, PseudoHeader, Resolve, Start,
};
use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, Membership};

/// A question that no layer has heard of.
struct Unheard;

question!(Unheard {}, "unheard", Ask);

/// Every question that the entry lists is answered, by a session or by the protocol; one that
/// no layer knows is `Unknown`; one that only the lowest layer knows reaches it through a session;
/// one that comes as octets from another address space is answered alike.
///
/// # Panics
/// If the law is broken.
pub fn answers(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let session = world.converse();
    drop(world.send(&session, &super::messages::pattern(64, 1)));
    for question in fixture.entry().all_questions() {
        let name = question.name;
        let answer = fixture.ask(&world, name).or_else(|| ask(&world, &session, name));
        // What needs circumstances (an error under way, a packet refused) is for the protocol's own
        // tests.
        if let Some(answer) = answer {
            assert!(answer.is_answered(), "law 9: the entry lists `{name}`, so it is answered");
        }
    }
    let cx = &world.cx;
    assert!(
        session.ask(cx, Unheard).is_none() && world.a.protocol.ask(cx, Unheard).is_none(),
        "law 9: a question that nobody knows is `Unknown`"
    );
    assert!(
        fixture.is_anchor() || session.ask(cx, ReachedBottom).is_some(),
        "law 9: a session forwards down what it does not know"
    );
    let sizes = (session.ask(cx, MaxPacket::default()), session.ask(cx, OptPacket::default()));
    if let (Some(max), Some(opt)) = sizes {
        assert!(opt.octets <= max.octets, "law 9: `opt-packet` is no more than `max-packet`");
    }
    Verdict::Holds
}

/// A question from the layer below goes up to the protocol above at most once, even if that one
/// does not know it and passes it down again.
///
/// # Panics
/// If the law is broken.
pub fn goes_up_once(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("there is no layer below");
    }
    let world = World::new(fixture);
    let session = world.converse();
    let lower = world.capture(&session).session;
    let (cx, node) = (&world.cx, &world.a);
    // The layer itself, or the object by which it receives for this protocol.
    let receiver = cx.protocol(lower.head().upper()).expect("it receives");
    let start = Start::new(&[0; 16]);
    let about = |session: &SessionRef| IsOutstanding { session: session.clone(), start, is: false };
    let error = |session: &SessionRef| NetworkError {
        session: Some(session.clone()),
        start,
        ..NetworkError::new(NetworkErrorKind::HostUnreachable)
    };
    let conflict = HostConflict { host: [10, 0, 0, 1].into(), address: [2, 0, 0, 0, 0, 9] };
    let went_up = |ask: &mut Ask<'_>, what: &str| {
        node.top.pass_down(&node.protocol);
        let _ = receiver.control(cx, ask);
        let times = node.top.passed_down();
        assert!(times <= 1, "law 9: {what} goes up once, and not {times} times");
    };
    for about_session in [&lower, &session] {
        went_up(&mut Ask::new(&mut error(about_session)), "a network error");
        went_up(&mut Ask::new(&mut about(about_session)), "`is-outstanding`");
    }
    went_up(&mut Ask::new(&mut conflict.clone()), "a conflict of hosts");
    Verdict::Holds
}

/// Asks a session, then the protocol, one of the shared questions; `None` if the name is none of
/// these.
fn ask(world: &World<'_>, session: &SessionRef, name: &str) -> Option<Answer> {
    fn put<Q: Question>(
        world: &World<'_>,
        session: &SessionRef,
        mut make: impl FnMut() -> Q,
    ) -> Answer {
        let cx = &world.cx;
        let answer = put_across(cx, &mut make, &|ask| session.control(cx, ask));
        if answer.is_answered() {
            return answer;
        }
        put_across(cx, &mut make, &|ask| world.a.protocol.control(cx, ask))
    }
    let host = peer_host(world);
    let address = [0x01, 0, 0x5e, 0, 0, 1];
    let resolve = || Resolve { host, address: None };
    let membership = || Membership {
        group: [224, 0, 0, 251].into(),
        on: HostAddr::UNSPECIFIED,
        filter: Filter::ALL,
    };
    let list = || ListSessions::first(16);
    Some(match name {
        MaxPacket::NAME => put(world, session, MaxPacket::default),
        OptPacket::NAME => put(world, session, OptPacket::default),
        MyHost::NAME => put(world, session, || MyHost { host }),
        PeerHost::NAME => put(world, session, || PeerHost { host }),
        MyEther::NAME => put(world, session, MyEther::default),
        PeerEther::NAME => put(world, session, PeerEther::default),
        MyPort::NAME => put(world, session, MyPort::default),
        PeerPort::NAME => put(world, session, PeerPort::default),
        PseudoHeader::NAME => put(world, session, PseudoHeader::default),
        LinkType::NAME => put(world, session, LinkType::default),
        Resolve::NAME => put(world, session, resolve),
        ClaimHost::NAME => put(world, session, || ClaimHost { host }),
        JoinGroup::NAME => put(world, session, || JoinGroup { address }),
        LeaveGroup::NAME => {
            let joined = put(world, session, || JoinGroup { address });
            assert!(joined.is_answered(), "it answers `leave-group` and no `join-group`");
            put(world, session, || LeaveGroup { address })
        }
        JoinHost::NAME => put(world, session, || JoinHost { membership: membership() }),
        LeaveHost::NAME => {
            let joined = put(world, session, || JoinHost { membership: membership() });
            assert!(joined.is_answered(), "it answers `leave-host` and no `join-host`");
            put(world, session, || LeaveHost { membership: membership() })
        }
        IsLocalHost::NAME => put(world, session, || IsLocalHost { host, local: false }),
        Describe::NAME => put(world, session, Describe::default),
        ListSessions::NAME => put(world, session, list),
        ListMaps::NAME => put(world, session, ListMaps::default),
        Report::NAME => put(world, session, Report::default),
        _ => return None,
    })
}

/// The first host that A's participants name for B, or any.
fn peer_host(world: &World<'_>) -> HostAddr {
    let participants = world.fixture.open(Side::A);
    let mut parts = participants.iter().skip(1).flat_map(|peer| peer.parts());
    let host = parts.find_map(|part| match part {
        Part::Host(host) => Some(*host),
        _ => None,
    });
    host.unwrap_or([192, 0, 2, 1].into())
}
