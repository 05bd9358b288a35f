//! Layers of authentication in the stack: none, whole credentials, shorthands.

use crate::net::{Net, PROGRAM, host, words};
use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{CallCause, Rejection};
use xk_core::{Kernel, ProtocolRef};
use xk_kit::call::{BAD_CREDENTIALS, Caller};
use xk_kit::onc::{REJECTED_CREDENTIALS, TOO_WEAK};
use xk_testkit::kernel::Lower;

/// The lower part of the stack.
fn select(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let udp = xk_udp::add(cx, &format!("udp-{name}"), below, 1024, true);
    let settings = xk_reqrep::Settings::default();
    let reqrep = xk_reqrep::add(cx, &format!("reqrep-{name}"), udp, settings);
    let settings = xk_sunselect::Settings::default();
    xk_sunselect::add(cx, &format!("sunselect-{name}"), reqrep, settings)
}

fn prog(cx: &Kernel, name: &str, lowers: &[ProtocolRef]) -> ProtocolRef {
    let settings = xk_sunprog::Settings::default();
    xk_sunprog::add(cx, &format!("sunprog-{name}"), lowers, settings)
}

fn number(cx: &Kernel, upper: &ProtocolRef, select: &ProtocolRef, flavor: u32) {
    cx.numbers_mut()
        .override_pair(upper.id(), select.id(), flavor);
}

fn sys_settings() -> xk_authsys::Settings {
    xk_authsys::Settings {
        machine: "atmclient2".into(),
        user: 1000,
        group: 100,
        groups: vec![100, 27],
        accept: Some("0 1000-1999".parse().unwrap()),
        ..xk_authsys::Settings::default()
    }
}

/// Whole credentials, and servers that take empty ones besides.
fn sys(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let select = select(cx, name, below);
    let sys = xk_authsys::add(
        cx,
        &format!("authsys-{name}"),
        select.clone(),
        sys_settings(),
    );
    number(cx, &sys, &select, 1);
    let none = xk_authnone::add(cx, &format!("authnone-{name}"), select.clone(), 64);
    number(cx, &none, &select, 0);
    prog(cx, name, &[sys, none])
}

/// The same with shorthands.
fn short(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let select = select(cx, name, below);
    let sys = xk_authsys::add(
        cx,
        &format!("authsys-{name}"),
        select.clone(),
        sys_settings(),
    );
    number(cx, &sys, &select, 1);
    let settings = xk_authshort::Settings::default();
    let lowers = (select.clone(), sys);
    let short = xk_authshort::add(cx, &format!("authshort-{name}"), lowers, settings);
    number(cx, &short, &select, 2);
    prog(cx, name, &[short])
}

/// Notes who calls.
fn callers(net: &Net) -> Rc<RefCell<Vec<Option<Caller>>>> {
    let callers = Rc::new(RefCell::new(Vec::new()));
    let to = Rc::clone(&callers);
    net.server.act.replace(Some(Rc::new(move |_, _, request| {
        to.borrow_mut().push(request.attribute::<Caller>());
        None
    })));
    callers
}

fn caller(flavor: u32, user: u32, group: u32) -> Option<Caller> {
    Some(Caller {
        flavor,
        user,
        group,
    })
}

/// NFS version 3 GETATTR in Wireshark's test capture nfs.pcap, and its reply.
fn real() -> (Vec<u8>, Vec<u8>) {
    let call = [
        0x7b55_8aeb,
        0,
        2,
        0x0001_86a3,
        3,
        1,
        1,
        0x4c,
        0x36db_9197,
        0x0a,
        0x6174_6d63,
        0x6c69_656e,
        0x7432_0000,
        0,
        1,
        0x0b,
        1,
        0,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
        0x0c,
        0,
        0,
        0x20,
        0x2192_1300,
        0xa792_5907,
        0x2000_0000,
        0x0002_4a77,
        0xdbb5_1901,
        0x1900_0000,
        0x01a4_0600,
        0x971b_0500,
    ];
    let reply = [
        0x7b55_8aeb,
        1,
        0,
        0,
        0,
        0,
        0,
        1,
        0x1ed,
        1,
        0,
        0x1e,
        0,
        0x0004_0760,
        0,
        0x0004_2000,
        0,
        0,
        0,
        0x19,
        0,
        0x0002_4a77,
        0x36db_94da,
        0x0c84_5c68,
        0x321e_28e9,
        0,
        0x3223_d410,
        0x0a21_fe80,
    ];
    (words(&call), words(&reply))
}

