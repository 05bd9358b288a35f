//! `rpc-inprocess`: an empty call between two kernels of one thread, by configuration; differences
//! are what a layer costs.

use super::pair::pair;
use super::stacks::Stack;
use crate::case::{Case, Goal};
use crate::record::Record;

const OPERATIONS: u64 = 20_000;
/// Largest cost of a trivial layer, there and back, in ns.
const TRIVIAL_NS: f64 = 20.0;

pub(crate) fn cases() -> Vec<Case> {
    let case = |stack: Stack| {
        Case::new(stack.name(), OPERATIONS, move || {
            let pair = pair(stack, 0);
            move |operations| pair.make(operations)
        })
    };
    let known = Stack::ALL.into_iter().filter(|s| s.is_known().is_ok() && s.takes_frames());
    known.map(case).collect()
}

/// A layer: the configuration that has it and one that does not.
const LAYERS: [(&str, Stack, Stack, Option<f64>); 7] = [
    ("SELECT adds, on the wire", Stack::LayeredLink, Stack::ChannelLink, Some(TRIVIAL_NS)),
    ("SELECT adds", Stack::LayeredVip, Stack::ChannelFragmentVip, Some(TRIVIAL_NS)),
    ("VIP adds", Stack::MonolithicVip, Stack::MonolithicEth, Some(TRIVIAL_NS)),
    ("IP adds", Stack::MonolithicIp, Stack::MonolithicEth, None),
    ("CHANNEL adds", Stack::ChannelFragmentVip, Stack::FragmentVip, None),
    ("FRAGMENT adds", Stack::FragmentVip, Stack::Vip, None),
    ("three layers add", Stack::LayeredVip, Stack::MonolithicVip, None),
];

pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let find = |stack: Stack| {
        let mut found = records.iter().filter(|r| r.row == stack.name());
        found.find(|r| r.is_measured())
    };
    let one = |(row, with, without, goal_ns): (&str, Stack, Stack, Option<f64>)| {
        let (with, without) = (find(with)?, find(without)?);
        let instructions = with.instructions.zip(without.instructions);
        Some(Record {
            instructions: instructions.map(|(a, b)| a - b),
            goal: goal_ns.map(Goal::AtMost),
            ..with.with(without, (row, with.unit), |with, without| with - without)
        })
    };
    let monolithic = |(row, vmtp, mrpc): (&str, Stack, Stack)| {
        let (vmtp, mrpc) = (find(vmtp)?, find(mrpc)?);
        Some(Record {
            instructions: None,
            goal: Some(Goal::AtMost(VMTP_TIMES)),
            ..vmtp.with(mrpc, (row, "times"), |vmtp, mrpc| vmtp / mrpc)
        })
    };
    let layers = LAYERS.into_iter().filter_map(one);
    layers.chain(MONOLITHIC.into_iter().filter_map(monolithic)).collect()
}

/// The monolithic protocols on the same layer.
const MONOLITHIC: [(&str, Stack, Stack); 2] = [
    ("VMTP-VIP over M.RPC-VIP", Stack::VmtpVip, Stack::MonolithicVip),
    ("VMTP-IP over M.RPC-IP", Stack::VmtpIp, Stack::MonolithicIp),
];
/// A call by VMTP takes so many times as long as one by M.RPC, at most.
pub(super) const VMTP_TIMES: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn known(stacks: &[Stack]) -> impl Iterator<Item = Stack> {
        let stacks = stacks.iter().copied();
        stacks.filter(|stack| stack.is_known().is_ok() && stack.takes_frames())
    }

    #[test]
    fn every_configuration_calls() {
        for stack in known(&Stack::ALL) {
            pair(stack, 0).make(3);
        }
    }

    #[test]
    fn large_arguments_go_in_fragments_and_small_ones_in_one_frame() {
        let stacks = [
            Stack::MonolithicVip,
            Stack::LayeredVip,
            Stack::LayeredVipSize,
            Stack::SunUdp,
            Stack::VmtpVip,
        ];
        for stack in known(&stacks) {
            let frames = |octets: usize, calls: u64| {
                let pair = pair(stack, octets);
                let before = pair.frames();
                pair.make(calls);
                pair.frames() - before
            };
            // Sprite's fragments hold a kilobyte, the others what fits; and the reply.
            let large = frames(16 * 1024, 1);
            assert!((13..=17).contains(&large), "{}: {large}", stack.name());
            assert_eq!(frames(0, 10), 20, "{}", stack.name());
        }
    }
}
