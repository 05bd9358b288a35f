//! An allocator that counts, for tests that must not allocate.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use std::alloc::System;

thread_local! {
    /// Allocations of this thread; a plain number, so that counting allocates nothing itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Octets that this thread has taken and not given back.
    static OCTETS: Cell<i64> = const { Cell::new(0) };
}

fn count(octets: usize) {
    // Fails only while the thread ends, when the count is not asked for.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    grow(octets as i64);
}

fn grow(octets: i64) {
    let _ = OCTETS.try_with(|live| live.set(live.get() + octets));
}

/// The system's allocator, with counters. A test binary that checks "no allocation per message"
/// installs it: `#[global_allocator] static COUNTED: CountingAllocator = CountingAllocator;`
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

// SAFETY: every operation is the system allocator's, given on unchanged; counting touches a number
// of this thread alone and neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        grow(-(layout.size() as i64));
        // SAFETY: the caller gives back what `alloc`, `alloc_zeroed` or `realloc` above gave: the
        // system's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        grow(-(layout.size() as i64));
        // SAFETY: the caller gives what `alloc`, `alloc_zeroed` or `realloc` above gave, and keeps
        // `realloc`'s contract.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Number of allocations of this thread, if a [`CountingAllocator`] is installed.
#[must_use]
pub fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

/// Octets that this thread has allocated and not freed, if a [`CountingAllocator`] is installed.
/// Memory that one thread takes and another gives back makes both wrong.
#[must_use]
pub fn octets_live() -> i64 {
    OCTETS.with(Cell::get)
}

/// Whether a [`CountingAllocator`] is installed.
#[must_use]
pub fn counts_allocations() -> bool {
    let before = allocations();
    drop(core::hint::black_box(Box::new(before)));
    allocations() != before
}
