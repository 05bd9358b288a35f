//! Tables III, IV and V and figure 5: latency by stack, what each protocol adds, throughput, and
//! latency by size; between two processes on the two ends of a veth pair, xk over packet sockets
//! beside Linux's own sockets.

use super::increments::{IN_PROCESS, Top};
use super::quoted::{SUN_OS, X_KERNEL, quoted, quoted_record};
use crate::case::{Better, Case};
use crate::net::endpoint::{System, Task, Wire};
use crate::net::rows::{answered, trips};
use crate::net::tcp::stream;
use crate::net::testbed::{Mode, Testbed};
use crate::record::Record;
use crate::rpc::foreign::{Foreign, Programs};
use crate::rpc::stacks::Stack;
use std::time::Duration;

/// Time that a round of a case measures.
const TIME: Duration = Duration::from_millis(40);
const MODES: [Mode; 2] = [Mode::Spinning, Mode::OneCore];

const ETH: &str = "ETH";
const IP: &str = "IP-ETH";
const UDP: &str = "UDP-IP-ETH";
const TCP: &str = "TCP-IP-ETH";
const RPC: &str = "RPC-UDP-IP-ETH";
/// Sun RPC in layers; and the library of today's systems, over the loopback device.
const SUN: System = System::Rpc(Stack::SunUdp, Wire::Packet);
const LIBRARY: Foreign = Foreign::OncUdp;

/// A stack's row: the paper's milliseconds, ours, and Linux's counterpart.
const STACKS: [(&str, [f64; 2], System, System); 4] = [
    (ETH, [1.68, 4.87], System::XkEth, System::Bare(Wire::Packet)),
    (IP, [1.89, 5.62], System::XkIp, System::LinuxIp),
    (UDP, [2.00, 5.36], System::Xk(Wire::Packet), System::LinuxVeth),
    (TCP, [3.30, 6.10], System::XkTcp(Wire::Packet), System::LinuxTcpVeth),
];

/// Calls of an octet by Sun RPC, ours and the library's.
fn calls(testbed: &Testbed, programs: &Programs, row: String, mode: Mode) -> [Case; 2] {
    let ours = trips(testbed, row.clone(), SUN, 1, mode, TIME);
    let programs = programs.clone();
    let theirs =
        Case::measured(row, move |effort| programs.calls(LIBRARY, 1, mode, TIME.mul_f64(effort)));
    [ours.beside(LIBRARY.name()), theirs.of(LIBRARY.name())]
}

pub(crate) fn cases_3() -> Vec<Case> {
    let (testbed, programs) = (Testbed::default(), Programs::default());
    let mut list = Vec::new();
    for mode in MODES {
        for (stack, _, ours, theirs) in STACKS {
            let row = format!("{stack}, {}", mode.name());
            let case = trips(&testbed, row.clone(), ours, 1, mode, TIME);
            list.push(case.beside(theirs.name()));
            list.push(trips(&testbed, row, theirs, 1, mode, TIME));
        }
        let row = format!("{RPC}, {}", mode.name());
        list.extend(calls(&testbed, &programs, row, mode));
    }
    for (stack, [x_kernel, unix], ..) in STACKS {
        list.push(quoted(stack, X_KERNEL, x_kernel * 1000.0));
        list.push(quoted(stack, SUN_OS, unix * 1000.0));
    }
    list.push(quoted(RPC, X_KERNEL, 4000.0));
    list.push(quoted(RPC, SUN_OS, 9200.0));
    list
}

/// The bottom: xk's packet wire with a user that makes frames, and the packet socket alone.
const WIRE: &str = "wire";

pub(crate) fn cases_4() -> Vec<Case> {
    let testbed = Testbed::default();
    let mode = Mode::Spinning;
    let mut list: Vec<Case> = IN_PROCESS_STACKS.map(|(row, top)| top.case(row)).into();
    let frames = [(WIRE, System::XkFrames(Wire::Packet)), (WIRE, System::Bare(Wire::Packet))];
    let stacks = STACKS.iter().flat_map(|(stack, _, ours, theirs)| {
        // The socket that is Linux's counterpart of ETH stands there as the wire.
        let theirs = (*stack != ETH).then_some((*stack, *theirs));
        [(*stack, *ours)].into_iter().chain(theirs)
    });
    let all = frames.into_iter().chain(stacks);
    list.extend(all.map(|(row, system)| {
        let octets = match system {
            // A user of frames makes the header itself, and sends no less than Ethernet wants.
            System::XkFrames(_) => 46,
            _ => 1,
        };
        trips(&testbed, row, system, octets, mode, TIME)
    }));
    list.push(trips(&testbed, RPC, SUN, 1, mode, TIME));
    list
}

