//! UDP and IP of three subsystems: every UDP on every IP, with an x-kernel host at the other end.

use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, draw_text, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;
use xk_probe::Results;

/// A subsystem; nothing is the x-kernel.
type Of = Option<&'static str>;

/// UDP and IP of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stack {
    udp: Of,
    ip: Of,
}

const XK: Stack = Stack { udp: None, ip: None };

const STACKS: [Stack; 6] = [
    XK,
    Stack { udp: Some("bsd"), ip: None },
    Stack { udp: Some("streams"), ip: None },
    Stack { udp: None, ip: Some("bsd") },
    Stack { udp: Some("bsd"), ip: Some("bsd") },
    Stack { udp: Some("streams"), ip: Some("bsd") },
];

impl Stack {
    fn host(self, name: &str, last: u8, app: &str) -> String {
        let ip = |below| format!("ip {below} {{ address \"10.0.0.{last}/24\"; }}");
        let below = match self.ip {
            None => format!("eth sim; arp eth; {}", ip("arp")),
            Some(of) if self.udp == self.ip => {
                format!("subsystem {of} {{ ether sim; {}; udp ip; }}", ip("ether"))
            }
            Some(of) => format!("subsystem {of} {{ ether sim; {}; }}", ip("ether")),
        };
        let udp = match self.udp {
            None => "udp ip".to_owned(),
            Some(_) if self.udp == self.ip => String::new(),
            Some(of) => format!("subsystem {of} {{ udp ip; }}"),
        };
        format!("host {name} {{\nsim link=lan\n{below}\n{udp}\n{app}\n}}\n")
    }
}

fn checked(source: &str) -> CheckedGraph {
    check(source, "internet", &xk_catalog::standard())
        .unwrap_or_else(|mistakes| panic!("{}\n{source}", mistakes.to_text()))
}

/// Runs a probe from the client to an echo at the server, and returns its results and all counters.
fn run(client: Stack, server: Stack, (count, size): (u32, u32), link: &str) -> (Results, String) {
    let probe = format!("udp to=\"port7@10.0.0.9\" count={count} size={size}");
    run_all((client, &probe), (server, "echo udp port=7"), link)
}

/// Runs a probe, and returns its results without times, and all counters.
fn run_all(
    (client, probe): (Stack, &str),
    (server, echo): (Stack, &str),
    link: &str,
) -> (Results, String) {
    let (above, below) = probe.rsplit_once("; ").unwrap_or(("", probe));
    let probe = format!("{above}\nprobe {below} start=\"1s\" interval=\"20ms\" timeout=\"2s\"");
    let source = format!(
        "{}{}link lan delay=\"1ms\" {link}\n",
        client.host("client", 1, &probe),
        server.host("server", 9, echo),
    );
    let graph = checked(&source);
    let mut world = simulate(&graph, SimulationConfig { seed: 7, ..Default::default() })
        .unwrap_or_else(|e| panic!("{e}\n{source}"));
    if let Err(e) = start_world(&graph, &mut world) {
        return (Results::default(), format!("{}\n{source}", e.to_text()));
    }
    world.run_until_finished(Time::ZERO + Duration::from_secs(60));
    let mut all = source;
    let mut results = None;
    for host in ["client", "server"] {
        let kernel = world.find(host).and_then(|id| world.kernel(id)).unwrap();
        for protocol in kernel.protocols() {
            let drops = protocol.head().drops().list();
            let report = protocol.ask(kernel, Report::default());
            let lines = report.map(|report| report.lines).unwrap_or_default();
            if protocol.name() == "probe" {
                results = protocol.ask(kernel, Results::default());
            }
            all += &format!("{host} {}: {lines:?} {drops:?}\n", protocol.name());
        }
    }
    world.stop();
    (results.expect("the probe's results"), all)
}

/// Every pair of which one is all of the x-kernel.
fn pairs() -> impl Iterator<Item = (Stack, Stack)> {
    let other = STACKS.into_iter().skip(1);
    STACKS.into_iter().map(|client| (client, XK)).chain(other.map(|server| (XK, server)))
}

