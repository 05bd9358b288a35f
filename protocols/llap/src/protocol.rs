//! The protocol object: gets its number, opens, demultiplexes.

use crate::session::LlapSession;
use crate::wire::{self, HEADER_OCTETS, Header, Kind};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::llap::{Heard, Rules, Station, Step};
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::kernel::Timer;
use xk_core::object::{Enable, OpenError, PushError, Refused, SessionTable};
use xk_core::participant::AddressError;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::asks::HEADROOM;
use xk_kit::net::appletalk::{ClaimNode, NET, NODE, NodeClaimed, node, now};
use xk_kit::net::waiting::Waiting;
use xk_kit::rpc::call_layer::less;

/// Another node uses this node's number.
pub static CONFLICT: Reason = Reason::new("node conflict", Class::Bad);
/// A frame before this node has a number.
pub static NO_NUMBER: Reason = Reason::new("no number yet", Class::NotMine);

/// Time that a node which is to have one number waits when another has it.
const TRIED_AGAIN: Duration = Duration::from_secs(10);

xk_core::settings! {
    /// Parameters of the graph: how it gets its number, and its bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        server: bool = flag(false, "whether its number is one of a server: 128 to 254, not 1 to 127"),
        enquiries: u8 = int(1..=255, 10, "how often it asks whether another has its number"),
        interval: Duration = duration(Duration::from_millis(100), "the time between"),
        waiting_max: usize = int(1..=65_536, 64, "how many messages wait for its number"),
    }
}

/// Shared state of protocol and sessions.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) lower: ProtocolRef,
    /// By node.
    pub(crate) sessions: SessionTable<u64>,
    link: RefCell<Option<SessionRef>>,
    station: RefCell<Option<Station>>,
    claim: Cell<u8>,
    net: Cell<u16>,
    /// The number that it is to have and no other; 0 if any will do.
    only: Cell<u8>,
    me: RefCell<Option<ProtocolRef>>,
    upper: RefCell<Option<ProtocolRef>>,
    /// Messages that wait for a number.
    pub(crate) waiting: Waiting,
    timer: Cell<Option<Timer>>,
}

impl Shared {
    fn rules(&self) -> Rules {
        let rules = if self.settings.server { Rules::SERVER } else { Rules::WORKSTATION };
        let Settings { enquiries, interval, .. } = self.settings;
        Rules { enquiries, interval, ..rules }
    }

    fn number(&self) -> Option<u8> {
        self.station.borrow().as_ref().and_then(Station::number)
    }

    /// Begins to ask for a number.
    fn claim(&self, cx: &Kernel, ask: &ClaimNode) {
        self.claim.set(ask.claim);
        // A cable of LocalTalk is one network.
        self.net.set(if ask.net == 0 { ask.first } else { ask.net });
        self.only.set(if ask.is_only { ask.node } else { 0 });
        let station = Station::new(now(cx), self.rules(), ask.node, cx.random().next_u32());
        *self.station.borrow_mut() = Some(station);
        self.tick(cx);
    }

    /// Does what is due.
    fn tick(&self, cx: &Kernel) {
        loop {
            let step = self.station.borrow_mut().as_mut().and_then(|one| one.poll(now(cx)));
            match step {
                Some(Step::Send(header)) => self.control_frame(cx, &header),
                Some(Step::Owned(number)) => {
                    self.tell(cx, number, false);
                    self.let_go(cx);
                }
                None => break,
            }
        }
        cx.cancel(self.timer.take());
        let due = self.station.borrow().as_ref().and_then(Station::due);
        let me = self.me.borrow().clone();
        if let (Some(due), Some(me)) = (due, me) {
            let delay = due.saturating_sub(now(cx));
            match cx.schedule_protocol(&me, delay, 0) {
                Ok(timer) => self.timer.set(Some(timer)),
                // The next frame that arrives tries again.
                Err(_) => me.head().drops().count(&reason::TABLE_FULL),
            }
        }
    }

    fn tell(&self, cx: &Kernel, number: u8, is_disputed: bool) {
        let (claim, net) = (self.claim.get(), self.net.get());
        let upper = self.upper.borrow().clone();
        if let Some(upper) = upper {
            let _ = upper.ask(cx, NodeClaimed { claim, net, node: number, is_disputed });
        }
    }

    /// Sends a frame without data. What keeps it from going is counted; the next makes up for it.
    fn control_frame(&self, cx: &Kernel, header: &Header) {
        let link = self.link.borrow().clone();
        match (link, cx.pool().copy_from(HEADROOM, &header.emit())) {
            (Some(link), Ok(message)) => drop(link.push(cx, message)),
            _ => {
                let me = self.me.borrow();
                me.iter().for_each(|me| me.head().drops().count(&reason::NO_BUFFERS));
            }
        }
    }

    /// Sends a datagram with the long header to a node, or keeps it until there is a number.
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        to: u8,
        mut message: Message,
    ) -> Result<(), PushError> {
        let Some(from) = self.number() else {
            self.waiting.keep(cx, this, (), message);
            return Ok(());
        };
        let link = self.link.borrow().clone();
        let Some(link) = link else {
            this.discard(cx, message, &reason::CLOSED);
            return Err(PushError::Closed);
        };
        let kind = match wire::shorten(&mut message) {
            Ok(kind) => kind,
            Err(why) => {
                this.discard(cx, message, why);
                return Err(PushError::NotSupported);
            }
        };
        let header = Header { to, from, kind };
        message.push_array(&header.emit()).map_err(|_| PushError::NoBuffers)?;
        link.push(cx, message)
    }

    /// Sends what waits.
    fn let_go(&self, cx: &Kernel) {
        for (session, message) in self.waiting.take(|_, ()| true) {
            // Counted below, as if it had gone at once.
            let _ = session.push(cx, message);
        }
    }
}

