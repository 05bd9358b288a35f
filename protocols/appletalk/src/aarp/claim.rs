//! The claim of an address of one's own: choose one, probe for it, defend it.

use super::{Config, Function, Packet};
use crate::addr::{NODES, NetRange, Node};
use core::time::Duration;

/// Conflicts in a row from which on the next address is tried only after [`PAUSE`], so that a
/// station that answers every probe does not have the network flooded (as RFC 5227, section 2.1.1).
const CONFLICTS_MAX: u8 = 10;
/// The pause after too many conflicts, and before a given address is tried again, at least; twice
/// as long at most.
const PAUSE: Duration = Duration::from_secs(10);

/// A node whose address another station uses twice within this time takes another address, unless
/// it may have no other; as RFC 5227, section 2.4, has it for hosts.
const DEFEND: Duration = Duration::from_secs(10);
/// Least time between two changes of address, so that it is not driven from one address to the
/// next.
const STAY: Duration = Duration::from_secs(60);

/// Wish for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The networks that it may be of.
    pub range: NetRange,
    /// The one to be tried first, such as the one of the last time.
    pub first: Option<Node>,
    /// Whether it is this one or none: one that another node has is tried again and again.
    pub only: bool,
}

/// One's own address, and the one that is tried.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    me: Option<Node>,
    trying: Option<Trying>,
    /// The wish that one's own address fulfils, and since when it has.
    held: Option<(Wish, Duration)>,
    /// When another station was heard to use one's own address.
    disputed: Option<Duration>,
    /// Conflicts about one's own address.
    conflicts: u64,
}

#[derive(Clone, Copy, Debug)]
struct Trying {
    wish: Wish,
    node: Node,
    /// Probes sent.
    sent: u8,
    next: Duration,
    /// Addresses in a row that were others'.
    refused: u8,
}

pub(super) enum Step {
    Probe(Node),
    Claimed(Node),
}

fn pick(range: NetRange, random: &mut dyn FnMut() -> u32) -> Node {
    let count = u32::from(NODES.end() - NODES.start()) + 1;
    let node = u32::from(*NODES.start()) + random() % count;
    Node::new(range.pick(random()), node as u8)
}

impl Claim {
    pub(super) const fn new() -> Self {
        Self { me: None, trying: None, held: None, disputed: None, conflicts: 0 }
    }

    /// One's own address.
    #[must_use]
    pub const fn me(&self) -> Option<Node> {
        self.me
    }

    /// The address that is tried.
    #[must_use]
    pub fn trying(&self) -> Option<Node> {
        self.trying.map(|trying| trying.node)
    }

    /// Times that another node used one's own address.
    #[must_use]
    pub const fn conflicts(&self) -> u64 {
        self.conflicts
    }

    pub(super) fn wish(&mut self, wish: Wish, now: Duration, random: &mut dyn FnMut() -> u32) {
        let node = wish.first.unwrap_or_else(|| pick(wish.range, random));
        self.trying = Some(Trying { wish, node, sent: 0, next: now, refused: 0 });
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.trying.map(|trying| trying.next)
    }

    pub(super) fn tick(
        &mut self,
        now: Duration,
        config: &Config,
        random: &mut dyn FnMut() -> u32,
    ) -> Option<Step> {
        let trying = self.trying.as_mut().filter(|trying| trying.next <= now)?;
        if trying.sent == 0 && Some(trying.node) == self.me {
            // It is one's own already, and defended.
            self.held = Some((trying.wish, now));
            self.trying = None;
            return self.me.map(Step::Claimed);
        }
        if trying.sent < config.probes {
            trying.sent += 1;
            // Stations that were switched on together do not stay in step.
            let jitter = match trying.sent {
                1 => config.probe_interval * (random() % 256) / 1024,
                _ => Duration::ZERO,
            };
            trying.next = now + config.probe_interval + jitter;
            return Some(Step::Probe(trying.node));
        }
        let node = trying.node;
        self.held = Some((trying.wish, now));
        (self.trying, self.disputed) = (None, None);
        self.me = Some(node);
        Some(Step::Claimed(node))
    }

    /// Another station uses one's own address: if it goes on with that, another is tried. The one
    /// at hand is used until then.
    fn dispute(&mut self, now: Duration, random: &mut dyn FnMut() -> u32) {
        let before = self.disputed.replace(now);
        let goes_on = before.is_some_and(|before| now.saturating_sub(before) < DEFEND);
        let Some((wish, since)) = self.held.filter(|(wish, _)| goes_on && !wish.only) else {
            return;
        };
        if self.trying.is_none() && now.saturating_sub(since) >= STAY {
            let me = self.me;
            // Any but the one that is disputed; there is one that is not after few draws.
            let mut others = (0..16).map(|_| pick(wish.range, random));
            let first = others.find(|other| Some(*other) != me);
            self.wish(Wish { first, ..wish }, now, random);
        }
    }

    /// Answers the address that another node has, if this packet of it says so.
    pub(super) fn heard(
        &mut self,
        packet: &Packet,
        now: Duration,
        random: &mut dyn FnMut() -> u32,
    ) -> Option<Node> {
        // A probe says no more than that its sender would like to; one's own address is defended.
        if self.me == Some(packet.from) && packet.function != Function::Probe {
            self.conflicts += 1;
            self.dispute(now, random);
            return self.me;
        }
        let trying = self.trying.as_mut().filter(|trying| trying.node == packet.from)?;
        let node = trying.node;
        trying.refused = trying.refused.saturating_add(1);
        trying.sent = 0;
        let is_late = trying.wish.only || trying.refused >= CONFLICTS_MAX;
        // Two stations that are given one address do not stay in step, either: one gets it.
        let pause = PAUSE + PAUSE * (random() % 256) / 256;
        trying.next = if is_late { now + pause } else { now };
        if !trying.wish.only {
            trying.node = pick(trying.wish.range, random);
        }
        Some(node)
    }
}
