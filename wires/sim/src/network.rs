//! The network: links, ports, and the frames in flight, in the order of their times.

use crate::config::{LinkConfig, LinkKind};
use crate::link::{Ends, Fate, Hints, Link};
use crate::protocol::{HostSeat, SimPort};
use crate::queue::{Event, Kind, Queue};
use crate::stats::LinkStats;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use xk_core::object::{PushError, span};
use xk_core::random::Random;
use xk_core::reason::{self, Class};
use xk_core::{Message, Pool, Reason, Time};
use xk_kit::EthAddr;
use xk_kit::wire::corrupt::copy_flipped;
use xk_kit::wire::device::{DeviceWire, Unsent};

/// Frames that may be in flight in one network, unless set otherwise.
pub const IN_FLIGHT_MAX: usize = 1 << 20;

/// Too many frames are in flight in the whole network.
pub(crate) static IN_FLIGHT_FULL: Reason = Reason::new("in-flight full", Class::Exhausted);

/// Names a link of its network, in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// Names a host of its world, in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// Names a port of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortId(pub(crate) u32);

/// Why a link was not added, or an interface not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// There is a link of this name.
    #[error("there is a link of this name")]
    Taken,
    /// A point-to-point link has two ends only.
    #[error("a point-to-point link has two ends only")]
    Full,
    /// There is no such link.
    #[error("there is no such link")]
    Unknown,
}

/// A frame on a link, as a [`Tap`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// Time of its arrival at the far end, or at the switch: never before that of the sighting that
    /// came last.
    pub time: Time,
    /// The link.
    pub link: LinkId,
    /// The link's name.
    pub link_name: &'a str,
    /// The host that sent it.
    pub host: HostId,
    /// The host's name.
    pub host_name: &'a str,
    /// The frame as it was sent, before chance decides what becomes of it.
    pub frame: &'a Message,
}

