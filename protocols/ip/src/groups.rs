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
use xk_kit::net::groups::{Filter, GroupChanged, Membership, WatchGroups, WatchedLink};

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
    /// Merges the sources that are wanted; returns whether they are others than before.
    fn update(&mut self) -> bool {
        let mut merged = if self.is_kept { Filter::ALL } else { Filter::NONE };
        for (.., filter) in &self.joins {
            merged.merge(filter);
        }
        let is_other = merged != self.merged;
        self.merged = merged;
        is_other
    }
}

/// A change by a join or its end.
struct Change {
    interface: usize,
    /// True for the first join of a group, and for the end of the last.
    is_edge: bool,
    /// True if the sources are others than before.
    is_other: bool,
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
        groups.keys().filter(|(_, at)| *at == interface).map(|(group, _)| *group).collect()
    }

    /// The sources that packets to a group are taken from on an interface.
    fn filter(&self, interface: usize, group: Ipv4) -> Filter {
        let groups = self.groups.borrow();
        groups.get(&(group, interface)).map_or(Filter::NONE, |group| group.merged.clone())
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

    /// Adds a join; `None` if there are too many.
    fn add(&self, interface: usize, group: Ipv4, join: Join) -> Option<Change> {
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
        let is_edge = !groups.contains_key(&(group, interface));
        let entry = groups.entry((group, interface)).or_default();
        entry.joins.push(join);
        Some(Change { interface, is_edge, is_other: entry.update() })
    }

    /// Takes a join back, that of the same user before others; `None` if there is none.
    fn remove(&self, group: Ipv4, (payer, on, filter): &Join) -> Option<Change> {
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
        let is_other = entry.update();
        self.joins.set(self.joins.get() - 1);
        let is_edge = entry.joins.is_empty() && !entry.is_kept;
        if is_edge {
            groups.remove(&(group, interface));
        }
        Some(Change { interface, is_edge, is_other })
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
        added.map(|change| self.changed(cx, group, change, true)).is_some()
    }

    /// Takes a join back; false if there is none.
    pub(crate) fn leave(&self, cx: &Kernel, membership: &Membership) -> bool {
        let Membership { group, on, filter } = membership;
        let Some(group) = group.to_v4() else { return false };
        let join = (cx.payer(), *on, filter.clone());
        let removed = self.interfaces.memberships.remove(group, &join);
        removed.map(|change| self.changed(cx, group, change, false)).is_some()
    }

    fn changed(&self, cx: &Kernel, group: Ipv4, change: Change, is_joined: bool) {
        let Change { interface, is_edge, is_other } = change;
        if is_edge {
            self.tell_link(cx, interface, group, is_joined);
        }
        if is_other {
            self.tell_watcher(cx, interface, group);
        }
    }

    /// Tells the protocol that watches groups of one, as it is now: another shepherd may have
    /// changed it while the link was told. Without such a protocol no router hears of it.
    fn tell_watcher(&self, cx: &Kernel, interface: usize, group: Ipv4) {
        let Some((watcher, _)) = self.watcher.borrow().clone() else { return };
        let filter = self.interfaces.memberships.filter(interface, group);
        let (interface, group) = (interface as u8, group.into());
        let _ = watcher.ask(cx, GroupChanged { interface, group, filter });
    }

    /// Has a protocol watch groups from now on, and tells it of those that there are.
    pub(crate) fn watch(&self, cx: &Kernel, asked: &WatchGroups) {
        let Ok(number) = u8::try_from(asked.number) else { return };
        let watcher = asked.watcher.clone();
        *self.watcher.borrow_mut() = Some((watcher.clone(), number));
        for (at, interface) in self.interfaces.list.iter().enumerate() {
            let host = interface.addresses.first();
            let host = host.map_or(HostAddr::UNSPECIFIED, |cidr| cidr.addr().into());
            let octets = interface.mtu.get();
            let _ = watcher.ask(cx, WatchedLink { interface: at as u8, host, octets });
            for group in self.interfaces.memberships.of_interface(at) {
                self.tell_watcher(cx, at, group);
            }
        }
    }

    /// Whether this is the number of the protocol that watches groups.
    pub(crate) fn is_watchers(&self, protocol: u8) -> bool {
        self.watcher.borrow().as_ref().is_some_and(|(_, number)| *number == protocol)
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
