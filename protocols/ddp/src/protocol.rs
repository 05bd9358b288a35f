//! The protocol object: opens, enables, demultiplexes.

use crate::ports::{Port, Ports};
use crate::session::DdpSession;
use crate::shared::{Key, Limits, PORT_ANY, Shared, TOKEN_BEST, TOKEN_LOOP, enable_key};
use crate::wire::{SOCKETS_DYNAMIC, is_socket};
use alloc::rc::Rc;
use alloc::string::String;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::zip::is_multicast;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Burst, Enable, OpenError, Refused};
use xk_core::participant::{AddressError, Label, Participant, Wild};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper,
    reason,
};
use xk_kit::net::appletalk::{NET, NODE, SOCKET, TYPE};
use xk_kit::net::ports::Choice;

/// One instance: one node, or router.
pub struct Ddp {
    pub(crate) shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or other networks than there can be.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let list = Port::all(build)?;
    let limits = Limits {
        has_checksum: build.flag("checksum")?,
        sessions: build.int("sessions_max")?,
        enables: build.int("enables_max")?,
        waiting: build.int("waiting_max")?,
        routes: build.int("routes_max")?,
        has_best: build.flag("best_router")?,
    };
    let shared = Shared::new(build.cx, Ports::new(list), &limits);
    build.add(Ddp { shared: Rc::new(shared) })
}

const OUT_OF_RANGE: OpenError = OpenError::Address(AddressError::OutOfRange);

/// The protocol type: that on top of the local participant, else the number that selects an upper
/// protocol: an octet on the wire, not 0.
fn number_on(
    cx: &Kernel,
    this: &ProtocolRef,
    upper: Upper<'_>,
    local: &mut Participant,
) -> Result<u8, OpenError> {
    let number = upper.number_on(cx, this)?.into();
    let number = match local.top() {
        Some(Part::Number(TYPE, other)) => {
            let other = *other;
            local.pop();
            other
        }
        _ => number,
    };
    u8::try_from(number).ok().filter(|number| *number != 0).ok_or(OUT_OF_RANGE)
}

/// Takes a number with a label, if there is anything.
fn pop<T: TryFrom<u64>>(from: &mut Participant, label: Label) -> Result<Wild<T>, OpenError> {
    if from.is_empty() {
        return Ok(Wild::Any);
    }
    match from.pop_number(label)? {
        Wild::Any => Ok(Wild::Any),
        Wild::Is(number) => T::try_from(number).map(Wild::Is).map_err(|_| OUT_OF_RANGE),
    }
}

/// Takes the local socket; 0 for any.
fn pop_socket(local: &mut Participant) -> Result<u8, OpenError> {
    match pop::<u8>(local, SOCKET)? {
        Wild::Any => Ok(0),
        Wild::Is(socket) if is_socket(socket) => Ok(socket),
        Wild::Is(_) => Err(OUT_OF_RANGE),
    }
}

impl Ddp {
    /// The port that a local participant chooses by a network of its cable.
    fn port(&self, local: &mut Participant) -> Result<u8, OpenError> {
        pop::<u8>(local, NODE)?;
        match pop::<u16>(local, NET)? {
            Wild::Any => Ok(PORT_ANY),
            Wild::Is(net) => {
                let at = self.shared.ports.list.iter().position(|port| port.has(net));
                let at = at.ok_or(OpenError::NoRoute)?;
                Ok(if self.shared.ports.is_router() { at as u8 } else { PORT_ANY })
            }
        }
    }

    /// The peer, and the group that is sent to.
    fn peer(peer: &mut Participant) -> Result<(AtAddr, u8), OpenError> {
        let socket = pop_socket(peer)?;
        let node = pop::<u8>(peer, NODE)?.definite()?;
        let net = pop::<u16>(peer, NET)?.value().unwrap_or(0);
        let group = match peer.pop() {
            Some(Part::Ether(group)) if is_multicast(group) && node == 0xff => group[5] + 1,
            Some(Part::Any) | None => 0,
            Some(_) => return Err(OpenError::Address(AddressError::WrongFamily)),
        };
        if socket == 0 || net == 0xffff {
            return Err(OUT_OF_RANGE);
        }
        Ok((AtAddr::new(net, node, socket), group))
    }

