//! What lies between the two sides.

use super::app::Side;
use super::plan::{Middlebox, Plan};
use super::{NUMBER, host};
use crate::kernel::{TestKernel, octets};
use crate::script::wire::{FAST_OPEN, HEADER_LEN, SYN, seal};
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap};
use xk_core::random::Random;
use xk_core::{Message, Part, Time};
use xk_kit::control::PseudoHeader;

/// A network with the habits of a plan.
pub(super) struct Network {
    plan: Plan,
    chance: Random,
    start: Time,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    packets: BTreeMap<u64, (usize, Message)>,
    /// Until when each direction is busy.
    busy: [Time; 2],
    /// Packets that the sides gave it.
    pub(super) taken: u64,
    last: u64,
}

impl Network {
    pub(super) fn new(plan: &Plan, seed: u64, start: Time) -> Self {
        Self {
            plan: plan.clone(),
            chance: Random::new(seed).fork(3),
            start,
            queue: BinaryHeap::new(),
            packets: BTreeMap::new(),
            busy: [start; 2],
            taken: 0,
            last: 0,
        }
    }

    /// When the next packet arrives.
    pub(super) fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    fn is_cut(&self, now: Time) -> bool {
        let after = |since: Duration| now >= self.start.after(since);
        let parted = self.plan.partition.is_some_and(|(from, to)| after(from) && !after(to));
        parted || self.plan.death.is_some_and(after)
    }

    /// Passes a packet through a box on the way; `None` if it goes no further.
    fn meddle(&self, from: usize, mut data: Vec<u8>) -> Option<Vec<u8>> {
        let (Some(middlebox), Some(&[offset, flags])) = (self.plan.middlebox, data.get(12..14))
        else {
            return Some(data);
        };
        let header = usize::from(offset >> 4) * 4;
        let options = data.get(HEADER_LEN..header);
        let (Some(options), true) = (options, u16::from(flags) & SYN != 0) else {
            return Some(data);
        };
        match middlebox {
            Middlebox::DropsData if data.len() > header => return None,
            // As each is laid out here: behind padding.
            Middlebox::DropsOption if options.windows(2).any(|two| two == [1, FAST_OPEN]) => {
                return None;
            }
            Middlebox::CutsData if data.len() > header => {
                data.truncate(header);
                let (source, peer) = (host(from).into(), host(1 - from).into());
                seal(&mut data, PseudoHeader::new([source; 2], peer, NUMBER.into()).sum);
            }
            _ => {}
        }
        Some(data)
    }

    /// Takes a packet from a side.
    pub(super) fn take(&mut self, cx: &TestKernel, from: usize, message: Message) {
        self.taken += 1;
        let now = cx.now();
        let lost = self.chance.chance_per_million(self.plan.loss);
        let twice = self.chance.chance_per_million(self.plan.duplication);
        let damaged = self.chance.chance_per_million(self.plan.corruption);
        if lost || self.is_cut(now) {
            return;
        }
        let mut leaves = now;
        if let Some((rate, queue)) = self.plan.rate {
            let per_octet = Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX);
            let waits = self.busy[from].max(now);
            let waiting = Duration::from_nanos(waits.as_ns() - now.as_ns());
            if waiting > per_octet * queue as u32 {
                return;
            }
            leaves = waits.after(per_octet * message.len() as u32);
            self.busy[from] = leaves;
        }
        // As on every real way, what arrives is no reference to what the sender keeps.
        let Some(mut data) = self.meddle(from, octets(&message)) else {
            return;
        };
        drop(message);
        if damaged && !data.is_empty() {
            let at = self.chance.below(data.len() as u64) as usize;
            data[at] ^= 1 << self.chance.below(8);
        }
        for _ in 0..1 + u32::from(twice) {
            let jitter = self.chance.below(self.plan.jitter.as_nanos() as u64 + 1);
            let delay = self.plan.delay[from] + Duration::from_nanos(jitter);
            self.last += 1;
            self.queue.push(Reverse((leaves.after(delay), self.last)));
            self.packets.insert(self.last, (from, cx.message(&data)));
        }
    }

    /// Delivers what is due.
    pub(super) fn deliver(&mut self, cx: &TestKernel, sides: &[Side; 2]) {
        while self.next().is_some_and(|at| at <= cx.now()) {
            let Some(Reverse((_, number))) = self.queue.pop() else {
                return;
            };
            if let Some((from, message)) = self.packets.remove(&number) {
                let to = &sides[1 - from];
                to.bottom_for(&message).inject(cx, Some(Part::host(host(from))), message);
            }
        }
    }
}
