//! The layer: finds the server of a request, and says in front of a reply how the call went.

use crate::table::{Found, Served, Table};
use crate::wire::{Accepted, FAILED_OCTETS_MAX, STAT_OCTETS};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallCause, CallError, Enable, OpenError, Refused, Rejection};
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::net::offers::Offers;
use xk_kit::rpc::call::{LargestReply, MyProcedure, NO_PROCEDURE, NO_PROGRAM, NO_VERSION};
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, Calling, Serving, bad_reply, reply_of, reply_to_refused, reply_with,
};
use xk_kit::rpc::onc::{CarriesCredentials, MyProgram, Offered, ProcedureName, auth_stat};

xk_core::settings! {
    /// Bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        sessions_max: usize = int(1..=16_777_216, 16_384,
            "how many sessions it holds, for calls and for requests each; idle ones are evicted \
             for new ones"),
        programs_max: usize = int(1..=1_048_576, 1024,
            "how many programs, versions and procedures may be offered"),
    }
}

/// One instance of the layer.
pub struct SunProg {
    /// Lowers on which it serves; it calls through the first.
    lowers: Vec<(ProtocolRef, Offers)>,
    table: Table,
    /// The participants below of each offer.
    enabled: RefCell<BTreeMap<u64, Participant>>,
}

/// State of a session that serves.
pub struct Serves {
    served: Rc<Served>,
    name: ProcedureName,
    /// Octets of the largest result that the layers below carry, as far as they know.
    result_max: usize,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    let first = build.lower(0)?;
    let others = build.lowers.get(1..).unwrap_or_default();
    Ok(add(build.cx, build.name, first, others, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file. It calls through `first`
/// and serves on that and on `others`.
pub fn add(
    cx: &Kernel,
    name: &str,
    first: ProtocolRef,
    others: &[ProtocolRef],
    settings: Settings,
) -> ProtocolRef {
    let all = core::iter::once(&first).chain(others);
    let layer = SunProg {
        lowers: all.map(|lower| (lower.clone(), Offers::default())).collect(),
        table: Table::new(settings.programs_max),
        enabled: RefCell::default(),
    };
    let body = CallLayered::new(cx.secret(), first, settings.sessions_max, (), layer);
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

/// The reply that says how a request went that was refused, if it may have one.
fn answer(cx: &Kernel, refused: Refused, accepted: Accepted) -> Result<Message, Refused> {
    let (octets, count) = accepted.emit();
    reply_to_refused(cx, refused, octets.get(..count).unwrap_or(&octets))
}

/// Reads an accepted reply that does not begin with zeros.
#[cold]
fn failed(cx: &Kernel, this: &SessionRef, reply: Message) -> CallError {
    let mut octets = [0; FAILED_OCTETS_MAX];
    let count = reply.copy_to(0, &mut octets);
    let accepted = octets.get(..count).and_then(Accepted::parse);
    let Some((accepted, reason)) = accepted.and_then(|a| Some((a, a.reason()?))) else {
        return bad_reply(cx, this, reply, &reason::MALFORMED);
    };
    let versions = match accepted {
        Accepted::Mismatch { low, high } => Some((low, high)),
        _ => None,
    };
    CallCause::Rejected(Rejection { reason, versions }).into()
}

impl SunProg {
    /// Status of an accepted reply for a refusal of the server.
    fn accepted(&self, name: ProcedureName, reason: &Reason) -> Accepted {
        if *reason != NO_VERSION {
            return Accepted::of(reason);
        }
        // The server knows better than the table that it is not there, the table which are.
        let (low, high) = self.table.versions(name.program).unwrap_or_default();
        Accepted::Mismatch { low, high }
    }
}

impl CallLayer for SunProg {
    type Name = ();
    type Lower = SessionRef;
    type Calls = ();
    type Serves = Serves;

    /// A call adds nothing to what the layers below add.
    fn request_octets(&self, _: Option<&()>) -> usize {
        0
    }

    fn reply_octets(&self, _: &Serves) -> usize {
        STAT_OCTETS
    }

    /// The first request for a procedure by a peer.
    fn first(
        all: &CallLayered<Self>,
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
        let (accepted, why) = match all.layer.table.find(name) {
            Found::Served(served) => {
                // Procedure 0 is answered here: nothing above hears of it.
                let upper = if number == 0 { this } else { &served.upper };
                let largest = lower.ask(cx, LargestReply::default());
                let largest = largest.map_or(usize::MAX, |reply| reply.octets as usize);
                let result_max = largest.saturating_sub(STAT_OCTETS);
                let serves = Serves { served: Rc::clone(&served), name, result_max };
                let make = || (serves, name.participants(cx, lower));
                match all.accept(cx, this, (lower, upper), (), make) {
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
        answer(cx, this.refuse(request, why), accepted)
    }

    #[inline]
    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        let mut reply = own.next(cx, this, request)?;
        if reply.peek_in_place::<STAT_OCTETS>() == Some(&[0; STAT_OCTETS])
            && reply.strip_in_place(STAT_OCTETS)
        {
            return Ok(reply);
        }
        let mut stat = [0xff; STAT_OCTETS];
        if reply.copy_to(0, &mut stat) == STAT_OCTETS
            && stat == [0; STAT_OCTETS]
            && reply.strip(STAT_OCTETS)
        {
            return Ok(reply);
        }
        Err(failed(cx, this, reply))
    }

    #[inline]
    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let Serves { name, result_max, .. } = own.state;
        if name.procedure == 0 {
            // The null procedure: no arguments, no results, no work (RFC 5531, section 8.1). A
            // success has a reply, whatever the request came by.
            return reply_of(cx, request, &[0; STAT_OCTETS]);
        }
        match own.next(cx, this, request) {
            // The layers below would drop it, and the client wait.
            Ok(reply) if reply.len() > result_max => {
                answer(cx, this.refuse(cx, reply, &reason::TOO_BIG), Accepted::SystemError)
            }
            Ok(reply) => reply_with(cx, this, reply, &[0; STAT_OCTETS]),
            // Of credentials another layer speaks, and of what is not for others none.
            Err(refused)
                if auth_stat(refused.reason).is_some()
                    || refused.reason.class == Class::NotMine =>
            {
                Err(refused)
            }
            Err(refused) => {
                let accepted = own.all.layer.accepted(name, refused.reason);
                answer(cx, refused, accepted)
            }
        }
    }

    /// The number is that of empty credentials.
    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        Some(alloc::format!("serves {} on {:?}", own.state.name, own.lower))
    }

    fn enable(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        let Self { lowers, table, enabled } = &all.layer;
        let local = ends.local_mut()?;
        let offered = Offered::pop(local)?;
        let number = table.enter(offered, upper.receiver)?;
        for (made, (lower, offers)) in lowers.iter().enumerate() {
            if let Err(error) = offers.make(cx, lower, this, local) {
                for (lower, offers) in lowers.iter().take(made) {
                    offers.withdraw(cx, lower, local);
                }
                table.withdraw(number);
                return Err(error);
            }
        }
        enabled.borrow_mut().insert(number, local.clone());
        Ok(Enable(number))
    }

    fn disable(all: &CallLayered<Self>, cx: &Kernel, enable: Enable) {
        let Self { lowers, table, enabled } = &all.layer;
        let gone = enabled.borrow_mut().remove(&enable.0);
        let Some(local) = gone else {
            return;
        };
        table.withdraw(enable.0);
        // They are no conversations, but the memory of where requests go.
        for session in all.all_serving() {
            let body = session.body::<Serving<Self>>();
            if body.is_some_and(|body| body.state.served.number == enable.0) {
                session.abort(cx);
            }
        }
        for (lower, offers) in lowers {
            offers.withdraw(cx, lower, &local);
        }
    }

    fn control(all: &CallLayered<Self>, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match ask.get::<CarriesCredentials>() {
            Some(_) => Answer::Unknown,
            None => all.answer(cx, ask),
        }
    }

    fn serves_control(own: &Serving<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        match own.state.name.answer(ask) {
            true => Answer::Answered,
            false => own.answer(cx, ask),
        }
    }

    fn stop(&self) {
        self.table.clear();
        self.enabled.borrow_mut().clear();
        for (_, offers) in &self.lowers {
            offers.clear();
        }
    }
}
