//! The tables of the second paper, and the first one's of RPC.
//!
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel: Evaluating New Design
//! Techniques", Proceedings of the Twelfth ACM Symposium on Operating Systems Principles, December
//! 1989, section 4: two Sun 3/75 on a 10 Mbit/s Ethernet, kernel to kernel. A call without
//! arguments is the latency; one of 16 kilobytes that answers nothing gives the throughput, and
//! against one of a kilobyte what each further kilobyte costs.

use super::increments::IN_PROCESS;
use super::quoted::{X_KERNEL, quoted, quoted_record};
use crate::case::{Better, Case, Goal, Shared};
use crate::net::endpoint::{System, Wire};
use crate::net::rows::trips;
use crate::net::testbed::{Mode, Testbed};
use crate::record::Record;
use crate::rpc::pair::pair;
use crate::rpc::stacks::Stack;
use std::time::{Duration, Instant};

/// The Sprite system's own RPC.
const SPRITE: &str = "Sprite, Sun 3/75";
const WIRES: [Wire; 3] = [Wire::Xdp, Wire::Packet, Wire::Shm];

/// Time that a round of a case measures.
const TIME: Duration = Duration::from_millis(60);
/// Calls of a round in one process.
const CALLS: f64 = 20_000.0;
const CALLS_LARGE: f64 = 1000.0;
/// The paper's kilobyte, in octets.
const KILOBYTE: usize = 1024;
const LARGE: usize = 16 * KILOBYTE;

const LATENCY: &str = "latency";
const ONE: &str = "1 KiB";
const SIXTEEN: &str = "16 KiB";
const THROUGHPUT: &str = "throughput";
const INCREMENTAL: &str = "each further KiB";
const RATE: (&str, Better) = ("kilobytes/s", Better::Higher);

/// A line of the paper's tables: milliseconds, kilobytes a second, milliseconds for each further
/// kilobyte.
type Line = (&'static str, &'static str, [f64; 3]);
const TABLE_1: [Line; 4] = [
    ("N.RPC", SPRITE, [2.6, 700.0, 1.2]),
    ("M.RPC-ETH", X_KERNEL, [1.73, 863.0, 1.04]),
    ("M.RPC-IP", X_KERNEL, [2.10, 836.0, 1.05]),
    ("M.RPC-VIP", X_KERNEL, [1.79, 860.0, 1.04]),
];
const TABLE_2: [Line; 2] = [
    ("M.RPC-VIP", X_KERNEL, [1.79, 860.0, 1.04]),
    ("SELECT-CHANNEL-FRAGMENT-VIP", X_KERNEL, [1.93, 839.0, 1.03]),
];
/// Latencies in the paper's third table.
const TABLE_3: [(Stack, f64); 4] = [
    (Stack::Vip, 1.12),
    (Stack::FragmentVip, 1.33),
    (Stack::ChannelFragmentVip, 1.82),
    (Stack::LayeredVip, 1.93),
];
const REMOVED: [(Stack, f64); 3] =
    [(Stack::MonolithicVip, 1.79), (Stack::LayeredVip, 1.93), (Stack::LayeredVipSize, 1.78)];
const TABLE_6: [Line; 2] =
    [("Sprite RPC", X_KERNEL, [2.19, 858.0, 1.20]), ("Sprite RPC", SPRITE, [2.60, 700.0, 1.20])];

fn row(stack: &str, what: &str) -> String {
    format!("{stack}, {what}")
}

/// One system's calls of so many octets in one process.
fn calls_in_process(row: String, stack: Stack, octets: usize) -> Case {
    let make = move |_| stack.is_known().map(|()| pair(stack, octets));
    let case = Case::measured_on(row, &Shared::default(), make, move |calls, effort| {
        let most = if octets > 0 { CALLS_LARGE } else { CALLS };
        let count = (most * effort) as u64 + 1;
        let begun = Instant::now();
        calls.make(count);
        let us = begun.elapsed().as_nanos() as f64 / 1000.0;
        Ok((us / count as f64).into())
    });
    case.of(IN_PROCESS)
}

/// Calls of all sizes by these stacks on all wires.
fn measured(stacks: &[Stack], sizes: &[(&str, usize)]) -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    // Rows that are compared are measured one behind the other.
    for wire in [None].into_iter().chain(WIRES.map(Some)) {
        for (what, octets) in sizes {
            for stack in stacks {
                let row = row(stack.name(), what);
                list.push(match wire {
                    Some(wire) => {
                        let system = System::Rpc(*stack, wire);
                        trips(&testbed, row, system, *octets, Mode::Spinning, TIME)
                    }
                    None => calls_in_process(row, *stack, *octets),
                });
            }
        }
    }
    list
}

