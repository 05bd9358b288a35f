//! What a job's octets are.

use xk_appletalk::ddp::Sum;

/// The octet at a place of a job.
pub(crate) fn octet(number: u64, at: usize) -> u8 {
    (at as u64).wrapping_mul(31).wrapping_add(number.wrapping_mul(7)).wrapping_add(at as u64 >> 8)
        as u8
}

/// How many octets there were, and their sum.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) octets: u64,
    sum: Sum,
}

impl Tally {
    pub(crate) fn add(&mut self, octets: &[u8]) {
        self.octets += octets.len() as u64;
        self.sum.add(octets);
    }

    pub(crate) fn sum(&self) -> u16 {
        self.sum.checksum()
    }
}
