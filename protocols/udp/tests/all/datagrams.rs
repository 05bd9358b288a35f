//! Datagrams between a host below and protocols above: sent, delivered, refused, reported.

use crate::udp;
use core::net::Ipv4Addr;
use core::time::Duration;
use etherparse::UdpHeader;
use std::str::FromStr;
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::participant::AddressError;
use xk_core::{HostAddr, Kernel, Message, Part, Participants, ProtocolRef, SessionRef, reason};
use xk_kit::control::{
    MaxPacket, MyHost, MyPort, NetworkError, NetworkErrorKind, OptPacket, PeerHost, PeerPort, Start,
};
use xk_kit::net::attribute::{LinkCast, Peer};
use xk_testkit::kernel::{Bottom, Event, Family, Lower, Task, TestKernel, Top, octets};
use xk_udp::wire::HEADER_LEN;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

struct Net {
    cx: TestKernel,
    ip: Bottom,
    udp: ProtocolRef,
    top: Top,
}

impl Net {
    fn new() -> Self {
        Self::with(Lower::host(OWN, 17), 8, true)
    }

    fn with(lower: Lower, sessions_max: usize, checksum: bool) -> Self {
        Self::on(TestKernel::new(7), lower, sessions_max, checksum)
    }

    fn on(cx: TestKernel, lower: Lower, sessions_max: usize, checksum: bool) -> Self {
        let ip = Bottom::add(&cx, "ip", lower);
        let udp = udp(&cx, &ip, sessions_max, checksum);
        let top = Top::add(&cx, "top");
        cx.start().unwrap();
        Self { cx, ip, udp, top }
    }

    fn open(&self, text: &str) -> Result<SessionRef, OpenError> {
        let participants = Participants::from_str(text).unwrap();
        self.top.open(&self.cx, &self.udp, participants)
    }

    fn enable(&self, text: &str) -> Result<xk_core::object::Enable, OpenError> {
        let participants = Participants::from_str(text).unwrap();
        self.top.enable(&self.cx, &self.udp, participants)
    }

    /// A datagram from a peer to us.
    fn datagram(&self, peer: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Message {
        self.cx.message(&frame(peer, OWN, ports, payload))
    }

    fn inject(&self, ports: (u16, u16), payload: &[u8]) -> bool {
        let message = self.datagram(PEER, ports, payload);
        self.ip.inject(&self.cx, Some(Part::host(PEER)), message)
    }

    fn drops(&self, reason: &xk_core::Reason) -> u64 {
        self.udp.head().drops().of(reason)
    }
}

fn frame(
    src: impl Into<HostAddr>,
    dst: impl Into<HostAddr>,
    ports: (u16, u16),
    payload: &[u8],
) -> Vec<u8> {
    let header = UdpHeader::without_ipv4_checksum(ports.0, ports.1, payload.len()).unwrap();
    let (src, dst) = (src.into(), dst.into());
    let sum = match (src.to_v4(), dst.to_v4()) {
        (Some(src), Some(dst)) => {
            header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), payload)
        }
        _ => header.calc_checksum_ipv6_raw(src.to_parts().0, dst.to_parts().0, payload),
    };
    let header = UdpHeader { checksum: sum.unwrap(), ..header };
    [&header.to_bytes()[..], payload].concat()
}

#[test]
fn what_is_pushed_is_a_right_datagram() {
    let net = Net::new();
    let session = net.open("port5000, port7@10.0.0.2").unwrap();
    for len in [0, 1, 2, 63, 64, 1000, 8191] {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        session.push(&net.cx, net.cx.message(&payload)).unwrap();
        let sent = net.ip.take_sent();
        let octets = octets(&sent[0].message);
        assert_eq!(octets, frame(OWN, PEER, (5000, 7), &payload));
    }
    // In several slices of odd length.
    let mut message = net.cx.message(b"abc");
    message.join(net.cx.message(b"d"));
    message.join(net.cx.message(b"efghi"));
    session.push(&net.cx, message).unwrap();
    let sent = octets(&net.ip.take_sent()[0].message);
    assert_eq!(sent, frame(OWN, PEER, (5000, 7), b"abcdefghi"));
}

