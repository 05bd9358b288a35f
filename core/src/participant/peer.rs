//! The name of a session's peer.

use super::HostAddr;
use core::fmt;

/// Name by which the receiver above a session knows the peer: its host, or twelve octets of the
/// receiver's own for a peer that is no host. A name is never a host by chance.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(HostAddr);

/// The first octets, and the zone, of a name that is no host: a global address with a zone, which
/// is no other [`HostAddr`].
const OWN: ([u8; 4], u32) = ([0x20, 0, 0, 0], u32::MAX);

impl PeerName {
    /// No name: nothing is known of the peer yet.
    pub const UNKNOWN: Self = Self(HostAddr::UNSPECIFIED);
    /// A peer that is no host, and has no other name.
    pub const NO_HOST: Self = Self::no_host([0; 12]);

    /// The name of a peer that is no host.
    #[must_use]
    pub const fn no_host(name: [u8; 12]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = name;
        let ([p, q, r, s], zone) = OWN;
        Self(HostAddr::unchecked([p, q, r, s, a, b, c, d, e, f, g, h, i, j, k, l], zone))
    }

    /// Returns the host; the unspecified one of a peer that is none, or of which nothing is known.
    #[inline]
    #[must_use]
    pub fn host(self) -> HostAddr {
        if self.own().is_some() { HostAddr::UNSPECIFIED } else { self.0 }
    }

    /// Returns the twelve octets of [`no_host`](Self::no_host); `None` of another name.
    #[inline]
    #[must_use]
    pub fn own(self) -> Option<[u8; 12]> {
        let (octets, zone) = self.0.to_parts();
        let (head, own) = octets.split_first_chunk()?;
        ((*head, zone) == OWN).then_some(*own.first_chunk()?)
    }

    /// Returns all of it in words, for a keyed hash.
    #[must_use]
    pub fn words(&self) -> [u64; 3] {
        self.0.words()
    }

    /// Returns all of it as a key.
    #[inline]
    pub(crate) fn key(&self) -> &HostAddr {
        &self.0
    }
}

impl From<HostAddr> for PeerName {
    #[inline]
    fn from(host: HostAddr) -> Self {
        Self(host)
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.own() {
            Some(_) => f.write_str("no host"),
            None => self.host().fmt(f),
        }
    }
}

impl fmt::Debug for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_host_or_none() {
        let hosts = [
            HostAddr::UNSPECIFIED,
            HostAddr::from([10, 0, 0, 1]),
            HostAddr::v6((0xfe80 << 112 | 1).into(), u32::MAX),
            HostAddr::v6((0x2000 << 112 | 1).into(), u32::MAX),
            HostAddr::v6((0xfd01 << 112 | 1).into(), 0),
        ];
        for host in hosts {
            assert_eq!((PeerName::from(host).host(), PeerName::from(host).own()), (host, None));
        }
        assert_eq!(PeerName::NO_HOST, PeerName::no_host([0; 12]));
        for own in [[0; 12], [0xff; 12]] {
            let name = PeerName::no_host(own);
            assert_eq!((name.own(), name.host()), (Some(own), HostAddr::UNSPECIFIED));
            assert!(hosts.iter().all(|host| PeerName::from(*host) != name));
        }
    }
}
