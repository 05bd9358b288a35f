//! Flow control of STREAMS from a slow link up: what is sent faster than a wire takes it waits in
//! queues, within their marks, and arrives in the end.

use std::time::Duration;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::Report;
use xk_core::{Time, reason};
use xk_probe::Results;
use xk_streams::{Figures, StreamModules, Streams};

/// The marks of an adapter's driver.
const HIGH: usize = 65_536;
/// A frame of the largest payload.
const FRAME: usize = 1514;

/// Report of a probe's run.
struct Seen {
    results: Results,
    /// Report of the queue of the wire's driver in the sending host.
    wire: Figures,
    blocked: u64,
    back_enables: u64,
    /// Drops in the sending host, without messages for other hosts.
    drops: Vec<String>,
    report: Vec<(String, String)>,
}

/// Sends datagrams in one burst over a link that takes a few of them at a time.
fn burst(block: &str, layers: &str, (count, size): (usize, usize)) -> Seen {
    let source = format!(
        "host client {{
            sim link=lan
            subsystem streams {{ {block} }}
            {layers}
            // What is sent while the peer's address is asked for is ARP's matter.
            probe udp name=first to=\"port7@10.0.0.9\" count=1
            probe udp to=\"port7@10.0.0.9\" count={count} size={size} start=\"1s\" interval=\"10us\" timeout=\"20s\"
        }}
        host server {{
            sim link=lan
            eth sim
            arp eth
            ip arp {{ address \"10.0.0.9/24\"; }}
            udp ip
            echo udp port=7
        }}
        link lan kind=pointtopoint delay=\"1ms\" rate=\"10Mbit\" queue=4\n"
    );
    let graph = check(&source, "flow", &xk_catalog::standard())
        .unwrap_or_else(|mistakes| panic!("{}\n{source}", mistakes.to_text()));
    let mut world = simulate(&graph, SimulationConfig { seed: 7, ..Default::default() }).unwrap();
    start_world(&graph, &mut world).unwrap();
    world.run_until(Time::ZERO + Duration::from_secs(60));
    let kernel = world.find("client").and_then(|id| world.kernel(id)).unwrap();
    let streams = Streams::of(kernel).unwrap();
    let counts = streams.counts();
    let drops = kernel.protocols().into_iter().flat_map(|protocol| {
        let list = protocol.head().drops().list();
        let told = list.into_iter().filter(|(why, _)| !core::ptr::eq(*why, &reason::NOT_MINE));
        told.map(move |(why, count)| format!("{}: {why} {count}", protocol.name()))
            .collect::<Vec<_>>()
    });
    let drops = drops.collect();
    let results = kernel.find_protocol("probe").unwrap().ask(kernel, Results::default()).unwrap();
    let node = kernel.find_protocol("streams").unwrap();
    let report = node.ask(kernel, Report::default()).unwrap().lines;
    let seen = Seen {
        results,
        wire: streams.figures_of("ether/sim"),
        blocked: counts.blocked,
        back_enables: counts.back_enables,
        drops,
        report,
    };
    world.stop();
    seen
}

const IP: &str = "arp ether; ip arp { address \"10.0.0.1/24\"; }; udp ip";

#[test]
fn what_a_slow_link_does_not_take_waits_and_arrives() {
    let seen = burst("ether sim", IP, (100, 1000));
    let none: &[String] = &[];
    assert_eq!((seen.results.received, &*seen.drops), (100, none), "{:?}", seen.report);
    assert!((HIGH..HIGH + FRAME).contains(&seen.wire.octets_max), "{:?}", seen.wire);
    assert!(seen.wire.services > 0 && seen.blocked > 0, "{:?}", seen.report);
    assert_eq!(seen.blocked, seen.back_enables, "{:?}", seen.report);
    let words = seen.report.iter().find(|(name, text)| {
        name == "queue" && text.starts_with("adapter write: 0 messages, 0 octets,")
    });
    assert!(words.is_some(), "{:?}", seen.report);
}

#[test]
fn what_waits_is_bounded_by_the_marks() {
    let (count, size) = (2000, 1000);
    let seen = burst("ether sim", IP, (count, size));
    assert!(seen.wire.octets_max < HIGH + FRAME, "{:?}", seen.wire);
    assert_eq!(seen.blocked, seen.back_enables, "{:?}", seen.report);
    // What did not wait was refused to its sender.
    let Results { received, errors, lost, .. } = seen.results;
    assert!(received >= (2 * HIGH / FRAME) as u64, "{received}");
    assert_eq!((received + errors, lost), (count as u64, 0), "{received}, {:?}", seen.drops);
}

/// Figure 1b of the paper: what is sent in one burst is packed by a module, waits, and comes back.
#[test]
fn the_graph_of_modules_shows_queues_that_fill_and_are_relieved() {
    let source = include_str!("../../../../graphs/modules.kdl");
    let graph = check(source, "modules.kdl", &xk_catalog::standard()).unwrap();
    let mut world = simulate(&graph, SimulationConfig { seed: 7, ..Default::default() }).unwrap();
    start_world(&graph, &mut world).unwrap();
    world.run_until(Time::ZERO + Duration::from_secs(60));
    let kernel = world.find("sender").and_then(|id| world.kernel(id)).unwrap();
    let (streams, node) = (Streams::of(kernel).unwrap(), kernel.find_protocol("streams").unwrap());
    let report = node.ask(kernel, Report::default()).unwrap().lines;
    let probe = kernel.find_protocol("burst").unwrap().ask(kernel, Results::default()).unwrap();
    assert_eq!((probe.received, probe.errors, probe.corrupt), (250, 0, 0), "{report:?}");
    let counts = streams.counts();
    assert!(counts.back_enables > 0 && counts.services > 100, "{report:?}");
    assert_eq!((counts.blocked, counts.lost), (counts.back_enables, 0), "{report:?}");
    let wire = streams.figures_of("ether/sim");
    assert!(wire.back_enables > 0 && wire.octets_max < HIGH + FRAME, "{wire:?}");
    let asked = StreamModules { line: "udp".into(), ..StreamModules::default() };
    let modules = node.ask(kernel, asked).unwrap().streams;
    assert!(modules.iter().any(|words| words.starts_with("crunch (250 down")), "{modules:?}");
}
