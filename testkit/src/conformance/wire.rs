//! The laws of wires: one upper protocol, one session, every frame accounted for.
//!
//! A wire stands on nothing, so its own test says how a frame comes to it from outside, by a
//! [`WireFixture`], and [`all`] stands a [`Top`] on it.

use super::messages::pattern;
use crate::kernel::{Event, HEADROOM, Top};
use xk_core::control::Describe;
use xk_core::object::{CallCause, OpenError, PushError};
use xk_core::participant::AddressError;
use xk_core::{Kernel, Message, Part, Participants, ProtocolRef, SessionRef, reason};
use xk_kit::control::{MaxPacket, OptPacket, WireRoom};

/// Frames sent one behind the other, without a turn of the loop: more than wait in any wire.
const FRAMES_AT_ONCE: usize = 5000;

/// A wire under test, started, in surroundings of its own.
pub trait WireFixture {
    /// Kernel of the wire.
    fn cx(&self) -> &Kernel;

    /// The wire.
    fn wire(&self) -> &ProtocolRef;

    /// Lets a frame arrive from outside and pass up.
    fn arrive(&self, octets: &[u8]);

    /// An octet string that the wire carries, as a frame for this end.
    fn frame(&self) -> Vec<u8> {
        pattern(60, 3)
    }

    /// True if its outside tells how much it takes. A wire that stands for another may not know.
    fn knows_room(&self) -> bool {
        true
    }
}

/// Checks every law of wires; `make` gives a new wire each time.
///
/// # Panics
/// If one is broken; the text names it.
pub fn all<F: WireFixture>(make: impl Fn() -> F) {
    has_one_upper(&make());
    keeps_to_max_packet(&make());
    closes(&make());
    enables(&make());
    tells_its_room(&make());
    is_given_free(&make());
    stops(&make());
}

fn open(fixture: &impl WireFixture, top: &Top) -> Result<SessionRef, OpenError> {
    top.open(fixture.cx(), fixture.wire(), Participants::default())
}

fn opened(fixture: &impl WireFixture, top: &Top) -> SessionRef {
    open(fixture, top).unwrap_or_else(|error| panic!("law 2: a free wire opens, not: {error}"))
}

fn message(cx: &Kernel, octets: &[u8]) -> Message {
    cx.pool().copy_from(HEADROOM, octets).expect("a buffer for a test message")
}

fn drops(fixture: &impl WireFixture) -> u64 {
    fixture.wire().head().drops().total()
}

/// Laws 2 and 3: the first to open or enable has the wire; it is the receiver that counts, not the
/// selector.
fn has_one_upper(fixture: &impl WireFixture) {
    let cx = fixture.cx();
    let (top, other) = (Top::add(cx, "top"), Top::add(cx, "other"));
    let through = top.open_through(cx, fixture.wire(), other.protocol(), Participants::default());
    let session = through.expect("law 3: a wire opens for a receiver");
    assert_eq!(session.head().upper(), top.id(), "law 3: the receiver receives, not the selector");
    let several = "*, *, *".parse().expect("participants");
    assert_eq!(
        top.open(cx, fixture.wire(), several).err(),
        Some(OpenError::Address(AddressError::Count)),
        "law 2: a wire has one other end"
    );
    let again = opened(fixture, &top);
    assert_eq!(again, session, "law 2: a wire has one session");
    assert_eq!(session.head().opens(), 2, "law 5: it has two holders then");
    assert_eq!(
        open(fixture, &other).err(),
        Some(OpenError::InUse),
        "law 2: another protocol does not get a wire that is taken"
    );
    let any = Participants::local(Part::Any);
    assert_eq!(
        other.enable(cx, fixture.wire(), any).err(),
        Some(OpenError::InUse),
        "law 2: another protocol does not enable a wire that is taken"
    );
    fixture.arrive(&fixture.frame());
    assert_eq!((top.received(), other.received()), (1, 0), "law 3: who has the wire receives");
}

/// Law 9: a wire tells how much it takes, takes as much, and not an octet more.
fn keeps_to_max_packet(fixture: &impl WireFixture) {
    let cx = fixture.cx();
    let session = opened(fixture, &Top::add(cx, "top"));
    let max = session.ask(cx, MaxPacket::default());
    let max = max.expect("law 9: a wire answers `max-packet`").octets;
    let opt = session.ask(cx, OptPacket::default());
    assert!(
        opt.is_some_and(|opt| opt.octets <= max),
        "law 9: a wire answers `opt-packet`, no more than `max-packet`"
    );
    let mut octets = fixture.frame();
    octets.resize(max as usize, 0);
    assert_eq!(session.push(cx, message(cx, &octets)), Ok(()));
    octets.push(0);
    let before = drops(fixture);
    assert_eq!(
        session.push(cx, message(cx, &octets)),
        Err(PushError::TooBig),
        "law 9: one octet more than `max-packet` is refused"
    );
    assert_eq!(drops(fixture), before + 1, "law 8: what is too big is counted");
    assert!(
        matches!(
            session.call(cx, message(cx, &fixture.frame())),
            Err(e) if e.cause == CallCause::NotSupported
        ),
        "law 5: a wire takes no calls"
    );
}

