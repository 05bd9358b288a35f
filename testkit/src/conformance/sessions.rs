//! Invariants 2 to 5 of ARCHITECTURE.md: how sessions come and go.

use super::messages::pattern;
use super::{Fixture, Receiver, Side, Verdict, World};
use crate::kernel::{Event, Top};
use xk_core::control::Describe;
use xk_core::graph::Shape;
use xk_core::object::{CallCause, OpenError, PushError, Refused};
use xk_core::{Message, SessionRef, reason};

/// Makes a small test message.
fn small(world: &World<'_>) -> Message {
    world.cx.message(&octets())
}

fn octets() -> Vec<u8> {
    pattern(64, 3)
}

/// Law 2 and 5: `open` makes a session with one holder, `close` ends it, a closed session takes
/// nothing and answers nothing, and the same participants open again.
///
/// # Panics
/// If the law is broken.
pub fn opens_and_closes(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let before = world.sessions(&world.a);
    let session = world.converse();
    assert_eq!(session.head().opens(), 1, "law 2: a session that `open` made has one holder");
    assert_eq!(
        session.head().upper(),
        world.a.top.id(),
        "law 3: who opened the session receives from it"
    );
    if let (Some(before), Some(now)) = (before, world.sessions(&world.a)) {
        assert_eq!(now, before + 1, "law 2: `open` binds one session");
    }
    assert_eq!(world.send(&session, &octets()).len(), 1);

    session.close(&world.cx);
    if session.head().is_closed() {
        refuses_all(&world, &session);
        if let (Some(before), Some(now)) = (before, world.sessions(&world.a)) {
            assert_eq!(now, before, "law 5: `close` unbinds the session");
        }
    } else {
        assert_eq!(session.head().opens(), 0, "law 5: a session kept as an idle one has no holder");
    }
    session.close(&world.cx);
    assert_eq!(session.head().opens(), 0, "law 5: closing once too often does nothing");

    let again = world.open(Side::A);
    assert_eq!(
        world.send(&again, &octets()).len(),
        1,
        "law 5: after `close` the same participants open again"
    );
    again.abort(&world.cx);
    refuses_all(&world, &again);
    Verdict::Holds
}

/// A closed session takes nothing, from above or below, and answers nothing; what it refuses is
/// counted.
fn refuses_all(world: &World<'_>, session: &SessionRef) {
    let drops = world.a.drops();
    let cx = &world.cx;
    assert_eq!(
        session.push(cx, small(world)),
        Err(PushError::Closed),
        "law 5: a closed session takes nothing to send"
    );
    assert!(
        matches!(session.call(cx, small(world)), Err(e) if e.cause == CallCause::Closed),
        "law 5: a closed session takes no call"
    );
    assert!(
        session.pop(cx, small(world)).is_err(),
        "law 5: a closed session takes nothing that arrives"
    );
    assert!(
        session.ask(cx, Describe::default()).is_none(),
        "law 5: a closed session answers nothing"
    );
    assert_eq!(world.a.drops(), drops + 3, "law 8: what a closed session refuses is counted");
}

/// Law 2 and 5: opening twice for the same upper gives one session held twice; another upper with
/// the same participants gets a session of its own or is refused, and never hears what is not for
/// it.
///
/// # Panics
/// If the law is broken.
pub fn is_found_again(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let cx = &world.cx;
    let session = world.converse();
    match world.try_open(Side::A) {
        Ok(second) => {
            assert_eq!(
                second, session,
                "law 2: opened twice with the same participants, it is the same session"
            );
            assert_eq!(session.head().opens(), 2, "law 5: a session opened twice has two holders");
            second.close(cx);
        }
        // Where every opening is a conversation of its own, a taken name is refused.
        Err(error) => {
            assert_eq!(error, OpenError::InUse, "law 2: participants that are taken are `InUse`")
        }
    }
    assert!(
        !session.head().is_closed() && session.head().opens() == 1,
        "law 5: a session stays while one holder is left"
    );
    assert_eq!(world.send(&session, &octets()).len(), 1);

    let other = world.another_top(Side::A, "other");
    match other.open(cx, &world.a.protocol, fixture.open(Side::A)) {
        Ok(foreign) => {
            assert_ne!(
                foreign, session,
                "law 3: a session belongs to the upper that opened it, and to no other"
            );
            foreign.close(cx);
        }
        Err(error) => assert!(
            matches!(error, OpenError::InUse | OpenError::NoTypeNumber),
            "law 2: participants that are taken are `InUse`, not: {error}"
        ),
    }
    assert_eq!(world.send(&session, &octets()).len(), 1);
    assert_eq!(other.received(), 0, "law 3: nobody receives what is for another");
    Verdict::Holds
}

