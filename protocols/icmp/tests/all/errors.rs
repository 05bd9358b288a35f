//! Telling senders of errors, and passing on what others tell.

use crate::common::*;
use core::net::Ipv4Addr;
use xk_core::graph::{Params, Value};
use xk_core::object::Refused;
use xk_core::reason::{self, Class, Reason};
use xk_core::{Part, Participants};
use xk_icmp::reasons;
use xk_icmp::wire::{self, Header, Query, Quoted, TimeExceeded, Unreachable};
use xk_kit::control::{NetworkErrorKind, OptPacket, SendError, SendErrorCause};
use xk_kit::net::checksum;

static SECRET: Reason = Reason::new("secret", Class::Prohibited);
static BAD: Reason = Reason::new("bad", Class::Bad);

#[test]
fn refusals_are_told_with_as_much_of_the_packet_as_fits() {
    let host = Host::simple(A);
    for (why, code) in [
        (&reason::NO_PORT, Some(Unreachable::Port)),
        (&SECRET, Some(Unreachable::Prohibited)),
        (&BAD, None),
    ] {
        for len in [8, 100, 1400] {
            host.top.refuse(Some(why));
            let refused = packet(B, A, 17, &vec![7; len]);
            host.inject(&refused);
            let Some(code) = code else {
                assert!(host.sent().is_empty());
                continue;
            };
            let (src, dst, error) = told(&host);
            assert_eq!((src, dst), (A, B));
            let error = wire::Message::parse(&error).unwrap();
            assert_eq!(error.header, Header::Unreachable(code));
            let most = refused.len().min(576 - 28);
            assert_eq!(error.body, &refused[..most], "{len}");
        }
    }
    host.inject(&packet(B, A, 99, b"12345678"));
    let (.., error) = told(&host);
    let error = wire::Message::parse(&error).unwrap();
    assert_eq!(error.header, Header::Unreachable(Unreachable::Protocol));
    assert_eq!(host.figures().errors_sent, 7);
    assert!(host.lower.held().len() <= 1, "one session for all of them");
}

#[test]
fn nobody_is_told_about_errors_later_fragments_broadcasts_and_bad_sources() {
    let host = Host::simple(A);
    host.top.refuse(Some(&reason::NO_PORT));
    let ask = |octets: &[u8], link_broadcast| {
        let question = SendError {
            packet: Some(host.cx.message(octets)),
            cause: SendErrorCause::Refused(&reason::NO_PORT),
            link_broadcast,
        };
        assert!(host.icmp.ask(&host.cx, question).is_some());
        host.sent().len()
    };
    let plain = packet(B, A, 17, b"12345678");
    assert_eq!(ask(&plain, false), 1);
    assert_eq!(ask(&plain, true), 0);
    let quoted = packet(A, B, 17, b"12345678");
    for header in [
        Header::Unreachable(Unreachable::Port),
        Header::TimeExceeded(TimeExceeded::Transit),
        Header::SourceQuench,
    ] {
        assert_eq!(ask(&packet(B, A, 1, &message(header, &quoted)), false), 0);
    }
    let query = Header::EchoRequest(Query { id: 1, sequence: 1 });
    assert_eq!(ask(&packet(B, A, 1, &message(query, b"")), false), 1, "a query is no error");
    assert_eq!(ask(&packet(B, A, 1, b""), false), 0, "who knows what that was");
    let mut later = plain.clone();
    later[7] = 1;
    mend(&mut later);
    assert_eq!(ask(&later, false), 0);
    for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
        assert_eq!(ask(&packet(source.into(), A, 17, b"12345678"), false), 0);
    }
    for to in [[255; 4], [224, 0, 0, 1]] {
        assert_eq!(ask(&packet(B, to.into(), 17, b"12345678"), false), 0);
    }
    for len in 0..20 {
        assert_eq!(ask(&plain[..len], false), 0);
    }
    assert_eq!(host.figures().errors_sent, 2);
    assert_eq!(host.dropped(&reasons::NOT_TOLD), 1 + 3 + 1 + 1 + 5 + 2 + 20);
}

#[test]
fn errors_are_limited_in_rate() {
    let mut params = Params::default();
    params.set("errors_per_second", Value::Integer(10));
    params.set("errors_burst", Value::Integer(5));
    let host = Host::new(A, Params::default(), params);
    host.top.refuse(Some(&reason::NO_PORT));
    for _ in 0..100 {
        host.inject(&packet(B, A, 17, b"12345678"));
    }
    assert_eq!(host.sent().len(), 5);
    assert_eq!(host.dropped(&reasons::RATE_LIMITED), 95);
    host.cx.advance(core::time::Duration::from_millis(200));
    for _ in 0..100 {
        host.inject(&packet(B, A, 17, b"12345678"));
    }
    assert_eq!(host.sent().len(), 2);
    // Another host has as many of its own; its neighbours share about four times as many.
    for n in 0..100 {
        let other = Ipv4Addr::new(10, 0, 0, 100 + n / 20);
        host.inject(&packet(other, A, 17, b"12345678"));
    }
    let sent = host.sent().len();
    assert!((5..=20).contains(&sent), "{sent}");
}

