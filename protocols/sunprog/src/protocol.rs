//! The protocol object: opens, enables, and finds who serves a request.

use crate::session::{Calling, Serving};

use crate::table::{Found, Table};
use crate::wire::Accepted;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper, reason,
};
use xk_kit::net::attribute::LinkCast;
use xk_kit::net::offers::Offers;
use xk_kit::rpc::call::{MyProcedure, NO_PROCEDURE, NO_PROGRAM, NO_VERSION};
use xk_kit::rpc::onc::{CarriesCredentials, MyProgram, Offered, ProcedureName};

/// Room for the headers below, in octets, in replies made here.
const HEADROOM: usize = 128;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many sessions it holds for either direction.
    pub sessions_max: usize,
    /// How many programs, versions and procedures may be offered.
    pub programs_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sessions_max: 16_384, programs_max: 1024 }
    }
}

/// What protocol and sessions share.
pub(crate) struct Shared {
    pub(crate) calling: SessionTable<crate::session::CallingKey>,
    /// By the session below.
    pub(crate) serving: SessionTable<u64>,
    table: Table,
}

impl Shared {
    /// What a refusal by whoever serves is to the client.
    pub(crate) fn accepted(&self, name: ProcedureName, reason: &Reason) -> Accepted {
        if *reason != NO_VERSION {
            return Accepted::of(reason);
        }
        // He knows better than the table that it is not there, but the table knows which are.
        let (low, high) = self.table.versions(name.program).unwrap_or_default();
        Accepted::Mismatch { low, high }
    }
}

/// One instance of the layer.
pub struct SunProg {
    lowers: Vec<(ProtocolRef, Offers)>,
    shared: Rc<Shared>,
    /// The participants below of each offer.
    enabled: RefCell<BTreeMap<u64, Participant>>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::default());
    let settings = Settings {
        sessions_max: params.number("sessions_max", usual.sessions_max),
        programs_max: params.number("programs_max", usual.programs_max),
    };
    build.lower(0)?;
    Ok(add(build.cx, build.name, build.lowers, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file. It calls through the first
/// of `lowers` and serves on all.
pub fn add(cx: &Kernel, name: &str, lowers: &[ProtocolRef], settings: Settings) -> ProtocolRef {
    let key = cx.secret();
    let shared = Rc::new(Shared {
        calling: SessionTable::new(key, settings.sessions_max),
        serving: SessionTable::new(key, settings.sessions_max),
        table: Table::new(settings.programs_max),
    });
    let body = SunProg {
        lowers: lowers.iter().map(|lower| (lower.clone(), Offers::default())).collect(),
        shared,
        enabled: RefCell::default(),
    };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

/// The reply that says how a request went, if it may have one: a broadcast gets none but a success.
pub(crate) fn answer(
    cx: &Kernel,
    request: Message,
    accepted: Accepted,
    why: &'static Reason,
) -> Result<Message, Refused> {
    if accepted != Accepted::Success && request.attribute::<LinkCast>().is_some() {
        return Err(Refused::new(request, why));
    }
    let (octets, count) = accepted.emit();
    match cx.pool().copy_from(HEADROOM, octets.get(..count).unwrap_or(&octets)) {
        Ok(reply) => Ok(reply),
        Err(_) => Err(Refused::new(request, &reason::NO_BUFFERS)),
    }
}

impl SunProg {
    /// The first request for a procedure by a peer: makes the session, if anybody serves it.
    #[cold]
    fn call_demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let asked = lower.ask(cx, MyProgram::default());
        let Some((MyProgram { program, version }, MyProcedure { number })) =
            asked.zip(lower.ask(cx, MyProcedure::default()))
        else {
            return Err(this.refuse(request, &reason::NOT_SUPPORTED));
        };
        let name = ProcedureName { program, version, procedure: number };
        let (accepted, why) = match self.shared.table.find(name) {
            Found::Served(served) => {
                // Procedure 0 is answered here: nothing above hears of it.
                let upper = match number {
                    0 => this,
                    _ => &served.upper,
                };
                let body = Serving {
                    shared: Rc::clone(&self.shared),
                    key: lower.id().0,
                    lower: lower.clone(),
                    served: Rc::clone(&served),
                    name,
                };
                let (serving, ends) = (&self.shared.serving, || name.participants(cx, lower));
                match serving.accept(cx, this, upper, lower.id().0, body, ends) {
                    Ok(session) => return session.call_pop(cx, request),
                    Err(why) if *why == reason::TABLE_FULL => {
                        return Err(this.refuse(request, why));
                    }
                    Err(why) => (Accepted::of(why), why),
                }
            }
            Found::NoProgram => (Accepted::NoProgram, &NO_PROGRAM),
            Found::Versions(low, high) => (Accepted::Mismatch { low, high }, &NO_VERSION),
            Found::NoProcedure => (Accepted::NoProcedure, &NO_PROCEDURE),
        };
        let refused = this.refuse(request, why);
        answer(cx, refused.message, accepted, why)
    }
}

impl Protocol for SunProg {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (below, _) = self.lowers.first().ok_or(OpenError::NoLower)?;
        let lower = below.open(cx, Upper::new(this), participants)?;
        let key = (lower.id().0, upper.receiver.id().0);
        let body = Calling { shared: Rc::clone(&self.shared), key, lower };
        let calling = &self.shared.calling;
        calling.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let local = participants.local_mut()?;
        let offered = Offered::pop(local)?;
        let number = self.shared.table.enter(offered, upper.receiver)?;
        for (made, (lower, offers)) in self.lowers.iter().enumerate() {
            if let Err(error) = offers.make(cx, lower, this, local) {
                for (lower, offers) in self.lowers.iter().take(made) {
                    offers.withdraw(cx, lower, local);
                }
                self.shared.table.withdraw(number);
                return Err(error);
            }
        }
        self.enabled.borrow_mut().insert(number, local.clone());
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let gone = self.enabled.borrow_mut().remove(&enable.0);
        let Some(local) = gone else {
            return;
        };
        self.shared.table.withdraw(enable.0);
        // They are no conversations, but the memory of where requests go.
        for session in self.shared.serving.sessions(usize::MAX) {
            let body = session.body::<Serving>();
            if body.is_some_and(|body| body.served.number == enable.0) {
                session.abort(cx);
            }
        }
        for (lower, offers) in &self.lowers {
            offers.withdraw(cx, lower, &local);
        }
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        match self.shared.serving.get(&lower.id().0) {
            Some(session) => session.call_pop(cx, request),
            None => self.call_demux_first(cx, this, lower, request),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.calling);
            question.add(&shared.serving);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.add("calling", shared.calling.stats());
            question.add("serving", shared.serving.stats());
            return Answer::Answered;
        }
        if ask.get::<CarriesCredentials>().is_some() {
            return Answer::Unknown;
        }
        match self.lowers.first() {
            Some((lower, _)) => lower.control(cx, ask),
            None => Answer::Unknown,
        }
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.lowers.first().map(|(lower, _)| lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.calling.clear();
        self.shared.serving.clear();
        self.shared.table.clear();
        self.enabled.borrow_mut().clear();
        for (_, offers) in &self.lowers {
            offers.clear();
        }
    }
}
