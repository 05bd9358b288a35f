//! Tables 2 to 4 of Chandramohan A. Thekkath, Thu D. Nguyen, Evelyn Moy and Edward D. Lazowska,
//! "Implementing Network Protocols at User Level", IEEE/ACM Transactions on Networking 1(5),
//! October 1993, section 4: TCP by where the protocols lie.
//!
//! One graph, `graphs/org-one.kdl`, is run by `xk run` with other domain lines for each system, in
//! a network namespace of its own; Linux's sockets stand at the other end of its TAP device. The
//! paper's machines were two DECstations 5000/200 (R3000, 25 MHz) on a 10 Mbit/s Ethernet, with
//! the same system at both ends; its AN1 has no counterpart here. Its library needs a registry and
//! a network I/O module: once they are an organisation among the graphs, it is one more of
//! [`ORGANISATIONS`].

use super::organisation::{Peer, linux_connects, measure};
use super::{LINUX, quoted};
use crate::case::{Benchmark, Case};
use crate::net::endpoint::{System, Task};
use crate::net::testbed::{Mode, Testbed};
use crate::net::{round_trips, streamed};
use std::time::Duration;

/// The paper's systems: the kernel's protocols, a server's, and the library.
const PAPER: [&str; 3] =
    ["Ultrix, DECstation 5000/200", "Mach/UX, DECstation 5000/200", "library, DECstation 5000/200"];
/// Ours, by where the protocols lie, and the graph.
const ORGANISATIONS: [(&str, &str); 5] = [
    ("xk, one process", include_str!("../../../graphs/org-one.kdl")),
    ("xk, one server", include_str!("../../../graphs/org-server.kdl")),
    ("xk, server and device", include_str!("../../../graphs/org-memory.kdl")),
    ("xk, server and device, messages", include_str!("../../../graphs/org-messages.kdl")),
    ("xk, a server per protocol", include_str!("../../../graphs/org-per-protocol.kdl")),
];
const KERNEL: System = System::LinuxTcpVeth;
/// How long a round of Linux's own measures.
const TIME: Duration = Duration::from_millis(80);
const US_PER_MS: f64 = 1000.0;

/// Octets of a write, and the paper's megabits a second over Ethernet.
const THROUGHPUT: [(usize, [f64; 3]); 4] = [
    (512, [5.8, 2.1, 4.3]),
    (1024, [7.6, 2.5, 4.6]),
    (2048, [7.6, 3.2, 4.8]),
    (4096, [7.6, 3.5, 5.0]),
];
/// Octets there and back, and the paper's milliseconds over Ethernet.
const LATENCY: [(usize, [f64; 3]); 3] =
    [(1, [1.6, 7.8, 2.8]), (512, [3.5, 10.8, 5.2]), (1460, [6.2, 16.0, 9.9])];
/// The paper's milliseconds until a connection is there, over Ethernet.
const SET_UP: [f64; 3] = [2.6, 6.8, 11.9];
/// What the library's consist of.
const SET_UP_PARTS: [(&str, f64); 5] = [
    ("to the peer and back", 4.6),
    ("what is not overlapped of the outbound processing", 1.5),
    ("channels to the device", 3.4),
    ("application to server and back", 0.9),
    ("state to user level", 1.4),
];

/// Octets of a round of throughput, and how often another round does its work.
const STREAM_OCTETS: f64 = 16_000_000.0;
const TRIPS: f64 = 1000.0;
const CONNECTIONS: f64 = 200.0;

/// The tables.
pub(super) fn benchmarks() -> Vec<Benchmark> {
    vec![
        Benchmark::new(
            "papers/user-level-table-2",
            "TCP throughput by octets of a write (Thekkath and others 1993, table 2)",
            "Mb/s",
            table_2,
        )
        .higher_is_better(),
        Benchmark::new(
            "papers/user-level-table-3",
            "octets there and back on a TCP connection (Thekkath and others 1993, table 3)",
            "us",
            table_3,
        ),
        Benchmark::new(
            "papers/user-level-table-4",
            "until a TCP connection is there (Thekkath and others 1993, table 4)",
            "us",
            table_4,
        ),
    ]
}

