//! The list of all benchmarks, and of what a process that one starts may be asked for.

use crate::benchmark::Benchmark;
use crate::child::{self, Work};
use crate::{
    demux, domain, footprint, instructions, micro, net, papers, rpc, sim, sweep, tcp_idle,
    tcp_inprocess, udp_inprocess, world,
};

/// The parts of a benchmark that a child process can be asked for.
const WORKS: &[(&str, Work)] = &[
    ("sim-memory", sim::memory),
    ("demux-memory", demux::memory),
    ("round-trips", papers::table_2::round_trips),
    ("organisation", papers::organisation::organisation),
    ("member", papers::member::serve),
    ("indexed", papers::indexed::indexed),
    ("mechanisms", papers::mechanisms::mechanisms),
    ("demultiplexing", papers::demultiplexing::demultiplexing),
    ("footprint", footprint::measure),
    ("tcp-idle", tcp_idle::measure),
    ("sweep-bare", sweep::bare_process),
    ("domain-mirror", domain::operations::mirror_process),
    ("domain-echo", domain::operations::echo_process),
];

/// Runs a part of a benchmark if the environment asks for one, and answers true: one case under a
/// counter of instructions, one end of two, or what needs a process of its own. A program that
/// measures, such as `xk-bench` and this crate's tests, calls this first.
pub fn run_if_asked() -> bool {
    child::run_if_asked(WORKS)
        || net::child::run_if_asked()
        || instructions::run_if_asked(benchmarks)
}

/// Every benchmark there is, in the order in which `all` runs them.
pub fn benchmarks() -> Vec<Benchmark> {
    let mut list = vec![
        micro::layer::benchmark(),
        micro::message::benchmark(),
        micro::map::benchmark(),
        micro::template::benchmark(),
        micro::event::benchmark(),
        micro::shepherd::benchmark(),
        udp_inprocess::benchmark(),
        tcp_inprocess::benchmark(),
        demux::benchmark(),
        sim::benchmark(),
        world::benchmark(),
        sweep::benchmark(),
        footprint::benchmark(),
        tcp_idle::benchmark(),
        domain::operations::benchmark(),
        domain::round_trip::benchmark(),
        domain::notify::benchmark(),
        domain::lending::benchmark(),
    ];
    list.extend(net::benchmarks());
    list.extend(rpc::benchmarks());
    list.extend(papers::benchmarks());
    list
}