#[test]
fn checksums_can_be_left_out() {
    let net = Net::with(Lower::host(OWN, 17), 8, false);
    let session = net.open("*, port7@10.0.0.2").unwrap();
    session.push(&net.cx, net.cx.message(b"x")).unwrap();
    let sent = octets(&net.ip.take_sent()[0].message);
    assert_eq!(sent[6..8], [0, 0]);
    // On a link without addresses there is nothing to sum.
    let net = Net::with(Lower::link(1000), 8, true);
    let session = net.open("*, port7").unwrap();
    session.push(&net.cx, net.cx.message(b"x")).unwrap();
    let sent = octets(&net.ip.take_sent()[0].message);
    assert_eq!(sent[6..8], [0, 0]);
    assert_eq!(session.ask(&net.cx, MaxPacket::default()).unwrap().octets, 992);
}

#[test]
fn an_enable_gets_a_session_for_each_peer() {
    let net = Net::new();
    let enable = net.enable("port7").unwrap();
    assert_eq!(net.enable("port7@*"), Err(OpenError::InUse));
    assert!(net.inject((5000, 7), b"hello"));
    assert!(net.inject((5000, 7), b"again"));
    assert!(net.inject((5001, 7), b"other"));
    let events = net.top.take_events();
    let [Event::OpenDone(a), Event::Demux(b, 5), Event::Demux(c, 5), Event::OpenDone(d), _] =
        events[..]
    else {
        panic!("{events:?}");
    };
    assert!(a == b && b == c && c != d);
    let (session, participants) = net.top.take_opened().swap_remove(0);
    assert_eq!(participants.to_string(), "port7@10.0.0.1, port5000@10.0.0.2");
    assert_eq!(octets(&net.top.take_received()[0].message), b"hello");
    session.push(&net.cx, net.cx.message(b"reply")).unwrap();
    let sent = octets(&net.ip.take_sent()[0].message);
    assert_eq!(sent, frame(OWN, PEER, (7, 5000), b"reply"));
    net.udp.open_disable(&net.cx, enable);
    assert!(net.inject((5000, 7), b"the session lives on"));
    assert!(!net.inject((5009, 7), b"but no new one is made"));
    assert_eq!(net.drops(&reason::NO_PORT), 1);
}

#[test]
fn sessions_answer_for_themselves() {
    let net = Net::new();
    let session = net.open("port5000@10.0.0.1, port7@10.0.0.2").unwrap();
    assert_eq!(session, net.open("port5000, port7@10.0.0.2").unwrap());
    assert_eq!((session.head().opens(), net.ip.held()[0].head().opens()), (2, 1));
    let cx = &net.cx;
    assert_eq!(session.ask(cx, MyPort::default()).unwrap().port, 5000);
    assert_eq!(session.ask(cx, PeerPort::default()).unwrap().port, 7);
    assert_eq!(session.ask(cx, MaxPacket::default()).unwrap().octets, 65507);
    assert_eq!(session.ask(cx, OptPacket::default()).unwrap().octets, 1472);
    assert_eq!(net.udp.ask(cx, MaxPacket::default()).unwrap().octets, 65507);
    assert_eq!(session.ask(cx, MyHost::default()).unwrap().host, OWN);
    assert_eq!(session.ask(cx, PeerHost::default()).unwrap().host, PEER);
    let big = cx.message(&[0; 65508]);
    assert_eq!(session.push(cx, big), Err(PushError::TooBig));
    assert_eq!(net.drops(&reason::TOO_BIG), 1);
    let other = Top::add(cx, "other");
    let participants = Participants::from_str("port5000, port7@10.0.0.2").unwrap();
    assert_eq!(other.open(cx, &net.udp, participants), Err(OpenError::InUse));
    session.close(cx);
    session.close(cx);
    assert!(session.head().is_closed() && net.ip.held().is_empty());
}

