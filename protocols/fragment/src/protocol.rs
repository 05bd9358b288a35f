//! The protocol object: opens, enables, demultiplexes.

use crate::receiver::LATE_FRAGMENT;
use crate::sender::{KEPT, LATE_NACK};
use crate::session::FragmentSession;
use crate::table::{FragmentFigures, Table};
use crate::wire::{HEADER_OCTETS, Header, Kind};
use alloc::rc::Rc;
use core::net::Ipv4Addr;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_kit::answers::is_for_one;
use xk_kit::control::{MaxPacket, MyHost, OptPacket, PeerHost};

/// How many upper protocols may enable it.
const ENABLES_MAX: usize = 256;

/// Our host and the peer's.
pub(crate) type Hosts = ([u8; 4], [u8; 4]);

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many sessions it holds.
    pub sessions_max: usize,
    /// How many messages are kept for those who lack fragments.
    pub outstanding_max: usize,
    /// How many messages are being collected.
    pub partial_max: usize,
    /// How many of them in one session.
    pub partial_per_peer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions_max: 1024, outstanding_max: 64, partial_max: 256, partial_per_peer: 32 }
    }
}

/// One instance of the layer.
pub struct Fragment {
    lower: ProtocolRef,
    table: Rc<Table>,
    /// Type number to the protocol that takes messages with it.
    enables: Map<u32, ProtocolRef>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let usual = Limits::default();
    let params = &build.params;
    let limits = Limits {
        sessions_max: params.number("sessions_max", usual.sessions_max),
        outstanding_max: params.number("outstanding_max", usual.outstanding_max),
        partial_max: params.number("partial_max", usual.partial_max),
        partial_per_peer: params.number("partial_per_peer", usual.partial_per_peer),
    };
    Ok(add(build.cx, build.name, build.lower(0)?, limits))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, limits: Limits) -> ProtocolRef {
    let body = Fragment {
        lower,
        table: Rc::new(Table::new(cx, limits)),
        enables: Map::new(cx.secret(), ENABLES_MAX),
    };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

impl Fragment {
    fn session(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        above: (&ProtocolRef, u32),
        lower: SessionRef,
    ) -> FragmentSession {
        let host = |host: Ipv4Addr| host.octets();
        let mine = lower.ask(cx, MyHost { host: Ipv4Addr::UNSPECIFIED });
        let peer = lower.ask(cx, PeerHost { host: Ipv4Addr::UNSPECIFIED });
        let hosts = match (mine, peer) {
            (Some(mine), Some(peer)) => Some((host(mine.host), host(peer.host))),
            _ => None,
        };
        FragmentSession::new(cx, &self.table, this, above, lower, hosts)
    }

    /// Takes any packet.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        if let Err(error) = message.pull_up(HEADER_OCTETS) {
            return Err(this.refuse(message, error.into()));
        }
        let Some(octets) = message.peek::<HEADER_OCTETS>().copied() else {
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        let number = number_of(&octets);
        match self.table.sessions.get(&(lower.id().0, number)) {
            Some(session) => session.pop(cx, message),
            None => self.demux_first(cx, this, lower, (number, octets), message),
        }
    }

    /// The first packet of a conversation: makes the session that somebody has enabled.
    #[cold]
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        (number, octets): (u32, [u8; HEADER_OCTETS]),
        message: Message,
    ) -> Result<(), Refused> {
        match Header::parse(&octets, message.len() - HEADER_OCTETS) {
            Ok(header) if header.kind == Kind::Send => {}
            Ok(header) if header.kind == Kind::Nack => {
                return Err(this.refuse(message, &LATE_NACK));
            }
            Ok(_) => return Err(this.refuse(message, &LATE_FRAGMENT)),
            Err(_) => return Err(this.refuse(message, &reason::MALFORMED)),
        }
        let Some(upper) = self.enables.get(&number) else {
            return Err(this.refuse(message, &reason::NO_PROTOCOL));
        };
        let body = self.session(cx, this, (&upper, number), lower.clone());
        let (sessions, key) = (&self.table.sessions, (lower.id().0, number));
        match sessions.accept(cx, this, &upper, key, body, Participants::default) {
            Ok(session) => session.pop(cx, message),
            Err(why) => Err(this.refuse(message, why)),
        }
    }
}

/// The type number in a header.
#[inline(always)]
fn number_of(octets: &[u8; HEADER_OCTETS]) -> u32 {
    u32::from_be_bytes([octets[10], octets[11], octets[12], octets[13]])
}

impl Protocol for Fragment {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(xk_core::Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = upper.number_on(cx, this)?;
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let key = (lower.id().0, number);
        let body = self.session(cx, this, (upper.receiver, number), lower);
        self.table.sessions.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let number = upper.number_on(cx, this)?;
        match self.enables.bind(number, upper.receiver.clone()) {
            Ok(()) => Ok(Enable(u64::from(number))),
            Err(_) => Err(OpenError::InUse),
        }
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(number) = u32::try_from(enable.0) {
            self.enables.unbind(&number);
        }
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        is_for_one(cx, lower)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(octets) = message.peek_in_place::<HEADER_OCTETS>()
            && let key = (lower.id().0, number_of(octets))
            && let Some(session) = self.table.sessions.latest(&key)
        {
            return session.pop(cx, message);
        }
        self.demux_other(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&self.table.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("active", self.table.sessions.stats()));
            question.maps.push(("passive", self.enables.stats()));
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<FragmentFigures>() {
            *question = self.table.figures();
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            let less = |octets: u32| {
                let fragment = octets.saturating_sub(HEADER_OCTETS as u32);
                fragment.clamp(1, u32::from(u16::MAX))
            };
            let _ = ask.answer::<OptPacket>(|q| q.octets = less(q.octets));
            if ask.get::<MaxPacket>().is_some() {
                let below = self.lower.ask(cx, OptPacket::default());
                let _ = ask.answer::<MaxPacket>(|q| {
                    let opt = below.map_or(q.octets, |below| below.octets);
                    q.octets = less(opt) * crate::wire::FRAGMENTS_MAX as u32;
                });
            }
        }
        answer
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    /// The timer of a message that is kept or collected went off.
    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, token: u64) {
        let place = token as u32;
        if token & KEPT != 0 {
            drop(self.table.release_place(cx, place, true));
        } else {
            self.table.partial_due(cx, place);
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.table.clear();
        self.enables.clear();
    }
}
