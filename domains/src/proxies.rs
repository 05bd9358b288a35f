//! Stand-ins of protocols of the other side: of one below, and of one above.

use alloc::rc::Rc;
use core::iter::successors;

use xk_core::control::ListSessions;
use xk_core::object::{Enable, OpenError, ProtocolId, PushError, Refused};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Time,
    Upper, reason,
};
use xk_kit::net::stream::StreamCredit;

use crate::exports;
use crate::frame::{Header, Op};
use crate::imports::Facts;
use crate::port::{Port, QUESTION_TIME_MAX, Target, WAITING_MAX};
use crate::serve::Offer;
use crate::waits::{Answered, reason_of, unopened};

/// Octets of a stream that may be on the way to the other side: what its protocol sends back at
/// once finds room on the way.
const CREDIT_OCTETS: u32 = 64 << 10;
/// Layers that are followed from one that is granted to one whose sessions it passes on.
const LAYERS_MAX: usize = 64;

/// Adds what stands in `cx` for the protocol `of` of the other side, which lies below.
pub fn lower_proxy(
    cx: &Kernel,
    port: &Rc<Port>,
    of: ProtocolId,
    kind: &'static str,
    name: &str,
) -> ProtocolRef {
    let body = LowerProxy { port: Rc::clone(port), of, facts: Facts::default() };
    let proxy = cx.add_protocol(kind, name, body);
    port.lowers.borrow_mut().push((of, proxy.clone()));
    proxy
}

/// Adds what stands in `cx` for the protocol `of` of the other side, which lies above.
pub fn upper_proxy(
    cx: &Kernel,
    port: &Rc<Port>,
    of: ProtocolId,
    kind: &'static str,
    name: &str,
) -> ProtocolRef {
    let body = UpperProxy::new(port, of);
    let proxy = cx.add_protocol(kind, name, body);
    port.uppers.borrow_mut().push((of, proxy.clone()));
    proxy
}

/// Lets the other side ask what opens or enables there, and what its number selects.
fn note(port: &Port, cx: &Kernel, upper: Upper<'_>) {
    port.note_user(upper.receiver);
    if let Some(selected) = cx.protocol(upper.selector) {
        port.note_user(&selected);
    }
}

/// Stands for a protocol of the other side that lies below.
struct LowerProxy {
    port: Rc<Port>,
    of: ProtocolId,
    facts: Facts,
}

impl Protocol for LowerProxy {
    fn open(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let port = &self.port;
        note(port, cx, upper);
        let fields = port.write(cx, &(upper.receiver.id(), upper.selector, participants));
        let body = cx.pool().copy_from(0, &fields).map_err(|_| OpenError::NoBuffers)?;
        let opens = (self.of, upper.receiver.clone());
        let header = Header::new(Op::Open, 0, self.of.0);
        match port.request(cx, (header, body), Some(opens), QUESTION_TIME_MAX).map_err(unopened)? {
            // The other side may have been lost before this shepherd goes on.
            Answered::Session(Ok(session)) if session.head().is_closed() => Err(OpenError::NoLower),
            Answered::Session(session) => session,
            Answered::Frame(..) => Err(OpenError::NoLower),
        }
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        note(&self.port, cx, upper);
        let ends = (self.of, upper.receiver.id(), upper.selector);
        self.port.enable_there(cx, ends, participants)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.port.disable_there(cx, self.of, enable);
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let target = Target { op: Op::AskProtocol, number: self.of.0, protocol: self.of };
        self.port.ask(cx, target, self.facts.since(self.port.losses.get()), ask)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.port.stop();
    }

    fn is_proxy(&self) -> bool {
        true
    }
}

/// Stands for a protocol of the other side that lies above: its sessions below are known there.
pub(crate) struct UpperProxy {
    port: Rc<Port>,
    of: ProtocolId,
    facts: Facts,
}

impl UpperProxy {
    pub(crate) fn new(port: &Rc<Port>, of: ProtocolId) -> Self {
        Self { port: Rc::clone(port), of, facts: Facts::default() }
    }

    /// The protocol of this side by which the other comes to sessions of `of`: that one, or a layer
    /// above it that passes them on. What stands on several of one kind tells them apart by it.
    fn through(&self, of: ProtocolId) -> ProtocolId {
        let granted = self.port.granted.borrow();
        if granted.iter().any(|(number, own)| *number == of || own.id() == of) {
            return of;
        }
        let leads = |own: &ProtocolRef| {
            let below = successors(own.lower(), |at| at.lower());
            below.take(LAYERS_MAX).any(|below| below.id() == of)
        };
        let enables = self.port.enables.borrow();
        let is_enabled =
            |on: ProtocolId| enables.iter().any(|(at, by, _)| *at == on && *by == self.of);
        let ways = || granted.iter().filter(|(_, own)| leads(own)).map(|(number, _)| *number);
        ways().find(|number| is_enabled(*number)).or_else(|| ways().next()).unwrap_or(of)
    }
}