    /// A socket for a session that leaves it open: one that has no session with this peer and is
    /// enabled for no type; or else not for this one, since what takes all sockets of its type
    /// leaves no other.
    fn choose(&self, cx: &Kernel, key: Key) -> Result<Choice<'_>, OpenError> {
        let shared = &self.shared;
        let (first, last) =
            (u16::from(*SOCKETS_DYNAMIC.start()), u16::from(*SOCKETS_DYNAMIC.end()));
        let count = last - first + 1;
        let start = cx.random().next_u16() % count;
        let sockets = (0..count).map(|n| first + (start + n) % count);
        let mut enabled = [false; 256];
        shared.enables.for_each(|key, _| enabled[usize::from(key & 0xff)] = true);
        let is_free = |socket: u8| {
            let key = Key { socket, ..key };
            shared.sessions.get(&key.number()).is_none()
        };
        let is_enabled = |socket: u8| enabled[usize::from(socket)];
        let is_of_type = |socket: u8| shared.enables.get(&enable_key(key.kind, socket)).is_some();
        let choices = &shared.choices;
        let first = choices.choose(sockets.clone(), |n| is_free(n as u8) && !is_enabled(n as u8));
        first.or_else(|_| choices.choose(sockets, |n| is_free(n as u8) && !is_of_type(n as u8)))
    }
}

impl Protocol for Ddp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        for (at, port) in self.shared.ports.list.iter().enumerate() {
            let any = Participants::local(Part::Any);
            let _ = port.lower.open_enable(cx, Upper::new(this), any)?;
            port.claim(cx, at);
        }
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let kind = number_on(cx, this, upper, participants.local_mut()?)?;
        let (peer, group) = Self::peer(participants.peer_mut()?)?;
        let local = participants.local_mut()?;
        let socket = pop_socket(local)?;
        let port = self.port(local)?;
        let key = Key { peer, socket, kind, port, group };
        let (key, _choice) = match socket {
            0 => {
                let chosen = self.choose(cx, key)?;
                (Key { socket: chosen.number as u8, ..key }, Some(chosen))
            }
            _ => (key, None),
        };
        let taken = shared.enables.get(&enable_key(kind, key.socket));
        if taken.is_some_and(|taken| taken != *upper.receiver) {
            return Err(OpenError::InUse);
        }
        if let Some(session) = shared.sessions.found(&key.number(), upper.receiver)? {
            return Ok(session);
        }
        let body = DdpSession::new(shared, key, upper.receiver);
        shared.sessions.open(cx, this, upper.receiver, key.number(), body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let kind = number_on(cx, this, upper, participants.local_mut()?)?;
        let socket = pop_socket(participants.local_mut()?)?;
        if socket == 0 {
            return Err(OpenError::Address(AddressError::Wildcard));
        }
        let key = enable_key(kind, socket);
        self.shared.enables.enable(key, upper.receiver.clone(), |_| false)?;
        Ok(Enable(key.into()))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.enables.unbind(&(enable.0 as u16));
    }

    /// A session to a next hop that has ended by itself, or with what it stood on. That is no end
    /// of those above, which find out here.
    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        if lower.head().opens() > 0 {
            self.shared.outdate();
        }
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match self.shared.ports.over(cx, lower) {
            Some(at) => self.receive(cx, this, (at, Some(lower)), message),
            None => Err(this.refuse(message, &reason::NOT_MINE)),
        }
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        self.receive_burst(cx, this, lower, burst)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.answer(cx, this, ask)
    }

    fn describe(&self) -> Option<String> {
        Some(self.state())
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.shared.sessions);
        tables.map("passive", self.shared.enables.stats());
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.shared.ports.list.first().map(|port| &port.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        if token == TOKEN_LOOP
            && let Some(packet) = self.shared.take_looped()
        {
            // A refusal of our own datagram is counted, and nothing is below to hear of it.
            drop(self.receive(cx, this, (0, None), packet));
        }
        if token == TOKEN_BEST {
            self.shared.age_best(cx, this);
        }
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.shared.clear(cx);
    }
}
