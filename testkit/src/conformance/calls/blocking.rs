//! Layers below may block in `open`, `open_enable`, `control`, `push` and `call`: whatever others
//! do meanwhile, no session is made twice, every call ends as it should, and all is given back.

use super::laws::{LONG, PROCEDURE, right};
use super::{CallFixture, CallWorld};
use crate::conformance::blocking::{AT_ONCE, PAUSE_MAX, SEEDS, sleep};
use crate::conformance::{Side, Verdict, world};
use crate::kernel::CallEnd;
use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{Enable, OpenError, SessionId};
use xk_core::{Kernel, SessionRef};

/// Outcome of opening at one time: different sessions, holds on them, and holds below.
type Opened = (usize, u32, u32);

/// Two instances on bottoms that block, started on a shepherd.
fn blocking(fixture: &dyn CallFixture, seed: u64, pause: Duration) -> CallWorld<'_> {
    let world = CallWorld::build(fixture, seed);
    for node in &world.nodes {
        node.block(pause);
    }
    let kernel = world.cx.share();
    let started = at_once(&world, 1, move |_, _| kernel.start());
    assert!(started[0].is_ok(), "seed {seed}: it starts on layers that block: {started:?}");
    world
}

/// Results of several shepherds that do this at one time.
fn at_once<T: 'static>(
    world: &CallWorld<'_>,
    count: usize,
    what: impl Fn(&Kernel, usize) -> T + 'static,
) -> Vec<T> {
    world::at_once(count, what, |tasks| {
        assert!(world.run(LONG, tasks), "what waits below goes on");
    })
}

fn serve(world: &CallWorld<'_>) {
    let (node, ends) = (world.node(Side::B).clone(), world.fixture.enable(Side::B));
    let enabled =
        at_once(world, 1, move |cx, _| node.top.enable(cx, &node.protocol, ends.clone()).map(drop));
    assert_eq!(enabled, [Ok(())], "`open_enable` accepts valid participants");
}

/// Opens a procedure, on a shepherd.
fn opener(
    world: &CallWorld<'_>,
) -> impl Fn(&Kernel) -> Result<SessionRef, OpenError> + Clone + 'static {
    let (node, ends) = (world.node(Side::A).clone(), world.fixture.open(Side::A, PROCEDURE));
    move |cx| node.top.open(cx, &node.protocol, ends.clone())
}

/// Calls with octets that the number tells apart.
fn call(cx: &Kernel, session: &SessionRef, n: usize) -> CallEnd {
    let request = cx.pool().copy_from(crate::kernel::HEADROOM, &octets(n));
    session.call(cx, request.expect("a buffer for a test message"))
}

fn octets(n: usize) -> Vec<u8> {
    vec![n as u8; 10 + n]
}

/// Several shepherds that open the same procedure at one time get the sessions that they would get
/// in turn. These are used and released.
///
/// # Panics
/// If the law is broken.
pub fn opens_once(fixture: &dyn CallFixture) -> Verdict {
    for seed in 0..SEEDS {
        let [still, blocks] = [Duration::ZERO, PAUSE_MAX].map(|pause| {
            let world = blocking(fixture, seed, pause);
            serve(&world);
            let open = opener(&world);
            let opened = at_once(&world, AT_ONCE, move |cx, _| open(cx));
            opens(&world, opened.into_iter().map(|o| o.expect("an `open` among others")).collect())
        });
        assert_eq!(blocks, still, "seed {seed}: opened at one time, it is as opened in turn");
    }
    Verdict::Holds
}

fn opens(world: &CallWorld<'_>, sessions: Vec<SessionRef>) -> Opened {
    let mut different: Vec<SessionRef> = Vec::new();
    for session in &sessions {
        if !different.contains(session) {
            different.push(session.clone());
        }
    }
    world.cross();
    let opened = (
        different.len(),
        different.iter().map(|s| s.head().opens()).sum(),
        world.node(Side::A).holds(),
    );
    for (n, session) in different.iter().enumerate() {
        let session = session.clone();
        let mut ends = at_once(world, 1, move |cx, _| call(cx, &session, n));
        right(ends.remove(0), &octets(n));
    }
    let _ = at_once(world, 1, move |cx, _| sessions.iter().for_each(|session| session.close(cx)));
    world.cross();
    if world.node(Side::A).holds() > 0 {
        // What the layer sent last may still wait below.
        let late = world.fixture.lateness();
        let _ = at_once(world, 1, move |cx, _| sleep(cx, late));
        world.cross();
    }
    assert_eq!(world.node(Side::A).holds(), 0, "what is closed holds nothing below");
    opened
}

