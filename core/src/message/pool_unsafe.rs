//! The pool: size classes of buffers in one arena, and the descriptors of messages.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;

use super::arena_unsafe::{Arena, HeapArena};
use super::config::{
    BUFFER_ALIGN, CLASSES_MAX, ClassStats, NoBuffers, PoolConfig, PoolError, PoolStats, SizeClass,
};
use super::foreign_unsafe::{Foreign, View};
use super::message_unsafe::Message;
use super::node_unsafe::{Buf, BufRef, CoreRef, Desc, DescRef, FOREIGN};

/// Octets of the arena that a size class takes at a time.
const SLAB_OCTETS: usize = 256 * 1024;

/// A page of most machines has two to the power of this octets.
const PAGE_BITS: u32 = 12;

/// Descriptors that are claimed from the heap at a time.
const SLAB_DESCRIPTORS: u32 = 128;

/// Nodes of foreign buffers that are claimed from the heap at a time.
const SLAB_FOREIGN: usize = 64;

/// The places of a foreign pool's two lists: loans to which nothing refers any more, in its first
/// class, to which all its buffers belong, and unused nodes.
const RETURNED: usize = 0;
const SPARE: usize = 1;

/// In [`PoolCore::alive`]: one descriptor, one buffer, and whether there are handles.
const ONE_DESC: u64 = 1;
const ONE_BUF: u64 = 1 << 31;
const HANDLES: u64 = 1 << 63;

/// Nodes of a slab that have never been used. They are taken only when the free list is empty, so
/// how many are gone is also the high water mark.
struct Fresh<T> {
    next: Cell<*mut T>,
    left: Cell<u32>,
    taken: Cell<u32>,
}

impl<T> Fresh<T> {
    const fn new() -> Self {
        Self { next: Cell::new(core::ptr::null_mut()), left: Cell::new(0), taken: Cell::new(0) }
    }

    fn refill(&self, slab: NonNull<T>, count: u32) {
        self.next.set(slab.as_ptr());
        self.left.set(count);
    }

    /// The place of the next unused node, not initialised.
    fn take(&self) -> Option<NonNull<T>> {
        self.left.set(self.left.get().checked_sub(1)?);
        self.taken.set(self.taken.get() + 1);
        let place = self.next.get();
        self.next.set(place.wrapping_add(1));
        NonNull::new(place)
    }
}

/// One size class.
struct Class {
    /// Descriptors given back together with their buffer, which they keep, with one reference: what
    /// the next message of this size takes. Only the buffer's descriptor is looked at then.
    pairs: Cell<Option<DescRef>>,
    /// Buffers without a descriptor.
    free: Cell<Option<BufRef>>,
    /// Octets of a buffer; 0 in the unused places.
    octets: usize,
    octets_left: Cell<usize>,
    fresh: Fresh<Buf>,
    /// First octet of the next unused buffer.
    fresh_base: Cell<*mut u8>,
}

impl Class {
    fn new(size: Option<&SizeClass>) -> Self {
        Self {
            pairs: Cell::new(None),
            free: Cell::new(None),
            octets: size.map_or(0, |size| size.octets),
            octets_left: Cell::new(size.map_or(0, |size| size.octets_max)),
            fresh: Fresh::new(),
            fresh_base: Cell::new(core::ptr::null_mut()),
        }
    }

    fn unlist_pair(&self) -> Option<DescRef> {
        let desc = self.pairs.get()?;
        self.pairs.set(desc.next.get());
        Some(desc)
    }
}

/// The pool itself, to which all handles and all nodes in use refer.
pub(super) struct PoolCore {
    desc_free: Cell<Option<DescRef>>,
    /// Descriptors in use, buffers in use, and one bit for the handles. At 0 the pool is freed.
    alive: Cell<u64>,
    classes: [Class; CLASSES_MAX],
    desc_fresh: Fresh<Desc>,
    desc_left: Cell<u32>,
    handles: Cell<usize>,
    failures: Cell<u64>,
    arena_base: *mut u8,
    arena_octets: usize,
    arena_used: Cell<usize>,
    slabs: RefCell<Vec<(NonNull<u8>, Layout)>>,
    /// Memory in which the arena lies.
    _memory: Box<dyn Any>,
}

