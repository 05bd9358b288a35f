//! Guarantees: what a layer promises to those above it, and needs from those below.
//!
//! Guarantees are computed from the wires upwards: a layer gives what its lowers give all of them,
//! as far as it [keeps](Service::keeps) that, and what it [adds](Service::adds). A graph is sound
//! if each layer [needs](super::Below::needs) no more than every one of its lowers gives.

/// A set of guarantees about messages, or requests and replies, between the two ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantees(u32);

/// Each guarantee by itself: what a layer that lacks it does, for the author of the graph.
const LACKS: &[(Guarantees, &str)] = &[
    (Guarantees::OPEN, "nothing can stand on it"),
    (Guarantees::ENABLE, "nothing can be served on it: it takes no enables"),
    (Guarantees::EXACT, "it delivers short messages with octets behind them that were not sent"),
    (Guarantees::STREAM, "it does not carry a stream, which opens and ends"),
    (Guarantees::NEIGHBOURS, "it leads to hosts by its own routes, and is no link to neighbours"),
    (Guarantees::ROUTES, "it leads to hosts on its link alone"),
    (Guarantees::RESOLVER, "it resolves no addresses"),
    (Guarantees::WHOLE, "it carries a stream, which does not keep messages apart"),
    (Guarantees::ORDER, "messages may overtake each other on it"),
    (Guarantees::RELIABLE, "messages may be lost on it"),
    (Guarantees::REPLY, "what comes up from it names no session that leads back to the sender"),
    (Guarantees::PROMPT, "sending on it waits for the peer, who may be waiting for us"),
    (Guarantees::INSTANT, "sending or opening on it may wait"),
    (Guarantees::NAMES, "credentials are looked for right behind the header of `sunselect`"),
    (Guarantees::CREDENTIALS, "no credentials go with a call on it"),
    (Guarantees::HOSTS, "it does not say from which host a message comes"),
    (Guarantees::TRANSACTIONS, "it has no transactions: nothing goes beside a call on it"),
    (Guarantees::PARTIAL, "it has no context graph: messages may overtake their causes on it"),
    (Guarantees::TOTAL, "members may hear concurrent messages in different orders on it"),
    (Guarantees::MANY, "a session of it leads to one peer"),
];

/// Number of guarantees.
const ONES: u32 = 20;

impl Guarantees {
    /// No guarantee.
    pub const NONE: Self = Self(0);
    /// Protocols can open sessions of it: without that it is an upper end of the graph.
    pub const OPEN: Self = Self(1);
    /// Protocols can enable themselves on it, to be opened by peers.
    pub const ENABLE: Self = Self(1 << 1);
    /// Both: what most layers need.
    pub const SESSIONS: Self = Self::OPEN.and(Self::ENABLE);
    /// No octets are added to what was sent; Ethernet pads short messages.
    pub const EXACT: Self = Self(1 << 2);
    /// Message boundaries are kept, as a stream does not keep them.
    pub const WHOLE: Self = Self(1 << 3);
    /// Messages arrive in the order in which they were sent.
    pub const ORDER: Self = Self(1 << 4);
    /// Each message arrives, or the session says that it failed.
    pub const RELIABLE: Self = Self(1 << 5);
    /// The session by which a message comes up leads back to its sender.
    pub const REPLY: Self = Self(1 << 6);
    /// A push never waits for the peer.
    pub const PROMPT: Self = Self(1 << 7);
    /// The layer carries streams, and tells when one opens and ends.
    pub const STREAM: Self = Self(1 << 8);
    /// A link, or what resolves addresses on one: whatever network an upper says is there, is.
    pub const NEIGHBOURS: Self = Self(1 << 9);
    /// The layer resolves addresses, and takes packets of other protocols that resolve some.
    pub const RESOLVER: Self = Self(1 << 10);
    /// The layer reaches hosts that are on no link of ours.
    pub const ROUTES: Self = Self(1 << 11);
    /// Neither a push nor an open waits for anything: shepherds need no stacks for it.
    pub const INSTANT: Self = Self(1 << 12);
    /// The layer names the procedure of a call, and the layer above puts credentials right behind
    /// that name.
    pub const NAMES: Self = Self(1 << 13);
    /// Credentials go with a call.
    pub const CREDENTIALS: Self = Self(1 << 14);
    /// A session tells which host sent what comes up (`peer-host`).
    pub const HOSTS: Self = Self(1 << 15);
    /// Options go beside a call and its reply, as those of ATP's transactions do.
    pub const TRANSACTIONS: Self = Self(1 << 16);
    /// A message comes after all that its sender had when it sent, and bears its place in that
    /// order (`node`).
    pub const PARTIAL: Self = Self(1 << 17);
    /// All members of a conversation hear the same messages in the same order.
    pub const TOTAL: Self = Self(1 << 18);
    /// A message reaches every peer of its session.
    pub const MANY: Self = Self(1 << 19);
    /// All of them.
    pub const ALL: Self = Self((1 << ONES) - 1);
    /// Guarantees of the layer right below only: a layer above does not keep them.
    const OWN: Self = Self::RESOLVER
        .and(Self::NAMES)
        .and(Self::CREDENTIALS)
        .and(Self::TRANSACTIONS)
        .and(Self::PARTIAL)
        .and(Self::TOTAL)
        .and(Self::MANY);

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The guarantees that are in both sets.
    #[must_use]
    pub const fn common(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Whether all of the others are among these.
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the first reason why a layer with these guarantees does not satisfy `needed`, in
    /// words; `None` if it gives all that is needed.
    pub fn lack(self, needed: Self) -> Option<&'static str> {
        let lacks = |(one, _): &&(Self, &str)| needed.has(*one) && !self.has(*one);
        LACKS.iter().find(lacks).map(|(_, why)| *why)
    }
}

