//! Calls over a test bottom, over FRAGMENT and over a link: what goes over the wire, and what
//! survives its loss.

use crate::world::{Below, CLIENT, Way, World, is_too_big, losing, pattern};
use core::time::Duration;
use std::cell::Cell;
use std::rc::Rc;
use xk_core::object::{CallCause, Rejection};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Part, Participants, Time};
use xk_kit::rpc::call::{BAD_ARGUMENTS, CallOptions, CancelCall, NO_PROCEDURE};

/// Serves after so long; waits on the client's kernel, on whose shepherd it runs.
fn slow(world: &World, time: Duration) {
    let cx = world.client().cx.share();
    world.server().top.on_serve(Some(Rc::new(move |_, _, request| {
        let never = Semaphore::new(0);
        assert!(cx.wait(&never, Some(time)).is_err());
        Ok(request)
    })));
}

#[test]
fn a_null_call_is_two_packets() {
    for below in [Below::Hosts, Below::Fragment, Below::Link] {
        let world = World::new(1, below);
        let session = world.open();
        assert_eq!(world.call(&session, b"").expect("a reply"), b"");
        // The first contact costs a challenge.
        assert_eq!((world.count(Way::ToServer), world.count(Way::ToClient)), (2, 2));
        assert_eq!(world.server().figures().challenges, 1);
        for n in 0..10 {
            assert_eq!(world.call(&session, &pattern(n, 1)).expect("a reply"), pattern(n, 1));
        }
        assert_eq!((world.count(Way::ToServer), world.count(Way::ToClient)), (12, 12));
        let other = world.open();
        assert_eq!(world.call(&other, b"again").expect("a reply"), b"again");
        assert_eq!(world.count(Way::ToServer), 13, "another channel is known at once");
        assert_eq!(world.server().top.served(), 12);
        drop((session, other));
        world.finish();
    }
}

#[test]
fn each_channel_follows_its_peer_to_another_session_below() {
    let world = World::new(1, Below::Fragment);
    let sessions = [(); 3].map(|()| world.open());
    for n in 0..3 {
        for session in &sessions {
            assert_eq!(world.call(session, b"call").expect("a reply"), b"call");
        }
        // Until the last replies need no acknowledgement.
        world.pass(Duration::from_secs(60));
        // The server calls, too, and stops: with that goes what replies went through.
        let server = world.server();
        let to = Participants::pair(Part::Any, Part::host(CLIENT));
        let own = server.top.open(&server.cx, &server.channel, to).expect("a channel");
        own.close(&server.cx);
        assert_eq!(server.top.served(), 3 * (n + 1));
    }
    drop(sessions);
    world.finish();
}

#[test]
fn the_header_is_the_sheets() {
    let world = World::new(1, Below::Fragment);
    let session = world.open();
    let seen: Rc<Cell<Option<Vec<u8>>>> = Rc::default();
    let note = Rc::clone(&seen);
    world.set_network(Rc::new(move |way, _, octets| {
        if way == Way::ToServer {
            note.set(Some(octets.to_vec()));
        }
        vec![Duration::ZERO]
    }));
    let number =
        |octets: &[u8]| u32::from_be_bytes(*octets[32..].first_chunk().expect("four octets"));
    world.call(&session, b"first").expect("a reply");
    // The first of all may be any: a late reply to the boot before shall not be taken for one to
    // this.
    let first = number(&seen.take().expect("a request"));
    world.call(&session, &[1, 0, 0, 3, 0, 0]).expect("a reply");
    let octets = seen.take().expect("a request");
    let boot = world.client().cx.boot_id().to_be_bytes();
    assert_eq!(octets.len(), 24 + 18 + 6);
    assert_eq!(octets[..14], [1, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 102]);
    assert_eq!(octets[18..24], [0, 1, 0, 1, 0, 24]);
    // Flags, channel, protocol, sequence; then the ticket, and the boot id.
    assert_eq!(octets[24..32], [1, 0x10, 0, 1, 0, 0, 0, 0x65]);
    assert_eq!(number(&octets), first.wrapping_add(1));
    assert_eq!(octets[38..42], boot);
    assert_eq!(octets[42..], [1, 0, 0, 3, 0, 0]);
    drop(session);
    world.finish();
}

