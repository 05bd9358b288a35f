//! The vectors of the header as they pass between two hosts, octet by octet, and packets that
//! no host should have sent.

use crate::net::*;
use std::cell::Cell;
use std::rc::Rc;
use xk_core::{Time, reason};
use xk_mrpc::wire::{ACK, HEADER_LEN, Header, LASTFRAG, NACK, REPLY, REQUEST, SERVER as TO_SERVER};

/// A vector, with boot id, ticket and call number of this run in it.
fn filled(text: &str, of: &Header) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let octet = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    let mut octets: Vec<u8> = (0..digits.len() / 2).map(octet).collect();
    octets[10..12].copy_from_slice(&of.channel.to_be_bytes());
    octets[12..14].copy_from_slice(&of.process.to_be_bytes());
    octets[14..18].copy_from_slice(&of.sequence.to_be_bytes());
    octets[24..28].copy_from_slice(&of.boot.to_be_bytes());
    octets
}

const NULL_REQUEST: &str =
    "0110 0a000001 0a000002 0003 0000 00000007 0000 0000 0001 2a000001 0000 0000 0000 0000";
const NULL_REPLY: &str =
    "0400 0a000001 0a000002 0003 0005 00000007 0000 0000 0001 2b000002 0000 0000 0000 0000";
const THIRD: &str =
    "0112 0a000001 0a000002 0003 0005 00000008 0003 0004 0003 2a000001 0000 03b8 0000 0800";
const PARTIAL: &str =
    "0202 0a000001 0a000002 0003 0005 00000008 0000 0005 0003 2b000002 0000 0000 0000 0000";

#[test]
fn a_null_call_is_the_first_two_vectors() {
    let (mut net, _) = pair();
    let session = net.hosts[0].open(1, SERVER);
    let outcome = net.hosts[0].call(&session, b"");
    net.done(&outcome).unwrap();
    net.log.clear();
    let outcome = net.hosts[0].call(&session, b"");
    net.done(&outcome).unwrap();
    let [request, reply] = &net.log[..] else { panic!("two packets") };
    let (sent, answer) = (request.header(), reply.header());
    assert_eq!(request.octets, filled(NULL_REQUEST, &sent));
    assert_eq!(reply.octets, filled(NULL_REPLY, &answer));
    assert_eq!(sent.boot, net.hosts[0].cx.boot_id());
    assert_eq!(answer.boot, net.hosts[1].cx.boot_id());
    assert_eq!((sent.sequence, sent.process), (answer.sequence, answer.process));
    net.stop();
}

#[test]
fn a_lost_fragment_is_the_last_two_vectors() {
    let (mut net, _) = pair();
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"");
    net.done(&outcome).unwrap();
    net.log.clear();
    let octets = pattern(3000, 8);
    let outcome = net.hosts[0].call(&session, &octets);
    let mut seen = 0;
    net.finish(&outcome, &mut |frame| {
        seen += u32::from(frame.header().flags & REQUEST != 0);
        if seen == 2 && frame.header().mask == 2 { vec![] } else { vec![PASS] }
    });
    assert!(outcome.get().unwrap() == octets);
    let third = &net.log[2];
    assert_eq!(third.octets[..HEADER_LEN], filled(THIRD, &third.header()));
    assert_eq!(third.octets[HEADER_LEN..], octets[2048..]);
    let partial = &net.log[3];
    assert_eq!(partial.octets, filled(PARTIAL, &partial.header()));
    let again = net.log[4].header();
    assert_eq!(
        (again.flags, again.mask),
        (REQUEST | TO_SERVER | LASTFRAG | 0x40, 2),
        "the round behind the answer"
    );
    assert_eq!(net.log[5].header().flags & REPLY, REPLY, "one packet was enough");
    net.stop();
}

/// A server, and a valid request to it that it has not seen.
fn with_request(payload: &[u8]) -> (Net, Rc<Cell<u32>>, Vec<u8>) {
    let (mut net, count) = pair();
    let session = net.hosts[0].open(3, SERVER);
    let outcome = net.hosts[0].call(&session, b"first");
    net.done(&outcome).unwrap();
    net.log.clear();
    let lost = net.hosts[0].call(&session, payload);
    net.run_until(Time::from_ms(1), &mut |_| vec![]);
    assert!(!lost.is_there());
    let request = net.log[0].octets.clone();
    (net, count, request)
}

/// Lets octets arrive at the server and gives what it answers.
fn arrive(net: &mut Net, octets: &[u8]) -> Vec<Header> {
    net.log.clear();
    net.inject(0, 1, octets.to_vec());
    let until = net.now;
    net.run_until(until, &mut |_| vec![]);
    net.log.iter().filter(|f| f.from == 1).map(Frame::header).collect()
}

