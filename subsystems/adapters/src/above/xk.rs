//! The upper half in the x-kernel: a protocol with sessions, and calls where the protocol below
//! has transactions.

mod calls;
mod session;
#[cfg(test)]
mod tests;

use crate::edge::{Above, Below, Door, Edge, Ends, Fault, Options, Sink, Unwanted};
use crate::form::{Addr, Form, Ports, Service};
use crate::later::Later;
use crate::parcel::Parcel;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use calls::{Pending, Request};
use core::cell::{Cell, OnceCell, RefCell};
use session::XkSession;
use xk_core::control::{ListMaps, ListSessions, Report};
use xk_core::object::{Enable, OpenError, ProtocolId, Refused, SessionTable};
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Kernel, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::control::{MaxPacket, OptPacket};
use xk_kit::net::attribute::LinkCast;

/// Sessions of one adapter at most.
const SESSIONS_MAX: usize = 4096;
/// Offers of one adapter at most.
const OFFERS_MAX: usize = 1024;

/// Key of a session: our port, or all of our address if there are none; the peer's address; the
/// protocol above.
type Key = [u8; 32];

#[inline]
fn key(local: &Addr, peer: &Addr, selector: ProtocolId) -> Key {
    // In place of the families, which are one.
    let [a, b, c, d] = selector.0.to_le_bytes();
    let ([_, _, local @ ..], [_, _, peer @ ..]) = (local.octets(), peer.octets());
    let mut key = [0; 32];
    (key[0], key[1], key[16], key[17]) = (a, b, c, d);
    key[2..16].copy_from_slice(&local);
    key[18..].copy_from_slice(&peer);
    key
}

/// A standing offer: what a protocol above takes.
struct Offer {
    id: u64,
    local: Addr,
    receiver: ProtocolRef,
    selector: ProtocolId,
    /// Port of the offer, for a layer whose ports are doors.
    port: Option<Addr>,
}

/// A door that what has the same port has in common.
struct Port {
    door: Rc<dyn Door>,
    /// Sessions and offers.
    uses: usize,
}

/// Whether two doors are one.
fn is_same(one: &Rc<dyn Door>, other: &Rc<dyn Door>) -> bool {
    core::ptr::addr_eq(Rc::as_ptr(one), Rc::as_ptr(other))
}

/// The half, and the protocol object of the adapter.
#[derive(Clone)]
pub(crate) struct XkAbove(Rc<Half>);

pub(crate) struct Half {
    edge: Rc<Edge>,
    form: &'static Form,
    below: Rc<dyn Below>,
    sessions: SessionTable<Key>,
    offers: RefCell<Vec<Offer>>,
    offer_last: Cell<u64>,
    /// Doors by the protocol above, and its port where ports tell datagrams apart; elsewhere it has
    /// one for all.
    doors: RefCell<BTreeMap<(ProtocolId, u128), Port>>,
    free: Ports,
    /// Counts of sessions and offers with each port that may be chosen, where these have no
    /// doors of their own.
    ports_used: Vec<Cell<u32>>,
    /// Requests that wait to be executed.
    waiting: Later<Request>,
    /// Calls that wait for replies, and the last number: a port's sessions have them in common.
    calls: RefCell<BTreeMap<u16, Rc<Pending>>>,
    number_last: Cell<u16>,
}

impl XkAbove {
    pub(crate) fn new(cx: &Kernel, edge: &Rc<Edge>, below: &Rc<dyn Below>) -> Self {
        let free = edge.form.free_ports().filter(|_| !edge.form.is_by_port);
        let chosen = free.map_or(0, |(first, last)| usize::from(last - first) + 1);
        Self(Rc::new(Half {
            edge: Rc::clone(edge),
            form: edge.form,
            below: Rc::clone(below),
            sessions: SessionTable::new(cx.secret(), SESSIONS_MAX),
            offers: RefCell::default(),
            offer_last: Cell::new(0),
            doors: RefCell::default(),
            free: Ports::default(),
            ports_used: alloc::vec![Cell::new(0); chosen],
            waiting: Later::default(),
            calls: RefCell::default(),
            number_last: Cell::new(0),
        }))
    }
}

impl Above for XkAbove {
    fn node(&self) -> Option<XkAbove> {
        Some(self.clone())
    }
}

