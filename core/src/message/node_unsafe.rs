//! The nodes behind messages: descriptors and buffers, and references to them.
//!
//! Nodes lie in slabs that live as long as their pool, and a pool lives while one of its nodes is
//! in use. So a reference to a node is never dangling while a message holds it; a freed node stays
//! a node, on a free list. All fields that change are cells: nodes are only ever reached through
//! shared references, on one thread.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::NonNull;

use super::attribute::Attributes;
use super::pool_unsafe::PoolCore;

/// One slice of a message, and, in the first of a chain, what belongs to the whole message.
///
/// Invariants: `base <= data`, `data + len <= base + capacity` of `buf`; only the head of a chain
/// may have `len == 0`. Of all descriptors on a buffer at most one, the owner of its front, has a
/// `room_end`, and no other sees an octet in `[base, room_end)`: there it may write what lies in
/// front of its slice, if `data <= room_end`. A descriptor that holds the only reference to `buf`
/// may write everything.
#[repr(C, align(64))]
pub(super) struct Desc {
    /// First octet of the slice.
    pub(super) data: Cell<*mut u8>,
    /// First octet of the buffer (kept here so that a push touches nothing else).
    pub(super) base: Cell<*mut u8>,
    /// Up to here this descriptor alone owns the front of the buffer; null if it does not.
    pub(super) room_end: Cell<*mut u8>,
    /// The buffer; counted in its `refs`.
    pub(super) buf: Cell<BufRef>,
    /// The next slice of the message, or the next descriptor of the free list.
    pub(super) next: Cell<Option<DescRef>>,
    /// Head only: octets of all further slices.
    pub(super) rest: Cell<usize>,
    /// Pool that the descriptor returns to. It is not always the pool of `buf`, because messages of
    /// two pools may be joined.
    pub(super) pool: CoreRef,
    /// Octets of the slice.
    pub(super) len: Cell<u32>,
    /// Head only.
    pub(super) attributes: Attributes,
    /// Head only, and only when `next` is some: the last slice.
    pub(super) tail: Cell<Option<DescRef>>,
}

const _: () = assert!(core::mem::offset_of!(Desc, attributes) == 60 && size_of::<Desc>() == 192);

impl Desc {
    pub(super) fn new(pool: CoreRef, buf: BufRef) -> Self {
        Self {
            data: Cell::new(buf.base),
            base: Cell::new(buf.base),
            room_end: Cell::new(buf.base),
            buf: Cell::new(buf),
            next: Cell::new(None),
            rest: Cell::new(0),
            pool,
            len: Cell::new(0),
            attributes: Attributes::new(),
            tail: Cell::new(None),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// One past the last octet of the slice.
    #[inline]
    pub(super) fn end(&self) -> *mut u8 {
        self.data.get().wrapping_add(self.len())
    }

    /// Octets in front of the slice, owned or not.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.data.get().addr() - self.base.get().addr()
    }

    /// Whether the octets in front of the slice are those that were taken off it, for nothing else
    /// can have written there.
    #[inline]
    pub(super) fn keeps_front(&self) -> bool {
        !self.room_end.get().is_null() || self.buf.get().refs.get() & FOREIGN != 0
    }

    /// Whether the room in front of the slice may be written.
    #[inline]
    pub(super) fn owns_room(&self) -> bool {
        self.data.get() <= self.room_end.get()
    }

    /// Owns the whole buffer again if no other refers to it any more.
    #[inline]
    pub(super) fn refresh_room(&self) {
        let buf = self.buf.get();
        if buf.refs.get() == 1 {
            self.room_end.set(buf.base.wrapping_add(buf.capacity as usize));
        }
    }

    /// Gives up the ownership of everything from `limit` on, because another descriptor is about to
    /// see it.
    #[inline]
    pub(super) fn limit_room(&self, limit: *mut u8) {
        if self.room_end.get() > limit {
            self.room_end.set(limit);
        }
    }

    /// Takes over the slice (not the place in the chain) of `from`, whose own reference passes on
    /// with it.
    pub(super) fn move_slice_from(&self, from: &Self) {
        self.data.set(from.data.get());
        self.base.set(from.base.get());
        self.room_end.set(from.room_end.get());
        self.buf.set(from.buf.get());
        self.len.set(from.len.get());
    }

    /// Drops the first `n` octets; the caller knows that there are so many.
    #[inline]
    pub(super) fn skip(&self, n: usize) {
        self.data.set(self.data.get().wrapping_add(n));
        self.len.set(self.len.get() - n as u32);
    }
}

/// In [`Buf::refs`]: the octets lie in another pool's arena and are not written here. The bit is
/// beside the number, so no descriptor ever has such a buffer to itself. A buffer has fewer
/// references than the bit counts, for all come from the descriptors of one pool.
pub(super) const FOREIGN: u32 = 1 << 31;

/// One buffer: where its octets lie and how many descriptors see them.
#[repr(C)]
pub(super) struct Buf {
    /// Descriptors that refer to the buffer, and [`FOREIGN`]. One thread, so a plain cell.
    pub(super) refs: Cell<u32>,
    /// Octets.
    pub(super) capacity: u32,
    /// First octet, in the pool's arena; the arena's first if the buffer is foreign.
    pub(super) base: *mut u8,
    /// The pool that gets the buffer back.
    pub(super) pool: CoreRef,
    /// Next buffer of the free list.
    pub(super) next_free: Cell<Option<BufRef>>,
    /// Index of the size class.
    pub(super) class: u32,
    /// Number under which a foreign buffer is lent.
    pub(super) loan: Cell<u32>,
}

/// A reference to a descriptor of a living pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct DescRef(NonNull<Desc>);

impl DescRef {
    /// # Safety
    /// `node` is an initialised descriptor in a slab of a living pool, reached through shared
    /// references only.
    #[inline]
    pub(super) unsafe fn new(node: NonNull<Desc>) -> Self {
        Self(node)
    }

