//! The claim of a node address: choose an address, probe for it, defend it.

use super::{Config, Function, Packet};
use crate::addr::{NODES, NetRange, Node};
use core::time::Duration;

/// Number of conflicts in a row after which the next address is tried only after [`PAUSE`]. Without
/// it a station that answers every probe would cause a flood (as RFC 5227, section 2.1.1).
const CONFLICTS_MAX: u8 = 10;
/// Shortest pause after too many conflicts, and before an address given in the graph is tried
/// again. The longest is twice that.
const PAUSE: Duration = Duration::from_secs(10);

/// Time within which a second conflict makes the node take another address, if it may have another
/// (as hosts do by RFC 5227, section 2.4).
const DEFEND: Duration = Duration::from_secs(10);
/// Least time between two changes of address, so that a hostile station cannot drive the node from
/// one address to the next.
const STAY: Duration = Duration::from_secs(60);

/// A wish for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The networks that the address may belong to.
    pub range: NetRange,
    /// The address to try first, such as that of the last run.
    pub first: Option<Node>,
    /// Whether no other address will do: if another node has `first`, it is tried again and again.
    pub only: bool,
}

/// This node's address, and the address that it tries.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    me: Option<Node>,
    trying: Option<Trying>,
    /// The wish that this node's address fulfils, and the time since when.
    held: Option<(Wish, Duration)>,
    /// Time at which another station was last heard to use this node's address.
    disputed: Option<Duration>,
    /// Number of conflicts about this node's address.
    conflicts: u64,
}

#[derive(Clone, Copy, Debug)]
struct Trying {
    wish: Wish,
    node: Node,
    /// Probes sent.
    sent: u8,
    next: Duration,
    /// Number of addresses in a row that other nodes had.
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

    /// This node's address.
    #[must_use]
    pub const fn me(&self) -> Option<Node> {
        self.me
    }

    /// The address that this node tries.
    #[must_use]
    pub fn trying(&self) -> Option<Node> {
        self.trying.map(|trying| trying.node)
    }

    /// Number of times that another node used this node's address.
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
            // This node has the address already, and defends it.
            self.held = Some((trying.wish, now));
            self.trying = None;
            return self.me.map(Step::Claimed);
        }
        if trying.sent < config.probes {
            trying.sent += 1;
            // A random part, so that stations switched on together do not probe together.
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

    /// Notes that another station uses this node's address. At the second conflict within
    /// [`DEFEND`] another address is tried; until that is claimed, the present one is used.
    fn dispute(&mut self, now: Duration, random: &mut dyn FnMut() -> u32) {
        let before = self.disputed.replace(now);
        let goes_on = before.is_some_and(|before| now.saturating_sub(before) < DEFEND);
        let Some((wish, since)) = self.held.filter(|(wish, _)| goes_on && !wish.only) else {
            return;
        };
        if self.trying.is_none() && now.saturating_sub(since) >= STAY {
            let me = self.me;
            // Any but the disputed one, which few draws find.
            let mut others = (0..16).map(|_| pick(wish.range, random));
            let first = others.find(|other| Some(*other) != me);
            self.wish(Wish { first, ..wish }, now, random);
        }
    }

    /// Takes in another node's packet. Returns the address, ours or tried, that the node turns out
    /// to have.
    pub(super) fn heard(
        &mut self,
        packet: &Packet,
        now: Duration,
        random: &mut dyn FnMut() -> u32,
    ) -> Option<Node> {
        // The sender of a probe does not have the address yet, and this node defends it.
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
        // A random part: of two stations that are given one address, one gets it.
        let pause = PAUSE + PAUSE * (random() % 256) / 256;
        trying.next = if is_late { now + pause } else { now };
        if !trying.wish.only {
            trying.node = pick(trying.wish.range, random);
        }
        Some(node)
    }
}