impl Half {
    pub(crate) fn is_calls(&self) -> bool {
        self.form.service == Service::Transactions
    }

    /// The door of a protocol above, or of one port of it, which the sessions and offers there have
    /// in common. [`let_go`](Self::let_go) gives that of a port back.
    fn door(
        self: &Rc<Self>,
        cx: &Kernel,
        selector: ProtocolId,
        local: Addr,
    ) -> Result<Rc<dyn Door>, Fault> {
        let is_by_port = self.form.is_by_port;
        let local = if is_by_port { local } else { self.form.any() };
        let port = self.form.port_of(&local);
        if let Some(known) = self.doors.borrow_mut().get_mut(&(selector, port.number()))
            && !(is_by_port && port.is_any())
        {
            known.uses += 1;
            return Ok(Rc::clone(&known.door));
        }
        let door = self.new_door(cx, selector, local)?;
        let port = if is_by_port { self.form.port_of(&door.local(cx)) } else { port };
        let shared = Port { door: Rc::clone(&door), uses: 1 };
        self.doors.borrow_mut().insert((selector, port.number()), shared);
        Ok(door)
    }

    fn new_door(
        self: &Rc<Self>,
        cx: &Kernel,
        selector: ProtocolId,
        local: Addr,
    ) -> Result<Rc<dyn Door>, Fault> {
        let half = Rc::downgrade(self);
        let sink = Rc::new(Arrivals { half, selector, door: OnceCell::new() });
        let opened = self.below.open(cx, selector, local, Rc::clone(&sink) as Rc<dyn Sink>);
        let door = opened.map_err(|fault| match fault {
            // There is none left to choose.
            Fault::Address | Fault::InUse if self.form.is_by_port && local.is_any() => {
                Fault::NoBuffers
            }
            fault => fault,
        })?;
        let _ = sink.door.set(Rc::downgrade(&door));
        Ok(door)
    }

    /// Gives a port's door back; the last closes it.
    fn let_go(&self, cx: &Kernel, selector: ProtocolId, port: Addr) {
        let (mut doors, at) = (self.doors.borrow_mut(), (selector, port.number()));
        let Some(shared) = doors.get_mut(&at) else { return };
        shared.uses -= 1;
        if shared.uses > 0 {
            return;
        }
        let last = doors.remove(&at);
        drop(doors);
        if let Some(Port { door, .. }) = last {
            door.close(cx);
        }
    }

    /// Number of sessions and offers with this port of ours, if it is one that may be chosen.
    fn uses(&self, local: &Addr) -> Option<&Cell<u32>> {
        let (first, _) = self.form.free_ports()?;
        self.ports_used.get(usize::from(self.form.port_number(local)?.checked_sub(first)?))
    }

    fn use_port(&self, local: &Addr) {
        if let Some(uses) = self.uses(local) {
            uses.set(uses.get() + 1);
        }
    }

    fn leave_port(&self, local: &Addr) {
        if let Some(uses) = self.uses(local) {
            uses.set(uses.get().saturating_sub(1));
        }
    }

    /// Sets a port of ours that no session and no offer has.
    fn choose_port(&self, local: &mut Addr) -> Result<(), OpenError> {
        for port in self.free.each(self.form) {
            self.form.set_port(local, port);
            if self.uses(local).is_some_and(|uses| uses.get() == 0) {
                return Ok(());
            }
        }
        Err(OpenError::Full)
    }

    /// Answers the question for the largest message; `None` if it is another, or nothing is known.
    fn answer_size(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        if ask.get::<MaxPacket>().is_none() && ask.get::<OptPacket>().is_none() {
            return None;
        }
        let octets = self.below.max_packet(cx)?;
        let largest = ask.answer::<MaxPacket>(|q| q.octets = octets);
        let whole = ask.answer::<OptPacket>(|q| q.octets = octets);
        Some(if largest.is_answered() { largest } else { whole })
    }

    /// The offer for what arrives at this address of ours.
    fn offer_for(&self, local: &Addr, selector: ProtocolId) -> Option<ProtocolRef> {
        let offers = self.offers.borrow();
        let port = self.form.port_of(local);
        let ours = || offers.iter().filter(|offer| offer.selector == selector);
        let exact = ours().find(|o| !o.local.is_any() && self.form.port_of(&o.local) == port);
        exact.or_else(|| ours().find(|o| o.local.is_any())).map(|offer| offer.receiver.clone())
    }

