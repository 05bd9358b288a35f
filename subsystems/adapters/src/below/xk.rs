//! The lower half in the x-kernel: what opens sessions of the protocol below, and offers itself to
//! its peers. It is the protocol object of the adapter, too; what a driver above opens by the
//! x-kernel's own means goes through it as it is.

mod transactions;

use super::bsd::DOORS_MAX;
use crate::circuit::Circuits;
use crate::edge::{Above, Below, Door, Edge, Ends, Fault, Sink, Traffic, remove, upper_of};
use crate::form::{Addr, Form, Service};
use crate::parcel::Parcel;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
pub use transactions::NO_ANSWER;
use transactions::Transactions;
use xk_bsd::sockaddr::AF_INET;
use xk_core::control::Report;
use xk_core::object::{Enable, OpenError, ProtocolId, Refused, SessionId};
use xk_core::reason::{self, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Upper,
};
use xk_kit::Cache;
use xk_kit::control::{
    MaxPacket, MyHost, NetworkError, NetworkErrorKind, SpecificDestination, WireRoom,
};
use xk_kit::net::stream::{StreamNotice, StreamRoom};
use xk_kit::wire::segments;

/// Sessions below that one door holds open for what it sends.
const SENDING_MAX: usize = 256;
/// Sessions below that messages made, of one adapter.
const PASSIVE_MAX: usize = 4096;

/// The half.
#[derive(Clone)]
pub(crate) struct OnXk(Rc<Half>);

struct Half {
    edge: Rc<Edge>,
    form: &'static Form,
    /// The half above, until the node stops: it keeps this one.
    above: RefCell<Option<Rc<dyn Above>>>,
    /// Sorted by their ports, those of one in the order of opening.
    doors: RefCell<Vec<Rc<XkDoor>>>,
    /// The door of each session below, and the ends of the messages that arrive through it.
    arriving: RefCell<BTreeMap<SessionId, (Weak<XkDoor>, Ends)>>,
    circuits: Rc<Circuits>,
    transactions: Transactions,
}

impl OnXk {
    pub(crate) fn new(edge: &Rc<Edge>) -> Self {
        Self(Rc::new(Half {
            edge: Rc::clone(edge),
            form: edge.form,
            above: RefCell::default(),
            doors: RefCell::default(),
            arriving: RefCell::default(),
            circuits: Circuits::new(edge),
            transactions: Transactions::default(),
        }))
    }

    /// As the node of an adapter with this upper half.
    pub(crate) fn under(self, above: Rc<dyn Above>) -> Self {
        *self.0.above.borrow_mut() = Some(above);
        self
    }
}

/// The doors of a port.
fn at_port(doors: &[Rc<XkDoor>], port: u128) -> &[Rc<XkDoor>] {
    let (_, rest) = doors.split_at(doors.partition_point(|door| door.port < port));
    rest.split_at(rest.partition_point(|door| door.port == port)).0
}

impl Half {
    /// The door for what arrives at this address: that for the very port before the one for all.
    fn door_for(&self, local: &Addr) -> Option<Rc<XkDoor>> {
        let doors = self.doors.borrow();
        let port = self.form.port_of(local).number();
        let exact = at_port(&doors, port).iter().find(|door| !door.local.is_any());
        // Those for all come first: their port is zeros.
        let any = self.form.any().number();
        let mut first = doors.iter().take_while(|door| door.port == any);
        exact.or_else(|| first.find(|door| door.local.is_any())).cloned()
    }

    /// Offers the adapter for this address of ours. Where a protocol takes no offer for all of its
    /// few ports, as DDP does not, each is offered.
    fn enable(
        &self,
        cx: &Kernel,
        upper: Upper<'_>,
        local: &Addr,
    ) -> Result<Vec<Enable>, OpenError> {
        let offer = |local: &Addr| {
            self.edge.lower.open_enable(cx, upper, Participants::local(self.form.to_local(local)))
        };
        match (offer(local), self.form.all_ports()) {
            (Ok(enable), _) => Ok(Vec::from([enable])),
            (Err(OpenError::Address(_)), Some((first, last))) if local.is_any() => {
                let mut enables = Vec::new();
                for port in first..=last {
                    let mut one = *local;
                    self.form.set_port(&mut one, port);
                    match offer(&one) {
                        Ok(enable) => enables.push(enable),
                        Err(error) => {
                            enables.into_iter().for_each(|e| self.edge.lower.open_disable(cx, e));
                            return Err(error);
                        }
                    }
                }
                Ok(enables)
            }
            (Err(error), _) => Err(error),
        }
    }

