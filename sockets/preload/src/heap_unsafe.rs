//! Memory for this library: programs may call what it stands in front of in a signal's handler,
//! where the C library's functions for memory may not be called (signal-safety(7)).

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Octets of one block. What a call needs, it needs for itself and for a short time.
const BLOCK_OCTETS: usize = 4096;
const BLOCKS: usize = u64::BITS as usize;

#[repr(align(64))]
struct Block(UnsafeCell<[u8; BLOCK_OCTETS]>);

/// A few blocks of its own, and pages of the system's for what is larger, or if all are taken. No
/// lock, and no state that a fork could leave half changed.
struct Heap {
    blocks: [Block; BLOCKS],
    /// A bit for each block that is taken.
    taken: AtomicU64,
}

#[global_allocator]
static HEAP: Heap = Heap {
    blocks: [const { Block(UnsafeCell::new([0; BLOCK_OCTETS])) }; BLOCKS],
    taken: AtomicU64::new(0),
};

// SAFETY: a block is used by the caller alone that has set its bit.
unsafe impl Sync for Heap {}

impl Heap {
    /// A free block, from now on taken.
    fn take(&self) -> Option<*mut u8> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let free = taken.trailing_ones();
            let block = self.blocks.get(free as usize)?;
            let more = taken | 1 << free;
            let set =
                self.taken.compare_exchange_weak(taken, more, Ordering::Acquire, Ordering::Relaxed);
            match set {
                Ok(_) => return Some(block.0.get().cast()),
                Err(now) => taken = now,
            }
        }
    }

    /// Number of the block; `None` for pages of the system.
    fn place(&self, memory: *mut u8) -> Option<usize> {
        let offset = memory.addr().checked_sub(self.blocks.as_ptr().addr())?;
        (offset < size_of_val(&self.blocks)).then_some(offset / BLOCK_OCTETS)
    }
}

fn fits(octets: usize, layout: Layout) -> bool {
    octets <= BLOCK_OCTETS && layout.align() <= align_of::<Block>()
}

// SAFETY: a block is as large and aligned as `fits` says and given to one caller at a time; pages
// are the system's.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fits(layout.size(), layout)
            && let Some(block) = self.take()
        {
            return block;
        }
        let (rights, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the system chooses a place where nothing is. Pages are aligned more than anything
        // asks for.
        let pages = unsafe { mmap_anonymous(std::ptr::null_mut(), layout.size(), rights, private) };
        pages.map_or(std::ptr::null_mut(), <*mut _>::cast)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match self.place(memory) {
            Some(place) => {
                self.taken.fetch_and(!(1 << place), Ordering::Release);
            }
            // SAFETY: they were mapped with this size, and the caller uses them no more.
            None => unsafe {
                let _ = munmap(memory.cast(), layout.size());
            },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, octets: usize) -> *mut u8 {
        if self.place(memory).is_some() && fits(octets, layout) {
            return memory;
        }
        // SAFETY: the caller says that the size can be that of a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(octets, layout.align()) };
        // SAFETY: the caller says that it is not zero.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are as long as what is copied, and different; the old one is used no
            // more.
            unsafe {
                std::ptr::copy_nonoverlapping(memory, new, octets.min(layout.size()));
                self.dealloc(memory, layout);
            }
        }
        new
    }
}
