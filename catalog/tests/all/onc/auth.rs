//! Layers of authentication in the stack: none, whole credentials, shorthands.

use crate::onc::net::{Faults, Net, PROGRAM, host, udp, words};
use crate::onc::octets::real;
use core::cell::RefCell;
use core::slice;
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::object::{CallCause, PushError, Rejection};
use xk_core::{Entry, Kernel, ProtocolRef, SessionRef};
use xk_kit::answers::UNPROVED;
use xk_kit::control::MaxPacket;
use xk_kit::rpc::call::{BAD_CREDENTIALS, Caller};
use xk_kit::rpc::onc::{REJECTED_CREDENTIALS, TOO_WEAK};
use xk_testkit::kernel::Lower;

/// The lower part of the stack.
fn select(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let udp = udp(cx, &format!("udp-{name}"), below);
    let settings = xk_reqrep::Settings::default();
    let reqrep = xk_reqrep::add(cx, &format!("reqrep-{name}"), udp, settings);
    let settings = xk_sunselect::Settings::default();
    xk_sunselect::add(cx, &format!("sunselect-{name}"), reqrep, settings)
}

fn prog(cx: &Kernel, name: &str, (first, others): (ProtocolRef, &[ProtocolRef])) -> ProtocolRef {
    let settings = xk_sunprog::Settings::default();
    xk_sunprog::add(cx, &format!("sunprog-{name}"), first, others, settings)
}

fn add(
    cx: &Kernel,
    entry: &'static Entry,
    (name, lowers): (&str, &[ProtocolRef]),
    (select, flavor): (&ProtocolRef, u32),
) -> ProtocolRef {
    let mut params = Params::default();
    if entry.kind == "authsys" {
        params.set("machine", Value::Text("atmclient2".into()));
        params.set("user", Value::Integer(1000));
        params.set("group", Value::Integer(100));
        params.set("groups", Value::Text("100 27".into()));
        params.set("accept", Value::Text("0 1000-1999".into()));
    }
    let added = entry.add(cx, &format!("{}-{name}", entry.kind), lowers, &params);
    let added = added.expect("it is built");
    cx.numbers_mut().override_pair(added.id(), select.id(), flavor);
    added
}

/// Whole credentials, and servers that take empty ones besides.
pub(crate) fn sys(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let select = select(cx, name, below);
    let below = (name, slice::from_ref(&select));
    let sys = add(cx, &xk_auth::authsys::ENTRY, below, (&select, 1));
    let none = add(cx, &xk_auth::authnone::ENTRY, below, (&select, 0));
    prog(cx, name, (sys, &[none]))
}

/// As above, with shorthands.
pub(crate) fn short(cx: &Kernel, name: &str, below: ProtocolRef) -> ProtocolRef {
    let select = select(cx, name, below);
    let sys = add(cx, &xk_auth::authsys::ENTRY, (name, slice::from_ref(&select)), (&select, 1));
    let below = (name, &[select.clone(), sys][..]);
    let short = add(cx, &xk_auth::authshort::ENTRY, below, (&select, 2));
    prog(cx, name, (short, &[]))
}

/// Notes the caller.
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
    Some(Caller { flavor, user, group })
}

