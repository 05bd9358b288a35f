//! A conversation of several peers, each behind a session below of its own.

use super::ways::{Acting, Ways};
use super::{Conversation, Layer};
use crate::answers::TO_MANY;
use crate::control::{MaxPacket, MyHost, OptPacket, PeerHost, PeerPort, SpecificDestination};
use crate::net::attribute::{Peer, Sending};
use crate::net::ports::{ATTRIBUTES_FULL, copy_of};
use crate::net::receivers::has_no_answer;
use crate::net::virtual_layer::NO_WAY;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::control::Question;
use xk_core::map::Key;
use xk_core::object::{OpenError, PushError, SessionSlot};
use xk_core::participant::{AddressError, PEERS_MAX};
use xk_core::reason::{self, Class};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, Reason,
    SessionRef, Time, Upper,
};

/// Largest number of peers of one conversation.
pub const MEMBERS_MAX: usize = PEERS_MAX;

/// The sender of a message is none of the conversation's peers, and may not join it.
pub static NOT_A_MEMBER: Reason = Reason::new("not a member", Class::NotMine);

/// Several sessions below: one for each peer that an open named, and one for each that
/// [joined](super::Layer::joins). A key alone finds the conversation.
///
/// A message that goes down with the attribute [`Peer`] goes to that peer, any other to each of
/// them. A message that comes up bears its sender as [`Peer`]; the port is 0 where the layer below
/// has none.
///
/// The way to a peer that an open named is opened again, for the next message, when it has ended. A
/// peer that joined leaves when its way ends.
///
/// Of a conversation [in a group](Self::in_group) messages come by that group as well, and
/// [`send_to_all`](Conversation::send_to_all) sends by it.
#[derive(Default)]
pub struct Many {
    /// The members by number.
    members: RefCell<Vec<Rc<Member>>>,
    /// Number of the member that came last.
    last: Cell<u64>,
    /// The group that all peers have joined.
    group: Option<HostAddr>,
    /// The session below to the group, once a message was sent there; and until when none is.
    way_to_group: SessionSlot,
    avoided: Cell<Time>,
}

/// One peer.
struct Member {
    /// Number that no other member of the conversation has or had.
    number: u64,
    peer: Peer,
    /// Both ends, if an open named the peer: the way is this layer's to open and to close.
    ends: Option<Participants>,
    way: SessionSlot,
    /// Number of the way, for the search of each message's.
    way_id: Cell<u64>,
    /// Number of another session below by which messages of the peer come, such as one for those
    /// to a group.
    other_id: Cell<u64>,
    /// True while a way that a message made is held for the conversation.
    holds: Cell<bool>,
}

impl Member {
    /// Goes by another session below from now on.
    fn take(&self, this: &SessionRef, way: &SessionRef) {
        this.stand_on(way);
        self.way_id.set(way.id().0);
        drop(self.way.replace(Some(way.clone())));
    }

    /// Whether it is this peer; one without a host is like no other.
    fn is(&self, peer: Peer) -> bool {
        self.peer == peer && !peer.host.is_unspecified()
    }

    /// Holds a way that a message made, for a conversation that is held.
    fn hold(&self) {
        if self.ends.is_none()
            && let Some(way) = self.way.get()
            && !self.holds.replace(true)
        {
            way.hold();
        }
    }

    /// Takes back what [`hold`](Self::hold) did.
    fn ease(&self, cx: &Kernel) {
        if let Some(way) = self.way.get()
            && self.holds.replace(false)
        {
            way.ease(cx);
        }
    }

    /// Releases the way.
    fn part(&self, cx: &Kernel) {
        self.ease(cx);
        if let Some(way) = self.way.take()
            && self.ends.is_some()
        {
            way.close(cx);
        }
    }
}

