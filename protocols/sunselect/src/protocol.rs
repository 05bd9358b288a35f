//! The layer: the header in front of requests, and the layer of authentication that a request is
//! for.

use crate::wire::{
    ACCEPTED, CALL_OCTETS, DENIED, Denied, REPLY_OCTETS, RPC_VERSION, emit, parse, word,
};
use alloc::rc::Rc;
use alloc::string::String;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallCause, CallError, Enable, OpenError, ProtocolId, Refused, Rejection};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Reason, SessionRef, Upper, reason,
};
use xk_kit::rpc::auth::pop_verifier;
use xk_kit::rpc::call::BAD_CREDENTIALS;
use xk_kit::rpc::call_layer::{
    CallLayer, CallLayered, Calling, Serving, bad_reply, pop_header, prepend, reply_to_refused,
    reply_with,
};
use xk_kit::rpc::onc::{
    AUTH_HEAD_OCTETS, AuthError, AuthHead, CarriesCredentials, Offered, ProcedureName, TOO_WEAK,
    WRONG_RPC_VERSION, auth_reason, auth_stat,
};
use xk_kit::rpc::server::OfferingServers;
use xk_kit::rpc::session_pool::{SessionPool, SessionPools};

/// Octets of a header and the flavor behind it.
const LOOK_OCTETS: usize = CALL_OCTETS + 4;
/// Octets of the header and two empty credentials.
const FULL_OCTETS: usize = CALL_OCTETS + 2 * AUTH_HEAD_OCTETS;
/// Octets of `reply_stat` and an empty verifier.
const FULL_REPLY_OCTETS: usize = REPLY_OCTETS + AUTH_HEAD_OCTETS;

/// Program, version, procedure and flavor.
fn key(name: ProcedureName, flavor: u32) -> u128 {
    let words = [name.program, name.version, name.procedure, flavor];
    words.into_iter().fold(0, |key, word| key << 32 | u128::from(word))
}

/// The procedure in a key.
fn name_of(key: u128) -> ProcedureName {
    let [program, version, procedure] = [96, 64, 32].map(|bits| (key >> bits) as u32);
    ProcedureName { program, version, procedure }
}

/// The key in the front of a request.
#[inline(always)]
fn key_of(octets: &[u8; LOOK_OCTETS]) -> Option<u128> {
    let name = parse(octets.first_chunk()?).ok()?;
    Some(key(name, word(octets, CALL_OCTETS / 4)))
}

xk_core::settings! {
    /// Bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        sessions_max: usize = int(1..=16_777_216, 16_384,
            "how many sessions it holds, for calls and for requests each; idle ones are evicted \
             for new ones"),
        lines_max: u32 = int(1..=65_536, 8,
            "how many calls to one peer may be under way on a layer that has but one in each \
             session"),
    }
}

/// One instance of the layer.
#[derive(Default)]
pub struct SunSelect {
    /// The servers by flavor of credentials.
    servers: OfferingServers,
}

/// State of a session that calls.
pub struct Calls {
    /// The header of every call, and empty credentials behind it.
    template: [u8; FULL_OCTETS],
    /// Whether the upper writes and reads credentials.
    carries: bool,
}

impl Default for Calls {
    fn default() -> Self {
        Self { template: [0; FULL_OCTETS], carries: false }
    }
}