/// A network with a server of NFS version 3, whose procedure 1 gives its arguments back.
fn nfs(build: &crate::onc::net::Build) -> Rc<Net> {
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
        words(&[7, 0, 2, PROGRAM, 1, procedure, 1, 20, 1, 0, user, 0, 0, 0, 0])
    };
    assert_eq!(net.datagram(&call(1, 5)), Some(words(&[7, 1, 1, 1, 5])));
    assert_eq!(net.drops("authsys-server", &TOO_WEAK), 1);
    assert_eq!(net.server.executed.get(), 0);
    // The null procedure is there for everybody.
    assert_eq!(net.datagram(&call(0, 5)), Some(words(&[7, 1, 0, 0, 0, 0])));
    assert_eq!(net.datagram(&call(1, 1234)), Some(words(&[7, 1, 0, 0, 0, 0])));
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
    // Empty credentials are taken by the layer for them; others by none.
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
    assert_eq!(net.wire.borrow()[1].1[8 + 12..8 + 28], words(&[2, 32, 2, 24]));
    // Too old: the server rejects it, the client sends its identity again, and the caller notices
    // nothing.
    net.cx.advance(Duration::from_secs(3600));
    assert_eq!(net.call(&session, b"abcd"), Ok(b"abcd".to_vec()));
    assert_eq!(net.drops("authshort-server", &REJECTED_CREDENTIALS), 1);
    assert_eq!([6, 8].map(flavor), [2, 1]);
    assert_eq!(net.call(&session, b"abcd"), Ok(b"abcd".to_vec()));
    assert_eq!(callers.borrow()[3..], [whole, by_shorthand]);
    drop(session);
    net.finish();
}

/// Counts the calls, of forty with replies of 8,000 octets, that are answered without a repetition,
/// and the replies that were held back.
fn long_replies(seed: u64, build: &crate::onc::net::Build) -> (usize, u64) {
    let net = Net::new(seed, build);
    net.server.results.replace(Some(vec![7; 8000]));
    let session = net.open(1);
    let mut answered = 0;
    for _ in 0..40 {
        let before = net.wire.borrow().len();
        let reply = net.call(&session, b"").expect("a reply, in the end");
        assert_eq!(reply.len(), 8000);
        answered += usize::from(net.wire.borrow().len() == before + 2);
    }
    let held = net.drops("reqrep-server", &UNPROVED);
    drop(session);
    net.finish();
    (answered, held)
}

/// A shorthand comes back from the host that it was sent to: its long replies harm no other host.
#[test]
fn a_client_that_uses_a_shorthand_has_proved_itself() {
    assert_eq!(long_replies(12, &short), (40, 0));
    let (answered, held) = long_replies(13, &sys);
    assert!(answered < 40 && held > 0, "{answered} answered, {held} held back");
}

#[test]
fn nobody_else_can_use_a_shorthand() {
    let net = Net::new(5, &short);
    assert!(net.call(&net.open(1), b"").is_ok());
    let reply = net.wire.borrow()[1].1[8..].to_vec();
    // What Sun's clients send, and what clients send that take the verifier's octets as they are.
    let (shorthand, all) = (&reply[28..52], &reply[20..52]);
    let call = |octets: &[u8]| {
        let mut call = words(&[7, 0, 2, PROGRAM, 1, 1, 2, octets.len() as u32]);
        call.extend(octets);
        call.extend(words(&[0, 0]));
        call
    };
    for octets in [shorthand, all] {
        assert_eq!(net.datagram(&call(octets)), Some(words(&[7, 1, 0, 0, 0, 0])));
    }
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
        _ => crate::onc::net::classic(cx, name, below),
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

/// Calls once while the network carries nothing, and gives the client these replies, in words
/// behind number and type, each to one request after the other. What the call brought, and the
/// requests in order, from the flavor of the credential on.
fn answered(
    net: &Rc<Net>,
    session: &SessionRef,
    replies: &[&[u32]],
) -> (Result<Vec<u8>, CallCause>, Vec<Vec<u8>>) {
    let replies: Vec<Vec<u8>> = replies.iter().map(|reply| words(reply)).collect();
    net.faults.set(Faults { loss: 1000, ..Faults::default() });
    let requests = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&requests);
    net.then(move |net| {
        for reply in replies {
            let at = net.wire.borrow().len();
            while net.wire.borrow().len() == at {
                let never = xk_core::shepherd::Semaphore::new(0);
                let _ = net.cx.wait(&never, Some(Duration::from_millis(1)));
            }
            let octets = net.wire.borrow()[at].1.clone();
            seen.borrow_mut().push(octets[8 + 24..].to_vec());
            let mut back = octets[2..4].to_vec();
            back.extend(&octets[..2]);
            back.extend((reply.len() as u16 + 16).to_be_bytes());
            back.extend([0, 0]);
            back.extend(&octets[8..12]);
            back.extend(words(&[1]));
            back.extend(reply);
            let peer = Some(xk_core::Part::host(host(2)));
            net.ends[0].inject(&net.cx, peer, net.cx.message(&back));
        }
    });
    let result = Rc::new(RefCell::new(None));
    let (to, session) = (Rc::clone(&result), session.clone());
    net.then_first(move |net| {
        let reply = session.call(&net.cx, net.cx.message(b"args"));
        let reply = reply.map(|reply| xk_testkit::kernel::octets(&reply));
        *to.borrow_mut() = Some(reply.map_err(|error| error.cause));
    });
    net.run();
    let result = result.take().expect("an answer");
    (result, requests.take())
}

