//! The protocols of a kernel, by their number in the host.

use crate::object::{ProtocolId, ProtocolRef};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A node of a host's graph, in whichever of the host's kernels it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Kind of protocol, as the catalog names it.
    pub kind: &'static str,
    /// Name in the graph.
    pub name: Box<str>,
    /// The node whose type numbers hold on this one, if it passes them on.
    pub numbers_below: Option<ProtocolId>,
}

/// A kernel's protocols. Where its host lies in several kernels, the nodes of the host have their
/// numbers first, whichever kernel has them, and what this kernel has besides follows from a number
/// on that is its own.
#[derive(Default)]
pub(crate) struct Protocols {
    nodes: Box<[Node]>,
    /// The protocols by number; `None` for a node that another kernel has.
    held: Vec<Option<ProtocolRef>>,
    /// The number of the first of those that are no nodes.
    own_first: u32,
    own: Vec<ProtocolRef>,
    /// Stand-ins for protocols of programs that come and go, under the numbers that these have
    /// there, in their order.
    guests: Vec<ProtocolRef>,
}

impl Protocols {
    /// None yet, of a host with these nodes.
    pub(crate) fn of_host(nodes: Vec<Node>, own_first: u32) -> Self {
        let held = nodes.iter().map(|_| None).collect();
        let own_first = own_first.max(nodes.len() as u32);
        Self { nodes: nodes.into(), held, own_first, ..Self::default() }
    }

    /// The protocol with this number, if it is in this kernel.
    #[inline]
    pub(crate) fn get(&self, id: ProtocolId) -> Option<&ProtocolRef> {
        match id.0.checked_sub(self.own_first) {
            Some(at) => self.own.get(at as usize).or_else(|| self.guest(id)),
            None => self.held.get(id.0 as usize)?.as_ref(),
        }
    }

    /// Enters a protocol, made with its number: that of the node of its kind and name, or the next
    /// of the kernel's own.
    pub(crate) fn add(
        &mut self,
        kind: &'static str,
        name: &str,
        make: impl FnOnce(ProtocolId) -> ProtocolRef,
    ) -> ProtocolRef {
        let is_it = |node: &Node| node.kind == kind && *node.name == *name;
        let at = self.nodes.iter().position(is_it);
        if let Some(at) = at.filter(|at| self.held[*at].is_none()) {
            return self.held[at].insert(make(ProtocolId(at as u32))).clone();
        }
        let next = u32::try_from(self.own.len()).unwrap_or(u32::MAX);
        let protocol = make(ProtocolId(self.own_first.saturating_add(next)));
        self.own.push(protocol.clone());
        protocol
    }

    fn place(&self, id: ProtocolId) -> Result<usize, usize> {
        self.guests.binary_search_by_key(&id, ProtocolRef::id)
    }

    #[cold]
    fn guest(&self, id: ProtocolId) -> Option<&ProtocolRef> {
        self.guests.get(self.place(id).ok()?)
    }

    /// Enters what stands for a protocol of a program that has come; `None` if its number is not
    /// behind all numbers here.
    pub(crate) fn add_guest(&mut self, guest: ProtocolRef) -> Option<ProtocolRef> {
        let is_free = guest.id().0 >= self.own_first && self.get(guest.id()).is_none();
        let at = self.place(guest.id()).err().filter(|_| is_free)?;
        self.guests.insert(at, guest.clone());
        Some(guest)
    }

    /// Takes out what stands for a protocol of a program that has gone.
    pub(crate) fn remove_guest(&mut self, id: ProtocolId) -> Option<ProtocolRef> {
        Some(self.guests.remove(self.place(id).ok()?))
    }

    /// The kind and the name of the protocol with this number, if it is a node of the host or in
    /// this kernel.
    pub(crate) fn node(&self, id: ProtocolId) -> Option<(&'static str, &str)> {
        if let Some(node) = self.nodes.get(id.0 as usize) {
            return Some((node.kind, &node.name));
        }
        self.get(id).map(|protocol| (protocol.head().kind(), protocol.name()))
    }

    /// The layer whose type numbers hold on that of this number: of a node whatever kernel has it.
    pub(crate) fn numbers_below(&self, id: ProtocolId) -> Option<ProtocolId> {
        let node = self.nodes.get(id.0 as usize);
        let said = node.and_then(|node| node.numbers_below);
        said.or_else(|| Some(self.get(id)?.numbers_below()?.id()))
    }

    /// The protocols in this kernel, bottom-up.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &ProtocolRef> {
        self.held.iter().flatten().chain(&self.own).chain(&self.guests)
    }
}
