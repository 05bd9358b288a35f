//! Messages, and what was heard so far.
//!
//! A message is a count of 16 bits, the place of the last message that its sender had heard, of 32,
//! a digest of all up to that, of 64, and then its sender and number, and the last number of each
//! other sender that it had heard, each number of 32 bits in network order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Largest number of members that are counted.
pub(crate) const MEMBERS_MAX: usize = 64;

/// Octets in front of the numbers.
const FRONT_OCTETS: usize = 2 + 4 + 8;

/// Octets of a message that are looked at.
pub(crate) const OCTETS_MAX: usize = FRONT_OCTETS + 8 * (1 + MEMBERS_MAX);

/// Digests that are kept: those of the last messages.
const DIGESTS_MAX: usize = 4096;

/// Messages heard so far.
#[derive(Default)]
pub(crate) struct Heard {
    /// Whether the member has come back into the conversation, and has not heard what was before.
    pub(crate) is_back: bool,
    /// Number of the last message heard of each other member.
    last: Vec<(u32, u32)>,
    /// Number of the last message of its own that came up, where such come.
    own: u32,
    /// All messages that came up, and a digest of them, behind those of the last ones before.
    place: u32,
    digest: u64,
    digests: VecDeque<u64>,
}

/// Verdict on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    InOrder,
    /// Something that its sender had had, or the sender's message before, has not come.
    Early,
    Twice,
    /// The sender had heard messages in another order.
    OtherOrder,
    /// No message, or one of a member too many.
    Stranger,
}

impl Heard {
    pub(crate) fn members(&self) -> usize {
        self.last.len()
    }

    /// Number of the other members of which so many messages came up.
    pub(crate) fn done(&self, count: u32) -> usize {
        self.last.iter().filter(|(_, number)| *number >= count).count()
    }

