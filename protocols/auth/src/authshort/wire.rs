//! A shorthand as this server makes it: none but its maker reads it; and how it lies in a
//! verifier.
//!
//! RFC 5531, appendix A, has the bytes of the verifier "encode an opaque structure", and does not
//! say which. To Sun's clients, and so to libtirpc and those of BSD and Solaris
//! (`authunix_validate` in `auth_unix.c`), they are a whole credential in XDR: flavor, length,
//! octets, sent as it stands in the next calls. Other clients send the bytes back in a credential
//! of flavor AUTH_SHORT. This server puts a credential into the verifier and reads what either kind
//! makes of it. This client takes the shorthand out of one that is a credential, and sends any
//! other bytes as they are.

use xk_core::{HostAddr, Secret};
use xk_kit::rpc::auth::SHORTHAND_OCTETS;
use xk_kit::rpc::onc::{AUTH_HEAD_OCTETS, AUTH_SHORT, AuthHead};

/// Octets of a shorthand without the head that it has in a verifier.
const SEALED_OCTETS: usize = SHORTHAND_OCTETS - AUTH_HEAD_OCTETS;
/// The head of a shorthand in a verifier: that of the credential which it is to be.
const HEAD: AuthHead = AuthHead { flavor: AUTH_SHORT, len: SEALED_OCTETS };

/// Octets in front of a request with one of this server's shorthands, its empty verifier included.
pub(super) const HEADER_OCTETS: usize = 2 * AUTH_HEAD_OCTETS + SEALED_OCTETS;

/// Octets that a client sends back of the body of a verifier: the credential's, if the body is just
/// one; else all of it.
pub(super) fn returned(body: &[u8]) -> &[u8] {
    let Some((head, inner)) = body.split_first_chunk() else {
        return body;
    };
    let word = u64::from_be_bytes(*head);
    let is_credential = word >> 32 == u64::from(AUTH_SHORT)
        && !inner.is_empty()
        && inner.len().is_multiple_of(4)
        && word as u32 as usize <= inner.len()
        && inner.len() - (word as u32 as usize) < 4;
    match is_credential {
        true => inner.get(..word as u32 as usize).unwrap_or(inner),
        false => body,
    }
}

/// The caller that a shorthand stands for, and the time when it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shorthand {
    /// The user.
    pub(super) user: u32,
    /// The user's first group.
    pub(super) group: u32,
    /// Time at which it was given, in milliseconds of this boot.
    pub(super) given_ms: u64,
}

impl Shorthand {
    /// The seal, which nothing can make without the secret of this boot.
    fn seal(self, secret: &Secret, peer: Option<HostAddr>) -> u64 {
        let Self { user, group, given_ms } = self;
        let [a, b, c] = peer.map_or([u64::MAX; 3], |host| host.words());
        let ids = u64::from(user) << 32 | u64::from(group);
        secret.hash(&[a, b, c, ids, given_ms])
    }

    /// Writes it for a verifier, for use by `peer` alone.
    pub(super) fn emit(self, secret: &Secret, peer: Option<HostAddr>) -> [u8; SHORTHAND_OCTETS] {
        let mut octets = [0; SHORTHAND_OCTETS];
        octets[..8].copy_from_slice(&HEAD.emit());
        octets[8..12].copy_from_slice(&self.user.to_be_bytes());
        octets[12..16].copy_from_slice(&self.group.to_be_bytes());
        octets[16..24].copy_from_slice(&self.given_ms.to_be_bytes());
        octets[24..].copy_from_slice(&self.seal(secret, peer).to_be_bytes());
        octets
    }

    /// Reads one that `peer` sent, with the head or without; `None` if it is not of this boot, or
    /// not for that host.
    pub(super) fn parse(secret: &Secret, peer: Option<HostAddr>, octets: &[u8]) -> Option<Self> {
        let octets = octets.strip_prefix(&HEAD.emit()).unwrap_or(octets);
        let octets: &[u8; SEALED_OCTETS] = octets.try_into().ok()?;
        let [ids, given_ms, seal] = [0, 8, 16].map(|at| {
            let part = octets.get(at..at + 8).and_then(|part| part.first_chunk());
            u64::from_be_bytes(*part.unwrap_or(&[0; 8]))
        });
        let shorthand = Self { user: (ids >> 32) as u32, group: ids as u32, given_ms };
        (shorthand.seal(secret, peer) == seal).then_some(shorthand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_maker_and_whom_it_was_given_to_can_use_it() {
        let [secret, other] = [1, 2].map(|key| Secret::known([key, 0]));
        let peer = Some([10, 0, 0, 1].into());
        let shorthand = Shorthand { user: 1000, group: 100, given_ms: 7 };
        let whole = shorthand.emit(&secret, peer);
        assert_eq!(whole[..8], [0, 0, 0, 2, 0, 0, 0, 24]);
        assert_eq!(Shorthand::parse(&secret, peer, &whole), Some(shorthand));
        let octets: [u8; SEALED_OCTETS] = whole[8..].try_into().unwrap();
        assert_eq!(returned(&whole), octets);
        assert_eq!(Shorthand::parse(&secret, peer, &octets), Some(shorthand));
        assert_eq!(Shorthand::parse(&secret, None, &octets), None);
        // Nor one with the same bits elsewhere.
        let other_peer = Some("::10.0.0.1".parse().unwrap());
        assert_eq!(Shorthand::parse(&secret, other_peer, &octets), None);
        assert_eq!(Shorthand::parse(&other, peer, &octets), None);
        for at in 0..octets.len() {
            let mut wrong = octets;
            wrong[at] ^= 1;
            assert_eq!(Shorthand::parse(&secret, peer, &wrong), None, "octet {at}");
            assert_eq!(Shorthand::parse(&secret, peer, &octets[..at]), None);
        }
    }

    #[test]
    fn what_is_no_credential_is_sent_back_as_it_is() {
        let inner = [0, 0, 0, 2, 0, 0, 0, 3, 7, 8, 9, 0];
        assert_eq!(returned(&inner), [7, 8, 9]);
        for body in [
            &[][..],
            &[0, 0, 0, 2],
            &[0, 0, 0, 2, 0, 0, 0, 0],
            // Another flavor; longer, and shorter, than it says; not padded.
            &[0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9, 0],
            &[0, 0, 0, 2, 0, 0, 0, 8, 7, 8, 9, 0],
            &[0, 0, 0, 2, 0, 0, 0, 3, 7, 8, 9, 0, 1, 1, 1, 1],
            &[0, 0, 0, 2, 0, 0, 0, 3, 7, 8, 9],
            &[0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 7, 8, 9, 0],
        ] {
            assert_eq!(returned(body), body);
        }
    }
}
