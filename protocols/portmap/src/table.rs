//! The mappings.

use crate::universal::{Netid, Universal};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::{HostAddr, fields};

/// The callers that may delete a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The graph itself: no call deletes it.
    Graph,
    /// A user, by the credential of the call that made it.
    User(u32),
    /// All that call from this host.
    Anybody,
}

fields!(
    enum Owner {
        Graph = 0,
        User(user) = 1,
        Anybody = 2,
    }
);

impl Owner {
    /// As `DUMP` tells it.
    #[must_use]
    pub fn name(self) -> alloc::string::String {
        match self {
            Self::Graph | Self::User(0) => "superuser".into(),
            Self::User(user) => alloc::format!("{user}"),
            Self::Anybody => "unknown".into(),
        }
    }

    /// Whether `caller` may delete what this one has made (RFC 1833, section 2.2.1).
    fn lets(self, caller: Self) -> bool {
        match self {
            Self::Graph => false,
            Self::Anybody => true,
            Self::User(_) => caller == self || caller == Self::User(0),
        }
    }
}

/// A program at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The program.
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// The transport.
    pub netid: Netid,
    /// Address of the program.
    pub at: Universal,
    /// The maker of the mapping.
    pub owner: Owner,
}

fields!(Mapped { program, version, netid, at, owner });

impl Mapped {
    fn is_of(&self, program: u32, version: u32, netid: Netid) -> bool {
        (self.program, self.version, self.netid) == (program, version, netid)
    }

    /// The address as text; for any host of ours as the transport's family writes that.
    #[must_use]
    pub fn text(&self) -> alloc::string::String {
        let text = self.at.emit();
        match text.strip_prefix("0.0.0.0") {
            Some(port) if self.netid.is_v6() => alloc::format!("::{port}"),
            _ => text,
        }
    }

    /// The address for a client that has reached the server at `here`.
    #[must_use]
    pub fn seen_from(&self, here: HostAddr) -> Universal {
        if self.at.host.is_unspecified() { Universal { host: here, ..self.at } } else { self.at }
    }
}

/// All mappings, in the order they were made; as many as there may be.
pub struct Table {
    list: RefCell<Vec<Mapped>>,
    max: usize,
}

impl Table {
    /// An empty one for `max` mappings.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { list: RefCell::default(), max }
    }

    /// Establishes a mapping: refused if there is one already for the program, version and
    /// transport, unless it is the same, or if the table is full. One of the graph takes the place
    /// of one that a call has made.
    pub fn set(&self, mapped: Mapped) -> bool {
        let mut list = self.list.borrow_mut();
        let mut all = list.iter_mut();
        let present = all.find(|m| m.is_of(mapped.program, mapped.version, mapped.netid));
        if let Some(present) = present {
            if mapped.owner == Owner::Graph && present.owner != Owner::Graph {
                *present = mapped;
            }
            return present.at == mapped.at;
        }
        if list.len() >= self.max {
            return false;
        }
        list.push(mapped);
        true
    }

    /// Deletes the mappings of a program and version, on one transport or on all, as far as
    /// `caller` may; true if there were some.
    pub fn unset(&self, program: u32, version: u32, netid: Option<Netid>, caller: Owner) -> bool {
        let mut list = self.list.borrow_mut();
        let before = list.len();
        list.retain(|m| {
            let is_meant = (m.program, m.version) == (program, version)
                && netid.is_none_or(|netid| netid == m.netid);
            !(is_meant && m.owner.lets(caller))
        });
        list.len() < before
    }

    /// Deletes a mapping that the graph itself has made.
    pub fn withdraw(&self, mapped: &Mapped) {
        let mut list = self.list.borrow_mut();
        if let Some(at) = list.iter().position(|m| m == mapped) {
            list.remove(at);
        }
    }

    /// A program in this version on this transport.
    #[must_use]
    pub fn exact(&self, program: u32, version: u32, netid: Netid) -> Option<Mapped> {
        let list = self.list.borrow();
        list.iter().find(|m| m.is_of(program, version, netid)).copied()
    }

    /// The mapping as above; in another version if it is not there in this one, for the call to be
    /// told which there are.
    #[must_use]
    pub fn find(&self, program: u32, version: u32, netid: Netid) -> Option<Mapped> {
        self.exact(program, version, netid).or_else(|| {
            let list = self.list.borrow();
            let mut others = list.iter().filter(|m| (m.program, m.netid) == (program, netid));
            others.next_back().copied()
        })
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Mapped> {
        self.list.borrow().clone()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.list.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(program: u32, version: u32, netid: Netid, port: u16) -> Mapped {
        Mapped {
            program,
            version,
            netid,
            at: Universal { host: HostAddr::UNSPECIFIED, port },
            owner: Owner::Anybody,
        }
    }

    #[test]
    fn one_mapping_for_each_program_version_and_transport() {
        let table = Table::new(8);
        assert!(table.set(mapped(5, 1, Netid::Udp, 7)));
        assert!(!table.set(mapped(5, 1, Netid::Udp, 8)), "refused");
        assert!(table.set(mapped(5, 1, Netid::Udp, 7)), "the same again");
        assert!(table.set(mapped(5, 1, Netid::Tcp, 8)));
        assert!(table.set(mapped(5, 2, Netid::Udp, 9)));
        assert_eq!(table.all().len(), 3);
        let port = |v, n| table.exact(5, v, n).map(|m| m.at.port);
        assert_eq!(port(1, Netid::Udp), Some(7));
        assert_eq!(port(1, Netid::Tcp), Some(8));
        assert_eq!(port(3, Netid::Udp), None);
        assert_eq!(table.find(5, 3, Netid::Udp).map(|m| m.at.port), Some(9));
        assert_eq!(table.find(6, 1, Netid::Udp), None);
        assert!(table.unset(5, 1, None, Owner::Anybody));
        assert!(!table.unset(5, 1, None, Owner::Anybody));
        assert_eq!(table.all().len(), 1);
    }

    #[test]
    fn it_is_bounded() {
        let table = Table::new(2);
        let made = (0..5).filter(|n| table.set(mapped(*n, 1, Netid::Udp, 7)));
        assert_eq!(made.count(), 2);
    }

    #[test]
    fn only_the_owner_deletes() {
        let table = Table::new(8);
        let of = |program, owner| Mapped { owner, ..mapped(program, 1, Netid::Udp, 7) };
        table.set(of(1, Owner::Graph));
        table.set(of(2, Owner::User(1000)));
        table.set(of(3, Owner::User(1000)));
        table.set(of(4, Owner::User(0)));
        for caller in [Owner::Anybody, Owner::User(1001)] {
            assert!((1..=4).all(|p| !table.unset(p, 1, None, caller)));
        }
        assert!(table.unset(2, 1, None, Owner::User(1000)));
        assert!(table.unset(3, 1, Some(Netid::Udp), Owner::User(0)));
        assert!(!table.unset(4, 1, None, Owner::User(1000)));
        assert!(!table.unset(1, 1, None, Owner::User(0)));
        table.withdraw(&of(1, Owner::Graph));
        assert_eq!(table.all(), [of(4, Owner::User(0))]);
    }

    #[test]
    fn any_host_is_the_one_that_was_asked() {
        let here = HostAddr::from([10, 0, 0, 2]);
        let one = mapped(1, 1, Netid::Udp, 7);
        assert_eq!(one.seen_from(here).host, here);
        let host = HostAddr::from([10, 0, 0, 9]);
        let at = Universal { host, port: 7 };
        assert_eq!(Mapped { at, ..one }.seen_from(here).host, host);
    }
}
