//! A shorthand as this server makes it: nobody but its maker reads it.

use core::net::Ipv4Addr;
use xk_core::Kernel;
use xk_kit::auth::SHORTHAND_OCTETS;
use xk_kit::onc::AUTH_HEAD_OCTETS;

/// Octets in front of a request with one of this server's shorthands, its empty verifier included.
pub const HEADER_OCTETS: usize = 2 * AUTH_HEAD_OCTETS + SHORTHAND_OCTETS;

/// Whom a shorthand stands for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shorthand {
    /// The user.
    pub user: u32,
    /// His first group.
    pub group: u32,
    /// When it was given, in seconds of this boot.
    pub given_s: u64,
}

impl Shorthand {
    /// What nobody can say who does not know the key of this boot.
    fn seal(self, cx: &Kernel, peer: Option<Ipv4Addr>) -> u64 {
        let Self {
            user,
            group,
            given_s,
        } = self;
        let peer = peer.map_or(u64::MAX, |host| u64::from(host.to_bits()));
        let ids = u64::from(user) << 32 | u64::from(group);
        // A word of its own keeps this apart from other uses of the key.
        let parts = [u64::from_be_bytes(*b"shorthnd"), peer, ids, given_s];
        parts
            .into_iter()
            .fold(0, |hash, part| cx.keyed_hash(hash ^ part))
    }

    /// Writes it, for use by `peer` alone.
    #[must_use]
    pub fn emit(self, cx: &Kernel, peer: Option<Ipv4Addr>) -> [u8; SHORTHAND_OCTETS] {
        let mut octets = [0; SHORTHAND_OCTETS];
        octets[..4].copy_from_slice(&self.user.to_be_bytes());
        octets[4..8].copy_from_slice(&self.group.to_be_bytes());
        octets[8..16].copy_from_slice(&self.given_s.to_be_bytes());
        octets[16..].copy_from_slice(&self.seal(cx, peer).to_be_bytes());
        octets
    }

    /// Reads one that `peer` sent; `None` if it is not of this boot, or not for him.
    #[must_use]
    pub fn parse(cx: &Kernel, peer: Option<Ipv4Addr>, octets: &[u8]) -> Option<Self> {
        let octets: &[u8; SHORTHAND_OCTETS] = octets.try_into().ok()?;
        let [ids, given_s, seal] = [0, 8, 16].map(|at| {
            let part = octets.get(at..at + 8).and_then(|part| part.first_chunk());
            u64::from_be_bytes(*part.unwrap_or(&[0; 8]))
        });
        let shorthand = Self {
            user: (ids >> 32) as u32,
            group: ids as u32,
            given_s,
        };
        (shorthand.seal(cx, peer) == seal).then_some(shorthand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use xk_core::kernel::Config;
    use xk_core::message::{Pool, PoolConfig};
    use xk_core::shepherd::{Limits, NoSwitch, Shepherds};

    fn kernel(seed: u64) -> Kernel {
        Kernel::new(Config {
            seed,
            pool: Pool::new(&PoolConfig::default()).unwrap(),
            shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
            timers_max: 8,
        })
    }

    #[test]
    fn only_its_maker_and_whom_it_was_given_to_can_use_it() {
        let cx = kernel(1);
        let peer = Some(Ipv4Addr::new(10, 0, 0, 1));
        let shorthand = Shorthand {
            user: 1000,
            group: 100,
            given_s: 7,
        };
        let octets = shorthand.emit(&cx, peer);
        assert_eq!(Shorthand::parse(&cx, peer, &octets), Some(shorthand));
        assert_eq!(Shorthand::parse(&cx, None, &octets), None);
        assert_eq!(Shorthand::parse(&kernel(2), peer, &octets), None);
        for at in 0..octets.len() {
            let mut wrong = octets;
            wrong[at] ^= 1;
            assert_eq!(Shorthand::parse(&cx, peer, &wrong), None, "octet {at}");
            assert_eq!(Shorthand::parse(&cx, peer, &octets[..at]), None);
        }
    }
}
