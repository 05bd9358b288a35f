//! Membership in groups of hosts: what a host asks to receive (RFC 3376, sections 2 and 3).

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing};
use xk_core::{Answer, Ask, HostAddr, Kernel, ProtocolRef, fields, name_key, question};

/// Sources that a membership names at most (RFC 3376, section 3.1, leaves the number to the host).
pub const SOURCES_MAX: usize = 64;
/// Memberships of one session, or of one socket, at most.
pub const MEMBERSHIPS_MAX: usize = 64;

/// The sources that packets to a group are taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// True for all sources but the listed ones (mode EXCLUDE), false for those alone (INCLUDE).
    pub excludes: bool,
    /// The sources, in order and each once.
    pub sources: Vec<HostAddr>,
}

fields!(Filter { excludes, sources });

impl Filter {
    /// Takes packets from every source.
    pub const ALL: Self = Self { excludes: true, sources: Vec::new() };
    /// Takes none: as if the group had not been joined.
    pub const NONE: Self = Self { excludes: false, sources: Vec::new() };

    /// True if packets from `source` are taken.
    #[must_use]
    pub fn admits(&self, source: HostAddr) -> bool {
        self.sources.binary_search(&source).is_ok() != self.excludes
    }

    /// True if the sources are in order, each once, and not too many.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.sources.len() <= SOURCES_MAX && self.sources.is_sorted_by(|one, next| one < next)
    }

    /// Adds a source to the list; false if it is there, or the list is full.
    #[must_use]
    pub fn insert(&mut self, source: HostAddr) -> bool {
        match self.sources.binary_search(&source) {
            Err(at) if self.sources.len() < SOURCES_MAX => {
                self.sources.insert(at, source);
                true
            }
            _ => false,
        }
    }

    /// Takes a source off the list; false if it is not there.
    #[must_use]
    pub fn remove(&mut self, source: HostAddr) -> bool {
        let found = self.sources.binary_search(&source);
        found.map(|at| self.sources.remove(at)).is_ok()
    }

    /// Adds what another asker wants of the same group (RFC 3376, section 3.2): the result admits
    /// what one of the two admits.
    pub fn merge(&mut self, other: &Self) {
        let has = |list: &[HostAddr], source: &HostAddr| list.binary_search(source).is_ok();
        match (self.excludes, other.excludes) {
            (true, true) => self.sources.retain(|source| has(&other.sources, source)),
            (true, false) => self.sources.retain(|source| !has(&other.sources, source)),
            (false, true) => {
                let mut sources = other.sources.clone();
                sources.retain(|source| !has(&self.sources, source));
                *self = Self { excludes: true, sources };
            }
            (false, false) => {
                self.sources.extend_from_slice(&other.sources);
                // Two runs in order, which a stable sort merges in one pass.
                self.sources.sort();
                self.sources.dedup();
            }
        }
    }
}

/// A wish for the packets to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: HostAddr,
    /// Our host on the interface; unspecified for the interface by which packets to the group go.
    pub on: HostAddr,
    /// Sources of the packets.
    pub filter: Filter,
}

fields!(Membership { group, on, filter });

/// Asks a network layer to take packets to a group, or a session of a transport to pass on those to
/// its port. Each join stands for itself: the packets that one of them wants are taken. It ends by
/// [`LeaveHost`] with the same fields; one that was asked of a session, with that session; one that
/// came from another domain, with that domain. No answer if it is no group, there is no such
/// interface, or as many are joined as may be; a user has an eighth of all places.
///
/// A program that is granted a protocol may ask it of its own sessions alone.
#[derive(Clone, Debug)]
pub struct JoinHost {
    /// The wish.
    pub membership: Membership,
}

question!(JoinHost { membership }, "join-host", Ask, standing until "leave-host");

/// Takes one [`JoinHost`] with these fields back.
#[derive(Clone, Debug)]
pub struct LeaveHost {
    /// The wish.
    pub membership: Membership,
}

question!(LeaveHost { membership }, "leave-host", Tell);

/// Asked of a network layer by a protocol that tells routers of groups: tell me of the interfaces
/// ([`WatchedLink`]) and their groups ([`GroupChanged`]), of those that there are at once. What
/// comes for it by way of a group is taken from every source, and has [`CameBy`].
pub struct WatchGroups {
    /// The protocol that is told.
    pub watcher: ProtocolRef,
    /// Number of that protocol on the network layer.
    pub number: u32,
}

question!(WatchGroups { watcher, number }, "watch-groups", Tell, standing);

/// Tells of an interface on which no group is joined: each that is follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedLink {
    /// Place of the interface in the network layer's order.
    pub interface: u8,
    /// Our first host there; unspecified if there is none.
    pub host: HostAddr,
    /// Octets of the largest packet there.
    pub octets: u16,
}

question!(WatchedLink { interface, host, octets }, "watched-link", Tell, upward);

/// Tells that packets to a group are taken from other sources than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChanged {
    /// Place of the interface.
    pub interface: u8,
    /// The group.
    pub group: HostAddr,
    /// The sources that one of the joins wants; [`Filter::NONE`] if all have left.
    pub filter: Filter,
}

