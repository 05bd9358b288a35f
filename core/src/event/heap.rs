//! A pairing heap threaded through the nodes of the slab (Fredman, Sedgewick,
//! Sleator and Tarjan, "The Pairing Heap", Algorithmica 1, 1986).
//!
//! It needs no memory of its own and no entry that outlives its event, which
//! a heap in an array needs one of to remove from its middle. Inserting takes
//! constant time, removing the logarithm of the size, amortised. All functions
//! take the root and return the new one, `NONE` for an empty heap.

use super::node::{NONE, Slab};

/// Adds `index`, whose links are free.
pub(super) fn insert<T>(slab: &mut Slab<T>, root: u32, index: u32) -> u32 {
    let node = &mut slab[index];
    (node.prev, node.next, node.child) = (NONE, NONE, NONE);
    merge(slab, root, index)
}

/// Takes out `index`, which is in the heap.
pub(super) fn remove<T>(slab: &mut Slab<T>, root: u32, index: u32) -> u32 {
    let node = &slab[index];
    let (prev, next, child) = (node.prev, node.next, node.child);
    let orphans = merge_siblings(slab, child);
    if index == root {
        return orphans;
    }
    if slab[prev].child == index {
        slab[prev].child = next;
    } else {
        slab[prev].next = next;
    }
    if let Some(next) = slab.get_mut(next) {
        next.prev = prev;
    }
    merge(slab, root, orphans)
}

/// Makes one heap of two, whose roots have no siblings.
fn merge<T>(slab: &mut Slab<T>, one: u32, two: u32) -> u32 {
    if one == NONE {
        return two;
    }
    if two == NONE {
        return one;
    }
    let order = |index: u32| (slab[index].at, slab[index].sequence);
    let (parent, child) = if order(one) < order(two) { (one, two) } else { (two, one) };
    let elder = core::mem::replace(&mut slab[parent].child, child);
    if let Some(elder) = slab.get_mut(elder) {
        elder.prev = child;
    }
    let node = &mut slab[child];
    (node.prev, node.next) = (parent, elder);
    parent
}

/// Makes one heap of the siblings from `first` on: in pairs from the front,
/// then the pairs from the back.
fn merge_siblings<T>(slab: &mut Slab<T>, first: u32) -> u32 {
    let mut pairs = NONE;
    let mut rest = first;
    while rest != NONE {
        let one = rest;
        let two = detach(slab, one);
        rest = if two == NONE { NONE } else { detach(slab, two) };
        let pair = merge(slab, one, two);
        // The pairs are stacked through `next`, which is free in a root.
        slab[pair].next = pairs;
        pairs = pair;
    }
    let mut root = NONE;
    while pairs != NONE {
        let pair = pairs;
        pairs = detach(slab, pair);
        root = merge(slab, root, pair);
    }
    root
}

/// Frees the links of `index` to its siblings, and returns the next one.
fn detach<T>(slab: &mut Slab<T>, index: u32) -> u32 {
    let node = &mut slab[index];
    node.prev = NONE;
    core::mem::replace(&mut node.next, NONE)
}
