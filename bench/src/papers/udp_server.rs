//! Tables 1 to 3, and where the time goes (section 2), of Chris Maeda and Brian N. Bershad,
//! "Networking Performance for Microkernels", Workshop on Workstation Operating Systems, April
//! 1992: UDP there and back, by where the protocols lie and what crosses between their parts.
//!
//! One graph, `graphs/org-messages.kdl`, is run by `xk run` with other domain lines for each row,
//! in a network namespace of its own. Linux's sockets at the other end of its TAP device send one
//! octet and wait for it to come back from the application `echo`; or the same host is at both ends
//! of a veth pair, as Linux is in its own row. Both ends run on one core, on a core each, and where
//! the system puts them: all systems in all three, and the best of each is the one to quote.
//! The paper's machines were two
//! DECstations 2100 (R2000, 12 MHz) on a 10 Mbit/s Ethernet with the same system at both ends.

use super::organisation::{self, Peer};
use super::quoted::{LINUX, quoted};
use crate::case::Case;
use crate::net::endpoint::System;
use crate::net::rows::mean_trips;
use crate::net::testbed::{Mode, Testbed};
use crate::record::Record;
use std::time::Duration;

/// The paper's systems on a DECstation 2100.
const PAPER: &str = "Mach, DECstation 2100";
/// The organisation of all parts, with messages between them.
const GRAPH: &str = include_str!("../../../graphs/org-messages.kdl");
/// Round trips of a round, as in the paper's trials.
const TRIPS: f64 = 1000.0;
const US_PER_MS: f64 = 1000.0;
/// Place at which the two ends of every row run, alike for all systems.
const PLACEMENTS: [Mode; 3] = [Mode::OneCore, Mode::TwoCores, Mode::Unpinned];
const XK: &str = "xk";
const BOTH: &str = "xk at both ends";
/// Time that a round of Linux's own measures.
const TIME: Duration = Duration::from_millis(80);

/// Place of the protocols of a row, and the way by which its parts reach each other.
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

/// A step from one organisation to another: the time that it adds to a round trip in the paper, in
/// microseconds and if the paper tells it; the organisation with it and the one without.
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

pub(crate) fn table_1() -> Vec<Case> {
    cases(TABLE_1)
}

pub(crate) fn table_2() -> Vec<Case> {
    cases(TABLE_2)
}

pub(crate) fn table_3() -> Vec<Case> {
    cases(TABLE_3)
}

/// Every organisation of the steps once, and the locks that the paper's old server takes: ours has
/// one thread and takes none.
pub(crate) fn breakdown() -> Vec<Case> {
    let ends = STEPS.iter().flat_map(|(.., with, without)| [with, without]);
    let mut rows: Vec<Row> = Vec::new();
    for end in ends {
        if !rows.iter().any(|(name, ..)| *name == end.name()) {
            rows.push((end.name(), None, Some(*end)));
        }
    }
    let mut list = list(&rows, &[(XK, Peer::Datagrams)]);
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

/// The differences of the organisations' best placements.
pub(crate) fn steps(records: &[Record]) -> Vec<Record> {
    let of = |end: Organisation| best(records, end.name(), "xk").map(|(best, _)| best);
    let step = |(row, _, with, without): &Step| {
        let (with, without) = (of(*with)?, of(*without)?);
        Some(with.with(without, (*row, with.unit), |with, without| with - without))
    };
    let steps = STEPS.iter().filter_map(step);
    bests(records).into_iter().chain(steps).collect()
}

/// The placement in which a system was quickest.
fn best<'a>(records: &'a [Record], row: &str, system: &str) -> Option<(&'a Record, Mode)> {
    let placed = PLACEMENTS.into_iter().filter_map(|mode| {
        let record = Record::find(records, &placed(row, mode), system)?;
        Some((record, mode))
    });
    placed.min_by(|(a, _), (b, _)| a.median.total_cmp(&b.median))
}

