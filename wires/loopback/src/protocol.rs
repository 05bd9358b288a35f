//! The wire.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use xk_core::graph::{Build, BuildError};
use xk_core::object::PushError;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, Time, reason};
use xk_kit::wire::device::{Anchored, Capabilities, Device, Receiving, Unsent, room_if};

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
        let capabilities = Capabilities::bare(settings.mtu);
        Anchored::new(Self { settings, under_way: RefCell::default() }, capabilities)
    }

    fn has_room(&self) -> bool {
        self.under_way.borrow().len() < self.settings.queue
    }
}

impl Device for Loopback {
    /// Leaves what is sent from now on to the next call: an upper protocol that answers everything
    /// could keep this busy without end.
    fn receive(&self, into: Receiving<'_>) {
        let Receiving { cx, budget, arrivals, .. } = into;
        let mut under_way = self.under_way.borrow_mut();
        while arrivals.len() < budget
            && let Some((_, message)) = under_way.pop_front_if(|(at, _)| *at <= cx.now())
        {
            arrivals.push_back(message);
        }
    }

    fn send(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), Unsent> {
        if !self.has_room() {
            return Err(Unsent::Refused(message, &reason::QUEUE_FULL, PushError::QueueFull));
        }
        // Attributes stay behind: an empty message takes the octets, and has none.
        let Ok(mut arrival) = cx.pool().empty(0) else {
            return Err(Unsent::Refused(message, &reason::NO_BUFFERS, PushError::NoBuffers));
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

    fn next_poll(&self) -> Option<Time> {
        self.under_way.borrow().front().map(|(at, _)| *at)
    }
}
