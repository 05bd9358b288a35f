//! The times at which a call is sent again: pure state, told what happened and when.

use core::time::Duration;
use xk_core::Time;

/// Times that a request is sent without a sign of life before the call fails (Sprite, rpcInit.c).
pub const TRIES_MAX: u32 = 8;
/// Negative acknowledgements in a row that a call survives.
pub const NACKS_MAX: u32 = 8;
/// After so many acknowledgements in a row without a reply the server counts as hung once more.
const ACKS_HUNG: u32 = 10;
/// Longest wait while the server acknowledges.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(5);
/// The first wait after a negative acknowledgement.
const BACK_OFF_MIN: Duration = Duration::from_secs(2);
/// Longest wait after negative acknowledgements.
const BACK_OFF_MAX: Duration = Duration::from_secs(15);

/// The waits of one kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// The first wait if both messages are single packets.
    small: Duration,
    /// The first wait if the request or the reply is fragmented.
    large: Duration,
    /// Longest wait.
    max: Duration,
}

/// On an Ethernet and on links as fast (Sprite, rpcInit.c).
pub const ETHERNET: Timers = Timers {
    small: Duration::from_millis(100),
    large: Duration::from_millis(500),
    max: Duration::from_secs(1),
};

/// Over an internet (Sprite, rpcInit.c).
pub const INTERNET: Timers = Timers {
    small: Duration::from_millis(500),
    large: Duration::from_secs(1),
    max: Duration::from_secs(4),
};

impl Timers {
    /// The first wait of a call.
    #[inline]
    pub fn first(&self, is_large: bool) -> Duration {
        if is_large { self.large } else { self.small }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Nothing heard yet.
    Sending,
    /// The server acknowledges.
    Alive,
    /// The server had no process.
    BackedOff,
}

/// State of a call.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    timers: Timers,
    first: Duration,
    wait: Duration,
    due: Time,
    mood: Mood,
    tries: u32,
    sent: u32,
    acks: u32,
    nacks: u32,
}

impl Retry {
    /// A call sent for the first time at `sent`.
    pub fn new(timers: Timers, is_large: bool, sent: Time) -> Self {
        let first = timers.first(is_large);
        Self {
            timers,
            first,
            wait: first,
            due: sent.after(first),
            mood: Mood::Sending,
            tries: 1,
            sent: 1,
            acks: 0,
            nacks: 0,
        }
    }

    /// Time of the next action if nothing happens before.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Times that the request was sent.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    fn wait_for(&mut self, wait: Duration, now: Time) {
        self.wait = wait;
        self.due = now.after(wait);
    }

    /// The time is up: true if the request is to be sent again, false if the call has failed.
    pub fn timed_out(&mut self, now: Time) -> bool {
        if self.tries >= TRIES_MAX {
            return false;
        }
        self.tries += 1;
        self.sent += 1;
        let max = match self.mood {
            Mood::Sending => self.timers.max,
            Mood::Alive => KEEP_ALIVE_MAX,
            Mood::BackedOff => BACK_OFF_MAX,
        };
        self.wait_for((self.wait * 2).min(max), now);
        true
    }

    /// The server has the request and works on it. True if it has said so ten times in a row.
    pub fn acknowledged(&mut self, now: Time) -> bool {
        self.mood = Mood::Alive;
        (self.tries, self.nacks) = (0, 0);
        self.acks += 1;
        self.wait_for((self.wait * 2).min(KEEP_ALIVE_MAX), now);
        let is_hung = self.acks >= ACKS_HUNG;
        if is_hung {
            self.acks = 0;
        }
        is_hung
    }

    /// The server has no free process. False if it has said so too often.
    pub fn refused(&mut self, now: Time) -> bool {
        let wait = match self.mood {
            Mood::BackedOff => self.wait * 2,
            _ => BACK_OFF_MIN,
        };
        self.mood = Mood::BackedOff;
        (self.tries, self.acks) = (0, 0);
        self.nacks += 1;
        self.wait_for(wait.clamp(BACK_OFF_MIN, BACK_OFF_MAX), now);
        self.nacks < NACKS_MAX
    }

    /// Fragments came, of the request at the server or of the reply here.
    pub fn advanced(&mut self, now: Time) {
        self.tries = 1;
        self.wait_for(self.first, now);
    }

    /// The request was sent again before its time, as the server asked.
    pub fn resent(&mut self, now: Time) {
        self.sent += 1;
        self.wait_for(self.first.max(self.wait), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that an unanswered call waits, and times that it is sent.
    fn silence(timers: Timers, is_large: bool) -> (u64, u32) {
        let mut retry = Retry::new(timers, is_large, Time::ZERO);
        while retry.timed_out(retry.due()) {}
        (retry.due().as_ns() / 1_000_000, retry.sent())
    }

    #[test]
    fn gives_up_after_eight_tries() {
        assert_eq!(silence(ETHERNET, false), (5_500, 8));
        assert_eq!(silence(ETHERNET, true), (7_500, 8));
        assert_eq!(silence(INTERNET, false), (23_500, 8));
        assert_eq!(silence(INTERNET, true), (27_000, 8));
    }

    #[test]
    fn a_living_server_is_asked_every_five_seconds() {
        let mut retry = Retry::new(ETHERNET, false, Time::ZERO);
        let mut hung = 0;
        for _ in 0..30 {
            assert!(retry.timed_out(retry.due()));
            let now = retry.due();
            hung += u32::from(retry.acknowledged(now));
        }
        assert_eq!((hung, retry.wait), (3, KEEP_ALIVE_MAX));
        let mut silent = 0;
        while retry.timed_out(retry.due()) {
            silent += 1;
        }
        assert_eq!(silent, TRIES_MAX, "then it may fall silent as long as ever");
    }

    #[test]
    fn a_server_without_processes_is_left_alone() {
        let mut retry = Retry::new(ETHERNET, false, Time::ZERO);
        let mut waits = alloc::vec::Vec::new();
        while retry.refused(retry.due()) {
            waits.push(retry.wait.as_secs());
        }
        assert_eq!(waits, [2, 4, 8, 15, 15, 15, 15]);
    }
}
