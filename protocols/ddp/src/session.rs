//! A session: one upper protocol's end of the traffic between two sockets.

use crate::hops;
use crate::ports::Next;
use crate::protocol::Ddp;
use crate::shared::{Key, reasons};
use crate::wire::{DATA_LEN_MAX, LONG_LEN, Long};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use xk_appletalk::addr::Node;
use xk_core::object::{Burst, Closing, OpenError, Outgoing, PushError, Refused, SessionSlot};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Reason, Session, SessionRef, reason};
use xk_kit::control::{MaxPacket, MinPacket, OptPacket};
use xk_kit::machine::{At, Running};
use xk_kit::net::appletalk::DdpEnds;
use xk_kit::net::template::Headers;

pub(crate) struct DdpSession {
    shared: Rc<Running<Ddp>>,
    key: Key,
    upper: ProtocolRef,
    /// The session to the next station; `None` to this node itself, or before the way is known.
    lower: SessionSlot,
    /// Source of the datagrams.
    source: Cell<Node>,
    /// The state of ways that this one was found by; 0 before, and to this node itself.
    generation: Cell<u32>,
}

impl DdpSession {
    pub(crate) fn new(shared: &Rc<Running<Ddp>>, key: Key, upper: &ProtocolRef) -> Self {
        Self {
            shared: Rc::clone(shared),
            key,
            upper: upper.clone(),
            lower: SessionSlot::default(),
            source: Cell::default(),
            generation: Cell::new(0),
        }
    }

    /// Finds the way.
    fn resolve(&self, at: At<'_>) -> Result<Next, OpenError> {
        let generation = self.shared.generation.get();
        let to = self.key.peer.at();
        let best = self.shared.best(at.cx, to.net);
        let next = match self.shared.ports.next(self.key.over(), to) {
            // Not even a router is heard, but by that one datagrams come.
            None if best.is_some() => Next::Over(0, to),
            next => next.ok_or(OpenError::NoRoute)?,
        };
        let Next::Over(nth, node) = next else {
            self.let_go(at.cx);
            let own = self.shared.ports.list.get(self.key.over().unwrap_or(0));
            self.source.set(own.map_or(to, |port| port.cable.get().me));
            return Ok(next);
        };
        let port = self.shared.ports.list.get(nth).ok_or(OpenError::NoRoute)?;
        let to_hw = |hw| hops::open(at, port, node, hw);
        let lower = match (self.key.group(), best) {
            // What is no hardware address to the link below goes the other way.
            (None, Some(best)) => to_hw(Some(best)).or_else(|_| to_hw(None))?,
            (group, _) => to_hw(group)?,
        };
        // What was asked at an address is answered from there, whichever way that goes.
        let own = self.key.over().and_then(|nth| self.shared.ports.list.get(nth));
        self.source.set(own.unwrap_or(port).cable.get().me);
        self.generation.set(generation);
        if let Some(old) = self.lower.replace(Some(lower)) {
            old.close(at.cx);
        }
        Ok(next)
    }

    /// Releases the way.
    fn let_go(&self, cx: &Kernel) {
        self.generation.set(0);
        self.lower.close(cx);
    }

    /// The header of a message; `None` if it is too long.
    #[inline]
    fn header(&self, message: &Message) -> Option<[u8; LONG_LEN]> {
        let Key { peer, socket, kind, .. } = self.key;
        let mut header = Long::new(peer, self.source.get().socket(socket), kind, message.len())?;
        if !self.shared.has_checksum {
            return Some(header.octets());
        }
        let mut sum = header.sum();
        message.octet_slices().for_each(|slice| sum.add(slice));
        header.checksum = sum.checksum();
        Some(header.octets())
    }

    /// Sends a message by the way there is.
    #[inline]
    fn send(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        let Some(header) = self.header(&message) else {
            return fail(cx, this, message, (PushError::TooBig, &reason::TOO_BIG));
        };
        if !message.push_in_place(&header) && message.push_array(&header).is_err() {
            return fail(cx, this, message, (PushError::NoBuffers, &reason::NO_BUFFERS));
        }
        lower.push(cx, message).map_err(of_lower)
    }

