//! The laws themselves.

use super::{CallFixture, CallWorld};
use crate::conformance::messages::pattern;
use crate::conformance::{Side, Verdict, allocations, counts_allocations};
use crate::kernel::{CallBottom, CallEnd, Lower, OnServe, Task, Top, octets};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::object::{CallCause, CallError, Rejection};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Entry, Kernel, Message, Participants, ProtocolRef, Reason, SessionRef, Upper, reason,
};
use xk_kit::rpc::call::{CallOptions, CancelCall, MyProcedure};

pub(super) const PROCEDURE: u32 = 3;
/// Longer than any call of these laws takes, in virtual time.
pub(super) const LONG: Duration = Duration::from_secs(600);
/// Calls before allocations are counted, and while they are.
const WARM: u32 = 200;
const STEADY: u32 = 500;

/// B serves, A has a session.
pub(super) fn conversation(fixture: &dyn CallFixture) -> (CallWorld<'_>, SessionRef) {
    let world = CallWorld::new(fixture);
    world.serve(Side::B);
    let session = world.open(Side::A, PROCEDURE);
    (world, session)
}

pub(super) fn serves(
    what: impl Fn(&Kernel, Message) -> Result<Message, &'static Reason> + 'static,
) -> Option<OnServe> {
    Some(Rc::new(move |cx, _, request| what(cx, request)))
}

/// A server's session has no hold below once its calls are over and no peer asks for their replies
/// any more.
///
/// # Panics
/// If the law is broken.
pub fn pins_nothing(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    right(world.call(&session, b"x"), b"x");
    session.close(&world.cx);
    let asleep: Task = Box::new(|cx| {
        let _ = cx.wait(&Semaphore::new(0), Some(LONG));
    });
    world.run(LONG, vec![asleep]);
    let mut held = world.node(Side::B).held();
    held.retain(|session| session.head().is_passive());
    assert!(held.is_empty(), "what the caller came through is held for good: {held:?}");
    world.finish();
    Verdict::Holds
}

/// A session that a request made tells the caller's source, from behind a cut as well: tables share
/// out their room among networks by it.
///
/// # Panics
/// If the law is broken.
pub fn tells_its_source(fixture: &dyn CallFixture) -> Verdict {
    if fixture.lower(Side::A).own().is_none() {
        return Verdict::Skipped("what it stands on has no addresses");
    }
    let (world, session) = conversation(fixture);
    right(world.call(&session, b"x"), b"x");
    let top = &world.node(Side::B).top;
    for (made, _) in top.take_opened().iter().filter(|(made, _)| made.head().is_passive()) {
        let source = made.head().source();
        assert_ne!(source, 0, "law 8: a session that a request made tells where that came from");
    }
    world.finish();
    Verdict::Holds
}

/// A protocol whose tables hold two sessions, where it has a parameter for that.
struct Small<'f>(&'f dyn CallFixture);

impl CallFixture for Small<'_> {
    fn entry(&self) -> &'static Entry {
        self.0.entry()
    }

    fn lower(&self, side: Side) -> Lower {
        self.0.lower(side)
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        self.0.open(side, procedure)
    }

    fn enable(&self, side: Side) -> Participants {
        self.0.enable(side)
    }

    fn number(&self) -> Option<u32> {
        self.0.number()
    }

    fn params(&self, side: Side) -> Params {
        let mut params = self.0.params(side);
        for name in ["sessions_max", "channels_max"] {
            if self.entry().parameters.iter().any(|p| p.name == name) {
                params.set(name, Value::Integer(2));
            }
        }
        params
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef, params: &Params) -> ProtocolRef {
        self.0.build(cx, side, bottom, params)
    }

    fn above(&self, cx: &Kernel, side: Side, tested: &ProtocolRef) -> ProtocolRef {
        self.0.above(cx, side, tested)
    }

    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        self.0.proxies(side)
    }

    fn lateness(&self) -> Duration {
        self.0.lateness()
    }

    fn is_on_calls(&self) -> bool {
        self.0.is_on_calls()
    }
}

