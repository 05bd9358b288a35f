//! A session: the way to one host, for one upper protocol.

use crate::entry::Entry;
use crate::shared::{Reach, Shared, UNRESOLVED};
use crate::waiting::Queue;
use crate::wire::Ipv4;
use alloc::format;
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use core::cell::Cell;
use xk_core::object::{Closing, Outgoing, ProtocolId, PushError, SessionSlot};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::control::{MyHost, PeerEther, PeerHost};
use xk_kit::net::template::Headers;

/// A session's key: the host, the receiver, and the protocol whose number selects.
pub(crate) type Key = (u32, u32, u32);

/// Part of a session that it shares with the entry of its host.
pub(crate) struct Path {
    pub(crate) entry: Rc<Entry>,
    pub(crate) key: Key,
    /// The receiver of what the host sends.
    pub(crate) receiver: ProtocolRef,
    /// Protocol whose type number selects it.
    pub(crate) selector: ProtocolId,
    /// The host of ours at this end; unspecified if left open.
    pub(crate) local: Ipv4,
    /// The session that leads to the host's address, while that is known.
    pub(crate) lower: SessionSlot,
    /// Messages that wait for the address.
    pub(crate) waiting: Queue,
    /// True if its session has ended: nothing is opened for it any more.
    pub(crate) is_closed: Cell<bool>,
}

pub(crate) struct ArpSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) path: Rc<Path>,
}

impl ArpSession {
    /// A message whose way is not known yet.
    #[cold]
    fn push_unresolved(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let (shared, path) = (&self.shared, &self.path);
        let reach = shared.want(cx, &path.entry, path.local);
        match (reach, path.entry.address()) {
            (Reach::Open, Some(eth)) => {
                path.entry.used.set(true);
                if let Some(lower) = shared.link(cx, path, eth) {
                    return lower.push(cx, message);
                }
            }
            (Reach::Later, _) => {
                let queue_max = shared.config.queue_max;
                let oldest = shared.waiting.put(path, message, queue_max);
                if let Some(oldest) = oldest {
                    this.discard(cx, oldest, &reason::QUEUE_FULL);
                }
                return Ok(());
            }
            _ => {}
        }
        this.discard(cx, message, &UNRESOLVED);
        Err(PushError::Unreachable)
    }

    /// Releases the session below; the way is found again with the next message.
    #[cold]
    fn drop_lower(&self, cx: &Kernel) {
        self.path.lower.close(cx);
    }
}

impl Session for ArpSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let path = &*self.path;
        let Some(lower) = path.lower.live() else {
            self.drop_lower(cx);
            return self.push_unresolved(cx, this, message);
        };
        path.entry.used.set(true);
        lower.push(cx, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        if let Some(lower) = self.path.lower.live() {
            self.path.entry.used.set(true);
            return lower.push_burst(cx, burst);
        }
        let mut result = Ok(());
        for message in burst.drain(..) {
            result = result.and(self.push(cx, this, message));
        }
        result
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let (entry, waiting) = (&self.path.entry, self.path.waiting.len());
        let (host, state) = (entry.host, entry.state.get());
        Some(match entry.address() {
            Some(eth) => format!("{host} at {eth}, {state}"),
            None => format!("{host}, {state}, {waiting} waiting"),
        })
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let path = &*self.path;
        if let Some(question) = ask.get::<PeerHost>() {
            question.host = path.entry.host.into();
        } else if !path.local.is_unspecified()
            && let Some(question) = ask.get::<MyHost>()
        {
            question.host = path.local.into();
        } else if let Some(question) = ask.get::<PeerEther>() {
            let Some(eth) = path.entry.address() else {
                return Answer::Unknown;
            };
            question.address = eth.0;
        } else if let Some(question) = ask.get::<Headers>() {
            let known = || self.shared.link(cx, &self.path, path.entry.address()?);
            let lower = path.lower.get().or_else(known);
            return question.found(lower.and_then(|lower| Headers::of(cx, &lower)));
        } else {
            return self.shared.control(cx, ask).unwrap_or_else(|| match path.lower.get() {
                Some(lower) => lower.control(cx, ask),
                None => self.shared.eth.control(cx, ask),
            });
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let path = &self.path;
        path.is_closed.set(true);
        self.shared.sessions.unbind(&path.key);
        let gone = Rc::downgrade(path);
        let mut paths = path.entry.paths.borrow_mut();
        paths.retain(|other| !Weak::ptr_eq(other, &gone));
        drop(paths);
        for message in self.shared.waiting.take(path) {
            this.discard(cx, message, &reason::CLOSED);
        }
        self.drop_lower(cx);
        self.shared.forget_idle(cx, &path.entry);
        Closing::Done
    }
}