#[test]
fn participants_that_do_not_fit_are_errors() {
    let net = Net::new();
    let error = |text| net.open(text).unwrap_err();
    let address = OpenError::Address;
    assert_eq!(error("port0, port7@10.0.0.2"), address(AddressError::OutOfRange));
    assert_eq!(error("*, port0@10.0.0.2"), address(AddressError::OutOfRange));
    assert_eq!(error("*, *@10.0.0.2"), address(AddressError::Wildcard));
    assert_eq!(error("*, 10.0.0.2"), address(AddressError::WrongFamily));
    assert_eq!(error("*"), address(AddressError::Count));
    assert_eq!(net.enable("*").unwrap_err(), address(AddressError::Wildcard));
    assert_eq!(net.ip.held().len(), 0, "nothing is left open below");
}

#[test]
fn ephemeral_ports_are_unique_per_peer() {
    let net = Net::with(Lower::host(OWN, 17), 300, true);
    let mut ports: Vec<u16> = (0..200)
        .map(|_| {
            let session = net.open("*@*, port7@10.0.0.2").unwrap();
            session.ask(&net.cx, MyPort::default()).unwrap().port
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 200);
    assert!(ports[0] >= 49152);
}

#[test]
fn bad_datagrams_are_counted_by_reason() {
    let net = Net::new();
    let _ = net.enable("port7").unwrap();
    let good = frame(PEER, OWN, (5000, 7), b"12345678");
    let inject = |octets: &[u8]| {
        let message = net.cx.message(octets);
        net.ip.inject(&net.cx, Some(Part::host(PEER)), message)
    };
    for connected in [false, true] {
        for len in 0..good.len() {
            assert!(!inject(&good[..len]));
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!inject(&bad), "bit {bit} while connected is {connected}");
        }
        assert!(inject(&good));
    }
    let drops = net.udp.head().drops();
    assert_eq!(drops.of(&reason::TRUNCATED), 2 * 8);
    assert_eq!(drops.total(), 2 * 9 * good.len() as u64);
    assert_eq!((net.top.received(), net.udp.head().received()), (2, drops.total() + 2));
    // Octets behind the end are cut off; no checksum is a right one.
    assert!(inject(&[&good[..], b"padding"].concat()));
    let mut plain = good.clone();
    plain[6..8].fill(0);
    assert!(inject(&plain));
    let received = net.top.take_received();
    assert!(received.iter().all(|r| r.message.eq_octets(b"12345678")));
    let mut nowhere = plain;
    nowhere[2..4].fill(0);
    assert!(!inject(&nowhere));
    assert_eq!(drops.of(&reason::MALFORMED), 1);
}

#[test]
fn a_datagram_in_pieces_is_the_same() {
    let net = Net::new();
    let _ = net.enable("port7").unwrap();
    let whole = frame(PEER, OWN, (5000, 7), b"payload");
    for cut in 1..whole.len() {
        let mut message = net.cx.message(&whole[..cut]);
        message.join(net.cx.message(&whole[cut..]));
        assert!(net.ip.inject(&net.cx, Some(Part::host(PEER)), message));
        assert!(net.top.take_received()[0].message.eq_octets(b"payload"));
    }
}

#[test]
fn refusals_carry_the_header() {
    let net = Net::new();
    let whole = frame(PEER, OWN, (5000, 7), b"payload");
    let refused = || {
        let message = net.cx.message(&whole);
        let peer = Some(Part::host(PEER));
        net.ip.inject_for(&net.cx, peer, net.udp.id(), message)
    };
    let nobody = refused().unwrap_err();
    assert_eq!(nobody.reason, &reason::NO_PORT);
    assert!(nobody.message.eq_octets(&whole));
    let _ = net.enable("port7").unwrap();
    net.top.refuse_open(Some(&reason::PROHIBITED));
    assert!(refused().unwrap_err().message.eq_octets(&whole));
    net.top.refuse_open(None);
    net.top.refuse(Some(&reason::PROHIBITED));
    let unwanted = refused().unwrap_err();
    assert_eq!(unwanted.reason, &reason::PROHIBITED);
    assert!(unwanted.message.eq_octets(&whole));
    let mut broadcast = net.datagram(PEER, (5000, 9), b"x");
    broadcast.set_attribute(LinkCast::Broadcast).unwrap();
    assert!(net.ip.inject(&net.cx, Some(Part::host(PEER)), broadcast), "dropped, not refused");
    assert_eq!(net.drops(&reason::NO_PORT), 2);
}