/// The rows in one process.
const IN_PROCESS_STACKS: [(&str, Top); 6] = [
    (WIRE, Top::Wire),
    (ETH, Top::Eth),
    (IP, Top::Ip),
    (UDP, Top::Udp),
    (TCP, Top::Tcp),
    (RPC, Top::Rpc),
];

/// The paper's microseconds, of both of its systems.
type Papers = Option<[f64; 2]>;
/// Computed rows: the upper row, the lower row, and the paper's figures.
const COMPONENTS: [(&str, [&str; 2], Papers); 5] = [
    ("UDP adds", [UDP, IP], Some([110.0, 250.0])),
    ("TCP adds", [TCP, IP], Some([1410.0, 1300.0])),
    ("RPC adds", [RPC, UDP], Some([2000.0, 3840.0])),
    ("IP adds", [IP, ETH], None),
    ("ETH adds", [ETH, WIRE], None),
];
const INTERFACE: (&str, Papers) = ("interface adds", Some([610.0, 1900.0]));

/// The differences: of each component those in one process first, since on a veth pair it is less
/// than what two rounds there differ by.
pub(crate) fn derived_4(records: &[Record]) -> Vec<Record> {
    let on_veth = on_veth_4(records);
    let papers = |row, figures: Papers| {
        let systems = [X_KERNEL, SUN_OS].into_iter().zip(figures.into_iter().flatten());
        systems.map(move |(system, us)| quoted_record(row, ("us", Better::Lower), system, us))
    };
    let of = |row| on_veth.iter().filter(move |record| record.row == row).cloned();
    let mut list = Vec::new();
    for (component, rows, figures) in COMPONENTS {
        if let [Some(upper), Some(lower)] = rows.map(|row| Record::find(records, row, IN_PROCESS)) {
            list.push(upper.beyond(component, &[lower], 1.0));
        }
        list.extend(of(component).chain(papers(component, figures)));
    }
    let (interface, figures) = INTERFACE;
    list.extend(of(interface).chain(papers(interface, figures)));
    list
}

/// The differences on the veth pair.
fn on_veth_4(records: &[Record]) -> Vec<Record> {
    let find = |row: &str, system: System| Record::find(records, row, system.name());
    let (packet, bare) = (System::Xk(Wire::Packet), System::Bare(Wire::Packet));
    let wire = System::XkFrames(Wire::Packet);
    let (tcp, linux_tcp) = (System::XkTcp(Wire::Packet), System::LinuxTcpVeth);
    let steps = [
        ("TCP adds", "xk", (TCP, tcp), (IP, System::XkIp)),
        ("TCP adds", "Linux", (TCP, linux_tcp), (IP, System::LinuxIp)),
        ("RPC adds", "xk", (RPC, SUN), (UDP, packet)),
        ("UDP adds", "xk", (UDP, packet), (IP, System::XkIp)),
        ("IP adds", "xk", (IP, System::XkIp), (ETH, System::XkEth)),
        ("ETH adds", "xk", (ETH, System::XkEth), (WIRE, wire)),
        ("interface adds", "xk", (WIRE, wire), (WIRE, bare)),
        ("UDP adds", "Linux", (UDP, System::LinuxVeth), (IP, System::LinuxIp)),
        ("IP adds", "Linux", (IP, System::LinuxIp), (WIRE, bare)),
    ];
    let step =
        |(row, system, upper, lower): (&str, &'static str, (&str, System), (&str, System))| {
            let (upper, lower) = (find(upper.0, upper.1)?, find(lower.0, lower.1)?);
            let adds = upper.with(lower, (row, upper.unit), |upper, lower| upper - lower);
            Some(Record { system, ..adds })
        };
    steps.into_iter().filter_map(step).collect()
}

/// Octets of a message, and what the paper calls a kilobyte.
const MESSAGE_OCTETS: usize = 16 * 1024;
const KILOBYTE: f64 = 1024.0;
/// Frames for fragments of a kilobyte: that, and the header of IP.
const MTU_OF_KILOBYTE: u16 = 1044;

