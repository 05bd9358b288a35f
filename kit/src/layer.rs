//! A layer with a header of fixed length, whose conversations are found by the session below and a
//! key in that header.
//!
//! [`Layer`] is what is a protocol's own: the key of a conversation, its state, the header of a
//! message that goes down, the verdict on one that comes up. [`Layered`] is the protocol object and
//! [`Conversation`] the session object that are made of it: open, found again, enable, passive
//! open and its undo, the search for the session, bursts in both directions, the common questions,
//! close and stop.
//!
//! The sessions below that a conversation goes by are its [`Ways`]: [`One`], unless the layer names
//! others, such as [`Many`] for a conversation of several peers.
//!
//! A layer that does more in one operation of the uniform interface overrides the method of that
//! name and calls the operation of [`Layered`] or [`Conversation`] for the rest.
//!
//! ```text
//! open         Layer::open      -> key, [lower.open], Layered::open_on, begin
//! open_enable  Layer::offer
//! open_done    Layer::open_done
//! demux        key_of, found: the session's pop; not found: Layer::first -> offers, accept, begin
//! pop          is_plain, or else examine -> deliver -> the upper's demux
//! push         fit, header, or else examine_sent -> the lower's push, or unsent
//! call         Layer::call
//! ```

mod bounds;
mod conversation;
mod many;
mod ways;

pub use bounds::{Bounds, sessions_max};
pub use conversation::Conversation;
pub use many::{MEMBERS_MAX, Many, NOT_A_MEMBER, peer_of};
pub use ways::{Acting, One, Ways};

use crate::Turns;
use crate::control::{MaxPacket, OptPacket, max_packet};
use crate::net::drop_sources::{DropSources, Source};
use crate::net::offers::Offers;
use crate::net::template::Headers;
use crate::rpc::server::OfferingServers;
use alloc::rc::Rc;
use alloc::string::String;
use core::hash::Hasher;
use core::ops::Deref;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::map::{Key, Map, MapStats};
use xk_core::object::{
    Burst, CallCause, CallError, Enable, OpenError, PushError, Refused, SessionTable,
};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    Secret, SessionRef, Upper, reason,
};

/// Why a message is not sent: the error for the caller, and the reason it is counted under.
pub type Unsent = (PushError, &'static Reason);

/// The protocol or session that takes what comes for a standing offer.
#[derive(Clone)]
pub enum Receiver {
    /// Gets a session for each conversation.
    Protocol(ProtocolRef),
    /// Takes the messages of every conversation that has no session.
    Session(SessionRef),
}

impl Receiver {
    /// True if it is this protocol, or a session of its.
    #[must_use]
    pub fn is_of(&self, upper: &ProtocolRef) -> bool {
        match self {
            Self::Protocol(other) => other == upper,
            Self::Session(session) => session.head().upper() == upper.id(),
        }
    }

    /// The session, if it is one.
    #[must_use]
    pub fn session(self) -> Option<SessionRef> {
        match self {
            Self::Protocol(_) => None,
            Self::Session(session) => Some(session),
        }
    }
}

/// An arrival: of a message at the protocol `this`, through the session `lower`.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// The kernel.
    pub cx: &'a Kernel,
    /// The layer's own protocol object.
    pub this: &'a ProtocolRef,
    /// The session below.
    pub lower: &'a SessionRef,
}