impl PoolCore {
    /// Room for `count` nodes, not initialised, freed with the pool.
    fn slab<T>(&self, count: u32) -> Option<NonNull<T>> {
        let layout = Layout::array::<T>(count as usize).ok().filter(|layout| layout.size() != 0)?;
        let mut slabs = self.slabs.try_borrow_mut().ok()?;
        slabs.try_reserve(1).ok()?;
        // SAFETY: the layout's size is not zero.
        let slab = NonNull::new(unsafe { alloc::alloc::alloc(layout) })?;
        slabs.push((slab, layout));
        Some(slab.cast())
    }

    #[cold]
    pub(super) fn count_failure(&self) -> NoBuffers {
        self.failures.set(self.failures.get().saturating_add(1));
        NoBuffers
    }

    /// The first octet of the arena, and how many it has.
    pub(super) fn region(&self) -> (*mut u8, usize) {
        (self.arena_base, self.arena_octets)
    }

    /// Buffers in use.
    pub(super) fn buffers_live(&self) -> u32 {
        ((self.alive.get() & !HANDLES) / ONE_BUF) as u32
    }

    /// The position in the arena, in octets, of an octet of this pool; none of another's.
    #[inline]
    pub(super) fn offset(&self, octet: *const u8) -> Option<usize> {
        let offset = octet.addr().checked_sub(self.arena_base.addr())?;
        (offset <= self.arena_octets).then_some(offset)
    }

    fn stats(&self) -> PoolStats {
        let alive = self.alive.get();
        let class_stats = |class: &Class| {
            let mut free = 0;
            let mut next = class.free.get();
            while let Some(buf) = next {
                free += 1;
                next = buf.next_free.get();
            }
            let mut next = class.pairs.get();
            while let Some(desc) = next {
                free += 1;
                next = desc.next.get();
            }
            let high_water = class.fresh.taken.get();
            ClassStats { octets: class.octets, live: high_water - free, high_water }
        };
        PoolStats {
            descriptors_live: (alive & (ONE_BUF - 1)) as u32,
            descriptors_high_water: self.desc_fresh.taken.get(),
            buffers_live: self.buffers_live(),
            octets_used: self.arena_used.get(),
            failures: self.failures.get(),
            classes: self
                .classes
                .iter()
                .filter(|class| class.octets != 0)
                .map(class_stats)
                .collect(),
        }
    }
}

impl Drop for PoolCore {
    fn drop(&mut self) {
        for (slab, layout) in self.slabs.get_mut().drain(..) {
            // SAFETY: `slab` came from the allocator with this layout and is freed once, here.
            // Nodes need no drop.
            unsafe { alloc::alloc::dealloc(slab.as_ptr(), layout) };
        }
    }
}

// These take the reference by value: the last of the `put`s frees the pool, and then no borrow of
// it may be alive.
impl CoreRef {
    /// The inside of a new pool, with one handle.
    fn with_handle(
        (arena_base, arena_octets): (*mut u8, usize),
        memory: Box<dyn Any>,
        classes: &[SizeClass],
        descriptors_max: u32,
    ) -> Self {
        let core = Box::new(PoolCore {
            desc_free: Cell::new(None),
            alive: Cell::new(HANDLES),
            classes: core::array::from_fn(|at| Class::new(classes.get(at))),
            desc_fresh: Fresh::new(),
            // The counters in `alive` have 31 bits each; the arena bounds the buffers, this the
            // descriptors.
            desc_left: Cell::new(descriptors_max.min((ONE_BUF - 1) as u32)),
            handles: Cell::new(1),
            failures: Cell::new(0),
            arena_base,
            arena_octets,
            arena_used: Cell::new(0),
            slabs: RefCell::new(Vec::new()),
            _memory: memory,
        });
        let core = NonNull::from(Box::leak(core));
        // SAFETY: the core lives on until `CoreRef::free`, which the last handle or node calls.
        unsafe { CoreRef::new(core) }
    }

    /// The inside of a pool of buffers that another has lent, at most so many at one time: it has
    /// no octets to give, only nodes.
    pub(super) fn foreign(region: (*mut u8, usize), view: Box<dyn Any>, loans_max: u32) -> Self {
        // The class's octets count its nodes.
        let nodes = loans_max.min((ONE_BUF - 1) as u32) as usize;
        Self::with_handle(region, view, &[SizeClass { octets: 0, octets_max: nodes }], 0)
    }

    /// A node for what is lent under this number, with one reference; none if as many are in use as
    /// may be.
    pub(super) fn take_foreign(self, loan: u32) -> Option<BufRef> {
        let spare = &self.classes[SPARE];
        let buf = match spare.free.get() {
            Some(buf) => {
                spare.free.set(buf.next_free.get());
                buf
            }
            None => self.fresh_foreign()?,
        };
        buf.refs.set(FOREIGN | 1);
        buf.loan.set(loan);
        self.alive.set(self.alive.get() + ONE_BUF);
        Some(buf)
    }

