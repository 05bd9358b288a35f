//! The wire.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use xk_core::graph::{Build, BuildError};
use xk_core::object::PushError;
use xk_core::wire::Wire;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, Time, reason};
use xk_kit::wire::anchor::{Anchor, Anchored, Capabilities, WireEnd, room_if};

xk_core::settings! {
    /// Settings of the wire.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        mtu: usize = octets(65_535, "the largest message, in octets"),
        queue: usize = int(1..=1_000_000, 1024, "how many messages wait at most"),
        delay: Duration = duration(Duration::ZERO, "from the sending to the arrival"),
    }
}

/// The wire.
pub struct Loopback {
    end: WireEnd<Self>,
    settings: Settings,
    /// Messages under way and when each arrives, in that order.
    under_way: RefCell<VecDeque<(Time, Message)>>,
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(Loopback::new(Settings::read(build)?))
}

impl Loopback {
    /// The protocol object of a wire.
    pub fn new(settings: Settings) -> Anchored<Self> {
        Anchored::new(|end| Self { end, settings, under_way: RefCell::default() })
    }

    fn has_room(&self) -> bool {
        self.under_way.borrow().len() + self.end.arrivals().len() < self.settings.queue
    }
}

impl Anchor for Loopback {
    fn end(&self) -> &WireEnd<Self> {
        &self.end
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::bare(self.settings.mtu)
    }

    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        if !self.has_room() {
            this.discard(cx, message, &reason::QUEUE_FULL);
            return Err(PushError::QueueFull);
        }
        // Attributes stay behind: an empty message takes the octets, and has none.
        let Ok(mut arrival) = cx.pool().empty(0) else {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        };
        arrival.join(message);
        self.under_way.borrow_mut().push_back((cx.now().after(self.settings.delay), arrival));
        Ok(())
    }

    fn room(&self, _: &Kernel) -> Option<Duration> {
        room_if(self.has_room())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.under_way.take());
    }
}

impl Wire for Loopback {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        // What is sent from now on is not among them: an upper protocol that answers everything
        // could keep this busy without end.
        let arrivals = self.end.arrivals();
        let mut under_way = self.under_way.borrow_mut();
        while let Some((_, message)) = under_way.pop_front_if(|(at, _)| *at <= cx.now()) {
            arrivals.queue_mut().push_back(message);
        }
        drop(under_way);
        self.end.deliver_all(cx, this, arrivals.len().min(budget))
    }

    fn next_poll(&self) -> Option<Time> {
        match self.end.arrivals().is_empty() {
            true => self.under_way.borrow().front().map(|(at, _)| *at),
            false => Some(Time::ZERO),
        }
    }
}
