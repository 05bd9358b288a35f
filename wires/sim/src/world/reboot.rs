//! Hosts that crash and come back.

use super::{World, take_down};
use crate::network::HostId;
use std::rc::Rc;
use xk_core::{Kernel, Time};

impl World {
    /// Takes a host down as a crash does, at this moment: it sends nothing any more and hears
    /// nothing, and all that it knew is gone. What it sent before is still on its way. False if
    /// there is no such host.
    pub fn crash(&mut self, host: HostId) -> bool {
        // First its wires and cuts, so that no interrupted shepherd has a last word.
        self.part(host);
        let Some(found) = self.hosts.get_mut(host.0 as usize) else {
            return false;
        };
        self.network.detach_host(host);
        (found.wake_at, found.is_paused) = (Time::MAX, false);
        found.inbox.borrow_mut().clear();
        take_down(found);
        self.unfinished = None;
        self.arm_neighbours(host.0 as usize);
        true
    }

    /// Puts a new kernel in the place of a host that crashed, made of [`World::host_config`]. Its
    /// graph is to be built and then started, by [`World::start_host`]. False if there is no such
    /// host.
    pub fn reboot(&mut self, host: HostId, kernel: impl Into<Rc<Kernel>>) -> bool {
        let at = host.0 as usize;
        let Some(before) = self.hosts.get(at) else {
            return false;
        };
        let (name, reboots) = (Rc::clone(&before.name), before.reboots + 1);
        let seated = self.seat(host, name, kernel.into(), reboots);
        if let Some(place) = self.hosts.get_mut(at) {
            let cuts = std::mem::take(&mut place.cuts);
            *place = super::Host { cuts, ..seated };
        }
        self.unfinished = None;
        true
    }
}
