//! What carries the frames of an interface: a wire of the x-kernel, or another subsystem's device.

use crate::errno::{Errno, Result};
use crate::mbuf::Mbuf;
use alloc::rc::Rc;
use core::cell::RefCell;
use xk_core::object::{OpenError, ProtocolRef, SessionRef};
use xk_core::{Kernel, Message, Participants, Upper};
use xk_kit::control::{JoinGroup, MaxPacket, MyEther};

/// A device below an interface's driver. An adapter registers one under its node
/// ([`Bsd::add_device`](crate::Bsd::add_device)); the driver above finds it by the node that it
/// stands on.
pub trait Device {
    /// From now on frames go to `input`; called at the start of the driver's line.
    ///
    /// # Errors
    /// Whatever prevents the graph from running.
    fn dv_attach(
        &self,
        cx: &Kernel,
        input: Rc<dyn DeviceInput>,
    ) -> core::result::Result<(), OpenError>;

    /// Sends a frame with its link's header, as a packet; it is consumed. At splnet.
    ///
    /// # Errors
    /// [`Errno`].
    fn dv_output(&self, cx: &Kernel, m: Mbuf) -> Result;

    /// The largest frame that it sends, header included; 0 if it does not know.
    fn dv_max(&self, cx: &Kernel) -> usize;

    /// The address of its station, if it has one.
    fn dv_address(&self, cx: &Kernel) -> Option<[u8; 6]>;

    /// Takes frames to this group from now on, if it filters by itself.
    fn dv_join(&self, cx: &Kernel, group: [u8; 6]) {
        let _ = (cx, group);
    }
}

/// What a device gives its frames to.
pub trait DeviceInput {
    /// Takes a frame with its link's header, as a packet; it is consumed. The caller need not be at
    /// splnet.
    fn dv_input(&self, cx: &Kernel, m: Mbuf);
}

/// A device on a wire of the x-kernel, or on whatever has one session that takes whole frames: for
/// the driver of a line that stands on it without an adapter. The line's node opens, and passes
/// what its `demux` gets to the driver.
pub struct WireDevice {
    lower: ProtocolRef,
    session: RefCell<Option<SessionRef>>,
}

/// Headroom of the frames that are copied for a wire.
const HEADROOM: usize = 32;

impl WireDevice {
    /// On this wire.
    pub fn new(lower: ProtocolRef) -> Self {
        Self { lower, session: RefCell::default() }
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
        let session = self.session.take();
        if let Some(session) = session {
            session.close(cx);
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`Errno`]: that of the wire; [`Errno::ENETDOWN`] if it is not open.
    pub fn output(&self, cx: &Kernel, m: Mbuf) -> Result {
        let message: Message = m.into_message(cx.pool(), HEADROOM)?;
        let session = self.session.borrow().clone().ok_or(Errno::ENETDOWN)?;
        session.push(cx, message).map_err(Errno::from)
    }

    /// See [`Device::dv_join`].
    pub fn join(&self, cx: &Kernel, address: [u8; 6]) {
        // A wire that takes all frames does not know the question.
        let _ = self.lower.ask(cx, JoinGroup { address });
    }

    /// See [`Device::dv_max`].
    pub fn max(&self, cx: &Kernel) -> usize {
        self.lower.ask(cx, MaxPacket::default()).map_or(0, |q| q.octets as usize)
    }

    /// See [`Device::dv_address`].
    pub fn address(&self, cx: &Kernel) -> Option<[u8; 6]> {
        self.lower.ask(cx, MyEther::default()).map(|q| q.address)
    }
}