#[test]
fn datagrams_of_every_size_go_both_ways() {
    let mut wrong = String::new();
    for (client, server) in pairs() {
        // One of the sizes goes in three fragments.
        for size in [0, 1, 45, 1472, 1473, 4000] {
            let (results, all) = run(client, server, (3, size), "");
            // BSD's ARP keeps one packet, so that the first datagram in pieces is lost.
            let lost = u64::from(client.ip == Some("bsd") && size > 1472);
            if results.received != 3 - lost || results.corrupt != 0 {
                wrong += &format!("{client:?} to {server:?}, {size} octets: {results:?}\n{all}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_stack_talks_to_every_other() {
    let mut wrong = String::new();
    for client in STACKS {
        for server in STACKS {
            let (results, all) = run(client, server, (2, 1400), "");
            if results.received != 2 || results.corrupt != 0 {
                wrong += &format!("{client:?} to {server:?}: {results:?}\n{all}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The checksum covers the hosts of a layer that may be of another subsystem: what the link has
/// changed does not arrive, whichever end computes and whichever looks.
#[test]
fn checksums_are_sent_and_looked_at_everywhere() {
    let mut wrong = String::new();
    for (client, server) in pairs() {
        let (results, all) = run(client, server, (300, 1400), "corrupt=\"20%\"");
        if results.corrupt != 0 || results.received < 50 || results.received == 300 {
            wrong += &format!("{client:?} to {server:?}: {results:?}\n{all}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Others of the x-kernel stand on IP of BSD as on their own.
#[test]
fn tcp_and_icmp_stand_on_ip_of_bsd() {
    let bsd = Stack { udp: None, ip: Some("bsd") };
    let mut wrong = String::new();
    let link = "loss=\"2%\" corrupt=\"1%\"";
    for (client, server) in [(bsd, XK), (XK, bsd), (bsd, bsd)] {
        let tcp = (client, "tcp ip; tcp to=\"port7@10.0.0.9\" count=50 size=3000");
        let (results, all) = run_all(tcp, (server, "tcp ip; echo tcp port=7"), link);
        if results.received != 50 || results.corrupt != 0 {
            wrong += &format!("tcp, {client:?} to {server:?}: {results:?}\n{all}");
        }
        let icmp = (client, "icmp ip; icmp to=\"10.0.0.9\" count=5 size=1000");
        // BSD's has ICMP in it.
        let answers = if server.ip.is_none() { "icmp ip" } else { "" };
        let (results, all) = run_all(icmp, (server, answers), "");
        if results.received != 5 {
            wrong += &format!("icmp, {client:?} to {server:?}: {results:?}\n{all}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The example of the documents.
#[test]
fn the_graph_of_the_documents_runs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../graphs/frameworks.kdl");
    let graph = checked(&std::fs::read_to_string(path).unwrap());
    assert!(graph.warnings().is_empty(), "{}", graph.warnings().to_text());
    let drawn = draw_text(&graph, None, 100);
    assert!(drawn.contains("streams on bsd") && drawn.contains("xk on bsd"), "{drawn}");
    let mut world = simulate(&graph, SimulationConfig::default()).unwrap_or_else(|e| panic!("{e}"));
    start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{}", e.to_text()));
    world.run_until_finished(Time::ZERO + Duration::from_secs(60));
    let kernel = world.find("mixed").and_then(|id| world.kernel(id)).unwrap();
    for probe in ["stream", "datagrams"] {
        let probe = kernel.find_protocol(probe).unwrap();
        let results = probe.ask(kernel, Results::default()).unwrap();
        assert_eq!((results.received, results.corrupt), (20, 0), "{results:?}");
    }
}

/// UDP of the x-kernel recognises a broadcast, which its offers do not take: the message has left a
/// host of any stack, and its checksum is that of a broadcast.
#[test]
fn what_is_sent_to_all_is_known_as_such() {
    let mut wrong = String::new();
    for (client, server) in pairs().filter(|(_, server)| server.udp.is_none()) {
        for to in ["10.0.0.255", "255.255.255.255"] {
            let probe = format!("udp to=\"port7@{to}\" count=3 size=100");
            let (results, all) = run_all((client, &probe), (server, "echo udp port=7"), "");
            let is_it =
                |line: &str| line.starts_with("server udp: ") && line.contains("sent to many");
            if results.sent != 3 || !all.lines().any(is_it) {
                wrong += &format!("{client:?} to {server:?}, {to}: {results:?}\n{all}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Fragments are lost, come twice and in another order; what arrives is whole.
#[test]
fn fragments_are_put_together_in_a_bad_network() {
    let link = "loss=\"5%\" duplicate=\"10%\" reorder=\"20%\" reorder_delay=\"3ms\"";
    let mut wrong = String::new();
    for (client, server) in pairs() {
        let (results, all) = run(client, server, (100, 4000), link);
        if results.corrupt != 0 || results.received < 20 {
            wrong += &format!("{client:?} to {server:?}: {results:?}\n{all}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
