//! Tables 1 to 3, and where the time goes (section 2), of Chris Maeda and Brian N. Bershad,
//! "Networking Performance for Microkernels", Workshop on Workstation Operating Systems, April
//! 1992: UDP there and back, by where the protocols lie and what crosses between their parts.
//!
//! One graph, `graphs/org-messages.kdl`, is run by `xk run` with other domain lines for each row,
//! in a network namespace of its own. Linux's sockets at the other end of its TAP device send one
//! octet and wait for it to come back from the application `echo`. The paper's machines were two
//! DECstations 2100 (R2000, 12 MHz) on a 10 Mbit/s Ethernet with the same system at both ends.

use super::organisation::{self, Peer};
use super::{LINUX, quoted};
use crate::case::{Benchmark, Case};
use crate::net::endpoint::System;
use crate::net::testbed::{Mode, Testbed};
use crate::net::trips;
use crate::record::Record;
use std::time::Duration;

/// The paper's systems on a DECstation 2100.
const PAPER: &str = "Mach, DECstation 2100";
/// The organisation of all parts, with messages between them.
const GRAPH: &str = include_str!("../../../graphs/org-messages.kdl");
/// Round trips of a round, as in the paper's trials.
const TRIPS: f64 = 1000.0;
const US_PER_MS: f64 = 1000.0;
/// How long a round of Linux's own measures.
const TIME: Duration = Duration::from_millis(80);

/// Where the protocols of a row lie, and how its parts reach each other.
#[derive(Clone, Copy)]
enum Organisation {
    /// In the kernel: Linux's own, at both ends of a veth pair.
    Kernel,
    /// A server that reaches the device by messages whose data is mapped for each.
    Mapped,
    /// A server that reaches the device by messages with their data in them.
    InBand,
    /// A server that has the device itself: a system call for each frame.
    SystemCall,
    /// A server that shares memory with what has the device.
    SharedDevice,
    /// A server with the device that shares memory with its users.
    SharedUsers,
    /// The application lies in the server.
    InServer,
}