#[test]
fn whatever_a_server_says_of_a_shorthand_the_client_says_again_who_he_is() {
    let gives: &[u32] = &[0, 2, 8, 0x0102_0304, 0x0506_0708, 0, 42];
    let in_sun_s_form: &[u32] = &[0, 2, 16, 2, 8, 0x0102_0304, 0x0506_0708, 0, 42];
    let empty: &[u32] = &[0, 0, 0, 0, 43];
    let mut by_shorthand = words(&[2, 8, 0x0102_0304, 0x0506_0708, 0, 0]);
    by_shorthand.extend(b"args");
    // Rejected, and what servers say that know nothing of shorthands any more: no such flavor, too
    // weak, bad, anything.
    for stat in [2, 5, 1, 13] {
        let net = Net::new(7, &short);
        let session = net.open(1);
        // The shorthand as it is, and as a whole credential.
        let gives = [gives, in_sun_s_form][stat as usize % 2];
        let (first, requests) = answered(&net, &session, &[gives]);
        assert_eq!((first, requests[0][3]), (Ok(words(&[42])), 1));
        let (second, requests) = answered(&net, &session, &[&[1, 1, stat], empty]);
        assert_eq!(second, Ok(words(&[43])), "{stat}");
        assert_eq!(requests[0], by_shorthand);
        assert_eq!(requests[1][3], 1, "the whole credential");
        // It got no other: whole again.
        let (third, requests) = answered(&net, &session, &[empty]);
        assert_eq!((third, requests[0][3]), (Ok(words(&[43])), 1));
        drop(session);
        net.finish();
    }
}

#[test]
fn users_who_are_not_accepted_get_no_shorthand() {
    let net = Net::new(8, &short);
    // The null procedure is there for everybody.
    let null = |user: u32| words(&[7, 0, 2, PROGRAM, 1, 0, 1, 20, 1, 0, user, 0, 0, 0, 0]);
    assert_eq!(net.datagram(&null(5)), Some(words(&[7, 1, 0, 0, 0, 0])));
    let reply = net.datagram(&null(1234)).expect("a reply");
    assert_eq!(reply[12..16], words(&[2]), "this one may have it");
    net.finish();
}

#[test]
fn a_request_of_the_largest_size_passes_with_any_credential() {
    for (seed, build) in
        [(9, &sys as &crate::onc::net::Build), (10, &short), (11, &crate::onc::net::classic)]
    {
        let net = Net::new(seed, build);
        let session = net.open(1);
        let max = session.ask(&net.cx, MaxPacket::default()).unwrap().octets as usize;
        // The second may go by a shorthand.
        for _ in 0..2 {
            assert!(net.call(&session, &vec![7; max]).is_ok(), "{max} octets");
        }
        let fresh = net.open(2);
        let error = net.call(&fresh, &vec![7; max + 1]).expect_err("too big");
        assert!(matches!(error.cause, CallCause::Push(PushError::TooBig)), "{error}");
        drop((session, fresh));
        net.finish();
    }
}
