//! The shared memory itself, and the only code that touches it.
//!
//! Another process may write any octet at any time. So no reference to plain data in it is ever
//! made: words are atomics of one size, and the octets of a long frame are copied from and to raw
//! pointers, each octet once, by code that gets along with whatever it finds. What a copy finds is
//! believed only after it has been copied out.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::layout::{
    CONSUMED_AT, Geometry, HEADER_OCTETS, INLINE_OCTETS, PROCESSORS_AT, SIDE_OCTETS, SLOT_OCTETS,
    STATE_AT,
};

/// Alignment of memory on the heap, in octets: what a mapping has.
const PAGE_OCTETS: usize = 4096;
/// The seals that keep the file's size as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// The kind of file system of a memory file (`TMPFS_MAGIC` of `include/uapi/linux/magic.h`). One of
/// huge pages has another, and may have no page when it is touched.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Why a file that the other side sent is not taken.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The file's size could be changed while it is used, or it is no memory file.
    #[error("the peer's memory is not sealed")]
    NotSealed,
    /// The memory file has huge pages or the like.
    #[error("the peer's memory is of another kind")]
    Kind,
    /// The file has another size than the hello says.
    #[error("the peer's memory has {octets} octets where {expected} are expected")]
    Size {
        /// The size it has.
        octets: u64,
        /// The size it should have.
        expected: u64,
    },
    /// The system refused.
    #[error("the memory cannot be mapped: {0}")]
    System(#[from] io::Error),
}

/// Memory that two sides share: a mapped file, or a part of the heap for two sides in one process.
pub(crate) struct Memory {
    base: NonNull<u8>,
    octets: usize,
    heap: Option<Layout>,
}

// SAFETY: the memory is reached through atomics and raw copies alone, as code that shares it with
// another process must do, and it belongs to no thread.
unsafe impl Send for Memory {}
// SAFETY: as above. Which side may copy where is a matter of `Lane`, of which each side has one per
// direction.
unsafe impl Sync for Memory {}

impl Memory {
    /// A new sealed memory file and its mapping.
    pub(crate) fn create(octets: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("xk-shm", flags)?;
        rustix::fs::ftruncate(&fd, octets as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok((Self::map(fd.as_fd(), octets)?, fd))
    }

    /// Maps the file that the other side made, if nothing about it can hurt.
    ///
    /// The seals come first: only memory files answer the question about them, and every other
    /// question to a file of a file system in user space could be kept waiting without end.
    pub(crate) fn accept(fd: BorrowedFd<'_>, octets: usize) -> Result<Self, MemoryError> {
        let seals = rustix::fs::fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
        if !seals.contains(SEALS) || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(MemoryError::NotSealed);
        }
        let kind = rustix::fs::fstatfs(fd).map_err(io::Error::from)?.f_type;
        if u64::try_from(kind).ok() != Some(TMPFS_MAGIC) {
            return Err(MemoryError::Kind);
        }
        let size = rustix::fs::fstat(fd).map_err(io::Error::from)?.st_size;
        let (size, expected) = (u64::try_from(size).unwrap_or(0), octets as u64);
        if size != expected {
            return Err(MemoryError::Size { octets: size, expected });
        }
        Ok(Self::map(fd, octets)?)
    }

    fn map(fd: BorrowedFd<'_>, octets: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = core::ptr::null_mut();
        // SAFETY: no address is asked for, so no mapping that exists is replaced.
        let base =
            unsafe { rustix::mm::mmap(nowhere, octets, protection, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, octets, heap: None })
    }

    /// Memory for two sides in one process, without a file.
    pub(crate) fn heap(octets: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(octets.max(1), PAGE_OCTETS);
        let layout = layout.map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        Ok(Self {
            base: base.ok_or(io::ErrorKind::OutOfMemory)?,
            octets: layout.size(),
            heap: Some(layout),
        })
    }

    /// Writes a word anywhere, as a hostile peer can: for tests. Out of range nothing happens.
    pub(crate) fn poke(&self, at: usize, value: u64) {
        let at = at & !7;
        if at.checked_add(8).is_some_and(|end| end <= self.octets) {
            // SAFETY: the word lies inside, as was just seen, and is aligned, since the base is
            // aligned to a page.
            let word = unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) };
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let base = self.base.as_ptr();
        match self.heap {
            // SAFETY: `heap` allocated it with this layout; a reference to it holds the `Arc` that
            // is gone now.
            Some(layout) => unsafe { dealloc(base, layout) },
            None => {
                // SAFETY: this is the mapping that `map` made, of this size; a reference to it
                // holds the `Arc` that is gone.
                let _ = unsafe { rustix::mm::munmap(base.cast::<c_void>(), self.octets) };
            }
        }
    }
}

