//! The protocol object, its session, and the messages under way.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Describe;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Closing, Enable, OpenError, PushError, Refused};
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Session, SessionRef, Time,
    Upper, reason,
};
use xk_kit::control::{MaxPacket, OptPacket};
use xk_kit::wire::wire_end::WireEnd;

/// A delay of nothing would keep the kernel busy without end with a message that two ends send to
/// and fro.
const DELAY_MIN: Duration = Duration::from_nanos(1);

/// What it is like.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// From the push to the arrival; one nanosecond at least.
    pub delay: Duration,
    /// How many messages are under way at most.
    pub queue: usize,
    /// The largest message, in octets.
    pub mtu: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { delay: Duration::ZERO, queue: 1024, mtu: 65_535 }
    }
}

/// What protocol and session share.
struct Shared {
    settings: Settings,
    end: WireEnd,
    /// Messages under way and when each arrives, in that order.
    under_way: RefCell<VecDeque<(Time, Message)>>,
    /// True while a timer is set for the first of them.
    armed: Cell<bool>,
}

/// One instance.
pub struct Loop(Rc<Shared>);

/// Builds it from its place in a graph.
///
/// # Errors
/// None: it needs nothing.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let usual = Settings::default();
    let mtu = build.params.octets("mtu", usual.mtu as usize);
    let settings = Settings {
        delay: build.params.duration("delay", usual.delay),
        queue: build.params.number("queue", usual.queue),
        mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
    };
    Ok(add(build.cx, build.name, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, settings: Settings) -> ProtocolRef {
    let shared = Shared {
        settings,
        end: WireEnd::default(),
        under_way: RefCell::default(),
        armed: Cell::new(false),
    };
    cx.add_protocol(crate::ENTRY.kind, name, Loop(Rc::new(shared)))
}

impl Shared {
    /// Sizes, for protocol and session alike.
    fn control(&self, ask: &mut Ask<'_>) -> Answer {
        let mtu = self.settings.mtu;
        if ask.answer::<MaxPacket>(|q| q.octets = mtu).is_answered() {
            return Answer::Answered;
        }
        ask.answer::<OptPacket>(|q| q.octets = mtu)
    }

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

impl Loop {
    fn session(&self, this: &ProtocolRef, upper: ProtocolRef) -> LoopSession {
        LoopSession { shared: Rc::clone(&self.0), protocol: this.clone(), upper }
    }
}

impl Protocol for Loop {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let body = |upper| self.session(this, upper);
        self.0.end.open(cx, this, upper, body)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.0.end.open_enable(upper)
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.0.end.open_disable(enable);
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.0.control(ask)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.0.armed.set(false);
        while let Some(message) = self.0.take_due(cx.now()) {
            let body = |upper| self.session(this, upper);
            self.0.end.deliver(cx, this, message, body);
        }
        // The timer that has just gone off made room for this one; if not, the next push tries
        // again.
        let _ = self.0.arm(cx, this);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.under_way.take());
        self.0.end.stop();
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for Loop {
    /// Everything arrives by timers.
    fn poll(&self, _: &Kernel, _: &ProtocolRef, _: usize) -> usize {
        0
    }
}

struct LoopSession {
    shared: Rc<Shared>,
    protocol: ProtocolRef,
    upper: ProtocolRef,
}

impl Session for LoopSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let Settings { delay, queue, mtu } = self.shared.settings;
        if message.len() > mtu as usize {
            this.discard(cx, message, &reason::TOO_BIG);
            return Err(PushError::TooBig { max: mtu });
        }
        let waiting = self.shared.under_way.borrow().len();
        if waiting >= queue {
            this.discard(cx, message, &reason::QUEUE_FULL);
            return Err(PushError::QueueFull);
        }
        let at = cx.now().after(delay.max(DELAY_MIN));
        self.shared.under_way.borrow_mut().push_back((at, message));
        if self.shared.arm(cx, &self.protocol).is_err() {
            let unsent = self.shared.under_way.borrow_mut().pop_back();
            if let Some((_, message)) = unsent {
                this.discard(cx, message, &reason::QUEUE_FULL);
            }
            return Err(PushError::QueueFull);
        }
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>() {
            let waiting = self.shared.under_way.borrow().len();
            question.text = alloc::format!("{waiting} messages under way");
            return Answer::Answered;
        }
        self.shared.control(ask)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.shared.end.close()
    }
}