    /// Gives the descriptor and its reference to the buffer back.
    #[inline]
    pub(super) fn release(self) {
        let (buf, pool) = (self.buf.get(), self.pool);
        if buf.refs.get() == 1 && buf.pool == pool {
            pool.put_both(self, buf);
        } else {
            self.release_apart();
        }
    }

    /// Others refer to the buffer, or it is of another pool.
    #[inline(never)]
    fn release_apart(self) {
        let pool = self.pool;
        self.buf.get().release();
        pool.put_desc(self);
    }
}

impl Deref for DescRef {
    type Target = Desc;

    #[inline]
    fn deref(&self) -> &Desc {
        // SAFETY: `new`'s contract; a pool outlives all references to its nodes (the module's first
        // lines).
        unsafe { self.0.as_ref() }
    }
}

/// A reference to a buffer of a living pool. Copying it does not count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct BufRef(NonNull<Buf>);

impl BufRef {
    /// # Safety
    /// `node` is an initialised buffer in a slab of a living pool, reached through shared
    /// references only.
    #[inline]
    pub(super) unsafe fn new(node: NonNull<Buf>) -> Self {
        Self(node)
    }

    /// Counts one more descriptor; false if the counter is full.
    #[inline]
    pub(super) fn retain(self) -> bool {
        match self.refs.get().checked_add(1) {
            Some(refs) => {
                self.refs.set(refs);
                true
            }
            None => false,
        }
    }

    /// Counts one descriptor less, and gives the buffer back after the last.
    #[inline]
    pub(super) fn release(self) {
        let left = self.refs.get() - 1;
        self.refs.set(left);
        if left & !FOREIGN == 0 {
            self.pool.put_buf(self);
        }
    }
}

impl Deref for BufRef {
    type Target = Buf;

    #[inline]
    fn deref(&self) -> &Buf {
        // SAFETY: `new`'s contract; a pool outlives all references to its nodes (the module's first
        // lines).
        unsafe { self.0.as_ref() }
    }
}

/// A reference to the inside of a living pool. Copying it does not count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CoreRef(NonNull<PoolCore>);

impl CoreRef {
    /// # Safety
    /// `core` lives until its last handle and its last node are given back.
    pub(super) unsafe fn new(core: NonNull<PoolCore>) -> Self {
        Self(core)
    }

    pub(super) fn as_ptr(self) -> *mut PoolCore {
        self.0.as_ptr()
    }
}

impl Deref for CoreRef {
    type Target = PoolCore;

    #[inline]
    fn deref(&self) -> &PoolCore {
        // SAFETY: `new`'s contract: each such reference is held by a handle or a node in use.
        unsafe { self.0.as_ref() }
    }
}