/// Law 2: without an enable a first message is refused and counted; with one it makes a session,
/// told by `open_done` before its first message; `open_disable` withdraws the offer and leaves the
/// sessions made.
///
/// # Panics
/// If the law is broken.
pub fn enables(fixture: &dyn Fixture) -> Verdict {
    if fixture.enable(Side::B).is_none() {
        return Verdict::Skipped("it takes no enables");
    }
    let world = World::new(fixture);
    let session = world.open(Side::A);
    world.exchange();
    unwanted(&world, &session, "before an enable");

    let enable = world.enable(Side::B);
    assert_eq!(world.send(&session, &octets()).len(), 1);
    let (opened, _) = world.b.top.take_opened().pop().unwrap_or_else(|| {
        panic!("law 2: the first message makes a session, told by `open_done`");
    });
    let id = opened.id();
    assert_eq!(
        world.b.top.take_events(),
        [Event::OpenDone(id), Event::Demux(id, 64)],
        "law 2: `open_done` comes before the first message, both of one session"
    );
    assert_eq!(opened.head().upper(), world.b.top.id());
    assert_eq!(world.send(&session, &octets()).len(), 1);
    assert_eq!(
        world.b.top.take_events(),
        [Event::Demux(id, 64)],
        "law 2: the second message finds the session that the first made"
    );

    opened.push(&world.cx, small(&world)).unwrap_or_else(|e| {
        panic!("law 2: an answer goes through the session that the first message made, not: {e}")
    });
    world.exchange();
    assert_eq!(world.a.top.take_received().len(), 1, "law 2: the answer arrives at who opened");

    opened.hold();
    if let Some(enable) = enable {
        world.b.protocol.open_disable(&world.cx, enable);
    }
    assert_eq!(
        world.send(&session, &octets()).len(),
        1,
        "law 2: sessions already made outlive the enable"
    );
    drop(world.b.top.take_events());
    opened.close(&world.cx);
    opened.abort(&world.cx);
    world.cross();
    unwanted(&world, &session, "after `open_disable`");
    Verdict::Holds
}

/// A message to B that no protocol there wants.
fn unwanted(world: &World<'_>, session: &SessionRef, when: &str) {
    let drops = world.b.drops();
    session
        .push(&world.cx, small(world))
        .unwrap_or_else(|error| panic!("law 2: a session sends {when}: {error}"));
    world.exchange();
    assert_eq!(world.b.top.take_events(), [], "law 2: {when} nobody hears of a message");
    assert_eq!(
        world.b.drops(),
        // Below an anchor the system itself refuses what is not enabled, and may tell the
        // sender.
        drops + u64::from(!world.fixture.is_anchor()),
        "law 8: {when} the message is counted once under a reason"
    );
    if world.fixture.is_anchor() {
        let _ = session.push(&world.cx, small(world));
        world.exchange();
    }
}

/// Law 2 and 8: what the upper refuses, by `open_done` or `demux`, is counted once and leaves no
/// session behind that was not wanted; later messages are offered again.
///
/// # Panics
/// If the law is broken.
pub fn refuses(fixture: &dyn Fixture) -> Verdict {
    if fixture.enable(Side::B).is_none() {
        return Verdict::Skipped("it takes no enables");
    }
    let world = World::new(fixture);
    world.enable(Side::B);
    let session = world.open(Side::A);
    world.exchange();
    let before = world.sessions(&world.b);
    world.b.top.refuse_open(Some(&reason::PROHIBITED));
    for _ in 0..2 {
        let drops = world.b.drops();
        session.push(&world.cx, small(&world)).expect("law 2: a session sends");
        world.exchange();
        assert_eq!(world.b.top.take_events(), []);
        assert_eq!(
            world.b.drops(),
            drops + 1,
            "law 8: the message of a session that the upper did not want is counted once, by the protocol itself"
        );
        assert_eq!(
            world.sessions(&world.b),
            before,
            "law 2: a session that the upper did not want is not kept"
        );
    }
    world.b.top.refuse_open(None);
    let drops = world.b.drops();
    world.b.top.refuse(Some(&reason::PROHIBITED));
    session.push(&world.cx, small(&world)).expect("law 2: a session sends");
    world.exchange();
    assert_eq!(
        world.b.drops(),
        drops + 1,
        "law 8: a message that the upper refuses is counted once, by who refused"
    );
    world.b.top.refuse(None);
    assert_eq!(
        world.send(&session, &octets()).len(),
        1,
        "law 2: after a refusal the next message is offered anew"
    );
    Verdict::Holds
}