#[test]
fn an_unconnected_session_talks_with_everybody() {
    let net = Net::new();
    let session = net.open("port53, *").unwrap();
    assert_eq!(session, net.open("port53@*, *@*").unwrap());
    session.close(&net.cx);
    let host = |n| Ipv4Addr::new(10, 0, 1, n);
    for n in 1..=100 {
        let message = net.datagram(host(n), (1000, 53), &[n]);
        assert!(net.ip.inject(&net.cx, Some(Part::host(host(n))), message));
    }
    for (received, n) in net.top.take_received().into_iter().zip(1..) {
        assert_eq!(received.session, session);
        let peer = received.message.attribute::<Peer>().unwrap();
        assert_eq!((peer.host, peer.port), (host(n).into(), 1000));
        session.push(&net.cx, received.message).unwrap();
        let sent = &net.ip.take_sent()[0];
        assert_eq!(sent.peer, Some(Part::host(host(n))));
        assert!(sent.message.eq_octets(&frame(OWN, host(n), (53, 1000), &[n])));
    }
    assert_eq!(net.ip.held().len(), xk_udp::PEERS_MAX);
    let nowhere = net.cx.message(b"x");
    assert_eq!(session.push(&net.cx, nowhere), Err(PushError::NotSupported));
    // A peer with a session of its own is not heard here.
    let own = net.open("port53, port1000@10.0.0.2").unwrap();
    assert!(net.inject((1000, 53), b"mine"));
    assert_eq!(net.top.take_received()[0].session, own);
    session.close(&net.cx);
    assert_eq!(net.ip.held().len(), 1);
    assert!(!net.inject((1001, 53), b"nobody"));
}

/// The session found for the last datagram gets the next one only if a search would find it again.
#[test]
fn a_datagram_goes_where_a_search_would_find() {
    let net = Net::new();
    let received = |ports| {
        let is_taken = net.inject(ports, b"x");
        let received = net.top.take_received().pop().map(|received| received.session);
        assert_eq!(received.is_some(), is_taken);
        received
    };
    let all = net.open("port53, *").unwrap();
    for _ in 0..2 {
        assert_eq!(received((1000, 53)).as_ref(), Some(&all));
    }
    let own = net.open("port53, port1000@10.0.0.2").unwrap();
    assert_eq!(received((1001, 53)).as_ref(), Some(&all));
    assert_eq!(received((1000, 53)).as_ref(), Some(&own));
    own.close(&net.cx);
    assert_eq!(received((1000, 53)).as_ref(), Some(&all));
    // A damaged one, a cut one, one to another port, one through another session.
    let mut damaged = frame(PEER, OWN, (1000, 53), b"x");
    damaged[8] ^= 1;
    let inject = |octets: &[u8], peer| {
        net.ip.inject(&net.cx, Some(Part::host(peer)), net.cx.message(octets))
    };
    assert!(!inject(&damaged, PEER));
    assert!(!inject(&frame(PEER, OWN, (1000, 53), b"x")[..8], PEER));
    assert_eq!([&reason::BAD_CHECKSUM, &reason::BAD_LENGTH].map(|why| net.drops(why)), [1, 1]);
    assert_eq!(received((1000, 54)), None);
    let other = Ipv4Addr::new(10, 0, 0, 3);
    assert!(inject(&frame(other, OWN, (1000, 53), b"x"), other));
    let peer = net.top.take_received()[0].message.attribute::<Peer>().unwrap();
    assert_eq!(peer.host, other);
    // A message that the link has cast for many may be for another receiver on that port.
    let mut cast = net.datagram(other, (1000, 53), b"x");
    cast.set_attribute(LinkCast::Broadcast).unwrap();
    assert!(net.ip.inject(&net.cx, Some(Part::host(other)), cast));
    assert_eq!(net.top.take_received()[0].session, all);
    all.close(&net.cx);
    assert_eq!(received((1000, 53)), None);
    let again = net.open("port53@10.0.0.1, *").unwrap();
    assert_eq!(received((1000, 53)).as_ref(), Some(&again));
    again.close(&net.cx);
    let _ = net.enable("port53").unwrap();
    let own = received((1000, 53)).unwrap();
    assert_eq!(own, net.open("port53, port1000@10.0.0.2").unwrap());
}

