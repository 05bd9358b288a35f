//! Calls of a procedure that answers nothing, one after the other, between two processes:
//! `rpc-null` with no arguments, `rpc-16k` with sixteen kilobytes of them.

pub(crate) mod foreign;
pub(crate) mod layers;
pub(crate) mod pair;
pub(crate) mod stacks;

use crate::case::{Case, Goal};
use crate::net::endpoint::{System, Wire};
use crate::net::rows::trips;
use crate::net::testbed::{Mode, Testbed};
use foreign::{Foreign, Programs};
use stacks::Stack;
use std::time::Duration;

/// Time that a round measures.
const TIME: Duration = Duration::from_millis(80);
const MODES: [Mode; 3] = [Mode::Spinning, Mode::OneCore, Mode::TwoCores];
/// Octets of the large argument.
const LARGE_OCTETS: usize = 16 * 1024;
const MIB: f64 = (1 << 20) as f64;

/// A configuration of ours and the wire that it stands on, as a system of its own.
type Ours = (&'static str, Stack, Wire);

/// The first is the one that is to reach the goals.
const NULL_OURS: [Ours; 9] = [
    ("xk shm, SELECT-CHANNEL", Stack::LayeredLink, Wire::Shm),
    ("xk shm, M.RPC", Stack::MonolithicLink, Wire::Shm),
    ("xk shm, SELECT-CHANNEL-VIPsize", Stack::LayeredVipSize, Wire::Shm),
    (MRPC, Stack::MonolithicVip, Wire::Shm),
    VMTP,
    ("xk shm, Sun RPC-UDP", Stack::SunUdp, Wire::Shm),
    ("xk xdp, SELECT-CHANNEL-VIPsize", Stack::LayeredVipSize, Wire::Xdp),
    ("xk packet, SELECT-CHANNEL-VIPsize", Stack::LayeredVipSize, Wire::Packet),
    SAME_WIRE,
];
/// On the wire of libtirpc: datagrams of the machine over its loopback device.
const SAME_WIRE: Ours = ("xk host-udp, Sun RPC", Stack::SunHostUdp, Wire::HostUdp);
/// VMTP, and what it is compared with.
const VMTP: Ours = ("xk shm, VMTP-VIP", Stack::VmtpVip, Wire::Shm);
const MRPC: &str = "xk shm, M.RPC-VIP";
const LARGE_OURS: [Ours; 6] = [
    ("xk shm, SELECT-CHANNEL, frames of 20 KiB", Stack::LayeredLink, Wire::Shm),
    ("xk shm, SELECT-CHANNEL-VIPsize", Stack::LayeredVipSize, Wire::Shm),
    (MRPC, Stack::MonolithicVip, Wire::Shm),
    VMTP,
    ("xk shm, Sun RPC-UDP", Stack::SunUdp, Wire::Shm),
    ("xk packet, SELECT-CHANNEL-VIPsize", Stack::LayeredVipSize, Wire::Packet),
];

/// The row in which ours spin and the others sleep on one core, where they are fastest but for
/// spinning.
const SPINNING_AGAINST_SLEEPING: &str = "spinning, others one core";

pub(crate) fn null_cases() -> Vec<Case> {
    let found = Found::default();
    let mut list = Vec::new();
    for mode in MODES {
        let ours = NULL_OURS.map(|ours| found.ours(mode.name(), ours, mode, 0));
        for (at, case) in ours.into_iter().enumerate() {
            list.push(match (at, mode) {
                (0, Mode::Spinning) => beside_all(case, None).goal(Goal::AtMost(1.0)),
                (0, Mode::OneCore) => beside_all(case, Some(1.5)),
                (0, Mode::TwoCores) => beside_all(case, None),
                _ if NULL_OURS[at] == SAME_WIRE => beside_tirpc(case, mode),
                _ if NULL_OURS[at] == VMTP => {
                    case.beside(MRPC).goal(Goal::AtMostTimes(layers::VMTP_TIMES))
                }
                _ => case,
            });
        }
        list.extend(Foreign::ALL.map(|system| found.theirs(mode.name(), system, mode, 0)));
    }
    let row = SPINNING_AGAINST_SLEEPING;
    let ours = found.ours(row, NULL_OURS[0], Mode::Spinning, 0);
    list.push(beside_all(ours, Some(15.0)));
    let theirs = |system| found.theirs(row, system, Mode::OneCore, 0);
    list.extend(Foreign::ALL.map(theirs));
    list
}

/// Compared with libtirpc over UDP, which both are on the same wire; two cores wake each other, at
/// a cost of their own.
fn beside_tirpc(case: Case, mode: Mode) -> Case {
    let case = case.beside(Foreign::OncUdp.name());
    match mode {
        Mode::TwoCores | Mode::Unpinned => case,
        Mode::Spinning | Mode::OneCore => case.goal(Goal::AtMostTimes(1.0)),
    }
}

/// Compared with each of the others, to be so many times as fast.
fn beside_all(case: Case, times: Option<f64>) -> Case {
    Foreign::ALL.iter().fold(case, |case, system| {
        let case = case.beside(system.name());
        match times {
            Some(times) => case.goal(Goal::TimesAsFast(times)),
            None => case,
        }
    })
}

pub(crate) fn large_cases() -> Vec<Case> {
    let found = Found::default();
    let mut list = Vec::new();
    for mode in MODES {
        for ours in LARGE_OURS {
            let case = found.ours(mode.name(), ours, mode, LARGE_OCTETS);
            list.push(match ours == VMTP {
                true => case.beside(MRPC).goal(Goal::TimesAsFast(1.0 / layers::VMTP_TIMES)),
                false => beside_all(case, None),
            });
        }
        let theirs = |system| found.theirs(mode.name(), system, mode, LARGE_OCTETS);
        list.extend(Foreign::ALL.map(theirs));
    }
    list
}

/// State that the cases of a benchmark share.
#[derive(Clone, Default)]
struct Found {
    testbed: Testbed,
    programs: Programs,
}

impl Found {
    fn ours(&self, row: &str, (name, stack, wire): Ours, mode: Mode, octets: usize) -> Case {
        let case = trips(&self.testbed, row, System::Rpc(stack, wire), octets, mode, TIME);
        shown(case, octets).of(name)
    }

    fn theirs(&self, row: &str, system: Foreign, mode: Mode, octets: usize) -> Case {
        let programs = self.programs.clone();
        let case = Case::measured(row, move |effort| {
            programs.calls(system, octets, mode, TIME.mul_f64(effort))
        });
        shown(case, octets).of(system.name())
    }
}

/// The microseconds of an empty call; of one with arguments, what goes through per second.
fn shown(case: Case, octets: usize) -> Case {
    match octets {
        0 => case,
        _ => case.shown_as(move |us| octets as f64 / MIB / (us / 1e6)),
    }
}
