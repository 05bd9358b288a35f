//! A device of smoltcp's as a wire.

use crate::instant;
use crate::port::{RAW_IP, WAITING_MAX};
use alloc::boxed::Box;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use smoltcp::phy::{Device as Phy, Medium, RxToken, TxToken};
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, Time, reason};
use xk_kit::EthAddr;
use xk_kit::wire::device::{Anchored, Capabilities, Device, Receiving, Unsent};
use xk_kit::wire::entry::HEADROOM;

/// Way in which the executor hears that a device has something.
pub enum Wake {
    /// A descriptor becomes readable: on Unix a `std::os::fd::OwnedFd`, such as a copy of the
    /// device's.
    Descriptor(Box<dyn Any>),
    /// The executor looks at this interval.
    Every(Duration),
}

impl Wake {
    /// Looks every `milliseconds`.
    #[must_use]
    pub fn every_ms(milliseconds: u64) -> Self {
        Self::Every(Duration::from_millis(milliseconds))
    }
}

/// Puts a device of smoltcp's below a graph, as a wire of this name; `address` is our hardware
/// address on it, for devices of Ethernet. A device without a descriptor serves in the simulator,
/// too.
pub fn wire<D: Phy + 'static>(
    cx: &Kernel,
    name: &str,
    device: D,
    wake: Wake,
    address: [u8; 6],
) -> ProtocolRef {
    let able = device.capabilities();
    let bare = Capabilities::bare(able.max_transmission_unit);
    let capabilities = match able.medium {
        Medium::Ethernet => Capabilities::ethernet(bare.frame_octets_max, EthAddr(address)),
        Medium::Ip => Capabilities { link_type: RAW_IP, ..bare },
        #[allow(unreachable_patterns, reason = "smoltcp's features add media")]
        _ => bare,
    };
    let device = RefCell::new(device);
    let below = Below { device, wake, looked: Cell::new(Time::ZERO) };
    cx.add_protocol("smoltcp-wire", name, Anchored::new(below, capabilities))
}

struct Below<D> {
    device: RefCell<D>,
    wake: Wake,
    /// Time of the last look at it.
    looked: Cell<Time>,
}

impl<D: Phy + 'static> Device for Below<D> {
    const BACKLOG_MAX: usize = WAITING_MAX;
    const FULL: &'static Reason = &reason::QUEUE_FULL;

    fn receive(&self, into: Receiving<'_>) {
        let Receiving { cx, this, budget, arrivals } = into;
        self.looked.set(cx.now());
        let mut device = self.device.borrow_mut();
        while arrivals.len() < budget
            && let Some((token, _)) = device.receive(instant(cx.now()))
        {
            match token.consume(|octets| cx.pool().copy_from(HEADROOM, octets)) {
                Ok(message) => arrivals.push_back(message),
                Err(_) => return this.head().drops().count(&reason::NO_BUFFERS),
            }
        }
    }

    fn send(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        let mut device = self.device.borrow_mut();
        let Some(token) = device.transmit(instant(cx.now())) else {
            return Err(Unsent::Full(message));
        };
        token.consume(message.len(), |room| message.copy_to(0, room));
        Ok(())
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        if let Wake::Descriptor(fd) = &self.wake {
            see(&**fd);
        }
    }

    fn next_poll(&self) -> Option<Time> {
        match self.wake {
            Wake::Descriptor(_) => None,
            Wake::Every(period) => Some(self.looked.get().after(period)),
        }
    }
}
