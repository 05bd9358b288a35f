//! Errors of the network about requests: one that says that there is no server ends the call, any
//! other does not.

use crate::onc::auth::{short, sys};
use crate::onc::net::{Build, Faults, Net, classic};
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::object::CallCause;
use xk_core::shepherd::Semaphore;
use xk_kit::control::{NetworkError, NetworkErrorKind, Start};

/// Octets of UDP's header, which the network quotes at least (RFC 792).
const UDP_OCTETS: usize = 8;
/// Time until the network reports an error.
const LATER: Duration = Duration::from_millis(5);

/// Has the network say `kind` about the request sent last, of which it quotes so many octets.
fn report(net: &Net, kind: NetworkErrorKind, start_len: usize) {
    let session = net.ends[0].held().first().cloned();
    let wire = net.wire.borrow();
    let (_, octets) = wire.iter().rfind(|(from, _)| *from == 0).expect("a request");
    let start = Start::new(&octets[..start_len]);
    let udp = net.cx.find_protocol("udp-client").expect("the layer");
    let error = NetworkError { session, start, ..NetworkError::new(kind) };
    let _ = udp.ask(&net.cx, error);
}

/// Nothing arrives, and a little later the network says so.
fn reported(net: &Rc<Net>, kind: NetworkErrorKind, start_len: usize) {
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    net.then(move |net| {
        let never = Semaphore::new(0);
        let _ = net.cx.wait(&never, Some(LATER));
        report(net, kind, start_len);
    });
}

#[test]
fn a_port_that_is_unreachable_ends_the_call_at_once_in_every_stack() {
    let stacks: [&Build; 3] = [&classic, &sys, &short];
    for (seed, build) in (1..).zip(stacks) {
        for start_len in [16, UDP_OCTETS] {
            let net = Net::new(seed, build);
            let session = net.open(1);
            reported(&net, NetworkErrorKind::PortUnreachable, start_len);
            let begun = net.cx.now();
            let error = net.call(&session, b"x").expect_err("nobody is there");
            assert_eq!(error.cause, CallCause::NobodyThere);
            assert_eq!(
                error.describe(&net.cx),
                "reqrep-client: nobody takes calls there: the port is unreachable"
            );
            assert_eq!(net.cx.now().since(begun), LATER);
            assert_eq!(net.wire.borrow().len(), 1, "sent once");
            // When a server has come, the next call finds it; that of the old error the layer
            // below says again changes nothing.
            net.faults.set(Faults::default());
            assert_eq!(net.call(&session, b"y"), Ok(b"y".to_vec()));
            assert_eq!(net.call(&session, b"z"), Ok(b"z".to_vec()));
            drop(session);
            net.finish();
        }
    }
}

/// RFC 1122, sections 4.1.3.3 and 4.2.3.9.
#[test]
fn a_way_that_is_lost_for_a_while_does_not_end_the_call() {
    for kind in [
        NetworkErrorKind::Prohibited,
        NetworkErrorKind::HostUnreachable,
        NetworkErrorKind::TimeExceeded,
    ] {
        let net = Net::new(1, &classic);
        let session = net.open(1);
        reported(&net, kind, 16);
        net.then(|net| {
            let never = Semaphore::new(0);
            let _ = net.cx.wait(&never, Some(2 * LATER));
            net.faults.set(Faults::default());
        });
        assert_eq!(net.call(&session, b"x"), Ok(b"x".to_vec()), "{kind:?}");
        assert_eq!(net.server.executed.get(), 1);
        drop(session);
        net.finish();
    }
}

/// An error about one request ends only that one.
#[test]
fn other_calls_to_the_peer_go_on() {
    let net = Net::new(1, &classic);
    let session = net.open(1);
    let ends = Rc::new(RefCell::new(Vec::new()));
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    for name in ["first", "second"] {
        let (ends, session) = (Rc::clone(&ends), session.clone());
        net.then(move |net| {
            let reply = session.call(&net.cx, net.cx.message(name.as_bytes()));
            let end = reply.map(drop).map_err(|error| error.cause);
            ends.borrow_mut().push((name, end));
        });
    }
    net.then(|net| {
        let never = Semaphore::new(0);
        let _ = net.cx.wait(&never, Some(LATER));
        report(net, NetworkErrorKind::PortUnreachable, 16);
        net.faults.set(Faults::default());
    });
    net.run();
    let expected = [("second", Err(CallCause::NobodyThere)), ("first", Ok(()))];
    assert_eq!(*ends.borrow(), expected);
    drop(session);
    net.finish();
}
