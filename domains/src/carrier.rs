//! Carriers take frames from one side of a cut to the other.

use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message, Time};

/// The most octets of a frame: as many as the largest message has, with its header and attributes.
pub const FRAME_OCTETS_MAX: usize = (1 << 16) + 1024;

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no room at present.
    Full,
    /// There is no buffer for it.
    NoBuffers,
    /// The frame is longer than the carrier takes.
    TooLong,
    /// The other side is gone, or has broken the rules.
    Lost,
}

/// The outcome of looking for a frame.
pub enum Arrival {
    /// A frame; its octets are no longer the other side's to change.
    Frame(Message),
    /// There is none.
    Nothing,
    /// One is there, but no buffer for it at present.
    NoBuffers,
    /// The other side is gone, or has broken the rules: nothing comes any more.
    Lost,
}

/// Takes frames across, in order, and tells when the other side is gone.
pub trait Carrier {
    /// Number of frames that it takes at present.
    fn room(&self) -> usize;

    /// Looks for word of room that lies behind frames; these are received later.
    fn look_for_room(&self) {}

    /// The longest frame, in octets.
    fn frame_octets_max(&self) -> usize;

    /// True if it tells the other side what a frame says besides its octets: that its checksum is
    /// open, and that it stands for a run of segments. Otherwise octets are all that arrives.
    fn takes_notes(&self) -> bool {
        false
    }

    /// Copies a frame out: `head`, and behind it the octets of `body`. The other side may see it at
    /// once, but may sleep: see [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`SendError`].
    fn send(&self, cx: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError>;

    /// The next frame from the other side, with room in front.
    fn receive(&self, cx: &Kernel) -> Arrival;

    /// True once the other side is gone, for a user that does not receive at present. What it sent
    /// before may still be there.
    fn is_lost(&self, cx: &Kernel) -> bool;

    /// Ends both directions: nothing is sent any more, and the other side finds this one gone, once
    /// it has received what was sent before.
    fn close(&self);

    /// Wakes the other side for what was sent, and gives room back for what was received.
    fn flush(&self) {}

    /// Gives the other side a chance to run, where the caller cannot be suspended: it may wait for
    /// a moment.
    fn turn(&self, cx: &Kernel) {
        let _ = cx;
    }

    /// Time of the next look for a frame, at the latest; see
    /// [`Wire::next_poll`](xk_core::wire::Wire).
    fn next_poll(&self) -> Option<Time> {
        None
    }

    /// The executor is about to sleep, and is to be woken by what comes; see
    /// [`Wire::rest`](xk_core::wire::Wire). False if something is there.
    fn rest(&self, cx: &Kernel, sleeper: &dyn Sleeper) -> bool {
        let _ = (cx, sleeper);
        true
    }

    /// The executor has slept, or has thought better of it.
    fn woken(&self) {}

    /// False if the other side needs this processor to send.
    fn may_spin(&self) -> bool {
        true
    }
}