/// A network with a server of NFS version 3, whose procedure 1 gives its arguments back.
fn nfs(build: &crate::net::Build) -> Rc<Net> {
    let below = [1, 2].map(|n| Lower::host(host(n), 17));
    Net::with(1, build, below, "version3@program100003@port2049")
}

#[test]
fn a_real_call_is_served() {
    let net = nfs(&sys);
    let callers = callers(&net);
    let (call, reply) = real();
    let results: Vec<u8> = reply[24..].to_vec();
    net.server.results.replace(Some(results));
    assert_eq!(net.datagram(&call), Some(reply));
    assert_eq!(*callers.borrow(), [caller(1, 0, 1)]);
    // Every truncation within header, credential and verifier goes unanswered.
    for len in 0..116 {
        let answer = net.datagram(&call[..len]);
        assert_eq!(answer, None, "cut to {len}");
    }
    assert_eq!(net.server.executed.get(), 1);
    net.finish();
}

#[test]
fn a_client_sends_the_standard_s_credential() {
    let net = Net::new(2, &sys);
    let callers = callers(&net);
    assert_eq!(net.call(&net.open(1), b"abcd"), Ok(b"abcd".to_vec()));
    assert_eq!(*callers.borrow(), [caller(1, 1000, 100)]);
    let wire = net.wire.borrow();
    let sent = &wire[0].1[8..];
    let mut expected = words(&[0, 2, PROGRAM, 1, 1, 1, 0x28]);
    expected.extend(&sent[32..36]); // The stamp is any.
    expected.extend(words(&[
        0x0a,
        0x6174_6d63,
        0x6c69_656e,
        0x7432_0000,
        1000,
        100,
        2,
        100,
        27,
        0,
        0,
    ]));
    expected.extend(b"abcd");
    assert_eq!(sent[4..], expected);
    drop(wire);
    net.finish();
}

#[test]
fn users_who_are_not_accepted_are_told_so() {
    let net = Net::new(3, &sys);
    let call = |procedure: u32, user: u32| {
        words(&[
            7, 0, 2, PROGRAM, 1, procedure, 1, 20, 1, 0, user, 0, 0, 0, 0,
        ])
    };
    assert_eq!(net.datagram(&call(1, 5)), Some(words(&[7, 1, 1, 1, 5])));
    assert_eq!(net.drops("authsys-server", &TOO_WEAK), 1);
    assert_eq!(net.server.executed.get(), 0);
    // The null procedure is there for everybody.
    assert_eq!(net.datagram(&call(0, 5)), Some(words(&[7, 1, 0, 0, 0, 0])));
    assert_eq!(
        net.datagram(&call(1, 1234)),
        Some(words(&[7, 1, 0, 0, 0, 0]))
    );
    // Seventeen groups; a name too long; a body too long; a verifier too long.
    for (body, stat) in [
        (&[1, 20, 1, 0, 0, 0, 17, 0, 0][..], 1),
        (&[1, 20, 1, 256, 0, 0, 0, 0, 0], 1),
        (&[1, 401, 1, 0, 0, 0, 0, 0, 0], 1),
        (&[1, 20, 1, 0, 0, 0, 0, 0, 401], 3),
    ] {
        let mut all = vec![7, 0, 2, PROGRAM, 1, 1];
        all.extend(body);
        let answer = net.datagram(&words(&all));
        assert_eq!(answer, Some(words(&[7, 1, 1, 1, stat])), "{body:?}");
    }
    assert_eq!(net.drops("authsys-server", &BAD_CREDENTIALS), 3);
    // Empty credentials are taken by the layer for them; others by nobody.
    let empty = words(&[7, 0, 2, PROGRAM, 1, 1, 0, 0, 0, 0]);
    assert_eq!(net.datagram(&empty), Some(words(&[7, 1, 0, 0, 0, 0])));
    let other = words(&[7, 0, 2, PROGRAM, 1, 1, 6, 0, 0, 0]);
    assert_eq!(net.datagram(&other), Some(words(&[7, 1, 1, 1, 5])));
    net.finish();
}