pub(crate) fn cases_5() -> Vec<Case> {
    let mut list = Vec::new();
    let kilobyte = Testbed::with_mtu(MTU_OF_KILOBYTE);
    let (ours, theirs) = (System::Xk(Wire::Packet), System::LinuxVeth);
    for (row, testbed, x_kernel, unix) in [
        ("fragments of 1 kilobyte", kilobyte, 528.0, Some(391.0)),
        ("frames of 1500 octets", Testbed::default(), 604.0, None),
    ] {
        for system in [ours, theirs] {
            let message = (MESSAGE_OCTETS, Task::Acknowledge);
            let case = answered(&testbed, row, system, message, Mode::Spinning, TIME)
                .shown_as(|us| MESSAGE_OCTETS as f64 / KILOBYTE / (us / 1e6));
            list.push(if system == ours { case.beside(theirs.name()) } else { case });
        }
        list.push(quoted(row, X_KERNEL, x_kernel));
        list.extend(unix.map(|unix| quoted(row, SUN_OS, unix)));
    }
    list.extend(streams_5());
    list
}

const SMALL_WINDOW: &str = "TCP, packets of 1 kilobyte, a window of 4";
const LARGE_WINDOW: &str = "TCP, packets of 1 kilobyte, any window";

/// TCP's rows: a kilobyte a write, and as the paper had it a window of four, so that the sender
/// stops and waits.
fn streams_5() -> Vec<Case> {
    let kilobyte = Testbed::with_mtu(MTU_OF_KILOBYTE);
    let pairs = [
        (SMALL_WINDOW, System::XkTcpSmall, System::LinuxTcpSmall),
        (LARGE_WINDOW, System::XkTcp(Wire::Packet), System::LinuxTcpVethPlain),
    ];
    let mut list = Vec::new();
    for (row, ours, theirs) in pairs {
        for system in [ours, theirs] {
            let case = stream(&kilobyte, row, system, KILOBYTE as usize, TIME)
                .shown_as(|gbits| gbits * 1e9 / 8.0 / KILOBYTE);
            list.push(if system == ours { case.beside(theirs.name()) } else { case });
        }
    }
    list.push(quoted(SMALL_WINDOW, X_KERNEL, 417.0));
    list.push(quoted(SMALL_WINDOW, SUN_OS, 303.0));
    list
}

/// The paper's sizes, in octets.
const SIZES: [usize; 15] =
    [1, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200, 1300, 1400];

pub(crate) fn cases_f5() -> Vec<Case> {
    let testbed = Testbed::default();
    let (ours, theirs) = (System::Xk(Wire::Packet), System::LinuxVeth);
    let mut list = Vec::new();
    for octets in SIZES {
        let row = format!("{octets} octets");
        let mode = Mode::Spinning;
        let case = trips(&testbed, row.clone(), ours, octets, mode, TIME);
        list.push(case.beside(theirs.name()));
        list.push(trips(&testbed, row.clone(), theirs, octets, mode, TIME));
        // 2 ms for one octet, and 0.25 ms more for each hundred.
        list.push(quoted(row, X_KERNEL, 2000.0 + 2.5 * octets as f64));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_only_of_what_was_measured() {
        let record = |row: &str, system: System, median| Record {
            row: row.into(),
            system: system.name(),
            median,
            runs: 1,
            ..Record::default()
        };
        let records = [
            record(UDP, System::Xk(Wire::Packet), 7.0),
            record(IP, System::XkIp, 6.5),
            record(WIRE, System::Bare(Wire::Packet), 5.0),
        ];
        let found = derived_4(&records);
        let ours: Vec<_> = found.iter().filter(|record| record.system == "xk").collect();
        assert_eq!(ours.len(), 1);
        assert_eq!((ours[0].row.as_str(), ours[0].median), ("UDP adds", 0.5));
    }

    /// On a veth pair the figure is less than its rounds differ by.
    #[test]
    fn the_figure_in_one_process_leads() {
        let found = crate::papers::tests::records("papers/xkernel-table-4");
        for (component, ..) in COMPONENTS {
            let systems: Vec<_> =
                found.iter().filter(|record| record.row == component).map(|r| r.system).collect();
            assert_eq!(systems[..2], [IN_PROCESS, "xk"], "{component}");
        }
    }
}
