//! The memory behind a pool.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::config::{BUFFER_ALIGN, PoolError};

/// Memory in which a pool keeps the octets of its buffers.
///
/// # Safety
/// While the arena lives, at whatever place it is moved to:
/// - [`base`](Self::base) and [`len`](Self::len) answer the same as before,
/// - the `len` octets from `base` on can be read and written, were zero (initialised) when the
///   arena was made, and `base` is a multiple of [`BUFFER_ALIGN`],
/// - nothing in this program reads or writes them except through the one pool that the arena was
///   given to.
///
/// Another process may have the same memory mapped. Where it may also write, the program that hands
/// it octets must not look at them again as if they could not change: it copies first, then checks.
pub unsafe trait Arena {
    /// The first octet.
    fn base(&self) -> NonNull<u8>;

    /// The size in octets.
    fn len(&self) -> usize;

    /// Whether the arena has no octets.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An arena on the heap of this process, which begins at a page. Its pages are the operating
/// system's zero pages until they are first used: an idle pool costs address space and no memory.
#[derive(Debug)]
pub struct HeapArena {
    block: NonNull<u8>,
    base: NonNull<u8>,
    layout: Layout,
    octets: usize,
}

/// An alignment for which allocators hand out zero pages as they are. For a greater one Rust's
/// system allocator writes every octet itself, so the arena aligns its base within the block.
const BLOCK_ALIGN: usize = 16;

/// Octets of a page: devices that share the arena want whole ones, with nothing else in them.
const PAGE: usize = 4096;

impl HeapArena {
    /// An arena of `octets` octets (at least one alignment unit), all zero.
    ///
    /// # Errors
    /// [`PoolError::OutOfMemory`].
    pub fn new(octets: usize) -> Result<Self, PoolError> {
        let octets = octets.max(BUFFER_ALIGN);
        let layout = octets
            .checked_next_multiple_of(PAGE)
            .and_then(|octets| octets.checked_add(PAGE))
            .and_then(|size| Layout::from_size_align(size, BLOCK_ALIGN).ok())
            .ok_or(PoolError::OutOfMemory)?;
        // SAFETY: the layout's size is not zero.
        let block = unsafe { alloc::alloc::alloc_zeroed(layout) };
        let block = NonNull::new(block).ok_or(PoolError::OutOfMemory)?;
        let skip = block.as_ptr().align_offset(PAGE) % PAGE;
        // SAFETY: `skip` is less than a page, and the block has a page more than the arena.
        let base = unsafe { block.add(skip) };
        Ok(Self { block, base, layout, octets })
    }
}

impl Drop for HeapArena {
    fn drop(&mut self) {
        // SAFETY: `block` came from the allocator with this very layout and is freed only here.
        unsafe { alloc::alloc::dealloc(self.block.as_ptr(), self.layout) };
    }
}

// SAFETY: the block is allocated zeroed, `octets` from the aligned base on lie in it, it stays
// where it is until drop, and its address is handed out through this trait alone.
unsafe impl Arena for HeapArena {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.octets
    }
}