fn papers(row: &str, figures: [f64; 3], factor: f64) -> impl Iterator<Item = Case> {
    let quote = |(system, figure): (&'static str, f64)| quoted(row, system, figure * factor);
    PAPER.into_iter().zip(figures).map(quote).collect::<Vec<_>>().into_iter()
}

/// A row of ours in every organisation.
fn ours(row: &str, peer: Peer, octets: usize, count: f64) -> impl Iterator<Item = Case> {
    let case = |(system, graph): (&'static str, &'static str)| {
        let graph = graph_for(peer, graph);
        let case = Case::measured(row, move |effort| measure(&graph, peer, octets, count * effort));
        case.of(system)
    };
    ORGANISATIONS.into_iter().map(case).collect::<Vec<_>>().into_iter()
}

/// The graph, with what answers on a connection where that is asked for.
fn graph_for(peer: Peer, graph: &str) -> String {
    match peer {
        Peer::Answers => graph.replace("echo udp port=7", "echo tcp port=7"),
        _ => graph.into(),
    }
}

fn table_2() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for (octets, figures) in THROUGHPUT {
        let row = format!("{octets} octets");
        list.extend(papers(&row, figures, 1.0));
        list.extend(ours(&row, Peer::Stream, octets, STREAM_OCTETS / octets as f64));
        let testbed = testbed.clone();
        let kernel = Case::measured(row, move |effort| {
            let mut found = streamed(&testbed, KERNEL, octets, TIME.mul_f64(effort))?;
            found.value *= 1000.0;
            Ok(found)
        });
        list.push(kernel.of(LINUX));
    }
    list
}

fn table_3() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for (octets, figures) in LATENCY {
        let row = format!("{octets} octets");
        list.extend(papers(&row, figures, US_PER_MS));
        list.extend(ours(&row, Peer::Answers, octets, TRIPS));
        let testbed = testbed.clone();
        let kernel = Case::measured(row, move |effort| {
            let time = TIME.mul_f64(effort);
            round_trips(&testbed, KERNEL, (octets, Task::Answer), Mode::TwoCores, time)
        });
        list.push(kernel.of(LINUX));
    }
    list
}

fn table_4() -> Vec<Case> {
    let row = "connection set-up";
    let mut list: Vec<Case> = papers(row, SET_UP, US_PER_MS).collect();
    list.extend(ours(row, Peer::Connects, 1, CONNECTIONS));
    list.push(Case::measured(row, |effort| linux_connects(CONNECTIONS * effort)).of(LINUX));
    let [.., library] = PAPER;
    let part = |(part, ms): (&str, f64)| quoted(format!("of it: {part}"), library, ms * US_PER_MS);
    list.extend(SET_UP_PARTS.into_iter().map(part));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organisations_are_graphs_with_what_is_asked_for() {
        let catalog = xk_catalog::standard();
        for peer in [Peer::Answers, Peer::Stream, Peer::Connects] {
            for (system, graph) in ORGANISATIONS {
                let graph = graph_for(peer, graph);
                let checked = xk_compose::check(&graph, "organisation.kdl", &catalog);
                let checked = checked.unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
                let hosts = checked.graph().expand();
                assert_eq!(hosts[0].nodes().len(), 9, "{system}");
                let answers = graph.contains("echo tcp");
                assert_eq!(answers, peer == Peer::Answers, "{system}");
            }
        }
    }

    #[test]
    fn parts_of_the_papers_set_up_sum_to_it() {
        let sum: f64 = SET_UP_PARTS.iter().map(|(_, ms)| ms).sum();
        assert!((sum - SET_UP[2]).abs() < 0.2, "{sum}");
    }
}
