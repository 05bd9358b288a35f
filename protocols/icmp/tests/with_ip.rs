//! Pings, refusals and errors between hosts: `icmp` on `ip`, whose packets the test carries.

use core::net::Ipv4Addr;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use std::rc::Rc;
use xk_core::graph::{Build, Params, Value};
use xk_core::reason::{self, Class, Reason};
use xk_core::{Part, Participants, ProtocolRef, SessionRef};
use xk_icmp::wire::{self, Header, Query, Quoted, TimeExceeded, Unreachable};
use xk_icmp::{IcmpFigures, reasons};
use xk_kit::checksum;
use xk_kit::control::{
    MaxPacket, NetworkErrorKind, OptPacket, RegisterErrorProtocol, SendError, SendErrorCause,
};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

struct Host {
    cx: Rc<TestKernel>,
    lower: Bottom,
    ip: ProtocolRef,
    icmp: ProtocolRef,
    /// On `icmp`.
    pinger: Top,
    /// On `ip`, protocol 17.
    top: Top,
}

fn block(name: &'static str, value: &str) -> Params {
    let mut block = Params::default();
    block.set(name, Value::Text(value.into()));
    block
}

impl Host {
    fn new(own: Ipv4Addr, ip_params: Params, icmp_params: Params) -> Self {
        let cx = Rc::new(TestKernel::new(u64::from(own.to_bits())));
        let lower = Bottom::add(&cx, "link", Lower::link(1500));
        let mut params = ip_params;
        params.add_block("address", block("address", &format!("{own}/24")));
        let mut route = block("network", "default");
        route.set("via", Value::Text("10.0.0.254".into()));
        params.add_block("route", route);
        let build = |kind: &'static str, below: &ProtocolRef, params: &Params| {
            let entry = xk_catalog::find(kind).expect("it is in the catalog");
            for number in entry.numbers {
                cx.numbers_mut().add(*number).expect("no conflict");
            }
            let mut build = Build {
                cx: &cx,
                entry,
                name: kind,
                lowers: core::slice::from_ref(below),
                params,
            };
            (entry.build)(&mut build).expect("the parameters are right")
        };
        let ip = build("ip", lower.protocol(), &params);
        let icmp = build("icmp", &ip, &icmp_params);
        let pinger = Top::add(&cx, "pinger");
        let top = Top::add(&cx, "top");
        cx.numbers_mut().override_pair(top.id(), ip.id(), 17);
        cx.start().expect("it starts");
        let any = Participants::local(Part::Any);
        let _ = top.enable(&cx, &ip, any).expect("nobody else has it");
        Self {
            cx,
            lower,
            ip,
            icmp,
            pinger,
            top,
        }
    }

    fn simple(own: Ipv4Addr) -> Self {
        Self::new(own, Params::default(), Params::default())
    }

    fn open(&self, peer: Ipv4Addr) -> SessionRef {
        let pair = Participants::pair(Part::Any, Part::Host(peer));
        self.pinger
            .open(&self.cx, &self.icmp, pair)
            .expect("it opens")
    }

    fn push(&self, session: &SessionRef, octets: &[u8]) {
        session
            .push(&self.cx, self.cx.message(octets))
            .expect("it goes");
    }

    fn inject(&self, octets: &[u8]) {
        self.lower.inject(&self.cx, None, self.cx.message(octets));
    }

    fn sent(&self) -> Vec<Vec<u8>> {
        let sent = self.lower.take_sent();
        sent.iter().map(|s| octets(&s.message)).collect()
    }

    fn figures(&self) -> IcmpFigures {
        self.icmp
            .ask(&self.cx, IcmpFigures::default())
            .expect("its own")
    }

    fn dropped(&self, reason: &Reason) -> u64 {
        self.icmp.head().drops().of(reason)
    }
}

/// Carries packets until both are silent.
fn exchange(a: &Host, b: &Host) {
    loop {
        let (to_b, to_a) = (a.sent(), b.sent());
        if to_b.is_empty() && to_a.is_empty() {
            return;
        }
        to_b.iter().for_each(|packet| b.inject(packet));
        to_a.iter().for_each(|packet| a.inject(packet));
    }
}

/// A packet, header checksum and all.
fn packet(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut octets = vec![0x45, 0, 0, 0, 0, 9, 0, 0, 64, protocol, 0, 0];
    octets[2..4].copy_from_slice(&len.to_be_bytes());
    octets.extend_from_slice(&src.octets());
    octets.extend_from_slice(&dst.octets());
    mend(&mut octets);
    octets.extend_from_slice(payload);
    octets
}