fn error_about(host: &Host, header: Header, reporter: Ipv4Addr, sent: &[u8]) {
    host.inject(&packet(reporter, A, 1, &message(header, sent)));
}

#[test]
fn every_error_reaches_who_has_sent_the_packet() {
    let a = Host::simple(A);
    let pair = Participants::pair(Part::Any, Part::host(FAR));
    let session = a.top.open(&a.cx, &a.ip, pair).unwrap();
    a.push(&session, b"0123456789abcdefgh");
    let sent = a.sent().remove(0);
    for (header, kind) in [
        (Header::Unreachable(Unreachable::Net), NetworkErrorKind::NetUnreachable),
        (Header::Unreachable(Unreachable::SourceRouteFailed), NetworkErrorKind::SourceRouteFailed),
        (Header::Unreachable(Unreachable::NetUnknown), NetworkErrorKind::NetUnknown),
        (Header::Unreachable(Unreachable::HostUnknown), NetworkErrorKind::HostUnknown),
        (Header::Unreachable(Unreachable::SourceIsolated), NetworkErrorKind::SourceIsolated),
        (Header::Unreachable(Unreachable::NetProhibited), NetworkErrorKind::NetProhibited),
        (Header::Unreachable(Unreachable::HostService), NetworkErrorKind::HostUnreachable),
        (Header::Unreachable(Unreachable::Host), NetworkErrorKind::HostUnreachable),
        (Header::Unreachable(Unreachable::Protocol), NetworkErrorKind::ProtocolUnreachable),
        (Header::Unreachable(Unreachable::Port), NetworkErrorKind::PortUnreachable),
        (Header::Unreachable(Unreachable::Prohibited), NetworkErrorKind::Prohibited),
        (Header::TimeExceeded(TimeExceeded::Transit), NetworkErrorKind::TimeExceeded),
        (Header::TimeExceeded(TimeExceeded::Reassembly), NetworkErrorKind::ReassemblyTimeExceeded),
        (
            Header::ParameterProblem(wire::ParameterProblem::Pointer(3)),
            NetworkErrorKind::ParameterProblem,
        ),
        (
            Header::Unreachable(Unreachable::FragmentationNeeded(core::num::NonZeroU16::new(1280))),
            NetworkErrorKind::PacketTooBig { mtu: 1280 },
        ),
    ] {
        error_about(&a, header, B, &sent);
        let errors = a.top.take_errors();
        assert_eq!(errors.len(), 1, "{header:?}");
        assert_eq!((errors[0].kind, errors[0].reporter), (kind, Some(B.into())));
        assert_eq!(errors[0].session.as_ref(), Some(&session));
        assert_eq!(*errors[0].start, *b"0123456789abcdef");
    }
    assert_eq!(session.ask(&a.cx, OptPacket::default()).unwrap().octets, 1260);
    error_about(&a, Header::Unreachable(Unreachable::Port), FAR, &sent[..28]);
    let errors = a.top.take_errors();
    assert_eq!((errors[0].reporter, errors[0].start.len()), (None, 8));
    assert_eq!(a.figures().errors_received, 16);
}

#[test]
fn errors_that_nobody_can_use_are_dropped() {
    let a = Host::simple(A);
    let pair = Participants::pair(Part::Any, Part::host(FAR));
    let session = a.top.open(&a.cx, &a.ip, pair).unwrap();
    a.push(&session, b"0123456789abcdefgh");
    let sent = a.sent().remove(0);
    let port = Header::Unreachable(Unreachable::Port);
    for len in 0..28 {
        error_about(&a, port, FAR, &sent[..len]);
    }
    let mut later = sent.clone();
    later[7] = 2;
    error_about(&a, port, FAR, &later);
    assert_eq!(a.dropped(&reasons::LATER_FRAGMENT), 1);
    error_about(&a, Header::SourceQuench, FAR, &sent);
    error_about(&a, Header::Redirect(wire::Redirect::Host, B), FAR, &sent);
    assert_eq!(a.dropped(&reasons::IGNORED), 2);
    let mut foreign = sent.clone();
    foreign[12..16].copy_from_slice(&B.octets());
    error_about(&a, port, FAR, &foreign);
    assert_eq!(a.ip.head().drops().total(), 1, "sent by somebody else");
    assert_eq!(a.icmp.head().drops().total(), 28 + 1 + 2);
    let mut unknown = message(port, &sent);
    unknown[0] = 42;
    unknown[2..4].fill(0);
    let sum = checksum::checksum(&unknown);
    unknown[2..4].copy_from_slice(&sum.to_be_bytes());
    a.inject(&packet(FAR, A, 1, &unknown));
    assert_eq!(a.dropped(&reasons::UNKNOWN_TYPE), 1);
    assert!(a.top.take_errors().is_empty() && a.sent().is_empty());
}