/// Returns the host and the port of the other end of a session below; zeros where there are none.
pub fn peer_of(cx: &Kernel, way: &SessionRef) -> Peer {
    let host = way.ask(cx, PeerHost::default()).unwrap_or_default().host;
    let port = way.ask(cx, PeerPort::default()).unwrap_or_default().port;
    Peer { host, port }
}

/// Returns the ends of each way that an open asks for.
fn pairs(ends: &Participants) -> Result<Vec<Participants>, OpenError> {
    let local = ends.iter().next().filter(|_| ends.len() > 1).ok_or(AddressError::Count)?;
    let pair = |peer: &Participant| Participants::pair(local.clone(), peer.clone());
    Ok(ends.peers().iter().map(pair).collect())
}

impl Many {
    /// Returns the peers, in the order in which they came.
    pub fn peers(&self) -> Vec<Peer> {
        self.members.borrow().iter().map(|member| member.peer).collect()
    }

    /// Has messages come by a group as well, if there is one: all peers have joined it.
    #[must_use]
    pub fn in_group(self, group: Option<HostAddr>) -> Self {
        Self { group, ..self }
    }

    /// Returns whether a session below that a message made is for those that were sent to the
    /// group.
    ///
    /// # Errors
    /// Why a conversation may not go by it: it is for those to many others.
    pub fn comes_by_group(
        cx: &Kernel,
        lower: &SessionRef,
        group: Option<HostAddr>,
    ) -> Result<bool, &'static Reason> {
        match cx.unless_lost(|| lower.ask(cx, SpecificDestination::default()))? {
            Some(SpecificDestination { many: true, host }) if group == Some(host) => Ok(true),
            Some(SpecificDestination { many: true, .. }) => Err(&TO_MANY),
            _ => Ok(false),
        }
    }

    /// The way to the group, opened if it is not open; `None` if there is no group, if it cannot be
    /// opened, or if there is but one peer, which is reached without it.
    fn way_to_group(&self, Acting { cx, this, lower }: Acting<'_>) -> Option<SessionRef> {
        let group = self.group.filter(|_| self.members.borrow().len() > 1)?;
        if cx.now() < self.avoided.get() {
            return None;
        }
        if let Some(way) = self.way_to_group.live() {
            return Some(way);
        }
        // The peers know this host by the address that the ways to them have.
        let own = self.first()?.ask(cx, MyHost::default())?.host;
        let ends = Participants::pair(Part::Host(own), Part::Host(group));
        let way = lower.open(cx, Upper::new(&this.protocol(cx)?), ends).ok()?;
        // The open may have blocked: the conversation may be closed, or another message quicker.
        if this.head().is_closed() || self.way_to_group.live().is_some() {
            way.close(cx);
            return self.way_to_group.live();
        }
        drop(self.way_to_group.replace(Some(way.clone())));
        Some(way)
    }

    /// Sends to each peer until then, and not to the group, which does not reach them all.
    pub fn avoid_group(&self, until: Time) {
        self.avoided.set(until);
    }

    /// Takes a peer off the conversation; false if it is none of its peers. A way that was opened
    /// for it is closed.
    pub fn remove(&self, cx: &Kernel, peer: Peer) -> bool {
        let found = self.find(|member| member.is(peer));
        found.iter().for_each(|member| self.part_with(cx, member));
        found.is_some()
    }

    fn part_with(&self, cx: &Kernel, member: &Rc<Member>) {
        self.members.borrow_mut().retain(|other| !Rc::ptr_eq(other, member));
        member.part(cx);
    }

    fn add(&self, peer: Peer, ends: Option<Participants>, way: &SessionRef) -> Rc<Member> {
        self.last.set(self.last.get() + 1);
        let member = Rc::new(Member {
            number: self.last.get(),
            peer,
            ends,
            way: SessionSlot::new(Some(way.clone())),
            way_id: Cell::new(way.id().0),
            other_id: Cell::new(way.id().0),
            holds: Cell::new(false),
        });
        self.members.borrow_mut().push(Rc::clone(&member));
        member
    }

    fn find(&self, is_meant: impl Fn(&Member) -> bool) -> Option<Rc<Member>> {
        self.members.borrow().iter().find(|member| is_meant(member)).cloned()
    }

    fn find_by(&self, way: &SessionRef) -> Option<Rc<Member>> {
        self.find(|member| member.way_id.get() == way.id().0)
    }

    /// The member behind this number, up to the last.
    fn next(&self, number: u64, last: u64) -> Option<Rc<Member>> {
        self.find(|member| number < member.number && member.number <= last)
    }

    fn joined(&self) -> Option<Rc<Member>> {
        self.find(|member| member.ends.is_none())
    }

    /// Opens the ways to those of the peers that are not there yet, and then takes these in; if one
    /// cannot be opened, or there are too many, nothing has changed.
    fn open_each(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        ends: &Participants,
    ) -> Result<Vec<SessionRef>, OpenError> {
        let mut opened: Vec<(Peer, Participants, SessionRef)> = Vec::new();
        let mut open = |ends: Participants| {
            if self.find(|member| member.ends.as_ref() == Some(&ends)).is_none() {
                let way = lower.open(cx, Upper::new(this), ends.clone())?;
                opened.push((peer_of(cx, &way), ends, way));
            }
            Ok(())
        };
        let result = pairs(ends).and_then(|all| all.into_iter().try_for_each(&mut open));
        let mut fresh: Vec<(Peer, Participants, SessionRef)> = Vec::new();
        for (peer, ends, way) in opened {
            let is_named = self.find(|m| m.is(peer) && m.ends.is_some()).is_some();
            // Some are named twice, by names that differ.
            match is_named || fresh.iter().any(|(_, _, other)| *other == way) {
                true => way.close(cx),
                false => fresh.push((peer, ends, way)),
            }
        }
        let named = self.members.borrow().iter().filter(|m| m.ends.is_some()).count();
        let fits = named + fresh.len() <= MEMBERS_MAX;
        if let Err(error) = result.and_then(|()| fits.then_some(()).ok_or(OpenError::Full)) {
            fresh.into_iter().for_each(|(.., way)| way.close(cx));
            return Err(error);
        }
        let mut ways = Vec::new();
        for (peer, ends, way) in fresh {
            let before = self.find(|member| member.is(peer));
            self.add(peer, Some(ends), &way);
            // From now on the way to a peer that joined before is this layer's own.
            before.iter().for_each(|member| self.part_with(cx, member));
            ways.push(way);
        }
        while self.members.borrow().len() > MEMBERS_MAX
            && let Some(first) = self.joined()
        {
            self.part_with(cx, &first);
        }
        Ok(ways)
    }

    /// Returns the way to a member, opened again if it has ended.
    fn way_to(&self, acting: Acting<'_>, member: &Member) -> Result<SessionRef, PushError> {
        let Acting { cx, this, lower } = acting;
        if let Some(way) = member.way.live() {
            return Ok(way);
        }
        let (Some(ends), Some(protocol)) = (&member.ends, this.protocol(cx)) else {
            return Err(PushError::NoRoute);
        };
        let way = lower.open(cx, Upper::new(&protocol), ends.clone())?;
        // The open may have blocked: the conversation may be closed, or another message quicker.
        if this.head().is_closed() {
            way.close(cx);
            return Err(PushError::Closed);
        }
        if let Some(other) = member.way.live() {
            way.close(cx);
            return Ok(other);
        }
        if self.find(|other| other.number == member.number).is_none() {
            way.close(cx);
            return Err(PushError::NoRoute);
        }
        member.take(this, &way);
        Ok(way)
    }

    fn send_to(
        &self,
        acting: Acting<'_>,
        member: &Member,
        message: Message,
    ) -> Result<(), PushError> {
        match self.way_to(acting, member) {
            Ok(way) => way.push(acting.cx, message),
            Err(error) => {
                acting.this.discard(acting.cx, message, &NO_WAY);
                Err(error)
            }
        }
    }

    /// Returns the least of the octets that the ways answer to a question of a size.
    fn least<Q: Question + Default>(&self, cx: &Kernel, octets: fn(Q) -> u32) -> Option<u32> {
        let live = |member: &Rc<Member>| member.way.live();
        let ways: Vec<_> = self.members.borrow().iter().filter_map(live).collect();
        ways.iter().filter_map(|way| way.ask(cx, Q::default()).map(octets)).min()
    }
}

