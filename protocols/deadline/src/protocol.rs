//! The layer: a request says how long its client waits, a reply whether the request was begun.

use crate::TOO_LATE;
use crate::wire::{HEADER_OCTETS, Left, Status};
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallCause, CallError, OpenError, PushError, Refused};
use xk_core::question;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, SessionRef, Time, Upper, reason,
};
use xk_kit::rpc::call::{CallOptions, MyProcedure};
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, Calling, Serving, bad_reply, pop_header, prepend, reply_with,
};
use xk_kit::rpc::onc::MyProgram;

/// One instance of the layer: its parameters from the graph.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// Longest time that a call waits.
    pub wait_max: Duration,
    /// A request with less time left is not begun.
    pub time_min: Duration,
}

/// Asks a session for counts of its calls, or of the requests that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub calls: u64,
    /// Calls that timed out; requests that were executed until after their deadline.
    pub late: u64,
    /// Calls that the server did not begin.
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

/// State of a session.
#[derive(Default)]
pub struct Own {
    tally: Cell<Tally>,
    /// The null procedure of a program: the layer of programs answers it without a header, since
    /// nothing above it hears of the call (RFC 5531, section 8.1).
    is_null: bool,
}

impl Own {
    fn of(cx: &Kernel, lower: &SessionRef) -> Self {
        let is_null = lower.ask(cx, MyProgram::default()).is_some()
            && lower.ask(cx, MyProcedure::default()) == Some(MyProcedure { number: 0 });
        Self { tally: Cell::default(), is_null }
    }

    /// Octets in front of its requests and replies.
    fn octets(&self) -> usize {
        if self.is_null { 0 } else { HEADER_OCTETS }
    }

    fn count(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }
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
        if !own.state.is_null {
            let left = Left(Some(left).filter(|left| *left != Duration::MAX));
            prepend(&mut request, &left.emit())?;
        }
        // This shepherd waits here. Meanwhile others may call through this session.
        own.next(cx, this, request)
    }
}

impl CallLayer for Deadline {
    type Name = ();
    type Lower = SessionRef;
    type Calls = Own;
    type Serves = Own;

    fn request_octets(&self, own: Option<&Own>) -> usize {
        own.map_or(HEADER_OCTETS, Own::octets)
    }

    fn reply_octets(&self, own: &Own) -> usize {
        own.octets()
    }

    fn begin(
        own: &mut Calling<Self>,
        cx: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<(), OpenError> {
        own.state = Own::of(cx, &own.lower);
        Ok(())
    }

    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        all.accept_for_server(cx, this, lower, request, || Own::of(cx, lower))
    }

    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        own.state.count(|tally| tally.calls += 1);
        let mut reply = Self::send(own, cx, this, request).inspect_err(|error| {
            if matches!(error.cause, CallCause::TimedOut { .. }) {
                own.state.count(|tally| tally.late += 1);
            }
        })?;
        if own.state.is_null {
            return Ok(reply);
        }
        match pop_header(&mut reply).map(Status::parse) {
            Ok(Some(Status::Executed)) => Ok(reply),
            Ok(Some(Status::TooLate)) => {
                own.state.count(|tally| tally.not_begun += 1);
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
        if own.state.is_null {
            own.state.count(|tally| tally.calls += 1);
            return own.next(cx, this, request);
        }
        let octets = match pop_header(&mut request) {
            Ok(octets) => octets,
            Err(why) => return Err(this.refuse(cx, request, why)),
        };
        own.state.count(|tally| tally.calls += 1);
        let mut due = Time::MAX;
        if let Left(Some(left)) = Left::parse(octets) {
            if left < own.all.layer.time_min {
                own.state.count(|tally| tally.not_begun += 1);
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
        // The procedure runs on this shepherd and may wait. It counts the requests that it refuses.
        let mut reply = own.next(cx, this, request)?;
        if cx.now() > due {
            own.state.count(|tally| tally.late += 1);
        }
        // A reply may be the request's own message; how that came says nothing about how it goes.
        if reply.has_attributes() {
            reply.remove_attribute::<CallOptions>();
        }
        reply_with(cx, this, reply, &Status::Executed.emit())
    }

    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        Some(own.state.tally.get().describe("calls"))
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        Some(own.state.tally.get().describe("requests"))
    }

    fn calls_control(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        match own.state.tally.get().answer(ask) {
            true => Answer::Answered,
            false => own.answer(cx, this, ask),
        }
    }

    fn serves_control(own: &Serving<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        match own.state.tally.get().answer(ask) {
            true => Answer::Answered,
            false => own.answer(cx, ask),
        }
    }
}
