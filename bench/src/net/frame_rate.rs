//! `frames`: what the wires carry one way, without and with xk's objects on them.

use super::endpoint::{System, Task, Wire};
use super::frames::HEADER_OCTETS;
use super::rows::one_way;
use super::testbed::{Mode, Setting, Testbed};
use crate::case::Case;
use std::time::Duration;

/// Time that a round measures.
const TIME: Duration = Duration::from_millis(200);
/// Octets of a frame with its header.
const SIZES: [usize; 2] = [64, 1514];

/// The wires, and what the end of the graph's side does. The other side of a TAP device is Linux's:
/// a packet socket.
const WAYS: [(Wire, &str, [Task; 2]); 6] = [
    (Wire::Shm, "shm", [Task::Send, Task::Receive]),
    (Wire::Xdp, "xdp", [Task::Send, Task::Receive]),
    (Wire::Packet, "packet", [Task::Send, Task::Receive]),
    (Wire::Host, "Ethernet in UDP", [Task::Send, Task::Receive]),
    (Wire::Tap, "tap to Linux", [Task::Send, Task::Receive]),
    (Wire::Tap, "tap from Linux", [Task::Receive, Task::Send]),
];

pub(crate) fn cases() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for octets in SIZES {
        for (wire, name, tasks) in WAYS {
            for (system, label) in [(System::XkFrames(wire), "xk"), (System::Bare(wire), "bare")] {
                let payload = match system {
                    // Neither the ring nor sockets know a header.
                    System::Bare(Wire::Shm | Wire::Host) => octets,
                    _ => octets - HEADER_OCTETS,
                };
                let mode = Mode::Spinning;
                let setting = Setting { system, tasks, octets: payload, mode, time: TIME };
                let row = format!("{octets} octets, {name}");
                let case = one_way(&testbed, row, octets, setting).of(label);
                list.push(if label == "xk" { case.beside("bare") } else { case });
            }
        }
    }
    list
}