/// A layer with a header of `N` octets.
pub trait Layer<const N: usize, W: Ways = One>: Sized + 'static {
    /// Key of a conversation among those through one lower session.
    type Key: Key + Copy + Eq;
    /// State of a conversation.
    type State: 'static;

    /// Whether a message that is refused above gets its header back, for the layer below to quote
    /// (RFC 1122, section 3.2.2).
    const QUOTES: bool = false;
    /// The reason for dropping a message that no offer is for.
    const NO_RECEIVER: &'static Reason = &reason::NO_PROTOCOL;
    /// Octets of the largest message from above that the header has a length for.
    const OCTETS_MAX: usize = usize::MAX;
    /// Whether an offer is passed on to the layer below with the participants that
    /// [`offer`](Self::offer) left; if not, one for all is made below at the start.
    const PASSES_OFFERS: bool = false;
    /// Whether the messages of a burst are delivered one at a time, for a layer that keeps some of
    /// them or counts them.
    const ONE_BY_ONE: bool = false;
    /// Whether the messages are calls and replies: sessions are [called](Self::call), and nothing
    /// is pushed into them. One that a message made stays bound as an idle one when its last holder
    /// closes it. Offers are passed on for the protocols that [serve](Self::servers).
    const CARRIES_CALLS: bool = false;

    /// Takes the layer's own parts off the participants of an active open and answers the key that
    /// they mean; the default takes none, and the type number above is the key.
    ///
    /// # Errors
    /// [`OpenError`].
    fn key(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<Self::Key, OpenError> {
        let _ = ends;
        Self::Key::from_number(upper.number_on(cx, this)?).ok_or(OpenError::NoTypeNumber)
    }

    /// Number of an `open_enable`'s offer, which [`offer_for`](Self::offer_for) finds again. The
    /// default offers the [`key`](Self::key).
    ///
    /// # Errors
    /// [`OpenError`].
    fn offer(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        self.key(cx, this, upper, ends).map(Self::offer_for)
    }

    /// Whether two offers are for the same number, such as a port at two local hosts: what one
    /// user's program was offered is no other user's.
    fn is_same_offer(one: u64, other: u64) -> bool {
        one == other
    }

    /// The key in an arriving header.
    fn key_of(header: &[u8; N]) -> Self::Key;

    /// Length of a message, in octets without the header, where the header says so: padding of a
    /// link is cut off then, and a message that is shorter is dropped.
    #[inline(always)]
    fn length(header: &[u8; N]) -> Option<usize> {
        let _ = header;
        None
    }

    /// The offer that a conversation with this key belongs to: by default the key as a number.
    fn offer_for(key: Self::Key) -> u64 {
        as_number(key)
    }

    /// Octets of the largest message from above that the session below takes with the header.
    fn octets_max(&self, cx: &Kernel, lower: &SessionRef, key: Self::Key) -> usize {
        let _ = key;
        let below = max_packet(cx, lower, u32::MAX) as usize;
        below.saturating_sub(N).min(Self::OCTETS_MAX)
    }

    /// The state of a conversation that begins.
    fn begin(&self, cx: &Kernel, lower: &SessionRef, key: Self::Key) -> Self::State;

    /// Makes a message to be sent fit for [`header`](Self::header), such as by padding; false if
    /// that is for [`examine_sent`](Self::examine_sent), such as one that is too long for the
    /// header. One that is too long for the session below is refused there.
    #[inline(always)]
    fn fit(&self, own: &Conversation<Self, N, W>, message: &mut Message) -> bool {
        Self::OCTETS_MAX == usize::MAX || message.len() <= own.octets_max
    }

    /// The header of a message to be sent; `None` if [`examine_sent`](Self::examine_sent) is to
    /// decide. Decides for almost every message; asked again only if it answers `None`. A layer
    /// that [carries calls](Self::CARRIES_CALLS) has none.
    fn header(&self, own: &Conversation<Self, N, W>, message: &Message) -> Option<[u8; N]> {
        let _ = (own, message);
        None
    }

    /// The header of a message that [`header`](Self::header) has none for; may change the message.
    /// By default such a message is too long.
    ///
    /// # Errors
    /// Why it may not be sent.
    fn examine_sent(
        &self,
        cx: &Kernel,
        own: &Conversation<Self, N, W>,
        message: &mut Message,
    ) -> Result<[u8; N], Unsent> {
        let _ = (cx, own, message);
        Err(match Self::CARRIES_CALLS {
            true => (PushError::NotSupported, &reason::NOT_SUPPORTED),
            false => (PushError::TooBig, &reason::TOO_BIG),
        })
    }

    /// Ends what becomes of a message that [`examine_sent`](Self::examine_sent) has no header for,
    /// or no buffer is there for: by default it is dropped. A layer that has another way for it,
    /// such as several packets, takes that.
    ///
    /// # Errors
    /// As of [`push`](xk_core::Session::push).
    #[cold]
    fn unsent(
        own: &Conversation<Self, N, W>,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
        (error, why): Unsent,
    ) -> Result<(), PushError> {
        let _ = own;
        this.discard(cx, message, why);
        Err(error)
    }

    /// True if a message, whose header lies behind `front` octets, goes up as it is; false if it
    /// is for [`examine`](Self::examine). Decides for almost every message, and changes nothing.
    #[inline(always)]
    fn is_plain(
        &self,
        own: &Conversation<Self, N, W>,
        header: &[u8; N],
        message: &Message,
        front: usize,
    ) -> bool {
        let _ = own;
        Self::length(header).is_none_or(|length| message.len() == front + N + length)
    }

    /// Looks at a message that is not plain, its header off; may cut it. By default its
    /// [`length`](Self::length) decides.
    ///
    /// # Errors
    /// Why it is dropped.
    fn examine(
        &self,
        own: &Conversation<Self, N, W>,
        header: &[u8; N],
        message: &mut Message,
    ) -> Result<(), &'static Reason> {
        let _ = own;
        if let Some(length) = Self::length(header) {
            if length > message.len() {
                return Err(&reason::BAD_LENGTH);
            }
            message.truncate(length);
        }
        Ok(())
    }

    /// Hands a message up that was judged, its header off. A layer that keeps some back for a while
    /// places this one and hands up those whose turn it is.
    ///
    /// # Errors
    /// A message that is dropped here or refused above.
    #[inline(always)]
    fn deliver(
        own: &Conversation<Self, N, W>,
        cx: &Kernel,
        this: &SessionRef,
        header: &[u8; N],
        message: Message,
    ) -> Result<(), Refused> {
        let _ = header;
        own.upper.demux(cx, this, message)
    }

    /// Gives the ways of a conversation that begins what the layer's parameters say of them.
    fn ways(&self, ways: W) -> W {
        ways
    }

    /// Decides whether the sender of a message becomes a peer of a conversation that it is none of:
    /// by default no stranger does. The message bears its sender, the header still in front, and is
    /// not examined yet.
    fn joins(own: &Conversation<Self, N, W>, cx: &Kernel, message: &Message) -> bool {
        let _ = (own, cx, message);
        false
    }

    /// A timer of this conversation, set with [`Kernel::schedule`], goes off.
    fn timeout(own: &Conversation<Self, N, W>, cx: &Kernel, this: &SessionRef, token: u64) {
        let _ = (own, cx, this, token);
    }

    /// The conversation is closed, or was never bound since another open was quicker: what the
    /// layer keeps for it is given back.
    fn end(own: &Conversation<Self, N, W>, cx: &Kernel, this: &SessionRef) {
        let _ = (own, cx, this);
    }

    /// As [`call`](xk_core::Session::call) of a session.
    ///
    /// # Errors
    /// [`CallError`]; by default nothing is called through the layer.
    fn call(
        own: &Conversation<Self, N, W>,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        let _ = (own, cx, this, request);
        Err(CallCause::NotSupported.into())
    }

    /// The protocols above that serve, by [`offer`](Self::offer), where the layer carries calls.
    fn servers(&self) -> Option<&OfferingServers> {
        None
    }

    /// Puts the header of a conversation's messages behind those of the layers below; `None` if it
    /// has no form that can be told.
    fn headers(
        &self,
        own: &Conversation<Self, N, W>,
        cx: &Kernel,
        below: Headers,
    ) -> Option<Headers> {
        let _ = (own, cx, below);
        None
    }

    /// A line about a conversation, for `xk dump`.
    fn describe(&self, own: &Conversation<Self, N, W>) -> String {
        alloc::format!("number {}", as_number(own.key))
    }

    /// Both ends of a passive conversation, for `open_done`.
    fn ends(&self, cx: &Kernel, lower: &SessionRef, key: Self::Key) -> Participants {
        let _ = (cx, lower, key);
        Participants::default()
    }

    /// As [`Protocol::start`]; [`Layered::enable`] has what all layers do.
    ///
    /// # Errors
    /// [`OpenError`].
    fn start(all: &Layered<Self, N, W>, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        match Self::PASSES_OFFERS || Self::CARRIES_CALLS {
            true => Ok(()),
            false => all.enable(cx, this),
        }
    }

    /// As [`Protocol::open`]; the default takes one peer.
    ///
    /// # Errors
    /// [`OpenError`].
    fn open(
        all: &Layered<Self, N, W>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let key = all.layer.key(cx, this, upper, &mut ends)?;
        all.open_at(cx, this, upper.receiver, key, ends)
    }

    /// The layer below made a session for a message to this layer; the message follows.
    ///
    /// # Errors
    /// Why nothing is taken through it.
    fn open_done(
        all: &Layered<Self, N, W>,
        at: Arrival<'_>,
        ends: Participants,
    ) -> Result<(), &'static Reason> {
        let _ = (all, ends);
        W::admits(at.cx, at.lower)
    }

    /// Takes a message of no session, its header still in front.
    ///
    /// # Errors
    /// As of [`Protocol::demux`].
    fn first(
        all: &Layered<Self, N, W>,
        at: Arrival<'_>,
        header: &[u8; N],
        message: Message,
    ) -> Result<(), Refused> {
        all.take_offered(at, header, message)
    }

    /// As [`Protocol::call_demux`], for a layer of messages above a layer of calls.
    ///
    /// # Errors
    /// As of [`Protocol::call_demux`]; by default nothing is called through the layer.
    fn call_demux(
        all: &Layered<Self, N, W>,
        at: Arrival<'_>,
        request: Message,
    ) -> Result<Message, Refused> {
        let _ = all;
        Err(at.this.refuse(request, &reason::NOT_SUPPORTED))
    }

    /// The figures of a map of its own, with their name, for `list-maps`.
    fn map(&self) -> Option<(&'static str, MapStats)> {
        None
    }

    /// As [`Protocol::timeout`]: a timer that the layer has set for itself goes off.
    fn timer(all: &Layered<Self, N, W>, cx: &Kernel, this: &ProtocolRef) {
        let _ = (all, cx, this);
    }

    /// As [`Protocol::control`]; [`Layered::answer`] has the questions that all layers answer.
    fn control(
        all: &Layered<Self, N, W>,
        cx: &Kernel,
        this: &ProtocolRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        let _ = this;
        all.answer(cx, ask)
    }

    /// As [`control`](xk_core::Session::control) of a session; [`Conversation::answer`] has the
    /// questions that all layers answer.
    fn session_control(
        own: &Conversation<Self, N, W>,
        cx: &Kernel,
        this: &SessionRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        let _ = this;
        own.answer(cx, ask)
    }

    /// Source of a dropped message whose header, if it had one, is `header`: for the table of a
    /// layer that has the parameter [`sources_max`](crate::net::drop_sources::PARAMETER).
    fn source(at: Arrival<'_>, header: Option<&[u8; N]>) -> Option<Source> {
        let _ = (at, header);
        None
    }

    /// Gives back the messages that the layer keeps for a conversation: after its
    /// [`end`](Self::end), or while the graph is taken down, which its session may outlive.
    fn drain(own: &Conversation<Self, N, W>) {
        let _ = own;
    }

    /// The graph is being taken down.
    fn stop(&self) {}
}

