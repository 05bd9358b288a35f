//! What a receiver knows of the peer's numbers, and the messages that wait for others.

use crate::Tally;
use alloc::collections::VecDeque;

/// A number farther than this from the one whose turn it is, in either direction, comes from a peer
/// that began again.
pub const JUMP: u32 = 4096;

/// The receiving half of a session; without a kernel, so that it can be tested alone.
#[derive(Debug)]
pub(crate) struct Window<M> {
    /// How many numbers ahead a message may be and is kept; at most [`JUMP`].
    hold: u32,
    /// The number whose turn it is; none before the first message.
    turn: Option<u32>,
    /// Messages from that number on: a hole in front and a message at the end, or empty.
    waiting: VecDeque<Option<M>>,
    /// Messages that have had their turn.
    ready: VecDeque<M>,
    tally: Tally,
}

impl<M> Window<M> {
    pub(crate) fn new(hold: u32) -> Self {
        Self {
            hold,
            turn: None,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Puts a message with this number in its place; gives it back if the number had its turn.
    /// Numbers wrap around: one is ahead if it is less than half the circle ahead (RFC 1982,
    /// section 3.2).
    pub(crate) fn place(&mut self, number: u32, message: M) -> Result<(), M> {
        let at = loop {
            let ahead = number.wrapping_sub(*self.turn.get_or_insert(number));
            let is_jump = ahead.wrapping_add(JUMP) > 2 * JUMP;
            if !is_jump && ahead > JUMP {
                return Err(message);
            }
            if ahead <= self.hold {
                break ahead as usize;
            }
            if !self.skip() {
                // Nothing waits, and so nothing is gained by waiting for what lies so far back.
                self.tally.missing += if is_jump { 0 } else { u64::from(ahead) };
                self.turn = Some(number);
            }
        };
        while self.waiting.len() <= at {
            self.waiting.push_back(None);
        }
        match &mut self.waiting[at] {
            Some(_) => return Err(message),
            slot => *slot = Some(message),
        }
        self.tally.reordered += u64::from(at > 0);
        self.advance();
        Ok(())
    }

    /// The next message that has had its turn.
    pub(crate) fn next(&mut self) -> Option<M> {
        self.ready.pop_front()
    }

    /// Gives up what is missing before the first message that waits; false if none does.
    pub(crate) fn skip(&mut self) -> bool {
        let gap = self.waiting.iter().take_while(|slot| slot.is_none()).count();
        self.waiting.drain(..gap);
        self.tally.missing += gap as u64;
        self.turn = self.turn.map(|turn| turn.wrapping_add(gap as u32));
        self.advance();
        gap > 0
    }

    /// What became of the messages so far.
    pub(crate) fn tally(&self) -> Tally {
        let held = self.waiting.iter().flatten().count() as u64;
        Tally { held, ..self.tally }
    }

    /// All that is left, in order.
    pub(crate) fn into_messages(self) -> impl Iterator<Item = M> {
        self.ready.into_iter().chain(self.waiting.into_iter().flatten())
    }

    fn advance(&mut self) {
        while let Some(Some(message)) = self.waiting.pop_front_if(|slot| slot.is_some()) {
            self.ready.push_back(message);
            self.turn = self.turn.map(|turn| turn.wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests;
