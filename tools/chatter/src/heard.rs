//! Messages, and what was heard so far.
//!
//! A message is its sender and number, and the last number of each other sender that it had heard,
//! each number of 32 bits in network order behind a count of 16 bits.

use alloc::vec::Vec;

/// Largest number of members that are counted.
pub(crate) const MEMBERS_MAX: usize = 64;

/// Numbers of the last message heard of each member.
#[derive(Default)]
pub(crate) struct Heard(Vec<(u32, u32)>);

/// Verdict on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    InOrder,
    /// Something that its sender had had, or the sender's message before, has not come.
    Early,
    Twice,
    /// No message, or one of a member too many.
    Stranger,
}

impl Heard {
    pub(crate) fn members(&self) -> usize {
        self.0.len()
    }

    /// The octets of a message that is sent now.
    pub(crate) fn message(&self, name: u32, number: u32, size: usize) -> Vec<u8> {
        let mut octets = (self.0.len() as u16).to_be_bytes().to_vec();
        for (name, number) in [(name, number)].iter().chain(&self.0) {
            octets.extend(name.to_be_bytes());
            octets.extend(number.to_be_bytes());
        }
        octets.resize(octets.len().max(size), 0);
        octets
    }

    fn last(&self, name: u32) -> u32 {
        self.0.iter().find(|(other, _)| *other == name).map_or(0, |(_, number)| *number)
    }

    /// Judges a message, and notes it; `me` has sent what it has sent.
    pub(crate) fn judge(&mut self, octets: &[u8], me: u32) -> Verdict {
        let Some(Said { name, number, before }) = parse(octets).filter(|said| said.name != me)
        else {
            return Verdict::Stranger;
        };
        let last = self.last(name);
        if number <= last {
            return Verdict::Twice;
        }
        let has_come = |(other, number): &(u32, u32)| *other == me || *number <= self.last(*other);
        let verdict = match number == last + 1 && before.iter().all(has_come) {
            true => Verdict::InOrder,
            false => Verdict::Early,
        };
        match self.0.iter().position(|(other, _)| *other == name) {
            Some(at) => self.0[at].1 = number,
            None if self.0.len() < MEMBERS_MAX => self.0.push((name, number)),
            None => return Verdict::Stranger,
        }
        verdict
    }
}

/// A message as it was sent.
struct Said {
    name: u32,
    number: u32,
    /// Numbers of the last message that its sender had heard of each other.
    before: Vec<(u32, u32)>,
}

fn parse(octets: &[u8]) -> Option<Said> {
    let (count, rest) = octets.split_first_chunk()?;
    let count = usize::from(u16::from_be_bytes(*count));
    let mut pairs = rest.chunks_exact(8).map(|pair| {
        let [a, b, c, d, e, f, g, h] = *pair.first_chunk().unwrap_or(&[0; 8]);
        (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
    });
    let (name, number) = pairs.next()?;
    let before: Vec<_> = pairs.take(count.min(MEMBERS_MAX)).collect();
    (before.len() == count && number > 0).then_some(Said { name, number, before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_after_what_its_sender_had_heard() {
        let (mut alice, mut bob, mut carol) = <(Heard, Heard, Heard)>::default();
        let first = alice.message(1, 1, 64);
        assert_eq!((first.len(), bob.judge(&first, 2)), (64, Verdict::InOrder));
        let reply = bob.message(2, 1, 0);
        assert_eq!(reply.len(), 2 + 16);
        assert_eq!(alice.judge(&reply, 1), Verdict::InOrder);
        assert_eq!(carol.judge(&reply, 3), Verdict::Early, "without the first");
        assert_eq!(carol.judge(&first, 3), Verdict::InOrder);
        assert_eq!(carol.judge(&reply, 3), Verdict::Twice);
        assert_eq!(carol.judge(&alice.message(1, 3, 0), 3), Verdict::Early, "number 2 is missing");
        assert_eq!((alice.members(), carol.members()), (1, 2));
    }

    #[test]
    fn what_is_no_message_is_a_strangers() {
        let mut heard = Heard::default();
        let message = Heard(alloc::vec![(5, 9)]).message(1, 1, 0);
        for end in 0..message.len() {
            assert_eq!(heard.judge(&message[..end], 2), Verdict::Stranger, "cut at {end}");
        }
        assert_eq!(heard.judge(&message, 1), Verdict::Stranger, "its own");
        for name in 10..10 + MEMBERS_MAX as u32 {
            assert_eq!(heard.judge(&Heard::default().message(name, 1, 0), 2), Verdict::InOrder);
        }
        assert_eq!(heard.judge(&Heard::default().message(9, 1, 0), 2), Verdict::Stranger);
    }
}
