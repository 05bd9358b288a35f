//! Graphs of the simulator on a network of Linux, as docs/groups.md has it: each host a process in
//! a namespace of its own, on a bridge.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use xk_peers::testbed::{Testbed, Wire, end};
use xk_testkit::netns::{Running, Space};
use xk_testkit::{needs, needs_root};

use crate::program::command;

/// Time in which the applications of a graph finish: much more than they need.
const LIMIT: Duration = Duration::from_secs(40);
/// Time between two looks at a process.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time from the start of one host to that of the next: machines do not start at once.
const GAP: Duration = Duration::from_millis(200);

/// A graph, and the bridge that its hosts are on.
struct Apart {
    testbed: Testbed,
    bridge: Space,
    graph: PathBuf,
}

/// A process that is a host, and its namespace.
struct Host {
    name: String,
    space: Space,
    process: Running,
}

impl Apart {
    /// The graph file of this name, with texts replaced so that it takes less time.
    fn new(name: &str, changes: &[(&str, &str)]) -> Self {
        let testbed = Testbed::new(&format!("apart-{name}"));
        let bridge = testbed.net.space().unwrap();
        bridge
            .ip(&["link", "add", "br0", "type", "bridge", "mcast_query_interval", "200"])
            .unwrap();
        bridge.up("br0").unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs");
        let mut text = std::fs::read_to_string(folder.join(format!("{name}.kdl"))).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let graph = testbed.folder().join("graph.kdl");
        std::fs::write(&graph, text).unwrap();
        Self { testbed, bridge, graph }
    }

    /// The ports at which the bridge knows members of a group.
    fn members(&self, group: &str) -> Vec<String> {
        let said = self.bridge.exec(&["bridge", "-d", "mdb", "show", "dev", "br0"]).unwrap();
        let of_group = said.lines().filter(|line| line.contains(&format!("grp {group} ")));
        let ports = of_group.filter_map(|line| line.split(" port ").nth(1)?.split(' ').next());
        let mut ports: Vec<String> = ports.map(str::to_owned).collect();
        ports.sort();
        ports
    }

