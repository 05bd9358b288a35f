//! What nobody outside may guess: initial sequence numbers (RFC 6528, section 3), and where each pair's timestamps begin
//! (RFC 7323, section 5.4).

use crate::seq::Seq;
use core::hash::Hasher;
use siphasher::sip::SipHasher24;
use xk_core::{Kernel, Time};

/// What the two uses of the secret are told apart by.
const SEQUENCE: u64 = 0x6973_6e00;
const CLOCK: u64 = 0x7473_6f00;
const PORT: u64 = 0x706f_7274;
const COOKIE: u64 = 0x636f_6f6b;

/// The secret of this boot.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 2]);

impl Secret {
    pub(crate) fn of(cx: &Kernel) -> Self {
        Self(cx.boot_key())
    }

    fn hash(self, what: u64, hosts: u64, ports: u32) -> u64 {
        let [a, b] = self.0;
        // Not the key of the maps itself, though both come from one secret.
        let mut hasher = SipHasher24::new_with_keys(a ^ what, b ^ what.rotate_left(32));
        hasher.write_u64(hosts);
        hasher.write_u32(ports);
        hasher.finish()
    }

    /// The initial sequence number of a connection: a secret place for each pair, and a clock of four microseconds.
    pub(crate) fn sequence(self, hosts: u64, ports: u32, now: Time) -> Seq {
        let clock = (now.as_us() / 4) as u32;
        Seq((self.hash(SEQUENCE, hosts, ports) as u32).wrapping_add(clock))
    }

    /// What the timestamps of a pair of ends begin with: the same for each of its connections, so that a later one's are
    /// later.
    pub(crate) fn clock_offset(self, hosts: u64, ports: u32) -> u32 {
        self.hash(CLOCK, hosts, ports) as u32
    }

    /// The part of a cookie that nobody can guess.
    pub(crate) fn cookie(self, key: (u64, u32), irs: Seq, period: u64, segment: u32) -> u32 {
        let inner = self.hash(COOKIE, key.0, key.1);
        self.hash(
            COOKIE ^ inner,
            u64::from(irs.0) << 32 | u64::from(segment),
            period as u32,
        ) as u32
    }

    /// Where the search for a port to a peer begins (RFC 6056, section 3.3.3).
    pub(crate) fn port_offset(self, hosts: u64, peer: u16) -> u16 {
        self.hash(PORT, hosts, u32::from(peer)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_its_place_and_the_clock_goes_on() {
        let secret = Secret([1, 2]);
        let at = |hosts, ports, s| secret.sequence(hosts, ports, Time::from_s(s));
        assert_eq!(at(1, 2, 1).since(at(1, 2, 0)), 250_000);
        assert_ne!(at(1, 2, 0), at(1, 3, 0));
        assert_ne!(at(1, 2, 0), at(2, 2, 0));
        assert_ne!(at(1, 2, 0), Secret([1, 3]).sequence(1, 2, Time::ZERO));
        assert_ne!(secret.clock_offset(1, 2), at(1, 2, 0).0);
    }
}
