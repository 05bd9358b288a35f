//! Ways of a conversation: the sessions below that its messages go by.
//!
//! Almost every layer has [`One`] way for each conversation, for life. A layer whose conversation
//! has several peers has [`Many`]. A layer may bring ways of its own, such as `rdgram`, which opens
//! its way with the first push and calls through it.

use crate::net::template::Headers;
use xk_core::map::Key;
use xk_core::object::{OpenError, PushError};
use xk_core::{Answer, Ask, Kernel, Message, Participants, ProtocolRef, Reason, SessionRef, Upper};

/// The conversation that acts, for its ways.
#[derive(Clone, Copy)]
pub struct Acting<'a> {
    /// The kernel.
    pub cx: &'a Kernel,
    /// The conversation's session.
    pub this: &'a SessionRef,
    /// The protocol below.
    pub lower: &'a ProtocolRef,
}

/// The ways of one conversation.
pub trait Ways: Sized + 'static {
    /// Place of a conversation with a key of this type in the layer's table of sessions.
    type Place<K: Key>: Key;

    /// Whether several sessions below lead to one conversation, so that each message that comes up
    /// is [noted](Self::note) with its way.
    const MANY: bool = false;

    /// The place of the conversation that a message through `lower` belongs to.
    fn place<K: Key>(lower: &SessionRef, key: K) -> Self::Place<K>;

    /// Begins the ways of a conversation whose first message came through `lower`.
    fn begin(cx: &Kernel, lower: &SessionRef) -> Self;

    /// Decides whether a conversation may go by a session below that a message made; by default by
    /// each.
    ///
    /// # Errors
    /// Why not.
    fn admits(cx: &Kernel, lower: &SessionRef) -> Result<(), &'static Reason> {
        let _ = (cx, lower);
        Ok(())
    }

    /// Opens the ways of a conversation for the protocol `this` on `lower`.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is left open then.
    fn open(
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        ends: Participants,
    ) -> Result<Self, OpenError>;

    /// Opens what a conversation that is there already lacks of what an open asks for.
    ///
    /// # Errors
    /// [`OpenError`].
    fn extend(&self, acting: Acting<'_>, ends: &Participants) -> Result<(), OpenError> {
        let _ = (acting, ends);
        Ok(())
    }

    /// The place of a conversation with these ends, if it is known before a way is open.
    fn place_of<K: Key>(key: K, ends: &Participants) -> Option<Self::Place<K>> {
        let _ = (key, ends);
        None
    }

    /// A session below, which layer and conversation are asked of at the beginning.
    fn first(&self) -> Option<SessionRef> {
        self.ground().cloned()
    }

    /// Sends a message down, its header in front.
    ///
    /// # Errors
    /// As of [`push`](xk_core::Session::push).
    fn send(&self, acting: Acting<'_>, message: Message) -> Result<(), PushError>;

    /// Puts a question to the sessions below, or to the protocol `lower` while there are none.
    fn ask(&self, cx: &Kernel, lower: &ProtocolRef, ask: &mut Ask<'_>) -> Answer;

    /// Releases what was opened below: the conversation is closed.
    fn close(&self, acting: Acting<'_>);

    /// Returns the session below that the conversation stands on for life, if there is one.
    fn ground(&self) -> Option<&SessionRef> {
        None
    }

    /// Headers that the session below puts in front; `None` if they differ from way to way.
    fn headers(&self, cx: &Kernel) -> Option<Headers> {
        self.ground().and_then(|ground| Headers::of(cx, ground))
    }

    /// Calls `see` with each session below that the conversation stands on from its beginning.
    fn each(&self, see: &mut dyn FnMut(&SessionRef)) {
        self.ground().into_iter().for_each(see);
    }

    /// Notes on a message that it came through `lower`; `joins` decides whether a peer that is none
    /// of the conversation's becomes one. Only of ways with [`MANY`](Self::MANY).
    ///
    /// # Errors
    /// Why it is refused.
    fn note(
        &self,
        acting: Acting<'_>,
        lower: &SessionRef,
        message: &mut Message,
        joins: impl FnOnce(&Message) -> bool,
    ) -> Result<(), &'static Reason> {
        let _ = (acting, lower, message, joins);
        Ok(())
    }

    /// Returns the open session below through which a message came. None is opened for it.
    fn way_back(&self, message: &Message) -> Option<SessionRef> {
        let _ = message;
        self.ground().cloned()
    }

    /// Forgets a session below, which has ended; true if the conversation ends with it.
    fn lost(&self, way: &SessionRef) -> bool {
        let _ = way;
        self.ground().is_some()
    }

    /// Holds the sessions below that messages made, since the conversation is held now.
    fn hold(&self) {
        self.ground().into_iter().for_each(SessionRef::hold);
    }

    /// Takes back what [`hold`](Self::hold) did.
    fn ease(&self, cx: &Kernel) {
        self.ground().into_iter().for_each(|ground| ground.ease(cx));
    }
}

/// One session below, from the beginning to the end.
#[repr(transparent)]
pub struct One(pub SessionRef);

impl Ways for One {
    /// The session below, and the key.
    type Place<K: Key> = (u64, K);

    #[inline(always)]
    fn place<K: Key>(lower: &SessionRef, key: K) -> (u64, K) {
        (lower.id().0, key)
    }

    fn begin(_: &Kernel, lower: &SessionRef) -> Self {
        Self(lower.clone())
    }

    #[inline(always)]
    fn send(&self, acting: Acting<'_>, message: Message) -> Result<(), PushError> {
        self.0.push(acting.cx, message)
    }

    fn open(
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        ends: Participants,
    ) -> Result<Self, OpenError> {
        ends.check_one_peer()?;
        lower.open(cx, Upper::new(this), ends).map(Self)
    }

    fn ask(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.0.control(cx, ask)
    }

    fn close(&self, acting: Acting<'_>) {
        // What was opened for it is closed with it; one that a message made holds the session below
        // only while it is held.
        if !acting.this.head().is_passive() {
            self.0.close(acting.cx);
        }
    }

    #[inline(always)]
    fn ground(&self) -> Option<&SessionRef> {
        Some(&self.0)
    }
}
