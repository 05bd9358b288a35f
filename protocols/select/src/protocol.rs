//! The layer: the header in front of requests and replies, and the server of a procedure.

use crate::routes::Routes;
use crate::wire::{HEADER_OCTETS, Header, STATUS_OK, Type, reason_of};
use alloc::rc::Rc;
use alloc::string::String;
use xk_core::graph::{Build, BuildError};
use xk_core::map::{Map, MapStats};
use xk_core::object::{CallError, Enable, OpenError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::{
    Ask, Kernel, Message, Part, Participants, ProtocolRef, Reason, SessionRef, Upper, reason,
};
use xk_kit::rpc::call::{MyProcedure, NO_PROCEDURE, PROCEDURE, pop_definite, pop_local};
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, Calling, Serving, bad_reply, pop_header, prepend, reply_with,
};
use xk_kit::rpc::codes::status_of;
use xk_kit::rpc::session_pool::{SessionPool, SessionPools};

/// Largest number of enabled procedures.
const ENABLES_MAX: usize = 4096;
/// The key of an enable of any procedure.
const ANY: u32 = u32::MAX;

xk_core::settings! {
    /// The bounds of one instance.
    #[derive(Clone, Copy, Debug)]
    pub struct Limits {
        channels: usize = int(1..=65_536, 8, "how many channels a peer has at most"),
        sessions_max: usize = int(1..=1_048_576, 4096,
            "how many sessions it holds for clients, and how many for servers; idle ones are \
             evicted for new ones"),
    }
}

/// One instance of the layer, whether or not it forwards.
pub struct Select {
    /// Procedure, or [`ANY`], to the protocol that serves it.
    enables: Map<u32, ProtocolRef>,
    /// The procedures that are called elsewhere.
    routes: Routes,
}

/// Headers that a session keeps which calls.
#[derive(Default)]
pub struct Headers {
    /// Header of every call.
    call: [u8; HEADER_OCTETS],
    /// Header of every reply to a call that was executed.
    reply: [u8; HEADER_OCTETS],
}

/// Builds SELECT from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let select = layered(build.cx, build.lower(0)?, Limits::read(build)?, Routes::none());
    build.add(select)
}

/// Builds the layer that forwards from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or a route is none.
pub fn build_forward(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let routes = Routes::read(build.params)?;
    let select = layered(build.cx, build.lower(0)?, Limits::read(build)?, routes);
    build.add(select)
}

/// Adds SELECT to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, limits: Limits) -> ProtocolRef {
    cx.add_protocol(crate::ENTRY.kind, name, layered(cx, lower, limits, Routes::none()))
}

fn layered(cx: &Kernel, lower: ProtocolRef, limits: Limits, routes: Routes) -> CallLayered<Select> {
    let key = cx.secret();
    let layer = Select { enables: Map::new(key, ENABLES_MAX), routes };
    CallLayered::new(key, lower, limits.sessions_max, SessionPools::new(limits.channels), layer)
}

/// The reply that says why a call was refused.
#[cold]
fn refusal(command: u16, mut refused: Refused) -> Result<Message, Refused> {
    let header = Header::reply(command, status_of(refused.reason)).emit();
    refused.message.truncate(0);
    match prepend(&mut refused.message, &header) {
        Ok(()) => Ok(refused.message),
        Err(_) => Err(refused),
    }
}

/// A reply that says no, or that is none.
#[cold]
fn other_reply(
    own: &Calling<Select>,
    cx: &Kernel,
    this: &SessionRef,
    mut reply: Message,
) -> Result<Message, CallError> {
    let octets = match pop_header::<HEADER_OCTETS>(&mut reply) {
        Ok(octets) => octets,
        Err(why) => return Err(bad_reply(cx, this, reply, why)),
    };
    match Header::parse(&octets) {
        Ok(header) if header.kind == Type::Reply && header.command == own.name => {
            match header.status {
                STATUS_OK => Ok(reply),
                status => Err(CallError::rejected(reason_of(status))),
            }
        }
        _ => Err(bad_reply(cx, this, reply, &reason::MALFORMED)),
    }
}

impl Select {
    /// The session for the first call of a procedure through a channel.
    fn accept(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        command: u16,
    ) -> Result<SessionRef, &'static Reason> {
        let enables = &all.layer.enables;
        let upper = enables.get(&command.into()).or_else(|| enables.get(&ANY));
        let upper = upper.ok_or(&NO_PROCEDURE)?;
        let reply = Header::reply(command, STATUS_OK).emit();
        let make = || (reply, Participants::default());
        all.accept(cx, this, (lower, &upper), command, make)
    }
}