/// A stranger is told of a refusal that comes late through the session that its message came by;
/// nothing is opened to tell it.
#[test]
fn a_late_refusal_opens_nothing() {
    let net = Net::new();
    let session = net.open("port53, *").unwrap();
    let host = |n| Ipv4Addr::new(10, 0, 1, n);
    let mut taken = Vec::new();
    for n in 1..=100 {
        let message = net.datagram(host(n), (1000, 53), &[n]);
        assert!(net.ip.inject(&net.cx, Some(Part::host(host(n))), message));
        taken.extend(net.top.take_received());
    }
    let opens = net.ip.opens();
    for received in taken {
        session.refused(&net.cx, Refused::new(received.message, &reason::PROHIBITED));
    }
    assert_eq!(net.ip.opens(), opens);
    // The latest sixteen.
    let told: Vec<Vec<u8>> = net.ip.take_refused().into_iter().map(|(_, octets)| octets).collect();
    let latest = (85..=100).map(|n| frame(host(n), OWN, (1000, 53), &[n]));
    assert!(told.into_iter().eq(latest));
}

#[test]
fn what_is_sent_to_one_peer_at_one_time_opens_one_session_below() {
    for (seed, closes) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let net = Net::on(TestKernel::with_stacks(seed), Lower::host(OWN, 17), 8, true);
        let session = net.open("port53, *").unwrap();
        net.ip.block(Duration::from_millis(1));
        let task = |n: u8| {
            let session = session.clone();
            Box::new(move |cx: &Kernel| {
                let mut message = cx.pool().copy_from(64, &[n]).unwrap();
                message.set_attribute(Peer { host: PEER.into(), port: 1000 }).unwrap();
                let sent = session.push(cx, message);
                assert!(sent == Ok(()) || closes && sent == Err(PushError::Closed), "{sent:?}");
                if closes && n == 0 {
                    session.close(cx);
                }
            }) as Task
        };
        let all = (0..4).map(task).collect();
        assert!(net.cx.run_tasks(Duration::from_secs(1), all, |_| 0), "seed {seed}: all ends");
        let holds = |net: &Net| net.ip.held().iter().map(|s| s.head().opens()).sum::<u32>();
        if !closes {
            assert_eq!(net.ip.take_sent().len(), 4, "seed {seed}: all of them are sent");
            assert_eq!(holds(&net), 1, "seed {seed}: they share one session below");
            net.ip.block(Duration::ZERO);
            session.close(&net.cx);
        }
        assert_eq!(holds(&net), 0, "seed {seed}: a session that is closed holds nothing below");
    }
}

#[test]
fn many_hosts_answer_one_session() {
    let net = Net::new();
    for to in [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 1, 7)] {
        let session = net.open(&format!("port53, port111@{to}")).unwrap();
        let peer = session.ask(&net.cx, PeerHost::default()).unwrap().host;
        let port = session.ask(&net.cx, PeerPort::default()).unwrap().port;
        assert_eq!((peer, port), (to.into(), 111));
        session.push(&net.cx, net.cx.message(b"who?")).unwrap();
        let sent = &net.ip.take_sent()[0];
        assert_eq!(sent.peer, Some(Part::host(to)));
        assert!(sent.message.eq_octets(&frame(OWN, to, (53, 111), b"who?")));
        for n in 2..5 {
            let host = Ipv4Addr::new(10, 0, 0, n);
            let message = net.datagram(host, (111, 53), &[n]);
            assert!(net.ip.inject(&net.cx, Some(Part::host(host)), message));
            let received = net.top.take_received().swap_remove(0);
            assert_eq!(received.session, session);
            let from = received.message.attribute::<Peer>().unwrap();
            assert_eq!((from.host, from.port), (host.into(), 111));
        }
        // Again for this one, and the port for no other.
        assert_eq!(net.open(&format!("port53, port111@{to}")).unwrap(), session);
        let other = net.open(&format!("port53, port112@{to}"));
        assert_eq!(other, Err(OpenError::InUse));
        session.close(&net.cx);
        session.close(&net.cx);
        assert_eq!(net.ip.held().len(), 0);
        assert!(!net.inject((111, 53), b"nobody"));
    }
    let taken = Top::add(&net.cx, "other");
    let at = Participants::from_str("port53").unwrap();
    let _ = taken.enable(&net.cx, &net.udp, at).unwrap();
    let opened = net.open("port53, port111@255.255.255.255");
    assert_eq!(opened, Err(OpenError::InUse));
    assert_eq!(net.ip.held().len(), 0);
}