/// Sees every frame on every link, for captures.
pub trait Tap {
    /// A frame arrived at the far end of the sender's line.
    fn frame(&self, sighting: Sighting<'_>);
}

/// One line of memory holds what every frame needs.
#[repr(C, align(64))]
struct Port {
    /// `None` once the interface is taken down.
    interface: Option<Rc<DeviceWire<SimPort>>>,
    host: HostId,
    link: u32,
    hints: Hints,
    rest: Box<PortRest>,
}

/// The place that a port's last frame reached; kept apart, so that many lie together.
#[derive(Clone, Copy)]
struct Reached {
    port: PortId,
    host: HostId,
    link: u32,
}

/// State of a port that only some frames need.
struct PortRest {
    host_name: Rc<str>,
    ends: Ends,
    /// The port's side of each of the link's partitions.
    sides: Vec<u8>,
}

#[derive(Default)]
struct NetworkState {
    links: Vec<Link>,
    names: BTreeMap<Rc<str>, LinkId>,
    ports: Vec<Port>,
    /// The place that each port's last frame reached.
    reached: Vec<Reached>,
    /// Number of interfaces that each host has had.
    interfaces: BTreeMap<HostId, u8>,
    queue: Queue,
    now: Time,
    in_flight_max: usize,
    /// Pairs of hosts that do not hear each other now, the sender first, with the number of
    /// deliveries prevented.
    cuts: BTreeMap<(HostId, HostId), u64>,
    /// Addresses that no interface makes up.
    given: BTreeSet<EthAddr>,
}

/// All links of a simulation. Kernels find it among their surroundings.
pub struct Network {
    chance: Random,
    pool: Pool,
    state: RefCell<NetworkState>,
    tap: RefCell<Option<Rc<dyn Tap>>>,
}

/// A frame that has arrived and is being handed to its receivers, one by one.
pub(crate) struct Spreading {
    message: Option<Message>,
    from: PortId,
    link: u32,
    /// The receivers that the frame goes to, if a switch knows; else the place of the next one on
    /// the link.
    to: Target,
    /// A second delivery to the same port.
    again: Option<(PortId, Message)>,
}

enum Target {
    One(Option<PortId>),
    Some(BTreeSet<PortId>),
    All(usize),
}

/// A stable number for a name (64-bit FNV-1a), so that chance does not depend on the order of links
/// and hosts.
pub(crate) fn label(kind: &str, name: &str) -> u64 {
    let octets = kind.bytes().chain([b':']).chain(name.bytes());
    octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Network {
    /// A network without links. All chance comes from `seed`; damaged frames are copied into
    /// `pool`.
    pub fn new(seed: u64, pool: Pool) -> Rc<Self> {
        let state = NetworkState { in_flight_max: IN_FLIGHT_MAX, ..NetworkState::default() };
        let (state, tap) = (RefCell::new(state), RefCell::default());
        Rc::new(Self { chance: Random::new(seed), pool, state, tap })
    }

    /// Adds a link.
    pub fn add_link(&self, config: LinkConfig) -> Result<LinkId, LinkError> {
        let mut state = self.state.borrow_mut();
        if state.names.contains_key(config.name.as_str()) {
            return Err(LinkError::Taken);
        }
        let random = self.chance.fork(label("link", &config.name));
        let link = Link::new(config, random);
        let id = LinkId(state.links.len() as u32);
        state.names.insert(Rc::clone(&link.name), id);
        state.links.push(link);
        Ok(id)
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<LinkId> {
        self.state.borrow().names.get(name).copied()
    }

    /// Keeps an address, which an interface is given, from those that others make up.
    pub fn keep(&self, address: EthAddr) {
        self.state.borrow_mut().given.insert(address);
    }

    /// The address that an interface makes up: locally administered, one station (IEEE 802-2014,
    /// section 8.2.2). 64 interfaces a host are told apart.
    pub(crate) fn address(&self, host: HostId, ordinal: u8) -> EthAddr {
        let [a, b, c, d] = host.0.wrapping_add(1).to_be_bytes();
        let beside = |second| EthAddr([(ordinal << 2) | 2, second, a, b, c, d]);
        let given = &self.state.borrow().given;
        let free = (0..=u8::MAX).map(beside).find(|address| !given.contains(address));
        free.unwrap_or(beside(0))
    }

    /// The links' names and figures, in the order of adding.
    pub fn links(&self) -> Vec<(Rc<str>, LinkStats)> {
        let state = self.state.borrow();
        state.links.iter().map(|link| (Rc::clone(&link.name), link.stats)).collect()
    }

    /// Counts of a link.
    pub fn stats(&self, link: LinkId) -> Option<LinkStats> {
        self.state.borrow().links.get(link.0 as usize).map(|link| link.stats)
    }

    /// Number of frames in flight.
    pub fn in_flight(&self) -> usize {
        self.state.borrow().queue.len()
    }

    /// Bounds the frames in flight; at first [`IN_FLIGHT_MAX`].
    pub fn set_in_flight_max(&self, frames: usize) {
        self.state.borrow_mut().in_flight_max = frames;
    }

    /// Cuts two hosts off from each other, on every link, until [`Network::repair`]: frames that
    /// come to a link's far end meanwhile are lost, and counted as partitioned.
    pub fn partition(&self, one: HostId, other: HostId) {
        self.deafen(one, other);
        self.deafen(other, one);
    }

    /// Partitions one way: what `from` sends does not come to `to`, and the other way it does.
    pub fn deafen(&self, from: HostId, to: HostId) {
        self.state.borrow_mut().cuts.entry((from, to)).or_default();
    }

    /// Ends what [`Network::partition`] or [`Network::deafen`] has begun; how many deliveries it
    /// has prevented.
    pub fn repair(&self, one: HostId, other: HostId) -> u64 {
        let cuts = &mut self.state.borrow_mut().cuts;
        [(one, other), (other, one)].iter().filter_map(|pair| cuts.remove(pair)).sum()
    }

    /// Counts the deliveries between two hosts that are prevented so far by what is not repaired.
    pub fn prevented(&self, one: HostId, other: HostId) -> u64 {
        let cuts = &self.state.borrow().cuts;
        [(one, other), (other, one)].iter().filter_map(|pair| cuts.get(pair)).sum()
    }

    /// Returns the configuration of a link as it is now.
    pub fn config(&self, link: LinkId) -> Option<LinkConfig> {
        self.state.borrow().links.get(link.0 as usize).map(|link| link.config.clone())
    }

    /// Changes what a link is like for the frames that it decides about from now on: delay, rate,
    /// chances, queue. Its name and kind, its partitions, a switch's table and the MTU, which
    /// interfaces have learned, stay. False if there is no such link.
    pub fn change_link(&self, link: LinkId, change: impl FnOnce(&mut LinkConfig)) -> bool {
        let mut state = self.state.borrow_mut();
        let found = state.links.get_mut(link.0 as usize);
        found.map(|link| link.change(change)).is_some()
    }

    /// Lets an observer see every frame, or none.
    pub fn set_tap(&self, tap: Option<Rc<dyn Tap>>) {
        *self.tap.borrow_mut() = tap;
    }

    /// The largest frame on a link, in octets.
    pub(crate) fn frame_octets_max(&self, link: LinkId) -> usize {
        let state = self.state.borrow();
        state.links.get(link.0 as usize).map_or(0, Link::frame_octets_max)
    }

    /// Hangs an interface on a link. Answers its port, and which of the host's interfaces it is.
    pub(crate) fn attach(
        &self,
        interface: Rc<DeviceWire<SimPort>>,
        link: LinkId,
        seat: &HostSeat,
    ) -> Result<(PortId, u8), LinkError> {
        let mut state = self.state.borrow_mut();
        let id = PortId(state.ports.len() as u32);
        let at = link.0 as usize;
        let hangs_on = state.links.get_mut(at).ok_or(LinkError::Unknown)?;
        if hangs_on.config.kind == LinkKind::PointToPoint && hangs_on.ports.len() >= 2 {
            return Err(LinkError::Full);
        }
        hangs_on.ports.push(id);
        let sides = hangs_on.config.partitions.iter().map(|p| p.side(&seat.name)).collect();
        state.reached.push(Reached { port: id, host: seat.id, link: link.0 });
        let rest = PortRest { host_name: Rc::clone(&seat.name), ends: Ends::default(), sides };
        state.ports.push(Port {
            interface: Some(interface),
            host: seat.id,
            link: link.0,
            hints: Hints::default(),
            rest: Box::new(rest),
        });
        let count = state.interfaces.entry(seat.id).or_default();
        let ordinal = *count;
        *count = count.saturating_add(1);
        Ok((id, ordinal))
    }

    /// Takes an interface down.
    pub(crate) fn detach(&self, port: PortId) {
        let mut state = self.state.borrow_mut();
        let Some(gone) = state.ports.get_mut(port.0 as usize) else {
            return;
        };
        let (link, interface) = (gone.link, gone.interface.take());
        if let Some(link) = state.links.get_mut(link as usize) {
            link.ports.retain(|p| *p != port);
        }
        drop(state);
        drop(interface);
    }

    /// Takes every interface of a host down, and forgets that it had any: what it attaches next has
    /// the addresses of the first.
    pub(crate) fn detach_host(&self, host: HostId) {
        let ports = {
            let mut state = self.state.borrow_mut();
            state.interfaces.remove(&host);
            let all = (0..).map(PortId).zip(&state.ports);
            let own = all.filter(|(_, port)| port.host == host && port.interface.is_some());
            own.map(|(id, _)| id).collect::<Vec<_>>()
        };
        for port in ports {
            self.detach(port);
        }
    }

    /// Takes a frame from a host.
    pub(crate) fn transmit(&self, now: Time, from: PortId, message: Message) -> Result<(), Unsent> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let refused = |message, error, reason| Err(Unsent::Refused(message, reason, error));
        let at = state.ports.get_mut(from.0 as usize).filter(|p| p.interface.is_some());
        let found = at.and_then(|p| Some((state.links.get_mut(p.link as usize)?, p)));
        let Some((link, port)) = found else {
            return refused(message, PushError::Closed, &reason::CLOSED);
        };
        let octets = message.len();
        if state.queue.len() >= state.in_flight_max {
            link.stats.in_flight_full += 1;
            return refused(message, PushError::QueueFull, &IN_FLIGHT_FULL);
        }
        let frame = match self.without_attributes(message) {
            Ok(frame) => frame,
            Err(message) => {
                link.stats.no_buffers += 1;
                return refused(message, PushError::NoBuffers, &reason::NO_BUFFERS);
            }
        };
        // A host that is called from outside may have an older time.
        let Some(arrival) = link.send(now.max(state.now), &mut port.rest.ends, octets) else {
            link.stats.queue_full += 1;
            return refused(frame, PushError::QueueFull, &reason::QUEUE_FULL);
        };
        link.stats.sent += 1;
        link.stats.sent_octets += octets as u64;
        state.queue.push(arrival, Kind::Arrival { from }, frame);
        Ok(())
    }

    /// Time until the port takes a frame; `None` of one that is not attached.
    pub(crate) fn room_after(&self, now: Time, of: PortId) -> Option<core::time::Duration> {
        let state = self.state.borrow();
        let port = state.ports.get(of.0 as usize).filter(|p| p.interface.is_some())?;
        let link = state.links.get(port.link as usize)?;
        Some(link.room_after(now.max(state.now), &port.rest.ends))
    }

    /// The octets of a message alone: attributes do not cross a link. The message, if the pool is
    /// exhausted.
    fn without_attributes(&self, message: Message) -> Result<Message, Message> {
        if !message.has_attributes() {
            return Ok(message);
        }
        // An empty message takes the octets, and has none.
        let Ok(mut frame) = self.pool.empty(0) else {
            return Err(message);
        };
        frame.join(message);
        Ok(frame)
    }

    /// The host that the frame comes to which arrives after so many others, and where its octets,
    /// both ports and the link lie, if it goes where its sender's last one went and none comes
    /// between.
    pub(crate) fn reached_by(&self, after: usize) -> Option<(HostId, [(usize, usize); 4])> {
        let state = self.state.borrow();
        let event = state.queue.ahead(after)?;
        let Kind::Arrival { from } = event.kind else {
            return None;
        };
        let to = state.reached.get(from.0 as usize)?;
        let [from, to_port] = [from, to.port].map(|port| state.ports.get(port.0 as usize));
        let link = state.links.get(to.link as usize)?;
        let lie = [span(event.message.front_slice()), span(from?), span(to_port?), span(link)];
        Some((to.host, lie))
    }

    /// Time at which the next frame arrives.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.state.borrow().queue.next()
    }

    /// Takes the next frame that has arrived.
    pub(crate) fn arrive(&self) -> Option<Spreading> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Event { at, message, kind, .. } = state.queue.pop()?;
        state.now = at;
        match kind {
            Kind::Delivery { to } => {
                let link = state.ports.get(to.0 as usize)?.link;
                let again = Some((to, message));
                let to = Target::One(None);
                Some(Spreading { message: None, from: PortId(0), link, to, again })
            }
            Kind::Arrival { from } => {
                let port = state.ports.get_mut(from.0 as usize)?;
                let link = state.links.get_mut(port.link as usize)?;
                self.show(at, port, &link.name, &message);
                let mut header = [0; 12];
                let header = (message.copy_to(0, &mut header) == 12).then_some(&header);
                let to = match link.forward(at, from, &mut port.hints, header) {
                    Some(port) if port == from => {
                        link.stats.filtered += 1;
                        Target::One(None)
                    }
                    Some(port) => Target::One(Some(port)),
                    None => match link.members(at, from, header, &message) {
                        Some(ports) => Target::Some(ports),
                        None => Target::All(0),
                    },
                };
                let link = port.link;
                Some(Spreading { message: Some(message), from, link, to, again: None })
            }
        }
    }