    /// The link address of a frame: a frame to many goes to the session of its sender with us.
    fn links_cast(&self, cx: &Kernel, ends: &mut Ends) -> LinkCast {
        let is_broadcast = ends.to.data().starts_with(&[0xff; 6]);
        ends.to = self.below.local_to(cx, &ends.from).unwrap_or(self.form.any());
        ends.is_for_many = false;
        if is_broadcast { LinkCast::Broadcast } else { LinkCast::Multicast }
    }

    /// The session that what arrives with these ends belongs to, made if there is an offer.
    pub(crate) fn session_for(
        self: &Rc<Self>,
        cx: &Kernel,
        ends: &Ends,
        selector: ProtocolId,
        door: Option<Rc<dyn Door>>,
    ) -> Result<SessionRef, &'static Reason> {
        let local = self.form.port_of(&ends.to);
        let key = key(&local, &ends.from, selector);
        if let Some(session) = self.sessions.get(&key) {
            return Ok(session);
        }
        // One that was opened to no peer takes what is for its port.
        let any = self::key(&local, &self.form.any(), selector);
        if let Some(session) = self.sessions.get(&any).filter(|_| !local.is_any()) {
            return Ok(session);
        }
        let upper = self.offer_for(&ends.to, selector).ok_or(&reason::NO_PORT)?;
        let door = match door {
            Some(door) => door,
            None => self.door(cx, selector, self.form.any()).map_err(Fault::reason)?,
        };
        let this = self.edge.node().map_err(Fault::reason)?;
        let make = || {
            // An answer to what was sent to many comes from one of our hosts.
            let from = if ends.is_for_many { self.form.any() } else { ends.to };
            let back = Ends::new(from, ends.from);
            let mut body = XkSession::new(self, door, &upper, (key, back, selector), false);
            body.sent_to = ends.is_for_many.then_some(ends.to);
            let form = self.form;
            (body, Participants::pair(form.to_local(&ends.to), form.to_participant(&ends.from)))
        };
        self.sessions.accept(cx, &this, &upper, key, self.form.source(&ends.from), make)
    }
}

/// The receiver of messages that come through a door.
struct Arrivals {
    half: Weak<Half>,
    selector: ProtocolId,
    door: OnceCell<Weak<dyn Door>>,
}

impl Arrivals {
    /// Whether a session is one of those whose messages come through this door.
    fn is_of(&self, session: &XkSession) -> bool {
        let is_its_port = || {
            let door = self.door.get().and_then(Weak::upgrade);
            door.is_some_and(|door| is_same(&door, &session.door))
        };
        session.selector == self.selector && (!session.is_by_port() || is_its_port())
    }
}

