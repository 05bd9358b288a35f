//! Messages that a pool has lent to another domain.

use alloc::vec::Vec;

use super::message_unsafe::Message;
use super::pool_unsafe::Pool;

/// The messages of this pool that one other domain reads in the arena, by the numbers under which
/// they are lent. Dropped, since that domain is gone, it takes all of them back.
///
/// What is lent is not written: a message that is lent is held here, so a clone that the lender has
/// does not have the buffers to itself either.
pub struct Loans {
    pool: Pool,
    /// The messages that are lent, by number.
    lent: Vec<Option<Message>>,
    /// The numbers without a message; there is room for all.
    free: Vec<u32>,
    octets: usize,
    octets_max: usize,
}

/// Why a message is not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LendError {
    /// Octets of it lie in another pool's arena.
    #[error("the message lies in another pool's arena")]
    NotOurs,
    /// With it more would be lent than may be, or there is no memory to note it.
    #[error("as much is lent as may be")]
    Full,
}

/// Nothing is lent under that number: the domain that gave it back is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing is lent under that number")]
pub struct NotLent;

impl Loans {
    /// For one other domain, to which messages with buffers of so many octets in all, headroom
    /// included, may be lent at one time: half of the pool, say.
    #[must_use]
    pub fn new(pool: &Pool, octets_max: usize) -> Self {
        let (lent, free) = (Vec::new(), Vec::new());
        Self { pool: pool.clone(), lent, free, octets: 0, octets_max }
    }

    /// Lends a message: answers its number, and the message, whose [`slices`](Message::slices) tell
    /// where the octets lie. A sender that keeps it lends a clone.
    ///
    /// # Errors
    /// The message, with [`LendError`].
    pub fn lend(&mut self, message: Message) -> Result<(u32, &Message), (Message, LendError)> {
        if !message.lies_in(&self.pool) {
            return Err((message, LendError::NotOurs));
        }
        let octets = message.buffer_octets();
        if octets > self.octets_max - self.octets {
            return Err((message, LendError::Full));
        }
        let Some(index) = self.free.pop().or_else(|| self.grow()) else {
            return Err((message, LendError::Full));
        };
        self.octets += octets;
        Ok((index, self.lent[index as usize].insert(message)))
    }

    /// One number more.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        let index = self.lent.len();
        self.lent.try_reserve(1).ok()?;
        self.free.try_reserve(index + 1).ok()?;
        self.lent.push(None);
        u32::try_from(index).ok()
    }

    /// Takes back what is lent under this number, as it was lent: to be dropped, or for what the
    /// other domain has refused.
    ///
    /// # Errors
    /// [`NotLent`].
    pub fn take_back(&mut self, index: u32) -> Result<Message, NotLent> {
        let message = self.lent.get_mut(index as usize).and_then(Option::take).ok_or(NotLent)?;
        self.octets -= message.buffer_octets();
        self.free.push(index);
        Ok(message)
    }

    /// Number of lent messages.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lent.len() - self.free.len()
    }

    /// Octets of the buffers of what is lent.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.octets
    }
}

impl core::fmt::Debug for Loans {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Loans({} of {} octets)", self.count(), self.octets)
    }
}
