//! The network between the two sides.

use super::app::Side;
use super::plan::{Middlebox, Plan};
use super::{NUMBER, host};
use crate::kernel::{TestKernel, octets};
use crate::script::wire::{FAST_OPEN, HEADER_LEN, SYN, seal};
use core::cmp::Reverse;
use core::net::Ipv4Addr;
use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap};
use xk_core::random::Random;
use xk_core::{Message, Part, Time};
use xk_kit::control::PseudoHeader;
use xk_kit::net::attribute::{Arrived, Ecn};

/// The octets of the option that counts octets by marks, if there is one (RFC 9768, section 3.2.3).
fn counts_in(options: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        match *options.get(at..)? {
            [1, ..] => at += 1,
            [172 | 174, length, ..] if length >= 2 => return Some(at..at + usize::from(length)),
            [kind, length, ..] if kind > 0 && length >= 2 => at += usize::from(length),
            _ => return None,
        }
    }
}

/// Tells with a packet what was on it, as the network layer does that was asked for it.
fn note_mark(message: &mut Message, mark: Option<Ecn>, to: Ipv4Addr) {
    let told = Arrived { to: to.into(), hops: 64, class: mark.map_or(0, Ecn::bits) };
    let _ = message.set_attribute(told);
    if mark == Some(Ecn::Experienced) {
        let _ = message.set_attribute(Ecn::Experienced);
    }
}

/// A network with the habits of a plan.
pub(super) struct Network {
    plan: Plan,
    chance: Random,
    start: Time,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    packets: BTreeMap<u64, (usize, Message)>,
    /// Times until which each direction is busy.
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

    /// Time at which the next packet arrives.
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
        let Some(options) = data.get(HEADER_LEN..header) else {
            return Some(data);
        };
        let is_syn = u16::from(flags) & SYN != 0;
        let has_data = data.len() > header;
        // As each is laid out here: behind padding.
        let has_cookie = options.windows(2).any(|two| two == [1, FAST_OPEN]);
        let counts = counts_in(options).and_then(|at| data.get_mut(HEADER_LEN..)?.get_mut(at));
        match (middlebox, counts) {
            (Middlebox::DropsData, _) if is_syn && has_data => return None,
            (Middlebox::DropsOption, _) if is_syn && has_cookie => return None,
            (Middlebox::DropsCounts, Some(_)) => return None,
            (Middlebox::CutsData, _) if is_syn && has_data => data.truncate(header),
            (Middlebox::StripsCounts, Some(counts)) => counts.fill(1),
            (Middlebox::ClearsCounts, Some(counts)) => counts[2..].fill(0),
            (Middlebox::SpoilsCounts, Some(counts)) => {
                counts[2..].fill_with(|| self.chance.below(256) as u8);
            }
            _ => return Some(data),
        }
        let (source, peer) = (host(from).into(), host(1 - from).into());
        seal(&mut data, PseudoHeader::new([source; 2], peer, NUMBER.into()).sum);
        Some(data)
    }

    /// The bits that a packet with these arrives with.
    fn mark(&self, ecn: Option<Ecn>) -> Option<Ecn> {
        let is_marked = self.plan.marks > 0 && self.chance.chance_per_million(self.plan.marks);
        ecn.map(|ecn| if is_marked { Ecn::Experienced } else { ecn })
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
        let ecn = message.attribute::<Ecn>();
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
            let (mut copy, mark) = (cx.message(&data), self.mark(ecn));
            note_mark(&mut copy, mark, host(1 - from));
            self.packets.insert(self.last, (from, copy));
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