fn mend(octets: &mut [u8]) {
    octets[10..12].fill(0);
    let sum = checksum::checksum(&octets[..20]);
    octets[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn message(header: Header, body: &[u8]) -> Vec<u8> {
    let message = wire::Message { header, body };
    [&message.header_octets()[..], body].concat()
}

/// Source, destination and what the only packet sent says.
fn told(host: &Host) -> (Ipv4Addr, Ipv4Addr, Vec<u8>) {
    let sent = host.sent();
    assert_eq!(sent.len(), 1, "one packet");
    let at = |n: usize| Ipv4Addr::new(sent[0][n], sent[0][n + 1], sent[0][n + 2], sent[0][n + 3]);
    assert_eq!(sent[0][9], 1);
    (at(12), at(16), sent[0][20..].to_vec())
}

#[test]
fn a_ping_of_real_octets_is_answered_in_place() {
    let host = Host::simple(A);
    let request = [
        0x08, 0x00, 0x4d, 0x5a, 0x00, 0x01, 0x00, 0x01, 0x61, 0x62, 0x63, 0x64,
    ];
    let mut request = request.to_vec();
    request[2..4].fill(0);
    let sum = checksum::checksum(&request);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    let whole = host.cx.message(&packet(B, A, 1, &request));
    let place = whole.slices().next().unwrap().offset;
    host.lower.inject(&host.cx, None, whole);
    let sent = host.lower.take_sent();
    assert_eq!(
        sent[0].message.slices().next().unwrap().offset,
        place,
        "no copy"
    );
    let answer = octets(&sent[0].message);
    assert_eq!(
        (&answer[12..16], &answer[16..20]),
        (&A.octets()[..], &B.octets()[..])
    );
    let reply = etherparse::Icmpv4Slice::from_slice(&answer[20..]).unwrap();
    assert_eq!((reply.type_u8(), reply.payload()), (0, &b"abcd"[..]));
    assert!(checksum::is_valid(&answer[20..]));
    assert_eq!(host.figures().requests_answered, 1);
}

#[test]
fn pings_of_all_sizes_go_and_come() {
    let (a, b) = (Host::simple(A), Host::simple(B));
    let session = a.open(B);
    assert_eq!(
        session.ask(&a.cx, OptPacket::default()).unwrap().octets,
        1472
    );
    assert_eq!(
        session.ask(&a.cx, MaxPacket::default()).unwrap().octets,
        65_507
    );
    for len in [0, 1, 56, 1472, 1473, 8000, 65_507] {
        let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        a.push(&session, &payload);
        exchange(&a, &b);
        let received = a.pinger.take_received();
        assert_eq!(received.len(), 1, "{len}");
        assert_eq!(octets(&received[0].message), payload);
        assert_eq!(received[0].session, session);
    }
    assert_eq!(
        a.icmp.head().drops().total() + b.icmp.head().drops().total(),
        0
    );
}

#[test]
fn each_session_has_its_own_replies() {
    let a = Host::simple(A);
    let other = Top::add(&a.cx, "other");
    let mine = a.open(B);
    assert_eq!(a.open(B), mine);
    let pair = Participants::pair(Part::Any, Part::Host(B));
    let theirs = other.open(&a.cx, &a.icmp, pair).unwrap();
    assert_ne!(mine, theirs);
    for session in [&mine, &theirs, &mine] {
        a.push(session, b"x");
    }
    let sent = a.sent();
    let query = |n: usize| match wire::Message::parse(&sent[n][20..]).unwrap().header {
        Header::EchoRequest(query) => query,
        other => panic!("{other}"),
    };
    assert_ne!(query(0).id, query(1).id);
    assert_eq!(query(0).id, query(2).id);
    let numbers = [query(0).sequence, query(1).sequence, query(2).sequence];
    assert_eq!(numbers, [1, 1, 2]);
    a.inject(&packet(
        B,
        A,
        1,
        &message(Header::EchoReply(query(1)), b"theirs"),
    ));
    assert_eq!(octets(&other.take_received()[0].message), b"theirs");
    assert!(a.pinger.take_received().is_empty());
    // From somebody else, or after the close, it is nobody's.
    a.inject(&packet(
        FAR,
        A,
        1,
        &message(Header::EchoReply(query(1)), b""),
    ));
    theirs.close(&a.cx);
    a.inject(&packet(B, A, 1, &message(Header::EchoReply(query(1)), b"")));
    assert_eq!(a.dropped(&reasons::UNMATCHED_REPLY), 2);
    mine.close(&a.cx);
    assert!(!mine.head().is_closed());
    mine.close(&a.cx);
    assert!(mine.head().is_closed() && a.lower.held().is_empty());
}

#[test]
fn pinging_ourselves_works() {
    let a = Host::simple(A);
    for peer in [A, Ipv4Addr::new(127, 0, 0, 1)] {
        let session = a.open(peer);
        a.push(&session, b"me");
        while a.cx.run_due() > 0 {}
        assert_eq!(octets(&a.pinger.take_received()[0].message), b"me");
    }
    assert!(a.sent().is_empty());
}

#[test]
fn a_broadcast_ping_is_answered_only_if_wanted() {
    let request = message(Header::EchoRequest(Query { id: 1, sequence: 1 }), b"all");
    for (wanted, dst) in [
        (false, Ipv4Addr::BROADCAST),
        (false, Ipv4Addr::new(10, 0, 0, 255)),
        (false, Ipv4Addr::new(224, 0, 0, 1)),
        (true, Ipv4Addr::new(10, 0, 0, 255)),
    ] {
        let mut params = Params::default();
        params.set("broadcast_echo", Value::Bool(wanted));
        let host = Host::new(A, Params::default(), params);
        host.inject(&packet(B, dst, 1, &request));
        host.inject(&packet(B, dst, 1, &request));
        let sent = host.sent();
        assert_eq!(sent.len(), if wanted { 2 } else { 0 });
        assert_eq!(
            host.dropped(&reasons::BROADCAST),
            if wanted { 0 } else { 2 }
        );
        assert!(sent.iter().all(|p| p[12..16] == A.octets()));
    }
}

#[test]
fn time_stamps_are_answered_if_wanted() {
    let times = wire::Times {
        originate_ms: 77,
        receive_ms: 0,
        transmit_ms: 0,
    };
    let mut body = [0; wire::TIMES_LEN];
    times.emit(&mut body);
    let query = Query { id: 5, sequence: 6 };
    let request = message(Header::TimestampRequest(query), &body);
    let plain = Host::simple(A);
    plain.inject(&packet(B, A, 1, &request));
    assert_eq!(plain.dropped(&reasons::IGNORED), 1);
    let mut params = Params::default();
    params.set("timestamp", Value::Bool(true));
    let host = Host::new(A, Params::default(), params);
    host.cx.advance(core::time::Duration::from_millis(9));
    host.inject(&packet(B, A, 1, &request));
    let (_, _, reply) = told(&host);
    let reply = wire::Message::parse(&reply).unwrap();
    assert_eq!(reply.header, Header::TimestampReply(query));
    let times = reply.times().unwrap();
    assert_eq!(times.originate_ms, 77);
    assert_eq!(
        (times.receive_ms, times.transmit_ms),
        (0x8000_0009, 0x8000_0009)
    );
    let mut bad = request.clone();
    bad[19] ^= 1;
    host.inject(&packet(B, A, 1, &bad));
    assert_eq!(host.dropped(&reason::BAD_CHECKSUM), 1);
    host.inject(&packet(
        B,
        A,
        1,
        &message(Header::TimestampRequest(query), &[0; 4]),
    ));
    assert_eq!(host.dropped(&reason::TRUNCATED), 1);
}

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
    assert_eq!(
        ask(&packet(B, A, 1, &message(query, b"")), false),
        1,
        "a query is no error"
    );
    assert_eq!(
        ask(&packet(B, A, 1, b""), false),
        0,
        "who knows what that was"
    );
    let mut later = plain.clone();
    later[7] = 1;
    mend(&mut later);
    assert_eq!(ask(&later, false), 0);
    for source in [
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255; 4],
    ] {
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
    for n in 0..100 {
        host.inject(&packet(
            Ipv4Addr::new(10, 0, 0, 100 + n),
            A,
            17,
            b"12345678",
        ));
    }
    assert_eq!(host.sent().len(), 2);
}

fn error_about(host: &Host, header: Header, reporter: Ipv4Addr, sent: &[u8]) {
    host.inject(&packet(reporter, A, 1, &message(header, sent)));
}

#[test]
fn every_error_reaches_who_has_sent_the_packet() {
    let a = Host::simple(A);
    let pair = Participants::pair(Part::Any, Part::Host(FAR));
    let session = a.top.open(&a.cx, &a.ip, pair).unwrap();
    a.push(&session, b"0123456789abcdefgh");
    let sent = a.sent().remove(0);
    for (header, kind) in [
        (
            Header::Unreachable(Unreachable::Net),
            NetworkErrorKind::HostUnreachable,
        ),
        (
            Header::Unreachable(Unreachable::Host),
            NetworkErrorKind::HostUnreachable,
        ),
        (
            Header::Unreachable(Unreachable::Protocol),
            NetworkErrorKind::ProtocolUnreachable,
        ),
        (
            Header::Unreachable(Unreachable::Port),
            NetworkErrorKind::PortUnreachable,
        ),
        (
            Header::Unreachable(Unreachable::Prohibited),
            NetworkErrorKind::Prohibited,
        ),
        (
            Header::TimeExceeded(TimeExceeded::Transit),
            NetworkErrorKind::TimeExceeded,
        ),
        (
            Header::TimeExceeded(TimeExceeded::Reassembly),
            NetworkErrorKind::ReassemblyTimeExceeded,
        ),
        (
            Header::ParameterProblem(wire::ParameterProblem::Pointer(3)),
            NetworkErrorKind::ParameterProblem,
        ),
        (
            Header::Unreachable(Unreachable::FragmentationNeeded(
                core::num::NonZeroU16::new(1280),
            )),
            NetworkErrorKind::PacketTooBig { mtu: 1280 },
        ),
    ] {
        error_about(&a, header, B, &sent);
        let errors = a.top.take_errors();
        assert_eq!(errors.len(), 1, "{header}");
        assert_eq!((errors[0].kind, errors[0].reporter), (kind, Some(B)));
        assert_eq!(errors[0].session.as_ref(), Some(&session));
        assert_eq!(
            (&errors[0].start, errors[0].start_len),
            (b"0123456789abcdef", 16)
        );
    }
    assert_eq!(
        session.ask(&a.cx, OptPacket::default()).unwrap().octets,
        1260
    );
    error_about(&a, Header::Unreachable(Unreachable::Port), FAR, &sent[..28]);
    let errors = a.top.take_errors();
    assert_eq!((errors[0].reporter, errors[0].start_len), (None, 8));
    assert_eq!(a.figures().errors_received, 10);
}

#[test]
fn errors_that_nobody_can_use_are_dropped() {
    let a = Host::simple(A);
    let pair = Participants::pair(Part::Any, Part::Host(FAR));
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
    assert_eq!(
        (&errors[0].start[..8], errors[0].start_len),
        (&b"payload "[..], 8)
    );
    // A host that has no such protocol: from refusal to report.
    let pair = Participants::pair(Part::Any, Part::Host(B));
    let udp = a.top.open(&a.cx, &a.ip, pair).unwrap();
    b.top.refuse(Some(&reason::NO_PORT));
    a.push(&udp, b"to a port that nobody has");
    exchange(&a, &b);
    let errors = a.top.take_errors();
    assert_eq!(errors[0].kind, NetworkErrorKind::PortUnreachable);
    assert_eq!(
        (&errors[0].start, errors[0].reporter),
        (b"to a port that n", None)
    );
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
    assert_eq!(
        error.header,
        Header::Unreachable(Unreachable::SourceRouteFailed)
    );
    host.inject(&with([1, 7, 7, 3, 0, 0, 0, 0]));
    let (.., error) = told(&host);
    let error = wire::Message::parse(&error).unwrap();
    let pointer = wire::ParameterProblem::Pointer(23);
    assert_eq!(error.header, Header::ParameterProblem(pointer));
}

#[test]
fn stopping_leaves_nothing() {
    let a = Host::simple(A);
    let session = a.open(B);
    a.push(&session, b"x");
    a.top.refuse(Some(&reason::NO_PORT));
    a.inject(&packet(B, A, 17, b"12345678"));
    drop((session, a.sent()));
    let question = RegisterErrorProtocol {
        protocol: a.icmp.clone(),
    };
    assert!(a.ip.ask(&a.cx, question).is_some());
    a.cx.stop();
    assert_eq!(a.cx.live(), (0, 0));
}

/// Steps for the fuzz target: messages of all types, errors that quote, packets that were refused.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let quoted = proptest::collection::vec(any::<u8>(), 0..20)
        .prop_map(|payload| packet(A, B, [1, 17][payload.len() % 2], &payload));
    let body = prop_oneof![
        quoted.clone(),
        proptest::collection::vec(any::<u8>(), 0..20)
    ];
    let kind = prop_oneof![Just(0u8), Just(3), Just(8), Just(11), Just(13), any::<u8>()];
    let message =
        (0u8..2, kind, 0u8..5, any::<u32>(), body).prop_map(|(what, kind, code, rest, body)| {
            let message = [&[kind, code, 0, 0][..], &rest.to_be_bytes(), &body].concat();
            [vec![what, message.len() as u8], message].concat()
        });
    let refused = (any::<bool>(), quoted).prop_map(|(cast, packet)| {
        [vec![2 | u8::from(cast) << 2, packet.len() as u8], packet].concat()
    });
    let noise = proptest::collection::vec(any::<u8>(), 0..60);
    prop_oneof![4 => message, 2 => refused, 1 => noise, 1 => Just(vec![3, 0])]
}

proptest! {
    #[test]
    fn fuzz_stack(steps in proptest::collection::vec(step(), 0..60)) {
        xk_icmp::fuzz::fuzz_stack(&steps.concat());
    }
}
