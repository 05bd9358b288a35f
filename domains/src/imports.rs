//! Sessions of the other side, each with the session that stands for it here.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{CallCause, CallError, Closing, ProtocolId, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Question, Session, SessionRef, reason};
use xk_kit::Marks;
use xk_kit::control::MaxPacket;
use xk_kit::wire::segments;

use crate::exports::SESSIONS_MAX;
use crate::frame::{Header, Op};
use crate::port::{FAILED, Port, Target};
use crate::waits::{Answered, reason_of};

/// A question of which the answer does not change, as octets: its key, it, its answer.
pub(crate) type Fact = (u32, Vec<u8>, Vec<u8>);

/// Answers that are kept for one object.
pub(crate) const FACTS_MAX: usize = 32;

/// Answers that do not change, of one object of the other side.
pub(crate) struct Facts {
    all: RefCell<Vec<Fact>>,
    /// The largest message that it takes, in octets.
    octets_max: Cell<usize>,
    /// After how many losses of the other side it was learned, of an object that outlives them.
    losses: Cell<u32>,
}

impl Default for Facts {
    fn default() -> Self {
        Self { all: RefCell::default(), octets_max: Cell::new(usize::MAX), losses: Cell::new(0) }
    }
}

impl Facts {
    /// Fills in the answer, if it is known.
    pub(crate) fn answer(&self, key: u32, octets: &[u8], fill: impl FnOnce(&[u8]) -> bool) -> bool {
        let facts = self.all.borrow();
        let mut all = facts.iter();
        all.find(|(k, q, _)| *k == key && q == octets).is_some_and(|(_, _, answer)| fill(answer))
    }

    /// Keeps an answer, as long as there is room.
    pub(crate) fn keep(&self, fact: Fact) {
        if let (MaxPacket::KEY, [a, b, c, d]) = (fact.0, fact.2.as_slice()) {
            self.octets_max.set(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        }
        let mut facts = self.all.borrow_mut();
        if facts.len() < FACTS_MAX {
            facts.push(fact);
        }
    }

    /// The facts, cleared if the other side was lost since they were learned: one that is started
    /// again may answer otherwise.
    pub(crate) fn since(&self, losses: u32) -> &Self {
        if self.losses.replace(losses) != losses {
            self.clear();
        }
        self
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        self.all.borrow_mut().clear();
        self.octets_max.set(usize::MAX);
    }
}

/// Stands for a session of the other side.
pub(crate) struct ProxySession {
    pub(crate) port: Rc<Port>,
    /// The other side's name of the session.
    pub(crate) handle: u32,
    /// The protocol of the session, by its own number.
    pub(crate) protocol: ProtocolId,
    /// Receives here.
    pub(crate) upper: ProtocolRef,
    /// Number of opens that the other side had done when it answered the last one.
    pub(crate) opens: Cell<u32>,
    /// True if it is held, as far as the other side is told.
    is_held: Cell<bool>,
    pub(crate) facts: Facts,
    /// Error of a message pushed before.
    pub(crate) failed: Cell<Option<PushError>>,
}

impl ProxySession {
    pub(crate) fn new(
        port: &Rc<Port>,
        (handle, opens): (u32, u32),
        protocol: ProtocolId,
        upper: &ProtocolRef,
        facts: Vec<Fact>,
    ) -> Self {
        let proxy = Self {
            port: Rc::clone(port),
            handle,
            protocol,
            upper: upper.clone(),
            opens: Cell::new(opens),
            is_held: Cell::new(false),
            facts: Facts::default(),
            failed: Cell::new(None),
        };
        proxy.learn(facts);
        proxy
    }

    /// Notes what came with the session.
    pub(crate) fn learn(&self, facts: Vec<Fact>) {
        self.facts.clear();
        facts.into_iter().for_each(|fact| self.facts.keep(fact));
    }

    fn header(&self, op: Op) -> Header {
        Header::new(op, self.handle, 0)
    }
}

impl Session for ProxySession {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        // That there was no room for one before, which is counted there, is nothing to its sender:
        // to tell it would cost this one.
        let told =
            |error: &PushError| !matches!(error, PushError::QueueFull | PushError::NoBuffers);
        if let Some(error) = self.failed.take().filter(told) {
            this.discard(cx, message, &FAILED);
            return Err(error);
        }
        let octets_max = self.facts.octets_max.get();
        if message.len() > octets_max && segments::longest(&message) > octets_max {
            this.discard(cx, message, &reason::TOO_BIG);
            return Err(PushError::TooBig);
        }
        if let Err(error) = self.port.offer(cx, self.header(Op::Push), &message) {
            this.discard(cx, message, reason_of(error));
            return Err(error);
        }
        // A carrier that delivers at once has brought back what became of it.
        self.failed.take().map_or(Ok(()), Err)
    }

    fn call(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<Message, CallError> {
        let header = self.header(Op::Call);
        let Answered::Frame(header, reply) =
            self.port.request(cx, (header, message), None, None)?
        else {
            return Err(CallCause::BadReply.into());
        };
        if header.op == Op::Return {
            return Ok(reply);
        }
        let error = self.port.read::<CallError>(cx, &reply);
        Err(error.unwrap_or_else(|| CallCause::BadReply.into()))
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        self.upper.call_demux(cx, this, message)
    }

    /// In front of the message lies the header of the frame that brought it.
    fn refused(&self, cx: &Kernel, _: &SessionRef, mut refused: Refused) {
        if let Some(header) = Header::find(&mut refused.message, Op::Demux, self.handle) {
            self.port.refuse(cx, self.handle, header.second, refused.reason);
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let target = Target { op: Op::AskSession, number: self.handle, protocol: self.protocol };
        self.port.ask(cx, target, &self.facts, ask)
    }

    fn held(&self, _: &SessionRef) {
        self.is_held.set(true);
        self.port.note(Header::new(Op::Hold, self.handle, 0));
    }

    fn eased(&self, cx: &Kernel, _: &SessionRef) {
        // A close has said as much.
        if self.is_held.replace(false) {
            self.port.note(Header::new(Op::Ease, self.handle, self.opens.get()));
            self.port.send_noted(cx);
        }
    }

    /// The proxy stays until the other side says that the session has ended.
    fn close(&self, cx: &Kernel, _: &SessionRef) -> Closing {
        self.is_held.set(false);
        self.port.note(Header::new(Op::Close, self.handle, self.opens.get()));
        self.port.send_noted(cx);
        Closing::Idle
    }
}

/// All of them, by the handles that the other side has for them.
pub(crate) type Imports = Marks;

/// Takes out the session with this handle.
pub(crate) fn take(all: &Imports, handle: u32) -> Option<SessionRef> {
    let session = all.get(handle)?;
    all.put(SESSIONS_MAX, handle, None);
    Some(session)
}
