//! SYNs of a million hosts that are not there, while one that is there connects.

use core::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::{Part, Participants, ProtocolRef};
use xk_tcp::options::{Options, Timestamps};
use xk_tcp::wire::{CHECKSUM_AT, Flags, HEADER_LEN_MAX, Header, checksum};
use xk_tcp::{Seq, Settings, State};
use xk_testkit::kernel::{Bottom, Event, Lower, TestKernel, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

struct Net {
    cx: TestKernel,
    ip: Bottom,
    tcp: ProtocolRef,
    top: Top,
}

impl Net {
    fn new() -> Self {
        let cx = TestKernel::new(7);
        let ip = Bottom::add(&cx, "ip", Lower::host(OWN, 6));
        let tcp = xk_tcp::add(&cx, "tcp", ip.protocol().clone(), 64, Settings::default());
        let top = Top::add(&cx, "top");
        cx.start().unwrap();
        let port = Participants::from_str("port7").unwrap();
        let _enabled = top.enable(&cx, &tcp, port).unwrap();
        Self { cx, ip, tcp, top }
    }

    fn arrive(&self, from: Ipv4Addr, header: &Header, data: &[u8]) {
        let mut octets = [0; HEADER_LEN_MAX];
        let length = header.emit(&mut octets);
        let mut segment = [&octets[..length], data].concat();
        let mut sum = xk_kit::Checksum::new();
        sum.add(&segment);
        let sum = checksum(from, OWN, segment.len() as u16, sum);
        segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        let message = self.cx.message(&segment);
        self.ip.inject(&self.cx, Some(Part::host(from)), message);
    }

    /// The last segment that went.
    fn sent(&self) -> Header {
        let sent = self.ip.take_sent().pop().expect("a segment");
        let octets: Vec<u8> = sent.message.octets().collect();
        Header::parse(&octets).expect("a segment").0
    }

    fn syn(&self, options: Options) -> Header {
        let mut syn = Header::new(5000, 7, Seq(99), Seq(0), Flags::SYN);
        (syn.window, syn.options) = (1000, options);
        syn
    }

    /// Goes on until the peer is connected, and sends.
    fn connect(&self, syn: &Header, more: impl Fn()) -> Header {
        self.arrive(PEER, syn, b"");
        let answer = self.sent();
        assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, Seq(100)));
        more();
        drop(self.ip.take_sent());
        let mut ack = Header::new(5000, 7, Seq(100), answer.seq + 1, Flags::ACK);
        ack.window = 1000;
        ack.options.timestamps =
            answer.options.timestamps.map(|stamps| Timestamps { value: 11, echo: stamps.value });
        self.arrive(PEER, &ack, b"hello");
        let events = self.top.take_events();
        assert!(matches!(events[..], [Event::OpenDone(a), Event::Demux(b, 5)] if a == b));
        answer
    }
}

fn flood(net: &Net, from: u32) {
    let syn = net.syn(Options::NONE);
    for n in from..from + 100_000 {
        net.arrive(Ipv4Addr::from_bits(0x0b00_0000 + n), &syn, b"");
        if n % 1000 == 0 {
            drop(net.ip.take_sent());
        }
    }
    drop(net.ip.take_sent());
}

fn options() -> Options {
    Options {
        segment_max: Some(1460),
        window_scale: Some(9),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 10, echo: 0 }),
        ..Options::NONE
    }
}

#[test]
fn who_is_there_connects_during_a_flood() {
    for options in [Options::NONE, options()] {
        let net = Net::new();
        flood(&net, 0);
        let answer = net.connect(&net.syn(options), || flood(&net, 100_000));
        assert_eq!(answer.options.window_scale.is_some(), options.window_scale.is_some());
        let (session, _) = net.top.take_opened().pop().unwrap();
        session.hold();
        let told = session.ask(&net.cx, xk_kit::net::stream::StreamInfo::default()).unwrap();
        let segment = if options.timestamps.is_some() { 1448 } else { 536 };
        assert_eq!((told.state, told.segment), (State::Established, segment));
        // All notes go in time, and nothing is left.
        net.cx.advance(Duration::from_secs(120));
        drop(net.ip.take_sent());
        drop(net.top.take_received());
        let list = ListSessions::first(9);
        assert_eq!(net.tcp.ask(&net.cx, list).unwrap().total, 1);
        drop(session);
        net.cx.stop();
        assert_eq!(net.cx.live(), (0, 0));
    }
}

#[test]
fn an_acknowledgement_of_no_cookie_is_reset() {
    let net = Net::new();
    flood(&net, 0);
    for n in 0..1000 {
        let mut ack = Header::new(5000, 7, Seq(100), Seq(n * 4_000_000), Flags::ACK);
        ack.window = 1000;
        net.arrive(PEER, &ack, b"x");
        assert_eq!(net.sent().flags, Flags::RST);
    }
    assert_eq!(net.top.take_events(), []);
}

/// Number of drops that were counted as `name`.
fn dropped(net: &Net, name: &str) -> u64 {
    let list = net.tcp.head().drops().list();
    let found = list.iter().find(|(reason, _)| reason.name == name);
    found.map_or(0, |(_, count)| *count)
}

/// Entries in all tables, and messages and buffers in use.
fn held(net: &Net) -> (usize, (u32, u32)) {
    let maps = net.tcp.ask(&net.cx, ListMaps::default()).unwrap().maps;
    (maps.iter().map(|(_, map)| map.entries).sum(), net.cx.live())
}

#[test]
fn a_million_spoofed_syns_take_no_more_than_the_first_thousands() {
    let net = Net::new();
    flood(&net, 0);
    let noted = 100_000 - dropped(&net, "SYN not noted");
    assert!(noted <= 4096, "{noted}");
    for round in 1..10 {
        flood(&net, round * 100_000);
        let (entries, live) = held(&net);
        // The notes, what lower sessions have said of themselves lately, and the enables.
        assert!(entries <= 2 * 4096 + 1, "{entries} after round {round}");
        assert_eq!(live, (0, 0));
    }
    assert_eq!(dropped(&net, "SYN not noted"), 1_000_000 - noted);
    net.connect(&net.syn(options()), || ());
}
