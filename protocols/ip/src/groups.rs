//! The groups that this host is a member of, by interface: joined by the graph, and at run time.

use crate::path::NextHop;
use crate::shared::Shared;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{Payer, USER_SHARE};
use xk_core::{HostAddr, Kernel};
use xk_kit::control::{JoinGroup, LeaveGroup};
use xk_kit::net::addr::{EthAddr, Ipv4};
use xk_kit::net::groups::{Filter, Membership};

/// One join at run time: the user that is charged for it, our host on the interface as the asker
/// named it, and the sources.
type Join = (Option<Payer>, HostAddr, Filter);

/// One group on one interface.
#[derive(Default)]
struct Group {
    /// Joined by the graph, for as long as it lives.
    is_kept: bool,
    joins: Vec<Join>,
    /// The sources that one of all these wants (RFC 3376, section 3.2).
    merged: Filter,
}

impl Group {
    fn update(&mut self) {
        self.merged = if self.is_kept { Filter::ALL } else { Filter::NONE };
        for (.., filter) in &self.joins {
            self.merged.merge(filter);
        }
    }
}

/// All groups that are joined.
pub(crate) struct Memberships {
    /// The groups by group and interface.
    groups: RefCell<BTreeMap<(Ipv4, usize), Group>>,
    /// Number of joins at run time, and the largest.
    joins: Cell<usize>,
    joins_max: usize,
}

impl Memberships {
    pub(crate) fn new(joins_max: usize) -> Self {
        Self { groups: RefCell::default(), joins: Cell::new(0), joins_max }
    }

    /// Joins a group for good.
    pub(crate) fn keep(&self, interface: usize, group: Ipv4) {
        let mut groups = self.groups.borrow_mut();
        let entry = groups.entry((group, interface)).or_default();
        entry.is_kept = true;
        entry.update();
    }

    /// The groups that are joined on an interface.
    pub(crate) fn of_interface(&self, interface: usize) -> Vec<Ipv4> {
        let groups = self.groups.borrow();
        let of_it = groups.keys().filter(|(_, at)| *at == interface);
        of_it.map(|(group, _)| *group).collect()
    }

    /// Whether packets to this group are taken on an interface.
    pub(crate) fn is_joined(&self, interface: usize, group: Ipv4) -> bool {
        self.groups.borrow().contains_key(&(group, interface))
    }

    /// Whether a packet from this source is.
    pub(crate) fn admits(&self, interface: usize, group: Ipv4, source: Ipv4) -> bool {
        let groups = self.groups.borrow();
        let found = groups.get(&(group, interface));
        found.is_some_and(|group| group.merged.admits(source.into()))
    }

    /// Adds a join; `None` if there are too many, else whether it is the group's first.
    fn add(&self, interface: usize, group: Ipv4, join: Join) -> Option<bool> {
        let mut groups = self.groups.borrow_mut();
        let is_full = match join.0 {
            None => self.joins.get() >= self.joins_max,
            payer => {
                let all = groups.values().flat_map(|group| &group.joins);
                let own = all.filter(|(of, ..)| *of == payer).count();
                let share = (self.joins_max / USER_SHARE).max(1);
                own >= share || self.joins.get() >= self.joins_max
            }
        };
        if is_full {
            return None;
        }
        self.joins.set(self.joins.get() + 1);
        let is_new = !groups.contains_key(&(group, interface));
        let entry = groups.entry((group, interface)).or_default();
        entry.joins.push(join);
        entry.update();
        Some(is_new)
    }

    /// Takes a join back, that of the same user before others; `None` if there is none, else its
    /// interface, and whether it was the group's last.
    fn remove(&self, group: Ipv4, (payer, on, filter): &Join) -> Option<(usize, bool)> {
        let mut groups = self.groups.borrow_mut();
        let fits = |join: &Join| (&join.1, &join.2) == (on, filter);
        let is_own = |join: &Join| fits(join) && join.0 == *payer;
        let find = |is_meant: &dyn Fn(&Join) -> bool| {
            let mut all = groups.range((group, 0)..=(group, usize::MAX));
            all.find_map(|(key, entry)| Some((key.1, entry.joins.iter().position(is_meant)?)))
        };
        let (interface, at) = find(&is_own).or_else(|| find(&fits))?;
        let entry = groups.get_mut(&(group, interface))?;
        entry.joins.swap_remove(at);
        entry.update();
        self.joins.set(self.joins.get() - 1);
        let is_last = entry.joins.is_empty() && !entry.is_kept;
        if is_last {
            groups.remove(&(group, interface));
        }
        Some((interface, is_last))
    }
}

impl Shared {
    /// Takes packets to a group from now on; false if they cannot be.
    pub(crate) fn join(&self, cx: &Kernel, membership: &Membership) -> bool {
        let Membership { group, on, filter } = membership;
        let Some(group) = group.to_v4().filter(|group| group.is_multicast()) else {
            return false;
        };
        let is_v4 = |host: &HostAddr| host.to_v4().is_some();
        if !filter.is_sound() || *filter == Filter::NONE || !filter.sources.iter().all(is_v4) {
            return false;
        }
        let interface = match on.is_unspecified() {
            true => match self.next_hop(None, group) {
                Some(NextHop::Out { interface, .. }) => Some(interface),
                _ => None,
            },
            false => on.to_v4().and_then(|host| self.interfaces.of_host(host)),
        };
        let Some(interface) = interface else { return false };
        let join = (cx.payer(), *on, filter.clone());
        let added = self.interfaces.memberships.add(interface, group, join);
        if added == Some(true) {
            self.tell_link(cx, interface, group, true);
        }
        added.is_some()
    }

    /// Takes a join back; false if there is none.
    pub(crate) fn leave(&self, cx: &Kernel, membership: &Membership) -> bool {
        let Membership { group, on, filter } = membership;
        let Some(group) = group.to_v4() else { return false };
        let join = (cx.payer(), *on, filter.clone());
        let Some((interface, is_last)) = self.interfaces.memberships.remove(group, &join) else {
            return false;
        };
        if is_last {
            self.tell_link(cx, interface, group, false);
        }
        true
    }

    /// Tells the layer below one interface that a group was joined or left. A link with one peer
    /// has no use for it.
    pub(crate) fn tell_link(&self, cx: &Kernel, interface: usize, group: Ipv4, is_joined: bool) {
        let Some(interface) = self.interfaces.list.get(interface) else {
            return;
        };
        let address = EthAddr::from_ipv4_group(group).0;
        let _ = match is_joined {
            true => interface.lower.ask(cx, JoinGroup { address }).map(drop),
            false => interface.lower.ask(cx, LeaveGroup { address }).map(drop),
        };
    }
}
