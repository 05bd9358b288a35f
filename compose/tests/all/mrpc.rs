//! The graphs of monolithic Sprite RPC, run to their end on a lossy network: every call is
//! answered, and executed once.

use crate::sim::{example, kernel, started};
use std::time::Duration;
use xk_core::Time;
use xk_core::control::Report;

/// Runs a graph; answers the reports of its anchors by name.
fn run(name: &str) -> Vec<(String, Report)> {
    let graph = example(name);
    let mut world = started(&graph, 1);
    world.run_until_finished(Time::ZERO + Duration::from_secs(120));
    let mut reports = Vec::new();
    for host in graph.graph().expand() {
        let kernel = kernel(&world, &host.name);
        for protocol in kernel.protocols() {
            let is_anchor = matches!(protocol.head().kind(), "caller" | "procedures");
            if is_anchor && let Some(report) = protocol.ask(kernel, Report::default()) {
                reports.push((protocol.name().to_string(), report));
            }
        }
    }
    reports
}

fn figure(reports: &[(String, Report)], name: &str, line: &str) -> u64 {
    let (_, report) = reports.iter().find(|(n, _)| n == name).unwrap();
    let found = report.lines.iter().find(|(n, _)| n == line);
    found.unwrap_or_else(|| panic!("{:?}", report.lines)).1.parse().unwrap()
}

#[test]
fn every_call_is_answered_and_executed_once() {
    let graphs = [
        ("rpc-m-eth.kdl", ["procedures", "procedures"]),
        ("rpc-m-ip.kdl", ["procedures", "procedures"]),
        ("rpc-m-vip.kdl", ["near", "far"]),
    ];
    for (name, [small, large]) in graphs {
        let reports = run(name);
        for (caller, calls) in [("small", 200), ("large", 50)] {
            assert_eq!(
                figure(&reports, caller, "replies"),
                calls,
                "{name}: {reports:?}",
                reports = lines(&reports)
            );
            assert_eq!(figure(&reports, caller, "wrong"), 0, "{name}");
        }
        assert_eq!(figure(&reports, small, "null"), 200, "{name}");
        assert_eq!(figure(&reports, large, "echo"), 50, "{name}");
    }
}

fn lines(reports: &[(String, Report)]) -> Vec<&Vec<(String, String)>> {
    reports.iter().map(|(_, report)| &report.lines).collect()
}