/// The lines of one side: what it tells the other outside of the slots.
pub(crate) struct SideLines {
    memory: Arc<Memory>,
    at: usize,
}

impl SideLines {
    /// The lines of `side`; none if the memory is too small.
    pub(crate) fn new(memory: &Arc<Memory>, side: usize) -> Option<Self> {
        let at = side * SIDE_OCTETS;
        (side < 2 && at + SIDE_OCTETS <= memory.octets)
            .then(|| Self { memory: Arc::clone(memory), at })
    }

    /// Whether the side sleeps.
    #[inline]
    pub(crate) fn state(&self) -> &AtomicU64 {
        // SAFETY: `new` has seen that the lines lie inside the memory, which the handle keeps;
        // their places are aligned.
        unsafe { AtomicU64::from_ptr(self.memory.base.as_ptr().add(self.at + STATE_AT).cast()) }
    }

    /// Number of frames that the side has consumed, modulo 2^32.
    #[inline]
    pub(crate) fn consumed(&self) -> &AtomicU64 {
        // SAFETY: as for `state`.
        unsafe { AtomicU64::from_ptr(self.memory.base.as_ptr().add(self.at + CONSUMED_AT).cast()) }
    }

    /// The processors that the side may run on, one bit each.
    pub(crate) fn processors(&self) -> &AtomicU64 {
        let place = self.at + PROCESSORS_AT;
        // SAFETY: as for `state`.
        unsafe { AtomicU64::from_ptr(self.memory.base.as_ptr().add(place).cast()) }
    }
}

/// The slots and buffers of one direction.
pub(crate) struct Lane {
    memory: Arc<Memory>,
    slots: *mut u8,
    buffers: *mut u8,
    mask: u32,
    stride: usize,
    buffer_octets: usize,
    frame_octets_max: usize,
}

// SAFETY: a lane refers to shared memory, which it keeps, and belongs to no thread.
unsafe impl Send for Lane {}

impl Lane {
    /// The lane on which `side` sends; none if the memory is too small for the geometry.
    pub(crate) fn new(memory: &Arc<Memory>, geometry: &Geometry, side: usize) -> Option<Self> {
        if side > 1 || memory.octets < geometry.octets() {
            return None;
        }
        let base = memory.base.as_ptr();
        Some(Self {
            memory: Arc::clone(memory),
            slots: base.wrapping_add(geometry.slots_at(side)),
            buffers: base.wrapping_add(geometry.buffers_at(side)),
            mask: geometry.slots() - 1,
            stride: geometry.stride(),
            buffer_octets: geometry.buffer_octets() as usize,
            frame_octets_max: geometry.frame_octets_max() as usize,
        })
    }

    /// The longest frame, in octets.
    #[inline]
    pub(crate) fn frame_octets_max(&self) -> usize {
        self.frame_octets_max
    }

    /// Number of slots.
    #[inline]
    pub(crate) fn slots(&self) -> u32 {
        self.mask.wrapping_add(1)
    }

    /// Number of slots that a frame takes which is not longer than the longest.
    #[inline]
    pub(crate) fn slots_of(&self, octets: usize) -> u32 {
        if octets <= self.buffer_octets { 1 } else { octets.div_ceil(self.buffer_octets) as u32 }
    }

    #[inline]
    fn slot(&self, position: u32) -> *mut u8 {
        self.slots.wrapping_add((position & self.mask) as usize * SLOT_OCTETS)
    }

    #[inline]
    fn buffer(&self, position: u32) -> *mut u8 {
        self.buffers.wrapping_add((position & self.mask) as usize * self.stride)
    }

    /// The word in front of a slot.
    #[inline]
    pub(crate) fn header(&self, position: u32) -> &AtomicU64 {
        // SAFETY: the mask keeps the slot inside the slots, which `new` has seen to lie inside the
        // memory, which the lane keeps; slots are aligned to 128 octets.
        unsafe { AtomicU64::from_ptr(self.slot(position).cast()) }
    }

    /// One of the words behind the header; `at` is below [`INLINE_OCTETS`] / 8.
    #[inline]
    fn word(&self, position: u32, at: usize) -> &AtomicU64 {
        let at = at.min(INLINE_OCTETS / 8 - 1);
        let place = self.slot(position).wrapping_add(HEADER_OCTETS + at * 8);
        // SAFETY: as for `header`; the word is one of the slot's 15 others.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    /// Asks the processor for a slot that will be looked at soon.
    #[inline]
    pub(crate) fn prefetch(&self, position: u32) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint about an address inside the memory; it reads nothing that the program
            // can see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.slot(position).cast::<i8>()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = position;
    }

