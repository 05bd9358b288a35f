//! The name of a session's peer.

use super::HostAddr;
use core::fmt;

/// Name by which the receiver above a session knows the peer: its host, or twelve octets of the
/// receiver's own for a peer that is no host. A name is never a host by chance.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName {
    octets: [u8; 16],
    scope: u32,
}

/// The first octets, and the zone, of a name that is no host: a global address with a zone, which
/// no [`HostAddr`] is.
const NO_HOST: ([u8; 4], u32) = ([0x20, 0, 0, 0], u32::MAX);

impl PeerName {
    /// No name: nothing is known of the peer yet.
    pub const UNKNOWN: Self = Self { octets: [0; 16], scope: 0 };

    /// The name of a peer that is no host.
    #[must_use]
    pub const fn no_host(name: [u8; 12]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = name;
        let ([p, q, r, s], scope) = NO_HOST;
        Self { octets: [p, q, r, s, a, b, c, d, e, f, g, h, i, j, k, l], scope }
    }

    /// Returns the host; the unspecified one of a peer that is none, or of which nothing is known.
    #[inline]
    #[must_use]
    pub fn host(self) -> HostAddr {
        match self.own() {
            Some(_) => HostAddr::UNSPECIFIED,
            None => HostAddr::from_parts((self.octets, self.scope)),
        }
    }

    /// Returns the twelve octets of [`no_host`](Self::no_host); `None` of another name.
    #[inline]
    #[must_use]
    pub fn own(self) -> Option<[u8; 12]> {
        let (head, own) = self.octets.split_first_chunk()?;
        (self.scope == NO_HOST.1 && *head == NO_HOST.0).then_some(*own.first_chunk()?)
    }

    /// Returns all of it in words, for a keyed hash.
    #[must_use]
    pub fn words(&self) -> [u64; 3] {
        let bits = u128::from_be_bytes(self.octets);
        [(bits >> 64) as u64, bits as u64, self.scope.into()]
    }

    /// Returns the octets and the zone, as a key.
    #[inline]
    pub(crate) fn parts(self) -> ([u8; 16], u32) {
        (self.octets, self.scope)
    }
}

impl From<HostAddr> for PeerName {
    #[inline]
    fn from(host: HostAddr) -> Self {
        let (octets, scope) = host.to_parts();
        Self { octets, scope }
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
        for own in [[0; 12], [0xff; 12]] {
            let name = PeerName::no_host(own);
            assert_eq!((name.own(), name.host()), (Some(own), HostAddr::UNSPECIFIED));
            assert!(hosts.iter().all(|host| PeerName::from(*host) != name));
        }
    }
}