impl Ways for Many {
    /// The key alone.
    type Place<K: Key> = K;

    const MANY: bool = true;

    fn place<K: Key>(_: &SessionRef, key: K) -> K {
        key
    }

    fn place_of<K: Key>(key: K, _: &Participants) -> Option<K> {
        Some(key)
    }

    /// Refuses a session below for messages that were sent to many hosts.
    fn admits(cx: &Kernel, lower: &SessionRef) -> Result<(), &'static Reason> {
        Self::comes_by_group(cx, lower, None).map(drop)
    }

    fn begin(cx: &Kernel, lower: &SessionRef) -> Self {
        let many = Self::default();
        many.add(peer_of(cx, lower), None, lower);
        many
    }

    fn open(
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        ends: Participants,
    ) -> Result<Self, OpenError> {
        let many = Self::default();
        many.open_each(cx, this, lower, &ends).map(|_| many)
    }

    fn extend(&self, acting: Acting<'_>, ends: &Participants) -> Result<(), OpenError> {
        let Acting { cx, this, lower } = acting;
        let protocol = this.protocol(cx).ok_or(OpenError::NoLower)?;
        let opened = self.open_each(cx, &protocol, lower, ends)?;
        opened.iter().for_each(|way| this.stand_on(way));
        let head = this.head();
        if head.is_closed() {
            // It was closed while a layer below waited, with the ways that it had by then.
            self.close(acting);
            return Err(OpenError::NoLower);
        }
        // This open is the first holder: the strangers that made the conversation are no part of
        // it, unless they are named.
        while head.is_passive()
            && head.opens() == 1
            && let Some(stranger) = self.joined()
        {
            self.part_with(cx, &stranger);
        }
        Ok(())
    }

    fn first(&self) -> Option<SessionRef> {
        self.next(0, u64::MAX).and_then(|member| member.way.get())
    }

    fn send(&self, acting: Acting<'_>, mut message: Message) -> Result<(), PushError> {
        if let Some(peer) = message.remove_attribute::<Peer>() {
            let Some(member) = self.find(|member| member.is(peer)) else {
                acting.this.discard(acting.cx, message, &NOT_A_MEMBER);
                return Err(PushError::NoRoute);
            };
            return self.send_to(acting, &member, message);
        }
        // Members may go and come while a push waits.
        let (last, mut sent) = (self.last.get(), Ok(()));
        let Some(mut member) = self.next(0, last) else {
            acting.this.discard(acting.cx, message, &NO_WAY);
            return Err(PushError::NoRoute);
        };
        while let Some(next) = self.next(member.number, last) {
            let copy = copy_of(acting.cx, acting.this, &message);
            sent = sent.and(copy.and_then(|copy| self.send_to(acting, &member, copy)));
            member = next;
        }
        sent.and(self.send_to(acting, &member, message))
    }

    fn ask(&self, cx: &Kernel, lower: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if has_no_answer(ask) {
            return Answer::Unknown;
        }
        if let Some(question) = ask.get::<MaxPacket>()
            && let Some(least) = self.least(cx, |said: MaxPacket| said.octets)
        {
            question.octets = least;
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<OptPacket>()
            && let Some(least) = self.least(cx, |said: OptPacket| said.octets)
        {
            question.octets = least;
            return Answer::Answered;
        }
        let (members, first) = (self.members.borrow().len(), self.first());
        match (members, first) {
            (1, Some(way)) => way.control(cx, ask),
            // The peers differ in what there is to say of them.
            _ if ask.get::<PeerHost>().is_some() || ask.get::<PeerPort>().is_some() => {
                Answer::Unknown
            }
            (_, Some(way)) => way.control(cx, ask),
            (_, None) => lower.control(cx, ask),
        }
    }

    fn each(&self, see: &mut dyn FnMut(&SessionRef)) {
        self.members.borrow().iter().filter_map(|m| m.way.get()).for_each(|way| see(&way));
    }

    fn note(
        &self,
        acting: Acting<'_>,
        lower: &SessionRef,
        message: &mut Message,
        joins: impl FnOnce(&Message) -> bool,
    ) -> Result<(), &'static Reason> {
        let Acting { cx, this, .. } = acting;
        let id = lower.id().0;
        let known = self.find(|member| member.way_id.get() == id || member.other_id.get() == id);
        let peer = match &known {
            Some(member) => member.peer,
            None => {
                let _ = Self::comes_by_group(cx, lower, self.group)?;
                cx.unless_lost(|| peer_of(cx, lower))?
            }
        };
        if this.head().is_closed() || lower.head().is_closed() {
            return Err(&reason::CLOSED);
        }
        message.set_attribute(peer).map_err(|_| &ATTRIBUTES_FULL)?;
        if known.is_some() {
            return Ok(());
        }
        if let Some(member) = self.find(|member| member.is(peer)) {
            // It comes through another session below than before, which may have ended.
            if member.ends.is_none() && member.way.live().is_none() {
                member.holds.set(false);
                member.take(this, lower);
                if this.head().opens() > 0 {
                    member.hold();
                }
            } else {
                member.other_id.set(id);
            }
            return Ok(());
        }
        if !joins(message) {
            return Err(&NOT_A_MEMBER);
        }
        if self.members.borrow().len() >= MEMBERS_MAX {
            // The one that joined first makes room, and may join again.
            let first = self.joined().ok_or(&reason::TABLE_FULL)?;
            self.part_with(cx, &first);
        }
        let member = self.add(peer, None, lower);
        if this.head().opens() > 0 {
            member.hold();
        }
        this.stand_on(lower);
        Ok(())
    }

    fn way_back(&self, message: &Message) -> Option<SessionRef> {
        let peer = message.attribute::<Peer>()?;
        self.find(|member| member.is(peer))?.way.live()
    }

    fn lost(&self, way: &SessionRef) -> bool {
        if let Some(member) = self.find_by(way) {
            drop(member.way.take());
            if member.ends.is_none() {
                self.members.borrow_mut().retain(|other| !Rc::ptr_eq(other, &member));
            }
        }
        self.members.borrow().is_empty()
    }

    fn hold(&self) {
        self.members.borrow().iter().for_each(|member| member.hold());
    }

    fn ease(&self, cx: &Kernel) {
        let members = self.members.borrow().clone();
        members.iter().for_each(|member| member.ease(cx));
    }

    fn close(&self, acting: Acting<'_>) {
        let members = self.members.take();
        members.iter().for_each(|member| member.part(acting.cx));
        self.way_to_group.close(acting.cx);
    }
}

impl<L: Layer<N, Many>, const N: usize> Conversation<L, N, Many> {
    /// Sends a message of the layer's own, its header in front, to all peers: once to their group,
    /// or to each of them where there is no way to a group.
    ///
    /// # Errors
    /// As of [`push`](xk_core::Session::push).
    pub fn send_to_all(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        let Some(way) = self.ways.way_to_group(self.acting(cx, this)) else {
            return self.send(cx, this, message);
        };
        // Without room for this a copy comes back, whose sender is none of the peers.
        let _ = message.set_attribute(Sending { stays_out: true, ..Sending::default() });
        way.push(cx, message)
    }
}