    fn note(&self, session: &SessionRef, door: &Rc<XkDoor>, ends: Ends) -> bool {
        let mut arriving = self.arriving.borrow_mut();
        if arriving.len() >= PASSIVE_MAX && !arriving.contains_key(&session.id()) {
            return false;
        }
        session.watch();
        arriving.insert(session.id(), (Rc::downgrade(door), ends));
        true
    }

    /// The door and the ends of what arrives through this session below.
    fn arriving(&self, lower: &SessionRef) -> Option<(Rc<XkDoor>, Ends)> {
        let arriving = self.arriving.borrow();
        let (door, ends) = arriving.get(&lower.id())?;
        Some((door.upgrade()?, *ends))
    }
}

impl Below for OnXk {
    fn open(
        &self,
        cx: &Kernel,
        selector: ProtocolId,
        local: Addr,
        sink: Rc<dyn Sink>,
    ) -> Result<Rc<dyn Door>, Fault> {
        let half = &self.0;
        if half.form.service == Service::Streams {
            return Err(Fault::NotSupported);
        }
        if half.doors.borrow().len() >= DOORS_MAX {
            return Err(Fault::NoBuffers);
        }
        let is_frames = half.form.service == Service::Frames;
        if is_frames && !half.doors.borrow().is_empty() {
            return Err(Fault::InUse);
        }
        let this = half.edge.node()?;
        let upper = Upper { receiver: &this, selector };
        let enables = match is_frames {
            true => Vec::new(),
            false => half.enable(cx, upper, &local)?,
        };
        let port = half.form.port_of(&local).number();
        let door = Rc::new(XkDoor {
            half: Rc::clone(half),
            selector,
            port,
            local,
            sink,
            enables: RefCell::new(enables),
            sending: Cache::new(cx.secret(), SENDING_MAX),
        });
        let place = half.doors.borrow().partition_point(|other| other.port <= port);
        half.doors.borrow_mut().insert(place, Rc::clone(&door));
        // A wire has one session, for all that is sent and arrives.
        if is_frames && let Err(fault) = door.session(cx, &local, &local) {
            door.close(cx);
            return Err(fault);
        }
        Ok(door)
    }

    fn max_packet(&self, cx: &Kernel) -> Option<u32> {
        self.0.edge.lower.ask(cx, MaxPacket::default()).map(|q| q.octets)
    }

    fn local_to(&self, cx: &Kernel, to: &Addr) -> Option<Addr> {
        let half = &self.0;
        if to.is_any() && half.form.family == AF_INET {
            let host = half.edge.lower.ask(cx, MyHost::default())?.host;
            return half.form.to_addr(&Participant::of(Part::Host(host))).ok();
        }
        let door = half.doors.borrow().first().cloned();
        // Without what of the address is another layer's.
        let to = half.form.to_addr(&half.form.to_participant(to)).ok()?;
        let session = door?.session(cx, &half.form.any(), &to).ok()?;
        crate::locals::local_of(cx, half.form, &session)
    }

    fn circuits(&self) -> Option<Rc<Circuits>> {
        (self.0.form.service == Service::Streams).then(|| Rc::clone(&self.0.circuits))
    }

    fn stop(&self, cx: &Kernel) {
        let doors = self.0.doors.take();
        for door in doors {
            door.let_go(cx);
        }
        drop(self.0.arriving.take());
        self.0.circuits.stop(cx);
    }
}

/// Key of a session below: its ends.
type Key = [u8; 32];

#[inline]
fn key(from: &Addr, to: &Addr) -> Key {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&from.octets());
    key[16..].copy_from_slice(&to.octets());
    key
}