#[test]
fn a_session_with_several_peers_hears_them_and_no_others() {
    let net = Net::new();
    let both = "port53, port7@10.0.0.2, port9@10.0.0.3";
    let session = net.open(both).unwrap();
    assert_eq!(net.ip.held().len(), 2, "both are opened at once");
    session.push(&net.cx, net.cx.message(b"to both")).unwrap();
    let sent = |sent: xk_testkit::kernel::Sent| (sent.peer, octets(&sent.message));
    let mut all: Vec<_> = net.ip.take_sent().into_iter().map(sent).collect();
    all.sort_by_key(|(_, octets)| octets[3]);
    let peers = [([10, 0, 0, 2], 7), ([10, 0, 0, 3], 9)];
    for ((peer, octets), (host, port)) in all.iter().zip(peers) {
        assert_eq!(*peer, Some(Part::host(host)));
        assert_eq!(*octets, frame(OWN, host, (53, port), b"to both"));
    }
    // An answer names its sender, and what goes to that alone names it, too.
    let mut message = net.cx.message(b"to one");
    message.set_attribute(Peer { host: peers[1].0.into(), port: 9 }).unwrap();
    session.push(&net.cx, message).unwrap();
    assert_eq!(net.ip.take_sent().len(), 1);
    let inject = |host: [u8; 4], port: u16| {
        let message = net.datagram(host.into(), (port, 53), b"x");
        net.ip.inject(&net.cx, Some(Part::host(host)), message)
    };
    for (host, port) in peers {
        assert!(inject(host, port));
        let received = net.top.take_received().swap_remove(0);
        let from = received.message.attribute::<Peer>().unwrap();
        assert_eq!((received.session, from), (session.clone(), Peer { host: host.into(), port }));
    }
    for (host, port) in [([10, 0, 0, 2], 9), ([10, 0, 0, 4], 7)] {
        assert!(!inject(host, port), "{host:?} is no peer of it");
    }
    assert_eq!((net.top.received(), net.drops(&reason::NO_PORT)), (2, 2));
    // In any order it is the same session; other peers at this port are not.
    assert_eq!(net.open("port53, port9@10.0.0.3, port7@10.0.0.2").unwrap(), session);
    let other = net.open("port53, port7@10.0.0.2, port9@10.0.0.4");
    assert_eq!(other, Err(OpenError::InUse));
    for text in ["port54, port7, port9", "port54, port7@10.0.0.2, *@10.0.0.3"] {
        assert!(matches!(net.open(text), Err(OpenError::Address(_))), "{text}");
    }
    session.close(&net.cx);
    session.close(&net.cx);
    assert_eq!(net.ip.held().len(), 0);
}

#[test]
fn a_local_host_comes_before_any() {
    let net = Net::new();
    let _ = net.enable("port7").unwrap();
    let other = Top::add(&net.cx, "other");
    let participants = Participants::from_str("port7@10.0.0.1").unwrap();
    let _ = other.enable(&net.cx, &net.udp, participants).unwrap();
    assert!(net.inject((5000, 7), b"x"));
    assert_eq!((other.received(), net.top.received()), (1, 0));
}