/// Law 5: the last holder's `close` gives the wire free; a closed session takes and answers
/// nothing.
fn closes(fixture: &impl WireFixture) {
    let cx = fixture.cx();
    let (top, other) = (Top::add(cx, "top"), Top::add(cx, "other"));
    let session = opened(fixture, &top);
    drop(opened(fixture, &top));
    session.close(cx);
    assert!(!session.head().is_closed(), "law 5: a session stays while one holder is left");
    session.close(cx);
    assert!(session.head().is_closed(), "law 5: `close` closes");
    let (frame, before) = (fixture.frame(), drops(fixture));
    assert_eq!(
        session.push(cx, message(cx, &frame)),
        Err(PushError::Closed),
        "law 5: a closed session takes nothing to send"
    );
    assert!(
        session.pop(cx, message(cx, &frame)).is_err(),
        "law 5: a closed session takes nothing that arrives"
    );
    assert!(
        session.ask(cx, Describe::default()).is_none()
            && session.ask(cx, MaxPacket::default()).is_none(),
        "law 5: a closed session answers nothing"
    );
    assert_eq!(drops(fixture), before + 2, "law 8: what it refuses counts");
    fixture.arrive(&frame);
    assert_eq!(
        (drops(fixture), top.received()),
        (before + 3, 0),
        "law 8: a frame that nobody wants is counted once"
    );
    let next = opened(fixture, &other);
    fixture.arrive(&frame);
    assert_eq!(other.received(), 1, "law 5: a wire given free opens anew");
    next.abort(cx);
    assert!(next.head().is_closed(), "law 5: `abort` closes");
}

/// Laws 2 and 8: an enable makes the session at the first frame; what is refused is counted once
/// and leaves nothing.
fn enables(fixture: &impl WireFixture) {
    let cx = fixture.cx();
    let top = Top::add(cx, "top");
    let frame = fixture.frame();
    let counted = |what: &str, by: u64| {
        let all = || drops(fixture) + top.protocol().head().drops().total();
        let before = all();
        fixture.arrive(&frame);
        assert_eq!(all() - before, by, "law 8: {what}");
    };
    counted("before an enable a frame is counted once", 1);
    let enable = top.enable(cx, fixture.wire(), Participants::local(Part::Any));
    let enable = enable.unwrap_or_else(|error| panic!("law 2: a free wire enables, not: {error}"));
    top.refuse_open(Some(&reason::PROHIBITED));
    counted("a session refused counts the frame once, at the wire", 1);
    counted("and again with the next frame", 1);
    assert_eq!(top.take_events(), []);
    top.refuse_open(None);
    counted("a frame delivered is not counted", 0);
    let (session, _) = top.take_opened().pop().expect("law 2: `open_done` tells");
    let id = session.id();
    assert_eq!(
        top.take_events(),
        [Event::OpenDone(id), Event::Demux(id, frame.len())],
        "law 2: `open_done` comes before the first frame"
    );
    let received = top.take_received();
    assert!(received[0].message.eq_octets(&frame), "law 7: a frame arrives unchanged");
    top.refuse(Some(&reason::PROHIBITED));
    counted("a frame refused is counted once, by who refused", 1);
    top.refuse(None);
    session.hold();
    fixture.wire().open_disable(cx, enable);
    counted("the session made outlives the enable", 0);
    session.close(cx);
    counted("after the enable and the session a frame is counted", 1);
}

/// Law 8: a wire tells when it has room. A frame that finds none was announced so, and is counted:
/// none is lost otherwise.
fn tells_its_room(fixture: &impl WireFixture) {
    let cx = fixture.cx();
    let session = opened(fixture, &Top::add(cx, "top"));
    let room = || session.ask(cx, WireRoom::default()).map(|question| question.after);
    assert_eq!(room().is_some(), fixture.knows_room(), "law 8: a wire answers `wire-room`");
    let (frame, before) = (fixture.frame(), drops(fixture));
    let mut refused = 0;
    for _ in 0..FRAMES_AT_ONCE {
        let Ok(message) = cx.pool().copy_from(HEADROOM, &frame) else {
            break;
        };
        let has_room = room().is_none_or(|after| after.is_zero());
        match session.push(cx, message) {
            Ok(()) => {}
            Err(PushError::QueueFull) => {
                refused += 1;
                assert!(!has_room, "law 8: a wire that says it has room takes a frame");
            }
            Err(error) => panic!("law 8: a full wire says that it is full, not: {error}"),
        }
        assert_eq!(drops(fixture), before + refused, "law 8: what a full wire refuses is counted");
    }
}

/// Laws 2 and 5: an enable withdrawn gives the wire free, at the latest when another protocol opens
/// it.
fn is_given_free(fixture: &impl WireFixture) {
    let cx = fixture.cx();
    let any = || Participants::local(Part::Any);
    let (first, second) = (Top::add(cx, "first"), Top::add(cx, "second"));
    for arrivals in 0..2 {
        let enable = first.enable(cx, fixture.wire(), any());
        let enable = enable.expect("law 2: a free wire enables");
        let received = first.received();
        (0..arrivals).for_each(|_| fixture.arrive(&fixture.frame()));
        assert_eq!(first.received(), received + arrivals);
        assert_eq!(
            open(fixture, &second).err(),
            Some(OpenError::InUse),
            "law 2: an enabled wire is taken"
        );
        fixture.wire().open_disable(cx, enable);
        let session = open(fixture, &second).unwrap_or_else(|error| {
            panic!("law 5: a wire that nobody enables or holds is free, not: {error}")
        });
        session.close(cx);
    }
}

/// Laws 5 and 8: after `stop` no session and no timer is left.
fn stops(fixture: &impl WireFixture) {
    let cx = fixture.cx();
    let top = Top::add(cx, "top");
    let session = opened(fixture, &top);
    fixture.arrive(&fixture.frame());
    assert_eq!(session.push(cx, message(cx, &fixture.frame())), Ok(()));
    let weak = session.downgrade();
    drop(session);
    cx.stop();
    assert!(weak.upgrade().is_none(), "law 5: after `stop` no session is left");
    assert_eq!(cx.timers(), 0, "law 8: after `stop` no timer is left");
}