    /// Sends a message whose way is to be found; keeps it if there is no address to send from.
    #[cold]
    pub(crate) fn go_on(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        if message.len() > DATA_LEN_MAX {
            return fail(cx, this, message, (PushError::TooBig, &reason::TOO_BIG));
        }
        let Some(me) = self.shared.me() else {
            return fail(cx, this, message, (PushError::Closed, &reason::CLOSED));
        };
        let over = match self.shared.ports.next(self.key.over(), self.key.peer.at()) {
            Some(Next::Over(at, _)) => Some(at),
            _ => self.key.over().or(Some(0)),
        };
        let port = over.and_then(|at| self.shared.ports.list.get(at));
        if port.is_some_and(|port| !port.is_ready.get()) {
            self.shared.waiting.keep(cx, this, (), message);
            return Ok(());
        }
        match self.resolve(self.shared.at(cx, &me)) {
            Ok(Next::Here) => {
                let header = self.header(&message).unwrap_or_default();
                if message.push_array(&header).is_err() {
                    return fail(cx, this, message, (PushError::NoBuffers, &reason::NO_BUFFERS));
                }
                match self.shared.put_looped(self.shared.at(cx, &me), message) {
                    true => Ok(()),
                    false => Err(PushError::QueueFull),
                }
            }
            Ok(Next::Over(..)) => match self.lower.get() {
                Some(lower) => self.send(cx, this, &lower, message),
                None => fail(cx, this, message, (PushError::NoRoute, &reasons::NO_ROUTE)),
            },
            Err(error) => {
                self.let_go(cx);
                let why = match error {
                    OpenError::NoRoute => (PushError::NoRoute, &reasons::NO_ROUTE),
                    OpenError::Full => (PushError::QueueFull, &reason::TABLE_FULL),
                    OpenError::NoBuffers => (PushError::NoBuffers, &reason::NO_BUFFERS),
                    _ => (PushError::Unreachable, &reasons::NO_ROUTE),
                };
                fail(cx, this, message, why)
            }
        }
    }
}

/// The end of a session below is no end of this one.
fn of_lower(error: PushError) -> PushError {
    match error {
        PushError::Closed => PushError::Unreachable,
        error => error,
    }
}

/// Drops a message that cannot go, counted.
#[cold]
fn fail(
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
    (error, why): (PushError, &'static Reason),
) -> Result<(), PushError> {
    this.discard(cx, message, why);
    Err(error)
}

impl Session for DdpSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        if self.generation.get() == self.shared.generation.get()
            && let Some(lower) = self.lower.live()
        {
            return self.send(cx, this, &lower, message);
        }
        self.go_on(cx, this, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let known = self.generation.get() == self.shared.generation.get();
        let Some(lower) = self.lower.live().filter(|_| known) else {
            let mut result = Ok(());
            for message in burst.drain(..) {
                result = result.and(self.push(cx, this, message));
            }
            return result;
        };
        let prepare = |message: &mut Message| {
            self.header(message).is_some_and(|header| message.push_in_place(&header))
        };
        let other = |message| self.send(cx, this, &lower, message);
        lower.push_prepared(cx, burst, prepare, other).map_err(of_lower)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let Key { peer, socket, kind, .. } = self.key;
        Some(alloc::format!("{}:{socket} > {peer}, type {kind}", self.source.get()))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let Key { peer, socket, kind, port, .. } = self.key;
        if let Some(question) = ask.get::<DdpEnds>() {
            if self.generation.get() == 0 {
                let _ = self.shared.act(cx, |at| self.resolve(at));
            }
            let local = self.source.get();
            *question = DdpEnds {
                peer: (peer.net, peer.node, peer.socket),
                local: (local.net, local.node, socket),
                kind,
                port: self.shared.ports.own(local).map_or(port, |at| at as u8),
            };
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = DATA_LEN_MAX as u32;
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = DATA_LEN_MAX as u32;
        } else if let Some(question) = ask.get::<MinPacket>() {
            // The header says how long a datagram is.
            question.octets = 0;
        } else if let Some(question) = ask.get::<Headers>() {
            return question.found(None);
        } else {
            return match self.lower.get() {
                Some(lower) => lower.control(cx, ask),
                None => self.shared.lower.control(cx, ask),
            };
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.release(&self.key.number(), this);
        self.shared.waiting.leave(cx, this);
        self.let_go(cx);
        Closing::Done
    }
}
