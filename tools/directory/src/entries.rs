//! The directory: what an invocation enters, what moves, and where to.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use xk_core::HostAddr;

/// Callers whose last number is known.
pub const MEMBERS_MAX: usize = 64;
/// Invocations whose hosts are known.
pub const RECENT: usize = 16;
/// Octets of an invocation: caller, number, host.
pub(crate) const REQUEST: usize = 24;
/// Octets of an image without callers and hosts.
const HEAD: usize = 24;

fn octets_of(host: HostAddr) -> [u8; 16] {
    host.to_parts().0
}

fn host_of(octets: [u8; 16]) -> HostAddr {
    HostAddr::from_parts((octets, 0))
}

/// Octets of an invocation.
pub(crate) fn request(caller: u32, number: u32, host: HostAddr) -> [u8; REQUEST] {
    let mut octets = [0; REQUEST];
    octets[..4].copy_from_slice(&caller.to_be_bytes());
    octets[4..8].copy_from_slice(&number.to_be_bytes());
    octets[8..].copy_from_slice(&octets_of(host));
    octets
}

/// The state of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Entries that there have been.
    pub entries: u64,
    /// Hosts to which it has moved.
    pub moves: u32,
    /// Entries that were made twice.
    pub twice: u32,
    /// The last number of each caller, the one that was new last at the end.
    last: VecDeque<(u32, u32)>,
    /// The hosts of the last invocations.
    recent: VecDeque<HostAddr>,
}

impl Entries {
    /// Executes an invocation; the number of entries, or `None` if its octets are none.
    pub fn enter(&mut self, octets: &[u8; REQUEST]) -> Option<u64> {
        let word =
            |at: usize| octets.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        let (caller, number) = (word(0)?, word(4)?);
        let host = host_of(*octets.last_chunk()?);
        match self.last.iter_mut().find(|(other, _)| *other == caller) {
            Some((_, last)) if number <= *last => self.twice = self.twice.saturating_add(1),
            Some((_, last)) => *last = number,
            None => {
                if self.last.len() >= MEMBERS_MAX {
                    self.last.pop_front();
                }
                self.last.push_back((caller, number));
            }
        }
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(host);
        self.entries = self.entries.saturating_add(1);
        Some(self.entries)
    }

    /// The host to which a move is worth it from `here`: it has made at least so many more of the
    /// last invocations.
    pub fn better(&self, here: HostAddr, worth: usize) -> Option<HostAddr> {
        let count = |host: HostAddr| self.recent.iter().filter(|other| **other == host).count();
        let most = self.recent.iter().copied().max_by_key(|host| count(*host))?;
        let is_worth = most != here && !most.is_unspecified() && count(most) >= count(here) + worth;
        is_worth.then_some(most)
    }

    /// Has the next invocations decide.
    pub fn count_again(&mut self) {
        self.recent.clear();
    }

    /// The image of the object, which moves once more.
    pub fn image(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        octets.extend_from_slice(&self.entries.to_be_bytes());
        octets.extend_from_slice(&self.moves.saturating_add(1).to_be_bytes());
        octets.extend_from_slice(&self.twice.to_be_bytes());
        octets.extend_from_slice(&(self.last.len() as u32).to_be_bytes());
        octets.extend_from_slice(&(self.recent.len() as u32).to_be_bytes());
        for (caller, number) in &self.last {
            octets.extend_from_slice(&caller.to_be_bytes());
            octets.extend_from_slice(&number.to_be_bytes());
        }
        self.recent.iter().for_each(|host| octets.extend_from_slice(&octets_of(*host)));
        octets
    }

    /// Reads an image.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let word =
            |at: usize| octets.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        let entries = u64::from_be_bytes(*octets.first_chunk()?);
        let (callers, hosts) = (word(16)? as usize, word(20)? as usize);
        if callers > MEMBERS_MAX
            || hosts > RECENT
            || octets.len() != HEAD + 8 * callers + 16 * hosts
        {
            return None;
        }
        let (last, recent) = octets.get(HEAD..)?.split_at(8 * callers);
        let last = last.as_chunks::<8>().0.iter().map(|[a, b, c, d, e, f, g, h]| {
            (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]))
        });
        let recent = recent.as_chunks::<16>().0.iter().map(|host| host_of(*host));
        let (last, recent) = (last.collect(), recent.collect());
        Some(Self { entries, moves: word(8)?, twice: word(12)?, last, recent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> HostAddr {
        HostAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_entry_that_is_made_twice_is_seen() {
        let mut entries = Entries::default();
        assert_eq!(entries.enter(&request(7, 1, host(1))), Some(1));
        assert_eq!(entries.enter(&request(8, 1, host(2))), Some(2));
        assert_eq!((entries.enter(&request(7, 3, host(1))), entries.twice), (Some(3), 0));
        assert_eq!((entries.enter(&request(7, 3, host(1))), entries.twice), (Some(4), 1));
        for caller in 100..200 {
            assert!(entries.enter(&request(caller, 1, host(3))).is_some());
        }
        assert_eq!((entries.last.len(), entries.recent.len()), (MEMBERS_MAX, RECENT));
    }

    #[test]
    fn it_goes_where_it_is_invoked_most() {
        let mut entries = Entries::default();
        assert_eq!(entries.better(host(1), 4), None);
        for number in 1..=4 {
            entries.enter(&request(7, number, host(2)));
            assert_eq!(entries.better(host(1), 4), (number == 4).then(|| host(2)));
        }
        assert_eq!(entries.better(host(2), 4), None, "it is there");
        entries.enter(&request(8, 1, host(1)));
        assert_eq!(entries.better(host(1), 4), None, "not worth it");
        entries.count_again();
        assert_eq!(entries.better(host(1), 1), None);
    }

    #[test]
    fn an_image_is_read_as_it_was_written_and_at_no_other_length() {
        let mut entries = Entries::default();
        for number in 1..9 {
            entries.enter(&request(number % 3, number, host(number as u8)));
        }
        let octets = entries.image();
        let moved = Entries { moves: 1, ..entries };
        assert_eq!(Entries::read(&octets), Some(moved));
        for end in 0..octets.len() {
            assert_eq!(Entries::read(&octets[..end]), None, "cut at {end}");
        }
        assert_eq!(Entries::read(&[0xff; 64]), None);
    }
}
