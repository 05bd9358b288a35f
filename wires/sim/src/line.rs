//! A line: frames go one after the other, and wait for their turn.

use core::time::Duration;
use std::collections::VecDeque;
use xk_core::Time;

const NS_PER_S: u128 = 1_000_000_000;

/// Time that this many octets take at this rate, in nanoseconds, rounded up.
pub(crate) fn sending_ns(octets: usize, rate_bit_s: u64) -> u64 {
    let bits = octets as u128 * 8;
    u64::try_from((bits * NS_PER_S).div_ceil(u128::from(rate_bit_s.max(1)))).unwrap_or(u64::MAX)
}

/// The frames at one end of a line that have not left yet.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Time at which each leaves; the first may be on its way out.
    departures: VecDeque<Time>,
}

impl Waiting {
    /// Gives a frame its turn on a line that is free at `free_at`: when its last bit leaves. `None`
    /// if as many as `max` wait behind the one that is being sent.
    pub(crate) fn take_turn(
        &mut self,
        now: Time,
        free_at: &mut Time,
        sending_ns: u64,
        max: usize,
    ) -> Option<Time> {
        while self.departures.front().is_some_and(|&departure| departure <= now) {
            self.departures.pop_front();
        }
        if self.departures.len() > max {
            return None;
        }
        let departure = now.max(*free_at) + Duration::from_nanos(sending_ns);
        *free_at = departure;
        self.departures.push_back(departure);
        Some(departure)
    }

    /// Time until a frame gets a turn: zero if fewer than `max` wait.
    pub(crate) fn room_after(&self, now: Time, max: usize) -> Duration {
        let over = self.departures.len().checked_sub(max.saturating_add(1));
        // Turns are given in the order of departures.
        let leaves = over.and_then(|last| self.departures.get(last));
        leaves.map_or(Duration::ZERO, |leaves| leaves.since(now))
    }
}