const SIZES: [(&str, usize); 3] = [(LATENCY, 0), (ONE, KILOBYTE), (SIXTEEN, LARGE)];

fn quoted_latencies(lines: &[Line]) -> Vec<Case> {
    let one = |(stack, system, [ms, ..]): &Line| quoted(row(stack, LATENCY), system, ms * 1000.0);
    lines.iter().map(one).collect()
}

fn quoted_latency((stack, ms): (Stack, f64)) -> Case {
    quoted(row(stack.name(), LATENCY), X_KERNEL, ms * 1000.0)
}

/// Records with the figures of the paper's other columns.
fn quoted_records(bench: &'static str, lines: &[Line]) -> Vec<Record> {
    let two = |(stack, system, [_, rate, ms]): &Line| {
        [
            quoted_record(row(stack, THROUGHPUT), RATE, system, *rate),
            quoted_record(row(stack, INCREMENTAL), ("us", Better::Lower), system, ms * 1000.0),
        ]
    };
    let records = lines.iter().flat_map(two);
    records.map(|record| Record { bench, ..record }).collect()
}

/// Kilobytes a second, and what each further kilobyte costs.
fn rates(records: &[Record], stacks: &[&str]) -> Vec<Record> {
    let mut list = Vec::new();
    for stack in stacks {
        for system in systems() {
            let of = |what| Record::find(records, &row(stack, what), system);
            let (Some(one), Some(sixteen)) = (of(ONE), of(SIXTEEN)) else {
                continue;
            };
            let name = (row(stack, THROUGHPUT), "kilobytes/s");
            let kilobytes = (LARGE / KILOBYTE) as f64;
            // The slowest call is the lowest rate.
            let mut rate = sixteen.with(sixteen, name, |us, _| kilobytes / (us / 1e6));
            (rate.min, rate.max) = (rate.max, rate.min);
            rate.better = Better::Higher;
            list.push(rate);
            let name = (row(stack, INCREMENTAL), "us");
            list.push(sixteen.with(one, name, |b, a| (b - a) / (kilobytes - 1.0)));
        }
    }
    list
}

/// The systems in the order of a table; the one that measures nothing but protocols leads.
fn systems() -> [&'static str; 4] {
    let [xdp, packet, shm] = WIRES.map(|wire| System::Rpc(Stack::Vip, wire).name());
    [IN_PROCESS, xdp, packet, shm]
}

/// Ratios of the second figure to the first, for each system that has both.
fn ratios(
    records: &[Record],
    what: &str,
    [upper, lower]: [&str; 2],
    goal: Option<Goal>,
) -> Vec<Record> {
    let one = |system: &str| {
        let [a, b] = [upper, lower].map(|stack| Record::find(records, &row(stack, what), system));
        let (a, b) = (a?, b?);
        let name = (format!("{upper} / {lower}, {what}"), "times");
        let ratio = a.with(b, name, |a, b| a / b);
        let goal = goal.filter(|_| system != X_KERNEL);
        Some(Record { goal, ..ratio })
    };
    systems().into_iter().chain([X_KERNEL]).filter_map(one).collect()
}

pub(crate) fn table_1() -> Vec<Case> {
    let mut list = measured(&MONOLITHIC, &SIZES);
    list.extend(quoted_latencies(&TABLE_1));
    list
}

pub(crate) fn table_1_derived(records: &[Record]) -> Vec<Record> {
    let mut list = rates(records, &MONOLITHIC.map(Stack::name));
    list.extend(quoted_records("papers/rpc-table-1", &TABLE_1));
    let [eth, ip, vip] = MONOLITHIC.map(Stack::name);
    let goal = Some(Goal::AtMost(1.034));
    list.extend(ratios(records, LATENCY, [vip, eth], goal));
    list.extend(ratios(records, LATENCY, [ip, eth], None));
    list
}

const MONOLITHIC: [Stack; 3] = [Stack::MonolithicEth, Stack::MonolithicIp, Stack::MonolithicVip];

pub(crate) fn table_2() -> Vec<Case> {
    let mut list = measured(&BOTH, &SIZES);
    list.extend(quoted_latencies(&TABLE_2));
    list
}

pub(crate) fn table_2_derived(records: &[Record]) -> Vec<Record> {
    let mut list = rates(records, &BOTH.map(Stack::name));
    list.extend(quoted_records("papers/rpc-table-2", &TABLE_2));
    let [monolithic, layered] = BOTH.map(Stack::name);
    let goal = Some(Goal::AtMost(1.078));
    list.extend(ratios(records, LATENCY, [layered, monolithic], goal));
    let rates = list.clone();
    let goal = Some(Goal::AtLeast(0.97));
    list.extend(ratios(&rates, THROUGHPUT, [layered, monolithic], goal));
    list
}

