//! Tables 1 to 5 of Chandramohan A. Thekkath, Thu D. Nguyen, Evelyn Moy and Edward D. Lazowska,
//! "Implementing Network Protocols at User Level", IEEE/ACM Transactions on Networking 1(5),
//! October 1993, section 4: TCP by where the protocols lie.
//!
//! One graph, `graphs/org-one.kdl`, is run by `xk run` with other domain lines for each system, in
//! a network namespace of its own; Linux's sockets stand at the other end of its TAP device. The
//! paper's machines were two DECstations 5000/200 (R3000, 25 MHz) on a 10 Mbit/s Ethernet, with
//! the same system at both ends. In the place of its AN1 are two hosts of ours over shared memory,
//! with indices in the link header ([`indexed`]). Where the protocols are a library the application
//! is a program that attaches to the registry's domain.

use super::demultiplexing::{by_module, by_system};
use super::indexed::{self, ENDS, Ends, Work};
use super::mechanisms::throughput;
use super::organisation::{Peer, graph_for, linux_connects, measure, measure_all};
use super::quoted::{LINUX, quoted};
use crate::case::{Case, Goal};
use crate::child;
use crate::net::endpoint::System;
use crate::net::rows::trips;
use crate::net::tcp::stream;
use crate::net::testbed::{Mode, Testbed};
use crate::record::Record;
use std::time::Duration;

/// The paper's systems: the kernel's protocols, a server's, and the library.
const PAPER: [&str; 3] =
    ["Ultrix, DECstation 5000/200", "Mach/UX, DECstation 5000/200", "library, DECstation 5000/200"];
/// Ours, by where the protocols lie, and the graph.
const ORGANISATIONS: [(&str, &str); 6] = [
    (IN_PROCESS, include_str!("../../../graphs/org-one.kdl")),
    ("xk, one server", include_str!("../../../graphs/org-server.kdl")),
    ("xk, server and device", include_str!("../../../graphs/org-memory.kdl")),
    ("xk, server and device, messages", include_str!("../../../graphs/org-messages.kdl")),
    ("xk, a server per protocol", include_str!("../../../graphs/org-per-protocol.kdl")),
    (LIBRARY, include_str!("../../../graphs/org-library.kdl")),
];
const IN_PROCESS: &str = "xk, one process";
const LIBRARY: &str = "xk, library";
const KERNEL: System = System::LinuxTcpVeth;
/// Time that a round of Linux's own measures.
const TIME: Duration = Duration::from_millis(80);
const US_PER_MS: f64 = 1000.0;

/// The paper's megabits a second over Ethernet: without an operating system, and by two programs
/// that use all of the library's mechanisms; and how much that is of it, in percent.
const MECHANISMS: [(&str, f64); 2] = [("standalone", 9.6), ("user to user", 8.5)];
const SHARE: &str = "user to user, of standalone, in %";
const MECHANISMS_SHARE: f64 = 89.0;
/// Length of a round of frames.
const FRAMES_TIME: Duration = Duration::from_millis(300);
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
/// A call of ONC RPC by a socket of Linux, to where the organisation has its applications.
const CALL: &str = "null call of ONC RPC by UDP";
/// The paper's milliseconds until a connection is there, over Ethernet.
const SET_UP: [f64; 3] = [2.6, 6.8, 11.9];
/// Parts of a library's set-up time, the paper's and ours, in the order of the answers of `member`.
const SET_UP_PARTS: [(&str, f64); 5] = [
    ("to the peer and back", 4.6),
    ("what is not overlapped of the outbound processing", 1.5),
    ("channels to the device", 3.4),
    ("application to server and back", 0.9),
    ("state to user level", 1.4),
];

/// The paper's over AN1, of its systems there: the kernel's protocols, and the library.
const ON_AN1: [&str; 2] = [PAPER[0], PAPER[2]];
const AN1_THROUGHPUT: [[f64; 2]; 4] = [[4.8, 6.7], [10.2, 8.1], [11.9, 9.4], [11.9, 11.9]];
const AN1_LATENCY: [[f64; 2]; 3] = [[1.8, 2.7], [2.7, 3.4], [3.2, 4.7]];
const AN1_SET_UP: [f64; 2] = [2.9, 12.3];

/// The paper's microseconds to find a packet's channel: by instructions, and by the index that a
/// link's header has.
const DEMULTIPLEXING: [(&str, f64); 2] =
    [("software, DECstation 5000/200", 52.0), ("BQI, DECstation 5000/200", 50.0)];
