//! The rate of delivery, measured by what each acknowledgment delivers (the IETF draft on delivery
//! rate estimation; BBR builds on it).
//!
//! Each transmission notes how much was delivered by then. When it is acknowledged, what was
//! delivered meanwhile, over the time that took, is a rate that the network did bear. The time is
//! the longer of that between the sends and that between the acknowledgments, so that
//! acknowledgments that come all at once do not make it too large.

use super::scoreboard::Newly;
use core::time::Duration;
use xk_core::{Time, fields};

/// State of delivery when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    delivered_octets: u64,
    delivered_at: Time,
    first_sent: Time,
    in_flight_octets: u32,
    app_limited: bool,
}

fields!(Stamp { delivered_octets, delivered_at, first_sent, in_flight_octets, app_limited });

/// A measured rate of delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateSample {
    /// Octets delivered in the interval.
    pub delivered_octets: u64,
    /// Time that this took; never zero.
    pub interval: Duration,
    /// Whether the application had too little to send to fill the window: the network may bear
    /// more.
    pub app_limited: bool,
    /// Octets that were delivered in all when the segment was sent that this is about.
    pub prior_delivered_octets: u64,
    /// Octets in the network right after that segment was sent.
    pub in_flight_octets: u32,
}

impl RateSample {
    /// Octets a second.
    pub fn octets_per_s(&self) -> u64 {
        let ns = self.interval.as_nanos().max(1);
        let rate = u128::from(self.delivered_octets) * 1_000_000_000 / ns;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// The estimator of one connection.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    delivered_octets: u64,
    delivered_at: Time,
    /// Time at which the segment was sent that was acknowledged last: the interval of sends begins
    /// here.
    first_sent: Time,
    /// Samples of what was sent before this much is delivered are limited by the application; zero
    /// if none are.
    app_limited_until_octets: u64,
    /// A round trip ends when a segment is acknowledged that was sent after this much had been
    /// delivered.
    round_ends_octets: u64,
}

fields!(Rate {
    delivered_octets,
    delivered_at,
    first_sent,
    app_limited_until_octets,
    round_ends_octets
});

impl Stamp {
    /// Whether it may be of a segment of this connection.
    pub(super) fn is_of(&self, rate: &Rate) -> bool {
        self.delivered_octets <= rate.delivered_octets
    }
}

impl Rate {
    /// Nothing delivered.
    #[must_use]
    pub fn new() -> Rate {
        Rate::default()
    }

    /// Octets delivered in all.
    pub fn delivered_octets(&self) -> u64 {
        self.delivered_octets
    }

    /// Whether what is sent now is limited by the application.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until_octets != 0
    }

    /// A segment of `octets` goes out, with `in_flight_octets` out before it.
    pub(crate) fn on_sent(&mut self, octets: u32, in_flight_octets: u32, now: Time) -> Stamp {
        if in_flight_octets == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        Stamp {
            delivered_octets: self.delivered_octets,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight_octets: in_flight_octets.saturating_add(octets),
            app_limited: self.is_app_limited(),
        }
    }

    /// The application has nothing more to send, with `in_flight_octets` out and the window not
    /// used up.
    pub fn on_app_limited(&mut self, in_flight_octets: u32) {
        self.app_limited_until_octets =
            self.delivered_octets.saturating_add(u64::from(in_flight_octets)).max(1);
    }

    /// Takes in what an acknowledgment delivered. The sample, if it gives one, and whether a round
    /// trip ended. An interval shorter than `rtt_min` is none: the acknowledgment is about a
    /// retransmission that was not needed.
    pub fn on_ack(
        &mut self,
        newly: &Newly,
        rtt_min: Option<Duration>,
        now: Time,
    ) -> (Option<RateSample>, bool) {
        if newly.delivered_octets == 0 {
            return (None, false);
        }
        self.delivered_octets = self.delivered_octets.saturating_add(newly.delivered_octets.into());
        self.delivered_at = now;
        if self.is_app_limited() && self.delivered_octets > self.app_limited_until_octets {
            self.app_limited_until_octets = 0;
        }
        let Some((sending, stamp)) = newly.stamp else {
            return (None, false);
        };
        self.first_sent = self.first_sent.max(sending.at);
        let round = stamp.delivered_octets >= self.round_ends_octets;
        if round {
            self.round_ends_octets = self.delivered_octets;
        }
        let going = sending.at.since(stamp.first_sent);
        let arriving = now.since(stamp.delivered_at);
        let interval = going.max(arriving);
        if interval.is_zero() || rtt_min.is_some_and(|min| interval < min) {
            return (None, round);
        }
        let sample = RateSample {
            delivered_octets: self.delivered_octets - stamp.delivered_octets,
            interval,
            app_limited: stamp.app_limited,
            prior_delivered_octets: stamp.delivered_octets,
            in_flight_octets: stamp.in_flight_octets,
        };
        (Some(sample), round)
    }
}
