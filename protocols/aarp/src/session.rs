//! A session: the way to one node, station or group, for one upper protocol.

use crate::protocol::{Aarp, NO_ADDRESS};
use crate::wire::{ALL_NODES, Hw};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_appletalk::aarp::Resolution;
use xk_appletalk::addr::{BROADCAST, Node};
use xk_core::object::{Closing, OpenError, Outgoing, ProtocolId, PushError, SessionSlot};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, ProtocolRef, Reason, Session, SessionRef,
    Upper, reason,
};
use xk_kit::control::PeerEther;
use xk_kit::machine::Running;
use xk_kit::net::appletalk::now;
use xk_kit::net::template::Headers;

/// A session's key: the node or group, the receiver, and the protocol whose number selects.
pub(crate) type Key = (u64, u32, u32);

/// Time for which a way is used before the machine is asked again, so that it sees what is in use.
const FRESH: Duration = Duration::from_secs(1);

/// The far end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// A node, whose hardware is to be found.
    Node(Node),
    /// A station, or a group of them.
    Hw(Hw),
}

impl To {
    /// Every broadcast goes to all nodes.
    pub(crate) fn of_node(node: Node) -> Self {
        if node.node == BROADCAST { Self::Hw(ALL_NODES) } else { Self::Node(node) }
    }

    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Node(node) => u64::from(node.net) << 8 | u64::from(node.node),
            Self::Hw([a, b, c, d, e, f]) => 1 << 63 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        }
    }
}

pub(crate) struct AarpSession {
    shared: Rc<Running<Aarp>>,
    key: Key,
    to: To,
    /// The receiver of what the node sends.
    receiver: ProtocolRef,
    /// Protocol whose type number selects it.
    selector: ProtocolId,
    /// The session that leads there, and the hardware it leads to.
    lower: SessionSlot,
    hw: Cell<Hw>,
    /// The table's state that the way was found by, and until when it is used unasked.
    fresh: Cell<(u32, Duration)>,
}

impl AarpSession {
    pub(crate) fn new(all: &Rc<Running<Aarp>>, key: Key, to: To, upper: Upper<'_>) -> Self {
        let (receiver, selector) = (upper.receiver.clone(), upper.selector);
        let (lower, hw, fresh) = Default::default();
        Self { shared: Rc::clone(all), key, to, receiver, selector, lower, hw, fresh }
    }

    fn resolve(&self, cx: &Kernel, node: Node) -> Resolution {
        let found = self.shared.act(cx, |at| self.shared.resolve(at, node));
        found.unwrap_or(Resolution::NoAddress)
    }

    /// The session below, if the way is known and the machine need not be asked.
    #[inline]
    fn way(&self, cx: &Kernel) -> Option<SessionRef> {
        let lower = self.lower.live()?;
        if let To::Node(_) = self.to {
            let (changes, until) = self.fresh.get();
            if changes != self.shared.changes() || until <= now(cx) {
                return None;
            }
        }
        Some(lower)
    }

    /// Sends a message whose way is not known, or keeps it.
    #[cold]
    pub(crate) fn go_on(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<(), PushError> {
        let found = match self.to {
            To::Hw(hw) => Resolution::Known(hw),
            To::Node(node) => self.resolve(cx, node),
        };
        let (error, why): (_, &'static Reason) = match (found, self.to) {
            (Resolution::Known(hw), _) => {
                let until = now(cx) + FRESH;
                match self.link(cx, this, hw) {
                    Ok(lower) => {
                        self.fresh.set((self.shared.changes(), until));
                        return lower.push(cx, message);
                    }
                    Err(_) => (PushError::Unreachable, &reason::TABLE_FULL),
                }
            }
            (Resolution::Asked | Resolution::NoAddress, To::Node(node))
                if self.shared.is_node() =>
            {
                self.shared.waiting.keep(cx, this, node, message);
                return Ok(());
            }
            (Resolution::NoAddress, _) => (PushError::Unreachable, &NO_ADDRESS),
            _ => (PushError::QueueFull, &reason::TABLE_FULL),
        };
        this.discard(cx, message, why);
        Err(error)
    }

    /// The session below to this hardware.
    fn link(&self, cx: &Kernel, this: &SessionRef, hw: Hw) -> Result<SessionRef, OpenError> {
        if let Some(lower) = self.lower.live().filter(|_| self.hw.get() == hw) {
            return Ok(lower);
        }
        let upper = Upper { receiver: &self.receiver, selector: self.selector };
        let both = Participants::pair(Part::Any, Part::Ether(hw));
        let lower = self.shared.lower.open(cx, upper, both)?;
        let head = lower.head();
        if head.opens() == 1 && head.sent() == 0 && head.received() == 0 {
            // What arrives there goes to the receiver without passing here, so it must know the
            // session.
            let both = Participants::pair(Part::Any, Part::Ether(hw));
            if lower.announce(cx, &self.receiver, both).is_err() {
                lower.close(cx);
                return Err(OpenError::NotSupported);
            }
        }
        if head.tag() == 0 {
            head.set_tag(this.head().tag());
        }
        if this.head().is_closed() {
            // It was closed while the open below waited.
            lower.close(cx);
            return Err(OpenError::NotSupported);
        }
        self.hw.set(hw);
        if let Some(old) = self.lower.replace(Some(lower.clone())) {
            old.close(cx);
        }
        Ok(lower)
    }
}

impl Session for AarpSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        match self.way(cx) {
            Some(lower) => lower.push(cx, message),
            None => self.go_on(cx, this, message),
        }
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        if let Some(lower) = self.way(cx) {
            return lower.push_burst(cx, burst);
        }
        let mut result = Ok(());
        for message in burst.drain(..) {
            result = result.and(self.push(cx, this, message));
        }
        result
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let waiting = self.shared.waiting.len();
        Some(match (self.to, self.lower.get()) {
            (To::Hw(hw), _) => {
                format!("{} {hw:02x?}", if hw[0] & 1 == 0 { "station" } else { "group" })
            }
            (To::Node(node), Some(_)) => format!("node {node} at {:02x?}", self.hw.get()),
            (To::Node(node), None) => format!("node {node}, {waiting} messages wait in all"),
        })
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let lower = self.lower.get();
        if let Some(question) = ask.get::<PeerEther>() {
            if lower.is_none() {
                return Answer::Unknown;
            }
            question.address = self.hw.get();
        } else if let Some(question) = ask.get::<Headers>() {
            let known = || match self.to {
                To::Hw(hw) => Some(hw),
                To::Node(node) => match self.resolve(cx, node) {
                    Resolution::Known(hw) => Some(hw),
                    _ => None,
                },
            };
            let lower = lower.or_else(|| self.link(cx, this, known()?).ok());
            return question.found(lower.and_then(|lower| Headers::of(cx, &lower)));
        } else {
            return match lower {
                Some(lower) => lower.control(cx, ask),
                None => self.shared.lower.control(cx, ask),
            };
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.release(&self.key, this);
        self.shared.waiting.leave(cx, this);
        self.lower.close(cx);
        Closing::Done
    }
}