const NS_PER_US: f64 = 1000.0;
const BY_MAP: &str = "xk, map of the module";
const BY_INDEX: &str = "xk, index of the link header";
const BY_SYSTEM: &str = "xk, eBPF";
/// Numbers of channels.
const CHANNELS: [u16; 3] = [1, 8, 64];
const LOOKS: u64 = 300_000;
/// Row of a program that does nothing, as the system's clock measures it.
const EMPTY: &str = "an empty program";

/// Octets of a round of throughput, and how often another round does its work.
const STREAM_OCTETS: f64 = 16_000_000.0;
const TRIPS: f64 = 1000.0;
const CONNECTIONS: f64 = 200.0;

fn papers(row: &str, figures: [f64; 3], factor: f64) -> impl Iterator<Item = Case> {
    let quote = |(system, figure): (&'static str, f64)| quoted(row, system, figure * factor);
    PAPER.into_iter().zip(figures).map(quote).collect::<Vec<_>>().into_iter()
}

/// A row of ours in every organisation.
fn ours(row: &str, peer: Peer, octets: usize, count: f64) -> impl Iterator<Item = Case> {
    let case = |(system, graph): (&'static str, &'static str)| {
        let graph = graph_for(peer, graph);
        let case = Case::measured(row, move |effort| {
            measure(&graph, peer, octets, count * effort, Mode::Unpinned)
        });
        match (system, peer) {
            (LIBRARY, Peer::Stream) => {
                case.of(system).beside(IN_PROCESS).goal(Goal::TimesAsFast(0.95))
            }
            (LIBRARY, Peer::Answers | Peer::Calls) => {
                case.of(system).beside(IN_PROCESS).goal(Goal::AtMostTimes(1.1))
            }
            _ => case.of(system),
        }
    };
    ORGANISATIONS.into_iter().map(case).collect::<Vec<_>>().into_iter()
}

/// A row over AN1: the paper's figures, in a unit of so many, and ours over shared memory.
fn over_an1(
    row: &str,
    (figures, factor): ([f64; 2], f64),
    work: Work,
    (octets, count): (usize, f64),
) -> Vec<Case> {
    let row = format!("{row}, over AN1 or shm");
    let quote = |(system, figure): (&'static str, f64)| quoted(&*row, system, figure * factor);
    let mut list: Vec<Case> = ON_AN1.into_iter().zip(figures).map(quote).collect();
    list.extend(ENDS.map(|(system, ends)| {
        let measure = move |effort| indexed::measure(ends, work, octets, count * effort);
        let case = Case::measured(&*row, measure).of(system);
        match ends {
            Ends::ByIndex => case.beside(ENDS[0].0).beside(ENDS[1].0),
            _ => case,
        }
    }));
    list
}

/// Rates of a device to a program that owns it, and through the module; xk at one end alone.
pub(crate) fn table_1() -> Vec<Case> {
    let [.., papers] = PAPER;
    let mut list = vec![quoted(SHARE, papers, MECHANISMS_SHARE)];
    for ((row, figure), by_module) in MECHANISMS.into_iter().zip([false, true]) {
        list.push(quoted(row, papers, figure));
        list.push(Case::measured(row, move |effort| {
            Ok(throughput(by_module, FRAMES_TIME.mul_f64(effort))?.into())
        }));
    }
    list
}

pub(crate) fn share(records: &[Record]) -> Vec<Record> {
    let of = |row| Record::find(records, row, "xk");
    let [alone, by_module] = MECHANISMS.map(|(row, _)| of(row));
    let share = alone.zip(by_module).map(|(alone, by_module)| {
        let ends = [(by_module.min, alone.max), (by_module.median, alone.median)];
        let [least, middle] = ends.map(|(by_module, alone)| by_module / alone * 100.0);
        let most = by_module.max / alone.min * 100.0;
        by_module.computed(SHARE, "%", [least, middle, most])
    });
    share.into_iter().collect()
}

pub(crate) fn table_2() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for (octets, figures) in THROUGHPUT {
        let row = format!("{octets} octets");
        list.extend(papers(&row, figures, 1.0));
        list.extend(ours(&row, Peer::Stream, octets, STREAM_OCTETS / octets as f64));
        let kernel = stream(&testbed, row, KERNEL, octets, TIME).shown_as(|gbits| gbits * 1000.0);
        list.push(kernel.of(LINUX));
    }
    for ((octets, _), figures) in THROUGHPUT.into_iter().zip(AN1_THROUGHPUT) {
        let amount = (octets, STREAM_OCTETS / octets as f64);
        list.extend(over_an1(&format!("{octets} octets"), (figures, 1.0), Work::Stream, amount));
    }
    list
}

pub(crate) fn table_3() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for (octets, figures) in LATENCY {
        let row = format!("{octets} octets");
        list.extend(papers(&row, figures, US_PER_MS));
        list.extend(ours(&row, Peer::Answers, octets, TRIPS));
        list.push(trips(&testbed, row, KERNEL, octets, Mode::Unpinned, TIME).of(LINUX));
    }
    let [(in_process, one), .., (library, parts)] = ORGANISATIONS;
    let datagrams = |graph: &'static str| {
        let trips =
            move |effort: f64| measure(graph, Peer::Echoes, 1, TRIPS * effort, Mode::Unpinned);
        Case::measured("1 octet by UDP, from the program", trips)
    };
    list.push(datagrams(one).of(in_process));
    let goal = Goal::AtMostTimes(1.1);
    list.push(datagrams(parts).of(library).beside(in_process).goal(goal));
    list.extend(ours(CALL, Peer::Calls, 1, TRIPS));
    for ((octets, _), figures) in LATENCY.into_iter().zip(AN1_LATENCY) {
        let (row, figures) = (format!("{octets} octets"), (figures, US_PER_MS));
        list.extend(over_an1(&row, figures, Work::Answers, (octets, TRIPS)));
    }
    list
}

