//! Hosts that stop for a while, as a machine does that is suspended.

use super::{Host, World};
use crate::network::HostId;
use xk_core::Reason;
use xk_core::reason::Class;

/// Bounds the frames that wait for a host that is paused.
const FRAMES_MAX: usize = 4096;

/// A host is paused, and as many frames wait for it as may.
pub(crate) static PAUSED_FULL: Reason = Reason::new("paused, queue full", Class::Exhausted);

impl Host {
    /// Whether the host takes no frame more until it goes on.
    pub(super) fn is_full(&self) -> bool {
        self.is_paused && self.inbox.borrow().len() >= FRAMES_MAX
    }
}

impl World {
    /// Stops a host at this moment: its timers do not go off, and frames wait for it, 4096 at
    /// most, until [`World::resume`]. False if there is no such host, or it is paused.
    pub fn pause(&mut self, host: HostId) -> bool {
        let Some(found) = self.hosts.get_mut(host.0 as usize).filter(|host| !host.is_paused) else {
            return false;
        };
        found.is_paused = true;
        found.is_plain = false;
        found.wake_at = xk_core::Time::MAX;
        true
    }

    /// Lets a host go on: what has come and what was due meanwhile happens now. How many frames
    /// and timers that was; `None` if there is no such host, or it is not paused.
    pub fn resume(&mut self, host: HostId) -> Option<usize> {
        let at = host.0 as usize;
        let now = self.now;
        let found = self.hosts.get_mut(at).filter(|host| host.is_paused)?;
        found.is_paused = false;
        let is_due = found.kernel.next_expiry().is_some_and(|due| due <= now);
        let held = found.inbox.borrow().len() + usize::from(is_due);
        found.kernel.set_now(now);
        self.look_again(host);
        self.run_host(at);
        Some(held)
    }
}