/// Two protocols that enable the same participants at one time succeed as often as in turn.
///
/// # Panics
/// If the law is broken.
pub fn enables_once(fixture: &dyn CallFixture) -> Verdict {
    for seed in 0..SEEDS {
        let [still, blocks] = [Duration::ZERO, PAUSE_MAX].map(|pause| {
            let world = blocking(fixture, seed, pause);
            let node = world.node(Side::B).clone();
            let tops = [node.top.clone(), world.another_top(Side::B, "other")];
            let ends = fixture.enable(Side::B);
            let enabled =
                at_once(&world, 2, move |cx, n| tops[n].enable(cx, &node.protocol, ends.clone()));
            let succeeded = enabled.iter().filter(|enabled| enabled.is_ok()).count();
            let protocol = world.node(Side::B).protocol.clone();
            let enables: Vec<Enable> = enabled.into_iter().flatten().collect();
            let _ = at_once(&world, 1, move |cx, _| {
                enables.iter().for_each(|enable| protocol.open_disable(cx, *enable));
            });
            // Taken back, it is to be had again.
            serve(&world);
            succeeded
        });
        assert_eq!(blocks, still, "seed {seed}: enabled at one time, it is as enabled in turn");
    }
    Verdict::Holds
}

/// Requests that come during `open_done` of their session, which may block, follow its first
/// request, in order.
///
/// # Panics
/// If the law is broken.
pub fn tells_of_sessions_first(fixture: &dyn CallFixture) -> Verdict {
    let count = if fixture.is_concurrent() { 2 * AT_ONCE } else { 1 };
    for seed in 0..SEEDS {
        let world = blocking(fixture, seed, Duration::ZERO);
        serve(&world);
        let top = &world.node(Side::B).top;
        top.on_open(Some(Rc::new(|cx, _| {
            sleep(cx, Duration::from_nanos(cx.random().below(4_000_000)));
        })));
        let served: Rc<RefCell<Vec<(SessionId, usize)>>> = Rc::default();
        let all = Rc::clone(&served);
        top.on_serve(Some(Rc::new(move |_, session, request| {
            all.borrow_mut().push((session.id(), request.len()));
            Ok(request)
        })));
        let open = opener(&world);
        let session = at_once(&world, 1, move |cx, _| open(cx)).remove(0).expect("an `open`");
        let ends = at_once(&world, count, move |cx, n| {
            // One after the other, and all before the first has its reply.
            sleep(cx, Duration::from_micros(1 + 100 * n as u64));
            (n, call(cx, &session, n))
        });
        for (n, end) in ends {
            right(end, &octets(n));
        }
        let mut served = served.take();
        assert_eq!(served.len(), count, "seed {seed}: each request is served once");
        // A layer below that carries one call at a time has a session for each.
        served.sort_by_key(|(session, _)| *session);
        let in_order = served.is_sorted();
        assert!(in_order, "seed {seed}: requests behind the first do not overtake it: {served:?}");
        world.finish();
    }
    Verdict::Holds
}

/// Several shepherds open, call and close at any time: every call gets its own reply, and in the
/// end there are no holds.
///
/// # Panics
/// If the law is broken.
pub fn comes_and_goes(fixture: &dyn CallFixture) -> Verdict {
    for seed in 0..SEEDS {
        let world = blocking(fixture, seed, PAUSE_MAX);
        serve(&world);
        let (open, alone) = (opener(&world), !fixture.is_concurrent());
        let ends = at_once(&world, AT_ONCE, move |cx, n| {
            let mut ends = Vec::new();
            for round in 0..AT_ONCE {
                let session = open(cx).expect("an `open` among others");
                let n = AT_ONCE * n + round;
                // One that carries one call at a time is for one caller.
                if !alone || session.head().opens() == 1 {
                    let replied = call(cx, &session, n).map(|r| r.octets().collect::<Vec<_>>());
                    ends.push((n, replied));
                }
                sleep(cx, Duration::from_nanos(cx.random().below(2_000_000)));
                session.close(cx);
            }
            ends
        });
        for (n, replied) in ends.into_iter().flatten() {
            match replied {
                Ok(octets) => assert_eq!(octets, self::octets(n), "seed {seed}: its own reply"),
                Err(error) => panic!("seed {seed}: a call among others fails: {error}"),
            }
        }
        let _ = at_once(&world, 1, |cx, _| sleep(cx, LONG / 2));
        assert_eq!(
            world.node(Side::A).holds(),
            0,
            "seed {seed}: what is closed holds nothing below"
        );
        world.finish();
    }
    Verdict::Holds
}