#[test]
fn errors_of_the_network_find_their_session() {
    let net = Net::new();
    let session = net.open("port5000, port7@10.0.0.2").unwrap();
    session.push(&net.cx, net.cx.message(b"payload!")).unwrap();
    let sent = net.ip.take_sent().swap_remove(0);
    let start = Start::of(&sent.message);
    let error = |session: &SessionRef, start| NetworkError {
        session: Some(session.clone()),
        start,
        ..NetworkError::new(NetworkErrorKind::PortUnreachable)
    };
    assert!(net.udp.ask(&net.cx, error(&sent.session, start)).is_some());
    let reported = net.top.take_errors().swap_remove(0);
    assert_eq!(reported.session.as_ref(), Some(&session));
    assert_eq!(*reported.start, *b"payload!");
    let push = || session.push(&net.cx, net.cx.message(b"x"));
    assert_eq!((push(), push()), (Err(PushError::Unreachable), Ok(())));
    // What was not sent from here, and what came back from above.
    assert!(net.udp.ask(&net.cx, error(&sent.session, Start::new(&[9; 16]))).is_none());
    assert!(net.udp.ask(&net.cx, error(&session, start)).is_none());
    let short = error(&sent.session, Start::new(&start[..HEADER_LEN - 1]));
    assert!(net.udp.ask(&net.cx, short).is_none());
}

#[test]
fn sessions_are_bounded_and_nothing_is_left() {
    let net = Net::new();
    let _ = net.enable("port7").unwrap();
    net.top.forget(true);
    for n in 0..10_000u16 {
        assert!(net.inject((1 + n, 7), b"flood"));
    }
    let list = xk_core::control::ListSessions::first(100);
    // All but the last quarter, which is for other networks.
    assert_eq!(net.udp.ask(&net.cx, list).unwrap().total, 6);
    // They have no holder, so none holds the session below.
    assert_eq!(net.ip.held().len(), 0);
    assert!(net.inject((0, 7), b"no reply wanted"));
    net.top.forget(false);
    assert!(net.inject((0, 7), b"no reply wanted"));
    let quiet = net.top.take_received().swap_remove(0).session;
    let reply = quiet.push(&net.cx, net.cx.message(b"x"));
    assert_eq!(reply, Err(PushError::NotSupported));
    net.cx.stop();
    drop(quiet);
    assert_eq!(net.cx.live(), (0, 0));
}

#[test]
fn a_session_holds_the_one_below_while_somebody_holds_it() {
    let net = Net::new();
    let _ = net.enable("port7").unwrap();
    assert!(net.inject((9, 7), b"first"));
    assert_eq!(net.ip.held().len(), 0);
    // Opened as well, it has a holder, and so has the one below.
    let session = net.open("port7, port9@10.0.0.2").unwrap();
    assert!(session.head().is_passive());
    let below = net.ip.held();
    assert_eq!((below.len(), below[0].head().opens()), (1, 1));
    let again = net.open("port7, port9@10.0.0.2").unwrap();
    assert_eq!(below[0].head().opens(), 1);
    again.close(&net.cx);
    assert!(!session.head().is_closed());
    session.close(&net.cx);
    assert_eq!((net.ip.held().len(), below[0].head().opens()), (0, 0));
}

/// An unconnected session tells peers of IPv6 apart by their scope, too, and every datagram of its
/// has a checksum, though the graph wants none (RFC 8200, section 8.1).
#[test]
fn hosts_of_ipv6_are_peers_as_others_are() {
    let own = Family::V6.host(1);
    let net = Net::with(Lower::host(own, 17), 8, false);
    let session = net.open("port53, *").unwrap();
    let link = |scope| HostAddr::v6("fe80::9".parse().unwrap(), scope);
    let global = "2001:db8::9".parse().unwrap();
    for host in [link(1), link(2), global] {
        let message = net.cx.message(&frame(host, own, (1000, 53), b"ask"));
        assert!(net.ip.inject(&net.cx, Some(Part::Host(host)), message));
        let received = net.top.take_received().pop().unwrap();
        assert_eq!(received.message.attribute(), Some(Peer { host, port: 1000 }));
        session.push(&net.cx, received.message).unwrap();
        let sent = net.ip.take_sent().pop().unwrap();
        assert_eq!(sent.peer, Some(Part::Host(host)));
        let octets = octets(&sent.message);
        assert_eq!(octets, frame(own, host, (53, 1000), b"ask"));
    }
    let mut octets = frame(global, own, (1000, 53), b"ask");
    octets[6..8].fill(0);
    assert!(!net.ip.inject(&net.cx, Some(Part::Host(global)), net.cx.message(&octets)));
    assert_eq!(net.drops(&reason::BAD_CHECKSUM), 1);
    // The same on a session with one peer.
    let text = "port54, port1000@[2001:db8::9]";
    let connected = net.open(text).unwrap();
    assert_eq!(connected.ask(&net.cx, PeerHost::default()).unwrap().host, global);
    octets[2..4].copy_from_slice(&54u16.to_be_bytes());
    assert!(!net.ip.inject(&net.cx, Some(Part::Host(global)), net.cx.message(&octets)));
    assert_eq!(net.drops(&reason::BAD_CHECKSUM), 2);
    let served = net.enable(&format!("port55@[{own}]")).unwrap();
    let message = net.cx.message(&frame(global, own, (1000, 55), b"ask"));
    assert!(net.ip.inject(&net.cx, Some(Part::Host(global)), message));
    assert!(net.enable(&format!("port55@[{own}]")).is_err(), "it is taken");
    net.udp.open_disable(&net.cx, served);
    assert!(net.enable(&format!("port55@[{own}]")).is_ok());
}