/// The octets of a key that has up to eight of them, as a number: that of an integer is itself.
fn as_number(key: impl Key) -> u64 {
    struct Octets(u64);
    impl Hasher for Octets {
        fn write(&mut self, octets: &[u8]) {
            for octet in octets.iter().rev() {
                self.0 = self.0 << 8 | u64::from(*octet);
            }
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }
    let mut octets = Octets(0);
    key.put(&mut octets);
    octets.finish()
}

/// Shared state of the objects of one layer.
pub struct Parts<L: Layer<N, W>, const N: usize, W: Ways = One> {
    /// The layer's own part.
    pub layer: L,
    /// The protocol below.
    pub lower: ProtocolRef,
    /// The receivers of what comes from new peers, by [`Layer::offer`].
    pub offers: Map<u64, Receiver>,
    /// The sessions by place: session below and key for [`One`].
    sessions: SessionTable<W::Place<L::Key>>,
    /// Participants passed on to the layer below, by offer.
    passed: Map<u64, Participant>,
    below: Offers,
    /// The sources of what was dropped.
    drop_sources: Option<DropSources>,
    /// The sessions that a first message makes at this moment.
    making: Turns<W::Place<L::Key>>,
}

/// The protocol object of a layer.
pub struct Layered<L: Layer<N, W>, const N: usize, W: Ways = One>(Rc<Parts<L, N, W>>);

impl<L: Layer<N, W>, const N: usize, W: Ways> Clone for Layered<L, N, W> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<L: Layer<N, W>, const N: usize, W: Ways> Deref for Layered<L, N, W> {
    type Target = Parts<L, N, W>;

    #[inline(always)]
    fn deref(&self) -> &Parts<L, N, W> {
        &self.0
    }
}

impl<L: Layer<N, W>, const N: usize, W: Ways> Layered<L, N, W> {
    /// A layer on `lower`.
    pub fn new(secret: Secret, lower: ProtocolRef, bounds: Bounds, layer: L) -> Self {
        let sessions = SessionTable::new(secret, bounds.sessions)
            .with_idle_max(bounds.idle)
            .with_passive_max(bounds.passive);
        Self(Rc::new(Parts {
            layer,
            lower,
            offers: Map::new(secret, bounds.offers),
            sessions,
            passed: Map::new(secret, bounds.offers),
            below: Offers::default(),
            drop_sources: bounds.sources.map(DropSources::new),
            making: Turns::default(),
        }))
    }

    /// Adds the layer at its place in a graph. Its parameter [`sessions_max`] says how many
    /// sessions it holds; `idle_max`, `passive_max`, `enables_max` and `sources_max` are the other
    /// [`Bounds`] of an entry that has them.
    ///
    /// # Errors
    /// [`BuildError`] if the graph gives it nothing to stand on.
    pub fn build(build: &Build<'_>, layer: L) -> Result<ProtocolRef, BuildError> {
        let bounds = Bounds::read(build)?;
        build.add(Self::new(build.cx.secret(), build.lower(0)?, bounds, layer))
    }

    /// Takes what the layer below has for this one.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn enable(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    /// The session with this key through `lower`, if there is one.
    #[inline]
    pub fn find(&self, lower: &SessionRef, key: L::Key) -> Option<SessionRef> {
        self.sessions.get(&W::place(lower, key))
    }

    /// The session of `upper` with this key by ways that were opened for it, once more held or new.
    /// What it does not need of the ways is closed.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if it is another protocol's, [`OpenError::Full`] if there is no room.
    #[inline(never)]
    pub fn open_by(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        ways: W,
        key: L::Key,
    ) -> Result<SessionRef, OpenError> {
        let first = ways.first().ok_or(OpenError::NoLower)?;
        let place = W::place(&first, key);
        let body = self.conversation_by(cx, upper, &first, key, ways);
        self.sessions.open(cx, this, upper, place, body)
    }

    /// The session of `upper` with this key and these ends below, once more held or new.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_at(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        key: L::Key,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        if let Some(place) = W::place_of(key, &ends)
            && let Some(session) = self.sessions.found(&place, upper)?
        {
            return self.extended(cx, session, &ends);
        }
        // Another may open the same meanwhile: what it lacks of these ends is added.
        let again = W::MANY.then(|| ends.clone());
        let ways = W::open(cx, this, &self.lower, ends)?;
        let session = self.open_by(cx, this, upper, ways, key)?;
        match again {
            Some(ends) => self.extended(cx, session, &ends),
            None => Ok(session),
        }
    }

    /// A session that was found, with these ends below as well.
    #[inline(never)]
    fn extended(
        &self,
        cx: &Kernel,
        session: SessionRef,
        ends: &Participants,
    ) -> Result<SessionRef, OpenError> {
        if let Some(own) = session.body::<Conversation<L, N, W>>() {
            let extended = own.ways.extend(own.acting(cx, &session), ends);
            extended.inspect_err(|_| session.close(cx))?;
        }
        Ok(session)
    }

    /// Hands a message of no session to the receiver that its key is offered to.
    ///
    /// # Errors
    /// As of [`Protocol::demux`].
    pub fn take_offered(
        &self,
        at: Arrival<'_>,
        header: &[u8; N],
        message: Message,
    ) -> Result<(), Refused> {
        let key = L::key_of(header);
        match self.offers.get(&L::offer_for(key)) {
            Some(Receiver::Protocol(upper)) => self.accept(at, &upper, key, message),
            Some(Receiver::Session(session)) => session.pop(at.cx, message),
            None => self.refuse(at, Some(header), message, L::NO_RECEIVER),
        }
    }

    /// Makes the session of a conversation that a message begins, and passes the message up
    /// through it.
    ///
    /// # Errors
    /// As of [`Protocol::demux`].
    #[cold]
    pub fn accept(
        &self,
        at: Arrival<'_>,
        upper: &ProtocolRef,
        key: L::Key,
        message: Message,
    ) -> Result<(), Refused> {
        match self.made(at, upper, key) {
            Ok(session) => self.hand(at, session, message),
            Err(why) => {
                let header = message.peek::<N>().copied();
                self.refuse(at, header.as_ref(), message, why)
            }
        }
    }

    /// The session of a conversation that a message begins, or has begun.
    ///
    /// # Errors
    /// Why there is none: as of [`SessionTable::accept`].
    // Apart from what passes the message up, so that its frame is gone from the stack by then:
    // towers of layers are high.
    #[inline(never)]
    pub fn made(
        &self,
        Arrival { cx, this, lower }: Arrival<'_>,
        upper: &ProtocolRef,
        key: L::Key,
    ) -> Result<SessionRef, &'static Reason> {
        let place = W::place(lower, key);
        // What the layer below is asked may block.
        let turn = self.making.take(cx, place);
        if let Some(session) = self.sessions.find(&place) {
            return Ok(session);
        }
        W::admits(cx, lower)?;
        let make = || {
            let ways = W::begin(cx, lower);
            let body = self.conversation_by(cx, upper, lower, key, ways);
            let made = (body, self.layer.ends(cx, lower, key));
            drop(turn);
            made
        };
        self.sessions.accept(cx, this, upper, place, lower.head().source(), make)
    }

    /// Refuses a message that came up, and has the layer note it.
    ///
    /// # Errors
    /// The message, always.
    #[cold]
    pub fn refuse(
        &self,
        at: Arrival<'_>,
        header: Option<&[u8; N]>,
        message: Message,
        why: &'static Reason,
    ) -> Result<(), Refused> {
        self.dropped(at, header, why);
        Err(at.this.refuse(message, why))
    }

    /// Counts a drop of its source's, if the layer does.
    #[cold]
    pub fn dropped(&self, at: Arrival<'_>, header: Option<&[u8; N]>, why: &'static Reason) {
        if let Some(sources) = &self.drop_sources
            && let Some(source) = L::source(at, header)
        {
            sources.count(source, why);
        }
    }

    /// Answers what every layer answers: what the protocol below says of sizes, less the header;
    /// the rest as it does.
    pub fn answer(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        less_header::<L, N, W>(self.lower.control(cx, ask), ask)
    }

    /// Enables this layer below with the participants that are left of an offer, unless that is
    /// done. A layer that needs what comes for no protocol above passes an offer of its own when it
    /// starts.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn pass_offer(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        offer: u64,
        ends: &mut Participants,
    ) -> Result<(), OpenError> {
        let local = ends.local_mut()?;
        self.below.make(cx, &self.lower, this, local)?;
        let passed = self.passed.bind(offer, local.clone());
        passed.inspect_err(|_| self.below.withdraw(cx, &self.lower, local))?;
        Ok(())
    }

    fn conversation_by(
        &self,
        cx: &Kernel,
        upper: &ProtocolRef,
        first: &SessionRef,
        key: L::Key,
        ways: W,
    ) -> Conversation<L, N, W> {
        Conversation {
            octets_max: self.layer.octets_max(cx, first, key),
            all: self.clone(),
            key,
            ways: self.layer.ways(ways),
            upper: upper.clone(),
            state: self.layer.begin(cx, first, key),
            place: W::place(first, key),
        }
    }

    /// Passes a message up through its session.
    ///
    /// # Errors
    /// As of [`Protocol::demux`].
    #[inline(always)]
    pub fn hand(
        &self,
        at: Arrival<'_>,
        session: SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match W::MANY {
            true => self.hand_noted(at, &session, message),
            false => session.pop_owned(at.cx, message),
        }
    }

    #[inline(never)]
    fn hand_noted(
        &self,
        at: Arrival<'_>,
        session: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let mut why = match self.note(at, session, &mut message) {
            Ok(()) => return session.pop(at.cx, message),
            Err(why) => why,
        };
        let (head, header) = (session.head(), message.peek::<N>().copied());
        // One that a stranger's message made, and that is not held, keeps no other out.
        if core::ptr::eq(why, &raw const NOT_A_MEMBER)
            && head.is_passive()
            && head.opens() == 0
            && !head.is_closed()
            && let Some(key) = header.as_ref().map(L::key_of)
            && let Some(Receiver::Protocol(upper)) = self.offers.get(&L::offer_for(key))
        {
            session.abort(at.cx);
            let made = self.made(at, &upper, key).and_then(|session| {
                self.note(at, &session, &mut message)?;
                Ok(session)
            });
            match made {
                Ok(session) => return session.pop(at.cx, message),
                Err(other) => why = other,
            }
        }
        self.refuse(at, header.as_ref(), message, why)
    }

    /// Notes on a message of this session the way that it came by.
    fn note(
        &self,
        at: Arrival<'_>,
        session: &SessionRef,
        message: &mut Message,
    ) -> Result<(), &'static Reason> {
        // Before the protocol above knows of it nothing says that it is not held.
        session.wait_until_open(at.cx)?;
        let Some(own) = session.body::<Conversation<L, N, W>>() else {
            return Ok(());
        };
        let joins = |message: &Message| L::joins(own, at.cx, message);
        own.ways.note(own.acting(at.cx, session), at.lower, message, joins)
    }

    /// Takes a message whose session is not the last one, or is to be made.
    #[inline(never)]
    fn search(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        // Apart from what may change the message, which therefore stays in a register here.
        let Some(header) = message.peek_in_place::<N>() else {
            return self.search_closely(cx, this, lower, message);
        };
        let at = Arrival { cx, this, lower };
        match self.sessions.find(&W::place(lower, L::key_of(header))) {
            Some(session) => self.hand(at, session, message),
            None => {
                let header = *header;
                L::first(self, at, &header, message)
            }
        }
    }

    #[inline(never)]
    fn search_closely(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let at = Arrival { cx, this, lower };
        let header = match message.header() {
            Ok(header) => header,
            Err(error) => return self.refuse(at, None, message, error.into()),
        };
        match self.sessions.find(&W::place(lower, L::key_of(&header))) {
            Some(session) => self.hand(at, session, message),
            None => L::first(self, at, &header, message),
        }
    }
}

