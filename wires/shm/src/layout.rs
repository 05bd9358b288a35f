//! The layout of the memory that two sides share.
//!
//! ```text
//! 0              line of side 0: state, processors; 128 on: what it has consumed
//! 256            the same of side 1
//! 4096           slots of what side 0 sends, 128 octets each
//!                slots of what side 1 sends
//!                buffers of what side 0 sends, one a slot, if a frame can be too long for a slot
//!                buffers of what side 1 sends
//! ```
//!
//! A frame that is longer than a buffer takes as many slots in a row as it needs buffers. Both
//! sides compute this from the figures of the hello; nothing of it is read from the memory.

/// Octets of a slot: two cache lines, which processors like to fetch together.
pub(crate) const SLOT_OCTETS: usize = 128;
/// Octets of the word in front of a slot.
pub(crate) const HEADER_OCTETS: usize = 8;
/// The longest frame that lies in the slot itself, in octets.
pub const INLINE_OCTETS: usize = SLOT_OCTETS - HEADER_OCTETS;
/// Octets from one side's lines to the other's.
pub(crate) const SIDE_OCTETS: usize = 256;
/// Within a side's lines: whether it sleeps.
pub(crate) const STATE_AT: usize = 0;
/// Within a side's lines: the processors that it may run on.
pub(crate) const PROCESSORS_AT: usize = 8;
/// Within a side's lines: how many frames it has consumed, in a line of its own.
pub(crate) const CONSUMED_AT: usize = 128;
/// Offset of the slots.
const SLOTS_AT: usize = 4096;
/// Buffers lie at multiples of this, so that a copy from or to a message is aligned with it.
const BUFFER_ALIGN: usize = 64;
/// Octets of a page. Buffers a multiple of it apart would all compete for the same few places of a
/// cache.
const PAGE_OCTETS: usize = 4096;

/// Fewest slots a direction.
pub const SLOTS_MIN: u32 = 8;
/// Most slots a direction.
pub const SLOTS_MAX: u32 = 1 << 15;
/// The least that the longest frame may be, in octets: the shortest Ethernet frame, without check
/// sequence.
pub const FRAME_OCTETS_LEAST: u32 = 60;
/// The most that the longest frame may be, in octets: an Ethernet header and 64 KiB.
pub const FRAME_OCTETS_MOST: u32 = 65_536 + 14;

/// The most that the longest frame may be that takes several slots, in octets.
const SPANNING_OCTETS_MOST: u32 = 1 << 20;

/// The sizes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u32,
    frame_octets_max: u32,
    /// Octets of a frame in one buffer at most: if it is longer, it takes several slots.
    buffer_octets: u32,
}

impl Geometry {
    /// A link of `slots` frames a direction (a power of two, [`SLOTS_MIN`] to [`SLOTS_MAX`]), each
    /// of at most `frame_octets_max` octets ([`FRAME_OCTETS_LEAST`] to [`FRAME_OCTETS_MOST`]); none
    /// if a figure is out of range.
    pub fn new(slots: u32, frame_octets_max: u32) -> Option<Self> {
        let fits = slots.is_power_of_two()
            && (SLOTS_MIN..=SLOTS_MAX).contains(&slots)
            && (FRAME_OCTETS_LEAST..=FRAME_OCTETS_MOST).contains(&frame_octets_max);
        fits.then_some(Self { slots, frame_octets_max, buffer_octets: frame_octets_max })
    }

    /// One whose buffers hold `buffer_octets` octets, fewer than the longest frame has, which takes
    /// half of the slots at most; none if a figure is out of range.
    pub fn spanning(slots: u32, frame_octets_max: u32, buffer_octets: u32) -> Option<Self> {
        let of_buffers = Self::new(slots, buffer_octets)?;
        let fits = buffer_octets as usize > INLINE_OCTETS
            && (buffer_octets..=SPANNING_OCTETS_MOST).contains(&frame_octets_max)
            && frame_octets_max.div_ceil(buffer_octets) <= slots / 2;
        fits.then_some(Self { frame_octets_max, ..of_buffers })
    }