impl CallLayer for Select {
    type Name = u16;
    type Lower = Rc<SessionPool>;
    type Calls = Headers;
    /// The header of every reply to a call that was executed.
    type Serves = [u8; HEADER_OCTETS];

    fn request_octets(&self, _: Option<&Headers>) -> usize {
        HEADER_OCTETS
    }

    fn reply_octets(&self, _: &[u8; HEADER_OCTETS]) -> usize {
        HEADER_OCTETS
    }

    fn start(all: &CallLayered<Self>, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        all.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn pop_name(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u16, OpenError> {
        let command = pop_definite(ends.peer_mut()?, PROCEDURE)?;
        let command = u16::try_from(command).map_err(|_| AddressError::OutOfRange)?;
        let local = ends.local_mut()?;
        pop_local(local, PROCEDURE)?;
        if local.is_empty() {
            local.push(Part::Any);
        }
        Ok(command)
    }

    /// Procedure of a call that is for this host: octets 1 and 5 say nothing to the server.
    #[inline(always)]
    fn name_in(request: &Message) -> Option<u16> {
        match request.peek_in_place::<HEADER_OCTETS>()? {
            [1, _, high, low, 0, _] => Some(u16::from_be_bytes([*high, *low])),
            _ => None,
        }
    }

    fn answer_name(command: u16, ask: &mut Ask<'_>) -> bool {
        ask.answer::<MyProcedure>(|question| question.number = command.into()).is_answered()
    }

    fn begin(
        own: &mut Calling<Self>,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<(), OpenError> {
        let call = Header::call(own.name).emit();
        own.state = Headers { call, reply: Header::reply(own.name, STATUS_OK).emit() };
        Ok(())
    }

    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    #[inline(never)]
    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let (octets, mut request) = this.header::<HEADER_OCTETS>(request)?;
        let header = match Header::parse(&octets) {
            Ok(header) if header.kind == Type::Call => header,
            _ => return Err(this.refuse(request, &reason::MALFORMED)),
        };
        if let Some(route) = all.layer.routes.find(header.command) {
            let _ = request.strip(HEADER_OCTETS);
            return route
                .forward(cx, all, this, lower, header, request)
                .or_else(|refused| refusal(header.command, refused));
        }
        let session = match all.serving(lower, header.command) {
            Some(session) => Ok(session),
            None => Self::accept(all, cx, this, lower, header.command),
        };
        match session {
            Ok(session) => session.call_pop(cx, request),
            Err(why) => refusal(header.command, this.refuse(request, why)),
        }
    }

    #[inline]
    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        prepend(&mut request, &own.state.call)?;
        let mut reply = own.next(cx, this, request)?;
        if reply.peek_in_place::<HEADER_OCTETS>() == Some(&own.state.reply) {
            reply.strip_in_place(HEADER_OCTETS);
            return Ok(reply);
        }
        other_reply(own, cx, this, reply)
    }

    #[inline]
    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        // It was seen there when the session was looked for.
        let _ = request.strip_in_place(HEADER_OCTETS) || request.strip(HEADER_OCTETS);
        match own.next(cx, this, request) {
            Ok(reply) => reply_with(cx, this, reply, &own.state),
            Err(refused) => refusal(own.name, refused),
        }
    }

    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        let (command, opened) = (own.name, own.lower.opened());
        Some(alloc::format!("calls procedure {command}, {opened} channels open"))
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        Some(alloc::format!("serves procedure {}", own.name))
    }

    fn enable(
        all: &CallLayered<Self>,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        let key = match pop_local(ends.local_mut()?, PROCEDURE)? {
            Wild::Any => ANY,
            Wild::Is(number) if number <= u32::from(u16::MAX) => number,
            Wild::Is(_) => return Err(AddressError::OutOfRange.into()),
        };
        all.layer.enables.enable(key, upper.receiver.clone(), |_| false)?;
        Ok(Enable(key.into()))
    }

    fn disable(all: &CallLayered<Self>, _: &Kernel, enable: Enable) {
        if let Ok(key) = u32::try_from(enable.0) {
            all.layer.enables.unbind(&key);
        }
    }

    fn map(&self) -> Option<(&'static str, MapStats)> {
        Some(("enables", self.enables.stats()))
    }

    fn stop(&self) {
        self.enables.clear();
        self.routes.clear();
    }
}
