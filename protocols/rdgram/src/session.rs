//! A session: one upper protocol's conversation with one peer.

use crate::wire::{HEADER_OCTETS, Header};
use alloc::rc::Rc;
use alloc::string::String;
use core::time::Duration;
use xk_core::object::{
    CallCause, Closing, OpenError, PushError, Refused, SessionSlot, SessionTable,
};
use xk_core::reason::Class;
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Participants, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason,
};
use xk_kit::control::PeerHost;
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::call_layer::less;

/// No channel to the peer could be opened.
pub(crate) static NO_CHANNEL: Reason = Reason::new("no channel", Class::NotMine);

/// The key that a message is demultiplexed by: the peer's host and the type number.
pub(crate) type Key = (HostAddr, u32);

pub(crate) struct RdgramSession {
    pub(crate) sessions: Rc<SessionTable<Key>>,
    pub(crate) key: Key,
    pub(crate) lower: ProtocolRef,
    /// The layer itself, which holds the channel.
    pub(crate) layer: ProtocolRef,
    pub(crate) upper: ProtocolRef,
    /// Whom the channel leads to.
    pub(crate) participants: Participants,
    pub(crate) channel: SessionSlot,
    /// One message at a time, in the order of pushing.
    pub(crate) turn: Semaphore,
    /// Longest time of a push, with the wait for its turn.
    pub(crate) total: Duration,
    pub(crate) template: [u8; HEADER_OCTETS],
}

/// Error of a push whose call ended so.
fn push_error(cause: CallCause) -> PushError {
    match cause {
        CallCause::Push(error) => error,
        CallCause::Closed | CallCause::Cancelled => PushError::Closed,
        CallCause::NoShepherds => PushError::QueueFull,
        CallCause::NotSupported => PushError::NotSupported,
        CallCause::TimedOut { .. }
        | CallCause::Rebooted
        | CallCause::Rejected(_)
        | CallCause::NobodyThere
        | CallCause::BadReply => PushError::Unreachable,
    }
}

/// Reason under which a message is counted that went nowhere.
fn reason_of(error: PushError) -> &'static Reason {
    match error {
        PushError::QueueFull => &reason::QUEUE_FULL,
        PushError::NoBuffers => &reason::NO_BUFFERS,
        PushError::NoRoute => &NO_CHANNEL,
        _ => &reason::CLOSED,
    }
}

impl RdgramSession {
    /// Waits until the pushes before are through, `limit` at most.
    fn take_turn(&self, cx: &Kernel, limit: Duration) -> Result<(), PushError> {
        cx.wait(&self.turn, Some(limit)).map_err(|error| match error {
            WaitError::NoShepherds | WaitError::NotOnShepherd | WaitError::TimedOut => {
                PushError::QueueFull
            }
            _ => PushError::Closed,
        })
    }

    /// The channel, opened when it is first needed.
    fn channel(&self, cx: &Kernel) -> Result<SessionRef, PushError> {
        if let Some(channel) = self.channel.live() {
            return Ok(channel);
        }
        let both = self.participants.clone();
        let opened = self.lower.open(cx, Upper::new(&self.layer), both);
        let channel = opened.map_err(|error| match error {
            OpenError::NoBuffers => PushError::NoBuffers,
            OpenError::Full => PushError::QueueFull,
            _ => PushError::NoRoute,
        })?;
        channel.head().set_peer(self.key.0);
        drop(self.channel.replace(Some(channel.clone())));
        Ok(channel)
    }

    /// Carries one message, its turn being now.
    fn carry(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        if this.head().is_closed() {
            this.discard(cx, message, &reason::CLOSED);
            return Err(PushError::Closed);
        }
        let channel = match self.channel(cx) {
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
            Err(error) => Err(push_error(error.cause)),
        }
    }
}

impl Session for RdgramSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let options = CallOptions::take(&mut message);
        let limit = CallOptions::clip(options, cx.now(), self.total).unwrap_or(Duration::ZERO);
        let options = CallOptions {
            deadline: cx.now().after(limit),
            tag: options.map_or(0, |options| options.tag),
        };
        if message.set_attribute(options).is_err()
            || !message.push_in_place(&self.template) && message.push_array(&self.template).is_err()
        {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if let Err(error) = self.take_turn(cx, limit) {
            this.discard(cx, message, reason_of(error));
            return Err(error);
        }
        let result = self.carry(cx, this, message);
        cx.signal(&self.turn);
        result
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let Header { number } = Header::parse(&self.template);
        Some(alloc::format!("rdgram > {number} to {}", self.key.0))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (host, _) = self.key;
        if let Some(question) = ask.get::<PeerHost>() {
            question.host = host;
            return Answer::Answered;
        }
        let answer = match self.channel.get() {
            Some(channel) => channel.control(cx, ask),
            None => self.lower.control(cx, ask),
        };
        less(answer, ask, HEADER_OCTETS)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.sessions.release(&self.key, this);
        // While a push is under way, the channel is its to close.
        if self.turn.count() > 0
            && let Some(channel) = self.channel.take()
        {
            channel.close(cx);
        }
        Closing::Done
    }
}
