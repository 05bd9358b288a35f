//! `udp-stream`: messages one way, counted where they arrive.

use super::endpoint::{System, Task, Wire};
use super::rows::{octets_of_frame, one_way};
use super::testbed::{Mode, Setting, Testbed};
use crate::case::{Case, Goal};
use std::time::Duration;

/// Time that a round measures.
const TIME: Duration = Duration::from_millis(250);
const SIZES: [usize; 3] = [64, 1472, 16_384];

/// The systems compared, each with whether it takes messages of 16 Ki octets: a frame is smaller,
/// and so are smoltcp's buffer for fragments and the limit of segmentation offload.
const SYSTEMS: [(System, bool); 13] = [
    (System::Xk(Wire::Shm), true),
    (System::Xk(Wire::Xdp), true),
    (System::Xk(Wire::Packet), true),
    (System::Xk(Wire::Tap), true),
    (System::XkHost, true),
    (System::LinuxLoopback, true),
    (System::LinuxVeth, true),
    (System::LinuxLoopbackJoined, false),
    (System::LinuxVethJoined, false),
    (System::Smoltcp, false),
    (System::Bare(Wire::Shm), true),
    (System::Bare(Wire::Xdp), false),
    (System::Bare(Wire::Packet), false),
];

pub(crate) fn cases() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for octets in SIZES {
        for (system, carries_long) in SYSTEMS {
            if octets <= 1472 || carries_long {
                list.push(case(&testbed, octets, system));
            }
        }
    }
    list
}

fn case(testbed: &Testbed, octets: usize, system: System) -> Case {
    let row = match octets {
        16_384 => "16 Ki octets".to_owned(),
        n => format!("{n} octets"),
    };
    let payload = match system {
        System::Bare(Wire::Xdp | Wire::Packet) => octets_of_frame(octets),
        _ => octets,
    };
    let (tasks, mode) = ([Task::Send, Task::Receive], Mode::Spinning);
    let setting = Setting { system, tasks, octets: payload, mode, time: TIME };
    goals(one_way(testbed, row, octets, setting).of(system.name()), octets, system)
}

/// Adds the goals of a system, and the systems that it is compared with.
fn goals(case: Case, octets: usize, system: System) -> Case {
    let [loopback, veth] = [System::LinuxLoopback, System::LinuxVeth].map(System::name);
    let has_bare = octets <= 1472;
    match system {
        System::Xk(Wire::Shm) => {
            let case = case.beside(System::Bare(Wire::Shm).name()).beside(loopback);
            if octets == 64 { case.goal(Goal::AtLeast(10e6)) } else { case }
        }
        System::Xk(wire @ (Wire::Xdp | Wire::Packet)) if has_bare => {
            let case = case.beside(System::Bare(wire).name());
            let is_goal = octets == 64 && wire == Wire::Xdp;
            let case = if is_goal { case.goal(Goal::TimesAsFast(0.9)) } else { case };
            case.beside(veth)
        }
        System::XkHost => case.beside(loopback),
        System::Xk(_) | System::Smoltcp => case.beside(veth),
        _ => case,
    }
}