#[test]
fn an_error_about_a_ping_reaches_the_pinger() {
    let (a, b) = (Host::simple(A), Host::simple(B));
    let session = a.open(FAR);
    a.push(&session, b"payload of the ping");
    let sent = a.sent().remove(0);
    error_about(&a, Header::Unreachable(Unreachable::Host), B, &sent);
    let errors = a.pinger.take_errors();
    assert_eq!(errors[0].kind, NetworkErrorKind::HostUnreachable);
    assert_eq!(errors[0].session.as_ref(), Some(&session));
    assert_eq!(*errors[0].start, *b"payload ");
    // A host that has no such protocol: from refusal to report.
    let pair = Participants::pair(Part::Any, Part::host(B));
    let udp = a.top.open(&a.cx, &a.ip, pair).unwrap();
    b.top.refuse(Some(&reason::NO_PORT));
    a.push(&udp, b"to a port that nobody has");
    exchange(&a, &b);
    let errors = a.top.take_errors();
    assert_eq!(errors[0].kind, NetworkErrorKind::PortUnreachable);
    assert_eq!((&*errors[0].start, errors[0].reporter), (&b"to a port that n"[..], None));
}

#[test]
fn an_incomplete_datagram_is_told_of() {
    let b = Host::simple(B);
    let mut first = packet(A, B, 17, &[5; 64]);
    first[6] = 0x20;
    mend(&mut first);
    b.inject(&first);
    b.cx.advance(core::time::Duration::from_secs(61));
    let (src, dst, error) = told(&b);
    assert_eq!((src, dst), (B, A));
    let error = wire::Message::parse(&error).unwrap();
    assert_eq!(error.header, Header::TimeExceeded(TimeExceeded::Reassembly));
    assert_eq!(Quoted::parse(error.body).unwrap().payload, [5; 64]);
}

#[test]
fn a_source_route_and_a_bad_option_are_told_of() {
    let host = Host::simple(A);
    let with = |options: [u8; 8]| {
        let mut octets = packet(B, A, 17, b"12345678");
        octets.splice(20..20, options);
        octets[0] = 0x47;
        octets[3] += 8;
        octets[10..12].fill(0);
        let sum = checksum::checksum(&octets[..28]);
        octets[10..12].copy_from_slice(&sum.to_be_bytes());
        octets
    };
    host.inject(&with([131, 7, 4, 192, 0, 2, 9, 0]));
    let (.., error) = told(&host);
    let error = wire::Message::parse(&error).unwrap();
    assert_eq!(error.header, Header::Unreachable(Unreachable::SourceRouteFailed));
    host.inject(&with([1, 7, 7, 3, 0, 0, 0, 0]));
    let (.., error) = told(&host);
    let error = wire::Message::parse(&error).unwrap();
    let pointer = wire::ParameterProblem::Pointer(23);
    assert_eq!(error.header, Header::ParameterProblem(pointer));
}

/// Packets that a host sends whose top refuses these packets, at once or after it has taken all of
/// them.
fn answers(packets: &[Vec<u8>], reason: &'static Reason, is_late: bool) -> Vec<Vec<u8>> {
    let host = Host::simple(A);
    host.top.refuse(Some(reason).filter(|_| !is_late));
    packets.iter().for_each(|packet| host.inject(packet));
    for taken in host.top.take_received() {
        taken.session.refused(&host.cx, Refused::new(taken.message, reason));
    }
    host.sent()
}

/// A refusal that comes late tells the sender what one at once does, octet by octet.
#[test]
fn a_late_refusal_is_told_as_one_at_once() {
    let plain = packet(B, A, 17, &[7; 40]);
    let mut padded = plain.clone();
    padded.extend([0; 20]);
    // Four octets of options: nothing, nothing, nothing, the end.
    let mut options = packet(B, A, 17, &[7; 40]);
    options.splice(20..20, [1, 1, 1, 0]);
    options[0] = 0x46;
    options[3] += 4;
    options[10..12].fill(0);
    let sum = checksum::checksum(&options[..24]);
    options[10..12].copy_from_slice(&sum.to_be_bytes());
    let fragment = |offset: u16, more: bool, payload: &[u8]| {
        let mut octets = packet(B, A, 17, payload);
        octets[6..8].copy_from_slice(&((u16::from(more) << 13) | (offset / 8)).to_be_bytes());
        mend(&mut octets);
        octets
    };
    let parts = vec![fragment(0, true, &[1; 400]), fragment(400, false, &[2; 300])];
    let many = packet(B, Ipv4Addr::new(10, 0, 0, 255), 17, &[7; 40]);
    let cases = [
        (vec![plain.clone(), plain.clone()], 2),
        (vec![padded], 1),
        (vec![options], 1),
        (parts, 1),
        (vec![many], 0),
    ];
    for (packets, count) in cases {
        for reason in [&reason::NO_PORT, &reason::PROHIBITED, &reason::TABLE_FULL] {
            let at_once = answers(&packets, reason, false);
            assert_eq!(answers(&packets, reason, true), at_once, "{reason}: {packets:?}");
            let told = if *reason == reason::TABLE_FULL { 0 } else { count };
            assert_eq!(at_once.len(), told, "{reason}: {packets:?}");
        }
    }
}
