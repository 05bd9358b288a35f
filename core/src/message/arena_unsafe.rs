//! The memory behind a pool.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::config::{BUFFER_ALIGN, PoolError};

/// Memory in which a pool keeps the octets of its buffers.
///
/// # Safety
/// While the arena lives, at whatever place it is moved to:
/// - [`base`](Self::base) and [`len`](Self::len) answer the same as before,
/// - the `len` octets from `base` on can be read and written, were zero (initialised) when the arena was made, and
///   `base` is a multiple of [`BUFFER_ALIGN`],
/// - nobody in this program reads or writes them except through the one pool that the arena was given to.
///
/// Another process may have the same memory mapped. Where it may also write, whoever hands it octets must not look at
/// them again as if they could not change: it copies first, then checks.
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

/// An arena on the heap of this process.
#[derive(Debug)]
pub struct HeapArena {
    base: NonNull<u8>,
    layout: Layout,
}

impl HeapArena {
    /// An arena of `octets` octets (at least one alignment unit), all zero.
    ///
    /// # Errors
    /// [`PoolError::OutOfMemory`].
    pub fn new(octets: usize) -> Result<Self, PoolError> {
        let layout = Layout::from_size_align(octets.max(BUFFER_ALIGN), BUFFER_ALIGN)
            .map_err(|_| PoolError::OutOfMemory)?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(PoolError::OutOfMemory)?;
        Ok(Self { base, layout })
    }
}

impl Drop for HeapArena {
    fn drop(&mut self) {
        // SAFETY: `base` came from the allocator with this very layout and is freed only here.
        unsafe { alloc::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: the block is allocated zeroed with BUFFER_ALIGN, stays where it is until drop, and its address is handed out
// through this trait alone.
unsafe impl Arena for HeapArena {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}
