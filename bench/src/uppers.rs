//! Applications that several benchmarks put on a transport: one that counts what comes, one that
//! sends it back.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use xk_core::object::{Burst, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef,
};
use xk_kit::net::stream::{StreamEvent, StreamNotice};

/// Counts the octets that come, and holds the sessions that are made for it.
#[derive(Clone, Default)]
pub(crate) struct Taker(pub(crate) Rc<Cell<u64>>);

impl Taker {
    #[inline]
    fn take(&self, message: &Message) {
        self.0.set(self.0.get() + black_box(message).len() as u64);
    }
}

impl Protocol for Taker {
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

    fn demux(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
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

/// Sends back what comes, holds its end, and closes when the peer does.
pub(crate) struct Server;

impl Protocol for Server {
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

    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        // One that does not go is missed by whoever asked.
        let _ = lower.push(cx, message);
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(notice) = ask.get::<StreamNotice>() else {
            return Answer::Unknown;
        };
        if notice.event == StreamEvent::EndOfStream {
            notice.session.clone().close(cx);
        }
        Answer::Answered
    }
}
