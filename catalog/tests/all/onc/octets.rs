//! The octets of the standard's messages, of real ones, and of bad ones.

use crate::onc::net::{Net, PORT, PROGRAM, classic, words};
use xk_core::object::{CallCause, CallError};
use xk_core::reason;
use xk_kit::rpc::call::{BAD_CREDENTIALS, NO_PROGRAM};
use xk_kit::rpc::onc::{TOO_WEAK, WRONG_RPC_VERSION};

const XID: u32 = 0x1122_3344;

/// A call of the test server's procedure 1 with empty credentials.
fn call(arguments: &[u32]) -> Vec<u8> {
    let mut all = vec![XID, 0, 2, PROGRAM, 1, 1, 0, 0, 0, 0];
    all.extend(arguments);
    words(&all)
}

#[test]
fn the_server_answers_in_the_standard_s_octets() {
    let net = Net::new(1, &classic);
    let success = |results: &[u32]| {
        let mut all = vec![XID, 1, 0, 0, 0, 0];
        all.extend(results);
        Some(words(&all))
    };
    assert_eq!(net.datagram(&call(&[0x0801])), success(&[0x0801]));
    // PROG_MISMATCH, PROG_UNAVAIL, PROC_UNAVAIL, GARBAGE_ARGS.
    let with = |at: usize, word: u32| {
        let mut octets = call(&[]);
        octets[4 * at..4 * at + 4].copy_from_slice(&word.to_be_bytes());
        octets
    };
    let accepted = |rest: &[u32]| {
        let mut all = vec![XID, 1, 0, 0, 0];
        all.extend(rest);
        Some(words(&all))
    };
    assert_eq!(net.datagram(&with(4, 9)), accepted(&[2, 1, 1]));
    assert_eq!(net.datagram(&with(3, 7)), accepted(&[1]));
    assert_eq!(net.datagram(&with(5, 7)), accepted(&[3]));
    let mut garbage = with(5, 2);
    garbage.extend(words(&[1]));
    assert_eq!(net.datagram(&garbage), accepted(&[4]));
    // RPC_MISMATCH, AUTH_ERROR TOOWEAK.
    let denied = |rest: &[u32]| {
        let mut all = vec![XID, 1, 1];
        all.extend(rest);
        Some(words(&all))
    };
    assert_eq!(net.datagram(&with(2, 3)), denied(&[0, 2, 2]));
    assert_eq!(net.datagram(&with(6, 6)), denied(&[1, 5]));
    assert_eq!(net.drops("sunselect-server", &WRONG_RPC_VERSION), 1);
    assert_eq!(net.drops("sunselect-server", &TOO_WEAK), 1);
    assert_eq!(net.drops("sunprog-server", &NO_PROGRAM), 1);
    net.finish();
}

#[test]
fn the_client_sends_the_standard_s_octets() {
    let net = Net::new(2, &classic);
    // GETPORT of the portmapper for NFS version 2 over UDP.
    let text = "*, procedure3@version2@program100000@port2049@10.0.0.2";
    let arguments = words(&[0x0001_86a3, 2, 0x11, 0]);
    let result = net.call(&net.open_as(text), &arguments);
    assert!(result.is_err(), "nobody serves it");
    let wire = net.wire.borrow();
    let sent = &wire[0].1[8..];
    let expected = words(&[0, 2, 0x0001_86a0, 2, 3, 0, 0, 0, 0, 0x0001_86a3, 2, 0x11, 0]);
    assert_eq!(sent[4..], expected);
    assert_eq!(sent.len(), 56);
    // The reply has the request's number.
    assert_eq!(wire[1].1[8..12], sent[..4]);
    drop(wire);
    net.finish();
}

