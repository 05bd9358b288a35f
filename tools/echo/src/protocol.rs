//! The protocol object.

use alloc::string::ToString;
use core::cell::Cell;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper,
};
use xk_kit::answers::{LOOP, Repeats, TO_MANY, is_proved, may_serve};
use xk_kit::control::PeerPort;
use xk_kit::group::MyMember;
use xk_kit::net::attribute::LinkCast;
use xk_kit::rpc::serve;

/// One instance.
pub struct Echo {
    lower: ProtocolRef,
    local: Participant,
    received: Cell<u64>,
    octets: Cell<u64>,
    failed: Cell<u64>,
    /// Whether the layer below does not tell a client from a server: it has no ports, and its peers
    /// have proved nothing.
    is_even: Cell<bool>,
    repeats: Repeats,
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
        Echo {
            lower,
            local,
            received: Cell::new(0),
            octets: Cell::new(0),
            failed: Cell::new(0),
            is_even: Cell::new(false),
            repeats: Repeats::default(),
        },
    )
}

impl Protocol for Echo {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(self.local.clone());
        self.lower.open_enable(cx, Upper::new(this), local).map(drop)
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        let has_ports = lower.ask(cx, PeerPort::default()).is_some();
        let members = lower.ask(cx, MyMember::default()).map_or(0, |member| member.members);
        if members > 2 {
            // Each answer would go to all, and be answered by the others.
            return Err(&TO_MANY);
        }
        self.is_even.set(!has_ports && !is_proved(cx, lower));
        may_serve(cx, lower)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if message.attribute::<LinkCast>().is_some() {
            return Err(this.refuse(message, &TO_MANY));
        }
        if self.is_even.get() && !self.repeats.may_come(cx, lower, &message) {
            return Err(this.refuse(message, &LOOP));
        }
        self.received.set(self.received.get() + 1);
        self.octets.set(self.octets.get() + message.len() as u64);
        if lower.push(cx, message).is_err() {
            self.failed.set(self.failed.get() + 1);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(report) = ask.get::<Report>() else {
            return self.lower.control(cx, ask);
        };
        let (received, failed) = (self.received.get(), self.failed.get());
        let lines = [
            ("received", received),
            ("octets", self.octets.get()),
            ("sent back", received - failed),
            ("failed", failed),
        ];
        report.lines = lines.map(|(name, n)| (name.into(), n.to_string())).into();
        report.finished = true;
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }
}