#[test]
fn each_packet_of_a_large_call_may_be_lost() {
    let size = 16 * 1456 - 18;
    for lost in 0..16 {
        let world = World::new(lost as u64, Below::Fragment);
        let session = world.open();
        world.call(&session, b"hello").expect("a reply");
        let server = world.server();
        server.top.on_serve(Some(Rc::new(|cx: &Kernel, _, request| {
            let _ = request;
            Ok(cx.pool().empty(128).expect("a buffer"))
        })));
        world.set_network(losing(Way::ToServer, vec![lost]));
        assert_eq!(world.call(&session, &pattern(size, 3)).expect("a reply"), b"");
        assert_eq!(server.top.served(), 2, "executed once");
        assert_eq!(world.count(Way::ToServer), 17);
        assert_eq!(world.asked(), (1, 1), "one question, one answer");
        let kept = world.client().cx.live();
        assert!(kept.0 < 4, "the copy was released: {kept:?}");
        drop(session);
        world.finish();
    }
}

#[test]
fn large_replies_come_whole_though_each_packet_may_be_lost() {
    let size = 16 * 1456 - 18;
    for lost in 0..16 {
        let world = World::new(lost as u64, Below::Fragment);
        let session = world.open();
        world.call(&session, b"hello").expect("a reply");
        let server = world.server();
        let reply = pattern(size, 9);
        let octets = reply.clone();
        server.top.on_serve(Some(Rc::new(move |cx: &Kernel, _, _| {
            Ok(cx.pool().copy_from(128, &octets).expect("a buffer"))
        })));
        world.set_network(losing(Way::ToClient, vec![lost]));
        assert_eq!(world.call(&session, b"").expect("a reply"), reply);
        assert_eq!(server.top.served(), 2, "executed once");
        drop(session);
        world.finish();
    }
}

#[test]
fn requests_and_replies_that_are_lost_come_again() {
    for below in [Below::Hosts, Below::Fragment, Below::Link] {
        for (way, lost) in [
            (Way::ToServer, vec![0]),
            (Way::ToServer, vec![0, 1, 2]),
            (Way::ToClient, vec![0]),
            (Way::ToClient, vec![0, 1, 2, 3, 4]),
        ] {
            let world = World::new(3, below);
            let session = world.open();
            world.call(&session, b"first").expect("a reply");
            let start = world.client().cx.now();
            world.set_network(losing(way, lost.clone()));
            assert_eq!(world.call(&session, b"second").expect("a reply"), b"second");
            let took = world.client().cx.now().as_ns() - start.as_ns();
            let waits = (1 << lost.len()) - 1;
            assert_eq!(took, waits * 100_000_000, "{below:?} {way:?} {lost:?}");
            assert_eq!(world.server().top.served(), 2, "executed once");
            drop(session);
            world.finish();
        }
    }
}

#[test]
fn a_large_request_that_is_all_lost_is_asked_for() {
    let world = World::new(3, Below::Fragment);
    let session = world.open();
    world.call(&session, b"first").expect("a reply");
    world.set_network(losing(Way::ToServer, (0..12).collect()));
    let start = world.client().cx.now();
    let request = pattern(12 * 1456 - 18, 1);
    assert_eq!(world.call(&session, &request).expect("a reply"), request);
    let took = world.client().cx.now().as_ns() - start.as_ns();
    assert_eq!(took, 620_000_000, "the step function: 500 ms and 10 for each packet");
    let figures = world.client().figures();
    assert_eq!(
        (figures.probes, figures.resends),
        (1, 2),
        "the first resend was the first contact's"
    );
    assert_eq!(world.server().top.served(), 2);
    drop(session);
    world.finish();
}

#[test]
fn a_server_that_is_silent_times_out() {
    let world = World::new(4, Below::Hosts);
    let session = world.open();
    world.set_network(Rc::new(|_, _, _| Vec::new()));
    let start = world.client().cx.now();
    let error = world.call(&session, b"anybody?").expect_err("nobody");
    assert_eq!(error.cause, CallCause::TimedOut { tries: 8 });
    assert_eq!(error.layer, Some(world.client().channel.id()));
    let took = world.client().cx.now().as_ns() - start.as_ns();
    assert_eq!(took, 16_300_000_000);
    assert_eq!(world.count(Way::ToServer), 8);
    drop(session);
    world.finish();
}