/// NFS version 3 GETATTR in Wireshark's test capture nfs.pcap, from port 1023, and its reply. The
/// credential is of AUTH_SYS.
pub(crate) fn real() -> (Vec<u8>, Vec<u8>) {
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

#[test]
fn a_real_call_without_a_layer_for_its_credential_is_too_weak() {
    let net = Net::new(3, &classic);
    let (call, reply) = real();
    assert_eq!((call.len(), reply.len()), (152, 112));
    let denied = words(&[0x7b55_8aeb, 1, 1, 1, 5]);
    assert_eq!(net.datagram(&call), Some(denied));
    net.finish();
}

/// Gives the client a reply in these words, behind number and type, in place of the server's.
fn forged(rest: &[u32]) -> Result<Vec<u8>, CallError> {
    let net = Net::new(4, &classic);
    let session = net.open(1);
    let rest = rest.to_vec();
    net.then(move |net| {
        let sent = net.ends[0].take_sent().remove(0);
        let octets = xk_testkit::kernel::octets(&sent.message);
        let mut payload = octets[8..12].to_vec();
        payload.extend(words(&[1]));
        payload.extend(words(&rest));
        let mut reply = octets[2..4].to_vec();
        reply.extend(&octets[..2]);
        reply.extend((payload.len() as u16 + 8).to_be_bytes());
        reply.extend([0, 0]);
        reply.extend(&payload);
        let peer = Some(xk_core::Part::host(crate::onc::net::host(2)));
        net.ends[0].inject(&net.cx, peer, net.cx.message(&reply));
    });
    // The call must be first.
    let result = std::rc::Rc::new(std::cell::RefCell::new(None));
    let to = std::rc::Rc::clone(&result);
    net.then_first(move |net| {
        let reply = session.call(&net.cx, net.cx.message(b""));
        *to.borrow_mut() = Some(reply.map(|reply| xk_testkit::kernel::octets(&reply)));
    });
    net.run();
    net.finish();
    result.take().expect("an answer")
}

#[test]
fn the_client_reads_every_reply_there_is() {
    let cause = |rest: &[u32]| forged(rest).expect_err("an error").cause;
    assert_eq!(forged(&[0, 0, 0, 0, 7]), Ok(words(&[7])));
    // A verifier that is not empty.
    assert_eq!(forged(&[0, 2, 5, 0x0102_0304, 0x0500_0000, 0, 7]), Ok(words(&[7])));
    let versions = |cause| match cause {
        CallCause::Rejected(rejection) => (rejection.reason.name, rejection.versions),
        other => panic!("{other}"),
    };
    assert_eq!(versions(cause(&[0, 0, 0, 2, 2, 3])), ("no such version", Some((2, 3))));
    assert_eq!(versions(cause(&[1, 0, 3, 4])), ("wrong RPC version", Some((3, 4))));
    assert_eq!(versions(cause(&[1, 1, 5])), ("credentials too weak", None));
    for stat in [1, 3, 4, 5] {
        assert!(matches!(cause(&[0, 0, 0, stat]), CallCause::Rejected(_)));
    }
    // Not all there, or with numbers that mean nothing.
    for bad in [
        &[][..],
        &[0],
        &[0, 0],
        &[0, 0, 0],
        &[0, 0, 401, 0],
        &[0, 0, 8, 0],
        &[0, 0, 0, 2, 1],
        &[0, 0, 0, 6],
        &[1],
        &[1, 0],
        &[1, 0, 2],
        &[1, 1],
        &[1, 2, 0],
        &[2, 0, 0, 0],
    ] {
        assert_eq!(cause(bad), CallCause::BadReply, "{bad:?}");
    }
}

#[test]
fn every_truncation_is_dropped_or_answered_and_never_executed() {
    let net = Net::new(5, &classic);
    let whole = call(&[]);
    for len in 0..whole.len() {
        let answer = net.datagram(&whole[..len]);
        assert_eq!(answer, None, "cut to {len}");
    }
    assert_eq!(net.server.executed.get(), 0);
    let short = net.drops("reqrep-server", &reason::TRUNCATED);
    assert_eq!(short, 8);
    let select = net.drops("sunselect-server", &reason::TRUNCATED);
    assert_eq!(select, 32);
    assert!(net.datagram(&whole).is_some());
    net.finish();
}

#[test]
fn bad_messages_are_counted() {
    let net = Net::new(6, &classic);
    // Neither call nor reply, and a reply that no call waits for.
    assert_eq!(net.datagram(&words(&[XID, 2, 2, PROGRAM, 1, 1, 0, 0, 0, 0])), None);
    assert_eq!(net.datagram(&words(&[XID, 1, 0, 0, 0, 0])), None);
    assert_eq!(net.drops("reqrep-server", &reason::MALFORMED), 1);
    assert_eq!(net.drops("reqrep-server", &xk_reqrep::NO_CALL), 1);
    // A credential of more than 400 octets; one of AUTH_NONE that is not empty is taken.
    let long = words(&[XID, 0, 2, PROGRAM, 1, 1, 0, 401, 0, 0]);
    assert_eq!(net.datagram(&long), Some(words(&[XID, 1, 1, 1, 1])));
    assert_eq!(net.drops("sunselect-server", &BAD_CREDENTIALS), 1);
    let odd = words(&[XID, 0, 2, PROGRAM, 1, 1, 0, 4, 9, 0, 0, 5]);
    assert_eq!(net.datagram(&odd), Some(words(&[XID, 1, 0, 0, 0, 0, 5])));
    // The same port serves any peer.
    assert!(net.datagram_from(PORT, &call(&[])).is_some());
    net.finish();
}
