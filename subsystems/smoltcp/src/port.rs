//! The top of a graph that is a device below smoltcp.

use crate::hosts::Hosts;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use xk_core::control::Describe;
use xk_core::object::{OpenError, Refused, SessionSlot};
use xk_core::reason::{self, Class};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper,
};
use xk_kit::control::{LinkType, MaxPacket};
use xk_kit::wire::entry::HEADROOM;
use xk_kit::wire::{offload, segments};

/// The link type of IP packets without a link header (`LINKTYPE_RAW`).
pub(crate) const RAW_IP: u16 = 101;
/// Messages that wait for smoltcp at most.
pub(crate) const WAITING_MAX: usize = 256;
/// Octets of a frame or packet, unless the program says otherwise.
const ETHERNET_OCTETS: usize = 1514;
pub(crate) const IP_OCTETS: usize = 1500;

/// The reasons of this crate.
pub static REASONS: &[&Reason] = &[&NO_SESSION];

/// Dropped: smoltcp sent before there was a session below.
pub static NO_SESSION: Reason = Reason::new("no session yet", Class::Exhausted);

/// Participants of the session below.
#[derive(Clone, Debug)]
pub enum Ends {
    /// The session is opened when the graph starts.
    Open(Participants),
    /// A peer opens it; the last one that did has it.
    Accept(Participants),
}

impl Default for Ends {
    /// Opened with no participants, as wires are.
    fn default() -> Self {
        Self::Open(Participants::default())
    }
}

/// Settings of a port on a link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Medium of smoltcp; if `None`, the one that the layer below says it carries, or else frames.
    pub medium: Option<Medium>,
    /// Octets of the longest frame or packet; if `None`, what the layer below carries, 1514 or 1500
    /// at most.
    pub octets_max: Option<usize>,
    /// Participants of the session below.
    pub ends: Ends,
}

impl Link {
    /// Opened to this peer, from an end of the lower layer's choice. A wire takes no notice of it.
    #[must_use]
    pub fn to(peer: Participant) -> Self {
        let ends = Participants::pair(Participant::of(Part::Any), peer);
        Self { ends: Ends::Open(ends), ..Self::default() }
    }

    /// For the peer that opens it at this end of ours.
    #[must_use]
    pub fn at(local: Participant) -> Self {
        Self { ends: Ends::Accept(Participants::local(local)), ..Self::default() }
    }
}

/// The layer below.
enum Way {
    Link(Box<Link>, SessionSlot),
    Hosts(Hosts),
}

/// The top of a graph that smoltcp stands on.
pub struct Port {
    lower: ProtocolRef,
    way: Way,
    medium: Medium,
    octets_max: Cell<usize>,
    waiting: RefCell<VecDeque<Message>>,
    /// Octets of a message in several buffers, and of one for which the pool has no room.
    scratch: RefCell<Vec<u8>>,
    /// Receives under each number of its; the first has the timers.
    receivers: RefCell<Vec<ProtocolRef>>,
    turn: RefCell<Option<Rc<dyn Turn>>>,
}

/// A part that is called when something has arrived or is due.
pub(crate) trait Turn {
    fn turn(&self, cx: &Kernel);
}

/// The port as a protocol of the graph.
struct Receiver {
    port: Rc<Port>,
    /// The protocol number that it receives under, above hosts.
    number: u8,
}

impl Port {
    /// A port on what carries whole messages. It is opened when the kernel starts; in a kernel that
    /// runs already [`start`](Self::start) opens it.
    pub fn on_link(cx: &Kernel, name: &str, lower: &ProtocolRef, link: Link) -> Rc<Self> {
        let asked = lower.ask(cx, LinkType::default()).map(|link| link.number);
        let medium = link.medium.unwrap_or(match asked {
            Some(RAW_IP) => Medium::Ip,
            _ => Medium::Ethernet,
        });
        let way = Way::Link(Box::new(link), SessionSlot::default());
        let port = Self::new(lower, medium, way);
        port.measure(cx, None);
        let receiver = Receiver { port: Rc::clone(&port), number: 0 };
        port.receivers.borrow_mut().push(cx.add_protocol("smoltcp", name, receiver));
        port
    }

    /// A port on xk's `ip`, for these protocol numbers (6 for TCP, 17 for UDP), none of which
    /// another protocol there may have. smoltcp's interface has the addresses of `ip`, and a
    /// default route to any of its peers; its packets' times to live and identifications are
    /// `ip`'s.
    pub fn on_hosts(cx: &Kernel, name: &str, ip: &ProtocolRef, numbers: &[u8]) -> Rc<Self> {
        let port = Self::new(ip, Medium::Ip, Way::Hosts(Hosts::default()));
        port.octets_max.set(IP_OCTETS);
        for number in numbers {
            let receiver = Receiver { port: Rc::clone(&port), number: *number };
            let name = alloc::format!("{name}-{number}");
            let receiver = cx.add_protocol("smoltcp", &name, receiver);
            cx.numbers_mut().override_pair(receiver.id(), ip.id(), (*number).into());
            port.receivers.borrow_mut().push(receiver);
        }
        port
    }