    /// Number of the last message of its own that came up.
    pub(crate) fn own(&self) -> u32 {
        self.own
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The octets of a message that is sent now; with the order of what was heard if all others
    /// are to have that.
    pub(crate) fn message(&self, name: u32, number: u32, size: usize, in_order: bool) -> Vec<u8> {
        let (place, digest) = match in_order && !self.is_back {
            true => (self.place, self.digest),
            false => (0, 0),
        };
        let mut octets = (self.last.len() as u16).to_be_bytes().to_vec();
        octets.extend(place.to_be_bytes());
        octets.extend(digest.to_be_bytes());
        for (name, number) in [(name, number)].iter().chain(&self.last) {
            octets.extend(name.to_be_bytes());
            octets.extend(number.to_be_bytes());
        }
        octets.resize(octets.len().max(size), 0);
        octets
    }

    fn known(&self, name: u32) -> Option<u32> {
        self.last.iter().find(|(other, _)| *other == name).map(|(_, number)| *number)
    }

    /// The digest of all messages up to a place; `None` if they have not come, or long ago.
    fn digest_at(&self, place: u32) -> Option<u64> {
        match self.place.checked_sub(place)? as usize {
            0 => Some(self.digest),
            back => {
                self.digests.len().checked_sub(back).and_then(|at| self.digests.get(at).copied())
            }
        }
    }

    /// Judges a message, and notes it; `me` has sent what it has sent, and hears it again
    /// `in_order`.
    pub(crate) fn judge(&mut self, octets: &[u8], me: u32, in_order: bool) -> Verdict {
        let Some(said) = parse(octets).filter(|said| in_order || said.name != me) else {
            return Verdict::Stranger;
        };
        let Said { name, number, .. } = said;
        let last = if name == me { Some(self.own) } else { self.known(name) };
        let last = last.unwrap_or(if self.is_back { number - 1 } else { 0 });
        if number <= last {
            return Verdict::Twice;
        }
        let has_come = |(other, number): &(u32, u32)| {
            let known = self.known(*other).unwrap_or(if self.is_back { u32::MAX } else { 0 });
            *other == me || *number <= known
        };
        let verdict = match number == last + 1 && said.before.iter().all(has_come) {
            false => Verdict::Early,
            true if said.place > 0
                && !self.is_back
                && self.digest_at(said.place) != Some(said.digest) =>
            {
                Verdict::OtherOrder
            }
            true => Verdict::InOrder,
        };
        match self.last.iter().position(|(other, _)| *other == name) {
            _ if name == me => self.own = number,
            Some(at) => self.last[at].1 = number,
            None if self.last.len() < MEMBERS_MAX => self.last.push((name, number)),
            None => return Verdict::Stranger,
        }
        if self.digests.len() == DIGESTS_MAX {
            self.digests.pop_front();
        }
        self.digests.push_back(self.digest);
        self.place += 1;
        // As FNV-1a does, by words.
        for word in [name, number] {
            self.digest =
                (self.digest ^ u64::from(word)).wrapping_mul(0x100_0000_01b3).rotate_left(29);
        }
        verdict
    }
}

/// A message as it was sent.
struct Said {
    /// Messages that its sender had heard, and a digest of them; 0 if it does not say.
    place: u32,
    digest: u64,
    name: u32,
    number: u32,
    /// Numbers of the last message that its sender had heard of each other.
    before: Vec<(u32, u32)>,
}

fn parse(octets: &[u8]) -> Option<Said> {
    let (count, rest) = octets.split_first_chunk()?;
    let (place, rest) = rest.split_first_chunk()?;
    let (digest, rest) = rest.split_first_chunk()?;
    let (place, digest) = (u32::from_be_bytes(*place), u64::from_be_bytes(*digest));
    let count = usize::from(u16::from_be_bytes(*count));
    let mut pairs = rest.chunks_exact(8).map(|pair| {
        let [a, b, c, d, e, f, g, h] = *pair.first_chunk().unwrap_or(&[0; 8]);
        (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
    });
    let (name, number) = pairs.next()?;
    let before: Vec<_> = pairs.take(count.min(MEMBERS_MAX)).collect();
    (before.len() == count && number > 0).then_some(Said { place, digest, name, number, before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_after_what_its_sender_had_heard() {
        let (mut alice, mut bob, mut carol) = <(Heard, Heard, Heard)>::default();
        let first = alice.message(1, 1, 64, false);
        assert_eq!((first.len(), bob.judge(&first, 2, false)), (64, Verdict::InOrder));
        let reply = bob.message(2, 1, 0, false);
        assert_eq!(reply.len(), FRONT_OCTETS + 16);
        assert_eq!(alice.judge(&reply, 1, false), Verdict::InOrder);
        assert_eq!(carol.judge(&reply, 3, false), Verdict::Early, "without the first");
        assert_eq!(carol.judge(&first, 3, false), Verdict::InOrder);
        assert_eq!(carol.judge(&reply, 3, false), Verdict::Twice);
        let third = alice.message(1, 3, 0, false);
        assert_eq!(carol.judge(&third, 3, false), Verdict::Early, "number 2 is missing");
        assert_eq!((alice.members(), carol.members()), (1, 2));
    }

    #[test]
    fn all_hear_one_order() {
        let all = [(1, 1), (2, 1), (1, 2), (3, 1)];
        let hears = |heard: &mut Heard, me, (name, number)| {
            heard.judge(&Heard::default().message(name, number, 0, true), me, true)
        };
        let mut members: Vec<(Heard, u32)> = (1..4).map(|me| (Heard::default(), me)).collect();
        for (heard, me) in &mut members {
            all.iter().for_each(|m| assert_eq!(hears(heard, *me, *m), Verdict::InOrder, "{m:?}"));
        }
        let [(alice, _), (bob, _), (carol, _)] = &mut members[..] else { panic!("three") };
        assert_eq!((alice.own(), bob.own(), alice.digest()), (2, 1, bob.digest()));
        let next = alice.message(1, 3, 0, true);
        assert_eq!(bob.judge(&next, 2, true), Verdict::InOrder);
        // Two that are concurrent, in either order.
        assert_eq!(hears(bob, 2, (2, 2)), Verdict::InOrder);
        let other = bob.message(2, 3, 0, true);
        assert_eq!(hears(carol, 3, (2, 2)), Verdict::InOrder);
        assert_eq!(carol.judge(&next, 3, true), Verdict::InOrder, "its sender had heard less");
        assert_eq!(carol.judge(&other, 3, true), Verdict::OtherOrder);
        assert_ne!(bob.digest(), carol.digest());
    }

    #[test]
    fn what_is_no_message_is_a_strangers() {
        let mut heard = Heard::default();
        let mut before = Heard::default();
        before.last.push((5, 9));
        let message = before.message(1, 1, 0, false);
        for end in 0..message.len() {
            assert_eq!(heard.judge(&message[..end], 2, false), Verdict::Stranger, "cut at {end}");
        }
        assert_eq!(heard.judge(&message, 1, false), Verdict::Stranger, "its own");
        let fresh = |name| Heard::default().message(name, 1, 0, false);
        for name in 10..10 + MEMBERS_MAX as u32 {
            assert_eq!(heard.judge(&fresh(name), 2, false), Verdict::InOrder);
        }
        assert_eq!(heard.judge(&fresh(9), 2, false), Verdict::Stranger);
    }
}
