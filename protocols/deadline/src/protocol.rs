//! The layer: a request says how long its client waits, a reply whether the request was begun.

use crate::TOO_LATE;
use crate::wire::{HEADER_OCTETS, Left, Status};
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallCause, CallError, PushError, Refused};
use xk_core::question;
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, SessionRef, Time, reason};
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, Calling, Serving, bad_reply, pop_header, prepend, reply_with,
};

/// One instance of the layer: what the graph says.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// How long a call waits at most.
    pub wait_max: Duration,
    /// A request with less time left is not begun.
    pub time_min: Duration,
}

/// Asked of a session: what became of its calls, or of the requests that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub calls: u64,
    /// Calls that timed out; requests that were executed until after their deadline.
    pub late: u64,
    /// Those that the server did not begin.
    pub not_begun: u64,
}

question!(Tally { calls, late, not_begun }, "deadline-tally", Ask);

impl Tally {
    fn describe(self, what: &str) -> String {
        let Self { calls, late, not_begun } = self;
        alloc::format!("{calls} {what}, {late} late, {not_begun} not begun")
    }

    fn answer(self, ask: &mut Ask<'_>) -> bool {
        ask.get().map(|question| *question = self).is_some()
    }
}

/// Changes what is in a cell.
fn count(tally: &Cell<Tally>, change: impl FnOnce(&mut Tally)) {
    let mut counted = tally.get();
    change(&mut counted);
    tally.set(counted);
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let wait_max = build.duration("wait_max")?;
    let layer = Deadline {
        wait_max: match wait_max {
            Duration::ZERO => Duration::MAX,
            some => some,
        },
        time_min: build.duration("time_min")?,
    };
    let sessions_max = build.int("sessions_max")?;
    let (secret, lower) = (build.cx.secret(), build.lower(0)?);
    build.add(CallLayered::new(secret, lower, sessions_max, (), layer))
}

impl Deadline {
    /// Sends a request whose client waits until its deadline, or for `wait_max`.
    fn send(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let options = request.attribute::<CallOptions>();
        let wait_max = own.all.layer.wait_max;
        let Some(left) = CallOptions::clip(options, cx.now(), wait_max) else {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        };
        if left == wait_max && left != Duration::MAX {
            let shorter = CallOptions {
                deadline: cx.now().after(left),
                tag: options.map_or(0, |options| options.tag),
            };
            request.set_attribute(shorter).map_err(|_| PushError::NoBuffers)?;
        }
        let left = Left(Some(left).filter(|left| *left != Duration::MAX));
        prepend(&mut request, &left.emit())?;
        // This shepherd waits here. Others may call through this very session meanwhile.
        own.next(cx, this, request)
    }
}

impl CallLayer for Deadline {
    type Name = ();
    type Lower = SessionRef;
    type Calls = Cell<Tally>;
    type Serves = Cell<Tally>;

    fn request_octets(&self, _: Option<&Cell<Tally>>) -> usize {
        HEADER_OCTETS
    }

    fn reply_octets(&self, _: &Cell<Tally>) -> usize {
        HEADER_OCTETS
    }

    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        all.accept_for_server(cx, this, lower, request, Cell::default)
    }

    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        let tally = &own.state;
        count(tally, |tally| tally.calls += 1);
        let mut reply = Self::send(own, cx, this, request).inspect_err(|error| {
            if matches!(error.cause, CallCause::TimedOut { .. }) {
                count(tally, |tally| tally.late += 1);
            }
        })?;
        match pop_header(&mut reply).map(Status::parse) {
            Ok(Some(Status::Executed)) => Ok(reply),
            Ok(Some(Status::TooLate)) => {
                count(tally, |tally| tally.not_begun += 1);
                Err(CallError::rejected(&TOO_LATE))
            }
            Ok(None) => Err(bad_reply(cx, this, reply, &reason::MALFORMED)),
            Err(why) => Err(bad_reply(cx, this, reply, why)),
        }
    }

    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let octets = match pop_header(&mut request) {
            Ok(octets) => octets,
            Err(why) => return Err(this.refuse(cx, request, why)),
        };
        let tally = &own.state;
        count(tally, |tally| tally.calls += 1);
        let mut due = Time::MAX;
        if let Left(Some(left)) = Left::parse(octets) {
            if left < own.all.layer.time_min {
                count(tally, |tally| tally.not_begun += 1);
                let mut refused = this.refuse(cx, request, &TOO_LATE);
                refused.message.truncate(0);
                return reply_with(cx, this, refused.message, &Status::TooLate.emit());
            }
            due = cx.now().after(left);
            let options = CallOptions { deadline: due, tag: 0 };
            if request.set_attribute(options).is_err() {
                return Err(this.refuse(cx, request, &reason::NO_BUFFERS));
            }
        }
        // The procedure runs on this shepherd and may wait. What it refuses it has counted.
        let mut reply = own.next(cx, this, request)?;
        if cx.now() > due {
            count(tally, |tally| tally.late += 1);
        }
        // A reply may be the request's own message; how that came says nothing about how it goes.
        if reply.has_attributes() {
            reply.remove_attribute::<CallOptions>();
        }
        reply_with(cx, this, reply, &Status::Executed.emit())
    }

    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        Some(own.state.get().describe("calls"))
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        Some(own.state.get().describe("requests"))
    }

    fn calls_control(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        match own.state.get().answer(ask) {
            true => Answer::Answered,
            false => own.answer(cx, this, ask),
        }
    }

    fn serves_control(own: &Serving<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        match own.state.get().answer(ask) {
            true => Answer::Answered,
            false => own.answer(cx, ask),
        }
    }
}
