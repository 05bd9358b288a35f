//! A ring so small that all that can happen in it can be tried.

/// The longest frame that lies in the slot itself, in octets: one word.
pub(crate) const INLINE_OCTETS: usize = 8;
/// Octets of a buffer: a longer frame takes two slots.
pub(crate) const BUFFER_OCTETS: usize = 16;
/// The longest frame, in octets.
pub(crate) const FRAME_OCTETS_MAX: usize = 2 * BUFFER_OCTETS;
/// Slots of a direction.
pub(crate) const SLOTS: usize = 2;

/// There is one size only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Geometry;

impl Geometry {
    pub(crate) fn octets(&self) -> usize {
        SLOTS
    }
}
