//! The protocol object: opens, enables, and takes what arrives as calls.

use crate::session::{Key, RdgramSession};
use crate::wire::{HEADER_OCTETS, Header};
use alloc::rc::Rc;
use core::time::Duration;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, Refused, SessionSlot, SessionTable};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    Reason, SessionRef, Upper, reason,
};
use xk_kit::Turns;
use xk_kit::answers::is_for_one;
use xk_kit::control::PeerHost;
use xk_kit::rpc::call_layer::{less, pop_header};

/// How many upper protocols may enable it.
const ENABLES_MAX: usize = 256;
/// Room for the headers below in front of an empty reply, in octets.
const HEADROOM: usize = 128;

/// One instance of the layer.
pub struct Rdgram {
    lower: ProtocolRef,
    /// How long a push lasts at most.
    total: Duration,
    sessions: Rc<SessionTable<Key>>,
    /// Type number to the protocol that takes messages with it.
    enables: Map<u32, ProtocolRef>,
    /// By the session below of which the host is asked.
    asking: Turns<u64>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.int("sessions_max")?;
    let total = build.duration("total")?;
    let lower = build.lower(0)?;
    Ok(add(build.cx, build.name, lower, sessions_max, total))
}

/// Adds one to a kernel, for programs that compose without a graph file: it holds `sessions_max`
/// sessions, and a push lasts `total` at most.
pub fn add(
    cx: &Kernel,
    name: &str,
    lower: ProtocolRef,
    sessions_max: usize,
    total: Duration,
) -> ProtocolRef {
    let key = cx.secret();
    cx.add_protocol(
        crate::ENTRY.kind,
        name,
        Rdgram {
            lower,
            total,
            sessions: Rc::new(SessionTable::new(key, sessions_max)),
            enables: Map::new(key, ENABLES_MAX),
            asking: Turns::default(),
        },
    )
}

/// The host that a participant ends in; that of a link without hosts is 0.0.0.0.
fn host_of(peer: &Participant) -> HostAddr {
    let host = |part: &Part| match part {
        Part::Host(host) => Some(*host),
        _ => None,
    };
    peer.parts().find_map(host).unwrap_or(HostAddr::UNSPECIFIED)
}

impl Rdgram {
    /// The host whose messages come through the session below, which is noted on that; not in
    /// `open_done`, which other messages overtake while it blocks.
    fn peer_of(&self, cx: &Kernel, lower: &SessionRef) -> Result<HostAddr, &'static Reason> {
        let head = lower.head();
        if head.peer().is_unspecified() {
            // What comes meanwhile does not overtake the message for which it is asked.
            let _turn = self.asking.take(cx, lower.id().0);
            if head.peer().is_unspecified() {
                let peer = cx.unless_lost(|| lower.ask(cx, PeerHost::default()))?;
                head.set_peer(peer.unwrap_or_default().host);
            }
        }
        Ok(head.peer())
    }

    fn session(
        &self,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        key: Key,
        participants: Participants,
        channel: Option<SessionRef>,
    ) -> RdgramSession {
        let (_, number) = key;
        RdgramSession {
            sessions: Rc::clone(&self.sessions),
            key,
            lower: self.lower.clone(),
            layer: this.clone(),
            upper: upper.clone(),
            participants,
            channel: SessionSlot::new(channel),
            turn: Semaphore::new(1),
            total: self.total,
            template: Header { number }.emit(),
        }
    }

    /// The session that an arriving message makes.
    fn passive_session(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (lower, key): (&SessionRef, Key),
    ) -> Result<SessionRef, &'static Reason> {
        let (host, number) = key;
        let upper = self.enables.get(&number).ok_or(&reason::NO_PROTOCOL)?;
        let both = Participants::pair(Part::Any, Part::Host(host));
        let make = || (self.session(this, &upper, key, both.clone(), None), both);
        self.sessions.accept(cx, this, &upper, key, lower.head().source(), make)
    }
}

impl Protocol for Rdgram {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = upper.number_on(cx, this)?;
        let named = (host_of(participants.peer_mut()?), number);
        if let Some(session) = self.sessions.found(&named, upper.receiver)? {
            return Ok(session);
        }
        // At once, so that a peer that cannot be had is known now.
        let channel = self.lower.open(cx, Upper::new(this), participants.clone())?;
        // The peer's own calls may come by the session that ours go by, as REQUEST.REPLY has it. On
        // a link they come from no host, whatever the peer is called above.
        let peer = self.peer_of(cx, &channel).unwrap_or_default();
        let key = (peer, number);
        let body = self.session(this, upper.receiver, key, participants, Some(channel));
        self.sessions.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let number = upper.number_on(cx, this)?;
        self.enables.enable(number, upper.receiver.clone(), |_| false)?;
        Ok(Enable(number.into()))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(number) = u32::try_from(enable.0) {
            self.enables.unbind(&number);
        }
    }

    /// What was sent to many is for none of them alone, and has no one acknowledgement.
    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        is_for_one(cx, lower)
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let octets = match pop_header::<HEADER_OCTETS>(&mut request) {
            Ok(octets) => octets,
            Err(why) => return Err(this.refuse(request, why)),
        };
        let number = Header::parse(&octets).number;
        let found =
            self.peer_of(cx, lower).and_then(|peer| match self.sessions.get(&(peer, number)) {
                Some(session) => Ok(session),
                None => self.passive_session(cx, this, (lower, (peer, number))),
            });
        let session = match found {
            Ok(session) => session,
            Err(why) => return Err(this.refuse(request, why)),
        };
        // Before it is delivered: what was delivered must be acknowledged.
        let Ok(reply) = cx.pool().empty(HEADROOM) else {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        };
        session.pop(cx, request)?;
        Ok(reply)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        less(self.lower.control(cx, ask), ask, HEADER_OCTETS)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.sessions);
        tables.map("passive", self.enables.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.sessions.clear();
        self.enables.clear();
    }
}
