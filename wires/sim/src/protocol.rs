//! The wire: a host's interface on a link.

use crate::link::HEADER_OCTETS;
use crate::network::{HostId, LinkId, Network, PortId};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, PushError};
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, reason};
use xk_kit::EthAddr;
use xk_kit::wire::device::{Anchored, Capabilities, Device, DeviceWire, Unsent};
use xk_kit::wire::entry::station;

/// Host of the world that a kernel is; put beside the kernel by
/// [`World::add_host`](crate::World::add_host).
#[derive(Debug)]
pub struct HostSeat {
    /// Number of the host.
    pub id: HostId,
    /// Name of the host.
    pub name: Rc<str>,
}

/// State of one interface, shared by the wire, its session and the network; fields that every frame
/// needs come first.
#[repr(C)]
pub(crate) struct SimPort {
    /// The interface's port, while it is attached.
    id: Cell<Option<PortId>>,
    network: Rc<Network>,
    link: LinkId,
    /// The wire's handle, while it is attached.
    this: RefCell<Option<ProtocolRef>>,
}

impl SimPort {
    /// Passes an arrived frame up.
    pub(crate) fn arrive(wire: &DeviceWire<Self>, cx: &Kernel, message: Message) {
        // One that was taken down has none.
        if let Some(session) = wire.session() {
            drop(session.pop(cx, message));
            return;
        }
        let this = wire.device().this.borrow().clone();
        if let Some(this) = this {
            wire.deliver(cx, &this, message);
        }
    }

    /// Drops an arrived frame, counted at the wire.
    pub(crate) fn discard(&self, message: Message, reason: &'static Reason) {
        if let Some(this) = &*self.this.borrow() {
            this.discard(message, reason);
        }
    }

    /// Hangs the interface on its link, if the kernel's place in the world is known.
    fn attach(
        wire: &Rc<DeviceWire<Self>>,
        cx: &Kernel,
        this: &ProtocolRef,
    ) -> Result<(), OpenError> {
        let port = wire.device();
        if port.id.get().is_some() {
            return Ok(());
        }
        let seat = cx.surroundings::<HostSeat>().ok_or(OpenError::NoLower)?;
        let attached = port.network.attach(Rc::clone(wire), port.link, &seat);
        let (id, ordinal) = attached.map_err(|_| OpenError::Full)?;
        let able = wire.capabilities();
        if able.address == Some(EthAddr::ZERO) {
            let address = Some(port.network.address(seat.id, ordinal));
            wire.set_capabilities(Capabilities { address, ..able });
        }
        port.id.set(Some(id));
        *port.this.borrow_mut() = Some(this.clone());
        Ok(())
    }
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let network = build.cx.surroundings::<Network>().ok_or_else(|| BuildError::Environment {
        param: None,
        what: "there is no simulated network here".into(),
        help: "run the graph with `xk sim`, or name a wire for it: `--wire \"tap device=xk0\"`"
            .into(),
    })?;
    let name = build.params.text("link").unwrap_or_default();
    let link = network
        .link(name)
        .ok_or_else(|| BuildError::param("link", "the name of a link of this file"))?;
    let address = station(build.params)?;
    let link_octets_max = network.frame_octets_max(link);
    let mtu = build.params.octets("mtu", usize::MAX);
    let frame_octets_max = mtu.saturating_add(HEADER_OCTETS).min(link_octets_max);
    let port = SimPort { id: Cell::new(None), network, link, this: RefCell::default() };
    let wire = Anchored::new(
        port,
        Capabilities::ethernet(frame_octets_max, address.unwrap_or(EthAddr::ZERO)),
    );
    let port = Rc::clone(wire.wire());
    let this = build.add(wire)?;
    // Before the host has its place in the world, `start` is early enough.
    match SimPort::attach(&port, build.cx, &this) {
        Ok(()) | Err(OpenError::NoLower) => Ok(this),
        Err(error) => Err(error.into()),
    }
}

impl Device for SimPort {
    fn start(
        wire: &Rc<DeviceWire<Self>>,
        cx: &Kernel,
        this: &ProtocolRef,
    ) -> Result<(), OpenError> {
        Self::attach(wire, cx, this)
    }

    fn send(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        match self.id.get() {
            Some(at) => self.network.transmit(cx.now(), at, message),
            None => Err(Unsent::Refused(message, &reason::CLOSED, PushError::Closed)),
        }
    }

    fn room(&self, cx: &Kernel) -> Option<Duration> {
        self.network.room_after(cx.now(), self.id.get()?)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let this = self.this.take();
        if let Some(port) = self.id.take() {
            self.network.detach(port);
        }
        drop(this);
    }
}
