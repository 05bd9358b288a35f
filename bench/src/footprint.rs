//! Size of the command, time to its first answer, and its use of the machine while idle.
//!
//! A host of five protocols over a TAP device (`xk run`, as in graphs/tap.kdl) runs in a network
//! namespace of its own beside a process that pings it by Linux's own stack.

use crate::case::{Case, Goal, Trouble};
use crate::child::{self, Running, command};
use crate::folder;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketFlags, SocketType, ipproto, recvfrom,
    sendto, socket_with,
};
use rustix::process::Signal;
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use xk_kit::Checksum;

/// The rows of one run, with units and goals, in the order of the results of [`measure`].
const ROWS: [(&str, &str, Option<Goal>); 7] = [
    ("start to the first answered ping", "ms", Some(Goal::AtMost(100.0))),
    ("resident memory (VmRSS)", "KiB", Some(Goal::AtMost(32_768.0))),
    ("its share of it (PSS)", "KiB", None),
    ("threads", "threads", None),
    ("open descriptors", "descriptors", None),
    ("voluntary switches, idle", "1/s", None),
    ("processor time, idle", "ms/s", None),
];

/// Time for which the idle host is watched.
const WATCHED: Duration = Duration::from_millis(1000);
/// Longest time to its first answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

pub(crate) fn cases() -> Vec<Case> {
    let mut list = vec![
        Case::measured("binary as built", |_| Ok(size_kib(&command()?)?.into())),
        Case::measured("binary stripped", |_| Ok(stripped_kib(&command()?)?.into())),
    ];
    let rows = ROWS.map(|(row, unit, goal)| (row.to_owned(), unit, goal));
    list.extend(child::rows(rows, |effort| {
        child::ask_alone("footprint", &format!("{effort} {}", command()?.display()))
    }));
    list
}

fn size_kib(path: &Path) -> Result<f64, Trouble> {
    let found = fs::metadata(path)?;
    Ok(found.len() as f64 / 1024.0)
}

fn stripped_kib(command: &Path) -> Result<f64, Trouble> {
    let folder = folder::own()?;
    let copy = folder.path().join("stripped");
    let stripped =
        Command::new("strip").arg("-o").args([&copy, command]).stderr(Stdio::null()).status();
    match stripped {
        Ok(status) if status.success() => size_kib(&copy),
        Ok(_) => Err(Trouble::Failed("strip refused the command".into())),
        Err(error) => Err(Trouble::Skipped(format!("needs strip: {error} (apt install binutils)"))),
    }
}

/// The host's addresses: ours, as Linux has it, and its own.
const LINUX: &str = "10.76.0.1";
const HOST: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 2);

/// Starts the command that the argument names behind the share of the usual effort, and watches it.
/// Runs in a namespace of its own, started by [`child::ask_alone`].
pub(crate) fn measure(argument: &str) -> Result<Vec<f64>, String> {
    let (effort, command) = argument.split_once(' ').ok_or("no command is named")?;
    let effort: f64 = effort.parse().map_err(|_| "no effort is named")?;
    let folder = folder::own().map_err(|trouble| format!("{trouble:?}"))?;
    let graph = folder.path().join("idle.kdl");
    let text = format!(
        "host idle {{\n tap device=xkf0 host_address=\"{LINUX}/24\"\n eth tap\n arp eth\n ip arp {{ address \"{HOST}/24\"; }}\n \
         icmp ip\n udp ip\n}}\n"
    );
    fs::write(&graph, text).map_err(|error| format!("cannot write the graph: {error}"))?;
    watch(command, &graph, effort)
}

