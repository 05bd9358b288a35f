//! The layer: stands beside the layer of whole credentials, and upon it. A session that calls sends
//! a shorthand when it has one; one that serves takes requests with shorthands, or passes on those
//! with whole credentials.

use super::wire::{Shorthand, returned};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Secret;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallCause, CallError, Enable, OpenError, PushError, Refused};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Participants, ProtocolRef, Reason, SessionRef, Upper,
};
use xk_kit::answers::AskerProved;
use xk_kit::rpc::auth::{
    IssueShorthand, TakeShorthand, carries_credentials, name_caller, peer, pop_credential,
    pop_verifier,
};
use xk_kit::rpc::call::{Caller, CancelCall};
use xk_kit::rpc::call_layer::{CallLayer, CallLayered, Calling, Serving, bad_reply, reply_with};
use xk_kit::rpc::onc::{
    AUTH_HEAD_OCTETS, AUTH_SHORT, AuthHead, BODY_MAX, EMPTY_AUTH, REJECTED_CREDENTIALS,
    SESSIONS_MAX, auth_stat,
};

/// One instance of the layer.
struct AuthShort {
    select: ProtocolRef,
    lifetime: Duration,
    /// Key with which shorthands are sealed.
    seals: Secret,
    /// Enables below for each enable: beside the layer of whole credentials, and upon it.
    enabled: RefCell<BTreeMap<u64, (Enable, Enable)>>,
    enables_made: Cell<u64>,
}

/// State of a session that calls.
#[derive(Default)]
struct Calls {
    /// Sends what this layer puts in front, as the session below sends whole credentials.
    short: Option<SessionRef>,
    /// The server's shorthand; empty if there is none.
    shorthand: RefCell<Vec<u8>>,
}

/// State of a session that serves.
struct Serves {
    /// Requests come with shorthands, not through the layer of whole credentials.
    is_short: bool,
    /// The host that sends them, if the layers below know.
    peer: Option<HostAddr>,
}

/// Builds it from its place in a graph.
pub(super) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let layer = AuthShort {
        select: build.lower(0)?,
        lifetime: build.duration("lifetime")?,
        seals: build.cx.secret(),
        enabled: RefCell::default(),
        enables_made: Cell::new(0),
    };
    let (whole, sessions_max) = (build.lower(1)?, build.int(SESSIONS_MAX.name)?);
    build.add(CallLayered::new(build.cx.secret(), whole, sessions_max, (), layer))
}

/// Puts a shorthand and an empty verifier in front.
fn seal(request: &mut Message, shorthand: &[u8]) -> Result<(), PushError> {
    let padded = shorthand.len().next_multiple_of(4);
    let room =
        request.push_header(2 * AUTH_HEAD_OCTETS + padded).map_err(|_| PushError::NoBuffers)?;
    let head = AuthHead { flavor: AUTH_SHORT, len: shorthand.len() };
    room.fill(0);
    let parts = [&head.emit()[..], shorthand];
    let from = parts.into_iter().flatten();
    for (to, from) in room.iter_mut().zip(from) {
        *to = *from;
    }
    Ok(())
}

/// Whether the server says that the shorthand is no good. One that knows nothing of shorthands any
/// more may say so as it likes: that the flavor is too weak, or the credential bad.
fn is_rejected(error: &CallError) -> bool {
    match error.cause {
        CallCause::Rejected(rejection) => auth_stat(rejection.reason).is_some(),
        _ => false,
    }
}

/// Calls with a whole credential, and keeps the shorthand that may come with the reply.
fn call_whole(
    own: &Calling<AuthShort>,
    cx: &Kernel,
    this: &SessionRef,
    request: Message,
) -> Result<Message, CallError> {
    let reply = own.next(cx, this, request)?;
    if let Some(TakeShorthand { octets }) = own.lower.ask(cx, TakeShorthand::default())
        && octets.len() <= BODY_MAX
    {
        let mut kept = own.state.shorthand.borrow_mut();
        kept.clear();
        kept.extend_from_slice(returned(&octets));
    }
    Ok(reply)
}

impl AuthShort {
    /// Takes shorthand and verifier off a request, and notes its caller.
    fn judge(
        &self,
        cx: &Kernel,
        peer: Option<HostAddr>,
        request: &mut Message,
    ) -> Result<(), &'static Reason> {
        let read = pop_credential(request, |_, body| Shorthand::parse(&self.seals, peer, body));
        let shorthand = read?.ok_or(&REJECTED_CREDENTIALS)?;
        pop_verifier(request)?;
        let age_ms = (cx.now().as_ns() / 1_000_000).saturating_sub(shorthand.given_ms);
        if Duration::from_millis(age_ms) >= self.lifetime {
            return Err(&REJECTED_CREDENTIALS);
        }
        let Shorthand { user, group, .. } = shorthand;
        let flavor = AUTH_SHORT;
        let caller = Caller { flavor, user, group };
        name_caller(request, Some(caller))
    }
}

