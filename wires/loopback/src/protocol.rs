//! The wire.

use xk_core::graph::{Build, BuildError};
use xk_core::object::PushError;
use xk_core::wire::Wire;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, Time, reason};
use xk_kit::wire::anchor::{Anchor, Anchored, USER0, WireEnd};

/// The wire.
pub struct Loopback {
    end: WireEnd<Self>,
    queue_max: usize,
    mtu: usize,
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let mtu = build.params.octets("mtu", 65_535);
    build.add(Loopback::new(mtu, build.params.number("queue", 1024)))
}

impl Loopback {
    /// The protocol object of a wire for messages of at most `mtu` octets, of which `queue_max`
    /// wait at most.
    pub fn new(mtu: usize, queue_max: usize) -> Anchored<Self> {
        Anchored::new(|end| Self { end, queue_max, mtu })
    }
}

impl Anchor for Loopback {
    fn end(&self) -> &WireEnd<Self> {
        &self.end
    }

    fn frame_octets_max(&self) -> usize {
        self.mtu
    }

    fn link_type(&self) -> u16 {
        USER0
    }

    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let arrivals = self.end.arrivals();
        if arrivals.len() >= self.queue_max {
            this.discard(cx, message, &reason::QUEUE_FULL);
            return Err(PushError::QueueFull);
        }
        // Attributes stay behind: an empty message takes the octets, and has none.
        let Ok(mut arrival) = cx.pool().empty(0) else {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        };
        arrival.join(message);
        arrivals.queue_mut().push_back(arrival);
        Ok(())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {}
}

impl Wire for Loopback {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        // No more than what waits now: an upper protocol that answers everything could keep this
        // busy without end.
        let count = self.end.arrivals().len().min(budget);
        self.end.deliver_all(cx, this, count)
    }

    fn next_poll(&self) -> Option<Time> {
        (!self.end.arrivals().is_empty()).then_some(Time::ZERO)
    }
}