#[test]
fn every_truncation_is_counted_and_executes_nothing() {
    let (mut net, count, request) = with_request(b"payload");
    for len in 0..request.len() {
        assert!(arrive(&mut net, &request[..len]).is_empty(), "{len}");
    }
    let short = net.hosts[1].dropped(&reason::TRUNCATED);
    assert_eq!((short, count.get()), (request.len() as u64, 1));
    // Padding is no part of it.
    let mut padded = request.clone();
    padded.resize(60, 0xee);
    assert_eq!(arrive(&mut net, &padded).len(), 1);
    assert_eq!(count.get(), 2);
    assert_eq!(net.hosts[1].layer.head().drops().total(), short + 1, "and the first challenge");
    net.stop();
}

#[test]
fn each_kind_of_bad_request_is_counted_under_its_reason() {
    let (mut net, count, request) = with_request(b"payload");
    let good = Header::parse(request.first_chunk().unwrap());
    let mut send = |header: Header| {
        let mut octets = header.emit().to_vec();
        octets.extend(b"payload");
        arrive(&mut net, &octets)
    };
    let older = good.sequence.wrapping_sub(5);
    let wrong_boot = Header { boot: good.boot ^ 1, ..good };
    let challenge = &send(wrong_boot)[0];
    assert_eq!(challenge.flags & NACK, NACK, "it gets a ticket, nothing more");
    assert!(send(Header { sequence: older, ..good }).is_empty());
    assert!(send(Header { client_host: 0x0a00_0009, ..good }).is_empty());
    assert!(send(Header { server_host: 0x0a00_0009, ..good }).is_empty());
    assert!(send(Header { fragments: 17, mask: 1, ..good }).is_empty());
    assert!(send(Header { fragments: 3, mask: 6, ..good }).is_empty());
    assert!(send(Header { fragments: 3, mask: 2, offsets: [0, 16_380], ..good }).is_empty());
    assert!(send(Header { flags: 0x0510, ..good }).is_empty());
    // For the client half: a channel that it has not, and a call that it does not make.
    let reply = Header { flags: REPLY, ..good };
    assert!(send(Header { channel: 99, ..reply }).is_empty());
    assert!(send(reply).is_empty());
    // Of another boot: an acknowledgement.
    let ack = TO_SERVER | ACK;
    assert!(send(Header { flags: ack, boot: good.boot ^ 1, ..good }).is_empty());
    assert!(send(Header { flags: ack, sequence: older, ..good }).is_empty());
    // Two fragments that do not belong together, then two that overlap.
    let fragment = |mask, offset| Header { fragments: 2, mask, offsets: [0, offset], ..good };
    send(fragment(1, 0));
    send(Header { command: 9, ..fragment(2, 7) });
    send(fragment(2, 3));
    assert_eq!(count.get(), 1, "nothing was executed");
    let expected = [
        (&xk_kit::rpc::incarnation::CHALLENGED, 2),
        (&xk_mrpc::REPLAYED, 2),
        (&reason::BAD_SOURCE, 1),
        (&reason::NOT_MINE, 1),
        (&xk_mrpc::FORGED_FRAGMENT, 4),
        (&reason::TOO_BIG, 1),
        (&reason::MALFORMED, 1),
        (&xk_mrpc::UNKNOWN_CHANNEL, 1),
        (&xk_mrpc::NO_CALL, 1),
        (&xk_mrpc::WRONG_BOOT, 1),
    ];
    for (reason, times) in expected {
        assert_eq!(net.hosts[1].dropped(reason), times, "{reason}");
    }
    assert_eq!(net.hosts[1].layer.head().drops().total(), 15);
    // After all that the call itself goes.
    net.log.clear();
    net.inject(0, 1, request);
    net.run_until(Time::from_ms(2), &mut |_| vec![PASS]);
    assert_eq!(count.get(), 2);
    net.stop();
}

#[test]
fn replies_of_others_are_dropped() {
    let (mut net, _, _) = with_request(b"payload");
    let server = net.hosts[1].cx.boot_id();
    let request = net.log[0].header();
    let reply = Header { flags: REPLY, boot: server, sizes: [0, 0], ..request };
    let bad = [
        Header { sequence: request.sequence ^ 1, ..reply },
        Header { server_host: 0x0a00_0009, ..reply },
        Header { client_host: 0x0a00_0009, ..reply },
        Header { process: request.process ^ 1, ..reply },
    ];
    for header in bad {
        net.inject(1, 0, header.emit().to_vec());
    }
    net.run_until(Time::from_ms(2), &mut |_| vec![]);
    assert_eq!(net.hosts[0].dropped(&xk_mrpc::NO_CALL), 4);
    net.stop();
}
