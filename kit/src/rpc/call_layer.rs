//! A layer of calls: sessions above for the calls and the requests of its procedures.
//!
//! [`CallLayer`] is what is a protocol's own: what it does to a request on its way down and to the
//! reply, what it does to a request on its way up and to the reply, what it keeps of either, and
//! the names of procedures in a layer that has them. [`CallLayered`] is the protocol object, and
//! [`Calling`] and [`Serving`] are the two session objects that are made of it: open, found again,
//! enable, passive open and its undo, the search for the session, the common questions, close and
//! stop. A session that calls goes through one session below, or through those that lead to one
//! peer ([`SessionPool`](crate::rpc::session_pool::SessionPool)): [`CallLower`].
//!
//! A layer that does more in one operation of the uniform interface overrides the method of that
//! name and calls the operation of [`CallLayered`], [`Calling`] or [`Serving`] for the rest.
//!
//! ```text
//! open         CallLayer::pop_name, [CallLower::open], CallLayer::begin, found again or new
//! open_enable  CallLayer::enable -> CallLayered::serve -> [lower.open_enable]
//! call         CallLayer::call -> Calling::next -> [lower.call]
//! call_demux   name_in, found: the session's call_pop; not found: CallLayer::first -> [accept]
//! call_pop     CallLayer::serve -> Serving::next -> [upper.call_demux]
//! ```

use crate::net::attribute::LinkCast;
use crate::net::ports::less_header;
use crate::rpc::server::Servers;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Deref;
use xk_core::Secret;
use xk_core::control::Tables;
use xk_core::map::{Key, MapStats};
use xk_core::message::NoBuffers;
use xk_core::object::{
    CallCause, CallError, Closing, Enable, OpenError, PushError, Refused, SessionTable,
};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason,
};

/// Octets free in front of a reply made here, for the headers below.
const HEADROOM: usize = 128;

/// Way by which a session calls: a session below, or several to one peer.
pub trait CallLower: Sized + 'static {
    /// Shared state of all of them in a layer.
    type Shared: 'static;

    /// Opens it on `lower`, or holds one that leads to the same ends once more.
    ///
    /// # Errors
    /// What `lower` answers.
    fn open(
        shared: &Self::Shared,
        cx: &Kernel,
        lower: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Self, OpenError>;

    /// Number, which no other of the layer has.
    fn id(&self) -> u64;

    /// Carries a request of the session `this`.
    ///
    /// # Errors
    /// [`CallError`].
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError>;

    /// Passes a question of the session `this` on.
    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer;

    /// Ends the calls of the session `this`, which is closed, where closing what it calls through
    /// does not.
    fn end_calls(&self, cx: &Kernel, this: &SessionRef) {
        let _ = (cx, this);
    }

    /// The session below, where there is one alone.
    fn session(&self) -> Option<&SessionRef>;

    /// Releases it.
    fn close(&self, shared: &Self::Shared, cx: &Kernel);

    /// Releases all of them, without closing; for a protocol's `stop`.
    fn clear(shared: &Self::Shared);
}

impl CallLower for SessionRef {
    type Shared = ();

    fn open(
        (): &(),
        cx: &Kernel,
        lower: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Self, OpenError> {
        lower.open(cx, upper, ends)
    }

    fn id(&self) -> u64 {
        SessionRef::id(self).0
    }

    #[inline(always)]
    fn call(&self, cx: &Kernel, _: &SessionRef, request: Message) -> Result<Message, CallError> {
        SessionRef::call(self, cx, request)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        SessionRef::control(self, cx, ask)
    }

    fn session(&self) -> Option<&SessionRef> {
        Some(self)
    }

    fn close(&self, (): &(), cx: &Kernel) {
        SessionRef::close(self, cx);
    }

    fn clear((): &()) {}
}

/// A layer that does something to requests and to replies.
pub trait CallLayer: Sized + 'static {
    /// Name of a procedure among those called through one session below; `()` in a layer that
    /// leaves addresses alone: one session above for each below.
    type Name: Key + Default;
    /// Way by which sessions call.
    type Lower: CallLower;
    /// State of a session that calls.
    type Calls: Default + 'static;
    /// State of a session that serves.
    type Serves: 'static;

    /// Octets in front of a request, at most: of any, or of those of one session.
    fn request_octets(&self, calls: Option<&Self::Calls>) -> usize;

