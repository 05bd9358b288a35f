//! A layer of calls that leaves addresses alone: one session above for each below.
//!
//! [`CallLayer`] is what is a protocol's own: what it does to a request on its way down and to the
//! reply, what it does to a request on its way up and to the reply, and what it keeps of either.
//! [`CallLayered`] is the protocol object, and [`Calling`] and [`Serving`] are the two session
//! objects that are made of it: open, found again, enable, passive open and its undo, the common
//! questions, close and stop.
//!
//! A layer that does more in one operation of the uniform interface overrides the method of that
//! name and calls the operation of [`CallLayered`], [`Calling`] or [`Serving`] for the rest.
//!
//! ```text
//! open         [lower.open], CallLayer::begin, found again or new
//! open_enable  CallLayer::enable -> [lower.open_enable]; one protocol above serves
//! call         CallLayer::call -> Calling::next -> [lower.call]
//! call_demux   found: the session's call_pop; not found: CallLayer::serves, [upper.open_done]
//! call_pop     CallLayer::serve -> Serving::next -> [upper.call_demux]
//! ```

use crate::net::ports::less_header;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::ops::Deref;
use xk_core::Secret;
use xk_core::control::{Describe, ListMaps, ListSessions};
use xk_core::message::NoBuffers;
use xk_core::object::{CallCause, CallError, Closing, Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason,
};

/// A layer that does something to requests and to replies.
pub trait CallLayer: Sized + 'static {
    /// What a session that calls keeps.
    type Calls: Default + 'static;
    /// What a session that serves keeps.
    type Serves: 'static;

    /// Octets in front of a request, at most.
    fn request_octets(&self) -> usize;

    /// Octets in front of a reply to what comes through this session, at most.
    fn reply_octets(&self, serves: &Self::Serves) -> usize;

    /// The state of a session for the requests that come through `lower`.
    fn serves(&self, cx: &Kernel, lower: &SessionRef) -> Self::Serves;

    /// Sends a request by [`Calling::next`], and answers its reply. The shepherd may wait there,
    /// and others call through this session meanwhile.
    ///
    /// # Errors
    /// [`CallError`].
    fn call(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError>;

    /// Has a request executed by [`Serving::next`], and answers its reply. The shepherd may wait
    /// there, and others serve through this session meanwhile.
    ///
    /// # Errors
    /// The request, with the reason why it is not executed.
    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused>;

    /// A line about a session that calls, for `xk dump`; `None` for that of the session below.
    fn describe_calls(own: &Calling<Self>) -> Option<String> {
        let _ = own;
        None
    }

    /// A line about a session that serves, for `xk dump`; `None` for that of the session below.
    fn describe_serves(own: &Serving<Self>) -> Option<String> {
        let _ = own;
        None
    }

    /// Makes a session that calls ready, which is being opened with these participants.
    ///
    /// # Errors
    /// [`OpenError`].
    fn begin(
        own: &mut Calling<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        ends: Participants,
    ) -> Result<(), OpenError> {
        let _ = (own, cx, this, ends);
        Ok(())
    }

    /// Gives back what [`begin`](Self::begin) opened.
    fn end(own: &Calling<Self>, cx: &Kernel) {
        let _ = (own, cx);
    }

    /// The upper that the layer below is told of. The protocol `this` receives under the number of
    /// what stands on it, as if it were not there, unless it has a number of its own.
    fn upper<'a>(this: &'a ProtocolRef, upper: Upper<'a>) -> Upper<'a> {
        upper.through(this)
    }

    /// Has the layers below take requests for `upper`.
    ///
    /// # Errors
    /// [`OpenError`].
    fn enable(
        all: &CallLayered<Self>,
        cx: &Kernel,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        all.lower.open_enable(cx, upper, ends)
    }

    /// Takes back what [`enable`](Self::enable) did.
    fn disable(all: &CallLayered<Self>, cx: &Kernel, enable: Enable) {
        all.lower.open_disable(cx, enable);
    }

    /// As [`Protocol::control`]; [`CallLayered::answer`] has the questions that all layers answer.
    fn control(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        let _ = this;
        all.answer(cx, ask)
    }

    /// As [`Session::control`]; [`Calling::answer`] has the questions that all layers answer.
    fn calls_control(own: &Calling<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        own.answer(cx, ask)
    }

    /// As [`Session::control`]; [`Serving::answer`] has the questions that all layers answer.
    fn serves_control(own: &Serving<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        own.answer(cx, ask)
    }

    /// The graph is being taken down.
    fn stop(&self) {}
}