/// One instance, for one cable.
pub struct Llap {
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    let shared = Shared {
        settings,
        lower: build.lower(0)?,
        // Nodes are that many.
        sessions: SessionTable::new(build.cx.secret(), 256),
        link: RefCell::default(),
        station: RefCell::default(),
        claim: Cell::new(0),
        net: Cell::new(0),
        only: Cell::new(0),
        me: RefCell::default(),
        upper: RefCell::default(),
        waiting: Waiting::new(settings.waiting_max, settings.waiting_max),
        timer: Cell::new(None),
    };
    build.add(Llap { shared: Rc::new(shared) })
}

impl Llap {
    fn note_upper(&self, upper: &ProtocolRef) -> Result<(), OpenError> {
        let mut known = self.shared.upper.borrow_mut();
        match &*known {
            Some(other) if other != upper => return Err(OpenError::InUse),
            _ => *known = Some(upper.clone()),
        }
        Ok(())
    }

    fn body(&self, node: u8, upper: &ProtocolRef) -> LlapSession {
        LlapSession { shared: Rc::clone(&self.shared), node, upper: upper.clone() }
    }

    /// A datagram for this node.
    fn deliver(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        header: &Header,
        mut message: Message,
    ) -> Result<(), Refused> {
        let shared = &self.shared;
        let net = shared.net.get();
        let whole = match header.kind {
            Kind::ShortDatagram => wire::lengthen(&mut message, net, (header.to, header.from)),
            Kind::LongDatagram => Ok(()),
            _ => Err(&reason::NO_PROTOCOL),
        };
        if let Err(why) = whole {
            return Err(this.refuse(message, why));
        }
        let key = u64::from(header.from);
        if let Some(session) = shared.sessions.get(&key) {
            return session.pop(cx, message);
        }
        let upper = shared.upper.borrow().clone();
        let Some(upper) = upper else {
            return Err(this.refuse(message, &reason::NO_PROTOCOL));
        };
        let make = || {
            let own = node(net, header.to);
            (self.body(header.from, &upper), Participants::pair(own, node(net, header.from)))
        };
        match shared.sessions.accept(cx, this, &upper, key, header.from.into(), make) {
            Ok(session) => session.pop(cx, message),
            Err(why) => Err(this.refuse(message, why)),
        }
    }
}

impl Protocol for Llap {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let shared = &self.shared;
        *shared.me.borrow_mut() = Some(this.clone());
        let link =
            shared.lower.open(cx, Upper::new(this), Participants::pair(Part::Any, Part::Any))?;
        *shared.link.borrow_mut() = Some(link);
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let peer = participants.peer_mut()?;
        let number = peer.pop_number(NODE)?.definite()?;
        if !peer.is_empty() {
            let _ = peer.pop_number(NET)?;
        }
        let number = u8::try_from(number).ok().filter(|number| *number != 0);
        let number = number.ok_or(AddressError::OutOfRange)?;
        self.note_upper(upper.receiver)?;
        let body = self.body(number, upper.receiver);
        self.shared.sessions.open(cx, this, upper.receiver, number.into(), body)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.note_upper(upper.receiver).map(|()| Enable(0))
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let shared = &self.shared;
        let (octets, mut message) = this.header::<HEADER_OCTETS>(message)?;
        let header = Header::parse(&octets);
        let Ok(header) = header else {
            return Err(this.refuse(message, &reason::MALFORMED));
        };
        let heard = match shared.station.borrow_mut().as_mut() {
            Some(station) => station.hear(now(cx), &header, cx.random().next_u32()),
            None => return Err(this.refuse(message, &NO_NUMBER)),
        };
        match heard {
            Heard::Data => {
                let _ = message.strip(HEADER_OCTETS);
                self.deliver(cx, this, &header, message)
            }
            Heard::NotMine => Err(this.refuse(message, &reason::NOT_MINE)),
            Heard::Answer(answer) => {
                shared.control_frame(cx, &answer);
                Ok(())
            }
            Heard::Taken => {
                let only = shared.only.get();
                if only != 0 {
                    let (then, rules) = (now(cx) + TRIED_AGAIN, shared.rules());
                    *shared.station.borrow_mut() = Some(Station::new(then, rules, only, 0));
                    shared.tell(cx, only, true);
                }
                shared.tick(cx);
                Ok(())
            }
            Heard::Conflict => Err(this.refuse(message, &CONFLICT)),
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        let Some(question) = ask.get::<ClaimNode>() else {
            return less(shared.lower.control(cx, ask), ask, HEADER_OCTETS);
        };
        shared.claim(cx, question);
        Answer::Answered
    }

    fn describe(&self) -> Option<String> {
        let number = self.shared.number().map(|number| format!("node {number}"));
        number.or_else(|| Some("no number yet".into()))
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("nodes", &self.shared.sessions);
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        self.shared.timer.set(None);
        self.shared.tick(cx);
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        let shared = &self.shared;
        cx.cancel(shared.timer.take());
        shared.waiting.clear();
        shared.sessions.clear();
        drop((shared.link.take(), shared.me.take(), shared.upper.take()));
    }
}
