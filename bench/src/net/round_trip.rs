//! `udp-rtt`: a message there and its answer back, user to user, between two processes.

use super::end::{System, Task, Wire};
use super::scene::{Mode, Setting, Stage};
use crate::case::{Benchmark, Case, Goal, Sample, Trouble};
use std::time::Duration;

pub(super) fn benchmark() -> Benchmark {
    Benchmark::new(
        "udp-rtt",
        "UDP round trip between two processes, user to user: the middle one of each round",
        "us",
        cases,
    )
}

/// How long a round measures.
const TIME: Duration = Duration::from_millis(80);
const SIZES: [usize; 2] = [1, 1400];
const MODES: [Mode; 3] = [Mode::Spinning, Mode::OneCore, Mode::TwoCores];

const SYSTEMS: [System; 9] = [
    System::Xk(Wire::Shm),
    System::Xk(Wire::Packet),
    System::Xk(Wire::Tap),
    System::LinuxLoopback,
    System::LinuxVeth,
    System::Smoltcp,
    System::Bare(Wire::Shm),
    System::Bare(Wire::Packet),
    System::Bare(Wire::Tap),
];
