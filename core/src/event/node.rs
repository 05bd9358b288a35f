//! The nodes of a wheel, in one growing table.

use crate::time::Time;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::ops::{Index, IndexMut};

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// The list or heap that a node is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeState {
    /// In the list of free nodes, through `next`.
    Free,
    /// In the heap: `prev` is the parent of a first child and the sibling
    /// before any other, `next` the sibling after.
    Heap,
    /// In the list of a slot.
    Slot(u16),
    /// Given out, in no list.
    Running,
}

/// One event.
#[derive(Debug)]
pub(super) struct Node<T> {
    pub(super) at: Time,
    /// Counts all events scheduled; `None` in a free node.
    pub(super) sequence: Option<NonZeroU64>,
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The first child in the heap.
    pub(super) child: u32,
    pub(super) place: NodeState,
    /// There while the event is pending.
    pub(super) payload: Option<T>,
}

/// All nodes, free ones among them.
#[derive(Debug)]
pub(super) struct Slab<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    used: usize,
    nodes_max: usize,
}

impl<T> Slab<T> {
    pub(super) fn new(nodes_max: usize) -> Slab<T> {
        Slab { nodes: Vec::new(), free: NONE, used: 0, nodes_max: nodes_max.min(NONE as usize) }
    }

    /// Number of nodes in use.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    pub(super) fn nodes_max(&self) -> usize {
        self.nodes_max
    }

    /// A node in no list, or `None` when there are `nodes_max`.
    pub(super) fn take(&mut self, at: Time, sequence: NonZeroU64, payload: T) -> Option<u32> {
        let fresh = Node {
            at,
            sequence: Some(sequence),
            prev: NONE,
            next: NONE,
            child: NONE,
            place: NodeState::Running,
            payload: Some(payload),
        };
        let index = self.free;
        if let Some(node) = self.nodes.get_mut(index as usize) {
            self.free = node.next;
            *node = fresh;
            self.used += 1;
            return Some(index);
        }
        if self.nodes.len() >= self.nodes_max {
            return None;
        }
        self.nodes.push(fresh);
        self.used += 1;
        Some((self.nodes.len() - 1) as u32)
    }

    /// Frees a node that is in no list, and returns its payload.
    pub(super) fn give(&mut self, index: u32) -> Option<T> {
        let free = core::mem::replace(&mut self.free, index);
        self.used -= 1;
        let node = &mut self[index];
        (node.sequence, node.place, node.next) = (None, NodeState::Free, free);
        node.payload.take()
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Node<T>> {
        self.nodes.get(index as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(index as usize)
    }

    /// The nodes linked through `next`, from `first` on.
    pub(super) fn list(&self, first: u32) -> impl Iterator<Item = &Node<T>> {
        core::iter::successors(self.get(first), |node| self.get(node.next))
    }

    /// All nodes, the free and the running without payload.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Node<T>> {
        self.nodes.iter()
    }
}

/// For indices that the wheel itself has linked.
impl<T> Index<u32> for Slab<T> {
    type Output = Node<T>;

    #[inline]
    fn index(&self, index: u32) -> &Node<T> {
        &self.nodes[index as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Node<T> {
        &mut self.nodes[index as usize]
    }
}