    /// Octets in front of a reply to what comes through this session, at most.
    fn reply_octets(&self, serves: &Self::Serves) -> usize;

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
    /// there, and others serve through this session meanwhile. The header is still in front.
    ///
    /// # Errors
    /// The request, with the reason why it is not executed.
    fn serve(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused>;

    /// Takes a request for which no session was found: has [`CallLayered::accept`] make it, or in
    /// a layer for one server alone [`CallLayered::accept_for_server`].
    ///
    /// # Errors
    /// The request, with the reason why it is not executed.
    fn first(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused>;

    /// Takes the name of a procedure off the participants of an active open.
    ///
    /// # Errors
    /// [`OpenError`].
    fn pop_name(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<Self::Name, OpenError> {
        let _ = (cx, this, upper, ends);
        Ok(Self::Name::default())
    }

    /// The name in a request's header; `None` for [`first`](Self::first) to look at one whose
    /// header lies in several slices, or is none.
    #[inline(always)]
    fn name_in(request: &Message) -> Option<Self::Name> {
        let _ = request;
        Some(Self::Name::default())
    }

    /// Answers a question about the procedure of this name; false for other questions.
    fn answer_name(name: Self::Name, ask: &mut Ask<'_>) -> bool {
        let _ = (name, ask);
        false
    }

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

    /// Makes a session that calls ready, which is being opened with these participants, less what
    /// [`pop_name`](Self::pop_name) took.
    ///
    /// # Errors
    /// [`OpenError`].
    fn begin(
        own: &mut Calling<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<(), OpenError> {
        let _ = (own, cx, this, upper, ends);
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

    /// The graph is complete.
    ///
    /// # Errors
    /// [`OpenError`].
    fn start(all: &CallLayered<Self>, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let _ = (all, cx, this);
        Ok(())
    }

    /// Takes requests for `upper`; by default for one protocol alone.
    ///
    /// # Errors
    /// [`OpenError`].
    fn enable(
        all: &CallLayered<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Enable, OpenError> {
        all.serve(upper, || all.lower.open_enable(cx, Self::upper(this, upper), ends))
    }

    /// Takes back what [`enable`](Self::enable) did.
    fn disable(all: &CallLayered<Self>, cx: &Kernel, enable: Enable) {
        all.lower.open_disable(cx, enable);
        all.serve_no_more();
    }

    /// Takes what the server pushes to a session that serves.
    ///
    /// # Errors
    /// [`PushError`]; by default a server only replies.
    fn push(
        own: &Serving<Self>,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let _ = (own, cx, this, message);
        Err(PushError::NotSupported)
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

    /// A timer went off that was set for the protocol `this`.
    fn timeout(all: &CallLayered<Self>, cx: &Kernel, this: &ProtocolRef, token: u64) {
        let _ = (all, cx, this, token);
    }

    /// The figures of a map of its own, with their name, for `list-maps`.
    fn map(&self) -> Option<(&'static str, MapStats)> {
        None
    }

    /// As [`Session::control`]; [`Calling::answer`] has the questions that all layers answer.
    fn calls_control(
        own: &Calling<Self>,
        cx: &Kernel,
        this: &SessionRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        own.answer(cx, this, ask)
    }

    /// As [`Session::control`]; [`Serving::answer`] has the questions that all layers answer.
    fn serves_control(own: &Serving<Self>, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        own.answer(cx, ask)
    }

    /// The graph is being taken down.
    fn stop(&self) {}
}

/// Shared state of the objects of one layer.
pub struct Parts<L: CallLayer> {
    /// The layer's own part.
    pub layer: L,
    /// The protocol below.
    pub lower: ProtocolRef,
    /// Shared state of the ways by which sessions call.
    pub shared: <L::Lower as CallLower>::Shared,
    /// The sessions that call, by the session or pool that they call through, name and protocol
    /// above.
    calling: SessionTable<(u64, L::Name, u32)>,
    /// The sessions that serve, by session below and name.
    serving: SessionTable<(u64, L::Name)>,
    /// The one server of a layer for one server alone.
    servers: Servers,
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
    /// Way by which it calls.
    pub lower: L::Lower,
    /// The procedure.
    pub name: L::Name,
    /// The protocol above.
    upper: u32,
    /// The layer's own state of the session.
    pub state: L::Calls,
}

/// A session that serves.
pub struct Serving<L: CallLayer> {
    /// The layer that it is of.
    pub all: CallLayered<L>,
    /// The session below.
    pub lower: SessionRef,
    /// The procedure.
    pub name: L::Name,
    /// The protocol above.
    pub upper: ProtocolRef,
    /// The layer's own state of the session.
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
    let header = message.header()?;
    // In place only where the first slice has them: behind an empty one they lie in the next.
    let is_taken = message.strip(N);
    debug_assert!(is_taken, "the header is there");
    Ok(header)
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

/// A reply with these octets in place of one from above.
///
/// # Errors
/// The request, with [`reason::NO_BUFFERS`].
pub fn reply_of(cx: &Kernel, request: Message, octets: &[u8]) -> Result<Message, Refused> {
    let reply = cx.pool().copy_from(HEADROOM, octets);
    reply.map_err(|_| Refused::new(request, &reason::NO_BUFFERS))
}

/// The reply with these octets to a request that was refused, if it may have one: a broadcast gets
/// none.
///
/// # Errors
/// The request, with its reason, or with [`reason::NO_BUFFERS`].
#[cold]
pub fn reply_to_refused(cx: &Kernel, refused: Refused, octets: &[u8]) -> Result<Message, Refused> {
    match refused.message.attribute::<LinkCast>() {
        Some(_) => Err(refused),
        None => reply_of(cx, refused.message, octets),
    }
}

impl<L: CallLayer> CallLayered<L> {
    /// A layer on `lower` with at most `sessions_max` sessions that call, and as many that serve;
    /// idle ones are evicted for new ones. `shared` is what all that sessions call through share.
    pub fn new(
        secret: Secret,
        lower: ProtocolRef,
        sessions_max: usize,
        shared: <L::Lower as CallLower>::Shared,
        layer: L,
    ) -> Self {
        Self(Rc::new(Parts {
            layer,
            lower,
            shared,
            calling: SessionTable::new(secret, sessions_max),
            serving: SessionTable::new(secret, sessions_max),
            servers: Servers::default(),
        }))
    }

    /// Answers what every layer answers: what the protocol below says of sizes, less the header
    /// of a request; the rest as it does.
    pub fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        less(self.lower.control(cx, ask), ask, self.layer.request_octets(None))
    }

    /// Has `below` enable the layer below for the one protocol that serves.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another protocol serves, or what `below` answers.
    pub fn serve(
        &self,
        upper: Upper<'_>,
        below: impl FnOnce() -> Result<Enable, OpenError>,
    ) -> Result<Enable, OpenError> {
        self.servers.enter(0, upper)?;
        below().inspect_err(|_| self.servers.leave(0))
    }

    /// Takes an enable of [`serve`](Self::serve) back; with the last one nothing serves.
    pub fn serve_no_more(&self) {
        self.servers.leave(0);
    }

    /// The session that serves this procedure through `lower`, if there is one.
    #[inline(always)]
    pub fn serving(&self, lower: &SessionRef, name: L::Name) -> Option<SessionRef> {
        self.serving.get(&(lower.id().0, name))
    }

    /// All sessions that serve.
    pub fn all_serving(&self) -> Vec<SessionRef> {
        self.serving.sessions(usize::MAX)
    }

    /// The session for the requests with this name through `lower`, which `upper` serves; `make`
    /// gives its state and the participants for its `open_done`.
    ///
    /// # Errors
    /// Why there is none: as of [`SessionTable::accept`].
    #[cold]
    pub fn accept(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (lower, upper): (&SessionRef, &ProtocolRef),
        name: L::Name,
        make: impl FnOnce() -> (L::Serves, Participants),
    ) -> Result<SessionRef, &'static Reason> {
        let (all, lower, receiver) = (self.clone(), lower.clone(), upper.clone());
        let (key, source) = ((lower.id().0, name), lower.head().source());
        let make = || {
            let (state, ends) = make();
            (Serving { all, lower, name, upper: receiver, state }, ends)
        };
        self.serving.accept(cx, this, upper, key, source, make)
    }

    /// Has the one protocol that serves execute a request through `lower` and those after it.
    ///
    /// # Errors
    /// The request, with the reason why it is not executed.
    #[cold]
    pub fn accept_for_server(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
        state: impl FnOnce() -> L::Serves,
    ) -> Result<Message, Refused> {
        match self.server_of(cx, this, lower, L::Name::default(), state) {
            Ok(session) => session.call_pop(cx, request),
            Err(why) => Err(this.refuse(request, why)),
        }
    }

    /// The session by which the one protocol that serves executes requests through `lower` under
    /// a name, there already or made now.
    ///
    /// # Errors
    /// [`reason::NO_PROTOCOL`] if none serves, or as for [`accept`](Self::accept).
    pub fn server_of(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        name: L::Name,
        state: impl FnOnce() -> L::Serves,
    ) -> Result<SessionRef, &'static Reason> {
        if let Some(session) = self.serving(lower, name) {
            return Ok(session);
        }
        let (upper, _) = self.servers.get(0).ok_or(&reason::NO_PROTOCOL)?;
        self.accept(cx, this, (lower, &upper), name, || (state(), Participants::default()))
    }
}

/// Takes a header of `octets` octets off an answer from below about sizes.
pub fn less(answer: Answer, ask: &mut Ask<'_>, octets: usize) -> Answer {
    if answer.is_answered() {
        less_header(ask, octets);
    }
    answer
}

impl<L: CallLayer> Protocol for CallLayered<L> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        L::start(self, cx, this)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        ends.check_one_peer()?;
        let name = self.layer.pop_name(cx, this, upper, &mut ends)?;
        let below = L::upper(this, upper);
        let mut body = Calling {
            all: self.clone(),
            lower: L::Lower::open(&self.shared, cx, &self.lower, below, ends.clone())?,
            name,
            upper: upper.receiver.id().0,
            state: L::Calls::default(),
        };
        let begun = L::begin(&mut body, cx, this, upper, ends);
        begun.inspect_err(|_| body.lower.close(&self.shared, cx))?;
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
        L::enable(self, cx, this, upper, ends)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        L::disable(self, cx, enable);
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        if let Some(name) = L::name_in(&request)
            && let Some(session) = self.serving(lower, name)
        {
            return session.call_pop(cx, request);
        }
        L::first(self, cx, this, lower, request)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        L::control(self, cx, this, ask)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("calling", &self.calling);
        tables.sessions("serving", &self.serving);
        if let Some((name, stats)) = self.layer.map() {
            tables.map(name, stats);
        }
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        L::timeout(self, cx, this, token);
    }

    // Sessions refer to the protocols around the layer, and those to it: this ends the circle.
    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.calling.clear();
        self.serving.clear();
        self.servers.clear();
        L::Lower::clear(&self.shared);
        self.layer.stop();
    }
}

impl<L: CallLayer> Calling<L> {
    fn key(&self) -> (u64, L::Name, u32) {
        (self.lower.id(), self.name, self.upper)
    }

    /// Carries a request of this session, `this`, below.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline(always)]
    pub fn next(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        self.lower.call(cx, this, request)
    }

    /// Answers what every session that calls answers: what its name says; what the
    /// layer below says of sizes, less the header of a request; the rest as that does.
    pub fn answer(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if L::answer_name(self.name, ask) {
            return Answer::Answered;
        }
        let octets = self.all.layer.request_octets(Some(&self.state));
        less(self.lower.control(cx, this, ask), ask, octets)
    }
}

impl<L: CallLayer> Session for Calling<L> {
    #[inline]
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        L::call(self, cx, this, request)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        L::calls_control(self, cx, this, ask)
    }

    fn lower(&self) -> Option<&SessionRef> {
        self.lower.session()
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        L::describe_calls(self)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.all.calling.release(&self.key(), this);
        self.lower.end_calls(cx, this);
        self.lower.close(&self.all.shared, cx);
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

    /// Answers what every session that serves answers: what its name says; what
    /// the session below says of sizes, less the header of a reply; the rest as it does.
    pub fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        if L::answer_name(self.name, ask) {
            return Answer::Answered;
        }
        let octets = self.all.layer.reply_octets(&self.state);
        less(self.lower.control(cx, ask), ask, octets)
    }
}

impl<L: CallLayer> Session for Serving<L> {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        L::push(self, cx, this, message)
    }

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

    fn describe(&self, _: &SessionRef) -> Option<String> {
        L::describe_serves(self)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        self.all.serving.release(&(self.lower.id().0, self.name), this);
        Closing::Done
    }
}

#[cfg(test)]
mod tests {
    use super::pop_header;
    use xk_core::message::{Pool, PoolConfig};

    fn pops<const N: usize>(pool: &Pool, octets: &[u8]) {
        for mut message in xk_testkit::messages::chopped(pool, octets) {
            assert_eq!(pop_header::<N>(&mut message).ok().as_ref(), octets.first_chunk());
            let behind = octets.get(N..).unwrap_or(octets);
            assert!(message.eq_octets(behind), "{N} of {message:?}");
        }
    }

    #[test]
    fn a_header_is_taken_off_whatever_slices_it_lies_in() {
        let pool = Pool::new(&PoolConfig::default()).expect("memory");
        let octets = b"octets";
        pops::<0>(&pool, octets);
        pops::<1>(&pool, octets);
        pops::<2>(&pool, octets);
        pops::<3>(&pool, octets);
        pops::<4>(&pool, octets);
        pops::<5>(&pool, octets);
        pops::<6>(&pool, octets);
        pops::<7>(&pool, octets);
    }
}
