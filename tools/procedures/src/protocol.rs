//! The protocol object: takes requests, counts them, bounds how many are executed at a time.

use crate::number;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, ParamKind, optional};
use xk_core::object::{OpenError, Refused, SessionSlot};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper,
};
use xk_kit::rpc::call::{BUSY, MyProcedure, NO_PROCEDURE, SYSTEM_ERROR};

/// The procedures there are, by number.
const NAMES: [&str; 6] = ["null", "echo", "sink", "source", "relay", "sleep"];

const PARTICIPANT: ParamKind = ParamKind::Participant("procedure1@10.0.0.2");

xk_core::settings! {
    /// Parameters of the graph.
    #[derive(Clone, Debug)]
    pub struct Settings {
        procedure: u32 = int(0..=u32::MAX as i64, 1,
            "what a session stands for that names no procedure, as on `channel` itself"),
        concurrency: u32 = int(1..=1_048_576, 65_536, "how many requests it executes at a time"),
        source_max: usize = octets(16 << 20, "the largest reply of source, in octets"),
        sleep_max: Duration = duration(Duration::from_secs(10), "the longest sleep"),
        ..
        /// The local participant that it serves.
        at: Participant = Participant::of(Part::Any),
        /// The host that procedure 4 calls; empty for none.
        relay: Participant = Participant::new(),
    }
    [
        optional("at", PARTICIPANT, "the local participant that it serves; `*` if not given"),
        optional("relay", PARTICIPANT, "whom the procedure 4 calls, with its procedure"),
    ]
}

/// One instance.
pub struct Procedures {
    lower: ProtocolRef,
    pub(crate) settings: Settings,
    /// The session to the further server, once opened.
    pub(crate) further: SessionSlot,
    executed: [Cell<u64>; NAMES.len()],
    octets: Cell<u64>,
    executing: Cell<u32>,
    executing_most: Cell<u32>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::read(build)?);
    let settings = Settings {
        at: params.participant("at")?.unwrap_or(usual.at),
        relay: params.participant("relay")?.unwrap_or_default(),
        ..usual
    };
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    cx.add_protocol(
        crate::ENTRY.kind,
        name,
        Procedures {
            lower,
            settings,
            further: SessionSlot::default(),
            executed: Default::default(),
            octets: Cell::new(0),
            executing: Cell::new(0),
            executing_most: Cell::new(0),
        },
    )
}

impl Procedures {
    /// Whether there is a procedure of this number.
    fn serves(&self, number: u32) -> bool {
        match number {
            number::RELAY => !self.settings.relay.is_empty(),
            _ => (number as usize) < NAMES.len(),
        }
    }

    /// The session to the further server, opened at first use.
    pub(crate) fn further(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
    ) -> Result<SessionRef, &'static Reason> {
        if let Some(session) = self.further.live() {
            return Ok(session);
        }
        let to = self.settings.relay.clone();
        let both = Participants::pair(Part::Any, to);
        let opened = self.lower.open(cx, Upper::new(this), both);
        let session = opened.map_err(|_| &SYSTEM_ERROR)?;
        // Another request may have opened it meanwhile: then this is one hold more on the same.
        drop(self.further.replace(Some(session.clone())));
        Ok(session)
    }

    fn report(&self, this: &ProtocolRef, report: &mut Report) {
        let mut lines: Vec<(String, String)> = Vec::new();
        for (name, n) in NAMES.iter().zip(&self.executed) {
            if n.get() > 0 {
                lines.push(((*name).into(), n.get().to_string()));
            }
        }
        lines.push(("octets".into(), self.octets.get().to_string()));
        for (reason, n) in this.head().drops().list() {
            lines.push((format!("refused: {reason}"), n.to_string()));
        }
        lines.push(("executing".into(), self.executing.get().to_string()));
        let most = self.executing_most.get();
        lines.push(("executing at most".into(), most.to_string()));
        report.lines = lines;
        report.finished = true;
    }
}

impl Protocol for Procedures {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(self.settings.at.clone());
        self.lower.open_enable(cx, Upper::new(this), local).map(drop)
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        let asked = lower.ask(cx, MyProcedure::default());
        let number = asked.map_or(self.settings.procedure, |answer| answer.number);
        if !self.serves(number) {
            this.head().drops().count(&NO_PROCEDURE);
            return Err(&NO_PROCEDURE);
        }
        lower.head().set_tag(number);
        Ok(())
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let executing = self.executing.get() + 1;
        if executing > self.settings.concurrency {
            return Err(this.refuse(request, &BUSY));
        }
        self.executing.set(executing);
        if executing > self.executing_most.get() {
            self.executing_most.set(executing);
        }
        let number = lower.head().tag();
        if let Some(n) = self.executed.get(number as usize) {
            n.set(n.get() + 1);
        }
        self.octets.set(self.octets.get() + request.len() as u64);
        let reply = self.execute(cx, this, number, request);
        self.executing.set(self.executing.get() - 1);
        reply
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(report) = ask.get::<Report>() {
            self.report(this, report);
            return Answer::Answered;
        }
        self.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.further.take());
    }
}