    fn show(&self, time: Time, port: &Port, link_name: &str, frame: &Message) {
        if let Some(tap) = &*self.tap.borrow() {
            tap.frame(Sighting {
                time,
                link: LinkId(port.link),
                link_name,
                host: port.host,
                host_name: &port.rest.host_name,
                frame,
            });
        }
    }

    /// The next receiver of an arrived frame, and what it gets. Deliveries that come later are put
    /// back into the queue.
    pub(crate) fn spread(
        &self,
        spreading: &mut Spreading,
    ) -> Option<(Rc<DeviceWire<SimPort>>, HostId, Message)> {
        let mut state = self.state.borrow_mut();
        loop {
            if let Some((to, message)) = spreading.again.take() {
                let Some(taken) = state.deliver(to, message) else {
                    continue;
                };
                return Some(taken);
            }
            let (to, last) = state.next_target(spreading)?;
            let message = if last {
                spreading.message.take()?
            } else {
                match spreading.message.as_ref()?.try_clone() {
                    Ok(clone) => clone,
                    Err(_) => {
                        state.count(spreading.link, |stats| stats.no_buffers += 1);
                        continue;
                    }
                }
            };
            spreading.again = state.decide(&self.pool, spreading.from, to, message);
        }
    }
}

impl NetworkState {
    fn count(&mut self, link: u32, add: impl FnOnce(&mut LinkStats)) {
        if let Some(link) = self.links.get_mut(link as usize) {
            add(&mut link.stats);
        }
    }