/// A message that the upper has taken and refuses later comes back to the layer below with its
/// reason as one that it refuses at once, with its header in front.
///
/// # Panics
/// If the law is broken.
pub fn refuses_late(fixture: &dyn Fixture) -> Verdict {
    if fixture.enable(Side::B).is_none() {
        return Verdict::Skipped("it takes no enables");
    }
    if fixture.is_anchor() {
        return Verdict::Skipped("nothing of the graph is below it");
    }
    if fixture.is_stream() || fixture.receiver() == Receiver::Itself {
        return Verdict::Skipped("what it hands up is no message from below");
    }
    let [at_once, late] = [false, true].map(|is_late| {
        let world = World::new(fixture);
        world.enable(Side::B);
        let session = world.open(Side::A);
        drop(world.send(&session, &octets()));
        drop(world.b.bottom.take_refused());
        world.b.top.refuse(Some(&reason::NO_PORT).filter(|_| !is_late));
        session.push(&world.cx, world.cx.message(&octets())).expect("law 2: a session sends");
        world.exchange();
        for taken in world.b.top.take_received() {
            taken.session.refused(&world.cx, Refused::new(taken.message, &reason::NO_PORT));
        }
        world.exchange();
        world.b.bottom.take_refused()
    });
    if late.is_empty() && fixture.entry().shape == Shape::Virtual {
        return Verdict::Skipped("it does not know which way a message came");
    }
    assert_eq!(late.len(), at_once.len(), "law 2: late or at once, a refusal goes as far down");
    for (late, at_once) in late.iter().zip(&at_once) {
        assert_eq!(late.0, at_once.0, "law 2: a late refusal keeps its reason");
        // At once some leave out their header, which no layer below asks for.
        assert!(late.1.ends_with(&at_once.1), "law 2: a late refusal finds the same octets");
    }
    Verdict::Holds
}

/// Law 5: a session below which what it stands on has ended, whatever held that, ends with it, of
/// which the protocol above is told, or goes on over another.
///
/// # Panics
/// If the law is broken.
pub fn ends_with_its_lower(fixture: &dyn Fixture) -> Verdict {
    if fixture.is_anchor() {
        return Verdict::Skipped("nothing of the graph is below it");
    }
    let world = World::new(fixture);
    let session = world.converse();
    assert_eq!(world.send(&session, &octets()).len(), 1);
    loses_its_lower(&world, Side::A, &session);
    if session.head().is_closed() {
        let again = world.open(Side::A);
        assert_eq!(world.send(&again, &octets()).len(), 1, "law 5: another takes its place");
    }
    for (opened, _) in world.b.top.take_opened() {
        opened.hold();
        loses_its_lower(&world, Side::B, &opened);
    }
    Verdict::Holds
}

fn loses_its_lower(world: &World<'_>, side: Side, session: &SessionRef) {
    let node = world.node(side);
    drop(node.top.take_gone());
    session.watch();
    // That it is held crosses before a message.
    let _ = session.push(&world.cx, small(world));
    world.exchange();
    drop((world.a.top.take_received(), world.b.top.take_received()));
    node.bottom.held().iter().for_each(|below| below.abort(&world.cx));
    world.exchange();
    world.cross();
    if session.head().is_closed() {
        let told = node.top.take_gone();
        assert_eq!(told, [session.id()], "law 5: the protocol above is told, once");
        return;
    }
    let before = node.bottom.sent();
    let _ = session.push(&world.cx, small(world));
    world.exchange();
    let sent = node.bottom.sent() - before;
    assert!(sent > 0, "law 5: a session that has not ended with what it stood on loses nothing");
}

