//! Detection of a program's end: each machine counts the messages that it has sent to each other
//! one, and in its own place takes away those that it has received. When all machines are idle and
//! each column adds up to zero nothing is under way. Objects without a kernel.
//!
//! One round is enough. Suppose that a machine went on after its report, and take the first that
//! did so. The message that made it go on had been sent before its sender's report, and is counted
//! there, but not by the receiver; and none received is counted that was sent after a report.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Octets of one count: the machine, and the number.
const COUNT: usize = 6;

/// Counts of a machine: the messages to each and, for itself, less those that it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(BTreeMap<u16, i32>);

impl Ledger {
    fn add(&mut self, machine: u16, count: i32) {
        let entry = self.0.entry(machine).or_insert(0);
        *entry = entry.wrapping_add(count);
    }

    /// A message was sent to a machine.
    pub fn sent(&mut self, machine: u16) {
        self.add(machine, 1);
    }

    /// A message has arrived at `own`, the machine of this ledger.
    pub fn received(&mut self, own: u16) {
        self.add(own, -1);
    }

    /// The octets of a report.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        for (machine, count) in &self.0 {
            octets.extend(machine.to_be_bytes());
            octets.extend(count.to_be_bytes());
        }
        octets
    }

    /// Reads a report; `None` if it is none: each machine stands in it once, in order.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let mut ledger = Self::default();
        let mut counts = octets.chunks_exact(COUNT);
        for count in &mut counts {
            let (machine, count) = count.split_first_chunk()?;
            let machine = u16::from_be_bytes(*machine);
            if ledger.0.last_key_value().is_some_and(|(last, _)| *last >= machine) {
                return None;
            }
            ledger.0.insert(machine, i32::from_be_bytes(*count.first_chunk()?));
        }
        counts.remainder().is_empty().then_some(ledger)
    }
}

/// The last report of each machine.
#[derive(Default)]
pub struct Totals {
    machines: u16,
    reports: BTreeMap<u16, (u32, Ledger)>,
}

impl Totals {
    /// Totals of a program of so many machines, which have the numbers from 0 on.
    #[must_use]
    pub fn new(machines: u16) -> Self {
        Self { machines, reports: BTreeMap::new() }
    }

    /// Hears the report of an idle machine; `number` grows from report to report, and an older one
    /// is nothing new.
    pub fn hear(&mut self, machine: u16, number: u32, report: Ledger) {
        let heard = self.reports.get(&machine);
        if machine < self.machines
            && heard.is_none_or(|(last, _)| number.wrapping_sub(*last) < 0x8000_0000)
        {
            self.reports.insert(machine, (number, report));
        }
    }

    /// Whether all machines are idle and nothing is under way.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut sums: BTreeMap<u16, i32> = BTreeMap::new();
        for (machine, count) in self.reports.values().flat_map(|(_, ledger)| &ledger.0) {
            let sum = sums.entry(*machine).or_insert(0);
            *sum = sum.wrapping_add(*count);
        }
        self.machines > 0
            && self.reports.len() == usize::from(self.machines)
            && sums.values().all(|sum| *sum == 0)
    }
}

#[cfg(test)]
mod tests;
