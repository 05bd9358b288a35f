//! A host under attack in the simulator: its memory stays within bounds, others are served
//! meanwhile, and nothing is left behind. All frames come from one seed, which a failure names.

use std::time::Duration;
use xk_arp::ArpTable;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::{ListSessions, Report};
use xk_core::{Question, Time};
use xk_ip::IpFigures;
use xk_kit::net::drop_sources::ListDropSources;
use xk_sim::{HostId, World};
use xk_testkit::conformance::{counts_allocations, octets_live};

/// Seed of all frames and of the simulation.
const SEED: u64 = 20_261_121;
/// Longest time of a ping, in virtual time: there and back over a link of 50 microseconds whose
/// queues the flood fills.
const RTT_MAX_US: f64 = 5000.0;
/// Heap that all hosts together may take beyond that before the flood, in octets: tables of
/// sessions at their bounds (4096 each on Ethernet and IP, 8192 on UDP), each session with its
/// header, its entry and its layers' state.
const HEAP_OCTETS_MAX: i64 = 12 << 20;
/// Number of messages that may be in use at a time in the whole simulation: those in flight, and
/// those that fragments and ARP keep.
const DESCRIPTORS_LIVE_MAX: u32 = 12_000;

/// Bounds of the victim's tables.
const ETH_MAX: usize = 4096;
const IP_MAX: usize = 4096;
const UDP_MAX: usize = 8192;
const ARP_MAX: usize = 1024;

fn graph(kind: &str, rate: u64, count: u64, more: &str) -> String {
    let pings = count * 100 / rate;
    format!(
        r#"
host victim {{
    sim link=lan address="02:00:00:00:00:01"
    eth sim sessions_max={ETH_MAX}
    arp eth entries_max={ARP_MAX}
    ip arp sessions_max={IP_MAX} {{ address "10.0.0.1/8"; }}
    icmp ip timestamp=#true
    udp ip sessions_max={UDP_MAX}
    echo udp port=7
    discard udp port=9
}}
host innocent {{
    sim link=lan
    eth sim
    arp eth
    ip arp {{ address "10.0.0.2/8"; }}
    icmp ip
    udp ip
    probe icmp name=ping to="10.0.0.1" count={pings} interval="10ms" timeout="500ms"
    probe udp name=client to="port7@10.0.0.1" count={pings} interval="10ms" timeout="500ms" size=4000
}}
host attacker {{
    sim link=lan
    noise sim to="10.0.0.1" ether="02:00:00:00:00:01" sources="10.64.0.0/10" kind={kind} rate={rate} count={count} seed={SEED} {more}
}}
link lan kind=hub delay="50us" rate="1Gbit" queue=1000
"#
    )
}

/// A simulated attack.
struct Attack {
    world: World,
    heap_before: i64,
    what: String,
}

impl Attack {
    fn new(kind: &str, rate: u64, count: u64, more: &str) -> Self {
        assert!(counts_allocations());
        let source = graph(kind, rate, count, more);
        let checked = check(&source, "flood.kdl", &xk_catalog::standard());
        let checked = checked.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let config = SimulationConfig { seed: SEED, ..SimulationConfig::default() };
        let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{e}"));
        start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{e}"));
        Self { world, heap_before: octets_live(), what: format!("{kind}, seed {SEED}") }
    }

    fn ask<Q: Question>(&self, host: &str, protocol: &str, question: Q) -> Q {
        let id = self.world.find(host).unwrap();
        let kernel = self.world.kernel(id).unwrap();
        let protocol = kernel.find_protocol(protocol).unwrap();
        protocol.ask(kernel, question).unwrap()
    }

    fn figure(&self, host: &str, protocol: &str, line: &str) -> String {
        let report = self.ask(host, protocol, Report::default());
        let found = report.lines.iter().find(|(name, _)| name == line);
        found.map_or_else(String::new, |(_, value)| value.clone())
    }

    fn sessions(&self, protocol: &str) -> usize {
        let list = ListSessions::first(0);
        self.ask("victim", protocol, list).total
    }

    fn arp_table(&self) -> ArpTable {
        self.ask("victim", "arp", ArpTable::default())
    }

    /// Looks whether everything is within its bound.
    fn check(&self) {
        let what = &self.what;
        let heap = octets_live() - self.heap_before;
        assert!(heap <= HEAP_OCTETS_MAX, "{what}: {heap} octets of heap");
        for (protocol, max) in [("eth", ETH_MAX), ("ip", IP_MAX), ("udp", UDP_MAX + 2)] {
            let count = self.sessions(protocol);
            assert!(count <= max, "{what}: {count} sessions of {protocol}");
        }
        let hosts = self.arp_table().total;
        assert!(hosts <= ARP_MAX, "{what}: {hosts} hosts");
        let id = self.world.find("victim").unwrap();
        let kernel = self.world.kernel(id).unwrap();
        let pool = kernel.pool().stats();
        let live = pool.descriptors_live;
        assert!(live <= DESCRIPTORS_LIVE_MAX, "{what}: {live} descriptors");
        assert_eq!(pool.failures, 0, "{what}: the pool was exhausted");
    }

