//! `udp-rtt`: a message there and its answer back, user to user, between two processes.

use super::endpoint::{System, Wire};
use super::rows::{row, trips};
use super::testbed::{Mode, Testbed};
use crate::case::{Case, Goal};
use std::time::Duration;

/// Time that a round measures.
const TIME: Duration = Duration::from_millis(80);
const SIZES: [usize; 2] = [1, 1400];
const MODES: [Mode; 3] = [Mode::Spinning, Mode::OneCore, Mode::TwoCores];

/// The systems compared. The bare ones are limits: no stack, the same octets on the wire.
const SYSTEMS: [System; 11] = [
    System::Xk(Wire::Shm),
    System::Xk(Wire::Xdp),
    System::Xk(Wire::Packet),
    System::Xk(Wire::Tap),
    System::XkHost,
    System::LinuxLoopback,
    System::LinuxVeth,
    System::Smoltcp,
    System::Bare(Wire::Shm),
    System::Bare(Wire::Xdp),
    System::Bare(Wire::Packet),
];

pub(crate) fn cases() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for octets in SIZES {
        for mode in MODES {
            for system in SYSTEMS {
                let case = trips(&testbed, row(octets, mode), system, octets, mode, TIME);
                list.push(goals(case, octets, mode, system));
            }
        }
    }
    list
}

/// Adds the goals of a system, and the systems that it is compared with.
fn goals(case: Case, octets: usize, mode: Mode, system: System) -> Case {
    let [loopback, veth] = [System::LinuxLoopback, System::LinuxVeth].map(System::name);
    let bare = |wire| System::Bare(wire).name();
    match (system, mode) {
        (System::Xk(Wire::Shm), Mode::Spinning) if octets == 1 => case
            .beside(bare(Wire::Shm))
            .goal(Goal::AtMostTimes(3.0))
            .beside(loopback)
            .goal(Goal::TimesAsFast(20.0)),
        (System::Xk(Wire::Shm), Mode::OneCore) if octets == 1 => {
            case.beside(bare(Wire::Shm)).beside(loopback).goal(Goal::TimesAsFast(1.5))
        }
        (System::Xk(Wire::Shm), _) => case.beside(bare(Wire::Shm)).beside(loopback),
        (System::Xk(Wire::Xdp), Mode::Spinning) => case
            .beside(bare(Wire::Xdp))
            .goal(Goal::AtMostTimes(1.15))
            .beside(veth)
            .goal(Goal::TimesAsFast(2.0)),
        (System::Xk(Wire::Xdp), _) => {
            case.beside(bare(Wire::Xdp)).beside(veth).goal(Goal::TimesAsFast(1.0))
        }
        (System::Xk(Wire::Packet), _) => case.beside(bare(Wire::Packet)).beside(veth),
        (System::XkHost, _) => case.beside(loopback),
        (System::Xk(_) | System::Smoltcp, _) => case.beside(veth),
        _ => case,
    }
}
