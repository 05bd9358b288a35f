//! The protocol object: opens, enables, demultiplexes.

use crate::hops::Hops;
use crate::ports::{Port, Ports};
use crate::receive::{receive, receive_burst};
use crate::session::DdpSession;
use crate::shared::{Key, PORT_ANY, enable_key};
use crate::wire::{SOCKETS_DYNAMIC, is_socket};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::ddp::BestRouters;
use xk_appletalk::zip::is_multicast;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{Burst, Enable, OpenError, Refused, SessionTable};
use xk_core::participant::{AddressError, Label, Participant, Wild};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, ProtocolRef, SessionRef, Upper, reason,
};
use xk_kit::machine::{self, At, Machine, Running};
use xk_kit::net::appletalk::{NET, NODE, SOCKET, TYPE};
use xk_kit::net::ports::{Choice, Choices};
use xk_kit::net::waiting::Waiting;

/// Networks whose best router is known.
const BEST_MAX: usize = 64;

/// One instance: one node, or router.
pub struct Ddp {
    pub(crate) ports: Ports,
    pub(crate) sessions: SessionTable<u64>,
    /// The enables by protocol type and socket.
    pub(crate) enables: Map<u16, ProtocolRef>,
    choices: Choices,
    /// Changes with all that a way depends on; never 0.
    pub(crate) generation: Cell<u32>,
    pub(crate) has_checksum: bool,
    pub(crate) routes_max: usize,
    pub(crate) hops: Hops,
    /// Messages that wait for an address.
    pub(crate) waiting: Waiting,
    /// Datagrams to this node itself.
    pub(crate) looped: RefCell<VecDeque<Message>>,
    /// The routers by which datagrams of other networks came; of a node that routes nothing.
    pub(crate) best: Option<RefCell<BestRouters>>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or other networks than there can be.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let ports = Ports::new(Port::all(build)?);
    let (secret, waiting_max) = (build.cx.secret(), build.int("waiting_max")?);
    let has_best = build.flag("best_router")? && !ports.is_router();
    let ddp = Ddp {
        sessions: SessionTable::new(secret, build.int("sessions_max")?),
        enables: Map::new(secret, build.int("enables_max")?),
        choices: Choices::default(),
        generation: Cell::new(1),
        has_checksum: build.flag("checksum")?,
        routes_max: build.int("routes_max")?,
        hops: Hops::default(),
        waiting: Waiting::new(waiting_max, waiting_max),
        looped: RefCell::default(),
        best: has_best.then(|| RefCell::new(BestRouters::new(BEST_MAX))),
        ports,
    };
    machine::add(build, ddp)
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
                let at = self.ports.list.iter().position(|port| port.has(net));
                let at = at.ok_or(OpenError::NoRoute)?;
                Ok(if self.ports.is_router() { at as u8 } else { PORT_ANY })
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
        let (first, last) =
            (u16::from(*SOCKETS_DYNAMIC.start()), u16::from(*SOCKETS_DYNAMIC.end()));
        let count = last - first + 1;
        let start = cx.random().next_u16() % count;
        let sockets = (0..count).map(|n| first + (start + n) % count);
        let mut enabled = [false; 256];
        self.enables.for_each(|key, _| enabled[usize::from(key & 0xff)] = true);
        let is_free = |socket: u8| {
            let key = Key { socket, ..key };
            self.sessions.get(&key.number()).is_none()
        };
        let is_enabled = |socket: u8| enabled[usize::from(socket)];
        let is_of_type = |socket: u8| self.enables.get(&enable_key(key.kind, socket)).is_some();
        let choices = &self.choices;
        let first = choices.choose(sockets.clone(), |n| is_free(n as u8) && !is_enabled(n as u8));
        first.or_else(|_| choices.choose(sockets, |n| is_free(n as u8) && !is_of_type(n as u8)))
    }
}

impl Machine for Ddp {
    fn start(&self, at: At<'_>) -> Result<(), OpenError> {
        for (nth, port) in self.ports.list.iter().enumerate() {
            let any = Participants::local(Part::Any);
            let _ = port.lower.open_enable(at.cx, Upper::new(at.this), any)?;
            port.claim(at.cx, nth);
        }
        Ok(())
    }

    fn open(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let kind = number_on(at.cx, at.this, upper, ends.local_mut()?)?;
        let (peer, group) = Self::peer(ends.peer_mut()?)?;
        let local = ends.local_mut()?;
        let socket = pop_socket(local)?;
        let port = all.port(local)?;
        let key = Key { peer, socket, kind, port, group };
        let (key, _choice) = match socket {
            0 => {
                let chosen = all.choose(at.cx, key)?;
                (Key { socket: chosen.number as u8, ..key }, Some(chosen))
            }
            _ => (key, None),
        };
        let taken = all.enables.get(&enable_key(kind, key.socket));
        if taken.is_some_and(|taken| taken != *upper.receiver) {
            return Err(OpenError::InUse);
        }
        if let Some(session) = all.sessions.found(&key.number(), upper.receiver)? {
            return Ok(session);
        }
        let body = DdpSession::new(all, key, upper.receiver);
        all.sessions.open(at.cx, at.this, upper.receiver, key.number(), body)
    }

    fn open_enable(
        &self,
        at: At<'_>,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<Enable, OpenError> {
        let kind = number_on(at.cx, at.this, upper, ends.local_mut()?)?;
        let socket = pop_socket(ends.local_mut()?)?;
        if socket == 0 {
            return Err(OpenError::Address(AddressError::Wildcard));
        }
        let key = enable_key(kind, socket);
        self.enables.enable(key, upper.receiver.clone(), |_| false)?;
        Ok(Enable(key.into()))
    }

    fn open_disable(&self, _: At<'_>, enable: Enable) {
        self.enables.unbind(&(enable.0 as u16));
    }

    /// A session to a next hop is no end of those above, which find out here.
    fn gone(&self, lower: &SessionRef) {
        if lower.head().opens() > 0 {
            self.outdate();
        }
    }

    fn demux(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        match all.ports.over(at.cx, lower) {
            Some(port) => receive(all, at, port, Some(lower), message),
            None => at.refuse(message, &reason::NOT_MINE),
        }
    }

    fn demux_burst(
        all: &Rc<Running<Self>>,
        at: At<'_>,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        receive_burst(all, at, lower, burst)
    }

    fn next(&self) -> Option<Duration> {
        self.best.as_ref().and_then(|best| best.borrow().next())
    }

    /// Forgets routers that were not heard for long.
    fn due(&self, at: At<'_>) {
        if self.best.as_ref().is_some_and(|best| best.borrow_mut().expire(at.now())) {
            self.outdate();
        }
    }

    fn timeout(all: &Rc<Running<Self>>, at: At<'_>, _: u64) {
        let looped = all.looped.borrow_mut().pop_front();
        if let Some(packet) = looped {
            // A refusal of our own datagram is counted, and nothing is below to hear of it.
            drop(receive(all, at, 0, None, packet));
        }
    }

    fn answer(&self, at: At<'_>, ask: &mut Ask<'_>) -> Option<Answer> {
        self.asked(at, ask)
    }

    fn describe(&self) -> Option<String> {
        Some(self.state())
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("active", &self.sessions);
        tables.map("passive", self.enables.stats());
    }

    fn stop(&self, cx: &Kernel) {
        self.waiting.clear();
        drop(self.looped.take());
        self.sessions.clear();
        self.enables.clear();
        self.hops.clear(cx);
        self.ports.routes.take();
    }
}
