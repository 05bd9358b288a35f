//! Shared parts of ONC RPC's layers of authentication (RFC 5531, sections 8.2 and 9): a session
//! above for each below, a credential and a verifier in front of requests, a verifier in front of
//! accepted replies.

use crate::control::PeerHost;
use crate::net::attribute::Peer;
use crate::rpc::call::{BAD_CREDENTIALS, Caller, MyProcedure};
use crate::rpc::call_layer::{CallLayer, CallLayered, Calling, Serving, bad_reply};
use crate::rpc::onc::{AUTH_HEAD_OCTETS, AuthError, AuthHead, BAD_VERIFIER, CarriesCredentials};
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::Secret;
use xk_core::control::{QuestionInfo, question};
use xk_core::message::NoBuffers;
use xk_core::object::{CallError, ProtocolId, PushError, Refused};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, ProtocolRef, Reason, SessionRef, Upper, reason,
};

/// The questions that every layer of authentication answers.
#[rustfmt::skip]
pub const QUESTIONS: &[QuestionInfo] = &[
    question("carries-credentials", "it does"),
];

/// Answers whether the layer `this` carries credentials: it does; `None` for other questions.
pub fn carries_credentials(this: &ProtocolRef, ask: &mut Ask<'_>) -> Option<Answer> {
    let question = ask.get::<CarriesCredentials>()?;
    Some(match question.who == this.id() {
        true => Answer::Answered,
        false => Answer::Unknown,
    })
}

/// The host at the other end of a session, if the layers below know.
pub fn peer(cx: &Kernel, lower: &SessionRef) -> Option<HostAddr> {
    lower.ask(cx, PeerHost::default()).map(|q| q.host)
}

/// Octets of the shorthands that a server gives, as they lie in a verifier.
pub const SHORTHAND_OCTETS: usize = 32;

/// Octets in front of an accepted reply, at most: a verifier with a shorthand.
const VERIFIER_OCTETS_MAX: usize = AUTH_HEAD_OCTETS + SHORTHAND_OCTETS;

/// Asked upwards by a layer that has taken a whole credential: give a shorthand for it, for the
/// reply.
#[derive(Clone, Copy, Debug)]
pub struct IssueShorthand {
    /// The protocol asked: no other answers, wherever the question is forwarded to.
    pub who: ProtocolId,
    /// Caller that it stands for.
    pub caller: Caller,
    /// The host that may use it.
    pub peer: Option<HostAddr>,
    /// Out: the shorthand.
    pub octets: [u8; SHORTHAND_OCTETS],
}

question!(IssueShorthand { who, caller, peer, octets }, "issue-shorthand", Ask, upward);

/// Asked of a session that sends whole credentials: the shorthand in the verifier of the latest
/// reply. It is handed over.
#[derive(Clone, Debug, Default)]
pub struct TakeShorthand {
    /// Out: the shorthand; empty if there was none.
    pub octets: Vec<u8>,
}

question!(TakeShorthand { octets }, "take-shorthand", Ask);

/// The sender and kind of a request.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The host that sent it, if the layers below know.
    pub peer: Option<HostAddr>,
    /// True for the null procedure, which serves every caller whose credential can be read.
    pub is_null: bool,
}

/// One way to name the caller.
pub trait Flavor: 'static {
    /// Octets in front of every request.
    fn header_octets(&self) -> usize;

    /// Puts credential and verifier in front of a request.
    ///
    /// # Errors
    /// [`NoBuffers`].
    fn seal(&self, request: &mut Message) -> Result<(), NoBuffers>;

    /// Takes credential and verifier off a request, and names the caller, if they do.
    ///
    /// # Errors
    /// Why the caller may not call.
    fn judge(
        &self,
        cx: &Kernel,
        asker: Asker,
        request: &mut Message,
    ) -> Result<Option<Caller>, &'static Reason>;

    /// Puts the verifier in front of a reply to `caller`. `issue` gives a shorthand for the
    /// caller if a layer above gives any.
    ///
    /// # Errors
    /// [`NoBuffers`].
    fn verify(
        &self,
        reply: &mut Message,
        caller: Option<Caller>,
        issue: impl FnOnce(Caller) -> Option<[u8; SHORTHAND_OCTETS]>,
    ) -> Result<(), NoBuffers>;

    /// The shorthand in the verifier of a reply.
    fn shorthand<'a>(&self, verifier: AuthHead, body: &'a [u8]) -> Option<&'a [u8]> {
        let _ = (verifier, body);
        None
    }
}