question!(GroupChanged { interface, group, filter }, "group-changed", Tell, upward);

/// The way by which a packet has arrived. Set by a network layer for the protocol that watches its
/// groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CameBy {
    /// Place of the interface.
    pub interface: u8,
    /// True if the packet had routers look at it (RFC 2113).
    pub alerts: bool,
}

impl Attribute for CameBy {
    const KEY: u32 = name_key("came-by");
    const CROSSES: Crossing = Crossing::UP;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..2].copy_from_slice(&[self.interface, self.alerts.into()]);
        octets
    }

    fn decode([interface, alerts, ..]: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Self { interface, alerts: alerts != 0 }
    }
}

/// The joins of one session of a transport, made below on its behalf.
#[derive(Debug, Default)]
pub struct Joins {
    all: RefCell<Vec<Membership>>,
    /// The session has ended: a join that comes back from below is taken back.
    is_over: Cell<bool>,
}

impl Joins {
    /// True if packets of a source to a group are wanted. A session that has not joined the group
    /// takes those that others have the host take (as Linux's `IP_MULTICAST_ALL`).
    pub fn admits(&self, group: HostAddr, source: HostAddr) -> bool {
        let joined = self.all.borrow();
        let mut own = joined.iter().filter(|own| own.group == group).peekable();
        own.peek().is_none() || own.any(|own| own.filter.admits(source))
    }

    /// Whether the question is [`JoinHost`] or [`LeaveHost`].
    pub fn are_meant(ask: &mut Ask<'_>) -> bool {
        ask.get::<JoinHost>().is_some() || ask.get::<LeaveHost>().is_some()
    }

    /// Answers [`JoinHost`] and [`LeaveHost`], which the layer `lower` is asked in turn; `None` to
    /// other questions.
    pub fn answer(&self, cx: &Kernel, lower: &ProtocolRef, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(JoinHost { membership }) = ask.get() {
            let joined = membership.clone();
            let is_full = self.all.borrow().len() >= MEMBERSHIPS_MAX;
            if is_full || !lower.control(cx, ask).is_answered() {
                return Some(Answer::Unknown);
            }
            if self.is_over.get() {
                let _ = lower.ask(cx, LeaveHost { membership: joined });
                return Some(Answer::Unknown);
            }
            self.all.borrow_mut().push(joined);
            return Some(Answer::Answered);
        }
        let LeaveHost { membership } = ask.get()?;
        let at = self.all.borrow().iter().position(|own| own == membership);
        let Some(at) = at else { return Some(Answer::Unknown) };
        self.all.borrow_mut().swap_remove(at);
        let _ = lower.control(cx, ask);
        Some(Answer::Answered)
    }

    /// Takes all joins back: the session ends.
    pub fn clear(&self, cx: &Kernel, lower: &ProtocolRef) {
        self.is_over.set(true);
        for membership in self.all.take() {
            let _ = lower.ask(cx, LeaveHost { membership });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(last: u8) -> HostAddr {
        [10, 0, 0, last].into()
    }

    fn filters() -> impl Strategy<Value = Filter> {
        let sources = proptest::collection::btree_set(0u8..6, 0..5);
        (any::<bool>(), sources).prop_map(|(excludes, sources)| Filter {
            excludes,
            sources: sources.into_iter().map(source).collect(),
        })
    }

    proptest! {
        #[test]
        fn what_is_merged_admits_what_one_of_them_admits(
            all in proptest::collection::vec(filters(), 0..5),
        ) {
            let mut merged = Filter::NONE;
            all.iter().for_each(|filter| merged.merge(filter));
            prop_assert!(merged.is_sound());
            for last in 0..7 {
                let is_wanted = all.iter().any(|filter| filter.admits(source(last)));
                prop_assert_eq!(merged.admits(source(last)), is_wanted, "{} of {:?}", last, all);
            }
        }
    }

    #[test]
    fn the_example_of_rfc_3376_section_3_2() {
        let [a, b, c, d, e, f] = [1, 2, 3, 4, 5, 6].map(source);
        let filter = |excludes, sources: &[HostAddr]| Filter { excludes, sources: sources.into() };
        let merged = |all: &[Filter]| {
            let mut merged = Filter::NONE;
            all.iter().for_each(|filter| merged.merge(filter));
            merged
        };
        let all =
            [filter(true, &[a, b, c, d]), filter(true, &[b, c, d, e]), filter(false, &[d, e, f])];
        assert_eq!(merged(&all), filter(true, &[b, c]));
        let all = [filter(false, &[a, b, c]), filter(false, &[b, c, d]), filter(false, &[e, f])];
        assert_eq!(merged(&all), filter(false, &[a, b, c, d, e, f]));
    }

    #[test]
    fn a_list_is_in_order_and_bounded() {
        let mut filter = Filter::NONE;
        for last in (0..SOURCES_MAX as u8).rev() {
            assert!(filter.insert(source(last)));
            assert!(!filter.insert(source(last)));
        }
        assert!(!filter.insert(source(200)) && filter.is_sound());
        assert!(filter.remove(source(3)) && !filter.remove(source(3)) && filter.is_sound());
        filter.sources.reverse();
        assert!(!filter.is_sound());
    }
}