/// Picks the best placement of each row and system, with its name: the row to quote.
pub(crate) fn bests(records: &[Record]) -> Vec<Record> {
    let mut list: Vec<Record> = Vec::new();
    for record in records {
        let row = PLACEMENTS
            .into_iter()
            .find_map(|mode| record.row.strip_suffix(mode.name())?.strip_suffix(", "));
        let Some((best, mode)) = row.and_then(|row| best(records, row, record.system)) else {
            continue;
        };
        let name = format!("{}, best: {}", row.unwrap_or_default(), mode.name());
        if !list.iter().any(|known| known.row == name && known.system == record.system) {
            let figures = [best.min, best.median, best.max];
            let (interval, p50, p99) = (best.interval, best.p50, best.p99);
            list.push(Record { interval, p50, p99, ..best.computed(name, best.unit, figures) });
        }
    }
    list
}

/// Names a row in one placement.
fn placed(row: &str, mode: Mode) -> String {
    format!("{row}, {}", mode.name())
}

/// Each row in each placement, alike for all systems: with Linux at the other end, and with the
/// same host there.
fn cases(rows: &[Row]) -> Vec<Case> {
    list(rows, &[(XK, Peer::Datagrams), (BOTH, Peer::Both)])
}

fn list(rows: &[Row], peers: &'static [(&'static str, Peer)]) -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for &(row, paper, organisation) in rows {
        list.extend(paper.map(|ms| quoted(row, PAPER, ms * US_PER_MS)));
        let Some(organisation) = organisation else {
            continue;
        };
        for mode in PLACEMENTS {
            let row = placed(row, mode);
            let Some(graph) = organisation.graph() else {
                let kernel = mean_trips(&testbed, row, System::LinuxVeth, 1, mode, TIME);
                list.push(kernel.of(LINUX));
                continue;
            };
            for (system, peer) in peers {
                let graph = graph.clone();
                let case = Case::measured(row.clone(), move |effort| {
                    organisation::measure(&graph, *peer, 1, TRIPS * effort, mode)
                });
                list.push(case.of(system));
            }
        }
    }
    list
}

impl Organisation {
    /// The name of a row.
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

    /// Placed alike, a system that is slow in one placement is judged by its best one.
    #[test]
    fn each_system_is_quoted_in_its_best_placement() {
        let record = |row: &str, system, median| Record {
            row: row.into(),
            system,
            min: median,
            median,
            max: median,
            runs: 7,
            ..Record::default()
        };
        let records = [
            record("r", PAPER, 4800.0),
            record("r, one core", LINUX, 14.0),
            record("r, two cores", LINUX, 57.0),
            record("r, unpinned", LINUX, 16.0),
            record("r, two cores", XK, 36.0),
            record("r, unpinned", XK, 31.0),
        ];
        let quoted = bests(&records).into_iter().map(|r| (r.row, r.system, r.median));
        let expected = [
            ("r, best: one core".to_owned(), LINUX, 14.0),
            ("r, best: unpinned".to_owned(), XK, 31.0),
        ];
        assert_eq!(quoted.collect::<Vec<_>>(), expected);
        for row in TABLE_3.iter().filter(|(.., organisation)| organisation.is_some()) {
            let cases = cases(&[*row]);
            for mode in PLACEMENTS {
                assert!(cases.iter().any(|case| case.row == placed(row.0, mode)), "{}", row.0);
            }
        }
    }

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
            let veth = organisation::on_veth(&graph, "xka");
            assert!(xk_compose::check(&veth, "veth.kdl", &catalog).is_ok(), "{veth}");
            let checked = xk_compose::check(&graph, "organisation.kdl", &catalog);
            let checked = checked.unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
            let hosts = checked.graph().expand();
            assert_eq!(hosts[0].nodes().len(), 9, "{graph}");
            assert_eq!(graph.matches("domain ").count(), domains, "{graph}");
        }
    }
}