    fn await_members(&self, group: &str, wanted: &[&str]) {
        let begun = Instant::now();
        while self.members(group) != wanted {
            let found = self.members(group);
            assert!(begun.elapsed() < LIMIT, "{group}: {found:?}, not {wanted:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Starts a host as the page says.
    fn start(&self, name: &str) -> Host {
        let space = self.testbed.net.space().unwrap();
        let port = format!("to-{name}");
        self.testbed.net.veth(&space, "eth0", &self.bridge, &port).unwrap();
        self.bridge.ip(&["link", "set", &port, "master", "br0"]).unwrap();
        let (xk, graph) = (command().display().to_string(), self.graph.display().to_string());
        let wire = match name {
            // The station that `vmtp.kdl` calls by its address.
            "server" => r#"packet device=eth0 address="02:00:00:00:00:02""#,
            _ => "packet device=eth0",
        };
        let wire = ["--wire", wire, "--for", "600s"];
        let process = space.spawn(&[&[&xk, "run", &graph, "--host", name], &wire[..]].concat());
        Host { name: name.to_owned(), space, process: process.unwrap() }
    }

    fn start_all(&self, names: &[&str]) -> Vec<Host> {
        let start = |name: &&str| {
            std::thread::sleep(GAP);
            self.start(name)
        };
        names.iter().map(start).collect()
    }
}

impl Host {
    /// The reports of its applications, each a line; `None` before it runs.
    fn reports(&self) -> Option<Vec<String>> {
        let (xk, pid) = (command().display().to_string(), self.process.id().to_string());
        let dump = self.space.exec(&[&xk, "dump", "--pid", &pid]).ok()?;
        let (_, reports) = dump.split_once("\nreports\n").unwrap_or_default();
        Some(reports.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Waits until all of its applications that finish have done so, well.
    fn finish(&self) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let reports = self.reports();
            let all = reports.iter().flatten();
            if reports.is_some() && all.clone().all(|line| line.contains(": ok")) {
                return reports.unwrap_or_default();
            }
            assert!(
                begun.elapsed() < LIMIT && !all.clone().any(|line| line.contains("FAILED")),
                "{}: {reports:?}: {}",
                self.name,
                self.process.output()
            );
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn kill(&self) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
}

/// Waits until all have finished; their reports in the order of the hosts. Until then each goes on
/// to answer the others.
fn finish(hosts: &[Host]) -> Vec<Vec<String>> {
    hosts.iter().for_each(|host| drop(host.finish()));
    let reports = hosts.iter().map(Host::finish).collect();
    for host in hosts {
        let status = end(&host.process);
        assert!(status.success(), "{}: {status}: {}", host.name, host.process.output());
    }
    reports
}

/// The value behind this word of a report.
fn value<'r>(report: &'r str, word: &str) -> &'r str {
    let behind = report.split_once(&format!(" {word} ")).map(|(_, behind)| behind);
    behind.and_then(|text| text.split(',').next()).unwrap_or_else(|| panic!("{word} of {report}"))
}

macro_rules! needs_command {
    () => {
        needs_root!("ip", "bridge");
        if !command().is_file() {
            needs::skip("needs the command xk (cargo build -p xk)");
            return;
        }
    };
}

/// Members start in any order, and hear the same, though the one that opens the conversation starts
/// before the others can answer.
pub(crate) fn conversations_are_heard(_: Wire) {
    needs_command!();
    for (graph, names) in [
        ("psync", ["alice", "bob", "carol"]),
        ("order", ["carol", "bob", "alice"]),
        ("order", ["alice", "carol", "bob"]),
    ] {
        let apart = Apart::new(graph, &[]);
        let reports = finish(&apart.start_all(&names));
        for report in reports.iter().flatten() {
            assert_eq!((value(report, "sent"), value(report, "received")), ("100", "200"));
        }
        if graph == "order" {
            let orders = reports.iter().flatten().map(|report| value(report, "order"));
            let orders: Vec<&str> = orders.collect();
            assert!(orders.windows(2).all(|two| two[0] == two[1]), "{reports:?}");
        }
    }
}

/// A conversation in a multicast group, on a bridge that snoops: a message leaves its host once.
pub(crate) fn messages_to_a_group_are_sent_once(_: Wire) {
    needs_command!();
    let apart = Apart::new("psync-multicast", &[]);
    let names = ["switch", "dave", "carol", "bob", "alice"];
    let hosts = apart.start_all(&names);
    apart.await_members("239.1.1.1", &["to-alice", "to-bob", "to-carol", "to-dave"]);
    let reports: Vec<String> = hosts.iter().flat_map(Host::finish).collect();
    assert_eq!(reports.len(), 4, "{reports:?}");
    for report in &reports {
        assert_eq!((value(report, "sent"), value(report, "received")), ("100", "300"));
    }
    let sent = |host: &Host| {
        let said = host.space.exec(&["ip", "-s", "-j", "link", "show", "dev", "eth0"]).unwrap();
        let (_, behind) = said.split_once("\"tx\":").unwrap();
        let (_, packets) = behind.split_once("\"packets\":").unwrap();
        packets.split(',').next().unwrap().trim().parse::<u64>().unwrap()
    };
    // To each of the three others alone they would be 300 and more.
    for host in &hosts[1..] {
        assert!(sent(host) < 250, "{} sends {} frames", host.name, sent(host));
    }
    finish(&hosts);
}

pub(crate) fn calls_to_all_are_executed(_: Wire) {
    needs_command!();
    for names in [["alice", "bob", "carol"], ["carol", "bob", "alice"]] {
        let reports = finish(&Apart::new("groupcall", &[]).start_all(&names));
        for report in reports.iter().flatten() {
            let calls = if report.starts_with("caller") { "replies" } else { "echo" };
            assert_eq!(value(report, calls), "50", "{report}");
        }
    }
}

/// The process of one member is killed in the middle: the others agree that it has failed, and go
/// on in one order.
pub(crate) fn a_group_goes_on_without_a_killed_member(_: Wire) {
    needs_command!();
    let apart = Apart::new("membership", &[("count=1000", "count=400")]);
    let mut hosts = apart.start_all(&["alice", "bob", "carol"]);
    std::thread::sleep(Duration::from_secs(2));
    let bob = hosts.remove(1);
    let before = bob.reports().unwrap_or_default();
    bob.kill();
    let sent: u64 = value(&before[0], "sent").parse().unwrap();
    assert!((1..400).contains(&sent), "in the middle: {before:?}");
    let reports: Vec<String> = finish(&hosts).concat();
    for report in &reports {
        let received: u64 = value(report, "received").parse().unwrap();
        assert!((400..800).contains(&received), "{report}");
    }
    assert_eq!(value(&reports[0], "order"), value(&reports[1], "order"), "{reports:?}");
}

/// The process of one of three stores is killed while clients call: their history is that of one
/// store, and the two that are left have the same state.
pub(crate) fn a_store_stays_one_without_a_killed_host(_: Wire) {
    needs_command!();
    let apart = Apart::new("replica", &[]);
    let mut hosts = apart.start_all(&["a", "b", "c", "clients"]);
    // The clients begin two seconds after their start.
    std::thread::sleep(Duration::from_millis(2500));
    let killed = hosts.remove(1);
    killed.kill();
    let reports: Vec<String> = finish(&hosts).concat();
    assert!(reports[2].contains("history linearizable"), "{reports:?}");
    assert_eq!(value(&reports[2], "operations"), "200");
    assert_eq!(value(&reports[0], "state"), value(&reports[1], "state"), "{reports:?}");
    assert_eq!(value(&reports[0], "executed"), value(&reports[1], "executed"), "{reports:?}");
}

pub(crate) fn transactions_of_vmtp_are_answered(_: Wire) {
    needs_command!();
    for names in [["client", "server"], ["server", "client"]] {
        let mut reports = finish(&Apart::new("vmtp", &[]).start_all(&names)).concat();
        reports.retain(|report| report.contains("calls"));
        assert_eq!(reports.len(), 4, "{reports:?}");
        for report in &reports {
            assert_eq!(value(report, "replies"), value(report, "calls"), "{report}");
        }
    }
}

/// Ten clients invoke the directory, each from its start on, and it moves between their hosts.
pub(crate) fn an_object_moves_between_processes(_: Wire) {
    needs_command!();
    let clients: Vec<String> = (0..10).map(|n| format!("client{n}")).collect();
    for graph in ["emerald", "emerald-udp"] {
        let apart =
            Apart::new(graph, &[("count=100 start=\"{n*500}ms\"", "count=40 start=\"{n*50}ms\"")]);
        let mut hosts = vec![apart.start("home")];
        hosts.extend(clients.iter().map(|name| apart.start(name)));
        let reports: Vec<String> = finish(&hosts).concat();
        assert!(reports[1..].iter().all(|report| value(report, "invoked") == "40"), "{reports:?}");
        let holders: Vec<_> = reports.iter().filter(|report| report.contains("entries")).collect();
        assert_eq!(holders.len(), 1, "it is at one host: {reports:?}");
        assert_eq!(value(holders[0], "entries"), "400", "each invocation once: {reports:?}");
        assert_eq!(value(holders[0], "twice"), "0");
        assert_ne!(holders[0].split(", moves ").nth(1), Some("0"), "{reports:?}");
    }
}

/// The machine of the buffer, which is the coordinator's, starts last: the processes wait for it.
pub(crate) fn programs_of_sr_end(_: Wire) {
    needs_command!();
    for names in [["buffer", "table", "alice", "bob"], ["bob", "alice", "table", "buffer"]] {
        let apart =
            Apart::new("sr", &[("count=20", "count=5"), ("to=\"vm0", "pause=\"5ms\" to=\"vm0")]);
        let reports = finish(&apart.start_all(&names));
        let all: Vec<&String> = reports.iter().flatten().collect();
        let of = |name: &str| *all.iter().find(|report| report.starts_with(name)).unwrap();
        assert_eq!((value(of("items"), "taken"), value(of("items"), "left")), ("150", "0"));
        assert_eq!((value(of("forks"), "given"), value(of("forks"), "left")), ("25", "0"));
    }
}

/// The bridge snoops, and knows the members as the querier of the graph asks them.
pub(crate) fn a_bridge_knows_the_members(_: Wire) {
    needs_command!();
    let apart = Apart::new("igmp", &[("count=10", "count=2")]);
    let hosts = apart.start_all(&["switch", "alice", "bob"]);
    apart.await_members("239.1.2.3", &["to-alice", "to-bob"]);
    apart.await_members("239.4.5.6", &["to-bob"]);
    finish(&hosts);
}
