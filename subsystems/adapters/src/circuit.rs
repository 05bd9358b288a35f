//! Streams of octets over an edge: what the two halves of an adapter say to one another where the
//! protocol below carries one.

use crate::edge::{Door, Fault};
use crate::form::Addr;
use crate::parcel::Parcel;
use alloc::rc::Rc;
use xk_core::object::ProtocolId;
use xk_core::{Kernel, Reason};
use xk_kit::net::stream::StreamEvent;

/// Request for a stream.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The protocol above that sends and receives.
    pub selector: ProtocolId,
    /// Our end, as far as it is said.
    pub local: Addr,
    /// Octets that may have arrived and not be consumed, at most.
    pub unread_max: u32,
}

/// One end of a stream, as the half above has it.
pub trait Circuit {
    /// Number of octets that it takes now. If these are few, [`StreamEvent::Writable`] follows.
    fn space(&self, cx: &Kernel) -> usize;

    /// Sends octets, all of them or none.
    ///
    /// # Errors
    /// [`Fault`]; the octets are gone, and nothing of them was sent.
    fn send(&self, cx: &Kernel, parcel: Parcel) -> Result<(), Fault>;

    /// So many more octets that arrived have been consumed: as many may come again.
    fn consumed(&self, cx: &Kernel, octets: usize);

    /// Nothing more is sent: the end of the stream follows what was.
    fn shutdown(&self, cx: &Kernel);

    /// Releases it: what was sent still goes, then the end of the stream.
    fn close(&self, cx: &Kernel);

    /// Breaks it off and releases it.
    fn abort(&self, cx: &Kernel);

    /// Our address and the peer's.
    fn ends(&self, cx: &Kernel) -> (Addr, Addr);
}

/// User of a stream: the half above.
pub trait User {
    /// Octets have arrived. They are consumed when [`Circuit::consumed`] says so.
    fn arrive(&self, cx: &Kernel, parcel: Parcel);

    /// Something has happened.
    fn happened(&self, cx: &Kernel, event: StreamEvent);
}

/// Takes streams that peers open.
pub trait Listener {
    /// Whether there is room for one more.
    fn has_room(&self) -> bool;

    /// Takes one; nothing has arrived on it before.
    ///
    /// # Errors
    /// Why it is not taken: it is broken off.
    fn accept(
        &self,
        cx: &Kernel,
        circuit: Rc<dyn Circuit>,
    ) -> Result<Rc<dyn User>, &'static Reason>;
}

/// The half below, where its protocol carries streams.
pub trait Streams {
    /// Begins to open a stream to `peer`; [`StreamEvent::Connected`] follows.
    ///
    /// # Errors
    /// [`Fault`].
    fn connect(
        &self,
        cx: &Kernel,
        wanted: Wanted,
        peer: Addr,
        user: Rc<dyn User>,
    ) -> Result<Rc<dyn Circuit>, Fault>;

    /// Takes streams that peers open, until the door closes.
    ///
    /// # Errors
    /// [`Fault`].
    fn listen(
        &self,
        cx: &Kernel,
        wanted: Wanted,
        listener: Rc<dyn Listener>,
    ) -> Result<Rc<dyn Door>, Fault>;
}
