//! Ours of `programs/rpc/trial.x`: the server, and calls that say how they ended.

use std::time::Duration;

use xk_core::object::{CallCause, OpenError, Refused};
use xk_core::{Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::{
    BAD_ARGUMENTS, CallOptions, Caller, CancelCall, Gather, GathersReplies, MyProcedure,
    NO_PROCEDURE,
};
use xk_kit::rpc::onc::{AUTH_SHORT, AUTH_SYS, MyProgram, TOO_WEAK};
use xk_peers::stack::Stack;
use xk_xdr::{Opaque, Text, Xdr};

/// Octets that `TRIAL_ECHO` takes.
const OCTETS_MAX: u32 = 8192;
/// Room for the headers below, in octets.
const HEADROOM: usize = 128;
/// Longest time of a call.
const CALL_TIME_MAX: Duration = Duration::from_secs(20);

/// The server.
struct Trial;

impl Trial {
    fn execute(cx: &Kernel, (version, procedure): (u32, u32), request: &Message) -> Reply {
        match (version, procedure) {
            (1, 1) => reply(cx, &argument::<Opaque<OCTETS_MAX>>(request)?),
            (1 | 2, 2) => {
                let [a, b]: [i32; 2] = argument(request)?;
                reply(cx, &a.wrapping_add(b))
            }
            (1, 3) => {
                let mut text: Text<255> = argument(request)?;
                text.make_ascii_uppercase();
                reply(cx, &text)
            }
            (1, 4) => {
                let caller: Option<Caller> = request.attribute();
                let known = caller.filter(|c| matches!(c.flavor, AUTH_SYS | AUTH_SHORT));
                let caller = known.ok_or(&TOO_WEAK)?;
                reply(cx, &[caller.flavor, caller.user, caller.group])
            }
            _ => Err(&NO_PROCEDURE),
        }
    }
}

type Reply = Result<Message, &'static xk_core::Reason>;

fn argument<T: Xdr>(request: &Message) -> Result<T, &'static xk_core::Reason> {
    xk_xdr::from_message(request).map_err(|_| &BAD_ARGUMENTS)
}

fn reply<T: Xdr>(cx: &Kernel, value: &T) -> Reply {
    xk_xdr::to_message(value, cx.pool(), HEADROOM).map_err(|_| &xk_core::reason::NO_BUFFERS)
}

impl Protocol for Trial {
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let program = lower.ask(cx, MyProgram::default()).unwrap();
        let procedure = lower.ask(cx, MyProcedure::default()).unwrap();
        let asked = (program.version, procedure.number);
        Self::execute(cx, asked, &message).map_err(|reason| this.refuse(message, reason))
    }
}

/// Serves the trial on the protocol called `lower` of a stack, at `port`.
pub(crate) fn serve(stack: &Stack, lower: &'static str, port: u16) {
    stack.with(move |cx| {
        let lower = cx.find_protocol(lower).expect("the layer");
        let trial = cx.add_protocol("trial", "trial", Trial);
        for version in [1, 2] {
            let local = format!("version{version}@program{}@port{port}@*", super::TRIAL);
            let local: Participants = local.parse().expect("a participant");
            lower.open_enable(cx, Upper::new(&trial), local).map(drop).expect("an offer");
        }
    });
}

/// End of a call by xk: the results' octets, or the error of the layer that gave up.
pub(crate) type End = Result<Vec<u8>, String>;

/// Calls a procedure through the protocol called `lower` of a stack.
pub(crate) fn call(stack: &Stack, lower: &'static str, peer: String, arguments: Vec<u8>) -> End {
    stack.with(move |cx| {
        let lower = cx.find_protocol(lower).expect("the layer");
        let caller = cx.add_protocol("caller", "trial-caller", Still);
        let to: xk_core::Participant = peer.parse().expect("a participant");
        let session = lower
            .open(cx, Upper::new(&caller), Participants::pair(Part::Any, to))
            .map_err(|error: OpenError| error.to_string())?;
        let mut request = cx.pool().copy_from(HEADROOM, &arguments).expect("a buffer");
        let deadline = cx.now().after(CALL_TIME_MAX);
        request.set_attribute(CallOptions { deadline, tag: 0 }).expect("room for it");
        let result = session.call(cx, request);
        session.close(cx);
        result
            .map(|reply| {
                let mut octets = vec![0; reply.len()];
                reply.copy_to(0, &mut octets);
                octets
            })
            .map_err(|error| {
                assert_ne!(error.cause, CallCause::NoShepherds, "the loop may block");
                error.describe(cx)
            })
    })
}

/// Reply of one of many hosts: the host and the program's port there, and the results' octets.
pub(crate) type HostEnd = (Peer, Vec<u8>);

/// Calls a procedure of many hosts, until `count` of them have replied; what they reply, by host.
pub(crate) fn gather(
    stack: &Stack,
    lower: &'static str,
    (peer, arguments): (String, Vec<u8>),
    count: usize,
) -> Vec<HostEnd> {
    stack.with(move |cx| {
        let lower = cx.find_protocol(lower).expect("the layer");
        let caller = cx.add_protocol("caller", "trial-caller", Still);
        let to: xk_core::Participant = peer.parse().expect("a participant");
        let both = Participants::pair(Part::Any, to);
        let session = lower.open(cx, Upper::new(&caller), both);
        let session = session.expect("a session");
        assert!(session.ask(cx, GathersReplies).is_some());
        let deadline = cx.now().after(CALL_TIME_MAX);
        let mut replies: Vec<HostEnd> = Vec::new();
        for at in 0..count {
            let mut request = cx.pool().copy_from(HEADROOM, &arguments).expect("a buffer");
            let options = CallOptions { deadline, tag: 1 };
            request.set_attribute(options).expect("room for it");
            let which = if at == 0 { Gather::First } else { Gather::Next };
            request.set_attribute(which).expect("room for it");
            let reply = session.call(cx, request);
            let reply = reply.unwrap_or_else(|error| panic!("{at}: {}", error.describe(cx)));
            let mut octets = vec![0; reply.len()];
            reply.copy_to(0, &mut octets);
            replies.push((reply.attribute().expect("whose it is"), octets));
        }
        assert!(session.ask(cx, CancelCall { tag: 1 }).is_some());
        session.close(cx);
        replies.sort_by_key(|(peer, _)| peer.host);
        replies
    })
}

/// Calls, and serves nothing.
struct Still;

impl Protocol for Still {}

/// The octets of a value.
pub(crate) fn octets<T: Xdr>(value: &T) -> Vec<u8> {
    xk_xdr::to_vec(value).expect("a value")
}