    fn new(lower: &ProtocolRef, medium: Medium, way: Way) -> Rc<Self> {
        Rc::new(Self {
            lower: lower.clone(),
            way,
            medium,
            octets_max: Cell::new(0),
            waiting: RefCell::default(),
            scratch: RefCell::default(),
            receivers: RefCell::default(),
            turn: RefCell::default(),
        })
    }

    /// Learns the longest frame.
    fn measure(&self, cx: &Kernel, session: Option<&SessionRef>) {
        let Way::Link(link, _) = &self.way else { return };
        let usual = if self.medium == Medium::Ethernet { ETHERNET_OCTETS } else { IP_OCTETS };
        let asked = match session {
            Some(session) => session.ask(cx, MaxPacket::default()),
            None => self.lower.ask(cx, MaxPacket::default()),
        };
        let carried = asked.map_or(usual, |most| most.octets as usize);
        self.octets_max.set(carried.min(link.octets_max.unwrap_or(usual)));
    }

    /// Opens it in a kernel that has been started before it was added.
    ///
    /// # Errors
    /// Why the layer below does not open.
    pub fn start(&self, cx: &Kernel) -> Result<(), OpenError> {
        let receivers = self.receivers.borrow().clone();
        receivers.iter().try_for_each(|receiver| receiver.start(cx))
    }

    /// The device, for a program with a loop of its own.
    pub fn device(self: &Rc<Self>, cx: &Rc<Kernel>) -> Device<Rc<Kernel>, Rc<Self>> {
        Device { cx: Rc::clone(cx), port: Rc::clone(self) }
    }

    /// The protocol object, whose drops are counted and which a graph's tools find.
    ///
    /// # Panics
    /// Of a port on hosts with no numbers.
    pub fn protocol(&self) -> ProtocolRef {
        self.receivers.borrow().first().cloned().expect("it has one")
    }

    /// Frames or packets that smoltcp has not taken yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Whether there is a session below to send through.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match &self.way {
            Way::Link(_, session) => session.is_some(),
            Way::Hosts(_) => true,
        }
    }

    pub(crate) fn set_turn(&self, turn: Rc<dyn Turn>) {
        *self.turn.borrow_mut() = Some(turn);
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = self.medium;
        capabilities.max_transmission_unit = self.octets_max.get();
        capabilities
    }

    fn receive<'a>(&'a self, cx: &'a Kernel) -> Option<(Received<'a>, Sending<'a>)> {
        let sending = self.transmit(cx)?;
        let message = self.waiting.borrow_mut().pop_front()?;
        Some((Received { message, port: self }, sending))
    }

    fn transmit<'a>(&'a self, cx: &'a Kernel) -> Option<Sending<'a>> {
        self.is_open().then_some(Sending { cx, port: self })
    }

    fn send(&self, cx: &Kernel, message: Message) {
        let sent = match &self.way {
            Way::Link(_, session) => match session.get() {
                // What fails is counted below.
                Some(session) => {
                    let _ = session.push(cx, message);
                    return;
                }
                None => Err((message, &NO_SESSION)),
            },
            Way::Hosts(hosts) => hosts.send(cx, &self.lower, &self.receivers, message),
        };
        if let Err((message, why)) = sent {
            self.protocol().discard(message, why);
        }
    }

    /// Puts an arrival behind the others: `Err` has what there is no room for.
    fn queue(&self, message: Message) -> Result<(), Message> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            return Err(message);
        }
        waiting.push_back(message);
        Ok(())
    }

    fn turn(&self, cx: &Kernel) {
        let turn = self.turn.borrow().clone();
        if let Some(turn) = turn {
            turn.turn(cx);
        }
    }
}