impl CallLayer for AuthShort {
    type Name = ();
    type Lower = SessionRef;
    type Calls = Calls;
    type Serves = Serves;

    /// No octets more than the layer of whole credentials says: a shorthand is not longer.
    fn request_octets(&self, _: Option<&Calls>) -> usize {
        0
    }

    fn reply_octets(&self, serves: &Serves) -> usize {
        match serves.is_short {
            true => AUTH_HEAD_OCTETS,
            false => 0,
        }
    }

    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let is_short = lower.head().protocol() == all.layer.select.id();
        let serves = || Serves { is_short, peer: peer(cx, lower) };
        all.accept_for_server(cx, this, lower, request, serves)
    }

    fn begin(
        own: &mut Calling<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        _: Upper<'_>,
        ends: Participants,
    ) -> Result<(), OpenError> {
        let short = own.all.layer.select.open(cx, Upper::new(this), ends)?;
        own.state.short = Some(short);
        Ok(())
    }

    fn end(own: &Calling<Self>, cx: &Kernel) {
        if let Some(short) = &own.state.short {
            short.close(cx);
        }
    }

    /// The number is that of the flavor.
    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let Calls { short, shorthand } = &own.state;
        let Some(short) = short.as_ref().filter(|_| !shorthand.borrow().is_empty()) else {
            return call_whole(own, cx, this, request);
        };
        let kept = request.try_clone();
        let kept = kept.map_err(|_| CallError::from(PushError::NoBuffers))?;
        seal(&mut request, &shorthand.borrow())?;
        let mut reply = match short.call(cx, request) {
            Ok(reply) => reply,
            Err(error) if is_rejected(&error) => {
                shorthand.borrow_mut().clear();
                return call_whole(own, cx, this, kept);
            }
            Err(error) => return Err(error),
        };
        match pop_verifier(&mut reply) {
            Ok(()) => Ok(reply),
            Err(why) => Err(bad_reply(cx, this, reply, why)),
        }
    }

    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        if !own.state.is_short {
            return own.next(cx, this, request);
        }
        let judged = own.all.layer.judge(cx, own.state.peer, &mut request);
        if let Err(why) = judged {
            return Err(this.refuse(cx, request, why));
        }
        let mut reply = own.next(cx, this, request)?;
        if own.state.peer.is_some() {
            // The shorthand is good for the host alone that it was sent to. Without room for this a
            // long reply may be held back.
            let _ = reply.set_attribute(AskerProved);
        }
        reply_with(cx, this, reply, &EMPTY_AUTH)
    }

    fn enable(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        let (layer, own) = (&all.layer, Upper::new(this));
        all.serve(upper, || {
            let upon = all.lower.open_enable(cx, own, ends.clone())?;
            let beside = layer.select.open_enable(cx, own, ends);
            let beside = beside.inspect_err(|_| all.lower.open_disable(cx, upon))?;
            let number = layer.enables_made.get();
            layer.enables_made.set(number + 1);
            layer.enabled.borrow_mut().insert(number, (beside, upon));
            Ok(Enable(number))
        })
    }

    fn disable(all: &CallLayered<Self>, cx: &Kernel, enable: Enable) {
        let gone = all.layer.enabled.borrow_mut().remove(&enable.0);
        if let Some((beside, upon)) = gone {
            all.layer.select.open_disable(cx, beside);
            all.lower.open_disable(cx, upon);
            all.serve_no_more();
        }
    }

    fn control(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        if let Some(question) = ask.get::<IssueShorthand>() {
            if question.who != this.id() {
                return Answer::Unknown;
            }
            let shorthand = Shorthand {
                user: question.caller.user,
                group: question.caller.group,
                given_ms: cx.now().as_ns() / 1_000_000,
            };
            question.octets = shorthand.emit(&all.layer.seals, question.peer);
            return Answer::Answered;
        }
        carries_credentials(this, ask).unwrap_or_else(|| all.answer(cx, ask))
    }

    fn calls_control(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        let answer = own.answer(cx, this, ask);
        match &own.state.short {
            Some(short) if !answer.is_answered() && ask.get::<CancelCall>().is_some() => {
                short.control(cx, ask)
            }
            _ => answer,
        }
    }

    fn stop(&self) {
        self.enabled.borrow_mut().clear();
    }
}
