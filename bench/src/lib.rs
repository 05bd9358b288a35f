//! Benchmarks of xk, each beside its peers in one run.
//!
//! A [`Benchmark`] is a list of [`Case`]s: one row of one system. All cases of a benchmark are
//! measured alternately, round by round, so that a noisy moment of the machine hits all of them;
//! the table shows minimum, median and maximum over the rounds, and the ratio to the system that
//! the row names. Beside the times stand instruction counts where valgrind is installed
//! ([`instructions`]): those do not depend on what else the machine does. No test asserts any of
//! these figures.

mod benchmark;
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
mod group;
mod igmp;
pub mod instructions;
mod list;
mod many_sessions;
mod micro;
mod net;
mod object;
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

pub use benchmark::{Benchmark, Plot};
pub use case::{Against, Better, Case, Goal, Sample, Trouble};
pub use list::{benchmarks, run_if_asked};
pub use record::{Ratio, Record};
pub use report::{Options, run};
pub use request::{Request, execute, list};
pub use stale::stale;