    fn fresh_foreign(self) -> Option<BufRef> {
        let class = &self.classes[RETURNED];
        if class.fresh.left.get() == 0 {
            let count = class.octets_left.get().min(SLAB_FOREIGN);
            let slab = self.slab::<Buf>(count as u32)?;
            class.octets_left.set(class.octets_left.get() - count);
            class.fresh.refill(slab, count as u32);
        }
        self.node(RETURNED, self.arena_base)
    }

    /// The number of a loan to which nothing refers any more; its node is unused from then on.
    pub(super) fn take_returned(self) -> Option<u32> {
        let (returned, spare) = (&self.classes[RETURNED], &self.classes[SPARE]);
        let buf = returned.free.get()?;
        returned.free.set(buf.next_free.get());
        buf.next_free.set(spare.free.get());
        spare.free.set(Some(buf));
        Some(buf.loan.get())
    }

    /// There is one handle less.
    pub(super) fn drop_handle(self) {
        let handles = self.handles.get() - 1;
        self.handles.set(handles);
        if handles == 0 {
            self.leave(HANDLES);
        }
    }

    /// A descriptor that holds a buffer of at least `octets` octets, with one reference, and the
    /// octets of the buffer. `base` of the descriptor is the buffer's; the other fields of the
    /// slice, `next`, `rest` and the attributes are left to the caller.
    #[inline]
    pub(super) fn take_both(self, octets: usize) -> Option<(DescRef, usize)> {
        let class = self.classes.iter().find(|class| octets <= class.octets)?;
        let Some(desc) = class.pairs.get() else {
            return self.take_both_slow(octets);
        };
        class.pairs.set(desc.next.get());
        self.alive.set(self.alive.get() + (ONE_BUF + ONE_DESC));
        Some((desc, class.octets))
    }

    /// There is no pair of the right size: brings one together.
    #[cold]
    #[inline(never)]
    fn take_both_slow(self, octets: usize) -> Option<(DescRef, usize)> {
        let first = self.classes.iter().position(|class| octets <= class.octets)?;
        let buf = (first..CLASSES_MAX).find_map(|at| self.any_buf(at))?;
        buf.refs.set(1);
        let Some(desc) = self.unlist_desc(buf) else {
            self.list_buf(buf);
            return None;
        };
        desc.base.set(buf.base);
        self.alive.set(self.alive.get() + (ONE_BUF + ONE_DESC));
        Some((desc, buf.capacity as usize))
    }

    /// A descriptor for `buf`, of which it takes a reference counted by the caller. The rest as
    /// above.
    #[inline]
    pub(super) fn take_desc(self, buf: BufRef) -> Option<DescRef> {
        let desc = self.unlist_desc(buf)?;
        self.alive.set(self.alive.get() + ONE_DESC);
        Some(desc)
    }

    /// An unused buffer of one class.
    fn any_buf(self, at: usize) -> Option<BufRef> {
        let class = &self.classes[at];
        if let Some(buf) = class.free.get() {
            class.free.set(buf.next_free.get());
            return Some(buf);
        }
        if let Some(desc) = class.unlist_pair() {
            self.list_desc(desc);
            return Some(desc.buf.get());
        }
        self.fresh_buf(at)
    }

    #[inline]
    fn unlist_desc(self, buf: BufRef) -> Option<DescRef> {
        let desc = match self.desc_free.get() {
            Some(desc) => {
                self.desc_free.set(desc.next.get());
                desc
            }
            None => return self.other_desc(buf),
        };
        desc.buf.set(buf);
        Some(desc)
    }

    /// No descriptor is free by itself: one of a pair, or a fresh one.
    #[cold]
    #[inline(never)]
    fn other_desc(self, buf: BufRef) -> Option<DescRef> {
        let Some(desc) = self.classes.iter().find_map(Class::unlist_pair) else {
            return self.fresh_desc(buf);
        };
        self.list_buf(desc.buf.replace(buf));
        Some(desc)
    }

    fn fresh_buf(self, at: usize) -> Option<BufRef> {
        let class = &self.classes[at];
        if class.fresh.left.get() == 0 {
            self.grow_class(class)?;
        }
        let base = class.fresh_base.get();
        let buf = self.node(at, base)?;
        class.fresh_base.set(base.wrapping_add(class.octets));
        Some(buf)
    }