#[test]
fn a_server_that_works_is_waited_for() {
    let world = World::new(5, Below::Hosts);
    let session = world.open();
    world.call(&session, b"first").expect("a reply");
    slow(&world, Duration::from_secs(120));
    assert_eq!(world.call(&session, b"slowly").expect("a reply"), b"slowly");
    assert_eq!(world.server().figures().executed, 2);
    // One resend, then a question every five seconds.
    let figures = world.client().figures();
    assert_eq!((figures.resends, figures.probes), (2, 12), "{figures:?}");
    drop(session);
    world.finish();
}

#[test]
fn a_server_that_dies_while_it_works_times_out() {
    let world = World::new(6, Below::Hosts);
    let session = world.open();
    world.call(&session, b"first").expect("a reply");
    slow(&world, Duration::from_secs(400));
    world.set_network(Rc::new(|way, n, _| {
        if way == Way::ToClient && n > 3 { Vec::new() } else { vec![Duration::ZERO] }
    }));
    let error = world.call(&session, b"slowly").expect_err("no reply");
    assert!(matches!(error.cause, CallCause::TimedOut { .. }), "{error}");
    world.pass(Duration::from_secs(500));
    drop(session);
    world.finish();
}

#[test]
fn a_server_that_reboots_fails_the_calls_under_way() {
    for below in [Below::Hosts, Below::Fragment] {
        for size in [10, 10_000] {
            if below == Below::Hosts && size > 1000 {
                continue;
            }
            let world = World::new(7, below);
            let session = world.open();
            world.call(&session, b"first").expect("a reply");
            // The reply of the second call is lost with the server.
            let rebooted = Rc::new(Cell::new(false));
            let (again, done) = (world.clone(), Rc::clone(&rebooted));
            world.set_network(Rc::new(move |way, _, _| {
                if way == Way::ToServer || done.get() {
                    return vec![Duration::ZERO];
                }
                done.set(true);
                again.reboot_server();
                Vec::new()
            }));
            let first = world.server();
            let error = world.call(&session, &pattern(size, 1)).expect_err("it is no more");
            assert_eq!(error.cause, CallCause::Rebooted, "{below:?}");
            assert!(rebooted.get());
            assert_eq!(first.top.served(), 2);
            assert_eq!(world.server().top.served(), 0, "not executed again");
            assert_eq!(world.call(&session, b"next").expect("a reply"), b"next");
            assert_eq!(world.server().top.served(), 1);
            world.set_network(crate::world::perfect());
            drop(session);
            world.finish();
        }
    }
}

#[test]
fn a_refusal_travels_back_with_its_reason() {
    for below in [Below::Hosts, Below::Fragment] {
        let world = World::new(8, below);
        let session = world.open();
        for why in [&NO_PROCEDURE, &BAD_ARGUMENTS] {
            world.server().top.on_serve(Some(Rc::new(move |_, _, _| Err(why))));
            let error = world.call(&session, b"please").expect_err("refused");
            assert_eq!(error.cause, CallCause::Rejected(Rejection::new(why)));
        }
        // Lost, it comes again, and nothing is executed twice.
        world.set_network(losing(Way::ToClient, vec![0, 1]));
        let error = world.call(&session, b"please").expect_err("refused");
        assert_eq!(error.cause, CallCause::Rejected(Rejection::new(&BAD_ARGUMENTS)));
        assert_eq!(world.server().top.served(), 3);
        drop(session);
        world.finish();
    }
}

#[test]
fn a_reply_that_fits_nowhere_is_a_refusal() {
    let world = World::new(9, Below::Fragment);
    let session = world.open();
    world.server().top.on_serve(Some(Rc::new(|cx: &Kernel, _, _| {
        Ok(cx.pool().copy_from(128, &pattern(40_000, 1)).expect("a buffer"))
    })));
    let error = world.call(&session, b"all of it").expect_err("too much");
    assert!(matches!(error.cause, CallCause::Rejected(_)), "{error}");
    let error = world.call(&session, &pattern(40_000, 1)).expect_err("too much");
    assert!(is_too_big(&error), "{error}");
    drop(session);
    world.finish();
}

