//! The body of a credential: the caller and its machine (RFC 5531, appendix A).

use alloc::vec::Vec;
use xk_kit::rpc::onc::{AUTH_HEAD_OCTETS, AUTH_SYS, AuthHead, BODY_MAX, EMPTY_AUTH};

/// Octets in front of a request, at least: those of an empty machine name and no groups, and an
/// empty verifier.
pub const HEADER_OCTETS: usize = 2 * AUTH_HEAD_OCTETS + 20;
/// Octets of a machine's name, at most.
pub const MACHINE_MAX: usize = 255;
/// Largest number of other groups.
pub const GROUPS_MAX: usize = 16;

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential<'a> {
    /// Any number, chosen by the caller's machine.
    pub stamp: u32,
    /// The name of the caller's machine.
    pub machine: &'a [u8],
    /// The user.
    pub user: u32,
    /// The first group.
    pub group: u32,
    /// Number of other groups that follow.
    pub group_count: usize,
    /// The other groups; those from `group_count` on do not count.
    pub groups: [u32; GROUPS_MAX],
}

/// Why octets are no credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The octets end too early.
    #[error("the credential ends too early")]
    Truncated,
    /// The name is longer than [`MACHINE_MAX`].
    #[error("the machine's name is too long")]
    Machine,
    /// There are more groups than [`GROUPS_MAX`].
    #[error("there are too many groups")]
    Groups,
    /// Octets follow.
    #[error("octets follow the credential")]
    Surplus,
}

/// Takes a word off the front.
fn word(octets: &mut &[u8]) -> Result<u32, WireError> {
    let (word, rest) = octets.split_first_chunk().ok_or(WireError::Truncated)?;
    *octets = rest;
    Ok(u32::from_be_bytes(*word))
}

impl<'a> Credential<'a> {
    /// Reads the body of a credential.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(mut octets: &'a [u8]) -> Result<Self, WireError> {
        let rest = &mut octets;
        let stamp = word(rest)?;
        let len = word(rest)? as usize;
        if len > MACHINE_MAX {
            return Err(WireError::Machine);
        }
        let padded = len.next_multiple_of(4);
        let (machine, after) = rest.split_at_checked(padded).ok_or(WireError::Truncated)?;
        *rest = after;
        let (user, group) = (word(rest)?, word(rest)?);
        let group_count = word(rest)? as usize;
        let mut groups = [0; GROUPS_MAX];
        let places = groups.get_mut(..group_count).ok_or(WireError::Groups)?;
        for place in places {
            *place = word(rest)?;
        }
        if !rest.is_empty() {
            return Err(WireError::Surplus);
        }
        Ok(Self {
            stamp,
            machine: machine.get(..len).unwrap_or(machine),
            user,
            group,
            group_count,
            groups,
        })
    }

    /// The other groups.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        self.groups.get(..self.group_count).unwrap_or(&self.groups)
    }

    /// Writes the body of a credential.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(BODY_MAX);
        let mut put = |word: u32| octets.extend(word.to_be_bytes());
        put(self.stamp);
        put(self.machine.len() as u32);
        octets.extend(self.machine);
        octets.resize(octets.len().next_multiple_of(4), 0);
        let mut put = |word: u32| octets.extend(word.to_be_bytes());
        put(self.user);
        put(self.group);
        put(self.group_count as u32);
        self.groups().iter().copied().for_each(put);
        octets
    }

    /// The credential and an empty verifier, as they are sent.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let body = self.body();
        let head = AuthHead { flavor: AUTH_SYS, len: body.len() };
        let mut octets = head.emit().to_vec();
        octets.extend(body);
        octets.extend(EMPTY_AUTH);
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn of<'a>(machine: &'a [u8], own: &[u32]) -> Credential<'a> {
        let mut groups = [0; GROUPS_MAX];
        groups[..own.len()].copy_from_slice(own);
        Credential { stamp: 1, machine, user: 1000, group: 100, group_count: own.len(), groups }
    }

    #[test]
    fn the_standard_s_layout() {
        let credential = of(b"xkrn", &[100, 27]);
        let expected = octets(&[1, 0x20, 1, 4, 0x786b_726e, 0x3e8, 0x64, 2, 0x64, 0x1b, 0, 0]);
        assert_eq!(credential.emit(), expected);
        assert_eq!(Credential::parse(&expected[8..40]), Ok(credential));
    }

    #[test]
    fn a_real_credential() {
        // Of the machine atmclient2, in Wireshark's test capture nfs.pcap.
        let real = octets(&[
            0x36db_9197,
            0x0a,
            0x6174_6d63,
            0x6c69_656e,
            0x7432_0000,
            0,
            1,
            0x0b,
            1,
            0,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            9,
            0x0c,
        ]);
        let credential = Credential::parse(&real).unwrap();
        assert_eq!(credential.machine, b"atmclient2");
        assert_eq!((credential.user, credential.group), (0, 1));
        assert_eq!(credential.groups(), [1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 12]);
        assert_eq!(credential.body(), real);
        for len in 0..real.len() {
            let cut = Credential::parse(&real[..len]);
            assert_eq!(cut, Err(WireError::Truncated), "cut to {len}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut body = of(&[b'x'; 255], &[7; 16]).body();
        assert!(Credential::parse(&body).is_ok());
        assert!(body.len() <= BODY_MAX);
        body.push(0);
        assert_eq!(Credential::parse(&body), Err(WireError::Surplus));
        let long = octets(&[1, 256, 0, 0]);
        assert_eq!(Credential::parse(&long), Err(WireError::Machine));
        let many = octets(&[1, 0, 0, 0, 17]);
        assert_eq!(Credential::parse(&many), Err(WireError::Groups));
        let huge = octets(&[1, u32::MAX]);
        assert_eq!(Credential::parse(&huge), Err(WireError::Machine));
    }
}