/// A client's closed sessions are released, however often it opens, and whether or not there is
/// room.
///
/// # Panics
/// If the law is broken.
pub fn gives_back(fixture: &dyn CallFixture) -> Verdict {
    let small = Small(fixture);
    let world = CallWorld::new(&small);
    world.serve(Side::B);
    let node = world.node(Side::A);
    let holds = || node.holds();
    let mut sessions = Vec::new();
    for procedure in [PROCEDURE, PROCEDURE, PROCEDURE + 1, PROCEDURE + 2] {
        let before: u32 = holds();
        let both = fixture.open(Side::A, procedure);
        match node.top.open(&world.cx, &node.protocol, both) {
            Ok(session) => sessions.push(session),
            Err(_) => {
                world.cross();
                assert_eq!(holds(), before, "what does not open holds nothing");
            }
        }
    }
    for session in &sessions {
        right(world.call(session, b"open"), b"open");
    }
    let last = sessions.pop();
    for session in sessions {
        session.close(&world.cx);
    }
    if let Some(last) = last {
        right(world.call(&last, b"the last"), b"the last");
        last.close(&world.cx);
    }
    world.cross();
    assert_eq!(holds(), 0, "what is closed holds nothing");
    world.finish();
    Verdict::Holds
}

/// A session that a request made, and that the protocol above refuses, leaves no trace: the next
/// request is served.
///
/// # Panics
/// If the law is broken.
pub fn forgets_the_unwanted(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    let top = &world.node(Side::B).top;
    top.refuse_open(Some(&reason::PROHIBITED));
    for _ in 0..2 {
        let end = world.call(&session, b"unwanted").map(drop);
        assert!(end.is_err(), "what is not wanted is not executed");
    }
    assert_eq!(top.served(), 0);
    top.refuse_open(None);
    right(world.call(&session, b"wanted"), b"wanted");
    assert_eq!(top.take_opened().len(), 1, "one session, announced once");
    world.finish();
    Verdict::Holds
}

/// The reply of [`reverse`], for comparison.
fn reversed(request: &[u8]) -> Vec<u8> {
    request.iter().rev().copied().chain([7]).collect()
}

fn reverse(cx: &Kernel, request: &Message) -> Message {
    cx.pool()
        .copy_from(crate::kernel::HEADROOM, &reversed(&octets(request)))
        .expect("a buffer for a test message")
}

#[track_caller]
pub(super) fn right(end: CallEnd, wanted: &[u8]) {
    match end {
        Ok(reply) => assert!(
            reply.eq_octets(wanted),
            "a reply of {} octets and not the {} that were sent",
            reply.len(),
            wanted.len()
        ),
        Err(error) => panic!("a call for {} octets ends: {error}", wanted.len()),
    }
}

/// The procedure gets the octets that were sent, and its reply comes back unchanged, whatever the
/// size.
///
/// # Panics
/// If the law is broken.
pub fn carries(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    let top = &world.node(Side::B).top;
    top.on_serve(serves(|cx, request| Ok(reverse(cx, &request))));
    let most = fixture.octets_max();
    let sizes = [0, 1, 3, 4, 63, 64, 500, most / 2, most - 1];
    for (n, size) in sizes.into_iter().enumerate() {
        let request = pattern(size.min(most - 1), n as u8);
        right(world.call(&session, &request), &reversed(&request));
    }
    assert_eq!(top.served(), sizes.len() as u64, "each call is executed once");
    world.finish();
    Verdict::Holds
}

/// Both sides accept requests and replies in several slices.
///
/// # Panics
/// If the law is broken.
pub fn takes_slices(fixture: &dyn CallFixture) -> Verdict {
    fn cut(cx: &Kernel, octets: &[u8]) -> Message {
        let mut pieces = octets
            .chunks(5)
            .map(|piece| cx.pool().copy_from(0, piece).expect("a buffer for a test message"));
        let mut whole = pieces.next().expect("at least one octet");
        pieces.for_each(|piece| whole.join(piece));
        whole
    }
    let (world, session) = conversation(fixture);
    world.node(Side::B).top.on_serve(serves(|cx, request| Ok(cut(cx, &octets(&request)))));
    let request = pattern(64, 1);
    // With 0 in front, as a layer below leaves it that takes off all of the first slice.
    for first in 0..=72 {
        let call = (session.clone(), cut(&world.cx, &request));
        right(world.call_sliced(call, first), &request);
    }
    drop(session);
    world.finish();
    Verdict::Holds
}

