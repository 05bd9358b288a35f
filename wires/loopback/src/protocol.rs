//! The wire and its session.

use std::rc::Rc;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Arrivals, Burst, Closing, Enable, OpenError, PushError, Refused};
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Session, SessionRef, Time,
    Upper, reason,
};
use xk_kit::control::{JoinGroup, LinkType, MaxPacket, OptPacket};
use xk_kit::offload;
use xk_kit::wire_end::WireEnd;

/// The link type of octets without a known form: `LINKTYPE_USER0`.
const USER0: u16 = 147;

struct Shared {
    end: WireEnd,
    queue: Arrivals,
    queue_max: usize,
    mtu: usize,
}

impl Shared {
    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        let octets = u32::try_from(self.mtu).unwrap_or(u32::MAX);
        if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = octets;
        } else if let Some(q) = ask.get::<LinkType>() {
            q.number = USER0;
        } else if ask.get::<JoinGroup>().is_none() {
            return Answer::Unknown;
        }
        Answer::Answered
    }
}

/// The wire as a protocol object.
pub struct Loopback {
    shared: Rc<Shared>,
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let mtu = build.params.octets("mtu", 65_535);
    build.add(Loopback::new(mtu, build.params.number("queue", 1024)))
}

impl Loopback {
    /// A wire for messages of at most `mtu` octets, of which `queue_max` wait at most.
    pub fn new(mtu: usize, queue_max: usize) -> Self {
        let (end, queue) = (WireEnd::default(), Arrivals::default());
        Self {
            shared: Rc::new(Shared {
                end,
                queue,
                queue_max,
                mtu,
            }),
        }
    }
}

impl Protocol for Loopback {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = Rc::clone(&self.shared);
        self.shared
            .end
            .open(cx, this, upper, |upper| LoopSession { shared, upper })
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.shared.end.open_enable(upper)
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.end.open_disable(enable);
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match self.shared.end.control(ask) {
            Answer::Answered => Answer::Answered,
            Answer::Unknown => self.shared.answer(ask),
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.end.stop();
        self.shared.queue.clear();
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for Loopback {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        // No more than what waits now: an upper protocol that answers everything could keep this busy for ever.
        let shared = &self.shared;
        let count = shared.queue.len().min(budget);
        shared
            .end
            .deliver_all(cx, this, &shared.queue, count, |upper| LoopSession {
                shared: Rc::clone(shared),
                upper,
            })
    }

    fn next_poll(&self) -> Option<Time> {
        (!self.shared.queue.is_empty()).then_some(Time::ZERO)
    }
}

/// The wire's only session.
struct LoopSession {
    shared: Rc<Shared>,
    upper: ProtocolRef,
}

impl Session for LoopSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let shared = &self.shared;
        if message.len() > shared.mtu {
            this.discard(cx, message, &reason::TOO_BIG);
            let max = u32::try_from(shared.mtu).unwrap_or(u32::MAX);
            return Err(PushError::TooBig { max });
        }
        if shared.queue.len() >= shared.queue_max {
            this.discard(cx, message, &reason::QUEUE_FULL);
            return Err(PushError::QueueFull);
        }
        // A checksum left to the wire is computed: what goes round here is what goes out elsewhere.
        let mut message = message;
        if offload::settle(cx.pool(), &mut message).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        // Attributes stay behind: an empty message takes the octets, and has none.
        let Ok(mut arrival) = cx.pool().empty(0) else {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        };
        arrival.join(message);
        shared.queue.queue_mut().push_back(arrival);
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        self.shared.answer(ask)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.shared.end.close()
    }
}