impl Receiver {
    /// Completes what was left to a device, and queues it.
    fn arrive(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        if let Way::Hosts(_) = &self.port.way {
            let _ = offload::finish_checksum(cx.pool(), &mut message);
            message.clear_attributes();
            if let Err(why) = Hosts::put_header(cx, lower, self.number, &mut message) {
                return Err(this.refuse(message, why));
            }
            let queued = self.port.queue(message);
            return queued.map_err(|message| this.refuse(message, &reason::QUEUE_FULL));
        }
        if segments::of(&message).is_some() {
            let pieces = match segments::split(message) {
                Ok(pieces) => pieces,
                Err(why) => {
                    this.head().drops().count(why);
                    return Ok(());
                }
            };
            for piece in pieces {
                match piece.map(|piece| self.port.queue(piece)) {
                    Ok(Ok(())) => {}
                    Ok(Err(piece)) => this.discard(piece, &reason::QUEUE_FULL),
                    Err(why) => this.head().drops().count(why),
                }
            }
            return Ok(());
        }
        if offload::finish_checksum(cx.pool(), &mut message).is_err() {
            return Err(this.refuse(message, &reason::NO_BUFFERS));
        }
        let queued = self.port.queue(message);
        queued.map_err(|message| this.refuse(message, &reason::QUEUE_FULL))
    }
}

impl Protocol for Receiver {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let (port, upper) = (&self.port, Upper::new(this));
        match &port.way {
            Way::Link(link, session) => match &link.ends {
                Ends::Open(ends) => {
                    let opened = port.lower.open(cx, upper, ends.clone())?;
                    opened.watch();
                    port.measure(cx, Some(&opened));
                    drop(session.replace(Some(opened)));
                }
                Ends::Accept(local) => {
                    port.lower.open_enable(cx, upper, local.clone()).map(drop)?;
                }
            },
            Way::Hosts(_) => {
                let any = Participant::of(Part::Any);
                port.lower.open_enable(cx, upper, Participants::local(any)).map(drop)?;
            }
        }
        port.turn(cx);
        Ok(())
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        if let Way::Link(link, session) = &self.port.way
            && matches!(link.ends, Ends::Accept(_))
        {
            lower.hold();
            lower.watch();
            self.port.measure(cx, Some(lower));
            if let Some(last) = session.replace(Some(lower.clone())) {
                last.close(cx);
            }
        }
        Ok(())
    }

    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        match &self.port.way {
            Way::Link(_, session) if session.has(lower) => drop(session.take()),
            Way::Link(..) => {}
            Way::Hosts(hosts) => hosts.gone(lower),
        }
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.arrive(cx, this, lower, message)?;
        self.port.turn(cx);
        Ok(())
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        self.port.turn(cx);
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(q) = ask.get::<Describe>() {
            let (medium, octets) = (self.port.medium, self.port.octets_max.get());
            q.text = alloc::format!("{medium:?}, {octets} octets, {} wait", self.port.waiting());
            return Answer::Answered;
        }
        self.port.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.port.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        drop(self.port.turn.take());
        self.port.waiting.borrow_mut().clear();
        match &self.port.way {
            Way::Link(_, session) => session.close(cx),
            Way::Hosts(hosts) => hosts.stop(cx),
        }
    }
}

/// A port as smoltcp's device: with counted handles of kernel and port for a program of its own
/// loop, with borrowed ones for the turn of a [`Station`](crate::Station).
pub struct Device<K, P> {
    pub(crate) cx: K,
    pub(crate) port: P,
}

impl<K, P: AsRef<Port>> Device<K, P> {
    /// The port.
    pub fn port(&self) -> &Port {
        self.port.as_ref()
    }
}

impl AsRef<Self> for Port {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<K: AsRef<Kernel>, P: AsRef<Port>> phy::Device for Device<K, P> {
    type RxToken<'a>
        = Received<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Sending<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        self.port.as_ref().receive(self.cx.as_ref())
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        self.port.as_ref().transmit(self.cx.as_ref())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.port.as_ref().capabilities()
    }
}

/// A frame or packet that has arrived.
pub struct Received<'a> {
    message: Message,
    port: &'a Port,
}

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        if let Some(octets) = self.message.single_slice() {
            return f(octets);
        }
        let mut scratch = self.port.scratch.take();
        scratch.clear();
        self.message.octet_slices().for_each(|slice| scratch.extend_from_slice(slice));
        let result = f(&scratch);
        *self.port.scratch.borrow_mut() = scratch;
        result
    }
}

/// Room for a frame or packet to be sent.
pub struct Sending<'a> {
    cx: &'a Kernel,
    port: &'a Port,
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self { cx, port } = self;
        let Ok(mut message) = cx.pool().alloc(HEADROOM, len) else {
            // smoltcp is told of no failure: it sends again what matters.
            let result = f(&mut vec![0; len]);
            port.protocol().head().drops().count(&reason::NO_BUFFERS);
            return result;
        };
        if let Some(room) = message.front_mut()
            && room.len() == len
        {
            room.fill(0);
            let result = f(room);
            port.send(cx, message);
            return result;
        }
        let mut whole = vec![0; len];
        let result = f(&mut whole);
        message.copy_in(0, &whole);
        port.send(cx, message);
        result
    }
}