/// A client's session tells which procedure it stands for, and so does a server's when it is made.
///
/// # Panics
/// If the law is broken.
pub fn names_procedures(fixture: &dyn CallFixture) -> Verdict {
    if !fixture.has_procedures() {
        return Verdict::Skipped("it has no procedures");
    }
    let (world, _) = conversation(fixture);
    for number in [1, 7, 40_000] {
        let session = world.open(Side::A, number);
        let answer = session.ask(&world.cx, MyProcedure::default());
        assert_eq!(answer.map(|a| a.number), Some(number), "a client's session");
        right(world.call(&session, b"x"), b"x");
        let named = world.node(Side::B).top.take_procedures();
        assert!(named.contains(&number), "a server's session names {number}");
    }
    world.finish();
    Verdict::Holds
}

/// A refusal comes back as the peer's, with its reason; and the session goes on.
///
/// # Panics
/// If the law is broken.
pub fn refuses(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    let top = &world.node(Side::B).top;
    for reason in fixture.refusals() {
        top.on_serve(serves(move |_, _| Err(reason)));
        let error = world.call(&session, b"no").map(drop).unwrap_err();
        assert_eq!(
            error.cause,
            CallCause::Rejected(Rejection::new(reason)),
            "a refusal comes back"
        );
        assert!(error.layer.is_some(), "an error names its layer");
    }
    top.on_serve(None);
    right(world.call(&session, b"yes"), b"yes");
    world.finish();
    Verdict::Holds
}

/// A call to a side without an enable ends, and is not executed.
///
/// # Panics
/// If the law is broken.
pub fn ends_where_nobody_serves(fixture: &dyn CallFixture) -> Verdict {
    let world = CallWorld::new(fixture);
    let session = world.open(Side::A, PROCEDURE);
    let error = world.call(&session, b"hello?").map(drop).unwrap_err();
    assert!(
        matches!(error.cause, CallCause::Rejected(_) | CallCause::TimedOut { .. }),
        "where nobody serves a call is refused or times out, and not: {error}"
    );
    assert_eq!(world.node(Side::B).top.served(), 0);
    world.finish();
    Verdict::Holds
}

/// A closed session answers `Closed`, counted; one opened again calls.
///
/// # Panics
/// If the law is broken.
pub fn closes(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    right(world.call(&session, b"open"), b"open");
    session.close(&world.cx);
    if session.head().is_closed() {
        let drops = world.nodes[0].drops();
        let error = world.call(&session, b"closed").map(drop).unwrap_err();
        assert_eq!(error.cause, CallCause::Closed);
        assert_eq!(world.nodes[0].drops(), drops + 1, "it is counted");
    }
    let session = world.open(Side::A, PROCEDURE);
    right(world.call(&session, b"again"), b"again");
    session.abort(&world.cx);
    let error = world.call(&session, b"closed").map(drop).unwrap_err();
    assert_eq!(error.cause, CallCause::Closed);
    let session = world.open(Side::A, PROCEDURE);
    right(world.call(&session, b"once more"), b"once more");
    world.finish();
    Verdict::Holds
}

/// A session ends with the session below and tells the protocol above, or goes on over another one.
///
/// # Panics
/// If the law is broken.
pub fn ends_with_its_lower(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    right(world.call(&session, b"open"), b"open");
    session.watch();
    let node = world.node(Side::A);
    let calls = node.calls.iter().flat_map(CallBottom::open_sessions);
    node.bottom.held().into_iter().chain(calls).for_each(|below| below.abort(&world.cx));
    world.cross();
    if session.head().is_closed() {
        assert_eq!(node.top.take_gone(), [session.id()], "the protocol above is told, once");
        let session = world.open(Side::A, PROCEDURE);
        right(world.call(&session, b"again"), b"again");
    } else {
        assert!((0..4).any(|_| world.call(&session, b"on").is_ok()), "it goes on over another");
    }
    world.finish();
    Verdict::Holds
}

