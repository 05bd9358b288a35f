//! A device of smoltcp's as a wire.

use crate::instant;
use crate::port::{RAW_IP, WAITING_MAX};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use smoltcp::phy::{Device, Medium, RxToken, TxToken};
use xk_core::object::PushError;
use xk_core::wire::Wire;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, Time, reason};
use xk_kit::EthAddr;
use xk_kit::wire::anchor::{Anchor, Anchored, Capabilities, WireEnd};
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
pub fn wire<D: Device + 'static>(
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
    let make = |end| Below {
        end,
        capabilities,
        device: RefCell::new(device),
        waiting: RefCell::default(),
        wake,
        looked: Cell::new(Time::ZERO),
    };
    cx.add_protocol("smoltcp-wire", name, Anchored::new(make))
}

struct Below<D> {
    end: WireEnd<Self>,
    capabilities: Capabilities,
    device: RefCell<D>,
    /// Messages for which the device had no room.
    waiting: RefCell<VecDeque<Message>>,
    wake: Wake,
    /// Time of the last look at it.
    looked: Cell<Time>,
}

impl<D: Device> Below<D> {
    /// Gives the device a message; `Err` has it back if there is no room.
    fn give(&self, cx: &Kernel, message: Message) -> Result<(), Message> {
        let mut device = self.device.borrow_mut();
        let Some(token) = device.transmit(instant(cx.now())) else {
            return Err(message);
        };
        token.consume(message.len(), |room| message.copy_to(0, room));
        Ok(())
    }
}

impl<D: Device + 'static> Anchor for Below<D> {
    fn end(&self) -> &WireEnd<Self> {
        &self.end
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let is_first = self.waiting.borrow().is_empty();
        let given = if is_first { self.give(cx, message) } else { Err(message) };
        let Err(message) = given else {
            return Ok(());
        };
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            drop(waiting);
            this.discard(cx, message, &reason::QUEUE_FULL);
            return Err(PushError::QueueFull);
        }
        waiting.push_back(message);
        Ok(())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.waiting.take());
    }
}

impl<D: Device + 'static> Wire for Below<D> {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        self.looked.set(cx.now());
        let arrivals = self.end.arrivals();
        let mut lacks_room = false;
        while arrivals.len() < budget && !lacks_room {
            let mut device = self.device.borrow_mut();
            let Some((token, _)) = device.receive(instant(cx.now())) else {
                break;
            };
            let arrival = token.consume(|octets| cx.pool().copy_from(HEADROOM, octets));
            match arrival {
                Ok(message) => arrivals.queue_mut().push_back(message),
                Err(_) => {
                    this.head().drops().count(&reason::NO_BUFFERS);
                    lacks_room = true;
                }
            }
        }
        self.end.deliver_all(cx, this, arrivals.len().min(budget))
    }

    fn flush(&self, cx: &Kernel, _: &ProtocolRef) {
        loop {
            let Some(message) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            if let Err(message) = self.give(cx, message) {
                self.waiting.borrow_mut().push_front(message);
                return;
            }
        }
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        if let Wake::Descriptor(fd) = &self.wake {
            see(&**fd);
        }
    }

    fn next_poll(&self) -> Option<Time> {
        if !self.end.arrivals().is_empty() {
            return Some(Time::ZERO);
        }
        match self.wake {
            Wake::Descriptor(_) => None,
            Wake::Every(period) => Some(self.looked.get().after(period)),
        }
    }

    fn wants_writable(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }
}