    /// This one with at most so many slots; none if a frame may need more.
    pub(crate) fn with_slots(&self, slots: u32) -> Option<Self> {
        let slots = slots.min(self.slots);
        match self.in_slot() {
            0 => Self::new(slots, self.frame_octets_max),
            in_slot => Self::spanning(slots, self.frame_octets_max, in_slot),
        }
    }

    /// Returns the number of frames that a direction holds.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The longest frame, in octets.
    pub fn frame_octets_max(&self) -> u32 {
        self.frame_octets_max
    }

    /// Octets of a frame in one buffer at most.
    pub(crate) fn buffer_octets(&self) -> u32 {
        self.buffer_octets
    }

    /// Octets of a frame in one slot at most, as the hello says it: 0 if that is all of it.
    pub(crate) fn in_slot(&self) -> u32 {
        if self.buffer_octets == self.frame_octets_max { 0 } else { self.buffer_octets }
    }

    /// Whether frames have the same lengths, and lie in as many slots.
    pub(crate) fn has_frames_of(&self, other: &Self) -> bool {
        let of = |geometry: &Self| (geometry.frame_octets_max, geometry.buffer_octets);
        of(self) == of(other)
    }

    /// Octets of the whole memory: less than 5 GiB.
    pub fn octets(&self) -> usize {
        self.buffers_at(0) + 2 * self.slots as usize * self.stride()
    }

    /// Offset of the slots of what `side` sends.
    pub(crate) fn slots_at(&self, side: usize) -> usize {
        SLOTS_AT + side * self.slots as usize * SLOT_OCTETS
    }

    /// Offset of the buffers of what `side` sends.
    pub(crate) fn buffers_at(&self, side: usize) -> usize {
        self.slots_at(2) + side * self.slots as usize * self.stride()
    }

    /// Octets from one buffer to the next; 0 if there are none.
    pub(crate) fn stride(&self) -> usize {
        let octets = self.buffer_octets as usize;
        if octets <= INLINE_OCTETS {
            return 0;
        }
        let stride = octets.next_multiple_of(BUFFER_ALIGN);
        if stride.is_multiple_of(PAGE_OCTETS) { stride + BUFFER_ALIGN } else { stride }
    }
}

impl Default for Geometry {
    /// 512 frames of an Ethernet with an MTU of 1500.
    fn default() -> Self {
        Self { slots: 512, frame_octets_max: 1514, buffer_octets: 1514 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_out_of_range_are_refused() {
        for (slots, octets) in [
            (0, 1514),
            (4, 1514),
            (500, 1514),
            (1 << 16, 1514),
            (512, 59),
            (512, 65_551),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(Geometry::new(slots, octets), None, "{slots} {octets}");
        }
        for (slots, frame, buffer) in [
            (64, 66_560, 2048),
            (512, 66_560, 120),
            (512, 1514, 2048),
            (512, u32::MAX, 2048),
            (500, 66_560, 2048),
        ] {
            assert_eq!(Geometry::spanning(slots, frame, buffer), None, "{slots} {frame} {buffer}");
        }
    }

    #[test]
    fn parts_follow_each_other_and_are_aligned() {
        for octets in [60, 120, 121, 1514, 4096, 9014, 65_550] {
            let g = Geometry::new(16, octets).unwrap();
            assert!(g.slots_at(0) >= 2 * SIDE_OCTETS);
            assert_eq!(g.slots_at(1) - g.slots_at(0), 16 * SLOT_OCTETS);
            assert_eq!(g.buffers_at(0), g.slots_at(1) + 16 * SLOT_OCTETS);
            assert_eq!(g.octets(), g.buffers_at(1) + 16 * g.stride());
            assert!(
                g.stride().is_multiple_of(64) && (g.stride() >= octets as usize || octets <= 120)
            );
            assert!(g.stride() == 0 || !g.stride().is_multiple_of(4096));
        }
    }
}