impl Sink for Arrivals {
    fn arrive(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Unwanted> {
        let half = self.half.upgrade().ok_or(&reason::CLOSED)?;
        let door = match half.form.is_by_port {
            true => self.door.get().and_then(Weak::upgrade),
            false => None,
        };
        if half.is_calls() {
            return Ok(calls::arrive(&half, cx, (ends, self.selector, door), parcel)?);
        }
        let (bare, mut cast) = (&mut Ends::default(), None);
        let mut ends = ends;
        if half.form.is_link() {
            *bare = *ends;
            cast = ends.is_for_many.then(|| half.links_cast(cx, bare));
            (bare.from, bare.to) = (half.form.bare(&bare.from), half.form.bare(&bare.to));
            ends = bare;
        }
        let session = half.session_for(cx, ends, self.selector, door)?;
        let mut message = parcel.into_message(cx.pool(), &half.edge.up).map_err(Fault::reason)?;
        if let Some(cast) = cast {
            message.set_attribute(cast).map_err(|_| &reason::NO_BUFFERS)?;
        }
        if let Some(body) = session.body::<XkSession>().filter(|body| body.is_for_any_peer()) {
            body.note_sender(&mut message, &ends.from);
        }
        session.pop(cx, message).map_err(|Refused { message, reason: why }| Unwanted {
            why,
            parcel: Some(Parcel::Message(message)),
        })
    }

    fn fault(&self, cx: &Kernel, to: &Addr, fault: Fault, options: Option<&Options>) {
        let Some(half) = self.half.upgrade() else { return };
        for session in half.sessions.sessions(SESSIONS_MAX) {
            let Some(body) = session.body::<XkSession>() else { continue };
            if self.is_of(body) && (body.ends.to == *to || to.is_any()) {
                session::tell(cx, &session, body, fault, options);
            }
        }
    }

    fn gone(&self, cx: &Kernel) {
        let Some(half) = self.half.upgrade() else { return };
        if !half.form.is_by_port {
            half.doors.borrow_mut().retain(|(of, _), _| *of != self.selector);
        }
        for session in half.sessions.sessions(SESSIONS_MAX) {
            let is_its = |body: &XkSession| self.is_of(body);
            if session.body::<XkSession>().is_some_and(is_its) {
                session.abort(cx);
            }
        }
    }
}

impl Protocol for XkAbove {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let half = &self.0;
        let mut local = half.form.to_addr(participants.local_mut()?)?;
        let peer = half.form.to_addr(participants.peer_mut()?)?;
        let given = key(&half.form.port_of(&local), &peer, upper.selector);
        if let Some(found) = half.sessions.found(&given, upper.receiver)? {
            return Ok(found);
        }
        // A lower half may know our address by its doors alone.
        let door = half.door(cx, upper.selector, local)?;
        if half.form.is_by_port {
            local = door.local(cx);
        } else {
            match half.form.port_number(&local) {
                Some(0) => half.choose_port(&mut local)?,
                // What comes back is for the host that it goes from.
                None if local.is_any() => {
                    let ours = half.below.local_to(cx, &peer).unwrap_or(local);
                    local = half.form.bare(&ours);
                }
                _ => {}
            }
        }
        let key = key(&half.form.port_of(&local), &peer, upper.selector);
        let ends = Ends::new(local, peer);
        let owns = half.form.is_by_port;
        let body = XkSession::new(half, door, upper.receiver, (key, ends, upper.selector), owns);
        half.sessions.open(cx, this, upper.receiver, key, body)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let half = &self.0;
        let local = half.form.to_addr(participants.local_mut()?)?;
        let port = half.form.port_of(&local);
        let taken = |offer: &Offer| {
            offer.selector == upper.selector && half.form.port_of(&offer.local) == port
        };
        if half.offers.borrow().iter().any(taken) {
            return Err(OpenError::InUse);
        }
        if half.offers.borrow().len() >= OFFERS_MAX {
            return Err(OpenError::Full);
        }
        let door = half.door(cx, upper.selector, local)?;
        let port = half.form.is_by_port.then(|| half.form.port_of(&door.local(cx)));
        let id = half.offer_last.get() + 1;
        half.offer_last.set(id);
        let (receiver, selector) = (upper.receiver.clone(), upper.selector);
        half.use_port(&local);
        half.offers.borrow_mut().push(Offer { id, local, receiver, selector, port });
        Ok(Enable(id))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let mut offers = self.0.offers.borrow_mut();
        let at = offers.iter().position(|offer| offer.id == enable.0);
        let gone = at.map(|at| offers.swap_remove(at));
        drop(offers);
        let Some(Offer { local, selector, port, .. }) = gone else { return };
        self.0.leave_port(&local);
        if let Some(port) = port {
            self.0.let_go(cx, selector, port);
        }
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let half = &self.0;
        if let Some(list) = ask.get::<ListSessions>() {
            list.add(&half.sessions);
            return Answer::Answered;
        }
        if let Some(maps) = ask.get::<ListMaps>() {
            maps.add("sessions", half.sessions.stats());
            return Answer::Answered;
        }
        if let Some(report) = ask.get::<Report>() {
            half.edge.report(report);
            return Answer::Answered;
        }
        half.answer_size(cx, ask).unwrap_or_else(|| half.edge.lower.control(cx, ask))
    }

    fn passes_numbers(&self) -> bool {
        true
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0.edge.lower)
    }

    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        calls::serve(&self.0, cx);
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        let half = &self.0;
        let doors = half.doors.take();
        // The doors of offers are those of their ports.
        drop(half.offers.take());
        for Port { door, .. } in doors.into_values() {
            door.close(cx);
        }
        half.sessions.clear();
        half.waiting.clear();
        half.below.stop(cx);
        half.edge.stop();
    }
}
