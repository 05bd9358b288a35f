//! The layer: what happens to a request and to its reply, at either end.

use crate::WRONG_VERSION;
use crate::wire::{HEADER_OCTETS, REQUEST, Reply, is_request};
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::Question;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, SessionRef};
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, Calling, Serving, bad_reply, pop_header, prepend, reply_with,
};

/// One instance of the layer.
pub struct Calltemplate;

/// Asked of a session that calls: how much of its calls' time was the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTime {
    /// Calls that were replied to.
    pub calls: u64,
    /// What the server took for them, all together.
    pub time: Duration,
}

impl Question for ServerTime {
    const NAME: &'static str = "calltemplate-server-time";
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.params.number("sessions_max", 4096);
    let (secret, lower) = (build.cx.secret(), build.lower(0)?);
    build.add(CallLayered::new(secret, lower, sessions_max, Calltemplate))
}

impl CallLayer for Calltemplate {
    type Calls = Cell<ServerTime>;
    /// How many requests came.
    type Serves = Cell<u64>;

    fn request_octets(&self) -> usize {
        HEADER_OCTETS
    }

    fn reply_octets(&self, _: &Cell<u64>) -> usize {
        HEADER_OCTETS
    }

    fn serves(&self, _: &Kernel, _: &SessionRef) -> Cell<u64> {
        Cell::default()
    }

    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        prepend(&mut request, &REQUEST)?;
        // This shepherd waits here. Others may call through this very session meanwhile.
        let mut reply = own.next(cx, request)?;
        let octets = match pop_header(&mut reply) {
            Ok(octets) => octets,
            Err(why) => return Err(bad_reply(cx, this, reply, why)),
        };
        let ServerTime { calls, time } = own.state.get();
        let took = Duration::from_micros(Reply::parse(octets).us.into());
        own.state.set(ServerTime { calls: calls + 1, time: time + took });
        Ok(reply)
    }

    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        match pop_header(&mut request) {
            Ok(octets) if is_request(&octets) => {}
            Ok(_) => return Err(this.refuse(cx, request, &WRONG_VERSION)),
            Err(why) => return Err(this.refuse(cx, request, why)),
        }
        own.state.set(own.state.get() + 1);
        let arrived = cx.now();
        // The procedure runs on this shepherd and may wait. What it refuses it has counted.
        let reply = own.next(cx, this, request)?;
        reply_with(cx, this, reply, &Reply::after(cx.now() - arrived).emit())
    }

    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        let ServerTime { calls, time } = own.state.get();
        Some(alloc::format!("{calls} calls, the server took {time:?}"))
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        Some(alloc::format!("{} requests", own.state.get()))
    }

    fn calls_control(own: &Calling<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ServerTime>() {
            *question = own.state.get();
            return Answer::Answered;
        }
        own.answer(cx, ask)
    }
}
