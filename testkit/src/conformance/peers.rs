//! Several peers: an `open` takes all of them or none.

use super::calls::{CallFixture, CallWorld};
use super::messages::pattern;
use super::{Fixture, Node, Side, Verdict, World};
use crate::kernel::{Family, TestKernel};
use xk_core::object::OpenError;
use xk_core::participant::AddressError;
use xk_core::{Part, Participant, Participants, SessionRef};

/// Number of peers.
const PEERS: u32 = 3;

/// The participants of an `open` to several peers: the one of `ends`, and others that differ from
/// it in what the lowest layer pops.
fn several(ends: &Participants) -> Participants {
    let any = Participant::of(Part::Any);
    let local = ends.iter().next().unwrap_or(&any).clone();
    let first = ends.peers().first().unwrap_or(&any).clone();
    let others = (1..PEERS).map(|n| other(&first, n));
    Participants::among(local, core::iter::once(first.clone()).chain(others))
}

fn other(peer: &Participant, n: u32) -> Participant {
    let mut parts: Vec<Part> = peer.parts().copied().collect();
    if let Some(lowest) = parts.last_mut() {
        *lowest = match *lowest {
            Part::Any => Part::Any,
            Part::Number(label, number) => Part::Number(label, number + u64::from(n)),
            Part::Ether([a, b, c, d, e, f]) => Part::Ether([a, b, c, d, e ^ 0x40, f ^ n as u8]),
            Part::Host(host) if host.to_v4().is_some() => Part::Host(Family::V4.host(40 + n)),
            Part::Host(_) => Part::Host(Family::V6.host(40 + n)),
        };
    }
    let mut other = Participant::new();
    parts.into_iter().rev().for_each(|part| other.push(part));
    other
}

/// Opens to several peers, on a layer that takes one or several; `None` if that is refused, which
/// leaves nothing.
fn open(cx: &TestKernel, node: &Node, ends: Participants) -> Option<SessionRef> {
    let held = node.held().len();
    match node.top.open(cx, &node.protocol, ends.clone()) {
        Ok(session) => Some(session),
        Err(OpenError::Address(AddressError::Count)) => {
            assert_eq!(node.held().len(), held, "law 2: what `open` refuses holds nothing below");
            None
        }
        Err(error) => panic!(
            "law 2: several peers, {ends:?}, are taken whole or refused by \
             `AddressError::Count`, not: {error}"
        ),
    }
}

/// Law 2: an `open` to several peers is refused with [`AddressError::Count`], or takes all of them:
/// what is pushed goes to each.
///
/// # Panics
/// If the law is broken.
pub fn takes_all_or_none(fixture: &dyn Fixture) -> Verdict {
    for below_takes_several in [false, true] {
        let world = World::new(fixture);
        let (cx, node) = (&world.cx, &world.a);
        if below_takes_several {
            node.bottom.take_peers();
        }
        let ends = several(&fixture.open(Side::A));
        let Some(session) = open(cx, node, ends.clone()) else {
            continue;
        };
        world.cross();
        drop(node.bottom.take_sent());
        let pushed = session.push(cx, cx.message(&pattern(64, 5)));
        assert_eq!(pushed, Ok(()), "law 5: a session to several peers takes a message");
        world.cross();
        let sent = node.bottom.take_sent();
        for peer in ends.peers().iter().map(|peer| peer.parts().last().copied()) {
            let is_sent = peer.is_some() && sent.iter().any(|sent| sent.peer == peer);
            assert!(
                is_sent,
                "law 2: what goes to {ends:?} goes to each peer, not to {sent:?} alone"
            );
        }
        session.abort(cx);
    }
    Verdict::Holds
}

/// Law 2: a call has one reply, so an `open` of the rpc realm to several peers is refused with
/// [`AddressError::Count`].
///
/// # Panics
/// If the law is broken.
pub fn takes_one(fixture: &dyn CallFixture) -> Verdict {
    let world = CallWorld::new(fixture);
    let node = world.node(Side::A);
    node.bottom.take_peers();
    let ends = several(&fixture.open(Side::A, 3));
    let opened = open(&world.cx, node, ends.clone());
    assert!(opened.is_none(), "law 2: a session for calls has one peer, not {ends:?}");
    world.finish();
    Verdict::Holds
}
