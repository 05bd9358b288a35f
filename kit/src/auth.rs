//! What the layers of authentication of ONC RPC have in common (RFC 5531, sections 8.2 and 9): a session above for each below,
//! a credential and a verifier in front of requests, a verifier in front of accepted replies.

use crate::call::{BAD_CREDENTIALS, Caller, MyProcedure};
use crate::control::PeerHost;
use crate::onc::{AUTH_HEAD_OCTETS, AuthError, AuthHead, BAD_VERIFIER, CarriesCredentials};
use crate::ports::less_header;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use xk_core::control::{ListMaps, ListSessions, Question};
use xk_core::message::NoBuffers;
use xk_core::object::{
    CallCause, CallError, Closing, Enable, OpenError, ProtocolId, PushError, Refused, SessionTable,
};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason,
};

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
    /// By the session below and the protocol above.
    calling: SessionTable<(u64, u32)>,
    /// By the session below.
    serving: SessionTable<u64>,
    server: RefCell<Option<ProtocolRef>>,
    /// How often he has enabled it.
    enables: Cell<usize>,
}

/// A layer of one flavor.
pub struct Layer<F> {
    shared: Rc<Shared<F>>,
}

impl<F: Flavor> Layer<F> {
    /// A layer on `lower` with so many sessions in either direction.
    #[must_use]
    pub fn new(boot_key: [u64; 2], lower: ProtocolRef, flavor: F, sessions_max: usize) -> Self {
        Self {
            shared: Rc::new(Shared {
                flavor,
                lower,
                calling: SessionTable::new(boot_key, sessions_max),
                serving: SessionTable::new(boot_key, sessions_max),
                server: RefCell::default(),
                enables: Cell::new(0),
            }),
        }
    }

    #[cold]
    fn call_demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let Some(upper) = self.shared.server.borrow().clone() else {
            return Err(this.refuse(request, &reason::NO_PROTOCOL));
        };
        let host = Ipv4Addr::UNSPECIFIED;
        let peer = lower.ask(cx, PeerHost { host }).map(|q| q.host);
        let is_null = lower.ask(cx, MyProcedure::default()) == Some(MyProcedure { number: 0 });
        let body = Serving {
            shared: Rc::clone(&self.shared),
            lower: lower.clone(),
            upper: upper.clone(),
            asker: Asker { peer, is_null },
        };
        let session = cx.new_passive_session(this, &upper, body);
        let bound = self.shared.serving.bind(cx, lower.id().0, session.clone());
        if let Err(full) = bound {
            session.abort(cx);
            return Err(this.refuse(request, full));
        }
        if let Err(unwanted) = upper.open_done(cx, &session, Participants::default()) {
            session.abort(cx);
            return Err(this.refuse(request, unwanted));
        }
        session.call_pop(cx, request)
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
        let key = (lower.id().0, upper.receiver.id().0);
        if let Some(session) = self.shared.calling.get(&key) {
            // The session holds the lower one already.
            lower.close(cx);
            session.hold();
            return Ok(session);
        }
        let body = Calling {
            shared: Rc::clone(&self.shared),
            key,
            lower,
            shorthand: RefCell::default(),
        };
        let session = cx.new_session(this, upper.receiver, body);
        match self.shared.calling.bind(cx, key, session.clone()) {
            Ok(()) => Ok(session),
            Err(_) => {
                session.abort(cx);
                Err(OpenError::Full)
            }
        }
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let server = self.shared.server.borrow().clone();
        if server.is_some_and(|server| server != *upper.receiver) {
            return Err(OpenError::InUse);
        }
        // The protocol below counts how often.
        let below = &self.shared.lower;
        let enable = below.open_enable(cx, Upper::new(this), participants)?;
        *self.shared.server.borrow_mut() = Some(upper.receiver.clone());
        self.shared.enables.set(self.shared.enables.get() + 1);
        Ok(enable)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.lower.open_disable(cx, enable);
        let left = self.shared.enables.get().saturating_sub(1);
        self.shared.enables.set(left);
        if left == 0 {
            drop(self.shared.server.take());
        }
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        match self.shared.serving.get(&lower.id().0) {
            Some(session) => session.call_pop(cx, request),
            None => self.call_demux_first(cx, this, lower, request),
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<CarriesCredentials>() {
            return if question.who == this.id() {
                Answer::Answered
            } else {
                Answer::Unknown
            };
        }
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.calling);
            question.add(&shared.serving);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("calling", shared.calling.stats()));
            question.maps.push(("serving", shared.serving.stats()));
            return Answer::Answered;
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
        self.shared.calling.clear();
        self.shared.serving.clear();
        drop(self.shared.server.take());
    }
}

/// A session that calls.
struct Calling<F> {
    shared: Rc<Shared<F>>,
    key: (u64, u32),
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
        let read = AuthHead::pop(&mut reply, |head, body| {
            // One that is longer than what it stands for saves nothing.
            let is_short = 2 * AUTH_HEAD_OCTETS + body.len() <= flavor.header_octets();
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
        let calling = &self.shared.calling;
        if calling.get(&self.key).as_ref() == Some(this) {
            calling.unbind(&self.key);
        }
        self.lower.close(cx);
        Closing::Done
    }
}

/// A session that serves.
struct Serving<F> {
    shared: Rc<Shared<F>>,
    lower: SessionRef,
    upper: ProtocolRef,
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
        let mut reply = self.upper.call_demux(cx, this, request)?;
        let issue = |caller| {
            let question = IssueShorthand {
                who: self.upper.id(),
                caller,
                peer: self.asker.peer,
                octets: [0; SHORTHAND_OCTETS],
            };
            self.upper.ask(cx, question).map(|question| question.octets)
        };
        match flavor.verify(&mut reply, caller, issue) {
            Ok(()) => Ok(reply),
            Err(NoBuffers) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, VERIFIER_OCTETS_MAX);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        let (serving, key) = (&self.shared.serving, self.lower.id().0);
        if serving.get(&key).as_ref() == Some(this) {
            serving.unbind(&key);
        }
        Closing::Done
    }
}
