//! Both entries against sockets of the system, over the loopback interface: no privilege is needed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use xk_core::graph::{BuildError, Params, Value};
use xk_core::object::PushError;
use xk_core::reason::{self, Reason};
use xk_core::{Entry, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_kit::control::{MaxPacket, MyEther, MyHost, MyPort, NetworkErrorKind, OptPacket};
use xk_kit::net::attribute::Peer;
use xk_testkit::kernel::{Received, TestKernel, Top};

/// Time in which something that must come comes.
const STEP_TIME_MAX: Duration = Duration::from_secs(10);

/// A host of the loopback network that no other test has.
fn host() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let place = (std::process::id() & 0xfff) << 12;
    Ipv4Addr::from_bits(0x7f00_0000 | place | NEXT.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

fn socket() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((host(), 0)).unwrap();
    socket.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A wire in a kernel of its own, and what stands on it.
struct Stand {
    cx: TestKernel,
    wire: ProtocolRef,
    top: Top,
}

fn build(entry: &'static Entry, values: &[(&'static str, Value)]) -> Result<Stand, BuildError> {
    let mut params = Params::default();
    for (name, value) in values {
        params.set(name, value.clone());
    }
    let cx = TestKernel::new(1);
    let wire = entry.add(&cx, entry.kind, &[], &params)?;
    let top = Top::add(&cx, "top");
    cx.start().unwrap();
    Ok(Stand { cx, wire, top })
}

impl Stand {
    fn turn(&self) -> usize {
        let wire = self.wire.wire().unwrap();
        wire.flush(&self.cx, &self.wire);
        wire.poll(&self.cx, &self.wire, 64)
    }

    /// Turns until `done`, which must come.
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < STEP_TIME_MAX, "{what} does not come");
            if self.turn() == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn receive(&self, count: u64) -> Vec<Received> {
        let wanted = self.top.received() + count;
        self.until("a message", || self.top.received() >= wanted);
        self.top.take_received()
    }

    fn drops(&self, reason: &Reason) -> u64 {
        self.wire.head().drops().of(reason)
    }

    fn push(&self, session: &SessionRef, octets: &[u8]) -> Result<(), PushError> {
        session.push(&self.cx, self.cx.message(octets))
    }

    fn open(&self, local: Part, to: SocketAddr) -> SessionRef {
        let SocketAddr::V4(to) = to else {
            panic!("IPv4 is meant");
        };
        let peer = Participant::of(Part::host(*to.ip())).with(Part::port(to.port()));
        self.top.open(&self.cx, &self.wire, Participants::pair(local, peer)).unwrap()
    }

    fn address(&self, session: &SessionRef) -> SocketAddr {
        let host = session.ask(&self.cx, MyHost::default()).unwrap().host;
        let port = session.ask(&self.cx, MyPort::default()).unwrap().port;
        (host, port).into()
    }
}

