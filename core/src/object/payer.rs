//! Users that are not trusted, and how much of a table each has.

use super::crowd::Crowd;
use super::{ProtocolHead, SessionHead};
use crate::kernel::Kernel;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::num::NonZeroU32;

/// The part of whatever many users share that one of them may have: an eighth.
pub const USER_SHARE: usize = 8;

/// A user of the machine whose programs use a kernel that is not theirs. What stands for their
/// protocols is charged to it, and so is what they cause; what no user is charged for is the
/// kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Payer(NonZeroU32);

impl Payer {
    /// The user of this number, which the system never gives as the highest (chown(2)).
    pub fn user(uid: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(uid))
    }

    /// Returns the user's number.
    pub fn uid(self) -> u32 {
        self.0.get() - 1
    }

    /// Returns a user as four octets, little-endian; zeros are none.
    pub fn encode(payer: Option<Self>) -> [u8; 4] {
        payer.map_or(0, |payer| payer.0.get()).to_le_bytes()
    }

    /// Reads what [`encode`](Self::encode) has written.
    pub fn decode(octets: [u8; 4]) -> Option<Self> {
        NonZeroU32::new(u32::from_le_bytes(octets)).map(Self)
    }
}

impl ProtocolHead {
    /// The user whose program it stands for, if it stands for one's.
    pub fn payer(&self) -> Option<Payer> {
        self.payer
    }
}

impl SessionHead {
    /// The user that it is charged to: the one for whose program it was opened, whichever protocol
    /// did so, or whose program a message made it for.
    pub fn payer(&self) -> Option<Payer> {
        self.payer
    }
}

impl Kernel {
    /// The user that is charged for what is done at present.
    pub fn payer(&self) -> Option<Payer> {
        self.payer.get()
    }

    /// Has what `act` opens charged to a user, also behind its waits, and nothing that others open
    /// meanwhile.
    pub fn charging<T>(&self, payer: Payer, act: impl FnOnce() -> T) -> T {
        let before = self.payer.replace(Some(payer));
        let done = act();
        self.payer.set(before);
        done
    }
}

/// Selects sessions of a table.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    Anyone,
    /// Sessions whose peers are of a network.
    Crowd(Crowd),
    /// Sessions that a user is charged for.
    Payer(Payer),
}

impl Whose {
    pub(super) fn has(self, head: &SessionHead) -> bool {
        match self {
            Self::Anyone => true,
            Self::Crowd(crowd) => crowd.has(head.source()),
            Self::Payer(payer) => head.payer() == Some(payer),
        }
    }
}

/// Number of sessions of a table that each user is charged for; no entry for users that have none.
#[derive(Default)]
pub(super) struct Charged(RefCell<Vec<(Payer, usize)>>);

impl Charged {
    pub(super) fn of(&self, payer: Payer) -> usize {
        let all = self.0.borrow();
        all.binary_search_by_key(&payer, |(of, _)| *of).map_or(0, |at| all[at].1)
    }

    pub(super) fn enter(&self, head: &SessionHead) {
        let Some(payer) = head.payer() else {
            return;
        };
        let mut all = self.0.borrow_mut();
        match all.binary_search_by_key(&payer, |(of, _)| *of) {
            Ok(at) => all[at].1 += 1,
            Err(at) => all.insert(at, (payer, 1)),
        }
    }

    pub(super) fn leave(&self, head: &SessionHead) {
        let Some(payer) = head.payer() else {
            return;
        };
        let mut all = self.0.borrow_mut();
        if let Ok(at) = all.binary_search_by_key(&payer, |(of, _)| *of) {
            all[at].1 -= 1;
            if all[at].1 == 0 {
                let _ = all.remove(at);
            }
        }
    }

    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}