/// A procedure may make calls itself, even to its caller.
///
/// # Panics
/// If the law is broken.
pub fn nests(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    world.serve(Side::A);
    let back = world.open(Side::B, PROCEDURE + 1);
    let relay: OnServe = Rc::new(move |cx, _, request| {
        let reply = back.call(cx, request);
        reply.map_err(|_| &xk_kit::rpc::call::SYSTEM_ERROR)
    });
    world.node(Side::B).top.on_serve(Some(relay));
    let first = &world.node(Side::A).top;
    first.on_serve(serves(|cx, request| Ok(reverse(cx, &request))));
    for n in 0..3 {
        let request = pattern(40, n);
        right(world.call(&session, &request), &reversed(&request));
    }
    world.finish();
    Verdict::Holds
}

/// Calls made at one time each get their own reply, even if later ones are answered first.
///
/// # Panics
/// If the law is broken.
pub fn keeps_calls_apart(fixture: &dyn CallFixture) -> Verdict {
    const CALLS: u64 = 12;
    let (world, session) = conversation(fixture);
    let left = Cell::new(CALLS);
    let last_first = move |cx: &Kernel, request: Message| {
        left.set(left.get() - 1);
        let wait = Duration::from_millis(2 * left.get() + 1);
        let _ = cx.wait(&Semaphore::new(0), Some(wait));
        Ok(reverse(cx, &request))
    };
    world.node(Side::B).top.on_serve(serves(last_first));
    let session_of = |_| match fixture.is_concurrent() {
        true => session.clone(),
        false => world.open(Side::A, PROCEDURE),
    };
    let requests: Vec<Vec<u8>> = (0..CALLS).map(|n| pattern(20 + n as usize, n as u8)).collect();
    let calls = requests.iter().enumerate();
    let calls = calls.map(|(n, request)| (session_of(n), world.cx.message(request)));
    let ends = world.call_all(calls.collect());
    for (end, request) in ends.into_iter().zip(&requests) {
        right(end, &reversed(request));
    }
    let top = &world.node(Side::B).top;
    assert_eq!(top.served(), CALLS, "each call is executed once");
    assert!(top.serving_most() > 1, "several are executed at one time");
    world.finish();
    Verdict::Holds
}

/// Whether something is told of by this time that took place at `at`.
fn is_at(fixture: &dyn CallFixture, told: Duration, at: Duration) -> bool {
    (at..=at + fixture.lateness()).contains(&told)
}

/// A request with options, for a call whose procedure takes `serving` long; what `meanwhile` does
/// 10 ms later; how it ended, and when.
fn with_options(
    fixture: &dyn CallFixture,
    deadline: Option<Duration>,
    tag: u64,
    meanwhile: impl Fn(&Kernel, &SessionRef) + 'static,
) -> (CallError, Duration) {
    let (world, session) = conversation(fixture);
    let top = &world.node(Side::B).top;
    right(world.call(&session, b"warm"), b"warm");
    top.on_serve(serves(|cx, request| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_secs(30)));
        Ok(request)
    }));
    let begun = world.cx.now();
    let deadline = deadline.map_or(xk_core::Time::MAX, |after| begun.after(after));
    let mut request = world.cx.message(b"late");
    request.set_attribute(CallOptions { deadline, tag }).expect("room for an attribute");
    let end: Rc<RefCell<Option<Ended>>> = Rc::default();
    let (caller, ended) = (session.clone(), Rc::clone(&end));
    let call = move |cx: &Kernel| {
        let result = caller.call(cx, request);
        *ended.borrow_mut() = Some((result, cx.now().since(begun)));
    };
    let other = session.clone();
    let later = move |cx: &Kernel| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(10)));
        meanwhile(cx, &other);
    };
    assert!(world.run(LONG, vec![Box::new(call) as Task, Box::new(later)]));
    // The server comes to an end as well, and the session goes on.
    let rest = |cx: &Kernel| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_secs(60)));
    };
    assert!(world.run(LONG, vec![Box::new(rest) as Task]));
    top.on_serve(None);
    right(world.call(&session, b"after it"), b"after it");
    let (end, took) = end.take().expect("it has ended");
    let error = end.map(drop).unwrap_err();
    world.finish();
    (error, took)
}

