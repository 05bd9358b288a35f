//! The memory of both directions, as the checker has it: words as its atomics, buffers as its
//! cells, of which it says when one thread writes what another may just be reading.

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use std::io;
use std::sync::Arc;

use crate::layout::{BUFFER_OCTETS, FRAME_OCTETS_MAX, Geometry, INLINE_OCTETS, SLOTS};

/// State of a side that the other one sees, outside of the slots.
#[derive(Default)]
struct Side {
    state: AtomicU64,
    consumed: AtomicU64,
    processors: AtomicU64,
}

/// A slot: its header, its word, and the buffer beside.
struct Slot {
    header: AtomicU64,
    word: AtomicU64,
    buffer: UnsafeCell<[u8; BUFFER_OCTETS]>,
}

impl Default for Slot {
    fn default() -> Self {
        let buffer = UnsafeCell::new([0; BUFFER_OCTETS]);
        Self { header: AtomicU64::default(), word: AtomicU64::default(), buffer }
    }
}

/// The memory of two sides.
pub(crate) struct Memory {
    sides: [Side; 2],
    lanes: [[Slot; SLOTS]; 2],
}

// SAFETY: the buffers are reached in `Lane` alone, where the checker ends the run at once if one is
// written while another thread may reach it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn heap(_: usize) -> io::Result<Self> {
        Ok(Self { sides: Default::default(), lanes: Default::default() })
    }
}

/// The lines of one side.
pub(crate) struct SideLines(Arc<Memory>, usize);

impl SideLines {
    pub(crate) fn new(memory: &Arc<Memory>, side: usize) -> Option<Self> {
        (side < 2).then(|| Self(Arc::clone(memory), side))
    }

    pub(crate) fn state(&self) -> &AtomicU64 {
        &self.0.sides[self.1].state
    }

    pub(crate) fn consumed(&self) -> &AtomicU64 {
        &self.0.sides[self.1].consumed
    }

    pub(crate) fn processors(&self) -> &AtomicU64 {
        &self.0.sides[self.1].processors
    }
}

/// The slots and buffers of one direction.
pub(crate) struct Lane(Arc<Memory>, usize);

impl Lane {
    pub(crate) fn new(memory: &Arc<Memory>, _: &Geometry, side: usize) -> Option<Self> {
        (side < 2).then(|| Self(Arc::clone(memory), side))
    }

    fn slot(&self, position: u32) -> &Slot {
        &self.0.lanes[self.1][position as usize % SLOTS]
    }

    pub(crate) fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    pub(crate) fn slots(&self) -> u32 {
        SLOTS as u32
    }

    pub(crate) fn slots_of(&self, octets: usize) -> u32 {
        octets.div_ceil(BUFFER_OCTETS).max(1) as u32
    }

    pub(crate) fn header(&self, position: u32) -> &AtomicU64 {
        &self.slot(position).header
    }

    pub(crate) fn prefetch(&self, _: u32) {}

    pub(crate) fn write_inline(&self, position: u32, frame: &[u8]) {
        let mut word = [0; INLINE_OCTETS];
        word[..frame.len()].copy_from_slice(frame);
        let word = u64::from_ne_bytes(word);
        self.slot(position).word.store(word, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn read_inline(&self, position: u32, to: &mut [u8]) {
        let word = self.slot(position).word.load(std::sync::atomic::Ordering::Relaxed);
        to.copy_from_slice(&word.to_ne_bytes()[..to.len()]);
    }

    pub(crate) fn write_buffer(&self, position: u32, at: usize, part: &[u8]) {
        for (octet, at) in part.iter().zip(at..) {
            let slot = self.slot(position.wrapping_add((at / BUFFER_OCTETS) as u32));
            slot.buffer.with_mut(|buffer| {
                // SAFETY: the checker has seen that no other thread reaches the buffer now; the
                // reference ends here.
                unsafe { (*buffer)[at % BUFFER_OCTETS] = *octet };
            });
        }
    }

    pub(crate) fn read_buffer(&self, position: u32, to: &mut [u8]) {
        for (at, octet) in to.iter_mut().enumerate() {
            let slot = self.slot(position.wrapping_add((at / BUFFER_OCTETS) as u32));
            // SAFETY: the checker has seen that no other thread writes the buffer now; the
            // reference ends here.
            *octet = slot.buffer.with(|buffer| unsafe { (&*buffer)[at % BUFFER_OCTETS] });
        }
    }

    pub(crate) fn poke(&self, _: usize, _: u64) {}

    pub(crate) fn memory_octets(&self) -> usize {
        SLOTS
    }
}
