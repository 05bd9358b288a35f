//! Flow control of one priority band.

/// State of a band above 0 in a queue (`qband`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Band {
    pub(super) band: u8,
    /// Octets of its messages.
    pub(super) count: usize,
    pub(super) is_full: bool,
    /// A writer found it full.
    pub(super) is_wanted: bool,
    pub(super) hiwat: u32,
    pub(super) lowat: u32,
}
