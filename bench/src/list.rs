//! The list of all benchmarks, and of what a process that one starts may be asked for.

use crate::benchmark::{Benchmark, Plot};
use crate::case::{Better, Case};
use crate::child::{self, Work};
use crate::papers::subsystems;
use crate::record::Record;
use crate::{
    demux, domain, footprint, group, igmp, instructions, micro, net, object, papers, rpc, sim,
    sweep, tcp_idle, tcp_inprocess, udp_inprocess, world,
};
use serde::Deserialize;
use std::collections::HashMap;

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
    ("group-member", net::group::member::member),
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

/// The functions of a benchmark behind its name: the one that makes its rows, and the one that
/// computes further rows from them.
type Rows = (&'static str, fn() -> Vec<Case>, fn(&[Record]) -> Vec<Record>);

fn none(_: &[Record]) -> Vec<Record> {
    Vec::new()
}

/// Every benchmark, in the order in which `all` runs them.
const ROWS: &[Rows] = &[
    ("layer", micro::layer::cases, micro::layer::derived),
    ("message", micro::message::cases, none),
    ("map", micro::map::cases, micro::map::derived),
    ("template", micro::template::cases, none),
    ("event", micro::event::cases, none),
    ("shepherd", micro::shepherd::cases, none),
    ("udp-inprocess", udp_inprocess::cases, none),
    ("tcp-inprocess", tcp_inprocess::cases, tcp_inprocess::derived),
    ("demux", demux::cases, demux::derived),
    ("sim", sim::cases, sim::derived),
    ("world", world::cases, none),
    ("sweep", sweep::cases, none),
    ("group", group::cases, none),
    ("group-delivery", net::group::delivery_cases, none),
    ("group-stream", net::group::stream_cases, none),
    ("igmp", igmp::cases, none),
    ("object", object::cases, none),
    ("footprint", footprint::cases, none),
    ("tcp-idle", tcp_idle::cases, none),
    ("domain", domain::operations::cases, domain::operations::derived),
    ("domain-rtt", domain::round_trip::cases, domain::round_trip::derived),
    ("domain-notify", domain::notify::cases, none),
    ("domain-lending", domain::lending::cases, none),
    ("udp-rtt", net::round_trip::cases, none),
    ("udp-stream", net::stream::cases, none),
    ("frames", net::frame_rate::cases, none),
    ("tcp-stream", net::tcp::stream_cases, none),
    ("tcp-rtt", net::tcp::round_trip_cases, none),
    ("tcp-connect", net::tcp::connect_cases, none),
    ("tcp-lossy", net::tcp::lossy_cases, none),
    ("long-fat", net::tcp::long_fat_cases, none),
    ("rpc-null", rpc::null_cases, none),
    ("rpc-16k", rpc::large_cases, none),
    ("rpc-inprocess", rpc::layers::cases, rpc::layers::derived),
    ("papers/xkernel-table-1", papers::table_1::cases, none),
    ("papers/xkernel-table-2", papers::table_2::cases, none),
    ("papers/xkernel-table-3", papers::tables_3_to_5::cases_3, none),
    ("papers/xkernel-table-4", papers::tables_3_to_5::cases_4, papers::tables_3_to_5::derived_4),
    ("papers/xkernel-table-5", papers::tables_3_to_5::cases_5, none),
    ("papers/xkernel-table-6", papers::rpc::table_6, papers::rpc::table_6_derived),
    ("papers/xkernel-figure-5", papers::tables_3_to_5::cases_f5, none),
    ("papers/xkernel-figure-6", papers::figure_6::cases, none),
    ("papers/rpc-table-1", papers::rpc::table_1, papers::rpc::table_1_derived),
    ("papers/rpc-table-2", papers::rpc::table_2, papers::rpc::table_2_derived),
    ("papers/rpc-table-3", papers::rpc::table_3, papers::rpc::table_3_derived),
    ("papers/rpc-removing-layers", papers::rpc::removal, papers::rpc::removal_derived),
    ("papers/psync", papers::psync::cases, none),
    ("papers/udp-server-table-1", papers::udp_server::table_1, papers::udp_server::bests),
    ("papers/udp-server-table-2", papers::udp_server::table_2, papers::udp_server::bests),
    ("papers/udp-server-table-3", papers::udp_server::table_3, papers::udp_server::bests),
    ("papers/udp-server-breakdown", papers::udp_server::breakdown, papers::udp_server::steps),
    ("papers/user-level-table-1", papers::user_level::table_1, papers::user_level::share),
    ("papers/user-level-table-2", papers::user_level::table_2, none),
    ("papers/user-level-table-3", papers::user_level::table_3, none),
    ("papers/user-level-table-4", papers::user_level::table_4, none),
    ("papers/user-level-table-5", papers::user_level::table_5, none),
    ("papers/subsystems-figure-3", subsystems::figure_3::cases, subsystems::figure_3::derived),
    ("papers/subsystems-figure-4", subsystems::figure_4::cases, subsystems::figure_4::derived),
    ("papers/subsystems-figure-7", subsystems::figure_7::cases, subsystems::figure_7::derived),
    ("papers/subsystems-figure-8", subsystems::figure_8::cases, subsystems::figure_8::derived),
    ("papers/subsystems-queues", subsystems::queues::cases, subsystems::queues::derived),
];

/// The words about a benchmark in `benchmarks.json`, whose order is that of [`ROWS`].
#[derive(Deserialize)]
struct Words {
    name: &'static str,
    summary: &'static str,
    unit: &'static str,
    /// Whether its figures are rates.
    #[serde(default)]
    higher: bool,
    /// The number in the rows' names, if lines over it are drawn.
    #[serde(borrow)]
    x: Option<&'static str>,
}

/// Every benchmark there is, in the order in which `all` runs them.
///
/// # Panics
/// If the words and the functions of a benchmark do not go together, which a test finds.
pub fn benchmarks() -> Vec<Benchmark> {
    let words: Vec<Words> =
        serde_json::from_str(include_str!("benchmarks.json")).expect("words about benchmarks");
    let sections = include_str!("why.md").split("\n## ").filter_map(|text| text.split_once("\n\n"));
    let why: HashMap<&str, &str> = sections.collect();
    let all = words.into_iter().zip(ROWS).map(|(words, &(name, cases, derived))| {
        let Words { summary, unit, higher, x, .. } = words;
        assert_eq!(words.name, name, "the words are in the order of the functions");
        Benchmark {
            name,
            summary,
            unit,
            better: if higher { Better::Higher } else { Better::Lower },
            cases,
            derived,
            plot: x.map_or(Plot::Bars, |x| Plot::Lines { x }),
            why: why.get(name).map_or("", |text| text.trim_end()),
        }
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_benchmark_has_functions_and_words() {
        assert_eq!(benchmarks().len(), ROWS.len());
    }
}
