//! The organisations of graphs/org-*.kdl on a simulated link: any of their domains dies under load,
//! comes back alone, and pings, datagrams and new connections work again.

use std::time::Duration;

use xk_compose::{CheckedGraph, domain_name, restart};
use xk_core::random::Random;
use xk_lang::DomainKind;
use xk_sim::{HostId, World};
use xk_testkit::seeds;

use crate::sim::{checked, config, figure, folder, pass, report, started};

/// A host that talks to the one with domains all the time, and one that begins after each death.
const PEERS: &str = r#"
host steady {
    sim link=lan; eth sim; arp eth; ip arp { address "10.9.0.3/24"; }
    icmp ip; udp ip
    probe icmp name=pings to="10.9.0.2" count=0 interval="10ms"
    probe udp name=datagrams to="port7@10.9.0.2" count=0 interval="10ms"
}
host fresh {
    sim link=lan; eth sim; arp eth; ip arp { address "10.9.0.4/24"; }
    icmp ip; udp ip; tcp ip
    probe icmp name=pings to="10.9.0.2" count=20 interval="10ms"
    probe udp name=datagrams to="port7@10.9.0.2" count=20 interval="10ms"
    probe tcp name=streams to="port7@10.9.0.2" count=20 interval="10ms" size=3000
}
link lan delay="50us" rate="100Mbit"
"#;

/// Programs of each host that have seen answers.
const SEEN: [(&str, &[&str]); 2] =
    [("steady", &["pings", "datagrams"]), ("fresh", &["pings", "datagrams", "streams"])];
/// After how long all works again at the latest, less the time of a look.
const WITHIN: Duration = Duration::from_secs(3);
/// Time in which all is expected to work: shorter than a handshake whose first answer was lost.
const LOOK: Duration = Duration::from_secs(1);

/// A graph of the repository with a simulated link in place of its device and, in each, servers
/// that answer.
fn simulated(text: &str) -> String {
    let mut text = text.replace(" host_address=\"10.9.0.1/24\"", "");
    for device in ["tap   device=xk0", "tap  device=xk0", "tap device=xk0"] {
        text = text.replace(device, "sim name=tap link=lan");
    }
    if let Some(at) = text.find(" door=\"") {
        let end = at + text[at..].find("sock\"").expect("a path") + 5;
        text.replace_range(at..end, "");
    }
    if let Some(at) = text.find("    domain programs open") {
        text.truncate(at);
        text.push_str("    domain echod { echo udp port=7; }\n");
        text.push_str("    domain discardd { discard tcp port=9; }\n}\n");
    }
    text.replace("discard tcp port=9", "echo tcp name=streams port=7") + PEERS
}

fn received(world: &World, host: &str, name: &str) -> u64 {
    figure(&report(world, host, name), "received")
}

/// Drops of each protocol of each domain.
fn drops(world: &World) -> String {
    let mut said = String::new();
    for kernel in (0..world.len()).filter_map(|at| world.kernel(HostId(at as u32))) {
        for protocol in kernel.protocols() {
            for (reason, count) in protocol.head().drops().list() {
                said += &format!("{} dropped {count}: {reason}\n", protocol.name());
            }
        }
    }
    said
}

/// All that there is works, and did not need longer than [`LOOK`].
fn works(graph: &CheckedGraph, world: &mut World, seed: u64, what: &str) {
    let fresh = world.find("fresh").expect("a host");
    world.crash(fresh);
    restart(graph, world, "fresh", config(seed)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let before: Vec<u64> = SEEN[0].1.iter().map(|name| received(world, "steady", name)).collect();
    pass(world, LOOK);
    for (name, before) in SEEN[0].1.iter().zip(before) {
        let new = received(world, "steady", name) - before;
        assert!(new > 95, "{what}: {new} {name} came back: {}", drops(world));
    }
    for name in SEEN[1].1 {
        let report = report(world, "fresh", name);
        let drops = drops(world);
        assert!(figure(&report, "received") == 20, "{what}: {name}: {:?}\n{drops}", report.lines);
    }
}

fn dies(graph: &CheckedGraph, name: &str, seed: u64) {
    let host = graph.host("neighbour").expect("a host");
    let setups = graph.domains(&host);
    let own = setups.iter().filter(|s| s.kind.is_some_and(|kind| kind != DomainKind::Open));
    let domains: Vec<String> = own.map(|s| domain_name("neighbour", &s.name)).collect();
    let chance = Random::new(seed).fork(29);
    let mut world = started(graph, seed);
    pass(&mut world, Duration::from_millis(300));
    works(graph, &mut world, seed, &format!("XK_SEED={seed} {name} at the beginning"));
    let mut last = domains.len();
    for _ in 0..2 * domains.len() {
        // None is the only one that ever dies, and some die again while the others find them.
        last = (last + 1 + chance.below(domains.len() as u64) as usize) % domains.len();
        let domain = &domains[last];
        let what = format!("XK_SEED={seed} {name}: {domain}");
        for _ in 0..1 + chance.below(3) {
            pass(&mut world, Duration::from_micros(chance.below(20_000)));
            assert!(world.crash(world.find(domain).expect("a domain")), "{what}");
            pass(&mut world, Duration::from_micros(chance.below(300_000)));
            restart(graph, &mut world, domain, config(seed))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        pass(&mut world, WITHIN);
        works(graph, &mut world, seed, &what);
    }
}

#[test]
fn any_domain_of_any_organisation_dies_and_all_works_again() {
    let files =
        std::fs::read_dir(folder("graphs")).expect("the graphs").flatten().map(|file| file.path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let mut cut = Vec::new();
    for path in files {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with("org-") {
            continue;
        }
        let text = simulated(&std::fs::read_to_string(&path).expect("a graph"));
        let graph = checked(&text);
        let host = graph.host("neighbour").expect("a host");
        if graph.domains(&host).len() > 1 {
            cut.push((graph, name.to_owned()));
        }
    }
    assert!(cut.len() >= 8, "{} organisations have domains", cut.len());
    seeds::of(150).run(|seed| cut.iter().for_each(|(graph, name)| dies(graph, name, seed)));
}