/// State of a session that serves.
pub struct Serves {
    /// Whether the upper reads and writes credentials.
    carries: bool,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let (layer, pools) = (SunSelect::default(), SessionPools::new(settings.lines_max as usize));
    let body = CallLayered::new(cx.secret(), lower, settings.sessions_max, pools, layer);
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

/// Whether an upper writes and reads credentials itself: the one whose number selects, whatever
/// slips in between.
fn carries(cx: &Kernel, selector: ProtocolId) -> bool {
    let asked = cx.protocol(selector);
    asked.is_some_and(|upper| upper.ask(cx, CarriesCredentials { who: selector }).is_some())
}

/// The reply that denies a request, if it may have one.
#[cold]
fn deny(cx: &Kernel, refused: Refused, denied: Denied) -> Result<Message, Refused> {
    let (octets, count) = denied.emit();
    reply_to_refused(cx, refused, octets.get(..count).unwrap_or(&octets))
}

/// Answers a request that was refused: denies it, if the reason is one of authentication.
#[cold]
fn refused(cx: &Kernel, refused: Refused) -> Result<Message, Refused> {
    match auth_stat(refused.reason) {
        Some(stat) => deny(cx, refused, Denied::Auth(stat)),
        None => Err(refused),
    }
}

/// A reply that does not begin with the words that the call was accepted and nothing else.
#[cold]
fn other_reply(
    own: &Calling<SunSelect>,
    cx: &Kernel,
    this: &SessionRef,
    mut reply: Message,
) -> Result<Message, CallError> {
    match read(&mut reply, own.state.carries) {
        Ok(None) => Ok(reply),
        Ok(Some(rejection)) => Err(CallCause::Rejected(rejection).into()),
        Err(why) => Err(bad_reply(cx, this, reply, why)),
    }
}

/// Takes what this layer reads off a reply: why the call was denied, if it was.
fn read(reply: &mut Message, carries: bool) -> Result<Option<Rejection>, &'static Reason> {
    let stat = pop_header::<REPLY_OCTETS>(reply)?;
    let denied = match word(&stat, 0) {
        ACCEPTED if carries => return Ok(None),
        // A server may send any verifier to one that sent none.
        ACCEPTED => return pop_verifier(reply).map(|()| None),
        DENIED => {
            let mut octets = [0; 12];
            let count = reply.copy_to(0, &mut octets);
            octets.get(..count).and_then(Denied::parse)
        }
        _ => None,
    };
    let (reason, versions) = match denied.ok_or(&reason::MALFORMED)? {
        Denied::RpcMismatch { low, high } => (&WRONG_RPC_VERSION, Some((low, high))),
        Denied::Auth(stat) => (auth_reason(stat), None),
    };
    Ok(Some(Rejection { reason, versions }))
}

/// Takes the header and, for an upper that carries none, the credentials off a request.
#[inline]
fn open_request(carries: bool, request: &mut Message) -> Result<(), AuthError> {
    if carries {
        return match request.strip(CALL_OCTETS) {
            true => Ok(()),
            false => Err(AuthError::Truncated),
        };
    }
    let empty = request.peek_behind::<{ 2 * AUTH_HEAD_OCTETS }>(CALL_OCTETS);
    if empty == Some(&[0; 2 * AUTH_HEAD_OCTETS]) && request.strip_in_place(FULL_OCTETS) {
        return Ok(());
    }
    if !request.strip(CALL_OCTETS) {
        return Err(AuthError::Truncated);
    }
    AuthHead::pop(request, |_, _| ())?;
    AuthHead::pop(request, |_, _| ())
}

impl CallLayer for SunSelect {
    type Name = u128;
    type Lower = Rc<SessionPool>;
    type Calls = Calls;
    type Serves = Serves;

    fn request_octets(&self, calls: Option<&Calls>) -> usize {
        match calls {
            Some(Calls { carries: true, .. }) => CALL_OCTETS,
            _ => FULL_OCTETS,
        }
    }

    fn reply_octets(&self, serves: &Serves) -> usize {
        if serves.carries { REPLY_OCTETS } else { FULL_REPLY_OCTETS }
    }