const BOTH: [Stack; 2] = [Stack::MonolithicVip, Stack::LayeredVip];

pub(crate) fn table_3() -> Vec<Case> {
    let mut list = measured(&TABLE_3.map(|(stack, _)| stack), &[(LATENCY, 0)]);
    list.extend(TABLE_3.map(quoted_latency));
    list
}

pub(crate) fn table_3_derived(records: &[Record]) -> Vec<Record> {
    let mut list = Vec::new();
    let steps = ["FRAGMENT adds", "CHANNEL adds", "SELECT adds"];
    for (at, step) in steps.into_iter().enumerate() {
        for system in systems().into_iter().chain([X_KERNEL]) {
            let of = |at: usize| Record::find(records, &row(TABLE_3[at].0.name(), LATENCY), system);
            if let (Some(lower), Some(upper)) = (of(at), of(at + 1)) {
                let name = (step.to_owned(), "us");
                list.push(upper.with(lower, name, |a, b| a - b));
            }
        }
    }
    list
}

pub(crate) fn removal() -> Vec<Case> {
    let mut list = measured(&REMOVED.map(|(stack, _)| stack), &SIZES);
    // Those of table I beside them, so that one run has all that compare.
    let others = [Stack::MonolithicEth, Stack::MonolithicIp];
    list.extend(measured(&others, &[(LATENCY, 0)]));
    list.extend(REMOVED.map(quoted_latency));
    list.extend(quoted_latencies(&TABLE_1[1..3]));
    list
}

pub(crate) fn removal_derived(records: &[Record]) -> Vec<Record> {
    let stacks = REMOVED.map(|(stack, _)| stack.name());
    let mut list = rates(records, &stacks);
    let [monolithic, layered, removed] = stacks;
    let goal = Some(Goal::AtMost(1.0));
    list.extend(ratios(records, LATENCY, [removed, monolithic], goal));
    list.extend(ratios(records, LATENCY, [removed, layered], None));
    let [eth, ip, _] = MONOLITHIC.map(Stack::name);
    for pair in [[layered, monolithic], [monolithic, eth], [ip, eth]] {
        list.extend(ratios(records, LATENCY, pair, None));
    }
    list
}

pub(crate) fn table_6() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for (what, octets) in SIZES {
        for wire in WIRES {
            let system = System::Rpc(Stack::MonolithicVip, wire);
            let row = row(SPRITE_RPC, what);
            list.push(trips(&testbed, row, system, octets, Mode::Spinning, TIME));
        }
    }
    list.extend(quoted_latencies(&TABLE_6));
    list
}

pub(crate) fn table_6_derived(records: &[Record]) -> Vec<Record> {
    let mut list = rates(records, &[SPRITE_RPC]);
    list.extend(quoted_records("papers/xkernel-table-6", &TABLE_6));
    list
}

const SPRITE_RPC: &str = "Sprite RPC";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(stack: Stack, what: &str, system: &'static str, median: f64) -> Record {
        Record {
            row: row(stack.name(), what),
            system,
            min: median / 2.0,
            median,
            max: median * 2.0,
            runs: 1,
            ..Record::default()
        }
    }

    #[test]
    fn rates_come_of_the_calls_of_sixteen_kilobytes() {
        let records = [
            record(Stack::LayeredVip, ONE, IN_PROCESS, 1000.0),
            record(Stack::LayeredVip, SIXTEEN, IN_PROCESS, 16_000.0),
            record(Stack::MonolithicVip, SIXTEEN, IN_PROCESS, 16_000.0),
        ];
        let found = rates(&records, &BOTH.map(Stack::name));
        assert_eq!(found.len(), 2, "one that lacks a size has no rate");
        assert_eq!((found[0].median, found[1].median), (1000.0, 1000.0));
        assert!(found[0].min < found[0].max);
    }

    #[test]
    fn a_ratio_has_its_goal_but_not_the_papers() {
        let [eth, _, vip] = MONOLITHIC;
        let records = [
            record(eth, LATENCY, IN_PROCESS, 100.0),
            record(vip, LATENCY, IN_PROCESS, 103.0),
            record(eth, LATENCY, X_KERNEL, 1730.0),
            record(vip, LATENCY, X_KERNEL, 1790.0),
        ];
        let goal = Some(Goal::AtMost(1.034));
        let found = ratios(&records, LATENCY, [vip.name(), eth.name()], goal);
        let [ours, papers] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((ours.reached(), papers.reached()), (Some(true), None));
        assert!((papers.median - 1.79 / 1.73).abs() < 1e-9);
    }
}