    /// The next unused node of a class, for a buffer that begins there.
    fn node(self, at: usize, base: *mut u8) -> Option<BufRef> {
        let class = &self.classes[at];
        let place = class.fresh.take()?;
        let buf = Buf {
            refs: Cell::new(1),
            capacity: class.octets as u32,
            base,
            pool: self,
            next_free: Cell::new(None),
            class: at as u32,
            loan: Cell::new(0),
        };
        // SAFETY: `place` is room for a node in a slab of this pool, not yet used, and initialised
        // by the write.
        unsafe {
            place.write(buf);
            Some(BufRef::new(place))
        }
    }

    /// Gives a class its next part of the arena.
    fn grow_class(self, class: &Class) -> Option<()> {
        // Buffers of a power of two lie on its multiples within a page, as a device expects that
        // shares the arena.
        let align = 1 << class.octets.trailing_zeros().min(PAGE_BITS);
        let begin = self.arena_used.get().next_multiple_of(align).min(self.arena_octets);
        let octets_free = (self.arena_octets - begin).min(class.octets_left.get());
        let count = octets_free.checked_div(class.octets)?.min((SLAB_OCTETS / class.octets).max(1));
        let slab = self.slab::<Buf>(u32::try_from(count).ok()?)?;
        let octets = count * class.octets;
        class.fresh_base.set(self.arena_base.wrapping_add(begin));
        class.octets_left.set(class.octets_left.get() - octets);
        self.arena_used.set(begin + octets);
        class.fresh.refill(slab, count as u32);
        Some(())
    }

    #[cold]
    fn fresh_desc(self, buf: BufRef) -> Option<DescRef> {
        if self.desc_fresh.left.get() == 0 {
            let count = self.desc_left.get().min(SLAB_DESCRIPTORS);
            let slab = self.slab::<Desc>(count)?;
            self.desc_left.set(self.desc_left.get() - count);
            self.desc_fresh.refill(slab, count);
        }
        let place = self.desc_fresh.take()?;
        // SAFETY: `place` is room for a node in a slab of this pool, not yet used, and initialised
        // by the write.
        unsafe {
            place.write(Desc::new(self, buf));
            Some(DescRef::new(place))
        }
    }

    /// Takes a buffer back without references.
    #[inline]
    pub(super) fn put_buf(self, buf: BufRef) {
        self.list_buf(buf);
        self.leave(ONE_BUF);
    }

    /// Takes a descriptor back that holds no buffer any more.
    #[inline]
    pub(super) fn put_desc(self, desc: DescRef) {
        self.list_desc(desc);
        self.leave(ONE_DESC);
    }

    /// Takes both back together: they stay so, and the counter is touched once. `desc` holds the
    /// only reference to `buf`, and keeps it.
    #[inline]
    pub(super) fn put_both(self, desc: DescRef, buf: BufRef) {
        let class = &self.classes[buf.class as usize % CLASSES_MAX];
        desc.next.set(class.pairs.get());
        class.pairs.set(Some(desc));
        self.leave(ONE_DESC + ONE_BUF);
    }

    #[inline]
    fn list_buf(self, buf: BufRef) {
        let class = &self.classes[buf.class as usize % CLASSES_MAX];
        buf.next_free.set(class.free.get());
        class.free.set(Some(buf));
    }

    #[inline]
    fn list_desc(self, desc: DescRef) {
        desc.next.set(self.desc_free.get());
        self.desc_free.set(Some(desc));
    }

    #[inline]
    fn leave(self, what: u64) {
        let alive = self.alive.get() - what;
        self.alive.set(alive);
        if alive == 0 {
            self.free();
        }
    }

    #[cold]
    #[inline(never)]
    fn free(self) {
        // SAFETY: the core came from `Box::into_raw`; with no handle and no node in use nothing
        // refers to it, and no borrow of it is alive here (all callers hold it by value).
        drop(unsafe { Box::from_raw(self.as_ptr()) });
    }
}

/// The pool of messages: buffers of several sizes in one arena, and descriptors.
///
/// A handle; cloning it is cheap. The memory is freed when the last handle and the last message are
/// gone, in any order. Nothing here blocks, and exhaustion is an answer ([`NoBuffers`]), counted,
/// never a panic.
pub struct Pool {
    core: CoreRef,
}

