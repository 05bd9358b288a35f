//! Sizes of a pool, and its figures.

use alloc::vec;
use alloc::vec::Vec;

/// Alignment, in octets, of every arena and of every buffer in it.
///
/// A copy between unaligned buffers whose distance is a few octets modulo the page size is many
/// times slower.
pub const BUFFER_ALIGN: usize = 64;

/// Most size classes of one pool.
pub const CLASSES_MAX: usize = 8;

/// One size of buffers in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// Octets of one buffer, headroom included: a multiple of [`BUFFER_ALIGN`], not 0.
    pub octets: usize,
    /// Octets of the arena that this class may take, so that one class cannot starve the others for
    /// good.
    pub octets_max: usize,
}

/// The sizes and bounds of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Octets of the arena: the bound of all buffers together. The memory is claimed as address
    /// space at once and used piece by piece.
    pub octets_max: usize,
    /// Most descriptors (a message takes one, and one more per further slice). Each takes 192
    /// octets of heap.
    pub descriptors_max: u32,
    /// The sizes of buffers, in rising order, one to [`CLASSES_MAX`] of them.
    pub classes: Vec<SizeClass>,
}

/// Headroom, in octets, that the two large default classes have beside 16 KiB and 64 KiB of
/// content.
pub const LARGE_HEADROOM: usize = 256;

impl PoolConfig {
    /// The default classes in an arena of `octets_max` octets: 256, 2048, 16 KiB and 64 KiB, the
    /// last two with [`LARGE_HEADROOM`]. The smallest class may take a quarter of the arena, each
    /// other one half.
    pub fn with_octets_max(octets_max: usize) -> Self {
        let half = octets_max / 2;
        Self {
            octets_max,
            descriptors_max: 1 << 16,
            classes: vec![
                SizeClass { octets: 256, octets_max: octets_max / 4 },
                SizeClass { octets: 2048, octets_max: half },
                SizeClass { octets: 16 * 1024 + LARGE_HEADROOM, octets_max: half },
                SizeClass { octets: 64 * 1024 + LARGE_HEADROOM, octets_max: half },
            ],
        }
    }

    /// Whether a pool can be made of this.
    pub(super) fn check(&self) -> Result<(), PoolError> {
        let sizes_fit = self.classes.iter().all(|class| {
            class.octets != 0
                && class.octets.is_multiple_of(BUFFER_ALIGN)
                && u32::try_from(class.octets).is_ok()
        });
        let rising = self.classes.windows(2).all(|pair| pair[0].octets < pair[1].octets);
        let count_fits = (1..=CLASSES_MAX).contains(&self.classes.len());
        if sizes_fit && rising && count_fits { Ok(()) } else { Err(PoolError::BadClasses) }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self::with_octets_max(64 << 20)
    }
}

/// Why no pool could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No size class, more than [`CLASSES_MAX`], a size that is not a multiple of [`BUFFER_ALIGN`],
    /// or not in rising order.
    #[error(
        "a pool needs 1 to {CLASSES_MAX} size classes in rising order, each a multiple of {BUFFER_ALIGN} octets"
    )]
    BadClasses,
    /// The machine has no memory for it.
    #[error("no memory for the pool")]
    OutOfMemory,
}

/// The pool is exhausted: the message could not be made. The pool has counted it (see
/// [`PoolStats::failures`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message pool is exhausted")]
pub struct NoBuffers;

/// Figures of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Octets of one buffer.
    pub octets: usize,
    /// Buffers in use.
    pub live: u32,
    /// Most buffers that were in use at one time.
    pub high_water: u32,
}

/// Figures of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Descriptors in use.
    pub descriptors_live: u32,
    /// Most descriptors that were in use at one time.
    pub descriptors_high_water: u32,
    /// Buffers in use, of all classes.
    pub buffers_live: u32,
    /// Octets of the arena handed to size classes so far.
    pub octets_used: usize,
    /// Requests that ended in [`NoBuffers`].
    pub failures: u64,
    /// The size classes, smallest first.
    pub classes: Vec<ClassStats>,
}
