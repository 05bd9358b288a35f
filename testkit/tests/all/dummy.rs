//! A further network layer, of 16-octet hosts: transports stand on it without a word about it in
//! their own folders, beside IP on one host, and their runs of segments are cut behind its header.

use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::Report;
use xk_core::graph::{Catalog, Params, Value};
use xk_core::{Answer, Ask, Entry, Kernel, Part, Participants, ProtocolRef, Time};
use xk_kit::wire::offload::{self, Offloads};
use xk_kit::wire::segments;
use xk_testkit::conformance::{self, Fixture, Side};
use xk_testkit::dummy;
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

fn catalog() -> Catalog {
    let standard = xk_catalog::standard();
    let all: Vec<&'static Entry> =
        standard.entries().iter().copied().chain([&dummy::ENTRY]).collect();
    Catalog::new(&all).expect("one number for each pair")
}

#[test]
fn a_new_lower_layer_lists_the_numbers_above_it() {
    let (catalog, standard) = (catalog(), xk_catalog::standard());
    assert_eq!(catalog.numbers().find_kinds("udp", "dummy"), Some(17));
    assert_eq!(catalog.numbers().find_kinds("tcp", "dummy"), Some(6));
    let names_it = |entry: &&Entry| entry.numbers.iter().any(|(lower, _)| *lower == "dummy");
    assert!(!standard.entries().iter().copied().any(|entry| names_it(&entry)));
}

/// A server with two network layers, an instance of each transport on each, and clients that have
/// one of both.
const DUAL: &str = r#"
host server {
    sim   link=four name=wire4
    eth   wire4
    arp   eth
    ip    arp { address "10.0.0.1/24"; }
    icmp  ip
    sim   link=six name=wire6
    dummy wire6 address="fd00::1"
    udp   ip    name=udp4
    udp   dummy name=udp6
    tcp   ip    name=tcp4
    tcp   dummy name=tcp6
    echo  udp4 port=7 name=echo-udp4
    echo  udp6 port=7 name=echo-udp6
    echo  tcp4 port=7 name=echo-tcp4
    echo  tcp6 port=7 name=echo-tcp6
}
host four {
    sim  link=four
    eth  sim
    arp  eth
    ip   arp { address "10.0.0.2/24"; }
    icmp ip
    udp  ip
    tcp  ip
    probe udp to="port7@10.0.0.1" interval="10ms" size=1000 name=datagrams
    probe tcp to="port7@10.0.0.1" interval="10ms" size=20000 name=stream
}
host six count=2 {
    sim   link=six
    dummy sim address="fd00::{n+2}"
    udp   dummy
    tcp   dummy
    probe udp to="port7@[fd00::1]" interval="10ms" size=1000 name=datagrams
    probe tcp to="port7@[fd00::1]" interval="10ms" size=20000 name=stream
}
link four
link six delay="1ms"
"#;

#[test]
fn one_host_has_two_network_layers_below_its_transports() {
    let graph = check(DUAL, "dual.kdl", &catalog()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let mut world = simulate(&graph, SimulationConfig::default()).expect("a world");
    start_world(&graph, &mut world).expect("it starts");
    world.run_until_finished(Time::ZERO + Duration::from_secs(30));
    for host in ["four", "six0", "six1"] {
        let kernel = world.find(host).and_then(|id| world.kernel(id)).expect("the host");
        for name in ["datagrams", "stream"] {
            let probe = kernel.find_protocol(name).expect("the probe");
            let report = probe.ask(kernel, Report::default()).expect("a report");
            let lines: BTreeMap<_, _> = report.lines.into_iter().collect();
            assert!(report.finished && !report.failed, "{host}, {name}: {lines:?}");
            assert_eq!(lines["received"], "5", "{host}, {name}");
        }
    }
}

#[test]
fn two_transports_are_not_put_on_two_network_layers_by_one_line() {
    let source = DUAL.replace("udp   ip    name=udp4", "udp   ip dummy name=udp4");
    let mistakes = check(&source, "dual.kdl", &catalog()).err().expect("one lower");
    assert!(mistakes.to_text().contains("`udp` takes no further protocol below"), "{mistakes}");
}

/// The layer on a link with one other end.
struct OnLink;

impl Fixture for OnLink {
    fn entry(&self) -> &'static Entry {
        &dummy::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(1500)
    }

    fn number(&self) -> Option<u32> {
        Some(90)
    }

    fn params(&self, side: Side) -> Params {
        let mut params = conformance::bounded(self.entry(), self.sessions_max());
        params.set("address", Value::Text(format!("fd00::{}", 1 + side as u8)));
        params
    }

    fn open(&self, side: Side) -> Participants {
        let peer = format!("[fd00::{}]", 1 + side.other() as u8);
        Participants::pair(Part::Any, peer.parse::<Part>().expect("a host"))
    }
}

