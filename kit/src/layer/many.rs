//! A conversation of several peers, each behind a session below of its own.

use super::ways::{Acting, Ways};
use crate::answers::is_for_one;
use crate::control::{MaxPacket, OptPacket, PeerHost, PeerPort};
use crate::net::attribute::Peer;
use crate::net::ports::ATTRIBUTES_FULL;
use crate::net::receivers::has_no_answer;
use crate::net::template::Headers;
use crate::net::virtual_layer::NO_WAY;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::map::Key;
use xk_core::object::{OpenError, PushError, SessionSlot};
use xk_core::participant::{AddressError, PARTICIPANTS_MAX};
use xk_core::reason::{self, Class};
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, ProtocolRef, Reason, SessionRef, Upper,
};

/// Largest number of peers of one conversation.
pub const MEMBERS_MAX: usize = PARTICIPANTS_MAX - 1;

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
pub struct Many {
    members: RefCell<Vec<Rc<Member>>>,
}

/// One peer.
struct Member {
    peer: Peer,
    /// Both ends, if an open named the peer: the way is this layer's to open and to close.
    ends: Option<Participants>,
    way: SessionSlot,
    /// Number of the way, for the search of each message's.
    way_id: Cell<u64>,
    /// True while a way that a message made is held for the conversation.
    holds: Cell<bool>,
}

