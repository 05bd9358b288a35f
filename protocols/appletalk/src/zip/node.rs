//! Start of a node: it learns which networks its cable has, and which zone it is in.

use super::{NetInfo, NetInfoRequest};
use crate::name::Name;
use core::time::Duration;

/// Requests before it is taken that there is no router.
const TRIES: u8 = 3;
/// The time between two of them.
const INTERVAL: Duration = Duration::from_secs(1);

/// A node that asks about its cable.
#[derive(Clone, Copy, Debug)]
pub struct NetInfoWait {
    zone: Name,
    sent: u8,
    next: Duration,
}

/// Step of such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetInfoStep {
    /// Sends this to all nodes of the cable.
    Ask(NetInfoRequest),
    /// Takes it that there is no router.
    NoRouter,
}

impl NetInfoWait {
    /// Begins to ask, with the zone that the node had the last time.
    #[must_use]
    pub const fn new(zone: Name, now: Duration) -> Self {
        Self { zone, sent: 0, next: now }
    }

    /// Time at which [`tick`](Self::tick) has something to do.
    #[must_use]
    pub const fn next(&self) -> Duration {
        self.next
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) -> Option<NetInfoStep> {
        if self.next > now {
            return None;
        }
        if self.sent >= TRIES {
            self.next = Duration::MAX;
            return Some(NetInfoStep::NoRouter);
        }
        self.sent += 1;
        self.next = now + INTERVAL;
        Some(NetInfoStep::Ask(NetInfoRequest { zone: self.zone }))
    }

    /// True if this is the answer: about the zone that was asked for. It ends the asking.
    #[must_use]
    pub fn heard(&self, info: &NetInfo) -> bool {
        self.sent > 0 && self.next != Duration::MAX && info.asked == self.zone
    }
}
