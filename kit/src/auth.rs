//! What the layers of authentication of ONC RPC have in common (RFC 5531, sections 8.2 and 9): a session above for each below,
//! a credential and a verifier in front of requests, a verifier in front of accepted replies.

use crate::attribute::Peer;
use crate::between::{CallingKey, Served, Sessions};
use crate::call::{BAD_CREDENTIALS, Caller, MyProcedure};
use crate::onc::{AUTH_HEAD_OCTETS, AuthError, AuthHead, BAD_VERIFIER, CarriesCredentials};
use crate::ports::less_header;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use xk_core::Secret;
use xk_core::control::{Question, QuestionInfo, question};
use xk_core::message::NoBuffers;
use xk_core::object::{
    CallCause, CallError, Closing, Enable, OpenError, ProtocolId, PushError, Refused,
};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason,
};

/// The questions that every layer of authentication answers.
#[rustfmt::skip]
pub const QUESTIONS: &[QuestionInfo] = &[
    question("carries-credentials", "it does"),
    question("list-sessions", "one per session below and, for calls, protocol above"),
    question("list-maps", "calling: session below and protocol above; serving: session below"),
];

/// What every layer of authentication answers, [`QUESTIONS`]; `None` for other questions.
pub fn answer(sessions: &Sessions, this: &ProtocolRef, ask: &mut Ask<'_>) -> Option<Answer> {
    if let Some(question) = ask.get::<CarriesCredentials>() {
        return Some(match question.who == this.id() {
            true => Answer::Answered,
            false => Answer::Unknown,
        });
    }
    sessions.answer(ask)
}

/// Octets of the shorthands that a server gives, as they lie in a verifier.
pub const SHORTHAND_OCTETS: usize = 32;

/// Octets in front of an accepted reply, at most: a verifier with a shorthand.
const VERIFIER_OCTETS_MAX: usize = AUTH_HEAD_OCTETS + SHORTHAND_OCTETS;

/// Asked upwards by a layer that has taken a whole credential: give a shorthand for it, for the reply.
#[derive(Clone, Copy, Debug)]
pub struct IssueShorthand {
    /// The protocol asked: no other answers, wherever the question is forwarded to.
    pub who: ProtocolId,
    /// Whom it stands for.
    pub caller: Caller,
    /// Who may use it.
    pub peer: Option<Ipv4Addr>,
    /// Out: the shorthand.
    pub octets: [u8; SHORTHAND_OCTETS],
}

impl Question for IssueShorthand {
    const NAME: &'static str = "issue-shorthand";
    const UPWARD: bool = true;
}

/// Asked of a session that sends whole credentials: the shorthand in the verifier of the latest reply. It is handed over.
#[derive(Clone, Debug, Default)]
pub struct TakeShorthand {
    /// Out: the shorthand; empty if there was none.
    pub octets: Vec<u8>,
}

impl Question for TakeShorthand {
    const NAME: &'static str = "take-shorthand";
}

/// What is known of a request besides its octets.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Who sent it, if the layers below know.
    pub peer: Option<Ipv4Addr>,
    /// It is for the null procedure, which is there for everybody whose credential can be read.
    pub is_null: bool,
}

/// One way to say who calls.
pub trait Flavor: 'static {
    /// Octets in front of every request.
    fn header_octets(&self) -> usize;

    /// Puts credential and verifier in front of a request.
    ///
    /// # Errors
    /// [`NoBuffers`].
    fn seal(&self, request: &mut Message) -> Result<(), NoBuffers>;

    /// Takes credential and verifier off a request, and says who calls, if they say.
    ///
    /// # Errors
    /// Why he may not.
    fn judge(
        &self,
        cx: &Kernel,
        asker: Asker,
        request: &mut Message,
    ) -> Result<Option<Caller>, &'static Reason>;

    /// Puts the verifier in front of a reply to `caller`. `issue` gives a shorthand for him if anybody above gives any.
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
    AuthHead::pop(request, read).map_err(|error| match error {
        AuthError::Truncated => &reason::TRUNCATED,
        AuthError::TooLong => &BAD_CREDENTIALS,
    })
}

/// Takes a verifier off a request, whatever it is; what is wrong with it as a reason.
///
/// # Errors
/// [`reason::TRUNCATED`] or [`BAD_VERIFIER`].
pub fn pop_verifier(request: &mut Message) -> Result<(), &'static Reason> {
    AuthHead::pop(request, |_, _| ()).map_err(|error| match error {
        AuthError::Truncated => &reason::TRUNCATED,
        AuthError::TooLong => &BAD_VERIFIER,
    })
}

