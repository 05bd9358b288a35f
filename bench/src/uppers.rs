//! Applications that several benchmarks put on a transport: one that counts what comes, one that
//! sends it back.

use crate::cable::HEADROOM;
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::rc::Rc;
use xk_core::object::{Burst, Popped, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, reason,
};
use xk_kit::net::stream::{StreamEvent, StreamNotice};

/// Has each message that comes taken by a function.
pub(crate) struct Each<F>(pub(crate) F);

impl<F: Fn(Message) + 'static> Protocol for Each<F> {
    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        (self.0)(message);
        Ok(())
    }
}

/// Counts the messages that come.
pub(crate) fn counter() -> (Each<impl Fn(Message)>, Rc<Cell<u64>>) {
    let count = Rc::<Cell<u64>>::default();
    let own = Rc::clone(&count);
    (Each(move |_| own.set(own.get() + 1)), count)
}

/// Sends one octet as soon as it is connected, counts what comes back, and closes what it was given
/// for that.
#[derive(Clone, Default)]
pub(crate) struct OneOctet {
    pub(crate) answers: Rc<Cell<u64>>,
    pub(crate) ended: Rc<RefCell<Option<SessionRef>>>,
}

/// Sends one octet.
pub(crate) fn send_octet(cx: &Kernel, session: &SessionRef) {
    if let Ok(octet) = cx.pool().copy_from(HEADROOM, &[0x5a]) {
        let _ = session.push(cx, octet);
    }
}

impl Protocol for OneOctet {
    fn demux(&self, cx: &Kernel, _: &ProtocolRef, _: &SessionRef, _: Message) -> Popped {
        self.answers.set(self.answers.get() + 1);
        let ended = self.ended.take();
        if let Some(ended) = ended {
            ended.close(cx);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<StreamNotice>(|notice| {
            if notice.event == StreamEvent::Connected {
                send_octet(cx, &notice.session);
            }
        })
    }
}

/// Counts the octets that come, and holds the sessions that are made for it.
#[derive(Clone, Default)]
pub(crate) struct Sink(pub(crate) Rc<Cell<u64>>);

impl Sink {
    #[inline]
    fn take(&self, message: &Message) {
        self.0.set(self.0.get() + black_box(message).len() as u64);
    }
}

impl Protocol for Sink {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        Ok(())
    }

    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        self.take(&message);
        Ok(())
    }

    fn demux_burst(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while let Some(message) = burst.next_through(lower) {
            self.take(&message);
        }
        Ok(())
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<StreamNotice>(|_| {})
    }
}

/// Sends back what comes, and closes what it holds when the peer does. Calls are answered with
/// nothing.
pub(crate) struct Echo {
    /// Whether it holds the sessions that are made for it.
    pub(crate) holds: bool,
}

impl Protocol for Echo {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        if self.holds {
            lower.hold();
        }
        Ok(())
    }

    #[inline]
    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        // A reply that does not go is missed by its asker.
        let _ = lower.push(cx, message);
        Ok(())
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        if message.is_empty() {
            return Ok(message);
        }
        match cx.pool().alloc(HEADROOM, 0) {
            Ok(reply) => Ok(reply),
            Err(_) => Err(this.refuse(message, &reason::NO_BUFFERS)),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<StreamNotice>(|notice| {
            if notice.event == StreamEvent::EndOfStream {
                notice.session.clone().close(cx);
            }
        })
    }
}
