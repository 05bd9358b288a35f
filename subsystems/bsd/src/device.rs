//! The device that carries the frames of an interface.

use crate::errno::{Errno, Result};
use crate::mbuf::Mbuf;
use xk_core::object::{OpenError, ProtocolRef, SessionSlot};
use xk_core::{Kernel, Message, Participants, Upper};
use xk_kit::control::{JoinGroup, MaxPacket, MyEther};

/// A device on a wire of the x-kernel, or on whatever has one session that takes whole frames: for
/// the driver of a line that stands on it without an adapter. The line's node opens, and passes
/// what its `demux` gets to the driver.
pub struct WireDevice {
    lower: ProtocolRef,
    session: SessionSlot,
}

/// Headroom of the frames that are copied for a wire.
const HEADROOM: usize = 32;

impl WireDevice {
    /// On this wire.
    pub fn new(lower: ProtocolRef) -> Self {
        Self { lower, session: SessionSlot::default() }
    }

    /// Opens the wire for the node `this`, to which its frames come up.
    ///
    /// # Errors
    /// As of [`ProtocolRef::open`].
    pub fn open(&self, cx: &Kernel, this: &ProtocolRef) -> core::result::Result<(), OpenError> {
        let session = self.lower.open(cx, Upper::new(this), Participants::default())?;
        self.session.replace(Some(session));
        Ok(())
    }

    /// Releases the wire.
    pub fn close(&self, cx: &Kernel) {
        self.session.close(cx);
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`Errno`]: that of the wire; [`Errno::ENETDOWN`] if it is not open.
    pub fn output(&self, cx: &Kernel, m: Mbuf) -> Result {
        let message: Message = m.into_message(cx.pool(), HEADROOM)?;
        let session = self.session.get().ok_or(Errno::ENETDOWN)?;
        session.push(cx, message).map_err(Errno::from)
    }

    /// Takes frames to this group from now on, if the wire filters by itself.
    pub fn join(&self, cx: &Kernel, address: [u8; 6]) {
        // A wire that takes all frames does not know the question.
        let _ = self.lower.ask(cx, JoinGroup { address });
    }

    /// Returns the largest frame that it sends, header included; 0 if the wire does not know.
    pub fn max(&self, cx: &Kernel) -> usize {
        self.lower.ask(cx, MaxPacket::default()).map_or(0, |q| q.octets as usize)
    }

    /// Returns the address of its station, if it has one.
    pub fn address(&self, cx: &Kernel) -> Option<[u8; 6]> {
        self.lower.ask(cx, MyEther::default()).map(|q| q.address)
    }
}