/// Rule by which a layer's guarantees follow from those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Guarantees that the layer gives whatever lies below.
    pub adds: Guarantees,
    /// Guarantees that the layer gives if all of its lowers do.
    pub keeps: Guarantees,
}

impl Service {
    /// An upper end of the graph: nothing stands on it.
    pub const TOP: Self = Self { adds: Guarantees::NONE, keeps: Guarantees::NONE };
    /// The service of the layers below, unchanged.
    pub const SAME: Self = Self { adds: Guarantees::NONE, keeps: Guarantees::ALL };

    /// A wire: it may lose messages and let them overtake each other.
    pub const WIRE: Self = Self {
        adds: Guarantees::ALL
            .without(Guarantees::ORDER)
            .without(Guarantees::RELIABLE)
            .without(Guarantees::STREAM)
            .without(Guarantees::ROUTES)
            .without(Guarantees::HOSTS)
            .without(Guarantees::OWN),
        keeps: Guarantees::NONE,
    };

    /// A layer of its own that changes none of them.
    pub const LAYER: Self = Self::changing(Guarantees::NONE, Guarantees::NONE);

    /// A layer of its own: these by itself, all others as the layers below but for those lost.
    #[must_use]
    pub const fn changing(adds: Guarantees, lost: Guarantees) -> Self {
        Self { adds, keeps: Guarantees::ALL.without(lost).without(Guarantees::OWN) }
    }

    /// A layer of its own: these by itself, all others as the layers below.
    #[must_use]
    pub const fn adding(adds: Guarantees) -> Self {
        Self::changing(adds, Guarantees::NONE)
    }

    /// Guarantees above lowers that give `below`; without lowers `below` is [`Guarantees::ALL`].
    pub const fn over(self, below: Guarantees) -> Guarantees {
        self.adds.and(below.common(self.keeps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_gives_what_it_adds_and_what_it_keeps_of_the_layers_below() {
        let exact = Guarantees::EXACT;
        let ethernet = Service::changing(Guarantees::NONE, exact).over(Guarantees::ALL);
        assert!(!ethernet.has(exact) && ethernet.has(Guarantees::REPLY));
        assert!(Service::adding(exact).over(ethernet).has(exact));
        assert_eq!(Service::SAME.over(ethernet), ethernet);
        assert_eq!(Service::TOP.over(Guarantees::ALL), Guarantees::NONE);
    }

    #[test]
    fn every_guarantee_has_a_reason_of_its_own() {
        for bit in 0..ONES {
            let one = Guarantees(1 << bit);
            let reason = Guarantees::NONE.lack(one);
            assert_eq!(reason.is_some(), Guarantees::ALL.has(one), "bit {bit}");
        }
        assert_eq!(Guarantees::ALL.lack(Guarantees::ALL), None);
    }
}
