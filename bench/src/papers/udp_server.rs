//! Tables 1 to 3 of Chris Maeda and Brian N. Bershad, "Networking Performance for Microkernels",
//! Workshop on Workstation Operating Systems, April 1992: UDP there and back, by where the
//! protocols lie and what crosses between their parts.
//!
//! One graph, `graphs/org-messages.kdl`, is run by `xk run` with other domain lines for each row,
//! in a network namespace of its own. Linux's sockets at the other end of its TAP device send one
//! octet and wait for it to come back from the application `echo`. The paper's machines were two
//! DECstations 2100 (R2000, 12 MHz) on a 10 Mbit/s Ethernet with the same system at both ends.

use super::{LINUX, quoted};
use crate::case::{Benchmark, Case, Trouble};
use crate::child;
use crate::folder;
use crate::net::endpoint::{System, Task};
use crate::net::round_trips;
use crate::net::testbed::{Mode, Testbed};
use rustix::process::{Pid, Signal, kill_process};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The paper's systems on a DECstation 2100.
const PAPER: &str = "Mach, DECstation 2100";
/// The organisation of all parts, with messages between them.
const GRAPH: &str = include_str!("../../../graphs/org-messages.kdl");
/// Where its application answers.
const ECHO: (&str, u16) = ("10.9.0.2", 7);
/// Round trips of a round, as in the paper's trials.
const TRIPS: f64 = 1000.0;
/// How long a host may take to come up, and an answer to come.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
const US_PER_MS: f64 = 1000.0;

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

/// A row: what it is called, the paper's milliseconds if it has any, and what is run.
type Row = (&'static str, Option<f64>, Organisation);

const KERNEL: Row = ("protocols in the kernel", Some(4.8), Organisation::Kernel);
const UNIX_SERVER: Row =
    ("Unix server, messages and mapped data", Some(19.5), Organisation::Mapped);

const TABLE_1: &[Row] = &[KERNEL, UNIX_SERVER];
const TABLE_2: &[Row] = &[
    ("data in the message", Some(14.3), Organisation::InBand),
    ("system call in place of a message", Some(13.6), Organisation::SystemCall),
    ("device in shared memory", Some(13.1), Organisation::SharedDevice),
];
const TABLE_3: &[Row] = &[
    ("new server, user to user", Some(4.2), Organisation::SharedUsers),
    ("new server, server to server", Some(4.0), Organisation::InServer),
    UNIX_SERVER,
    KERNEL,
];

/// The three tables.
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
    ]
}

fn cases(rows: &'static [Row]) -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for (row, paper, organisation) in rows {
        list.extend(paper.map(|ms| quoted(*row, PAPER, ms * US_PER_MS)));
        let testbed = testbed.clone();
        let Some(graph) = organisation.graph() else {
            let kernel = Case::measured(*row, move |effort| {
                let (time, exchange) = (Duration::from_millis(80), (1, Task::Answer));
                let time = time.mul_f64(effort);
                round_trips(&testbed, System::LinuxVeth, exchange, Mode::TwoCores, time)
            });
            list.push(kernel.of(LINUX));
            continue;
        };
        list.push(Case::measured(*row, move |effort| {
            program()?;
            let folder = folder::own()?;
            let path = folder.path().join("organisation.kdl");
            std::fs::write(&path, &graph).map_err(|error| Trouble::Failed(error.to_string()))?;
            let trips = (TRIPS * effort).max(1.0);
            let found = child::ask_alone("organisation", &format!("{trips} {}", path.display()))?;
            let one = found.first().copied();
            Ok(one.ok_or_else(|| Trouble::Failed("it answered nothing".into()))?.into())
        }));
    }
    list
}

impl Organisation {
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

/// The command that runs graphs, which lies beside this program or, beside a test, one above.
fn program() -> Result<PathBuf, Trouble> {
    let own = std::env::current_exe().map_err(|error| Trouble::Failed(error.to_string()))?;
    let places = own.ancestors().skip(1).take(2).map(|folder| folder.join("xk"));
    let found = places.into_iter().find(|path| path.is_file());
    if !Path::new("/dev/net/tun").exists() {
        return Err(Trouble::Skipped("needs /dev/net/tun (modprobe tun)".into()));
    }
    found.ok_or_else(|| Trouble::Skipped("needs the program xk beside it (cargo build)".into()))
}

/// A graph that runs; ended with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process(pid, Signal::INT);
        }
        let ends = Instant::now() + PATIENCE;
        while Instant::now() < ends {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a graph, here in a namespace of its own, and measures the mean of so many round trips in
/// microseconds. The argument is their number and the graph's path.
pub(crate) fn organisation(argument: &str) -> Result<Vec<f64>, String> {
    let text = |error: std::io::Error| error.to_string();
    let (trips, path) = argument.split_once(' ').ok_or("no graph")?;
    let trips = trips.parse::<f64>().map_err(|error| error.to_string())? as u32;
    let program = program().map_err(|trouble| format!("{trouble:?}"))?;
    let mut command = Command::new(program);
    command.args(["run", path]).stdin(Stdio::null()).stdout(Stdio::null());
    let running = Running(command.stderr(Stdio::null()).spawn().map_err(text)?);
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(text)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN)).map_err(text)?;
    let trip = || -> Result<bool, String> {
        // Until the device is there nothing can be sent.
        let sent = socket.send_to(&[7], ECHO);
        Ok(sent.is_ok() && socket.recv(&mut [0; 16]).is_ok())
    };
    let ends = Instant::now() + PATIENCE;
    while !trip()? {
        if Instant::now() > ends {
            return Err(format!("nothing came back within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Late answers of the first tries are none of those measured.
    std::thread::sleep(ANSWER_WITHIN);
    socket.set_nonblocking(true).map_err(text)?;
    while socket.recv(&mut [0; 16]).is_ok() {}
    socket.set_nonblocking(false).map_err(text)?;
    let (begun, mut done) = (Instant::now(), 0_u32);
    for _ in 0..trips.max(1) {
        done += u32::from(trip()?);
    }
    let taken = begun.elapsed().as_secs_f64() * 1e6;
    drop(running);
    if done < trips.max(1) {
        return Err(format!("{done} of {trips} came back within {} ms", ANSWER_WITHIN.as_millis()));
    }
    Ok(vec![taken / f64::from(done)])
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