    fn pop_name(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u128, OpenError> {
        let flavor = upper.number_on(cx, this)?;
        Ok(key(ProcedureName::pop(ends)?, flavor))
    }

    #[inline(always)]
    fn name_in(request: &Message) -> Option<u128> {
        key_of(request.peek_in_place::<LOOK_OCTETS>()?)
    }

    fn answer_name(key: u128, ask: &mut Ask<'_>) -> bool {
        name_of(key).answer(ask)
    }

    fn begin(
        own: &mut Calling<Self>,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<(), OpenError> {
        own.state.template[..CALL_OCTETS].copy_from_slice(&emit(name_of(own.name)));
        own.state.carries = carries(cx, upper.selector);
        Ok(())
    }

    /// The number below is its own: it has several uppers.
    fn upper<'a>(this: &'a ProtocolRef, _: Upper<'a>) -> Upper<'a> {
        Upper::new(this)
    }

    #[inline(never)]
    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let _ = request.pull_up(LOOK_OCTETS);
        let version = {
            let _ = request.pull_up(4);
            request.peek::<4>().map(|octets| word(octets, 0))
        };
        if version.is_some_and(|version| version != RPC_VERSION) {
            let (low, high) = (RPC_VERSION, RPC_VERSION);
            let denied = Denied::RpcMismatch { low, high };
            return deny(cx, this.refuse(request, &WRONG_RPC_VERSION), denied);
        }
        let Some(key) = request.peek::<LOOK_OCTETS>().and_then(key_of) else {
            return Err(this.refuse(request, &reason::TRUNCATED));
        };
        if let Some(session) = all.serving(lower, key) {
            return session.call_pop(cx, request);
        }
        let Some((upper, selector)) = all.layer.servers.get(key as u32) else {
            return refused(cx, this.refuse(request, &TOO_WEAK));
        };
        let make = || {
            let serves = Serves { carries: carries(cx, selector) };
            (serves, name_of(key).participants(cx, lower))
        };
        match all.accept(cx, this, (lower, &upper), key, make) {
            Ok(session) => session.call_pop(cx, request),
            Err(why) => Err(this.refuse(request, why)),
        }
    }

    #[inline]
    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let Calls { template, carries } = &own.state;
        if !carries {
            prepend(&mut request, template)?;
        } else if let Some(header) = template.first_chunk::<CALL_OCTETS>() {
            prepend(&mut request, header)?;
        }
        let mut reply = own.next(cx, this, request)?;
        let accepted = if *carries {
            reply.peek_in_place::<REPLY_OCTETS>() == Some(&[0; REPLY_OCTETS])
                && reply.strip_in_place(REPLY_OCTETS)
        } else {
            reply.peek_in_place::<FULL_REPLY_OCTETS>() == Some(&[0; FULL_REPLY_OCTETS])
                && reply.strip_in_place(FULL_REPLY_OCTETS)
        };
        if accepted {
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
        if let Err(error) = open_request(own.state.carries, &mut request) {
            let why = match error {
                AuthError::Truncated => &reason::TRUNCATED,
                AuthError::TooLong => &BAD_CREDENTIALS,
            };
            return refused(cx, this.refuse(cx, request, why));
        }
        let reply = match own.next(cx, this, request) {
            Ok(reply) => reply,
            Err(why) => return refused(cx, why),
        };
        // All zeros: accepted, and an empty verifier.
        match own.state.carries {
            true => reply_with(cx, this, reply, &[0; REPLY_OCTETS]),
            false => reply_with(cx, this, reply, &[0; FULL_REPLY_OCTETS]),
        }
    }

    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        let sessions = own.lower.opened();
        Some(alloc::format!("calls {}, {sessions} sessions below open", name_of(own.name)))
    }

    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        Some(alloc::format!("serves {} on {:?}", name_of(own.name), own.lower))
    }

    fn enable(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        let flavor = upper.number_on(cx, this)?;
        let local = ends.local_mut()?;
        // Which programs there are, the table above knows.
        Offered::pop(local)?;
        all.layer.servers.enable(cx, &all.lower, (this, upper), (flavor, local))
    }

    fn disable(all: &CallLayered<Self>, cx: &Kernel, enable: Enable) {
        all.layer.servers.disable(cx, &all.lower, enable);
    }

    fn control(all: &CallLayered<Self>, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match ask.get::<CarriesCredentials>() {
            Some(_) => Answer::Unknown,
            None => all.answer(cx, ask),
        }
    }

    fn stop(&self) {
        self.servers.clear();
    }
}