    /// Puts a short frame into the slot. What is longer than [`INLINE_OCTETS`] is cut.
    #[inline]
    pub(crate) fn write_inline(&self, position: u32, frame: &[u8]) {
        let frame = &frame[..frame.len().min(INLINE_OCTETS)];
        let (words, rest) = frame.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            self.word(position, at).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let last = match frame.last_chunk::<8>() {
                // The last eight octets without those that a whole word has had.
                Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
                None => rest.iter().rev().fold(0, |word, octet| word << 8 | u64::from(*octet)),
            };
            self.word(position, words.len()).store(last.to_le(), Ordering::Relaxed);
        }
    }

    /// Copies the first octets of a slot out: as many as `to` takes, at most [`INLINE_OCTETS`].
    #[inline]
    pub(crate) fn read_inline(&self, position: u32, to: &mut [u8]) {
        let (words, rest) = to.as_chunks_mut::<8>();
        let count = words.len();
        for (at, word) in words.iter_mut().take(INLINE_OCTETS / 8).enumerate() {
            *word = self.word(position, at).load(Ordering::Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() && count < INLINE_OCTETS / 8 {
            let last = self.word(position, count).load(Ordering::Relaxed);
            for (octet, from) in rest.iter_mut().zip(last.to_ne_bytes()) {
                *octet = from;
            }
        }
    }

    /// Puts a part of a long frame into the buffers of its slots, from octet `at` on. What does not
    /// fit is cut.
    #[inline]
    pub(crate) fn write_buffer(&self, position: u32, at: usize, part: &[u8]) {
        let (mut slot, mut at, mut part) = (position, at, part);
        while at >= self.buffer_octets {
            (slot, at) = (slot.wrapping_add(1), at - self.buffer_octets);
        }
        while let Some(room) = self.room_of(part.len(), at) {
            // SAFETY: a buffer has `stride` octets, not less than `buffer_octets`, and lies inside
            // the memory (see `header`), so `at..at + room` does; `part` has as many and cannot
            // overlap it, since no reference to shared memory exists.
            unsafe { copy(part.as_ptr(), self.buffer(slot).wrapping_add(at), room) };
            (slot, at, part) = (slot.wrapping_add(1), 0, &part[room..]);
        }
    }

    /// Copies the first octets of a long frame out: as many as `to` takes, at most as many as the
    /// longest frame has.
    #[inline]
    pub(crate) fn read_buffer(&self, position: u32, to: &mut [u8]) {
        let octets = to.len().min(self.frame_octets_max);
        let (mut slot, mut to) = (position, &mut to[..octets]);
        while let Some(room) = self.room_of(to.len(), 0) {
            // SAFETY: as for `write_buffer`. The peer may write meanwhile: then octets of no
            // meaning are copied, and any octets are valid in `to`.
            unsafe { copy(self.buffer(slot), to.as_mut_ptr(), room) };
            (slot, to) = (slot.wrapping_add(1), &mut to[room..]);
        }
    }

    /// Number of these octets that lie in one buffer from its octet `at` on; `None` if there are
    /// none.
    #[inline]
    fn room_of(&self, octets: usize, at: usize) -> Option<usize> {
        let room = octets.min(self.buffer_octets.min(self.stride).saturating_sub(at));
        (room > 0).then_some(room)
    }

    /// Writes a word anywhere: see [`Memory::poke`].
    pub(crate) fn poke(&self, at: usize, value: u64) {
        self.memory.poke(at, value);
    }

    /// Octets of the whole memory.
    pub(crate) fn memory_octets(&self) -> usize {
        self.memory.octets
    }
}

/// Octets that are copied at a time when the distance of the two places is awkward.
const PIECE_OCTETS: usize = 128;

/// Copies octets from or to shared memory.
///
/// A forward copy is many times slower if its destination lies 1 to 63 octets behind its source
/// modulo the page size: each load then seems to depend on a store still under way. Pieces from the
/// end backwards avoid that.
///
/// # Safety
/// Both places have `octets` octets, and do not overlap.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, octets: usize) {
    let distance = to.addr().wrapping_sub(from.addr()) % PAGE_OCTETS;
    if octets <= 4 * PIECE_OCTETS || !(1..64).contains(&distance) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from, to, octets) };
        return;
    }
    let mut end = octets;
    while end > 0 {
        let start = end.saturating_sub(PIECE_OCTETS);
        // SAFETY: a piece of the caller's.
        unsafe {
            core::ptr::copy_nonoverlapping(from.add(start), to.add(start), end - start);
        }
        end = start;
    }
}
