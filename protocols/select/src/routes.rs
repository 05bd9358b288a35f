//! The selection layer that forwards: ranges of procedures that are called at another host instead.

use crate::protocol::Select;
use crate::wire::{HEADER_OCTETS, Header};
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::RangeInclusive;
use xk_core::graph::{BuildError, Params};
use xk_core::object::{CallCause, OpenError, PushError, Refused};
use xk_core::reason::Class;
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::control::PeerHost;
use xk_kit::rpc::call::SYSTEM_ERROR;
use xk_kit::rpc::call_layer::CallLayered;
use xk_kit::rpc::session_pool::SessionPool;

/// Times that a call may be forwarded.
pub const HOPS_MAX: u8 = 8;

/// Forwarded too often, or back to whom it came from.
pub static LOOPED: Reason = Reason::new("forwarded in a circle", Class::Prohibited);

/// One range of procedures, and the host that serves it.
pub(crate) struct Route {
    commands: RangeInclusive<u16>,
    to: Participant,
    /// The channels that its calls take, once opened.
    pool: RefCell<Option<Rc<SessionPool>>>,
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
            routes.push(Route { commands: first..=last, to, pool: RefCell::default() });
        }
        routes.sort_by_key(|route| *route.commands.start());
        Ok(Self(routes))
    }

    /// The route of a procedure that is called elsewhere.
    pub(crate) fn find(&self, command: u16) -> Option<&Route> {
        let after = self.0.partition_point(|route| *route.commands.start() <= command);
        let route = self.0.get(after.checked_sub(1)?)?;
        route.commands.contains(&command).then_some(route)
    }

    /// Releases all channels.
    pub(crate) fn clear(&self) {
        for route in &self.0 {
            drop(route.pool.take());
        }
    }
}

/// Whether two participants end in the same host.
fn is_host(to: &Participant, host: HostAddr) -> bool {
    to.parts().any(|part| *part == Part::Host(host))
}

impl Route {
    /// Calls a procedure at the host of the route, and gives its reply as it comes.
    #[cold]
    pub(crate) fn forward(
        &self,
        cx: &Kernel,
        all: &CallLayered<Select>,
        this: &ProtocolRef,
        lower: &SessionRef,
        header: Header,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let came_from = lower.ask(cx, PeerHost::default());
        let goes_back = came_from.is_some_and(|peer| is_host(&self.to, peer.host));
        if header.hops >= HOPS_MAX || goes_back {
            return Err(this.refuse(request, &LOOPED));
        }
        let pool = match self.pool(cx, all, this) {
            Ok(pool) => pool,
            Err(_) => return Err(this.refuse(request, &SYSTEM_ERROR)),
        };
        // What a refusal needs, as the request itself goes on.
        let Ok(rest) = cx.pool().empty(HEADER_OCTETS) else {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        };
        let hops = header.hops + 1;
        if request.push_array(&Header { hops, ..header }.emit()).is_err() {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        }
        pool.call(cx, lower, request).map_err(|error| {
            let why = match error.cause {
                CallCause::Rejected(rejection) => rejection.reason,
                CallCause::Push(PushError::TooBig) => &reason::TOO_BIG,
                _ => &SYSTEM_ERROR,
            };
            this.refuse(rest, why)
        })
    }

    /// The channels to the host of the route, opened at first use and kept.
    fn pool(
        &self,
        cx: &Kernel,
        all: &CallLayered<Select>,
        this: &ProtocolRef,
    ) -> Result<Rc<SessionPool>, OpenError> {
        let known = self.pool.borrow().clone();
        if let Some(pool) = known.filter(|pool| !pool.is_over()) {
            return Ok(pool);
        }
        let ends = Participants::pair(Part::Any, self.to.clone());
        let pool = all.shared.open(cx, &all.lower, Upper::new(this), ends)?;
        if let Some(before) = self.pool.replace(Some(Rc::clone(&pool))) {
            // It is over, or another call was faster.
            all.shared.leave(cx, &before);
        }
        Ok(pool)
    }
}