/// Notes on a request who calls.
///
/// # Errors
/// [`reason::NO_BUFFERS`] if it has no room for one attribute more.
pub fn name_caller(request: &mut Message, caller: Option<Caller>) -> Result<(), &'static Reason> {
    match caller {
        Some(caller) => request
            .set_attribute(caller)
            .map_err(|_| &reason::NO_BUFFERS),
        None => Ok(()),
    }
}

struct Shared<F> {
    flavor: F,
    lower: ProtocolRef,
    sessions: Sessions,
}

/// A layer of one flavor.
pub struct Layer<F> {
    shared: Rc<Shared<F>>,
}

impl<F: Flavor> Layer<F> {
    /// A layer on `lower` with so many sessions in either direction.
    #[must_use]
    pub fn new(secret: Secret, lower: ProtocolRef, flavor: F, sessions_max: usize) -> Self {
        Self {
            shared: Rc::new(Shared {
                flavor,
                lower,
                sessions: Sessions::new(secret, sessions_max),
            }),
        }
    }
}

impl<F: Flavor> Protocol for Layer<F> {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = self.shared.lower.open(cx, Upper::new(this), participants)?;
        let sessions = &self.shared.sessions;
        sessions.open(cx, this, upper.receiver, lower, |key, lower| {
            Ok(Calling {
                shared: Rc::clone(&self.shared),
                key,
                lower,
                shorthand: RefCell::default(),
            })
        })
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let Shared {
            lower, sessions, ..
        } = &*self.shared;
        // The protocol below counts how often.
        sessions.enable(upper.receiver, || {
            lower.open_enable(cx, Upper::new(this), participants)
        })
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.lower.open_disable(cx, enable);
        self.shared.sessions.disable();
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let sessions = &self.shared.sessions;
        sessions.call_demux(cx, this, lower, request, |served| {
            let number = lower.ask(cx, MyProcedure::default());
            Serving {
                shared: Rc::clone(&self.shared),
                asker: Asker {
                    peer: served.peer,
                    is_null: number == Some(MyProcedure { number: 0 }),
                },
                served,
            }
        })
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(answer) = answer(&shared.sessions, this, ask) {
            return answer;
        }
        let answer = shared.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, shared.flavor.header_octets());
        }
        answer
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.sessions.clear();
    }
}

/// A session that calls.
struct Calling<F> {
    shared: Rc<Shared<F>>,
    key: CallingKey,
    lower: SessionRef,
    shorthand: RefCell<Vec<u8>>,
}

impl<F: Flavor> Session for Calling<F> {
    fn call(
        &self,
        cx: &Kernel,
        _: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let flavor = &self.shared.flavor;
        flavor
            .seal(&mut request)
            .map_err(|_| CallError::from(PushError::NoBuffers))?;
        let mut reply = self.lower.call(cx, request)?;
        // What one of many hosts gives is of no use with the others.
        let is_of_one = reply.attribute::<Peer>().is_none();
        let read = AuthHead::pop(&mut reply, |head, body| {
            // One that is longer than what it stands for saves nothing.
            let is_short = is_of_one && 2 * AUTH_HEAD_OCTETS + body.len() <= flavor.header_octets();
            if let Some(shorthand) = flavor.shorthand(head, body).filter(|_| is_short) {
                let mut kept = self.shorthand.borrow_mut();
                kept.clear();
                kept.extend_from_slice(shorthand);
            }
        });
        match read {
            Ok(()) => Ok(reply),
            Err(_) => Err(CallCause::BadReply.into()),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<TakeShorthand>() {
            question.octets = self.shorthand.take();
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, self.shared.flavor.header_octets());
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.closed(&self.key, this);
        self.lower.close(cx);
        Closing::Done
    }
}

/// A session that serves.
struct Serving<F> {
    shared: Rc<Shared<F>>,
    served: Served,
    asker: Asker,
}

impl<F: Flavor> Session for Serving<F> {
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let flavor = &self.shared.flavor;
        let judged = flavor.judge(cx, self.asker, &mut request);
        let named = judged.and_then(|caller| {
            name_caller(&mut request, caller)?;
            Ok(caller)
        });
        let caller = match named {
            Ok(caller) => caller,
            Err(why) => return Err(this.refuse(cx, request, why)),
        };
        let mut reply = self.served.upper.call_demux(cx, this, request)?;
        let issue = |caller| {
            let question = IssueShorthand {
                who: self.served.upper.id(),
                caller,
                peer: self.asker.peer,
                octets: [0; SHORTHAND_OCTETS],
            };
            self.served
                .upper
                .ask(cx, question)
                .map(|question| question.octets)
        };
        match flavor.verify(&mut reply, caller, issue) {
            Ok(()) => Ok(reply),
            Err(NoBuffers) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let answer = self.served.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, VERIFIER_OCTETS_MAX);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.served.lower)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.forgotten(&self.served, this);
        Closing::Done
    }
}