fn watch(command: &str, graph: &Path, effort: f64) -> Result<Vec<f64>, String> {
    let pings = Pings::new().map_err(|error| format!("no socket to ping by: {error}"))?;
    let start = Instant::now();
    let mut xk = Command::new(command);
    xk.args(["run", "--no-control"])
        .arg(graph)
        // It links this crate too: left in, the variable would make it measure a footprint again,
        // without end.
        .env_remove(child::VARIABLE)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = Running::start(&mut xk, (Signal::KILL, ANSWER_TIME_MAX))
        .map_err(|error| format!("cannot start {command}: {error}"))?;
    while !pings.are_answered() {
        if start.elapsed() > ANSWER_TIME_MAX {
            return Err(format!("no ping was answered within {ANSWER_TIME_MAX:?}"));
        }
        if let Ok(Some(status)) = running.child.try_wait() {
            return Err(format!("xk run ended: {status}"));
        }
    }
    let took = start.elapsed();
    let place = PathBuf::from(format!("/proc/{}", running.child.id()));
    // What the start has stirred up settles first.
    sleep(WATCHED.mul_f64(effort * 0.2));
    let before = Doing::of(&place)?;
    let watched = Instant::now();
    sleep(WATCHED.mul_f64(effort));
    let (after, seconds) = (Doing::of(&place)?, watched.elapsed().as_secs_f64());
    let read = |file: &str| fs::read_to_string(place.join(file)).unwrap_or_default();
    let kib =
        |file: &str, key: &str| child::octets_of(&read(file), key).map_or(f64::NAN, |o| o / 1024.0);
    let count = |folder: &str| {
        fs::read_dir(place.join(folder)).map_or(f64::NAN, |list| list.count() as f64)
    };
    Ok(vec![
        took.as_secs_f64() * 1e3,
        kib("status", "VmRSS"),
        kib("smaps_rollup", "Pss"),
        count("task"),
        count("fd"),
        (after.switches - before.switches) / seconds,
        (after.busy_ms - before.busy_ms) / seconds,
    ])
}

/// Counters of a process since it began.
struct Doing {
    switches: f64,
    busy_ms: f64,
}

impl Doing {
    /// From `/proc` (proc(5)): of all its threads.
    fn of(place: &Path) -> Result<Self, String> {
        let tasks =
            fs::read_dir(place.join("task")).map_err(|error| format!("it ended: {error}"))?;
        let (mut switches, mut busy_ms) = (0.0, 0.0);
        for task in tasks.flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            switches += line.and_then(|n| n.trim().parse::<f64>().ok()).unwrap_or(0.0);
            // The first number is the time on a processor, in nanoseconds.
            let times = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let ns = times.split(' ').next().and_then(|n| n.parse::<f64>().ok());
            busy_ms += ns.unwrap_or(0.0) / 1e6;
        }
        Ok(Self { switches, busy_ms })
    }
}

/// Echo requests to the host, and their answers.
struct Pings {
    socket: OwnedFd,
    request: [u8; 8],
}

/// Time to wait for an answer before the next request.
const PING_EVERY: Duration = Duration::from_micros(200);
/// Types of ICMP (RFC 792).
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Octets of the header of IP that a raw socket shows.
const IP_OCTETS: usize = 20;

impl Pings {
    fn new() -> rustix::io::Result<Self> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(ipproto::ICMP),
        )?;
        let mut request = [ECHO, 0, 0, 0, 0x78, 0x6b, 0, 1];
        let mut sum = Checksum::default();
        sum.add(&request);
        request[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        Ok(Self { socket, request })
    }

    /// Sends one and sees whether any was answered. Before the device is there, nothing can be
    /// sent.
    fn are_answered(&self) -> bool {
        let to = SocketAddrV4::new(HOST, 0);
        let _ = sendto(&self.socket, &self.request, SendFlags::empty(), &to);
        sleep(PING_EVERY);
        let mut packet = [0; 256];
        while let Ok((octets, ..)) = recvfrom(&self.socket, &mut packet[..], RecvFlags::empty()) {
            let echo = packet.get(IP_OCTETS..octets).unwrap_or_default();
            if echo.first() == Some(&ECHO_REPLY) && echo.get(4..8) == self.request.get(4..8) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_checksum_of_rfc_1071() {
        if let Ok(pings) = Pings::new() {
            let mut sum = Checksum::default();
            sum.add(&pings.request);
            assert!(sum.is_valid());
        }
    }

    #[test]
    fn this_process_is_seen_to_do_something() {
        let place = Path::new("/proc/self");
        let before = Doing::of(place).unwrap();
        sleep(Duration::from_millis(2));
        let after = Doing::of(place).unwrap();
        assert!(after.switches > before.switches && after.busy_ms >= before.busy_ms);
    }
}
