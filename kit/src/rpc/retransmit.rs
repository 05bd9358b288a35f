//! Messages that may have to be sent once more: what a layer keeps of one of its own
//! ([`SavedMessage`]), and what a layer below that keeps copies, to send parts of them again, is
//! told and asked.
//!
//! It says how a message is called there ([`LastCopy`]); a layer that knows that it arrived may
//! release the copy early ([`FreeCopy`]), and one that is about to send it all again may ask
//! whether that is needed ([`AskCopy`]). A layer that keeps none answers none of these, and
//! forwards them.

use xk_core::message::{Message, NoBuffers, Pool};
use xk_core::{fields, question};

/// Number of octets up to which a message is copied rather than shared. Two messages on one buffer
/// cost each its headroom and the room behind it, and with that a buffer for the next header, or
/// for Ethernet's padding: more than the copy.
const SHORT_MAX: usize = 64;
/// Octets free in front of a message made of a copy.
const HEADROOM: usize = 128;
/// In place of a length: nothing is kept as octets.
const NONE: u8 = u8::MAX;

/// A message kept to be sent again: a copy of a short one's octets, another reference to a long
/// one's.
pub struct SavedMessage {
    octets: [u8; SHORT_MAX],
    len: u8,
    whole: Option<Message>,
}

impl SavedMessage {
    /// Nothing.
    pub const fn new() -> Self {
        Self { octets: [0; SHORT_MAX], len: NONE, whole: None }
    }

    /// Keeps this message, in place of another.
    ///
    /// # Errors
    /// [`NoBuffers`], counted; then nothing is kept.
    #[inline]
    pub fn save(&mut self, message: &Message) -> Result<(), NoBuffers> {
        if let Some(octets) = message.single_slice()
            && !message.has_attributes()
            && let Some(room) = self.octets.get_mut(..octets.len())
        {
            room.copy_from_slice(octets);
            self.len = octets.len() as u8;
            if self.whole.is_some() {
                self.whole = None;
            }
            return Ok(());
        }
        self.save_whole(message)
    }

    /// Keeps this message itself, in place of another.
    pub fn put(&mut self, message: Message) {
        self.clear();
        self.whole = Some(message);
    }

    #[inline(never)]
    fn save_whole(&mut self, message: &Message) -> Result<(), NoBuffers> {
        self.clear();
        self.put(message.try_clone()?);
        Ok(())
    }

    /// Keeps nothing any more.
    #[inline]
    pub fn clear(&mut self) {
        self.len = NONE;
        if self.whole.is_some() {
            self.whole = None;
        }
    }

    /// Octets of what is kept; `None` if nothing is.
    pub fn len(&self) -> Option<usize> {
        match &self.whole {
            Some(whole) => Some(whole.len()),
            None => Some(usize::from(self.len)).filter(|len| *len <= SHORT_MAX),
        }
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len().is_none()
    }

    /// The message once more, to send; `None` if nothing is kept.
    ///
    /// # Errors
    /// [`NoBuffers`], counted; it is still kept.
    pub fn again(&self, pool: &Pool) -> Result<Option<Message>, NoBuffers> {
        match &self.whole {
            Some(whole) => whole.try_clone().map(Some),
            None => match self.octets.get(..usize::from(self.len)) {
                Some(octets) => pool.copy_from(HEADROOM, octets).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Gives up what is kept, as a message; `None` if nothing is, or there is no buffer for it,
    /// which is counted.
    pub fn take(&mut self, pool: &Pool) -> Option<Message> {
        let kept = match self.whole.take() {
            Some(whole) => Some(whole),
            None => self.again(pool).unwrap_or_default(),
        };
        self.clear();
        kept
    }
}

impl Default for SavedMessage {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks the layer below for its name of the message that was last pushed into this session, of
/// which it keeps a copy. Asked right after the push.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastCopy {
    /// Out: its name for [`FreeCopy`] and [`AskCopy`]; 0 if no copy of it was kept, as of one that
    /// went whole.
    pub ticket: u32,
}

question!(LastCopy { ticket }, "last-copy", Ask);

/// The message has arrived: its copy may go.
#[derive(Clone, Copy, Debug)]
pub struct FreeCopy {
    /// The answer of [`LastCopy`].
    pub ticket: u32,
}

question!(FreeCopy { ticket }, "free-copy", Tell);

/// State of a message that was sent in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyState {
    /// The copy is gone: nothing is known.
    #[default]
    Gone,
    /// The peer has asked for missing parts since this was last asked: it is still collecting.
    Collecting,
    /// Nothing was heard of it since this was last asked.
    Silent,
}

fields!(
    enum CopyState {
        Gone = 0,
        Collecting = 1,
        Silent = 2,
    }
);

/// Asks for the state of the message.
#[derive(Clone, Copy, Debug)]
pub struct AskCopy {
    /// The answer of [`LastCopy`].
    pub ticket: u32,
    /// Out.
    pub state: CopyState,
}

impl AskCopy {
    /// About the message of this name.
    pub fn about(ticket: u32) -> Self {
        Self { ticket, state: CopyState::Gone }
    }
}

question!(AskCopy { ticket, state }, "ask-copy", Ask);

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;
    use xk_core::message::PoolConfig;

    fn octets(message: &Message) -> Vec<u8> {
        message.octets().collect()
    }

    #[test]
    fn messages_of_every_length_come_back_and_short_ones_hold_no_buffer() {
        let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        let mut saved = SavedMessage::new();
        for len in [0, 1, SHORT_MAX, SHORT_MAX + 1, 1000] {
            let sent: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let message = pool.copy_from(0, &sent).unwrap();
            saved.save(&message).unwrap();
            drop(message);
            assert_eq!(pool.stats().buffers_live, u32::from(len > SHORT_MAX));
            assert_eq!(saved.len(), Some(len));
            for _ in 0..2 {
                assert_eq!(octets(&saved.again(&pool).unwrap().unwrap()), sent);
            }
        }
        assert_eq!(saved.take(&pool).map(|message| message.len()), Some(1000));
        assert!(saved.is_empty() && saved.take(&pool).is_none());
        assert!(saved.again(&pool).unwrap().is_none());
        assert_eq!(pool.stats().buffers_live, 0);
    }

    #[test]
    fn several_slices_come_back_as_they_were() {
        let pool = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        let mut message = pool.copy_from(0, b"ab").unwrap();
        message.join(pool.copy_from(0, b"cd").unwrap());
        let mut saved = SavedMessage::new();
        saved.save(&message).unwrap();
        assert_eq!(octets(&saved.again(&pool).unwrap().unwrap()), b"abcd");
        saved.clear();
        assert!(saved.is_empty());
    }
}