struct XkDoor {
    half: Rc<Half>,
    selector: ProtocolId,
    /// The port, or all of the address if there are none.
    port: u128,
    local: Addr,
    sink: Rc<dyn Sink>,
    enables: RefCell<Vec<Enable>>,
    /// Sessions for what is sent, the one used longest ago closed for another.
    sending: Cache<Key, SessionRef>,
}

impl XkDoor {
    /// The session below for these ends, opened if there is none.
    #[inline]
    fn session(&self, cx: &Kernel, from: &Addr, to: &Addr) -> Result<SessionRef, Fault> {
        let from = if from.is_any() { &self.local } else { from };
        match self.sending.touch(&key(from, to)) {
            Some(session) => Ok(session),
            None => self.new_session(cx, from, to),
        }
    }

    fn new_session(&self, cx: &Kernel, from: &Addr, to: &Addr) -> Result<SessionRef, Fault> {
        let door = self.half.door_of(self).ok_or(Fault::Closed)?;
        let (form, this) = (self.half.form, self.half.edge.node()?);
        let participants = match form.service {
            Service::Frames => Participants::default(),
            _ => Participants::pair(form.to_local(from), form.to_participant(to)),
        };
        let upper = Upper { receiver: &this, selector: self.selector };
        let session = self.half.edge.lower.open(cx, upper, participants)?;
        // What comes back through it has the ends the other way round, and is for the host that it
        // goes from: a checksum above covers that.
        let ours = if from.is_any() { crate::locals::local_of(cx, form, &session) } else { None };
        let back = Ends::new(*to, ours.unwrap_or(*from));
        if !self.half.note(&session, &door, back) {
            session.close(cx);
            return Err(Fault::NoBuffers);
        }
        if let Some((_, oldest)) = self.sending.put(key(from, to), session.clone()) {
            oldest.close(cx);
        }
        Ok(session)
    }

    fn forget(&self, gone: &SessionRef) {
        let all = self.sending.snapshot();
        for (key, _) in all.iter().filter(|(_, session)| session == gone) {
            self.sending.remove(key);
        }
    }

    fn let_go(&self, cx: &Kernel) {
        self.half.transactions.let_go(cx, self);
        let enables = self.enables.take();
        for enable in enables {
            self.half.edge.lower.open_disable(cx, enable);
        }
        while let Some((key, session)) = self.sending.oldest() {
            self.sending.remove(&key);
            session.close(cx);
        }
    }
}

impl Door for XkDoor {
    fn send(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Fault> {
        if self.half.form.service == Service::Transactions {
            let door = self.half.door_of(self).ok_or(Fault::Closed)?;
            return self.half.transactions.send(cx, &door, ends, parcel);
        }
        let message = parcel.into_message(cx.pool(), &self.half.edge.down)?;
        let session = self.session(cx, &ends.from, &ends.to)?;
        session.push(cx, message).map_err(Fault::from)
    }

    fn room(&self, cx: &Kernel) -> Duration {
        self.half.edge.lower.ask(cx, WireRoom::default()).map_or(Duration::ZERO, |q| q.after)
    }

    fn local(&self, _: &Kernel) -> Addr {
        self.local
    }

    fn close(&self, cx: &Kernel) {
        remove(&self.half.doors, self);
        self.let_go(cx);
    }
}

impl Half {
    /// The door as a counted one, while it is open.
    fn door_of(&self, door: &XkDoor) -> Option<Rc<XkDoor>> {
        at_port(&self.doors.borrow(), door.port)
            .iter()
            .find(|one| core::ptr::eq(&***one, door))
            .cloned()
    }
}

/// Opens of a driver above go on to the protocol below as they are: wires need no more.
impl Protocol for OnXk {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let half = &self.0;
        let above = half.above.borrow().clone();
        match (above, upper_of(cx, this.name(), &half.edge.lower)) {
            (Some(above), Some(upper)) => above.start(cx, &upper).map_err(OpenError::from),
            _ => Ok(()),
        }
    }

