//! Calls between two stacks: results, refusals, time, losses.

use crate::onc::net::{Faults, Net, PROGRAM, classic, words};
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::Time;
use xk_core::object::{CallCause, Rejection};
use xk_kit::rpc::call::{
    BAD_ARGUMENTS, CallOptions, CancelCall, NO_PROCEDURE, NO_PROGRAM, NO_VERSION, SYSTEM_ERROR,
};

fn rejected(result: Result<Vec<u8>, xk_core::object::CallError>) -> Rejection {
    match result.expect_err("a refusal").cause {
        CallCause::Rejected(rejection) => rejection,
        other => panic!("no refusal: {other}"),
    }
}

#[test]
fn a_call_brings_its_results() {
    let net = Net::new(1, &classic);
    for size in [0, 1, 4, 1000, 8800] {
        let arguments: Vec<u8> = (0..size).map(|n| n as u8).collect();
        assert_eq!(net.call(&net.open(1), &arguments), Ok(arguments));
    }
    assert_eq!(net.server.executed.get(), 5);
    // The null procedure, which the server never sees.
    assert_eq!(net.call(&net.open(0), b"any"), Ok(Vec::new()));
    assert_eq!(net.server.executed.get(), 5);
    net.finish();
}

#[test]
fn refusals_come_with_their_reasons() {
    let net = Net::new(2, &classic);
    let of = |reason| Rejection::new(reason);
    assert_eq!(rejected(net.call(&net.open(7), b"")), of(&NO_PROCEDURE));
    assert_eq!(rejected(net.call(&net.open(2), b"no")), of(&BAD_ARGUMENTS));
    net.server.act.replace(Some(Rc::new(|_, _, _| Some(&xk_core::reason::NO_BUFFERS))));
    assert_eq!(rejected(net.call(&net.open(1), b"")), of(&SYSTEM_ERROR));
    let program = net.open_as("*, procedure1@version1@program7@port2049@10.0.0.2");
    assert_eq!(rejected(net.call(&program, b"")), of(&NO_PROGRAM));
    let text = format!("*, procedure0@version9@program{PROGRAM}@port2049@10.0.0.2");
    let version = rejected(net.call(&net.open_as(&text), b""));
    assert_eq!((version.reason, version.versions), (&NO_VERSION, Some((1, 1))));
    assert_eq!(net.drops("sunprog-server", &NO_PROGRAM), 1);
    assert_eq!(net.drops("sunprog-server", &NO_VERSION), 1);
    net.finish();
}

#[test]
fn a_program_withdrawn_is_gone() {
    let net = Net::new(3, &classic);
    let session = net.open(1);
    assert!(net.call(&session, b"x").is_ok());
    let enable = net.server.enable.take().unwrap();
    net.tops[1].open_disable(&net.cx, enable);
    // What comes to the port finds no taker any more, but the peer's session lives on.
    assert_eq!(rejected(net.call(&session, b"x")), Rejection::new(&NO_PROGRAM));
    net.finish();
}

#[test]
fn many_calls_at_once_each_get_their_own_reply() {
    let net = Net::new(4, &classic);
    net.faults.set(Faults { late: 500, ..Faults::default() });
    let results = Rc::new(RefCell::new(Vec::new()));
    let sessions = [net.open(1), net.open(3)];
    for n in 0..100u32 {
        let (results, session) = (Rc::clone(&results), sessions[n as usize % 2].clone());
        net.then(move |net| {
            let reply = session.call(&net.cx, net.cx.message(&words(&[n])));
            let octets = reply.map(|reply| xk_testkit::kernel::octets(&reply));
            results.borrow_mut().push((n, octets));
        });
    }
    net.run();
    assert_eq!(results.borrow().len(), 100);
    for (n, octets) in results.borrow().iter() {
        assert_eq!(*octets, Ok(words(&[*n])));
    }
    drop(sessions);
    net.finish();
}

#[test]
fn the_same_octets_come_again_after_1_2_4_8_and_8_seconds() {
    let net = Net::new(5, &classic);
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    let begun = net.cx.now();
    let error = net.call(&net.open(1), b"x").expect_err("nobody hears it");
    assert_eq!(error.cause, CallCause::TimedOut { tries: 6 });
    assert_eq!(error.describe(&net.cx), "reqrep-client: timed out after 6 tries");
    assert_eq!(net.cx.now().since(begun), Duration::from_secs(30));
    let wire = net.wire.take();
    assert_eq!(wire.len(), 6);
    assert!(wire.iter().all(|sent| *sent == wire[0]));
    // The next call has another number.
    let _ = net.call(&net.open(1), b"x");
    assert_ne!(net.wire.borrow()[0], wire[0]);
    net.finish();
}

#[test]
fn a_deadline_ends_the_call_early_and_cancelling_does() {
    let net = Net::new(6, &classic);
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    let session = net.open(1);
    let result = Rc::new(RefCell::new(Vec::new()));
    for (deadline_ms, tag) in [(2500, 0), (u64::MAX, 7), (0, 0)] {
        let (result, session) = (Rc::clone(&result), session.clone());
        net.then(move |net| {
            let mut request = net.cx.message(b"x");
            let deadline = match deadline_ms {
                u64::MAX => Time::MAX,
                ms => net.cx.now().after(Duration::from_millis(ms)),
            };
            request.set_attribute(CallOptions { deadline, tag }).unwrap();
            let error = session.call(&net.cx, request).map(drop).unwrap_err();
            result.borrow_mut().push((net.cx.now(), error.cause));
        });
    }
    let other = session.clone();
    net.then(move |net| {
        assert!(other.ask(&net.cx, CancelCall { tag: 8 }).is_none());
        assert!(other.ask(&net.cx, CancelCall { tag: 0 }).is_none());
        assert!(other.ask(&net.cx, CancelCall { tag: 7 }).is_some());
    });
    net.run();
    assert_eq!(
        *result.borrow(),
        [
            (Time::ZERO, CallCause::TimedOut { tries: 0 }),
            (Time::ZERO, CallCause::Cancelled),
            (Time::ZERO.after(Duration::from_millis(2500)), CallCause::TimedOut { tries: 2 }),
        ]
    );
    drop(session);
    net.finish();
}

#[test]
fn a_session_closed_meanwhile_ends_its_calls() {
    let net = Net::new(7, &classic);
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    let session = net.open(1);
    let other = session.clone();
    net.then(move |net| {
        let error = other.call(&net.cx, net.cx.message(b"x")).map(drop);
        assert_eq!(error.unwrap_err().cause, CallCause::Closed);
    });
    net.then(move |net| session.close(&net.cx));
    net.run();
    net.finish();
}
