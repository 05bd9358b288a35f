//! The messages that are awaited, by sequence number.

use alloc::collections::VecDeque;
use core::time::Duration;
use xk_core::Time;

/// Largest number of awaited messages.
pub(crate) const WINDOW_MAX: usize = 65_536;

#[derive(Clone, Copy)]
struct Slot {
    sent: Time,
    octets: usize,
    /// Number of answers that have not come.
    missing: usize,
    /// Could not be sent: nothing is awaited.
    has_failed: bool,
}

/// Kind of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The answer, after this time.
    Answer(Duration),
    /// The message was answered before, by every peer.
    Duplicate,
    /// The message was given up before.
    Late,
    /// Nothing of the kind was sent.
    Foreign,
}

/// Messages in the order of sending; a gapless range of sequence numbers.
pub(crate) struct Window {
    slots: VecDeque<Slot>,
    /// Number of peers, each of which answers every message.
    peers: usize,
    /// The sequence number of the first slot.
    first: u64,
    awaited: usize,
    lost: u64,
}

impl Window {
    /// Nothing sent yet, to so many peers.
    pub(crate) fn new(peers: usize) -> Self {
        Self { slots: VecDeque::new(), peers, first: 0, awaited: 0, lost: 0 }
    }

    /// Number of messages sent, one to each peer.
    pub(crate) fn sent(&self) -> u64 {
        self.next() * self.peers as u64
    }

    /// The next message's sequence number.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Number of awaited answers.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited
    }

    /// Number of answers that were given up.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Notes a message about to be sent.
    pub(crate) fn send(&mut self, now: Time, octets: usize) {
        if self.slots.len() >= WINDOW_MAX {
            self.drop_first();
        }
        let missing = self.peers;
        self.slots.push_back(Slot { sent: now, octets, missing, has_failed: false });
        self.awaited += missing;
    }

    /// The message could not be sent.
    pub(crate) fn fail(&mut self, sequence: u64) {
        if let Some(slot) = self.slot(sequence)
            && !slot.has_failed
        {
            slot.has_failed = true;
            let missing = slot.missing;
            self.awaited -= missing;
        }
    }

    fn slot(&mut self, sequence: u64) -> Option<&mut Slot> {
        let at = sequence.checked_sub(self.first)?;
        self.slots.get_mut(usize::try_from(at).ok()?)
    }

    /// Judges the message with this number and size that has just arrived; `sent` is the time that
    /// it carries.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        sequence: u64,
        sent: Option<Time>,
        octets: usize,
    ) -> Arrival {
        if sequence < self.first {
            return Arrival::Late;
        }
        let same =
            |slot: &&mut Slot| slot.octets == octets && sent.is_none_or(|sent| sent == slot.sent);
        let Some(slot) = self.slot(sequence).filter(same) else {
            return Arrival::Foreign;
        };
        if slot.missing == 0 {
            return Arrival::Duplicate;
        }
        // One that failed here may have gone all the same.
        let was_awaited = !slot.has_failed;
        slot.missing -= 1;
        let time = now.since(slot.sent);
        self.awaited -= usize::from(was_awaited);
        Arrival::Answer(time)
    }

    /// A message too small for a number has arrived: true if one of its size was awaited.
    pub(crate) fn arrive_unnumbered(&mut self, octets: usize) -> bool {
        let mut slots = self.slots.iter_mut();
        let is_awaited = |slot: &Slot| slot.missing > 0 && !slot.has_failed;
        let found = slots.find(|slot| slot.octets == octets && is_awaited(slot));
        let Some(slot) = found else { return false };
        slot.missing -= 1;
        self.awaited -= 1;
        true
    }

    /// Gives up what was sent before `limit`.
    pub(crate) fn expire(&mut self, limit: Time) {
        while self.slots.front().is_some_and(|slot| slot.sent <= limit) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(slot) = self.slots.pop_front() else {
            return;
        };
        self.first += 1;
        if !slot.has_failed {
            self.awaited -= slot.missing;
            self.lost += slot.missing as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_arrival_is_told_apart() {
        let mut window = Window::new(1);
        for n in 0..4 {
            window.send(Time::from_ms(n), 20);
        }
        let at = Time::from_ms(10);
        let ms = Duration::from_millis;
        assert_eq!(window.arrive(at, 1, None, 20), Arrival::Answer(ms(9)));
        assert_eq!(window.arrive(at, 1, None, 20), Arrival::Duplicate);
        assert_eq!(window.arrive(at, 2, None, 21), Arrival::Foreign);
        assert_eq!(window.arrive(at, 4, None, 20), Arrival::Foreign);
        let sent = Some(Time::from_ms(1));
        assert_eq!(window.arrive(at, 2, sent, 20), Arrival::Foreign);
        window.fail(3);
        window.expire(Time::from_ms(1));
        assert_eq!(window.arrive(at, 0, None, 20), Arrival::Late);
        assert_eq!((window.awaited(), window.lost(), window.next()), (1, 1, 4));
        window.expire(Time::MAX);
        assert_eq!((window.awaited(), window.lost()), (0, 2));
    }

    #[test]
    fn every_peer_answers_every_message() {
        let mut window = Window::new(3);
        window.send(Time::ZERO, 20);
        window.send(Time::ZERO, 3);
        assert_eq!((window.sent(), window.awaited()), (6, 6));
        let at = Time::from_ms(1);
        for _ in 0..3 {
            assert!(matches!(window.arrive(at, 0, None, 20), Arrival::Answer(_)));
        }
        assert_eq!(window.arrive(at, 0, None, 20), Arrival::Duplicate);
        assert!(window.arrive_unnumbered(3));
        window.expire(Time::MAX);
        assert_eq!((window.awaited(), window.lost()), (0, 2));
    }

    #[test]
    fn unnumbered_messages_answer_the_oldest_of_their_size() {
        let mut window = Window::new(1);
        window.send(Time::ZERO, 3);
        assert!(!window.arrive_unnumbered(4));
        assert!(window.arrive_unnumbered(3));
        assert!(!window.arrive_unnumbered(3));
        assert_eq!(window.awaited(), 0);
    }

    #[test]
    fn the_window_is_bounded() {
        let mut window = Window::new(1);
        for _ in 0..WINDOW_MAX + 10 {
            window.send(Time::ZERO, 1);
        }
        assert_eq!((window.awaited(), window.lost()), (WINDOW_MAX, 10));
    }
}