#[test]
fn a_shorthand_takes_the_place_of_the_credential_until_it_is_too_old() {
    let net = Net::new(4, &short);
    let callers = callers(&net);
    let session = net.open(1);
    for _ in 0..3 {
        assert_eq!(net.call(&session, b"abcd"), Ok(b"abcd".to_vec()));
    }
    let whole = caller(1, 1000, 100);
    let by_shorthand = caller(2, 1000, 100);
    assert_eq!(*callers.borrow(), [whole, by_shorthand, by_shorthand]);
    let flavor = |at: usize| net.wire.borrow()[at].1[8 + 27];
    assert_eq!([0, 2, 4].map(flavor), [1, 2, 2]);
    // The reply to the whole credential brought it, in its verifier.
    assert_eq!(net.wire.borrow()[1].1[8 + 12..8 + 20], words(&[2, 24]));
    // Too old: the server rejects it, the client says again who he is, and the caller notices nothing.
    net.cx.advance(Duration::from_secs(3600));
    assert_eq!(net.call(&session, b"abcd"), Ok(b"abcd".to_vec()));
    assert_eq!(net.drops("authshort-server", &REJECTED_CREDENTIALS), 1);
    assert_eq!([6, 8].map(flavor), [2, 1]);
    assert_eq!(net.call(&session, b"abcd"), Ok(b"abcd".to_vec()));
    assert_eq!(callers.borrow()[3..], [whole, by_shorthand]);
    drop(session);
    net.finish();
}

#[test]
fn nobody_else_can_use_a_shorthand() {
    let net = Net::new(5, &short);
    assert!(net.call(&net.open(1), b"").is_ok());
    let reply = net.wire.borrow()[1].1[8..].to_vec();
    let shorthand = &reply[20..44];
    let call = |octets: &[u8]| {
        let mut call = words(&[7, 0, 2, PROGRAM, 1, 1, 2, octets.len() as u32]);
        call.extend(octets);
        call.extend(words(&[0, 0]));
        call
    };
    assert_eq!(
        net.datagram(&call(shorthand)),
        Some(words(&[7, 1, 0, 0, 0, 0]))
    );
    let rejected = Some(words(&[7, 1, 1, 1, 2]));
    let mut other = shorthand.to_vec();
    other[3] ^= 1;
    assert_eq!(net.datagram(&call(&other)), rejected);
    assert_eq!(net.datagram(&call(&[])), rejected);
    assert_eq!(net.datagram(&call(&other[..4])), rejected);
    net.finish();
}

#[test]
fn a_client_without_credentials_is_told_that_they_are_wanted() {
    // The server's graph has whole credentials and shorthands only.
    let build = |cx: &Kernel, name: &str, below: ProtocolRef| match name {
        "server" => short(cx, name, below),
        _ => crate::net::classic(cx, name, below),
    };
    let net = Net::new(6, &build);
    let error = net.call(&net.open(1), b"").expect_err("too weak");
    assert_eq!(error.cause, CallCause::Rejected(Rejection::new(&TOO_WEAK)));
    assert_eq!(
        error.describe(&net.cx),
        "sunselect-client: the peer refused the call: credentials too weak"
    );
    net.finish();
}