/// A call with options, and whatever a test does beside it.
fn call_with(
    world: &World,
    calls: Vec<(xk_core::SessionRef, CallOptions)>,
) -> Vec<Result<(), CallCause>> {
    let calls = calls.into_iter().map(|(session, options)| {
        let mut request = world.message(b"options");
        request.set_attribute(options).expect("room for an attribute");
        (session, request)
    });
    let ends = world.call_all(calls.collect());
    ends.into_iter().map(|end| end.map(drop).map_err(|error| error.cause)).collect()
}

#[test]
fn deadlines_and_cancelling_end_the_wait() {
    let world = World::new(10, Below::Hosts);
    let session = world.open();
    world.call(&session, b"first").expect("a reply");
    slow(&world, Duration::from_secs(2));
    let now = world.client().cx.now();
    let options = |ms: u64, tag| CallOptions {
        deadline: if ms == 0 { Time::MAX } else { now.after(Duration::from_millis(ms)) },
        tag,
    };
    // The first is given up, the second is still in its queue then, the third is cancelled in the
    // queue, the fourth executed.
    let (late, cancelled) = (session.clone(), world.client().cx.share());
    world
        .client()
        .cx
        .schedule_protocol(&world.client().channel, Duration::from_secs(3600), 9)
        .expect("a timer");
    world.set_network(Rc::new(move |way, n, _| {
        if way == Way::ToServer && n == 1 {
            // The retransmission after 100 ms.
            assert!(late.ask(&cancelled, CancelCall { tag: 7 }).is_some());
            assert!(late.ask(&cancelled, CancelCall { tag: 8 }).is_none());
        }
        vec![Duration::ZERO]
    }));
    let ends = call_with(
        &world,
        vec![
            (session.clone(), options(250, 5)),
            (session.clone(), options(200, 6)),
            (session.clone(), options(0, 7)),
            (session.clone(), options(0, 9)),
        ],
    );
    assert_eq!(ends[0], Err(CallCause::TimedOut { tries: 2 }));
    assert_eq!(ends[1], Err(CallCause::TimedOut { tries: 0 }));
    assert_eq!(ends[2], Err(CallCause::Cancelled));
    assert_eq!(ends[3], Ok(()));
    let figures = world.server().figures();
    assert_eq!((figures.executed, figures.abandoned), (3, 1), "{figures:?}");
    world.set_network(crate::world::perfect());
    // One that is under way.
    let (under_way, kernel) = (session.clone(), world.client().cx.share());
    world.set_network(Rc::new(move |way, n, _| {
        if way == Way::ToServer && n == 1 {
            assert!(under_way.ask(&kernel, CancelCall { tag: 11 }).is_some());
        }
        vec![Duration::ZERO]
    }));
    let ends = call_with(&world, vec![(session.clone(), options(0, 11))]);
    assert_eq!(ends, [Err(CallCause::Cancelled)]);
    world.set_network(crate::world::perfect());
    world.pass(Duration::from_secs(5));
    drop(session);
    world.finish();
}

#[test]
fn a_session_that_is_closed_fails_its_call() {
    let world = World::new(11, Below::Hosts);
    let session = world.open();
    world.call(&session, b"first").expect("a reply");
    slow(&world, Duration::from_secs(2));
    let (closing, kernel) = (session.clone(), world.client().cx.share());
    world.set_network(Rc::new(move |way, n, _| {
        if way == Way::ToServer && n == 1 {
            closing.close(&kernel);
        }
        vec![Duration::ZERO]
    }));
    let error = world.call(&session, b"second").expect_err("closed");
    assert_eq!(error.cause, CallCause::Closed);
    world.set_network(crate::world::perfect());
    // The next one takes the channel over, and its numbers.
    let next = world.open();
    assert_eq!(world.call(&next, b"third").expect("a reply"), b"third");
    drop((session, next));
    world.finish();
}