#[test]
fn a_datagram_to_a_group_goes_to_all_that_want_it() {
    use xk_core::Answer;
    use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, Membership};
    let group = HostAddr::from([239, 1, 2, 3]);
    let net = Net::new();
    // Number of joins that the layer below has.
    let joins = std::rc::Rc::<core::cell::Cell<i32>>::default();
    let told = std::rc::Rc::clone(&joins);
    net.ip.on_ask(std::rc::Rc::new(move |_, ask| {
        let change = match (ask.get::<JoinHost>().is_some(), ask.get::<LeaveHost>().is_some()) {
            (false, false) => return Answer::Unknown,
            (is_joined, _) => 2 * i32::from(is_joined) - 1,
        };
        told.set(told.get() + change);
        Answer::Answered
    }));
    let any = net.open("port53, *").unwrap();
    let bound = net.open("port53@239.1.2.3, *").unwrap();
    let heard = |peer: Ipv4Addr| {
        let message = net.datagram(peer, (1000, 53), b"all");
        let host = Some(Part::host(peer));
        let cast = net.ip.inject_cast(&net.cx, host, group, message);
        assert!(cast.is_ok(), "dropped, not refused");
        let received = net.top.take_received();
        assert!(received.iter().all(|r| r.message.eq_octets(b"all")));
        [&any, &bound].map(|session| received.iter().filter(|r| r.session == *session).count())
    };
    let other = Ipv4Addr::new(10, 0, 0, 3);
    assert_eq!(heard(PEER), [1, 1], "neither has joined it, and the host has");
    let of = |sources: &[Ipv4Addr]| {
        let sources = sources.iter().map(|source| HostAddr::from(*source)).collect();
        let filter = Filter { excludes: false, sources };
        Membership { group, on: HostAddr::UNSPECIFIED, filter }
    };
    let join = |session: &SessionRef, membership: Membership| {
        session.ask(&net.cx, JoinHost { membership }).is_some()
    };
    assert!(join(&any, of(&[PEER])));
    assert_eq!([heard(PEER), heard(other)], [[1, 1], [0, 1]]);
    assert!(join(&bound, of(&[other])));
    assert_eq!([heard(PEER), heard(other)], [[1, 0], [0, 1]]);
    assert!(join(&any, of(&[other])) && joins.get() == 3);
    assert_eq!([heard(PEER), heard(other)], [[1, 0], [1, 1]]);
    let third = Ipv4Addr::new(10, 0, 0, 4);
    assert_eq!((heard(third), net.drops(&reason::NO_PORT)), ([0, 0], 1));
    let membership = of(&[PEER]);
    assert!(any.ask(&net.cx, LeaveHost { membership: membership.clone() }).is_some());
    assert!(any.ask(&net.cx, LeaveHost { membership }).is_none(), "it was taken back");
    assert_eq!([heard(PEER), heard(other)], [[0, 0], [1, 1]]);
    assert_eq!(joins.get(), 2);
    any.close(&net.cx);
    bound.close(&net.cx);
    assert_eq!(joins.get(), 0, "what is closed leaves");
}
