//! The address mapping table: the hardware of others.

use super::{ALL_NODES, Config, Function, Hw, Packet, Refusal};
use crate::addr::Node;
use alloc::vec::Vec;
use core::time::Duration;

/// Answer about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The node's hardware is known.
    Known(Hw),
    /// The node is asked for: [`Resolved`](super::Action::Resolved) or
    /// [`Unresolved`](super::Action::Unresolved) follows.
    Asked,
    /// There is no room to ask.
    Full,
    /// This station has no address to ask with.
    NoAddress,
}

/// The nodes that are known or asked for, by address.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// In rising order of the address.
    nodes: Vec<Entry>,
    changes: u32,
    /// Nodes that gave way while they were asked for: messages for them cannot go.
    given_up: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    node: Node,
    hw: Option<Hw>,
    /// Time at which the hardware was confirmed, or something was sent there.
    confirmed: Duration,
    used: Duration,
    asking: Option<Asking>,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    /// Requests that may follow.
    left: u8,
    next: Duration,
}

pub(super) enum Step {
    Ask(Node, Hw),
    GiveUp(Node),
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), changes: 0, given_up: Vec::new() }
    }

    /// Number of nodes that are known or asked for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if none is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of times that the known hardware of a node changed or was forgotten: as long as this
    /// stays, so does all that [`resolve`](super::Aarp::resolve) answered with
    /// [`Resolution::Known`].
    #[must_use]
    pub const fn changes(&self) -> u32 {
        self.changes
    }

    /// The nodes, and their hardware where it is known.
    pub fn iter(&self) -> impl Iterator<Item = (Node, Option<Hw>)> {
        self.nodes.iter().map(|entry| (entry.node, entry.hw))
    }

    fn find(&self, node: Node) -> Result<usize, usize> {
        self.nodes.binary_search_by_key(&node, |entry| entry.node)
    }

    /// Makes room for a node; the one goes that was used longest ago. At most half of all places
    /// are of nodes that are asked for: beyond that the one that was first used longest ago is
    /// given up, so that neither those nor others keep a node from its turn. Answers where it
    /// belongs.
    fn make_room(&mut self, node: Node, is_asked: bool, max: usize) -> Option<usize> {
        let asked = self.nodes.iter().filter(|entry| entry.hw.is_none()).count();
        let is_full = self.nodes.len() >= max;
        let known = || self.nodes.iter().enumerate().filter(|(_, entry)| entry.hw.is_some());
        let waiting = || self.nodes.iter().enumerate().filter(|(_, entry)| entry.hw.is_none());
        let gives_way = match is_asked && asked >= max.div_ceil(2) {
            true => waiting().min_by_key(|(_, entry)| entry.confirmed),
            false if is_full => known()
                .min_by_key(|(_, entry)| entry.used)
                .or_else(|| waiting().min_by_key(|(_, entry)| entry.confirmed)),
            false => None,
        };
        if let Some((oldest, entry)) = gives_way {
            match entry.hw {
                None if self.given_up.len() >= max => return None,
                None => self.given_up.push(entry.node),
                Some(_) => self.changes = self.changes.wrapping_add(1),
            }
            self.nodes.remove(oldest);
        }
        Some(self.find(node).unwrap_or_else(|at| at))
    }

    /// Looks a node up; answers as well where a request is to be sent now.
    pub(super) fn resolve(
        &mut self,
        node: Node,
        now: Duration,
        config: &Config,
    ) -> (Resolution, Option<Hw>) {
        let asking =
            Some(Asking { left: config.tries.saturating_sub(1), next: now + config.retry });
        if let Ok(at) = self.find(node) {
            let entry = &mut self.nodes[at];
            let is_stale = now.saturating_sub(entry.confirmed) >= config.lifetime;
            let is_unused = now.saturating_sub(entry.used) >= config.lifetime;
            entry.used = now;
            let Some(hw) = entry.hw else { return (Resolution::Asked, None) };
            if is_stale && is_unused && entry.asking.is_none() {
                (entry.hw, entry.asking) = (None, asking);
                self.changes = self.changes.wrapping_add(1);
                return (Resolution::Asked, Some(ALL_NODES));
            }
            if !is_stale || entry.asking.is_some() {
                return (Resolution::Known(hw), None);
            }
            // It is used while it is asked directly whether it is still there.
            entry.asking = asking;
            return (Resolution::Known(hw), Some(hw));
        }
        let Some(at) = self.make_room(node, true, config.nodes_max) else {
            return (Resolution::Full, None);
        };
        self.nodes.insert(at, Entry { node, hw: None, confirmed: now, used: now, asking });
        (Resolution::Asked, Some(ALL_NODES))
    }

    /// Learns from a request or response; true if the node was waited for.
    pub(super) fn learn(
        &mut self,
        packet: &Packet,
        for_me: bool,
        now: Duration,
        config: &Config,
    ) -> Result<bool, Refusal> {
        if let Ok(at) = self.find(packet.from) {
            let entry = &mut self.nodes[at];
            let was_waited_for = entry.hw.is_none();
            if entry.hw.is_some_and(|hw| hw != packet.from_hw) {
                self.changes = self.changes.wrapping_add(1);
            }
            (entry.hw, entry.confirmed, entry.asking) = (Some(packet.from_hw), now, None);
            return Ok(was_waited_for);
        }
        match packet.function {
            // What asks will be sent something soon; what others tell unasked is worth no room.
            Function::Request if for_me => {
                let at = self.make_room(packet.from, false, config.nodes_max);
                let at = at.ok_or(Refusal::Full)?;
                let hw = Some(packet.from_hw);
                let entry =
                    Entry { node: packet.from, hw, confirmed: now, used: now, asking: None };
                self.nodes.insert(at, entry);
                Ok(false)
            }
            Function::Response => Err(Refusal::Unsolicited),
            _ => Err(Refusal::NotMine),
        }
    }

    /// Another station would like to be this node: what is known of it is forgotten, unless that
    /// station has been it before.
    pub(super) fn doubt(&mut self, node: Node, hw: Hw) {
        let before = self.nodes.len();
        self.nodes.retain(|entry| entry.node != node || entry.hw.is_none_or(|known| known == hw));
        self.note_gone(before);
    }

    fn note_gone(&mut self, before: usize) {
        if self.nodes.len() != before {
            self.changes = self.changes.wrapping_add(1);
        }
    }

    pub(super) fn next(&self) -> Option<Duration> {
        if !self.given_up.is_empty() {
            return Some(Duration::ZERO);
        }
        self.nodes.iter().filter_map(|entry| entry.asking).map(|asking| asking.next).min()
    }

    pub(super) fn tick(&mut self, now: Duration, config: &Config, mut step: impl FnMut(Step)) {
        self.given_up.drain(..).for_each(|node| step(Step::GiveUp(node)));
        let before = self.nodes.len();
        self.nodes.retain_mut(|entry| {
            let Some(asking) = entry.asking.as_mut().filter(|asking| asking.next <= now) else {
                return true;
            };
            if asking.left == 0 {
                if entry.hw.is_none() {
                    step(Step::GiveUp(entry.node));
                }
                return false;
            }
            asking.left -= 1;
            asking.next = now + config.retry;
            step(Step::Ask(entry.node, entry.hw.unwrap_or(ALL_NODES)));
            true
        });
        self.note_gone(before);
    }
}