    /// Runs up to `until`, looking every tenth of a second. Answers the most octets of heap that
    /// were seen.
    fn run(&mut self, until: Time) -> i64 {
        let mut most = 0;
        while self.world.now() < until {
            let next = self.world.now() + Duration::from_millis(100);
            self.world.run_until(next.min(until));
            self.check();
            most = most.max(octets_live() - self.heap_before);
        }
        most
    }

    /// Runs the whole attack: everybody else is served, and afterwards nothing is left.
    fn survive(mut self, seconds: u64) {
        let most = self.run(Time::from_s(seconds) + Duration::from_secs(1));
        for probe in ["ping", "client"] {
            let line = |name| self.figure("innocent", probe, name);
            let (sent, received) = (line("sent"), line("received"));
            assert_eq!(sent, received, "{}: {probe}", self.what);
            assert_ne!(sent, "0");
            let rtt = microseconds(&line("rtt max"));
            assert!(rtt <= RTT_MAX_US, "{}: {probe} took {rtt} us", self.what);
        }
        println!(
            "{}: {} frames sent, {} answers, heap at most {most} octets, ping at most {}",
            self.what,
            self.figure("attacker", "noise", "sent"),
            self.figure("attacker", "noise", "received"),
            self.figure("innocent", "ping", "rtt max"),
        );
        // Fragments for 60 s, ARP for as long and for its requests, reassembly's reports.
        self.world.run_until(self.world.now() + Duration::from_secs(200));
        self.check();
        let figures = self.ask("victim", "ip", IpFigures::default());
        assert_eq!(figures.fragments_held, 0, "{}", self.what);
        let table = self.arp_table();
        let waiting: usize = table.entries.iter().map(|entry| entry.waiting).sum();
        assert_eq!(waiting, 0, "{}", self.what);
        let id: HostId = self.world.find("victim").unwrap();
        let kernel = self.world.kernel(id).unwrap();
        assert!(kernel.timers() < 20, "{}: {}", self.what, kernel.timers());
        // Ethernet keeps its padding.
        let live = kernel.pool().stats().buffers_live;
        assert!(live <= 3, "{}: {live} buffers", self.what);
        self.world.stop();
    }
}

/// A time as reports have it, `1.234ms` or the like, in microseconds.
fn microseconds(text: &str) -> f64 {
    let at = text.find(|c: char| c.is_alphabetic()).unwrap_or(0);
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "ns" => 0.001,
        "ms" => 1000.0,
        "s" => 1_000_000.0,
        _ => 1.0,
    };
    number.trim().parse::<f64>().unwrap() * factor
}

#[test]
fn arp_from_forged_hosts() {
    Attack::new("arp", 50_000, 30_000, "").survive(1);
}

#[test]
fn fragments_of_all_sorts() {
    Attack::new("fragments", 50_000, 30_000, "").survive(1);
}

#[test]
fn icmp_of_all_sorts() {
    Attack::new("icmp", 50_000, 30_000, "").survive(1);
}

#[test]
fn pings_from_hosts_that_do_not_answer() {
    Attack::new("pings", 50_000, 30_000, "").survive(1);
}

#[test]
fn pings_from_hosts_that_answer() {
    Attack::new("pings", 20_000, 20_000, "answers=#true").survive(1);
}

#[test]
fn any_header_and_any_frame() {
    for kind in ["ip", "udp", "ethernet", "mixed"] {
        Attack::new(kind, 50_000, 20_000, "").survive(1);
    }
}

#[test]
fn ever_new_peers_of_one_port() {
    // 2^18; a whole million takes a quarter of a minute more: XK_FLOOD_PEERS=1048576.
    let given = std::env::var("XK_FLOOD_PEERS").ok();
    let peers = given.and_then(|text| text.parse().ok()).unwrap_or(1 << 18);
    Attack::new("sessions", 200_000, peers, "").survive(1 + peers / 200_000);
}

#[test]
fn the_worst_source_is_named() {
    let mut attack = Attack::new("ethernet", 10_000, 2000, "");
    attack.run(Time::from_s(1));
    let drop_sources = attack.ask("victim", "eth", ListDropSources::default());
    assert!(drop_sources.by.is_some());
    assert!(!drop_sources.sources.is_empty() && drop_sources.sources.len() <= 32);
    let counted: u64 = drop_sources.sources.iter().map(|from| from.count_max).sum();
    let id = attack.world.find("victim").unwrap();
    let kernel = attack.world.kernel(id).unwrap();
    let dropped = kernel.find_protocol("eth").unwrap().head().drops().total();
    assert!(counted <= dropped && counted > dropped / 2);
}
