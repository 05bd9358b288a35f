//! Benchmarks of xk, each beside its peers in one run.
//!
//! A [`Benchmark`] is a list of [`Case`]s: one row of one system. All cases of a benchmark are
//! measured alternately, round by round, so that a noisy moment of the machine hits all of them;
//! the table shows minimum, median and maximum over the rounds, and the ratio to the system that
//! the row names. Beside the times stand instruction counts where valgrind is installed
//! ([`instructions`]): those do not depend on what else the machine does. No test asserts any of
//! these figures.

mod built;
mod cable;
mod calls;
mod case;
mod child;
mod cores;
mod demux;
mod domain;
mod folder;
mod footprint;
pub mod instructions;
mod many_sessions;
mod micro;
mod net;
mod origin;
mod papers;
mod plot;
mod record;
mod report;
mod request;
mod rpc;
mod sim;
mod smoltcp_cable;
mod stack;
mod stale;
mod stopwatch;
mod stretch_unsafe;
mod sweep;
mod tcp_idle;
mod tcp_inprocess;
mod tcp_lossy;
mod udp_inprocess;
mod uppers;
mod world;

pub use case::{Against, Benchmark, Better, Case, Goal, Sample, Trouble};
pub use plot::Plot;
pub use record::{Ratio, Record};
pub use report::{Options, run};
pub use request::{Request, execute, list};
pub use stale::stale;

/// Runs a part of a benchmark if the environment asks for one, and answers true: one case under a
/// counter of instructions, one end of two, or what needs a process of its own. A program that
/// measures, such as `xk-bench` and this crate's tests, calls this first.
pub fn run_if_asked() -> bool {
    child::run_if_asked() || net::run_if_asked() || instructions::run_if_asked()
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
        domain::benchmark(),
        domain::round_trips(),
        domain::notifications(),
        domain::lendings(),
    ];
    list.extend(net::benchmarks());
    list.extend(rpc::benchmarks());
    list.extend(papers::benchmarks());
    list
}
