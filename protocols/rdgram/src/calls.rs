//! The sessions below of a conversation: channels, which are called.

use core::time::Duration;
use xk_core::map::Key;
use xk_core::object::{OpenError, PushError, SessionSlot};
use xk_core::reason::Class;
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, PeerName, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::answers::is_for_one;
use xk_kit::control::PeerHost;
use xk_kit::layer::{Acting, Ways};
use xk_kit::rpc::call::CallOptions;

/// No channel to the peer could be opened.
pub(crate) static NO_CHANNEL: Reason = Reason::new("no channel", Class::NotMine);

/// Notes the peer's host on a session below.
///
/// # Errors
/// [`reason::NO_ANSWER`] if the question was lost.
pub(crate) fn note_peer(cx: &Kernel, lower: &SessionRef) -> Result<PeerName, &'static Reason> {
    let head = lower.head();
    if head.peer() == PeerName::UNKNOWN {
        let asked = cx.unless_lost(|| lower.ask(cx, PeerHost::default()))?;
        let host = asked.map(|asked| asked.host).filter(|host| !host.is_unspecified());
        head.set_peer(host.map_or(PeerName::NO_HOST, PeerName::from));
    }
    Ok(head.peer())
}

/// A channel, opened when it is first needed, and called by one push at a time.
pub struct Calls {
    /// The peer.
    pub peer: PeerName,
    /// Ends that the channel is opened with.
    ends: Participants,
    channel: SessionSlot,
    /// Lets one message pass at a time, in the order of pushing.
    turn: Semaphore,
    /// Longest time of a push, with the wait for its turn.
    total: Duration,
}

/// Reason under which a message that could not be sent is counted.
fn reason_of(error: PushError) -> &'static Reason {
    match error {
        PushError::QueueFull => &reason::QUEUE_FULL,
        PushError::NoBuffers => &reason::NO_BUFFERS,
        PushError::NoRoute => &NO_CHANNEL,
        _ => &reason::CLOSED,
    }
}

impl Calls {
    /// Sets how long a push lasts at most.
    pub(crate) fn lasting(self, total: Duration) -> Self {
        Self { total, ..self }
    }

    fn new(peer: PeerName, ends: Participants, channel: Option<SessionRef>) -> Self {
        let (channel, turn) = (SessionSlot::new(channel), Semaphore::new(1));
        Self { peer, ends, channel, turn, total: Duration::ZERO }
    }

    /// Waits until the earlier pushes have ended, `limit` at most.
    fn take_turn(&self, cx: &Kernel, limit: Duration) -> Result<(), PushError> {
        cx.wait(&self.turn, Some(limit)).map_err(|error| match error {
            WaitError::Interrupted | WaitError::Closed => PushError::Closed,
            _ => PushError::QueueFull,
        })
    }

    /// The channel, opened when it is first needed.
    fn channel(&self, Acting { cx, this, lower }: Acting<'_>) -> Result<SessionRef, PushError> {
        if this.head().is_closed() {
            return Err(PushError::Closed);
        }
        if let Some(channel) = self.channel.live() {
            return Ok(channel);
        }
        let protocol = this.protocol(cx).ok_or(PushError::Closed)?;
        let channel = lower.open(cx, Upper::new(&protocol), self.ends.clone())?;
        channel.head().set_peer(self.peer);
        drop(self.channel.replace(Some(channel.clone())));
        Ok(channel)
    }

    /// Sends one message, when it has its turn.
    fn carry(&self, acting: Acting<'_>, message: Message) -> Result<(), PushError> {
        let Acting { cx, this, .. } = acting;
        let channel = match self.channel(acting) {
            Ok(channel) => channel,
            Err(error) => {
                this.discard(cx, message, reason_of(error));
                return Err(error);
            }
        };
        let result = channel.call(cx, message);
        if channel.head().is_closed() {
            drop(self.channel.take());
        } else if this.head().is_closed() && self.channel.take().is_some() {
            // It was closed meanwhile, and left the channel to this call.
            channel.close(cx);
        }
        match result {
            Ok(reply) if reply.is_empty() => Ok(()),
            Ok(reply) => {
                this.discard(cx, reply, &reason::MALFORMED);
                Err(PushError::Unreachable)
            }
            Err(error) => Err(error.cause.into()),
        }
    }
}

impl Ways for Calls {
    /// The peer's host, and the key.
    type Place<K: Key> = (PeerName, K);

    fn place<K: Key>(lower: &SessionRef, key: K) -> (PeerName, K) {
        (lower.head().peer(), key)
    }

    fn place_of<K: Key>(key: K, ends: &Participants) -> Option<(PeerName, K)> {
        let host = |part: &Part| match part {
            Part::Host(host) => Some((*host).into()),
            _ => None,
        };
        let mut parts = ends.iter().nth(1).filter(|_| ends.len() == 2)?.parts();
        Some((parts.find_map(host).unwrap_or(PeerName::NO_HOST), key))
    }

    /// Refuses a session below for messages to many hosts, because these have no single
    /// acknowledgement.
    fn admits(cx: &Kernel, lower: &SessionRef) -> Result<(), &'static Reason> {
        is_for_one(cx, lower)
    }

    /// A session that an arriving message makes gets a channel when something is pushed into it.
    fn begin(_: &Kernel, lower: &SessionRef) -> Self {
        let peer = lower.head().peer();
        Self::new(peer, Participants::pair(Part::Any, Part::Host(peer.host())), None)
    }

    /// Opens the channel at once, so that a peer that cannot be had is known now. The peer's own
    /// calls may come by it, as REQUEST.REPLY has it. On a link they come from no host, whatever
    /// the peer is called above.
    fn open(
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        mut ends: Participants,
    ) -> Result<Self, OpenError> {
        ends.peer_mut()?;
        let channel = lower.open(cx, Upper::new(this), ends.clone())?;
        let peer = note_peer(cx, &channel).unwrap_or(PeerName::NO_HOST);
        Ok(Self::new(peer, ends, Some(channel)))
    }

    fn first(&self) -> Option<SessionRef> {
        self.channel.get()
    }

    fn send(&self, acting: Acting<'_>, mut message: Message) -> Result<(), PushError> {
        let Acting { cx, this, .. } = acting;
        let options = CallOptions::take(&mut message);
        let limit = CallOptions::clip(options, cx.now(), self.total).unwrap_or(Duration::ZERO);
        let options = CallOptions {
            deadline: cx.now().after(limit),
            tag: options.map_or(0, |options| options.tag),
        };
        if message.set_attribute(options).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if let Err(error) = self.take_turn(cx, limit) {
            this.discard(cx, message, reason_of(error));
            return Err(error);
        }
        let result = self.carry(acting, message);
        cx.signal(&self.turn);
        result
    }

    fn ask(&self, cx: &Kernel, lower: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        match self.channel.get() {
            Some(channel) => channel.control(cx, ask),
            None => lower.control(cx, ask),
        }
    }

    fn close(&self, acting: Acting<'_>) {
        // While a push is under way, the channel is its to close.
        if self.turn.count() > 0
            && let Some(channel) = self.channel.take()
        {
            channel.close(acting.cx);
        }
    }
}