impl<L: Layer<N>, const N: usize> Layered<L, N> {
    /// The session of `upper` with this key on `lower`, once more held or new. It takes over the
    /// hold on `lower`, unless there is an error.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if it is another protocol's, [`OpenError::Full`] if there is no room.
    #[inline(never)]
    pub fn open_on(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        lower: &SessionRef,
        key: L::Key,
    ) -> Result<SessionRef, OpenError> {
        // Its hold is that of the session, which gives it back if there is no room for that.
        lower.hold();
        let body = self.conversation(cx, upper, lower, key);
        let opened = self.sessions.open(cx, this, upper, One::place(lower, key), body)?;
        lower.close(cx);
        Ok(opened)
    }

    /// The body of a conversation on `lower`, whose hold stays the caller's; not bound.
    pub fn conversation(
        &self,
        cx: &Kernel,
        upper: &ProtocolRef,
        lower: &SessionRef,
        key: L::Key,
    ) -> Conversation<L, N> {
        self.conversation_by(cx, upper, lower, key, One(lower.clone()))
    }
}

impl<L: Layer<N, W>, const N: usize, W: Ways> Protocol for Layered<L, N, W> {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        L::start(self, cx, this)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        L::open(self, cx, this, upper, ends)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        let offer = self.layer.offer(cx, this, upper, &mut ends)?;
        if let Some(servers) = self.layer.servers() {
            return servers.enable(
                cx,
                &self.lower,
                (this, upper),
                (offer as u32, ends.local_mut()?),
            );
        }
        let receiver = Receiver::Protocol(upper.receiver.clone());
        let is_same = |other: &u64| L::is_same_offer(*other, offer);
        self.offers.enable(offer, receiver, is_same)?;
        if L::PASSES_OFFERS
            && let Err(error) = self.pass_offer(cx, this, offer, &mut ends)
        {
            self.offers.unbind(&offer);
            return Err(error);
        }
        Ok(Enable(offer))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, Enable(offer): Enable) {
        if let Some(servers) = self.layer.servers() {
            servers.disable(cx, &self.lower, Enable(offer));
        } else if let Some(Receiver::Protocol(_)) = self.offers.get(&offer) {
            self.offers.unbind(&offer);
            if let Some(local) = self.passed.unbind(&offer) {
                self.below.withdraw(cx, &self.lower, &local);
            }
        }
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        ends: Participants,
    ) -> Result<(), &'static Reason> {
        L::open_done(self, Arrival { cx, this, lower }, ends)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(header) = message.peek_in_place::<N>()
            && let place = W::place(lower, L::key_of(header))
            && let Some(session) = self.sessions.latest(&place)
        {
            return self.hand(Arrival { cx, this, lower }, session, message);
        }
        self.search(cx, this, lower, message)
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while burst.goes_on(lower) {
            if !W::MANY
                && let Some(first) = burst.peek::<N>(0)
                && let key = L::key_of(&first.octets)
                && let Some(session) = self.find(lower, key)
            {
                let run = burst.count_while::<N>(|_, glance| L::key_of(&glance.octets) == key);
                session.pop_burst(cx, burst.first(run))?;
            } else if let Some(message) = burst.next() {
                self.search(cx, this, lower, message)?;
            }
        }
        Ok(())
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        L::call_demux(self, Arrival { cx, this, lower }, request)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match &self.drop_sources {
            Some(sources) if sources.answer(this, ask) => Answer::Answered,
            _ => L::control(self, cx, this, ask),
        }
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.sessions);
        self.offers.for_each(|_, receiver| tables.others(receiver.clone().session().as_ref()));
        tables.map("passive", self.offers.stats());
        if let Some((name, stats)) = self.layer.map() {
            tables.map(name, stats);
        }
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        L::timer(self, cx, this);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        for session in self.sessions.sessions(usize::MAX) {
            if let Some(own) = session.body::<Conversation<L, N, W>>() {
                L::drain(own);
            }
        }
        self.sessions.clear();
        self.offers.clear();
        self.passed.clear();
        self.below.clear();
        self.layer.servers().into_iter().for_each(OfferingServers::clear);
        self.drop_sources.iter().for_each(DropSources::clear);
        self.layer.stop();
    }
}

/// Takes this layer's header off an answer from below about sizes.
fn less_header<L: Layer<N, W>, const N: usize, W: Ways>(
    answer: Answer,
    ask: &mut Ask<'_>,
) -> Answer {
    if answer.is_answered() {
        let max = u32::try_from(L::OCTETS_MAX).unwrap_or(u32::MAX);
        crate::net::ports::less_header(ask, N);
        let _ = ask.answer::<MaxPacket>(|q| q.octets = q.octets.min(max));
        let _ = ask.answer::<OptPacket>(|q| q.octets = q.octets.min(max));
    }
    answer
}
