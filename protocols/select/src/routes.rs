//! The selection layer that forwards: ranges of procedures that are called at another host instead.

use crate::protocol::Select;
use crate::wire::{HEADER_OCTETS, Header};
use alloc::format;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use xk_core::graph::{BuildError, Params};
use xk_core::object::{CallCause, PushError, Refused, SessionSlot};
use xk_core::reason::Class;
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef,
    reason,
};
use xk_kit::control::PeerHost;
use xk_kit::rpc::call::SYSTEM_ERROR;

/// How often a call may be forwarded.
pub const HOPS_MAX: u8 = 8;

/// Forwarded too often, or back to whom it came from.
pub static LOOPED: Reason = Reason::new("forwarded in a circle", Class::Prohibited);

/// One range of procedures, and who serves it.
pub(crate) struct Route {
    commands: RangeInclusive<u16>,
    to: Participant,
    /// The session that its calls take, once opened.
    session: SessionSlot,
}

/// All ranges, by their first procedure; none overlaps another.
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    /// No procedure is called elsewhere.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Reads the blocks `route`.
    pub(crate) fn read(params: &Params) -> Result<Self, BuildError> {
        let mut routes: Vec<Route> = Vec::new();
        for (index, block) in params.blocks("route").enumerate() {
            let wrong = |expected: &str| BuildError::Param {
                name: "route",
                index,
                expected: expected.into(),
            };
            let first = block.number("first", 0u16);
            let last = block.number("last", first);
            if last < first {
                return Err(wrong("a range whose last procedure is not before its first"));
            }
            let meets =
                |other: &&Route| first <= *other.commands.end() && *other.commands.start() <= last;
            if let Some(other) = routes.iter().find(meets) {
                let (start, end) = (other.commands.start(), other.commands.end());
                return Err(wrong(&format!(
                    "procedures that no other route has; {start} to {end} have one"
                )));
            }
            let to: Option<Participant> = block.text("to").and_then(|text| text.parse().ok());
            let to = to.ok_or_else(|| wrong("to=\"HOST\", a participant such as 10.0.0.3"))?;
            routes.push(Route { commands: first..=last, to, session: SessionSlot::default() });
        }
        routes.sort_by_key(|route| *route.commands.start());
        Ok(Self(routes))
    }

    /// Where a procedure is called instead.
    pub(crate) fn find(&self, command: u16) -> Option<&Route> {
        let after = self.0.partition_point(|route| *route.commands.start() <= command);
        let route = self.0.get(after.checked_sub(1)?)?;
        route.commands.contains(&command).then_some(route)
    }

    /// Lets go of every session.
    pub(crate) fn clear(&self) {
        for route in &self.0 {
            drop(route.session.take());
        }
    }
}

/// Whether two participants end in the same host.
fn is_host(to: &Participant, host: HostAddr) -> bool {
    to.parts().any(|part| *part == Part::Host(host))
}

impl Select {
    /// Calls a procedure at the host that a route names, and gives its reply as it comes.
    #[cold]
    pub(crate) fn forward(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        route: &Route,
        header: Header,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let came_from = lower.ask(cx, PeerHost::default());
        let goes_back = came_from.is_some_and(|peer| is_host(&route.to, peer.host));
        if header.hops >= HOPS_MAX || goes_back {
            return Err(this.refuse(request, &LOOPED));
        }
        let session = match self.further(cx, this, route) {
            Ok(session) => session,
            Err(why) => return Err(this.refuse(request, why)),
        };
        // What a refusal needs, as the request itself goes on.
        let Ok(rest) = cx.pool().empty(HEADER_OCTETS) else {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        };
        let hops = header.hops + 1;
        if request.push_array(&Header { hops, ..header }.emit()).is_err() {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        }
        let called = session.call(cx, request);
        called.map_err(|error| {
            if session.head().is_closed() {
                drop(route.session.take());
            }
            let why = match error.cause {
                CallCause::Rejected(rejection) => rejection.reason,
                CallCause::Push(PushError::TooBig { .. }) => &reason::TOO_BIG,
                _ => &SYSTEM_ERROR,
            };
            this.refuse(rest, why)
        })
    }

    /// The session to the host that serves a route, opened at first use.
    fn further(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        route: &Route,
    ) -> Result<SessionRef, &'static Reason> {
        if let Some(session) = route.session.get() {
            return Ok(session);
        }
        let both = Participants::pair(Part::Any, route.to.clone());
        let session = self.open_whole(cx, this, both).map_err(|_| &SYSTEM_ERROR)?;
        // Another call may have opened it meanwhile: then this is one hold more on the same.
        drop(route.session.replace(Some(session.clone())));
        Ok(session)
    }
}