    fn deliver(
        &mut self,
        to: PortId,
        message: Message,
    ) -> Option<(Rc<DeviceWire<SimPort>>, HostId, Message)> {
        let port = self.ports.get(to.0 as usize)?;
        let link = port.link;
        let Some(interface) = port.interface.clone() else {
            self.count(link, |stats| stats.gone += 1);
            return None;
        };
        let host = port.host;
        self.count(link, |stats| stats.delivered += 1);
        Some((interface, host, message))
    }

    /// The next port that the frame is for, and whether it is the last.
    fn next_target(&self, spreading: &mut Spreading) -> Option<(PortId, bool)> {
        match &mut spreading.to {
            Target::One(to) => to.take().map(|to| (to, true)),
            Target::Some(ports) => ports.pop_first().map(|to| (to, ports.is_empty())),
            Target::All(next) => {
                let ports = &self.links.get(spreading.link as usize)?.ports;
                let others = |at: &usize| ports.get(*at) != Some(&spreading.from);
                let at = (*next..ports.len()).find(others)?;
                *next = at + 1;
                let more = (*next..ports.len()).any(|at| others(&at));
                Some((*ports.get(at)?, !more))
            }
        }
    }

    /// Lets chance and the switch's port decide about one delivery. Answers it if it happens at
    /// once.
    fn decide(
        &mut self,
        pool: &Pool,
        from: PortId,
        to: PortId,
        message: Message,
    ) -> Option<(PortId, Message)> {
        let now = self.now;
        let receiver = self.ports.get(to.0 as usize)?;
        let sender = self.ports.get(from.0 as usize)?;
        let link = self.links.get_mut(receiver.link as usize)?;
        if !self.cuts.is_empty()
            && let Some(met) = self.cuts.get_mut(&(sender.host, receiver.host))
        {
            *met += 1;
            link.stats.partitioned += 1;
            return None;
        }
        if let Some(reached) = self.reached.get_mut(from.0 as usize) {
            *reached = Reached { port: to, host: receiver.host, link: receiver.link };
        }
        if link.only_delays() {
            return Some((to, message));
        }
        let (from, to_sides) = (&sender.rest.sides, &receiver.rest.sides);
        let fate = link.decide(now, from, to_sides, message.len());
        let Fate::Delivered { flip, twice } = fate else {
            return None;
        };
        let damaged = flip.map(|bit| copy_flipped(pool, &message, bit)).transpose();
        let Ok(damaged) = damaged else {
            link.stats.no_buffers += 1;
            return None;
        };
        let message = damaged.unwrap_or(message);
        let second = twice.then(|| message.try_clone());
        let first = self.put_off(to, message);
        match second {
            Some(Ok(second)) => {
                let second = self.put_off(to, second);
                // Two at once: the second one through the queue, at the same time.
                match (first, second) {
                    (Some(first), Some((to, message))) => {
                        self.queue.push(now, Kind::Delivery { to }, message);
                        Some(first)
                    }
                    (first, second) => first.or(second),
                }
            }
            Some(Err(_)) => {
                self.count(link_of(&self.ports, to), |stats| stats.no_buffers += 1);
                first
            }
            None => first,
        }
    }

    /// Schedules a delivery, or answers it if it happens at once.
    fn put_off(&mut self, to: PortId, message: Message) -> Option<(PortId, Message)> {
        let now = self.now;
        let port = self.ports.get_mut(to.0 as usize)?;
        let link = self.links.get_mut(port.link as usize)?;
        let Some(at) = link.leave(now, &mut port.rest.ends, message.len()) else {
            link.stats.queue_full += 1;
            return None;
        };
        let at = at + link.extra();
        if at <= now {
            return Some((to, message));
        }
        if self.queue.len() >= self.in_flight_max {
            link.stats.in_flight_full += 1;
            return None;
        }
        self.queue.push(at, Kind::Delivery { to }, message);
        None
    }
}

fn link_of(ports: &[Port], port: PortId) -> u32 {
    ports.get(port.0 as usize).map_or(u32::MAX, |port| port.link)
}
