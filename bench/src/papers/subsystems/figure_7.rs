//! Figure 7: transactions by octets of the reply, over each configuration.

use super::configuration::{CONFIGURATIONS, Configuration};
use super::pair::{PACKET, Pair};
use crate::case::{Case, Goal, Shared};
use crate::record::{Ratio, Record};

/// Packets of a reply at most.
const PACKETS_MAX: u8 = 8;
const OPERATIONS: u64 = 1000;
/// Largest cost of a mixed graph, relative to the slower of those whose parts it has.
const MIXED_MAX: f64 = 1.25;

fn row(packets: u8) -> String {
    format!("{} octets", usize::from(packets) * PACKET)
}

pub(crate) fn cases() -> Vec<Case> {
    let pairs = CONFIGURATIONS.map(|of| (of, Shared::<Pair>::default()));
    let mut list = Vec::new();
    for packets in 1..=PACKETS_MAX {
        for (of, pair) in &pairs {
            let of = *of;
            let case = Case::on(
                row(packets),
                OPERATIONS,
                pair,
                move || Pair::new(of),
                move |pair, n| {
                    pair.transactions(n, packets);
                },
            );
            let case = case.of(of.system);
            let mixed = (of.atp != of.ddp).then(|| [of.atp, of.ddp].map(Configuration::pure));
            let parents = mixed.into_iter().flatten();
            list.push(parents.fold(case, |case, parent| case.beside(parent.system)));
        }
    }
    list
}

/// Ratios of each mixed graph to the slower of its parents.
pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let mut list = Vec::new();
    for packets in 1..=PACKETS_MAX {
        let row = row(packets);
        for mixed in CONFIGURATIONS.into_iter().filter(|of| of.atp != of.ddp) {
            let found = |of: Configuration| Record::find(records, &row, of.system);
            let parents = [mixed.atp, mixed.ddp].map(|of| found(Configuration::pure(of)));
            let (Some(own), [Some(a), Some(b)]) = (found(mixed), parents) else {
                continue;
            };
            let slower = if a.median < b.median { b } else { a };
            let name = (format!("{row}, beside the slower parent"), "times");
            // Of the same rounds, where there are ratios of them.
            let paired = own.ratios.iter().find(|ratio| ratio.system == slower.system);
            let times = match paired {
                Some(Ratio { ratio, interval: (low, high), .. }) => {
                    let times = own.computed(name.0, name.1, [*low, *ratio, *high]);
                    Record { interval: Some((*low, *high)), ..times }
                }
                None => own.with(slower, name, |own, slower| own / slower),
            };
            let by_instructions = own.instructions.zip(slower.instructions);
            let also = by_instructions.map(|(own, slower)| ("by instructions", own / slower));
            let also = also.into_iter().collect();
            list.push(Record { goal: Some(Goal::AtMost(MIXED_MAX)), also, ..times });
        }
    }
    list
}