/// A call with a deadline ends at the deadline and not earlier; a call whose deadline has passed is
/// not sent.
///
/// # Panics
/// If the law is broken.
pub fn obeys_deadlines(fixture: &dyn CallFixture) -> Verdict {
    let limit = Duration::from_millis(700);
    let (error, took) = with_options(fixture, Some(limit), 0, |_, _| ());
    assert!(
        matches!(error.cause, CallCause::TimedOut { .. }),
        "a call past its deadline times out, and not: {error}"
    );
    assert!(is_at(fixture, took, limit), "it ends at its deadline, not after {took:?}");
    let (world, session) = conversation(fixture);
    world.run(
        LONG,
        vec![Box::new(|cx: &Kernel| {
            let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(5)));
        }) as Task],
    );
    let mut request = world.cx.message(b"too late");
    let deadline = xk_core::Time::from_ns(1);
    request.set_attribute(CallOptions { deadline, tag: 0 }).expect("room for an attribute");
    let end = world.call_all(vec![(session, request)]).remove(0);
    assert!(
        matches!(end, Err(e) if matches!(e.cause, CallCause::TimedOut { .. })),
        "a deadline that is past"
    );
    world.finish();
    Verdict::Holds
}

/// A cancelled call ends at once. A question about another call changes nothing, and a call with
/// the same name in another session goes on.
///
/// # Panics
/// If the law is broken.
pub fn obeys_cancels(fixture: &dyn CallFixture) -> Verdict {
    let (error, took) = with_options(fixture, None, 77, |cx, session| {
        assert!(session.ask(cx, CancelCall { tag: 78 }).is_none(), "no such call");
        assert!(session.ask(cx, CancelCall { tag: 77 }).is_some(), "a call under way is found");
    });
    assert_eq!(error.cause, CallCause::Cancelled);
    assert!(is_at(fixture, took, Duration::from_millis(10)), "it ends at once: {took:?}");
    for cancelled in 0..2 {
        cancels_its_own(fixture, cancelled);
    }
    Verdict::Holds
}

/// End of a call, and its time.
type Ended = (CallEnd, Duration);

/// Two sessions make a call of one name each, of which the one is taken back.
fn cancels_its_own(fixture: &dyn CallFixture, cancelled: usize) {
    let expected = |n| (n == cancelled).then_some(CallCause::Cancelled);
    ends_of_two(fixture, [0, 1].map(expected), move |cx, sessions| {
        let found = sessions[cancelled].ask(cx, CancelCall { tag: 77 });
        assert!(found.is_some(), "a call under way is found");
    });
}

/// Checks how the calls end that two sessions make at one time, `meanwhile` being done while they
/// are under way.
fn ends_of_two(
    fixture: &dyn CallFixture,
    expected: [Option<CallCause>; 2],
    meanwhile: impl FnOnce(&Kernel, &[SessionRef; 2]) + 'static,
) {
    let (world, first) = conversation(fixture);
    let sessions = [first, world.open(Side::A, PROCEDURE + 1)];
    if sessions[0] == sessions[1] {
        // It is one for all procedures.
        return;
    }
    world.node(Side::B).top.on_serve(serves(|cx, request| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_secs(1)));
        Ok(request)
    }));
    let begun = world.cx.now();
    let ends: Rc<RefCell<[Option<Ended>; 2]>> = Rc::default();
    let call = |n: usize| {
        let (session, ends) = (sessions[n].clone(), Rc::clone(&ends));
        let mut request = world.cx.message(b"of one name");
        let options = CallOptions { deadline: xk_core::Time::MAX, tag: 77 };
        request.set_attribute(options).expect("room for an attribute");
        Box::new(move |cx: &Kernel| {
            let end = session.call(cx, request);
            ends.borrow_mut()[n] = Some((end, cx.now().since(begun)));
        }) as Task
    };
    let tasks = [call(0), call(1)];
    let after = Duration::from_millis(10);
    let later: Task = Box::new(move |cx| {
        let _ = cx.wait(&Semaphore::new(0), Some(after));
        meanwhile(cx, &sessions);
    });
    assert!(world.run(LONG, tasks.into_iter().chain([later]).collect()));
    for (end, expected) in ends.take().into_iter().zip(expected) {
        let (end, took) = end.expect("it has ended");
        assert_eq!(end.err().map(|error| error.cause), expected, "each call has its own end");
        let is_at = is_at(fixture, took, after);
        assert_eq!(is_at, expected.is_some(), "and at its time: {took:?}");
    }
    world.finish();
}