impl Member {
    fn new(peer: Peer, ends: Option<Participants>, way: &SessionRef) -> Rc<Self> {
        let (way, way_id) = (SessionSlot::new(Some(way.clone())), Cell::new(way.id().0));
        Rc::new(Self { peer, ends, way, way_id, holds: Cell::new(false) })
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

/// Returns the peer of a session below.
fn peer_of(cx: &Kernel, way: &SessionRef) -> Peer {
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

    /// Takes a peer off the conversation; false if it is none of its peers. A way that was opened
    /// for it is closed.
    pub fn remove(&self, cx: &Kernel, peer: Peer) -> bool {
        let found = self.find(|member| member.peer == peer);
        if let Some(member) = &found {
            self.members.borrow_mut().retain(|other| !Rc::ptr_eq(other, member));
            member.part(cx);
        }
        found.is_some()
    }

    fn find(&self, is_meant: impl Fn(&Member) -> bool) -> Option<Rc<Member>> {
        self.members.borrow().iter().find(|member| is_meant(member)).cloned()
    }

    fn find_by(&self, way: &SessionRef) -> Option<Rc<Member>> {
        self.find(|member| member.way_id.get() == way.id().0)
    }

    fn at(&self, at: usize) -> Option<Rc<Member>> {
        self.members.borrow().get(at).cloned()
    }

    /// Makes room for one more member: the one that joined first goes, and may join again. `None`
    /// if an open has named all of them.
    fn make_room(&self, cx: &Kernel) -> Option<()> {
        if self.members.borrow().len() >= MEMBERS_MAX {
            let first = self.find(|member| member.ends.is_none())?;
            self.remove(cx, first.peer);
        }
        Some(())
    }

    /// Opens the ways to those of the peers that are not there yet; those of a failed attempt are
    /// closed again.
    fn open_each(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        ends: &Participants,
    ) -> Result<Vec<SessionRef>, OpenError> {
        let mut opened: Vec<(SessionRef, Rc<Member>)> = Vec::new();
        let mut open = |ends: Participants| {
            if self.find(|member| member.ends.as_ref() == Some(&ends)).is_some() {
                return Ok(());
            }
            self.make_room(cx).ok_or(OpenError::Full)?;
            let way = lower.open(cx, Upper::new(this), ends.clone())?;
            let peer = peer_of(cx, &way);
            if self.find(|member| member.peer == peer && member.ends.is_some()).is_some() {
                // Named twice, by names that differ.
                way.close(cx);
                return Ok(());
            }
            // From now on the way to a peer that joined before is this layer's own.
            self.remove(cx, peer);
            let member = Member::new(peer, Some(ends), &way);
            self.members.borrow_mut().push(Rc::clone(&member));
            opened.push((way, member));
            Ok(())
        };
        let result = pairs(ends).and_then(|all| all.into_iter().try_for_each(&mut open));
        if let Err(error) = result {
            for (_, member) in opened {
                self.remove(cx, member.peer);
            }
            return Err(error);
        }
        Ok(opened.into_iter().map(|(way, _)| way).collect())
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
        this.stand_on(&way);
        member.way_id.set(way.id().0);
        drop(member.way.replace(Some(way.clone())));
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

    /// Answers the least of what the ways say.
    fn least(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        let ways: Vec<_> =
            self.members.borrow().iter().filter_map(|member| member.way.live()).collect();
        if ways.is_empty() {
            return None;
        }
        if let Some(question) = ask.get::<MaxPacket>() {
            let said = ways.iter().filter_map(|way| way.ask(cx, MaxPacket::default()));
            question.octets = said.map(|said| said.octets).min()?;
        } else {
            let question = ask.get::<OptPacket>()?;
            let said = ways.iter().filter_map(|way| way.ask(cx, OptPacket::default()));
            question.octets = said.map(|said| said.octets).min()?;
        }
        Some(Answer::Answered)
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
        cx.unless_lost(|| is_for_one(cx, lower))?
    }

    fn begin(cx: &Kernel, lower: &SessionRef) -> Self {
        let member = Member::new(peer_of(cx, lower), None, lower);
        Self { members: RefCell::new([member].into()) }
    }

    fn open(
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        ends: Participants,
    ) -> Result<Self, OpenError> {
        let many = Self { members: RefCell::default() };
        many.open_each(cx, this, lower, &ends).map(|_| many)
    }

    fn extend(&self, acting: Acting<'_>, ends: &Participants) -> Result<(), OpenError> {
        let Acting { cx, this, lower } = acting;
        let protocol = this.protocol(cx).ok_or(OpenError::NoLower)?;
        let opened = self.open_each(cx, &protocol, lower, ends)?;
        opened.iter().for_each(|way| this.stand_on(way));
        match this.head().is_closed() {
            // It was closed while a layer below waited, with the ways that it had by then.
            true => {
                self.close(acting);
                Err(OpenError::NoLower)
            }
            false => Ok(()),
        }
    }

    fn first(&self) -> Option<SessionRef> {
        self.at(0).and_then(|member| member.way.get())
    }

    fn send(&self, acting: Acting<'_>, mut message: Message) -> Result<(), PushError> {
        if let Some(peer) = message.remove_attribute::<Peer>() {
            let Some(member) = self.find(|member| member.peer == peer) else {
                acting.this.discard(acting.cx, message, &NOT_A_MEMBER);
                return Err(PushError::NoRoute);
            };
            return self.send_to(acting, &member, message);
        }
        let (mut at, mut sent) = (0, Ok(()));
        while let Some(member) = self.at(at) {
            at += 1;
            if self.members.borrow().len() <= at {
                return sent.and(self.send_to(acting, &member, message));
            }
            sent = sent.and(match message.try_clone() {
                Ok(copy) => self.send_to(acting, &member, copy),
                Err(_) => Err(PushError::NoBuffers),
            });
        }
        acting.this.discard(acting.cx, message, &NO_WAY);
        sent.and(Err(PushError::NoRoute))
    }

    fn headers(&self, _: &Kernel) -> Option<Headers> {
        None
    }

    fn ask(&self, cx: &Kernel, lower: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if has_no_answer(ask) {
            return Answer::Unknown;
        }
        if let Some(answer) = self.least(cx, ask) {
            return answer;
        }
        match (self.members.borrow().len(), self.first()) {
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
        let known = self.find_by(lower);
        let peer = match &known {
            Some(member) => member.peer,
            None => {
                Self::admits(cx, lower)?;
                cx.unless_lost(|| peer_of(cx, lower))?
            }
        };
        message.set_attribute(peer).map_err(|_| &ATTRIBUTES_FULL)?;
        if known.is_some() || self.find(|member| member.peer == peer).is_some() {
            return Ok(());
        }
        if !joins(message) {
            return Err(&NOT_A_MEMBER);
        }
        self.make_room(cx).ok_or(&reason::TABLE_FULL)?;
        let member = Member::new(peer, None, lower);
        if this.head().opens() > 0 {
            member.hold();
        }
        self.members.borrow_mut().push(member);
        this.stand_on(lower);
        Ok(())
    }

    fn way_back(&self, message: &Message) -> Option<SessionRef> {
        let peer = message.attribute::<Peer>()?;
        self.find(|member| member.peer == peer)?.way.live()
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
    }
}