pub(crate) fn table_4() -> Vec<Case> {
    let row = "connection set-up";
    let mut list: Vec<Case> = papers(row, SET_UP, US_PER_MS).collect();
    let [(in_process, one), .., (library, parts)] = ORGANISATIONS;
    let whole = Case::measured(row, |effort| {
        measure(one, Peer::Listens, 1, CONNECTIONS * effort, Mode::Unpinned)
    });
    list.push(whole.of(in_process));
    let all = SET_UP_PARTS.map(|(part, _)| format!("of it: {part}"));
    let all = [row.into()].into_iter().chain(all).chain(["of it: the rest".into()]);
    let mut found = child::rows(all.map(|row| (row, "us", None)), move |effort| {
        measure_all(parts, Peer::Listens, 1, CONNECTIONS * effort, Mode::Unpinned)
    });
    let whole = found.remove(0).of(library).beside(in_process).goal(Goal::AtMostTimes(2.0));
    list.push(whole.beside(LINUX).goal(Goal::AtMostTimes(5.0)));
    list.push(Case::measured(row, |effort| linux_connects(CONNECTIONS * effort)).of(LINUX));
    let [.., papers_library] = PAPER;
    for ((_, ms), ours) in SET_UP_PARTS.into_iter().zip(&found) {
        list.push(quoted(ours.row.clone(), papers_library, ms * US_PER_MS));
    }
    list.extend(found.into_iter().map(|part| part.of(library)));
    list.extend(ours("connection set-up, by the peer", Peer::Connects, 1, CONNECTIONS));
    list.extend(over_an1(row, (AN1_SET_UP, US_PER_MS), Work::Connects, (1, CONNECTIONS)));
    list
}

/// Each way to find a channel is a system of its own.
pub(crate) fn table_5() -> Vec<Case> {
    let mut list = Vec::new();
    for (system, us) in DEMULTIPLEXING {
        list.push(quoted("a packet", system, us * NS_PER_US));
    }
    for count in CHANNELS {
        let row = format!("{count} channel{}", if count == 1 { "" } else { "s" });
        for (system, by_index) in [(BY_MAP, false), (BY_INDEX, true)] {
            let case = Case::new(row.clone(), LOOKS, move || by_module(count, by_index));
            list.push(case.of(system));
        }
        let empty = (count == 1).then(|| EMPTY.to_owned());
        let rows = [row].into_iter().chain(empty).map(|row| (row, "ns", None));
        let found = child::rows(rows, move |effort| by_system(count, effort));
        list.extend(found.into_iter().map(|case| case.of(BY_SYSTEM)));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::organisation::PEERS;
    use super::*;

    #[test]
    fn organisations_are_graphs_with_what_is_asked_for() {
        let catalog = xk_catalog::standard();
        for (_, peer) in PEERS {
            for (system, graph) in ORGANISATIONS {
                let graph = graph_for(peer, graph);
                let checked = xk_compose::check(&graph, "organisation.kdl", &catalog);
                let checked = checked.unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
                let hosts = checked.graph().expand();
                let called = usize::from(peer == Peer::Calls && system != LIBRARY);
                assert_eq!(hosts[0].nodes().len(), 9 + 3 * called, "{system}");
                let answers = graph.contains("echo tcp");
                assert_eq!(answers, peer == Peer::Answers && system != LIBRARY, "{system}");
            }
        }
    }

    #[test]
    fn parts_of_the_papers_set_up_sum_to_it() {
        let sum: f64 = SET_UP_PARTS.iter().map(|(_, ms)| ms).sum();
        assert!((sum - SET_UP[2]).abs() < 0.2, "{sum}");
    }
}