/// What the objects of one layer share.
pub struct Parts<L: CallLayer> {
    /// The layer's own part.
    pub layer: L,
    /// The protocol below.
    pub lower: ProtocolRef,
    /// By session below and protocol above.
    calling: SessionTable<(u64, u32)>,
    /// By session below.
    serving: SessionTable<u64>,
    /// The one protocol above that serves, and how often it has enabled the layer.
    server: RefCell<Option<ProtocolRef>>,
    enables: Cell<usize>,
}

/// The protocol object of a layer.
pub struct CallLayered<L: CallLayer>(Rc<Parts<L>>);

impl<L: CallLayer> Clone for CallLayered<L> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<L: CallLayer> Deref for CallLayered<L> {
    type Target = Parts<L>;

    #[inline(always)]
    fn deref(&self) -> &Parts<L> {
        &self.0
    }
}

/// A session that calls.
pub struct Calling<L: CallLayer> {
    /// The layer that it is of.
    pub all: CallLayered<L>,
    /// The session below.
    pub lower: SessionRef,
    /// The protocol above.
    upper: u32,
    /// What the layer keeps of it.
    pub state: L::Calls,
}

/// A session that serves.
pub struct Serving<L: CallLayer> {
    /// The layer that it is of.
    pub all: CallLayered<L>,
    /// The session below.
    pub lower: SessionRef,
    /// The protocol above.
    pub upper: ProtocolRef,
    /// What the layer keeps of it.
    pub state: L::Serves,
}

/// Puts a header in front of a request or a reply.
///
/// # Errors
/// [`NoBuffers`].
#[inline(always)]
pub fn prepend<const N: usize>(message: &mut Message, header: &[u8; N]) -> Result<(), NoBuffers> {
    match message.push_in_place(header) {
        true => Ok(()),
        false => message.push_array(header),
    }
}

/// Takes a header off a request or a reply.
///
/// # Errors
/// [`reason::TRUNCATED`] if it is shorter, [`reason::NO_BUFFERS`] if there is none to bring the
/// octets of several slices together.
#[inline]
pub fn pop_header<const N: usize>(message: &mut Message) -> Result<[u8; N], &'static Reason> {
    message.pull_up(N)?;
    message.pop_array::<N>().copied().ok_or(&reason::TRUNCATED)
}

/// A reply that cannot be read: dropped, and counted by the session that called.
#[cold]
pub fn bad_reply(
    cx: &Kernel,
    this: &SessionRef,
    reply: Message,
    why: &'static Reason,
) -> CallError {
    this.discard(cx, reply, why);
    CallCause::BadReply.into()
}

/// A reply with a header in front.
///
/// # Errors
/// The reply, with [`reason::NO_BUFFERS`].
#[inline]
pub fn reply_with<const N: usize>(
    cx: &Kernel,
    this: &SessionRef,
    mut reply: Message,
    header: &[u8; N],
) -> Result<Message, Refused> {
    match prepend(&mut reply, header) {
        Ok(()) => Ok(reply),
        Err(_) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
    }
}

impl<L: CallLayer> CallLayered<L> {
    /// A layer on `lower` with at most `sessions_max` sessions that call, and as many that serve;
    /// idle ones are evicted for new ones.
    pub fn new(secret: Secret, lower: ProtocolRef, sessions_max: usize, layer: L) -> Self {
        Self(Rc::new(Parts {
            layer,
            lower,
            calling: SessionTable::new(secret, sessions_max),
            serving: SessionTable::new(secret, sessions_max),
            server: RefCell::default(),
            enables: Cell::new(0),
        }))
    }