#[test]
fn it_keeps_the_laws() {
    println!("{}", conformance::all(&OnLink));
}

/// One host: TCP on the layer on a wire whose device cuts runs of segments.
struct Host {
    bottom: Bottom,
    tcp: ProtocolRef,
    top: Top,
}

const MTU: u32 = 1500;

impl Host {
    fn new(cx: &TestKernel, n: u8) -> Self {
        let lower = Lower { partial_checksums: true, ..Lower::link(MTU) };
        let bottom = Bottom::add(cx, &format!("wire{n}"), lower);
        let id = bottom.protocol().id();
        let cuts = move |_: &Kernel, ask: &mut Ask<'_>| {
            ask.answer::<Offloads>(|question| question.answer_wire(id, true, true))
        };
        bottom.on_ask(Rc::new(move |cx, ask| match ask.get::<Offloads>() {
            Some(_) => cuts(cx, ask),
            None => Answer::Unknown,
        }));
        let address = Value::Text(format!("fd00::{n}"));
        let params = Params::from([("address", address)]);
        let below = [bottom.protocol().clone()];
        let dummy = dummy::ENTRY.add(cx, &format!("dummy{n}"), &below, &params);
        let dummy = dummy.expect("the layer");
        let tcp = xk_catalog::standard().find("tcp").expect("tcp");
        let tcp = tcp.add(cx, &format!("tcp{n}"), &[dummy], &Params::default()).expect("tcp");
        Self { bottom, tcp, top: Top::add(cx, &format!("top{n}")) }
    }

    /// Carries what was sent to another host, cut as a device would; answers how many packets, and
    /// how many of them were sent as part of a run.
    fn carry(&self, cx: &TestKernel, to: &Self) -> (usize, usize) {
        let (mut packets, mut in_runs) = (0, 0);
        let mut take = |packet: xk_core::Message| {
            let mut packet = packet;
            offload::complete(cx.pool(), &mut packet).expect("a buffer");
            assert!(packet.len() <= MTU as usize, "{} octets", packet.len());
            packets += 1;
            let whole = cx.message(&octets(&packet));
            assert!(to.bottom.inject(cx, None, whole), "no packet is refused");
        };
        for sent in self.bottom.take_sent() {
            if segments::of(&sent.message).is_none() {
                take(sent.message);
                continue;
            }
            for packet in segments::split(sent.message).expect("the layer has said what to count") {
                in_runs += 1;
                take(packet.expect("a buffer"));
            }
        }
        (packets, in_runs)
    }
}

#[test]
fn runs_of_segments_are_cut_behind_its_header() {
    let cx = TestKernel::new(4);
    for number in catalog().numbers().kinds() {
        cx.numbers_mut().add(*number).expect("one number");
    }
    let (one, two) = (Host::new(&cx, 1), Host::new(&cx, 2));
    cx.start().expect("it starts");
    let port: Participants = "port7".parse().expect("a participant");
    let _ = two.top.enable(&cx, &two.tcp, port).expect("an enable");
    let ends: Participants = "*, port7@[fd00::2]".parse().expect("participants");
    let session = one.top.open(&cx, &one.tcp, ends).expect("a session");
    let data: Vec<u8> = (0..200_000_u32).map(|n| (n ^ n >> 8) as u8).collect();
    let mut rest = &data[..];
    let (mut received, mut in_runs) = (Vec::new(), 0);
    for _ in 0..10_000 {
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(8000));
            if session.push(&cx, cx.message(now)).is_err() {
                break;
            }
            rest = later;
        }
        in_runs += one.carry(&cx, &two).1;
        two.carry(&cx, &one);
        received.extend(two.top.take_received().iter().flat_map(|got| octets(&got.message)));
        if received.len() == data.len() {
            break;
        }
        cx.advance(Duration::from_millis(1));
    }
    assert!(received == data, "{} octets of {} arrive", received.len(), data.len());
    assert!(in_runs > 50, "{in_runs} packets were sent as parts of runs");
    cx.stop();
}