impl Pool {
    /// A pool on the heap of this process.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        config.check()?;
        Self::with_arena(Box::new(HeapArena::new(config.octets_max)?), config)
    }

    /// A pool in `arena`, of which it uses no more than `config.octets_max` octets.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn with_arena(arena: Box<dyn Arena>, config: &PoolConfig) -> Result<Self, PoolError> {
        config.check()?;
        let octets = arena.len().min(config.octets_max).min(BUFFER_ALIGN << 31);
        let region = (arena.base().as_ptr(), octets);
        let (classes, descriptors_max) = (&config.classes, config.descriptors_max);
        let core = CoreRef::with_handle(region, Box::new(arena), classes, descriptors_max);
        Ok(Self { core })
    }

    /// Wraps what another pool lends to this one in messages with descriptors of this one, at most
    /// `loans_max` at one time.
    pub fn foreign(&self, view: impl View + 'static, loans_max: u32) -> Foreign {
        Foreign::new(self, view, loans_max)
    }

    /// A message of `len` octets with at least `headroom` octets free in front of them.
    ///
    /// The octets are initialised memory of no meaning (what lay there before): fill all of them,
    /// through [`Message::front_mut`] or [`Message::copy_in`], before the message goes anywhere. A
    /// message that no single buffer can hold consists of several slices.
    ///
    /// # Errors
    /// [`NoBuffers`], counted.
    #[inline]
    pub fn alloc(&self, headroom: usize, len: usize) -> Result<Message, NoBuffers> {
        // Contents that start on an alignment unit are copied faster.
        let start = headroom.saturating_add(BUFFER_ALIGN - 1) & !(BUFFER_ALIGN - 1);
        match Message::in_one_buffer(self.core, start, len) {
            Some(message) => Ok(message),
            None => self.alloc_slow(headroom, len),
        }
    }

    #[cold]
    fn alloc_slow(&self, headroom: usize, len: usize) -> Result<Message, NoBuffers> {
        if let Some(message) = Message::in_one_buffer(self.core, headroom, len) {
            return Ok(message);
        }
        let largest = self.core.classes.iter().map(|class| class.octets).max().unwrap_or(0);
        let fits_one = headroom.saturating_add(len) <= largest;
        if fits_one || headroom >= largest {
            return Err(self.core.count_failure());
        }
        let first = largest - headroom;
        let part = |headroom, len| {
            Message::in_one_buffer(self.core, headroom, len)
                .ok_or_else(|| self.core.count_failure())
        };
        let mut message = part(headroom, first)?;
        while message.len() < len {
            let more = (len - message.len()).min(largest);
            message.join(part(0, more)?);
        }
        Ok(message)
    }

    /// A message with a copy of `octets`, and `headroom` octets free in front of them.
    ///
    /// # Errors
    /// [`NoBuffers`], counted.
    #[inline]
    pub fn copy_from(&self, headroom: usize, octets: &[u8]) -> Result<Message, NoBuffers> {
        let mut message = self.alloc(headroom, octets.len())?;
        match message.front_mut() {
            Some(front) if front.len() == octets.len() => front.copy_from_slice(octets),
            _ => {
                message.copy_in(0, octets);
            }
        }
        Ok(message)
    }

    /// A message of no octets, with `headroom` octets free for headers.
    ///
    /// # Errors
    /// [`NoBuffers`], counted.
    #[inline]
    pub fn empty(&self, headroom: usize) -> Result<Message, NoBuffers> {
        self.alloc(headroom, 0)
    }

    /// Figures of the pool. Walks the free lists, so it is not for every message.
    pub fn stats(&self) -> PoolStats {
        self.core.stats()
    }

    /// Number of requests that have ended in [`NoBuffers`].
    #[inline]
    pub fn failures(&self) -> u64 {
        self.core.failures.get()
    }

    /// The memory that all buffers lie in, and its size in octets: for telling a device that is to
    /// share it. Positions in it are those of [`Slice::offset`](super::Slice::offset).
    ///
    /// It stays where it is as long as there is a handle or a message. A writer to it may only
    /// write where a message lies that it has to itself, and so must one that it hands the memory
    /// on to.
    pub fn region(&self) -> (NonNull<u8>, usize) {
        let (base, octets) = self.core.region();
        // An arena's base is not null; the answer for one that is has no octets.
        NonNull::new(base).map_or((NonNull::dangling(), 0), |base| (base, octets))
    }

    pub(super) fn core(&self) -> CoreRef {
        self.core
    }
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        self.core.handles.set(self.core.handles.get() + 1);
        Self { core: self.core }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.core.drop_handle();
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.stats().fmt(f)
    }
}