    /// Answers what every layer answers: `list-sessions`, `list-maps`; what the protocol below
    /// says of sizes, less the header of a request; the rest as it does.
    pub fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&self.calling);
            question.add(&self.serving);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.add("calling", self.calling.stats());
            question.add("serving", self.serving.stats());
            return Answer::Answered;
        }
        less(self.lower.control(cx, ask), ask, self.layer.request_octets())
    }

    /// The protocol above has enabled the layer once less; with the last time nothing serves.
    fn withdraw(&self) {
        self.enables.set(self.enables.get().saturating_sub(1));
        if self.enables.get() == 0 {
            drop(self.server.take());
        }
    }

    /// The first request through `lower` makes the session for it and those after it.
    #[cold]
    fn first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let Some(upper) = self.server.borrow().clone() else {
            return Err(this.refuse(request, &reason::NO_PROTOCOL));
        };
        let body = Serving {
            all: self.clone(),
            lower: lower.clone(),
            upper: upper.clone(),
            state: self.layer.serves(cx, lower),
        };
        let (key, ends) = (lower.id().0, Participants::default);
        match self.serving.accept(cx, this, &upper, key, body, ends) {
            Ok(session) => session.call_pop(cx, request),
            Err(why) => Err(this.refuse(request, why)),
        }
    }
}

/// What was answered below about sizes holds without this layer's header.
fn less(answer: Answer, ask: &mut Ask<'_>, octets: usize) -> Answer {
    if answer.is_answered() {
        less_header(ask, octets);
    }
    answer
}

impl<L: CallLayer> Protocol for CallLayered<L> {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = L::upper(this, upper);
        let mut body = Calling {
            all: self.clone(),
            lower: self.lower.open(cx, lower, ends.clone())?,
            upper: upper.receiver.id().0,
            state: L::Calls::default(),
        };
        L::begin(&mut body, cx, this, ends).inspect_err(|_| body.lower.close(cx))?;
        let (calling, key) = (&self.calling, body.key());
        calling.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        let server = self.server.borrow().clone();
        if server.is_some_and(|server| server != *upper.receiver) {
            return Err(OpenError::InUse);
        }
        // Before the layers below are told, which may block: a second one finds it in use.
        self.enables.set(self.enables.get() + 1);
        let before = self.server.borrow_mut().replace(upper.receiver.clone());
        drop(before);
        let enabled = L::enable(self, cx, L::upper(this, upper), ends);
        enabled.inspect_err(|_| self.withdraw())
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        L::disable(self, cx, enable);
        self.withdraw();
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        match self.serving.get(&lower.id().0) {
            Some(session) => session.call_pop(cx, request),
            None => self.first(cx, this, lower, request),
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        L::control(self, cx, this, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    // Sessions refer to the protocols around the layer, and those to it: this ends the circle.
    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.calling.clear();
        self.serving.clear();
        self.enables.set(0);
        drop(self.server.take());
        self.layer.stop();
    }
}

impl<L: CallLayer> Calling<L> {
    fn key(&self) -> (u64, u32) {
        (self.lower.id().0, self.upper)
    }

    /// Calls through the session below.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline]
    pub fn next(&self, cx: &Kernel, request: Message) -> Result<Message, CallError> {
        self.lower.call(cx, request)
    }

    /// Answers what every session that calls answers: `describe`; what the session below says of
    /// sizes, less the header of a request; the rest as it does.
    pub fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>()
            && let Some(text) = L::describe_calls(self)
        {
            question.text = text;
            return Answer::Answered;
        }
        let octets = self.all.layer.request_octets();
        less(self.lower.control(cx, ask), ask, octets)
    }
}

impl<L: CallLayer> Session for Calling<L> {
    #[inline]
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        L::call(self, cx, this, request)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        L::calls_control(self, cx, ask)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.all.calling.release(&self.key(), this);
        self.lower.close(cx);
        L::end(self, cx);
        Closing::Done
    }
}

impl<L: CallLayer> Serving<L> {
    /// Passes a request on to the protocol above. What that refuses it has counted.
    ///
    /// # Errors
    /// The request, with the reason why it is not executed.
    #[inline]
    pub fn next(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        self.upper.call_demux(cx, this, request)
    }

    /// Answers what every session that serves answers: `describe`; what the session below says of
    /// sizes, less the header of a reply; the rest as it does.
    pub fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>()
            && let Some(text) = L::describe_serves(self)
        {
            question.text = text;
            return Answer::Answered;
        }
        let octets = self.all.layer.reply_octets(&self.state);
        less(self.lower.control(cx, ask), ask, octets)
    }
}

impl<L: CallLayer> Session for Serving<L> {
    #[inline]
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        L::serve(self, cx, this, request)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        L::serves_control(self, cx, ask)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        self.all.serving.release(&self.lower.id().0, this);
        Closing::Done
    }
}
