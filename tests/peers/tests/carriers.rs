//! TCP over what is no network layer: the operating system's UDP, bare links, and layers that only
//! pass things on.

use std::time::{Duration, Instant};
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;
use xk_peers::stack::{Stack, TopReport};

/// Nothing real takes longer.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

fn assert_all_back(report: &TopReport, count: u64) {
    assert!(!report.failed, "{report:#?}");
    assert_eq!(report.figure("received"), count, "{report:#?}");
}

/// Two hosts of ours on ports of the system, with `below` between them and TCP, of which `last` is
/// the last node.
fn over_host_udp(port: u16, (below, last): (&str, &str), count: u64) {
    let host = |local: u16, top: &str| {
        format!(
            "host one {{\nhost-udp local=\"127.0.0.1\" name=carrier\n{below}tcp {last} local=\"port{local}\"\n{top}\n}}\n"
        )
    };
    let server = Stack::alone(&host(port, "echo tcp port=7"));
    let probes = format!(
        "probe tcp name=large to=\"port7@port{port}@127.0.0.1\" count={count} interval=\"0s\" size=20000 timeout=\"20s\"\n\
         probe tcp name=small to=\"port7@port{port}@127.0.0.1\" count={count} interval=\"1ms\" size=10 timeout=\"20s\"\n\
         probe tcp name=nobody to=\"port8@port{port}@127.0.0.1\" count=1 timeout=\"20s\"\n"
    );
    let client = Stack::alone(&host(port + 1, &probes));
    let begun = Instant::now();
    let reports = client.finish(STEP_TIME_MAX);
    for name in ["large", "small"] {
        let report = reports.iter().find(|report| report.name == name);
        assert_all_back(report.expect("a report"), count);
    }
    let refused = reports.iter().find(|report| report.name == "nobody");
    assert_eq!(refused.expect("a report").figure("stream refused"), 1);
    println!("{last}: {:?}", begun.elapsed());
    drop(client);
    drop(server);
}

#[test]
fn tcp_stands_on_the_systems_udp() {
    // Below the ports that the system gives by itself.
    over_host_udp(27_310, ("", "carrier"), 100);
}

#[test]
fn tcp_stands_on_the_systems_udp_over_a_bad_link() {
    let bad = "fault carrier name=bad loss=\"3%\" reorder=\"5%\" duplicate=\"2%\" corrupt=\"1%\"\n";
    over_host_udp(27_320, (bad, "bad"), 15);
}

/// Runs a simulation until the probe called `probe` of its first host has finished.
fn simulated(graph: &str, seed: u64) -> Vec<(String, String)> {
    let graph = check(graph, "carriers.kdl", &xk_catalog::standard())
        .unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).unwrap_or_else(|m| panic!("{}", m.to_text()));
    start_world(&graph, &mut world).unwrap_or_else(|m| panic!("{}", m.to_text()));
    world.run_until_finished(Time::from_s(1000));
    let host = world.find("one").expect("a host");
    let lines = world.enter(host, |cx| {
        let probe = cx.find_protocol("probe").expect("a probe");
        let report = probe.ask(cx, Report::default()).expect("a report");
        assert!(report.finished && !report.failed, "{:?}", report.lines);
        report.lines
    });
    world.stop();
    lines.expect("no panic")
}

fn figure(lines: &[(String, String)], name: &str) -> String {
    let line = lines.iter().find(|(given, _)| given == name);
    line.map_or_else(String::new, |(_, value)| value.clone())
}

/// Virtual layers between `ip` and `tcp`: their names, and the last one's.
const VIRTUAL: [(&str, &str); 5] = [
    ("", "ip"),
    ("tracer ip\n", "tracer"),
    ("fault ip loss=\"2%\" reorder=\"5%\" duplicate=\"2%\"\n", "fault"),
    ("fault ip mtu=700 delay=\"1ms\"\n", "fault"),
    ("tracer ip\nfault tracer corrupt=\"2%\"\nfault fault name=again loss=\"1%\"\n", "again"),
];

#[test]
fn tcp_stands_on_layers_that_pass_things_on() {
    for (seed, (layers, last)) in (1..).zip(VIRTUAL) {
        let host = |name: &str, number: u8, top: &str| {
            format!(
                "host {name} {{\nsim link=lan\neth sim\narp eth\nip arp {{ address \"10.0.0.{number}/24\"; }}\nicmp ip\n\
                 {layers}tcp {last}\n{top}\n}}\n"
            )
        };
        let probe =
            "probe tcp to=\"port7@10.0.0.2\" count=100 interval=\"1ms\" size=5000 timeout=\"100s\"";
        let graph = format!(
            "link lan kind=switch delay=\"1ms\" rate=\"100Mbit\"\n{}{}",
            host("one", 1, probe),
            host("two", 2, "echo tcp port=7"),
        );
        let lines = simulated(&graph, seed);
        assert_eq!(figure(&lines, "received"), "100", "{layers}: {lines:?}");
    }
}

/// A link with one other end has no hosts, no pseudo-header, and one session: ports alone tell
/// connections apart.
#[test]
fn tcp_stands_on_a_bare_link() {
    for (layers, last) in
        [("", "loopback"), ("fault loopback loss=\"2%\" delay=\"1ms\"\n", "fault")]
    {
        let graph = format!(
            "host one {{\nloopback\n{layers}tcp {last}\necho tcp port=7\n\
             probe tcp to=\"port7\" count=100 interval=\"1ms\" size=5000 timeout=\"100s\"\n}}\n"
        );
        let lines = simulated(&graph, 1);
        assert_eq!(figure(&lines, "received"), "100", "{layers}: {lines:?}");
    }
}
