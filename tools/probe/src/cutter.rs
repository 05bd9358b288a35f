//! Cuts a stream into the messages that it was made of: a stream keeps none together.

use alloc::collections::VecDeque;
use xk_core::Message;

/// Largest number of awaited messages; octets of later ones stay uncut.
const SIZES_MAX: usize = 1 << 20;

/// Octets that a stream has brought, and the sizes of the messages that it is to bring.
#[derive(Default)]
pub(crate) struct Cutter {
    sizes: VecDeque<usize>,
    rest: Option<Message>,
}

impl Cutter {
    /// A message of this size went.
    pub(crate) fn expect(&mut self, octets: usize) {
        // Of an empty one nothing comes back.
        if octets > 0 && self.sizes.len() < SIZES_MAX {
            self.sizes.push_back(octets);
        }
    }

    /// The last one did not go after all.
    pub(crate) fn forget_last(&mut self) {
        self.sizes.pop_back();
    }

    /// Octets came.
    pub(crate) fn put(&mut self, octets: Message) {
        match &mut self.rest {
            Some(rest) => rest.join(octets),
            None => self.rest = Some(octets),
        }
    }

    /// The next message, if all of it has come.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let (octets, rest) = (*self.sizes.front()?, self.rest.as_mut()?);
        let message = if rest.len() > octets {
            rest.split_front(octets).ok()?
        } else if rest.len() == octets {
            self.rest.take()?
        } else {
            return None;
        };
        self.sizes.pop_front();
        Some(message)
    }
}