impl Protocol for UpperProxy {
    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        let port = &self.port;
        let export = port.export(lower).ok_or(&reason::TABLE_FULL)?;
        if !export.is_offered.replace(true) {
            lower.hold();
        }
        let head = lower.head();
        let from = (self.through(head.protocol()), head.source());
        let offer: Offer = (from, participants, port.facts_of(cx, lower));
        let fields = port.write(cx, &offer);
        export.going_up.set(export.going_up.get() + 1);
        let sent = match cx.pool().copy_from(0, &fields) {
            Ok(body) => {
                let header = Header::new(Op::OpenDone, export.handle, self.of.0);
                port.offer(cx, header, &body).map_err(reason_of)
            }
            Err(_) => Err(&reason::NO_BUFFERS),
        };
        export.going_up.set(export.going_up.get() - 1);
        if let Err(why) = sent {
            port.exports.leave(export.handle);
            if export.is_offered.replace(false) {
                lower.ease(cx);
            }
            return Err(why);
        }
        // A carrier that delivers at once has brought back whether it is wanted.
        export.unwanted.take().map_or(Ok(()), Err)
    }

    fn gone(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        if let Some(export) = exports::of(&self.port.exports, lower) {
            self.port.ended(cx, &export);
        }
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let port = &self.port;
        let Some(export) = exports::of(&port.exports, lower) else {
            let mut early = port.early.borrow_mut();
            if port.opening.get() > 0 && early.len() < WAITING_MAX {
                early.push_back((lower.clone(), message));
                return Ok(());
            }
            drop(early);
            return Err(this.refuse(message, &reason::NO_PORT));
        };
        let number = port.next_number();
        export.going_up.set(export.going_up.get() + 1);
        let sent = port.offer(cx, Header::new(Op::Demux, export.handle, number), &message);
        export.going_up.set(export.going_up.get() - 1);
        if let Err(why) = sent {
            return Err(this.refuse(message, reason_of(why)));
        }
        // A carrier that delivers at once has brought a refusal back by now, counted there.
        if let Some(why) = export.refused.take() {
            return Err(Refused::new(message, why));
        }
        port.keep(cx, number, export.handle, message);
        Ok(())
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let port = &self.port;
        let Some(export) = exports::of(&port.exports, lower) else {
            return Err(this.refuse(message, &reason::NO_PORT));
        };
        // A reference, in case the request comes back.
        let Ok(copy) = message.try_clone() else {
            return Err(this.refuse(message, &reason::NO_BUFFERS));
        };
        let header = Header::new(Op::CallUp, export.handle, 0);
        let answer = port.upcall(|| port.request(cx, (header, copy), None, None));
        match answer.unwrap_or(Err(PushError::QueueFull.into())) {
            Ok(Answered::Frame(Header { op: Op::Return, .. }, reply)) => Ok(reply),
            Ok(Answered::Frame(_, frame)) => match port.read(cx, &frame) {
                // Counted where it was refused.
                Some(why) => Err(Refused::new(message, why)),
                None => Err(this.refuse(message, &reason::MALFORMED)),
            },
            Ok(Answered::Session(_)) => Err(this.refuse(message, &reason::MALFORMED)),
            Err(why) => Err(this.refuse(message, reason_of(why.cause.into()))),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<StreamCredit>() {
            question.octets = CREDIT_OCTETS;
            return Answer::Answered;
        }
        let target = Target { op: Op::AskProtocol, number: self.of.0, protocol: self.of };
        let facts = self.facts.since(self.port.losses.get());
        let answer = self.port.upcall(|| self.port.ask(cx, target, facts, ask));
        answer.unwrap_or_else(|| cx.lose_question())
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.port.stop();
    }

    fn is_proxy(&self) -> bool {
        true
    }
}

/// Adds a port to a kernel, as a protocol object of its own: the executor looks after it as after a
/// wire, and what no session here is to blame for is counted there.
pub fn add_port(cx: &Kernel, port: &Rc<Port>, name: &str) -> ProtocolRef {
    let wire = cx.add_protocol("port", name, PortWire(Rc::clone(port)));
    *port.wire.borrow_mut() = Some(wire.clone());
    wire
}

struct PortWire(Rc<Port>);

impl Protocol for PortWire {
    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<ListSessions>(|question| self.0.imports.list(question))
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.0.timeout(cx, this);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.stop();
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(&*self.0)
    }
}

impl Wire for Port {
    fn poll(&self, cx: &Kernel, _: &ProtocolRef, budget: usize) -> usize {
        Self::poll(self, cx, budget)
    }

    fn flush(&self, cx: &Kernel, _: &ProtocolRef) {
        Self::flush(self, cx);
    }

    fn next_poll(&self) -> Option<Time> {
        let retry_at = self.retry_at.get();
        let frames = match retry_at {
            Some(_) if self.waits_for_room() => None,
            _ => self.carrier().next_poll(),
        };
        [retry_at, frames].into_iter().flatten().min().filter(|_| !self.is_lost())
    }

    fn rest(&self, cx: &Kernel, _: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        self.carrier().rest(cx, sleeper)
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.carrier().woken();
    }

    fn may_spin(&self) -> bool {
        self.carrier().may_spin()
    }
}