/// Closing a session ends its calls, and no others, not even those of another session to the same
/// peer.
///
/// # Panics
/// If the law is broken.
pub fn end_with_their_session(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    world.node(Side::B).top.on_serve(serves(|cx, request| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_secs(1)));
        Ok(request)
    }));
    let mut request = world.cx.message(b"alone");
    let options = CallOptions { deadline: xk_core::Time::MAX, tag: 77 };
    request.set_attribute(options).expect("room for an attribute");
    let caller = session.clone();
    let (after, lateness) = (Duration::from_millis(10), fixture.lateness());
    let call: Task = Box::new(move |cx| {
        let begun = cx.now();
        let error = caller.call(cx, request).map(drop).unwrap_err();
        assert_eq!(error.cause, CallCause::Closed);
        let took = cx.now().since(begun);
        assert!((after..=after + lateness).contains(&took), "it ends at once: {took:?}");
    });
    let close: Task = Box::new(move |cx| {
        let _ = cx.wait(&Semaphore::new(0), Some(after));
        session.close(cx);
    });
    assert!(world.run(LONG, vec![call, close]));
    world.finish();
    for closed in 0..2 {
        let expected = |n| (n == closed).then_some(CallCause::Closed);
        ends_of_two(fixture, [0, 1].map(expected), move |cx, sessions| {
            sessions[closed].close(cx);
        });
    }
    Verdict::Holds
}

/// In a steady conversation no call costs an allocation, at either side.
///
/// # Panics
/// If the law is broken.
pub fn allocates_nothing(fixture: &dyn CallFixture) -> Verdict {
    if !counts_allocations() {
        return Verdict::Skipped("the test has no CountingAllocator");
    }
    let (world, session) = conversation(fixture);
    world.node(Side::B).top.forget(true);
    let counted = Rc::new(Cell::new(None));
    let result = Rc::clone(&counted);
    let request = pattern(64, 3);
    let calls = move |cx: &Kernel| {
        let mut before = 0;
        for n in 0..WARM + STEADY {
            if n == WARM {
                before = allocations();
            }
            let message = cx.pool().copy_from(crate::kernel::HEADROOM, &request);
            let reply = session.call(cx, message.expect("a buffer for a test message"));
            assert!(reply.is_ok_and(|reply| reply.eq_octets(&request)));
        }
        result.set(Some(allocations() - before));
    };
    assert!(world.run(LONG, vec![Box::new(calls) as Task]));
    let counted = counted.take().expect("the calls have ended");
    assert_eq!(counted, 0, "allocations in {STEADY} calls");
    world.finish();
    Verdict::Holds
}

/// Damaged and arbitrary frames cause no panic, leave no call hanging, and leave nothing behind.
///
/// # Panics
/// If the law is broken.
pub fn survives_damage(fixture: &dyn CallFixture) -> Verdict {
    match fixture.is_on_calls() {
        true => survives_bad_calls(fixture),
        false => survives_bad_frames(fixture),
    }
    Verdict::Holds
}

fn survives_bad_frames(fixture: &dyn CallFixture) {
    let (world, session) = conversation(fixture);
    for n in 0..200 {
        let session = match n % 10 {
            0 => world.open(Side::A, PROCEDURE),
            _ => session.clone(),
        };
        let request = world.cx.message(&pattern(64 + n, 9));
        // How it ends is chance; that it ends is checked.
        drop(world.call_all_harmed(vec![(session, request)]));
    }
    let session = world.open(Side::A, PROCEDURE);
    if fixture.is_reliable() {
        right(world.call(&session, b"sound"), b"sound");
    }
    world.finish();
}