/// A row: what it is called, the paper's milliseconds if it has any, and what is run, if there is
/// such a thing here.
type Row = (&'static str, Option<f64>, Option<Organisation>);

const KERNEL: Row = ("protocols in the kernel", Some(4.8), Some(Organisation::Kernel));
const UNIX_SERVER: Row =
    ("Unix server, messages and mapped data", Some(19.5), Some(Organisation::Mapped));

const TABLE_1: &[Row] = &[KERNEL, UNIX_SERVER];
const TABLE_2: &[Row] = &[
    ("data in the message", Some(14.3), Some(Organisation::InBand)),
    ("system call in place of a message", Some(13.6), Some(Organisation::SystemCall)),
    // There the driver lies in the server's own address space; no process here drives a controller.
    ("mapped driver", Some(13.1), None),
    ("memory shared with the process of the device", None, Some(Organisation::SharedDevice)),
];
const TABLE_3: &[Row] = &[
    ("new server, user to user", Some(4.2), Some(Organisation::SystemCall)),
    ("new server, server to server", Some(4.0), Some(Organisation::InServer)),
    ("new server, memory shared with users", None, Some(Organisation::SharedUsers)),
    UNIX_SERVER,
    KERNEL,
];

/// What a step from one organisation to another adds to a round trip: the paper's microseconds if
/// it tells them, the organisation with it and the one without.
type Step = (&'static str, Option<f64>, Organisation, Organisation);

const STEPS: &[Step] = &[
    ("mapping data for each message", Some(5200.0), Organisation::Mapped, Organisation::InBand),
    (
        "messages in place of system calls",
        Some(700.0),
        Organisation::InBand,
        Organisation::SystemCall,
    ),
    ("messages to users", Some(200.0), Organisation::SystemCall, Organisation::InServer),
    (
        "memory shared with the process of the device",
        None,
        Organisation::SharedDevice,
        Organisation::SystemCall,
    ),
    ("memory shared with users", None, Organisation::SharedUsers, Organisation::InServer),
];
/// Locks on the way of one round trip, and the microseconds of one (section 2.3).
const LOCKS: (u32, f64) = (50, 12.0);
const LOCKS_ROW: &str = "50 locks";

/// The three tables, and the steps between their rows.
pub(super) fn benchmarks() -> Vec<Benchmark> {
    vec![
        Benchmark::new(
            "papers/udp-server-table-1",
            "UDP there and back, 1 octet: in the kernel and in a server (Maeda and Bershad 1992, table 1)",
            "us",
            || cases(TABLE_1),
        ),
        Benchmark::new(
            "papers/udp-server-table-2",
            "what takes frames from the server to the device (Maeda and Bershad 1992, table 2)",
            "us",
            || cases(TABLE_2),
        ),
        Benchmark::new(
            "papers/udp-server-table-3",
            "a server that is made for it (Maeda and Bershad 1992, table 3)",
            "us",
            || cases(TABLE_3),
        ),
        Benchmark::new(
            "papers/udp-server-breakdown",
            "what each part adds to a round trip: differences of organisations (Maeda and Bershad 1992, section 2)",
            "us",
            breakdown,
        )
        .derived(steps),
    ]
}

/// Every organisation of the steps once, and the locks that the paper's old server takes: ours has
/// one thread and takes none.
fn breakdown() -> Vec<Case> {
    let ends = STEPS.iter().flat_map(|(.., with, without)| [with, without]);
    let mut rows: Vec<Row> = Vec::new();
    for end in ends {
        if !rows.iter().any(|(name, ..)| *name == end.name()) {
            rows.push((end.name(), None, Some(*end)));
        }
    }
    let mut list = cases(&rows);
    let (locks, us) = LOCKS;
    list.push(quoted(LOCKS_ROW, PAPER, f64::from(locks) * us));
    list.push(Case::measured(LOCKS_ROW, move |_| Ok(locked_us(locks).into())).of("std::sync"));
    list.extend(STEPS.iter().filter_map(|(row, us, ..)| us.map(|us| quoted(*row, PAPER, us))));
    list
}

/// The microseconds in which so many locks are taken and given back, none of them waited for.
fn locked_us(locks: u32) -> f64 {
    const ROUNDS: u32 = 1000;
    let lock = std::sync::Mutex::new(0_u32);
    let begun = std::time::Instant::now();
    for _ in 0..ROUNDS * locks {
        *std::hint::black_box(&lock).lock().unwrap_or_else(|held| held.into_inner()) += 1;
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

/// The differences.
fn steps(records: &[Record]) -> Vec<Record> {
    let of = |end: Organisation| Record::find(records, end.name(), "xk");
    let step = |(row, _, with, without): &Step| {
        let (with, without) = (of(*with)?, of(*without)?);
        Some(with.with(without, (*row, with.unit), |with, without| with - without))
    };
    STEPS.iter().filter_map(step).collect()
}

fn cases(rows: &[Row]) -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for &(row, paper, organisation) in rows {
        list.extend(paper.map(|ms| quoted(row, PAPER, ms * US_PER_MS)));
        let Some(organisation) = organisation else {
            continue;
        };
        let Some(graph) = organisation.graph() else {
            let kernel = trips(&testbed, row, System::LinuxVeth, 1, Mode::TwoCores, TIME);
            list.push(kernel.of(LINUX));
            continue;
        };
        list.push(Case::measured(row, move |effort| {
            organisation::measure(&graph, Peer::Datagrams, 1, TRIPS * effort)
        }));
    }
    list
}

impl Organisation {
    /// What a row of it is called.
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "protocols in the kernel",
            Self::Mapped => "server and device, mapped data",
            Self::InBand => "server and device, messages",
            Self::SystemCall => "server with the device, messages to users",
            Self::SharedDevice => "server and device, shared memory",
            Self::SharedUsers => "server with the device, shared memory with users",
            Self::InServer => "application in the server",
        }
    }

    /// The graph with this one's domain lines; none if no graph is run.
    fn graph(self) -> Option<String> {
        let server = "domain server crossing=messages {\n        eth ";
        let with_device = |text: &str| {
            let device = r#"    domain device { tap device=xk0 host_address="10.9.0.1/24"; }"#;
            let tap = r#"tap device=xk0 host_address="10.9.0.1/24""#;
            let text = text.replace(&format!("{device}\n"), "");
            text.replace(server, &format!("domain server {{\n        {tap}\n        eth "))
        };
        let memory = |text: &str| text.replace(" crossing=messages", "");
        Some(match self {
            Self::Kernel => return None,
            Self::Mapped => GRAPH.replace(server, &server.replace("messages", "mapped")),
            Self::InBand => GRAPH.into(),
            Self::SystemCall => with_device(GRAPH),
            Self::SharedDevice => GRAPH.replace(server, &memory(server)),
            Self::SharedUsers => memory(&with_device(GRAPH)),
            Self::InServer => {
                let text = with_device(GRAPH);
                let app = "domain echod crossing=messages { echo udp port=7; }";
                let text = text.replace(app, "");
                text.replace("udp  ip\n", "udp  ip\n        echo udp port=7\n")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organisations_differ_in_their_domain_lines_alone() {
        let all = [
            (Organisation::Mapped, 4),
            (Organisation::InBand, 4),
            (Organisation::SystemCall, 3),
            (Organisation::SharedDevice, 4),
            (Organisation::SharedUsers, 3),
            (Organisation::InServer, 2),
        ];
        let catalog = xk_catalog::standard();
        for (organisation, domains) in all {
            let graph = organisation.graph().unwrap();
            let checked = xk_compose::check(&graph, "organisation.kdl", &catalog);
            let checked = checked.unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
            let hosts = checked.graph().expand();
            assert_eq!(hosts[0].nodes().len(), 9, "{graph}");
            assert_eq!(graph.matches("domain ").count(), domains, "{graph}");
        }
    }
}
