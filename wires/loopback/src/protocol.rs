//! The wire.

use std::rc::Rc;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Arrivals, PushError};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, SessionRef, Time, reason};
use xk_kit::control::JoinGroup;
use xk_kit::wire::anchor::{Anchor, Anchored};
use xk_kit::wire::wire_end::WireEnd;

/// The link type of octets without a known form: `LINKTYPE_USER0`.
const USER0: u16 = 147;

/// The wire.
pub struct Loopback {
    end: WireEnd,
    queue: Arrivals,
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
        Anchored::new(Self { end: WireEnd::default(), queue: Arrivals::default(), queue_max, mtu })
    }
}

impl Anchor for Loopback {
    fn end(&self) -> &WireEnd {
        &self.end
    }

    fn frame_octets_max(&self) -> usize {
        self.mtu
    }

    fn link_type(&self) -> u16 {
        USER0
    }

    fn send(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        if self.queue.len() >= self.queue_max {
            this.discard(cx, message, &reason::QUEUE_FULL);
            return Err(PushError::QueueFull);
        }
        // Attributes stay behind: an empty message takes the octets, and has none.
        let Ok(mut arrival) = cx.pool().empty(0) else {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        };
        arrival.join(message);
        self.queue.queue_mut().push_back(arrival);
        Ok(())
    }

    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        match ask.get::<JoinGroup>() {
            Some(_) => Answer::Answered,
            None => Answer::Unknown,
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.queue.clear();
    }

    fn poll(self: &Rc<Self>, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        // No more than what waits now: an upper protocol that answers everything could keep this
        // busy without end.
        let count = self.queue.len().min(budget);
        self.deliver_all(cx, this, &self.queue, count)
    }

    fn next_poll(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(Time::ZERO)
    }
}
