//! The protocol object.

use alloc::string::ToString;
use core::cell::Cell;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, Protocol, ProtocolRef, SessionRef,
    Upper,
};
use xk_kit::rpc::serve;

/// One instance.
pub struct Discard {
    lower: ProtocolRef,
    local: Participant,
    received: Cell<u64>,
    octets: Cell<u64>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let lower = build.lower(0)?;
    let local = serve::local(build)?;
    Ok(add(build.cx, build.name, lower, local))
}

/// Adds one to a kernel that serves `local`, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, local: Participant) -> ProtocolRef {
    cx.add_protocol(
        crate::ENTRY.kind,
        name,
        Discard { lower, local, received: Cell::new(0), octets: Cell::new(0) },
    )
}

impl Protocol for Discard {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(self.local.clone());
        self.lower.open_enable(cx, Upper::new(this), local).map(drop)
    }

    #[inline]
    fn demux(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.received.set(self.received.get() + 1);
        self.octets.set(self.octets.get() + message.len() as u64);
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(report) = ask.get::<Report>() else {
            return self.lower.control(cx, ask);
        };
        let lines = [("received", self.received.get()), ("octets", self.octets.get())];
        report.lines = lines.map(|(name, n)| (name.into(), n.to_string())).into();
        report.finished = true;
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }
}