fn udp(values: &[(&'static str, Value)]) -> Stand {
    build(&xk_host::UDP_ENTRY, values).unwrap()
}

#[test]
fn datagrams_of_all_sizes_go_and_come() {
    let stand = udp(&[]);
    let (peer, address) = socket();
    let session = stand.open(Part::Any, address);
    let max = session.ask(&stand.cx, MaxPacket::default()).unwrap().octets;
    let opt = session.ask(&stand.cx, OptPacket::default()).unwrap().octets;
    assert!(max == 65_507 && opt <= max, "{max} {opt}");
    let mut octets = vec![0; 70_000];
    for size in [0, 1, 1472, 1473, 1856, 1857, 9000, 65_507] {
        let given: Vec<u8> = (0..size).map(|at: u32| (at * 7 + at / 251) as u8).collect();
        stand.push(&session, &given).unwrap();
        stand.turn();
        let (count, from) = peer.recv_from(&mut octets).unwrap();
        assert_eq!(&octets[..count], given, "{size}");
        assert_eq!(from, stand.address(&session));
        peer.send_to(&given, from).unwrap();
        let got = stand.receive(1);
        assert!(got[0].message.eq_octets(&given), "{size}");
        assert_eq!(got[0].session, session);
    }
    assert_eq!(stand.push(&session, &vec![0; 65_508]), Err(PushError::TooBig));
    assert_eq!(stand.drops(&reason::TOO_BIG), 1);
}

#[test]
fn an_enable_answers_every_peer_from_the_host_it_spoke_to() {
    let stand = udp(&[]);
    let number = UdpSocket::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port();
    let port = Participants::local(Part::port(number));
    let _ = stand.top.enable(&stand.cx, &stand.wire, port).unwrap();
    stand.top.echo(true);
    for _ in 0..3 {
        let (peer, _) = socket();
        let ours = SocketAddr::from((host(), number));
        peer.send_to(b"who is there", ours).unwrap();
        let before = stand.top.received();
        stand.until("a message", || stand.top.received() > before);
        stand.turn();
        let mut octets = [0; 64];
        let (count, from) = peer.recv_from(&mut octets).unwrap();
        assert_eq!((&octets[..count], from), (&b"who is there"[..], ours));
    }
    assert_eq!(stand.top.take_opened().len(), 3);
}

#[test]
fn bursts_go_and_come_whole() {
    let (one, two) = (udp(&[]), udp(&[]));
    let number = UdpSocket::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port();
    let port = Participants::local(Part::port(number));
    let _ = two.top.enable(&two.cx, &two.wire, port).unwrap();
    let session = one.open(Part::Any, (host(), number).into());
    // Runs of one length with a shorter end, changes of length, and more than one batch.
    let sizes = [1000; 40].into_iter().chain([3, 1000, 1400, 1400, 0, 1400, 20, 20, 21]);
    let sent: Vec<Vec<u8>> =
        sizes.enumerate().map(|(at, size): (usize, usize)| vec![at as u8; size]).collect();
    for octets in &sent {
        one.push(&session, octets).unwrap();
    }
    one.turn();
    let got = two.receive(sent.len() as u64);
    assert_eq!(got.len(), sent.len());
    for (got, sent) in got.iter().zip(&sent) {
        assert!(got.message.eq_octets(sent), "{} octets", sent.len());
    }
}

#[test]
fn a_port_that_nobody_listens_on_is_told() {
    let stand = udp(&[]);
    let (peer, address) = socket();
    let session = stand.open(Part::Any, address);
    drop(peer);
    stand.push(&session, b"anybody there?").unwrap();
    let mut errors = Vec::new();
    stand.until("the error", || {
        errors.extend(stand.top.take_errors());
        !errors.is_empty()
    });
    let error = &errors[0];
    assert_eq!(error.kind, NetworkErrorKind::PortUnreachable);
    assert_eq!(error.session.as_ref(), Some(&session));
    assert_eq!(*error.start, b"anybody there?"[..]);
    assert_eq!(stand.drops(&xk_kit::net::ports::UNREACHABLE), 1);
    // The next push is told, once; when the peer is back, all is well.
    assert_eq!(stand.push(&session, b"again"), Err(PushError::Unreachable));
    let peer = UdpSocket::bind(address).unwrap();
    peer.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    stand.push(&session, b"now?").unwrap();
    stand.turn();
    assert_eq!(peer.recv(&mut [0; 64]).unwrap(), 4);
}

#[test]
fn an_unconnected_session_speaks_with_everybody() {
    let stand = udp(&[("local", text(host()))]);
    let everybody = Participants::pair(Part::Any, Part::Any);
    let session = stand.top.open(&stand.cx, &stand.wire, everybody).unwrap();
    let port = session.ask(&stand.cx, MyPort::default()).unwrap().port;
    let MyHost { host } = stand.wire.ask(&stand.cx, MyHost::default()).unwrap();
    for _ in 0..2 {
        let (peer, address) = socket();
        peer.send_to(b"ask", (IpAddr::from(host), port)).unwrap();
        let got = stand.receive(1).pop().unwrap();
        let from = got.message.attribute::<Peer>().unwrap();
        assert_eq!(SocketAddr::from((from.host, from.port)), address);
        let mut answer = stand.cx.message(b"answer");
        answer.set_attribute(from).unwrap();
        session.push(&stand.cx, answer).unwrap();
        stand.turn();
        let mut octets = [0; 64];
        let (count, by) = peer.recv_from(&mut octets).unwrap();
        assert_eq!((count, by), (6, (host, port).into()));
    }
    assert_eq!(stand.push(&session, b"to whom?"), Err(PushError::NotSupported));
}

#[test]
fn many_ports_are_all_served() {
    let stand = udp(&[("local", text(host()))]);
    let (peer, address) = socket();
    let sessions: Vec<_> = (0..40).map(|_| stand.open(Part::Any, address)).collect();
    for session in &sessions {
        peer.send_to(b"each", stand.address(session)).unwrap();
    }
    let got = stand.receive(40);
    for session in &sessions {
        let count = got.iter().filter(|got| got.session == *session).count();
        assert_eq!(count, 1);
        session.close(&stand.cx);
    }
    let full = udp(&[("ports_max", Value::Integer(2))]);
    let (_one, _two) = (full.open(Part::Any, address), full.open(Part::Any, address));
    let third = Participants::pair(
        Part::Any,
        Participant::of(Part::host(Ipv4Addr::LOCALHOST)).with(Part::port(9)),
    );
    assert!(full.top.open(&full.cx, &full.wire, third).is_err());
}

#[test]
fn what_the_socket_has_no_room_for_is_counted() {
    let stand = udp(&[("buffer", Value::Octets(8192))]);
    let (peer, address) = socket();
    let session = stand.open(Part::Any, address);
    let ours = stand.address(&session);
    for _ in 0..200 {
        peer.send_to(&[7; 1000], ours).unwrap();
    }
    let mut got = stand.receive(1).len() as u64;
    // A turn behind one that took some may put its look off.
    while stand.turn() + stand.turn() > 0 {
        got += stand.top.take_received().len() as u64;
    }
    // The count comes with the next arrival.
    peer.send_to(b"last", ours).unwrap();
    got += stand.receive(1).len() as u64;
    assert_eq!(got + stand.drops(&xk_host::OVERFLOW), 201);
}

// ---- frames ----

const BROADCAST: [u8; 6] = [0xff; 6];

fn frame(to: [u8; 6], from: [u8; 6], octets: &[u8]) -> Vec<u8> {
    [&to[..], &from, &[0x88, 0xb5], octets].concat()
}

fn eth(local: SocketAddr, peers: &[SocketAddr], more: &[(&'static str, Value)]) -> Stand {
    let list: Vec<String> = peers.iter().map(ToString::to_string).collect();
    let mut values = vec![("local", text(local)), ("peer", text(list.join(", ")))];
    values.extend_from_slice(more);
    build(&xk_host::ENTRY, &values).unwrap()
}

#[test]
fn frames_go_to_whom_they_are_for() {
    let ((one, a), (two, b)) = (socket(), socket());
    let local = (host(), 47_001).into();
    let stand = eth(local, &[a, b], &[]);
    let session = stand.top.open(&stand.cx, &stand.wire, Participants::default()).unwrap();
    let MyEther { address: own } = session.ask(&stand.cx, MyEther::default()).unwrap();
    let mut octets = [0; 2048];
    // To all, at first; then to the one that was heard.
    let station = [2, 0, 0, 0, 0, 9];
    stand.push(&session, &frame(station, own, b"first")).unwrap();
    stand.turn();
    for socket in [&one, &two] {
        assert_eq!(socket.recv(&mut octets).unwrap(), 19);
    }
    two.send_to(&frame(own, station, b"here"), local).unwrap();
    assert!(stand.receive(1)[0].message.eq_octets(&frame(own, station, b"here")));
    stand.push(&session, &frame(station, own, b"second")).unwrap();
    stand.turn();
    assert_eq!(two.recv(&mut octets).unwrap(), 20);
    stand.push(&session, &frame(BROADCAST, own, b"all")).unwrap();
    stand.turn();
    for socket in [&one, &two] {
        assert_eq!(socket.recv(&mut octets).unwrap(), 17, "and not the second");
    }
    // Strangers are not heard.
    let (stranger, _) = socket();
    stranger.send_to(&frame(own, station, b"me"), local).unwrap();
    stand.until("the drop", || stand.drops(&reason::BAD_SOURCE) == 1);
    assert_eq!(stand.top.take_received().len(), 0);
}

#[test]
fn strangers_are_heard_where_they_are_welcome() {
    let local = (host(), 47_002).into();
    let stand = eth(local, &[], &[("learn", Value::Bool(true))]);
    let session = stand.top.open(&stand.cx, &stand.wire, Participants::default()).unwrap();
    let alone = stand.push(&session, &frame(BROADCAST, [2; 6], b"anybody?"));
    assert_eq!(alone, Err(PushError::NoRoute));
    let (stranger, _) = socket();
    stranger.send_to(&frame(BROADCAST, [6; 6], b"hello"), local).unwrap();
    stand.receive(1);
    stand.push(&session, &frame([6; 6], [2; 6], b"welcome")).unwrap();
    stand.turn();
    assert_eq!(stranger.recv(&mut [0; 64]).unwrap(), 21);
}

#[test]
fn damaged_encapsulation_is_counted() {
    let (peer, a) = socket();
    let local = (host(), 47_003).into();
    let stand = eth(local, &[a], &[("vni", Value::Integer(7))]);
    let any = Participants::local(Part::Any);
    let _ = stand.top.enable(&stand.cx, &stand.wire, any).unwrap();
    let good = [&xk_host::vxlan::emit(7)[..], &frame([2; 6], [6; 6], b"good")].concat();
    for cut in 0..good.len() {
        peer.send_to(&good[..cut], local).unwrap();
    }
    let other = [&xk_host::vxlan::emit(8)[..], &good[8..]].concat();
    let none = [&[0; 8], &good[8..]].concat();
    let long = [&good[..], &[0; 2000]].concat();
    for octets in [&other, &none, &long, &good] {
        peer.send_to(octets, local).unwrap();
    }
    // Cuts behind the frame's header are frames.
    let frames = (good.len() - 8 - 14) as u64;
    let got = stand.receive(frames + 1).pop().unwrap();
    assert!(got.message.eq_octets(&good[8..]));
    let drops = stand.wire.head().drops();
    assert_eq!(drops.of(&reason::TRUNCATED), 8 + 14);
    assert_eq!(drops.of(&reason::MALFORMED), 1);
    assert_eq!(drops.of(&reason::TOO_BIG), 1);
    assert_eq!(drops.total(), 8 + 14 + 3);
}

#[test]
fn a_peer_may_die_and_come_back() {
    let (peer, a) = socket();
    let local = (host(), 47_004).into();
    let stand = eth(local, &[a], &[]);
    let session = stand.top.open(&stand.cx, &stand.wire, Participants::default()).unwrap();
    let hello = frame(BROADCAST, [2; 6], b"hello");
    drop(peer);
    for n in 1..=3 {
        stand.push(&session, &hello).unwrap();
        stand.until("the report", || stand.drops(&xk_kit::net::ports::UNREACHABLE) == n);
    }
    let peer = UdpSocket::bind(a).unwrap();
    peer.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    stand.push(&session, &hello).unwrap();
    stand.turn();
    assert_eq!(peer.recv(&mut [0; 64]).unwrap(), hello.len());
    peer.send_to(&hello, local).unwrap();
    stand.receive(1);
}

#[test]
fn a_burst_of_frames_crosses_in_runs() {
    let (a, b) = ((host(), 47_005).into(), (host(), 47_005).into());
    let vni = [("vni", Value::Integer(7))];
    let (one, two) = (eth(a, &[b], &vni), eth(b, &[a], &vni));
    let session = one.top.open(&one.cx, &one.wire, Participants::default()).unwrap();
    let any = Participants::local(Part::Any);
    let _ = two.top.enable(&two.cx, &two.wire, any).unwrap();
    let octets = |n: u8| frame([2; 6], [6; 6], &[n; 1400]);
    for n in 0..100 {
        one.push(&session, &octets(n)).unwrap();
    }
    one.turn();
    let got = two.receive(100);
    for (n, got) in (0..100).zip(&got) {
        assert!(got.message.eq_octets(&octets(n)), "frame {n}");
    }
    assert_eq!(two.cx.stop(), ());
    drop(got);
    assert_eq!(two.cx.live(), (0, 0), "all buffers are given back");
}

#[test]
fn over_ipv6_too() {
    let Ok(peer) = UdpSocket::bind("[::1]:0") else {
        xk_testkit::needs::skip(
            "needs IPv6 on the loopback interface (ip addr add ::1/128 dev lo)",
        );
        return;
    };
    peer.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    let free = UdpSocket::bind("[::1]:0").unwrap().local_addr().unwrap();
    let stand = eth(free, &[peer.local_addr().unwrap()], &[]);
    let session = stand.top.open(&stand.cx, &stand.wire, Participants::default()).unwrap();
    let max = session.ask(&stand.cx, MaxPacket::default()).unwrap().octets;
    assert_eq!(max, 1500 - 40 - 8);
    stand.push(&session, &frame(BROADCAST, [2; 6], b"six")).unwrap();
    stand.turn();
    let mut octets = [0; 64];
    let (count, from) = peer.recv_from(&mut octets).unwrap();
    assert_eq!((count, from), (17, free));
    peer.send_to(&octets[..count], from).unwrap();
    stand.receive(1);
    drop(peer);
    stand.push(&session, &frame(BROADCAST, [2; 6], b"six")).unwrap();
    stand.until("the report", || stand.drops(&xk_kit::net::ports::UNREACHABLE) == 1);
}

// ---- mistakes ----

fn refused(entry: &'static Entry, values: &[(&'static str, Value)]) -> String {
    match build(entry, values) {
        Ok(_) => panic!("built"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn mistakes_name_their_remedy() {
    let eth = &xk_host::ENTRY;
    let (taken, address) = socket();
    let peer = ("peer", text("127.0.0.1:7"));
    let said = refused(eth, &[("local", text(address)), peer.clone()]);
    assert!(said.contains("taken by another program (see which: ss -ulnp"), "{said}");
    drop(taken);
    let said = refused(eth, &[("local", text("192.0.2.1:7001")), peer.clone()]);
    assert!(
        said.contains("not an address of this machine (see which there are: ip addr"),
        "{said}"
    );
    for (values, word) in [
        (vec![peer.clone()], "local"),
        (vec![("local", text("here"))], "local"),
        (vec![("local", text("127.0.0.1:0"))], "learn=#true"),
        (vec![("local", text("127.0.0.1:0")), ("peer", text("[::1]:7"))], "IPv4"),
        (vec![("local", text("127.0.0.1:0")), ("peer", text("127.0.0.1:0"))], "IPv4"),
        (vec![("local", text("127.0.0.1:0")), peer.clone(), ("mtu", Value::Octets(67))], "68 to"),
        (
            vec![("local", text("127.0.0.1:0")), peer, ("address", text("ff:ff:ff:ff:ff:ff"))],
            "one station",
        ),
    ] {
        let said = refused(eth, &values);
        assert!(said.contains(word), "{said}");
    }
    let udp = &xk_host::UDP_ENTRY;
    let said = refused(udp, &[("local", text("192.0.2.1"))]);
    assert!(said.contains("not an address of this machine"), "{said}");
    assert!(refused(udp, &[("local", text("x"))]).contains("IPv4"));
}
