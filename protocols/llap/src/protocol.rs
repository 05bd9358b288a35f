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
use xk_core::object::{Enable, OpenError, PushError, Refused, SessionSlot, SessionTable};
use xk_core::participant::AddressError;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{ClaimNode, NET, NODE, NodeClaimed, node};
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

/// One instance, for one cable.
pub struct Llap {
    settings: Settings,
    /// The sessions by node.
    pub(crate) sessions: SessionTable<u64>,
    link: SessionSlot,
    station: RefCell<Option<Station>>,
    claim: Cell<u8>,
    net: Cell<u16>,
    /// The number that it is to have and no other; 0 if any will do.
    only: Cell<u8>,
    upper: RefCell<Option<ProtocolRef>>,
    /// Messages that wait for a number.
    pub(crate) waiting: Waiting,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    let llap = Llap {
        settings,
        // Nodes are that many.
        sessions: SessionTable::new(build.cx.secret(), 256),
        link: SessionSlot::default(),
        station: RefCell::default(),
        claim: Cell::new(0),
        net: Cell::new(0),
        only: Cell::new(0),
        upper: RefCell::default(),
        waiting: Waiting::new(settings.waiting_max, settings.waiting_max),
    };
    machine::add(build, llap)
}

impl Llap {
    fn rules(&self) -> Rules {
        let rules = if self.settings.server { Rules::SERVER } else { Rules::WORKSTATION };
        let Settings { enquiries, interval, .. } = self.settings;
        Rules { enquiries, interval, ..rules }
    }

    fn number(&self) -> Option<u8> {
        self.station.borrow().as_ref().and_then(Station::number)
    }

    /// Begins to ask for a number.
    fn claim(&self, at: At<'_>, ask: &ClaimNode) {
        self.claim.set(ask.claim);
        // A cable of LocalTalk is one network.
        self.net.set(if ask.net == 0 { ask.first } else { ask.net });
        self.only.set(if ask.is_only { ask.node } else { 0 });
        let station = Station::new(at.now(), self.rules(), ask.node, at.cx.random().next_u32());
        *self.station.borrow_mut() = Some(station);
        self.due(at);
    }

    fn tell(&self, at: At<'_>, number: u8, is_disputed: bool) {
        let (claim, net) = (self.claim.get(), self.net.get());
        let upper = self.upper.borrow().clone();
        if let Some(upper) = upper {
            let _ = upper.ask(at.cx, NodeClaimed { claim, net, node: number, is_disputed });
        }
    }

    /// Sends a frame without data. What keeps it from going is counted; the next makes up for it.
    fn control_frame(&self, at: At<'_>, header: &Header) {
        if let Some((link, message)) = self.link.get().zip(at.message(&header.emit())) {
            let _ = link.push(at.cx, message);
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
        let Some(link) = self.link.get() else {
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

    fn note_upper(&self, upper: &ProtocolRef) -> Result<(), OpenError> {
        let mut known = self.upper.borrow_mut();
        match &*known {
            Some(other) if other != upper => return Err(OpenError::InUse),
            _ => *known = Some(upper.clone()),
        }
        Ok(())
    }
}

/// A datagram for this node.
fn deliver(
    all: &Rc<Running<Llap>>,
    at: At<'_>,
    header: &Header,
    mut message: Message,
) -> Result<(), Refused> {
    let net = all.net.get();
    let whole = match header.kind {
        Kind::ShortDatagram => wire::lengthen(&mut message, net, header.to, header.from),
        Kind::LongDatagram => Ok(()),
        _ => Err(&reason::NO_PROTOCOL),
    };
    if let Err(why) = whole {
        return at.refuse(message, why);
    }
    let key = u64::from(header.from);
    if let Some(session) = all.sessions.get(&key) {
        return session.pop(at.cx, message);
    }
    let upper = all.upper.borrow().clone();
    let Some(upper) = upper else {
        return at.refuse(message, &reason::NO_PROTOCOL);
    };
    let make = || {
        let ends = Participants::pair(node(net, header.to), node(net, header.from));
        (LlapSession::new(all, header.from, &upper), ends)
    };
    match all.sessions.accept(at.cx, at.this, &upper, key, header.from.into(), make) {
        Ok(session) => session.pop(at.cx, message),
        Err(why) => at.refuse(message, why),
    }
}

impl Machine for Llap {
    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        drop(self.link.replace(Some(at.open(Part::Any, Part::Any)?)));
        Ok(())
    }

    fn open(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let peer = ends.peer_mut()?;
        let number = peer.pop_number(NODE)?.definite()?;
        if !peer.is_empty() {
            let _ = peer.pop_number(NET)?;
        }
        let number = u8::try_from(number).ok().filter(|number| *number != 0);
        let number = number.ok_or(AddressError::OutOfRange)?;
        all.note_upper(upper.receiver)?;
        let body = LlapSession::new(all, number, upper.receiver);
        all.sessions.open(at.cx, at.this, upper.receiver, number.into(), body)
    }

    fn open_enable(
        &self,
        _: At<'_>,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.note_upper(upper.receiver).map(|()| Enable(0))
    }

    fn demux(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        _: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let (octets, mut message) = at.this.header::<HEADER_OCTETS>(message)?;
        let Ok(header) = Header::parse(&octets) else {
            return at.refuse(message, &reason::MALFORMED);
        };
        let heard = match all.station.borrow_mut().as_mut() {
            Some(station) => station.hear(at.now(), &header, at.cx.random().next_u32()),
            None => return at.refuse(message, &NO_NUMBER),
        };
        match heard {
            Heard::Data => {
                let _ = message.strip(HEADER_OCTETS);
                return deliver(all, at, &header, message);
            }
            Heard::NotMine => return at.refuse(message, &reason::NOT_MINE),
            Heard::Conflict => return at.refuse(message, &CONFLICT),
            Heard::Answer(answer) => all.control_frame(at, &answer),
            Heard::Taken => {
                let only = all.only.get();
                if only != 0 {
                    let then = at.now() + TRIED_AGAIN;
                    *all.station.borrow_mut() = Some(Station::new(then, all.rules(), only, 0));
                    all.tell(at, only, true);
                }
                all.look(at);
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<Duration> {
        self.station.borrow().as_ref().and_then(Station::due)
    }

    fn due(&self, at: At<'_>) {
        loop {
            let step = self.station.borrow_mut().as_mut().and_then(|one| one.poll(at.now()));
            match step {
                Some(Step::Send(header)) => self.control_frame(at, &header),
                Some(Step::Owned(number)) => {
                    self.tell(at, number, false);
                    for (session, message) in self.waiting.take(|_, ()| true) {
                        // Counted below, as if it had gone at once.
                        let _ = session.push(at.cx, message);
                    }
                }
                None => break,
            }
        }
    }

    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        Some(match ask.get::<ClaimNode>() {
            None => less(at.lower.control(at.cx, ask), ask, HEADER_OCTETS),
            Some(question) => {
                self.claim(at, question);
                Answer::Answered
            }
        })
    }

    fn describe(&self) -> Option<String> {
        let number = self.number().map(|number| format!("node {number}"));
        number.or_else(|| Some("no number yet".into()))
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("nodes", &self.sessions);
    }

    fn stop(&self, _: &Kernel) {
        self.waiting.clear();
        self.sessions.clear();
        drop((self.link.take(), self.upper.take()));
    }
}