    fn open(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        self.0.edge.lower.open(cx, upper, participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.0.edge.lower.open_enable(cx, upper, participants)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.0.edge.lower.open_disable(cx, enable);
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut participants: Participants,
    ) -> Result<(), &'static Reason> {
        let (half, malformed) = (&self.0, |_| &reason::MALFORMED);
        let calls = half.form.service == Service::Transactions;
        let known = if calls { crate::locals::ends_of(cx, half.form, lower) } else { None };
        let (to, from) = match known {
            // Of those that call nothing is said besides.
            Some(ends) => ends,
            None => {
                let to = half.form.to_addr(participants.local_mut().map_err(malformed)?);
                let from = half.form.to_addr(participants.peer_mut().map_err(malformed)?);
                (to.map_err(malformed)?, from.map_err(malformed)?)
            }
        };
        if half.form.service == Service::Streams {
            return half.circuits.accept(cx, (lower, &to));
        }
        let door = half.door_for(&to).ok_or(&reason::NO_PORT)?;
        let sent_to = lower.ask(cx, SpecificDestination::default());
        let is_for_many = sent_to.is_some_and(|q| q.many);
        let ends = Ends { is_for_many, ..Ends::new(from, to) };
        if half.note(lower, &door, ends) { Ok(()) } else { Err(&reason::TABLE_FULL) }
    }

    fn gone(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        if self.0.form.service == Service::Streams {
            return self.0.circuits.gone(cx, lower);
        }
        self.0.arriving.borrow_mut().remove(&lower.id());
        for door in self.0.doors.borrow().iter() {
            door.forget(lower);
        }
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if self.0.form.service == Service::Streams {
            if !self.0.circuits.arrive(cx, lower, message) {
                self.0.edge.count(&reason::CLOSED);
            }
            return Ok(());
        }
        let Some((door, ends)) = self.0.arriving(lower) else {
            return Err(this.refuse(message, &reason::NO_PORT));
        };
        let mut back = None;
        let taken = segments::each_whole(cx.pool(), message, |packet| {
            let arrived = door.sink.arrive(cx, &ends, Parcel::Message(packet));
            arrived.map_err(|unwanted| {
                back = unwanted.parcel;
                unwanted.why
            })
        });
        let Err(why) = taken else { return Ok(()) };
        let Some(parcel) = back else {
            self.0.edge.count(why);
            return Ok(());
        };
        match parcel.into_message(cx.pool(), &Traffic::default()) {
            Ok(message) => Err(Refused::new(message, why)),
            // The sender is told nothing.
            Err(_) => Ok(()),
        }
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        self.0.transactions.serve(cx, (&self.0, this), lower, request)
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        self.0.transactions.make(cx, &self.0);
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let half = &self.0;
        if let Some(report) = ask.get::<Report>() {
            half.edge.report(report);
            return Answer::Answered;
        }
        if let Some(notice) = ask.get::<StreamNotice>() {
            let is_ours = half.circuits.notice(cx, notice);
            return if is_ours { Answer::Answered } else { Answer::Unknown };
        }
        // Elsewhere it is another's question on its way down.
        if half.form.service == Service::Streams
            && let Some(room) = ask.get::<StreamRoom>()
        {
            half.circuits.answer_room(room);
            return Answer::Answered;
        }
        if let Some(error) = ask.get::<NetworkError>() {
            let found = error.session.as_ref().and_then(|session| half.arriving(session));
            let Some((door, ends)) = found else { return Answer::Unknown };
            let fault = match error.kind {
                NetworkErrorKind::NetUnreachable | NetworkErrorKind::NetUnknown => Fault::NoRoute,
                NetworkErrorKind::PacketTooBig { .. } => Fault::TooBig,
                _ => Fault::Unreachable,
            };
            door.sink.fault(cx, &ends.from, fault, None);
            return Answer::Answered;
        }
        if ask.is_upward() { Answer::Unknown } else { half.edge.lower.control(cx, ask) }
    }

    fn passes_numbers(&self) -> bool {
        true
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0.edge.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        let above = self.0.above.take();
        if let Some(above) = &above {
            above.stop(cx);
        }
        Below::stop(self, cx);
        self.0.edge.stop();
    }
}
