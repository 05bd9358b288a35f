//! Hosts that lie in several kernels, with cuts between them.

use super::World;
use crate::network::HostId;
use std::rc::Rc;

/// A cut to another kernel of the host.
pub(super) struct Cut {
    other: HostId,
    /// True if the other domain is below.
    is_down: bool,
    /// Ends this side of what carries frames across.
    end: Rc<dyn Fn()>,
}

impl World {
    /// Makes two kernels domains of one host, with a cut between them: `upper` is started once
    /// `lower` is, and what one sends the other is looked at when it arrives there. `ends` end the
    /// one's side of what carries frames across, and the other's, if that one crashes. Takes the
    /// place of a cut that there was between the two.
    pub fn join(&mut self, [upper, lower]: [HostId; 2], ends: [Rc<dyn Fn()>; 2]) {
        let [upper_end, lower_end] = ends;
        let down = Cut { other: lower, is_down: true, end: upper_end };
        let up = Cut { other: upper, is_down: false, end: lower_end };
        for (id, cut) in [(upper, down), (lower, up)] {
            if let Some(host) = self.hosts.get_mut(id.0 as usize) {
                host.cuts.retain(|before| before.other != cut.other);
                host.cuts.push(cut);
            }
        }
    }

    /// True while the graph of a host is there: not between a crash and its coming back.
    pub fn is_up(&self, host: HostId) -> bool {
        self.kernel(host).is_some_and(|kernel| !kernel.protocols().is_empty())
    }

    /// Whether one of these is a domain below.
    pub(super) fn stands_on(&self, host: HostId, all: &[HostId]) -> bool {
        let found = self.hosts.get(host.0 as usize);
        found.is_some_and(|h| h.cuts.iter().any(|cut| cut.is_down && all.contains(&cut.other)))
    }

    /// Ends all that carries frames to and from a domain. What it sent before arrives.
    pub(super) fn part(&self, host: HostId) {
        if let Some(found) = self.hosts.get(host.0 as usize) {
            found.cuts.iter().for_each(|cut| (cut.end)());
        }
    }

    /// Sees when the domains are to be woken that a domain may have sent something to.
    pub(super) fn arm_neighbours(&mut self, at: usize) {
        let count = self.hosts.get(at).map_or(0, |host| host.cuts.len());
        for cut in 0..count {
            if let Some(cut) = self.hosts.get(at).and_then(|host| host.cuts.get(cut)) {
                self.arm(cut.other.0 as usize);
            }
        }
    }
}