/// Takes a credential off a request; what is wrong with it as a reason.
///
/// # Errors
/// [`reason::TRUNCATED`] or [`BAD_CREDENTIALS`].
pub fn pop_credential<T>(
    request: &mut Message,
    read: impl FnOnce(AuthHead, &[u8]) -> T,
) -> Result<T, &'static Reason> {
    pop_auth(request, &BAD_CREDENTIALS, read)
}

/// Takes a verifier off a message, whatever it is; what is wrong with it as a reason.
///
/// # Errors
/// [`reason::TRUNCATED`] or [`BAD_VERIFIER`].
pub fn pop_verifier(message: &mut Message) -> Result<(), &'static Reason> {
    pop_auth(message, &BAD_VERIFIER, |_, _| ())
}

fn pop_auth<T>(
    message: &mut Message,
    too_long: &'static Reason,
    read: impl FnOnce(AuthHead, &[u8]) -> T,
) -> Result<T, &'static Reason> {
    AuthHead::pop(message, read).map_err(|error| match error {
        AuthError::Truncated => &reason::TRUNCATED,
        AuthError::TooLong => too_long,
    })
}

/// Notes the caller on a request.
///
/// # Errors
/// [`reason::NO_BUFFERS`] if it has no room for one attribute more.
pub fn name_caller(request: &mut Message, caller: Option<Caller>) -> Result<(), &'static Reason> {
    match caller {
        Some(caller) => request.set_attribute(caller).map_err(|_| &reason::NO_BUFFERS),
        None => Ok(()),
    }
}

/// A layer of one flavor.
pub struct Authentication<F>(F);

/// The protocol object of a layer of `flavor` on `lower`, with so many sessions in either
/// direction.
#[must_use]
pub fn layered<F: Flavor>(
    secret: Secret,
    lower: ProtocolRef,
    flavor: F,
    sessions_max: usize,
) -> CallLayered<Authentication<F>> {
    CallLayered::new(secret, lower, sessions_max, (), Authentication(flavor))
}

impl<F: Flavor> CallLayer for Authentication<F> {
    type Name = ();
    type Lower = SessionRef;
    /// The shorthand of the latest reply; empty if there was none.
    type Calls = RefCell<Vec<u8>>;
    type Serves = Asker;

    fn request_octets(&self, _: Option<&Self::Calls>) -> usize {
        self.0.header_octets()
    }

    fn reply_octets(&self, _: &Asker) -> usize {
        VERIFIER_OCTETS_MAX
    }

    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let asker = || {
            let number = lower.ask(cx, MyProcedure::default());
            let is_null = number == Some(MyProcedure { number: 0 });
            Asker { peer: peer(cx, lower), is_null }
        };
        all.accept_for_server(cx, this, lower, request, asker)
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
        let Self(flavor) = &own.all.layer;
        flavor.seal(&mut request).map_err(|_| CallError::from(PushError::NoBuffers))?;
        let mut reply = own.next(cx, this, request)?;
        // What one of many hosts gives is of no use with the others.
        let is_of_one = reply.attribute::<Peer>().is_none();
        let read = pop_auth(&mut reply, &BAD_VERIFIER, |head, body| {
            // One that is longer than what it stands for saves nothing.
            let is_short = is_of_one && 2 * AUTH_HEAD_OCTETS + body.len() <= flavor.header_octets();
            if let Some(shorthand) = flavor.shorthand(head, body).filter(|_| is_short) {
                let mut kept = own.state.borrow_mut();
                kept.clear();
                kept.extend_from_slice(shorthand);
            }
        });
        match read {
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
        let (Self(flavor), asker) = (&own.all.layer, own.state);
        let judged = flavor.judge(cx, asker, &mut request);
        let named = judged.and_then(|caller| {
            name_caller(&mut request, caller)?;
            Ok(caller)
        });
        let caller = match named {
            Ok(caller) => caller,
            Err(why) => return Err(this.refuse(cx, request, why)),
        };
        let mut reply = own.next(cx, this, request)?;
        let issue = |caller| {
            let question = IssueShorthand {
                who: own.upper.id(),
                caller,
                peer: asker.peer,
                octets: [0; SHORTHAND_OCTETS],
            };
            own.upper.ask(cx, question).map(|question| question.octets)
        };
        match flavor.verify(&mut reply, caller, issue) {
            Ok(()) => Ok(reply),
            Err(NoBuffers) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
        }
    }

    fn control(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        carries_credentials(this, ask).unwrap_or_else(|| all.answer(cx, ask))
    }

    fn calls_control(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        if let Some(question) = ask.get::<TakeShorthand>() {
            question.octets = own.state.take();
            return Answer::Answered;
        }
        own.answer(cx, this, ask)
    }
}
