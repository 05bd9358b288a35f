//! What a receiver knows of the peer's numbers, and the messages that wait for others.

use alloc::collections::VecDeque;
use core::time::Duration;
use xk_core::{Message, Time};

/// If nothing was taken for so long, the next message is believed, whatever its numbers.
pub const SILENCE: Duration = Duration::from_secs(5);

/// What is to be done with a message that arrived.
#[derive(Debug)]
pub(crate) enum Turn<M> {
    /// It is the next one.
    Now(M),
    /// It is kept: one before it is missing.
    Later,
    /// It had its turn: a duplicate, or too late.
    Never(M),
    /// It cannot be judged while others are kept: give up the first gap, then try again.
    Full(M),
}

/// The receiving half of a session; without a kernel, so that it can be tested alone.
pub(crate) struct Window<M = Message> {
    /// The peer's run, and the one before; none before the first message.
    run: Option<u32>,
    run_before: Option<u32>,
    /// The number that the next message is to have; none before the first one of a run.
    expected: Option<u32>,
    /// Messages from `expected` on, by distance: a hole at the front and a message at the back, or empty.
    held: VecDeque<Option<M>>,
    hold: usize,
    /// When a message was taken last.
    heard: Time,
    pub(crate) missing: u64,
    pub(crate) reordered: u64,
}

impl<M> Window<M> {
    /// Keeps back messages at most `hold` numbers ahead.
    pub(crate) fn new(hold: usize) -> Self {
        Self {
            run: None,
            run_before: None,
            expected: None,
            held: VecDeque::new(),
            hold,
            heard: Time::ZERO,
            missing: 0,
            reordered: 0,
        }
    }

    /// Finds the place of a message with these numbers, run and sequence. Sequence numbers wrap around: one is ahead if it is less than half the circle ahead
    /// (RFC 1982 section 3.2).
    #[inline]
    pub(crate) fn place(&mut self, at: (u32, u32), now: Time, message: M) -> Turn<M> {
        let (run, sequence) = at;
        let silent = now.since(self.heard) >= SILENCE;
        if self.run != Some(run) {
            if self.run_before == Some(run) && !silent {
                return Turn::Never(message);
            }
            if self.is_waiting() {
                return Turn::Full(message);
            }
            self.run_before = self.run.replace(run);
            self.expected = None;
        }
        let expected = self.expected.unwrap_or(sequence);
        let mut ahead = sequence.wrapping_sub(expected);
        if ahead > i32::MAX as u32 {
            if !silent || self.is_waiting() {
                return Turn::Never(message);
            }
            ahead = 0;
        }
        self.heard = now;
        if ahead == 0 {
            self.held.pop_front();
        } else if self.is_waiting() || (ahead as usize) <= self.hold {
            return self.keep(ahead as usize, message);
        }
        // Nothing is kept, and so nothing is gained by waiting for what lies so far back.
        self.missing += u64::from(ahead);
        self.expected = Some(sequence.wrapping_add(1));
        Turn::Now(message)
    }

    fn keep(&mut self, ahead: usize, message: M) -> Turn<M> {
        if ahead > self.hold {
            return Turn::Full(message);
        }
        while self.held.len() <= ahead {
            self.held.push_back(None);
        }
        match self.held.get_mut(ahead) {
            Some(slot @ None) => *slot = Some(message),
            _ => return Turn::Never(message),
        }
        self.reordered += 1;
        Turn::Later
    }

    /// The next message in order, if it is here.
    pub(crate) fn next(&mut self) -> Option<M> {
        let message = self.held.front_mut()?.take()?;
        self.held.pop_front();
        self.advance(1);
        Some(message)
    }

    /// Gives up the messages that are missing before the first one that is kept.
    pub(crate) fn skip(&mut self) {
        while let Some(None) = self.held.front() {
            self.held.pop_front();
            self.missing += 1;
            self.advance(1);
        }
    }

    /// Everything that is kept, in order; the window is empty then.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = M> + use<M> {
        core::mem::take(&mut self.held).into_iter().flatten()
    }

    /// Whether a message waits for another.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// How many messages wait.
    pub(crate) fn held(&self) -> usize {
        self.held.iter().flatten().count()
    }

    fn advance(&mut self, by: u32) {
        self.expected = self.expected.map(|expected| expected.wrapping_add(by));
    }
}

#[cfg(test)]
mod tests;