/// Law 3: a layer without a number of its own receives under the number of the one above it.
///
/// # Panics
/// If the law is broken.
pub fn lets_a_layer_between(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let cx = &world.cx;
    let between = |side| Top::add(cx, &format!("between-{side:?}"));
    let (above, below) = (between(Side::A), between(Side::B));
    let opened =
        above.open_through(cx, &world.a.protocol, world.a.top.protocol(), fixture.open(Side::A));
    let session = opened.unwrap_or_else(|error| {
        panic!("law 3: `open` takes the number of the selector, not of the receiver: {error}")
    });
    assert_eq!(
        session.head().upper(),
        above.id(),
        "law 3: the receiver receives, not the selector"
    );
    if let Some(participants) = fixture.enable(Side::B) {
        let enabled =
            below.enable_through(cx, &world.b.protocol, world.b.top.protocol(), participants);
        if let Err(error) = enabled {
            panic!("law 3: `open_enable` takes the number of the selector: {error}");
        }
    }
    world.exchange();
    session
        .push(cx, small(&world))
        .unwrap_or_else(|error| panic!("law 3: a layer between sends: {error}"));
    world.exchange();
    let heard = match fixture.receiver() {
        super::Receiver::Upper => below.received(),
        super::Receiver::Itself => above.received(),
    };
    assert_eq!(heard, 1, "law 3: the message comes to the layer between");
    assert_eq!(
        world.a.top.received() + world.b.top.received(),
        0,
        "law 3: the protocol whose number selects does not receive"
    );
    Verdict::Holds
}

/// Law 4: an upper that the number table does not know gets neither session nor enable, and nothing
/// stays held below.
///
/// # Panics
/// If the law is broken.
pub fn wants_a_type_number(fixture: &dyn Fixture) -> Verdict {
    if fixture.number().is_none() {
        return Verdict::Skipped("it selects by other means than type numbers");
    }
    let world = World::new(fixture);
    let cx = &world.cx;
    let unknown = Top::add_kind(cx, "unnumbered", "unnumbered");
    let held = world.a.bottom.held().len();
    let opened = unknown.open(cx, &world.a.protocol, fixture.open(Side::A));
    assert_eq!(
        opened.err(),
        Some(OpenError::NoTypeNumber),
        "law 4: `open` without a type number is refused"
    );
    if let Some(participants) = fixture.enable(Side::A) {
        let enabled = unknown.enable(cx, &world.a.protocol, participants);
        assert_eq!(
            enabled.err(),
            Some(OpenError::NoTypeNumber),
            "law 4: `open_enable` without a type number is refused"
        );
    }
    assert_eq!(world.a.bottom.held().len(), held, "law 4: a refused `open` holds nothing below");
    Verdict::Holds
}

/// Law 5 and 8: after `stop` no message, no timer and no session is left, in the middle of whatever
/// was going on.
///
/// # Panics
/// If the law is broken.
pub fn stops(fixture: &dyn Fixture) -> Verdict {
    let world = World::new(fixture);
    let session = world.converse();
    drop(world.send(&session, &octets()));
    for _ in 0..3 {
        session
            .push(&world.cx, small(&world))
            .expect("law 5: a session that sent once sends again");
    }
    let mut weak = vec![session.downgrade()];
    for node in [&world.a, &world.b] {
        weak.extend(node.top.take_opened().iter().map(|(s, _)| s.downgrade()));
        weak.extend(node.bottom.held().iter().map(SessionRef::downgrade));
    }
    drop(session);
    world.cx.stop();
    assert_eq!(
        world.cx.live(),
        (0, 0),
        "law 8: after `stop` no descriptor and no buffer of the pool is in use"
    );
    assert_eq!(world.cx.timers(), 0, "law 8: after `stop` no timer is left");
    let World { cx, a, b, .. } = world;
    drop((a, b, cx));
    let alive = weak.iter().filter(|s| s.upgrade().is_some()).count();
    assert_eq!(alive, 0, "law 5: after `stop` no session keeps itself alive");
    Verdict::Holds
}
