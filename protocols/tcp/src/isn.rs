//! Numbers that no peer may guess: initial sequence numbers (RFC 6528, section 3), and where each
//! pair's timestamps begin (RFC 7323, section 5.4).

use crate::seq::Seq;
use xk_core::{Kernel, Secret, Time};

/// The secrets of this boot, one for each purpose.
#[derive(Clone, Copy)]
pub(crate) struct Secrets {
    sequence: Secret,
    clock: Secret,
    cookie: Secret,
    fast_open: Secret,
    /// Key with which hosts are hashed that do not fit into a number.
    pub(crate) hosts: Secret,
}

impl Secrets {
    pub(crate) fn of(cx: &Kernel) -> Self {
        let [sequence, clock, cookie, fast_open, hosts] = core::array::from_fn(|_| cx.secret());
        Self { sequence, clock, cookie, fast_open, hosts }
    }

    /// Secrets that everyone knows.
    #[cfg(test)]
    pub(crate) fn known() -> Self {
        let all = core::array::from_fn(|key| Secret::known([key as u64 + 1, 0]));
        let [sequence, clock, cookie, fast_open, hosts] = all;
        Self { sequence, clock, cookie, fast_open, hosts }
    }

    /// The initial sequence number of a connection: a secret place for each pair, and a clock of
    /// four microseconds.
    pub(crate) fn sequence(&self, hosts: u64, ports: u32, now: Time) -> Seq {
        let clock = (now.as_us() / 4) as u32;
        let place = self.sequence.hash(&[hosts, ports.into()]) as u32;
        Seq(place.wrapping_add(clock))
    }

    /// Offset of the timestamps of a pair of ends: the same for each of its connections, so that a
    /// later one's are later.
    pub(crate) fn clock_offset(&self, hosts: u64, ports: u32) -> u32 {
        self.clock.hash(&[hosts, ports.into()]) as u32
    }

    /// The part of a cookie that no peer can guess.
    pub(crate) fn cookie(&self, key: (u64, u32), irs: Seq, period: u64, segment: u32) -> u32 {
        let (hosts, ports) = key;
        let first = u64::from(irs.0) << 32 | u64::from(segment);
        self.cookie.hash(&[hosts, ports.into(), first, period]) as u32
    }

    /// The Fast Open cookie of two hosts in a period.
    pub(crate) fn fast_open(&self, hosts: u64, period: u64) -> u64 {
        self.fast_open.hash(&[hosts, period])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_its_place_and_the_clock_goes_on() {
        let secrets = Secrets::known();
        let at = |hosts, ports, s| secrets.sequence(hosts, ports, Time::from_s(s));
        assert_eq!(at(1, 2, 1).since(at(1, 2, 0)), 250_000);
        assert_ne!(at(1, 2, 0), at(1, 3, 0));
        assert_ne!(at(1, 2, 0), at(2, 2, 0));
        let others = Secrets { sequence: secrets.clock, ..secrets };
        assert_ne!(at(1, 2, 0), others.sequence(1, 2, Time::ZERO));
        assert_ne!(secrets.clock_offset(1, 2), at(1, 2, 0).0);
        let cookie = |irs, period| secrets.cookie((1, 2), Seq(irs), period, 3);
        assert_ne!(cookie(1, 1), cookie(2, 1));
        assert_ne!(cookie(1, 1), cookie(1, 2));
    }
}