/// Requests and replies of any octets, from a peer of another kind.
fn survives_bad_calls(fixture: &dyn CallFixture) {
    let (world, session) = conversation(fixture);
    right(world.call(&session, b"sound"), b"sound");
    let Some(bottom) = &world.nodes[1].calls else {
        return;
    };
    // What a sound request looks like below.
    let seen: Rc<RefCell<Vec<u8>>> = Rc::default();
    let kept = Rc::clone(&seen);
    let Some(first) = &world.nodes[0].calls else {
        return;
    };
    first.on_call(Some(Rc::new(move |_, _, request| {
        *kept.borrow_mut() = octets(request);
        Ok(())
    })));
    right(world.call(&session, b"seen"), b"seen");
    let sound = seen.borrow().clone();
    let own = world.nodes[0].bottom.lower().own();
    let number = Upper::new(&world.nodes[1].tested).number_on(&world.cx, bottom.protocol()).ok();
    for n in 0..sound.len() * 9 {
        let mut bad = sound.clone();
        match n / sound.len() {
            8 => bad.truncate(n % sound.len()),
            bit => bad[n % sound.len()] ^= 1 << bit,
        }
        let bottom = bottom.clone();
        let task = move |cx: &Kernel| {
            let message = cx.pool().copy_from(crate::kernel::HEADROOM, &bad);
            let message = message.expect("a buffer for a test message");
            drop(bottom.deliver(cx, (u32::MAX, n as u64), own, number, message));
        };
        assert!(world.run(LONG, vec![Box::new(task) as Task]));
    }
    world.finish();
    survives_bad_replies(fixture);
}

/// Number of messages that all protocols dropped.
fn dropped(cx: &Kernel) -> u64 {
    let all = cx.protocols();
    all.iter().map(|p| p.head().drops().total()).sum()
}

fn survives_bad_replies(fixture: &dyn CallFixture) {
    let world = CallWorld::new(fixture);
    let Some(bottom) = &world.nodes[1].calls else {
        return;
    };
    // In the place of B stands a liar that replies anything, under B's number.
    let liar = Top::add(&world.cx, "liar");
    let as_b = Upper::new(&world.nodes[1].tested).through(liar.protocol());
    bottom.withdraw_all();
    let enabled = bottom.protocol().open_enable(&world.cx, as_b, fixture.enable(Side::B));
    assert!(enabled.is_ok());
    liar.on_serve(serves(|cx, request| {
        let mut reply = octets(&request);
        let chance = cx.random();
        if let Some(first) = reply.first_mut() {
            *first = 2;
        }
        let at = chance.below(reply.len() as u64 + 1) as usize;
        match chance.below(3) {
            0 => reply.truncate(at),
            1 => reply.iter_mut().take(12).for_each(|o| *o = chance.below(4) as u8),
            _ => reply.iter_mut().skip(at).for_each(|o| *o = !*o),
        }
        Ok(cx
            .pool()
            .copy_from(crate::kernel::HEADROOM, &reply)
            .expect("a buffer for a test message"))
    }));
    let session = world.open(Side::A, PROCEDURE);
    for n in 0..300 {
        let drops = dropped(&world.cx);
        let end = world.call(&session, &pattern(n % 40, 2)).map(drop);
        if end.is_err_and(|error| error.cause == CallCause::BadReply) {
            let counted = dropped(&world.cx) - drops;
            assert_eq!(counted, 1, "a reply that cannot be read is counted");
        }
    }
    assert!(liar.served() >= 300, "every call reached the liar");
    world.finish();
}

/// After `stop` nothing is left, though a call was under way.
///
/// # Panics
/// If the law is broken.
pub fn stops(fixture: &dyn CallFixture) -> Verdict {
    let (world, session) = conversation(fixture);
    world.node(Side::B).top.on_serve(serves(|cx, request| {
        let _ = cx.wait(&Semaphore::new(0), None);
        Ok(request)
    }));
    let request = world.cx.message(b"never answered");
    let call = move |cx: &Kernel| drop(session.call(cx, request));
    let ended = world.run(Duration::from_millis(50), vec![Box::new(call) as Task]);
    assert!(!ended, "nobody has answered it");
    world.finish();
    Verdict::Holds
}
