//! The wire, and the messages under way.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, PushError};
use xk_core::wire::Wire;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, Time, reason};
use xk_kit::wire::anchor::{Anchor, Anchored, USER0, WireEnd};

/// A delay of nothing would keep the kernel busy without end with a message that two ends send to
/// and fro.
const DELAY_MIN: Duration = Duration::from_nanos(1);

xk_core::settings! {
    /// What it is like.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        delay: Duration = duration(Duration::ZERO,
            "from the push to the arrival; one nanosecond at least"),
        queue: usize = int(1..=1_048_576, 1024, "how many messages are under way at most"),
        mtu: u32 = octets(65_535, "the largest message, in octets"),
    }
}

/// One instance.
pub struct Loop {
    settings: Settings,
    end: WireEnd<Self>,
    /// Messages under way and when each arrives, in that order.
    under_way: RefCell<VecDeque<(Time, Message)>>,
    /// True while a timer is set for the first of them.
    armed: Cell<bool>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Ok(add(build.cx, build.name, Settings::read(build)?))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, settings: Settings) -> ProtocolRef {
    let (under_way, armed) = (RefCell::default(), Cell::new(false));
    let wire = Anchored::new(|end| Loop { settings, end, under_way, armed });
    cx.add_protocol(crate::ENTRY.kind, name, wire)
}

impl Loop {
    /// Sets the timer for the first message under way, unless it is set.
    fn arm(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let first = self.under_way.borrow().front().map(|(at, _)| *at);
        let Some(at) = first.filter(|_| !self.armed.get()) else {
            return Ok(());
        };
        let delay = at.since(cx.now()).max(DELAY_MIN);
        cx.schedule_protocol(this, delay, 0)?;
        self.armed.set(true);
        Ok(())
    }

    fn take_due(&self, now: Time) -> Option<Message> {
        let mut under_way = self.under_way.borrow_mut();
        under_way.pop_front_if(|(at, _)| *at <= now).map(|(_, m)| m)
    }
}

impl Anchor for Loop {
    fn end(&self) -> &WireEnd<Self> {
        &self.end
    }

    fn frame_octets_max(&self) -> usize {
        self.settings.mtu as usize
    }

    fn link_type(&self) -> u16 {
        USER0
    }

    fn send(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let Settings { delay, queue, .. } = self.settings;
        let waiting = self.under_way.borrow().len();
        if waiting >= queue {
            this.discard(cx, message, &reason::QUEUE_FULL);
            return Err(PushError::QueueFull);
        }
        let at = cx.now().after(delay.max(DELAY_MIN));
        self.under_way.borrow_mut().push_back((at, message));
        let armed = this.protocol(cx).map(|protocol| self.arm(cx, &protocol));
        if armed.is_none_or(|armed| armed.is_err()) {
            let unsent = self.under_way.borrow_mut().pop_back();
            if let Some((_, message)) = unsent {
                this.discard(cx, message, &reason::QUEUE_FULL);
            }
            return Err(PushError::QueueFull);
        }
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some(alloc::format!("{} messages under way", self.under_way.borrow().len()))
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.armed.set(false);
        while let Some(message) = self.take_due(cx.now()) {
            self.end.deliver(cx, this, message);
        }
        // The timer that has just gone off made room for this one; if not, the next push tries
        // again.
        let _ = self.arm(cx, this);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.under_way.take());
    }
}

impl Wire for Loop {
    /// Everything arrives by timers.
    fn poll(&self, _: &Kernel, _: &ProtocolRef, _: usize) -> usize {
        0
    }
}
