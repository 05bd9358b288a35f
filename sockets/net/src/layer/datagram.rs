//! Datagrams: one port, any peers or one.

use super::groups::{Groups, is_multicast};
use super::ports::{Sharing, Transport};
use super::socket::gather;
use super::{Body, Layer, Socket, ends, participant};
use crate::address::{ANY, Endpoint};
use crate::error;
use crate::ready::{Ready, Status};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use xk_core::object::{PushError, Refused};
use xk_core::{
    HostAddr, Kernel, Message, Part, Participant, Participants, ProtocolRef, SessionRef, Upper,
    reason,
};
use xk_kit::control::{IsGroup, MyPort, NetworkErrorKind, TellArrivals};
use xk_kit::net::attribute::{Arrived, LinkCast, Sending};

/// The largest datagram's payload, in octets (RFC 768 on RFC 791).
pub(crate) const DATAGRAM_OCTETS_MAX: usize = 65_507;
/// Octets that a waiting datagram counts besides its own.
const OVERHEAD_OCTETS: usize = 256;
/// Times that a free port is looked for which no socket of ours has for another host.
const TRIES: usize = 16;

/// Result of receiving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Octets that were passed on.
    pub(crate) octets: usize,
    /// Octets of the whole datagram.
    pub(crate) length: usize,
    /// Sender of the datagram.
    pub(crate) from: Endpoint,
    /// The fields of its header, if they are told.
    pub(crate) arrived: Option<Arrived>,
}

/// Destination and header options of a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct To {
    /// The peer, if it is not the connected one.
    pub(crate) peer: Option<Endpoint>,
    /// The fields that its sender asks for.
    pub(crate) sending: Sending,
}

/// The sockets that have one address together; most are alone.
pub(super) struct Group {
    /// Receives from all peers, and keeps the port.
    session: SessionRef,
    /// Their places in the table, the newest last.
    members: RefCell<Vec<u32>>,
    /// The groups that they have joined together.
    joins: Cell<usize>,
    /// Whether it is looked for the members that a datagram is for.
    spreads: Cell<bool>,
}

impl Group {
    /// The members or their groups have changed.
    fn update(&self) {
        self.spreads.set(self.members.borrow().len() > 1 || self.joins.get() > 0);
    }
}

/// One port that datagrams come to.
pub(crate) struct Datagrams {
    local: Cell<Endpoint>,
    bound: Endpoint,
    sharing: Cell<Sharing>,
    group: Rc<Group>,
    /// The one peer, if the socket is connected.
    one: RefCell<Option<(SessionRef, Endpoint)>>,
    arrived: RefCell<VecDeque<(Message, Endpoint)>>,
    arrived_octets: Cell<usize>,
    pub(crate) octets_max: Cell<usize>,
    /// Datagrams may go to everybody.
    pub(crate) broadcast: Cell<bool>,
    pub(crate) groups: Groups,
    /// The groups of [`Self::groups`] that its company knows of.
    joins: Cell<usize>,
    read_shut: Cell<bool>,
    write_shut: Cell<bool>,
}

impl Datagrams {
    #[inline]
    pub(super) fn has(&self, session: &SessionRef) -> bool {
        self.group.session == *session
            || matches!(&*self.one.borrow(), Some((one, _)) if one == session)
    }

    pub(super) fn forget(&self) {
        drop(self.one.take());
        drop(self.arrived.take());
    }

    /// True if the session has gone by which they come.
    pub(crate) fn is_over(&self) -> bool {
        self.group.session.head().is_closed()
    }

    /// Whether others have its address, too.
    fn is_in_company(&self) -> bool {
        self.group.members.borrow().len() > 1
    }

    /// Whether what comes is not all for this one: others have its address, too, or one of them has
    /// joined groups.
    #[inline]
    pub(super) fn is_spread(&self) -> bool {
        self.group.spreads.get()
    }

    /// The session by which datagrams come from all peers.
    pub(super) fn session(&self) -> &SessionRef {
        &self.group.session
    }

    /// The groups that it has joined have changed.
    pub(super) fn update(&self) {
        let (before, now) = (self.joins.replace(self.groups.len()), self.groups.len());
        self.group.joins.set(self.group.joins.get() + now - before);
        self.group.update();
    }

    pub(super) fn addresses(&self) -> (Endpoint, Option<Endpoint>) {
        let peer = self.one.borrow().as_ref().map(|(_, peer)| *peer);
        (self.local.get(), peer)
    }

    /// Octets of the datagram that waits first.
    pub(crate) fn unread(&self) -> usize {
        self.arrived.borrow().front().map_or(0, |(message, _)| message.len())
    }

    /// A datagram has arrived.
    pub(super) fn take(
        &self,
        this: &ProtocolRef,
        lower: &SessionRef,
        status: &Arc<Status>,
        mut message: Message,
    ) -> Result<(), Refused> {
        let from = match message.remove_attribute::<Endpoint>() {
            // A socket that is connected hears its peer alone.
            Some(_) if self.one.borrow().is_some() => {
                return Err(this.refuse(message, &reason::NO_PORT));
            }
            Some(peer) => peer,
            None => match &*self.one.borrow() {
                Some((one, peer)) if one == lower => *peer,
                _ => return Err(this.refuse(message, &reason::NOT_MINE)),
            },
        };
        let octets = self.arrived_octets.get() + message.len() + OVERHEAD_OCTETS;
        if octets > self.octets_max.get() || self.read_shut.get() {
            this.discard(message, &reason::QUEUE_FULL);
            return Ok(());
        }
        self.arrived_octets.set(octets);
        self.arrived.borrow_mut().push_back((message, from));
        status.raise(Ready::READABLE);
        Ok(())
    }

    /// Passes the octets of the next datagram to `take`, slice by slice, at most `octets_max` of
    /// them; the rest is lost with it, unless it is but a `peek`.
    ///
    /// # Errors
    /// `EAGAIN` if there is none; `ENETDOWN` if none comes any more; what the network has reported.
    pub(crate) fn receive(
        &self,
        socket: &Socket,
        octets_max: usize,
        peek: bool,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Received, Errno> {
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        let mut arrived = self.arrived.borrow_mut();
        let Some((message, from)) = arrived.front() else {
            if self.read_shut.get() {
                let from = ANY;
                return Ok(Received { octets: 0, length: 0, from, arrived: None });
            }
            if self.is_over() {
                return Err(Errno::NETDOWN);
            }
            socket.status.lower(Ready::READABLE);
            return Err(Errno::AGAIN);
        };
        let (length, from, said) = (message.len(), *from, message.attribute::<Arrived>());
        let mut octets = 0;
        for slice in message.slices() {
            let fits = slice.octets.len().min(octets_max - octets);
            take(&slice.octets[..fits]);
            octets += fits;
        }
        if !peek {
            drop(arrived.pop_front());
            let left = self.arrived_octets.get() - length - OVERHEAD_OCTETS;
            self.arrived_octets.set(left);
            if arrived.is_empty() && !self.read_shut.get() {
                socket.status.lower(Ready::READABLE);
            }
        }
        Ok(Received { octets, length, from, arrived: said })
    }

    /// Sends one datagram, to the connected peer or to the one named.
    ///
    /// # Errors
    /// What the network has reported; why it did not go.
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        socket: &Socket,
        from: &[IoSlice<'_>],
        to: To,
    ) -> Result<usize, Errno> {
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        if self.is_over() {
            return Err(Errno::NETDOWN);
        }
        if self.write_shut.get() {
            return Err(Errno::PIPE);
        }
        let length = from.iter().map(|slice| slice.len()).sum::<usize>();
        if length > DATAGRAM_OCTETS_MAX {
            return Err(Errno::MSGSIZE);
        }
        let (session, peer, sending) = self.way(to)?;
        let push = || {
            let mut message = gather(cx, from, 0, length).map_err(|_| PushError::NoBuffers)?;
            if let Some(peer) = peer {
                let named = message.set_attribute(peer);
                named.map_err(|_| PushError::NoBuffers)?;
            }
            if sending != Sending::default() {
                let asked = message.set_attribute(sending);
                asked.map_err(|_| PushError::NoBuffers)?;
            }
            session.push(cx, message)
        };
        let mut result = push();
        if result == Err(PushError::Unreachable) {
            // The layer below tells by it what was reported of an earlier datagram, and so does the
            // socket: once.
            result = match socket.take_error() {
                Some(error) => return Err(error),
                None => push(),
            };
        }
        match result {
            Ok(()) => Ok(length),
            Err(error) => Err(error::of_push(error)),
        }
    }

    /// The session that a datagram goes through, the peer to name in it, and header fields.
    fn way(&self, to: To) -> Result<(SessionRef, Option<Endpoint>, Sending), Errno> {
        let Some(peer) = to.peer else {
            let one = self.one.borrow();
            let (session, peer) = one.as_ref().ok_or(Errno::DESTADDRREQ)?;
            return Ok((session.clone(), None, self.fields(peer.host, to.sending)));
        };
        if peer.port == 0 {
            return Err(Errno::INVAL);
        }
        if peer.host == HostAddr::BROADCAST && !self.broadcast.get() {
            return Err(Errno::ACCESS);
        }
        Ok((self.group.session.clone(), Some(peer), self.fields(peer.host, to.sending)))
    }

    /// The header fields of a datagram to this host.
    #[inline]
    fn fields(&self, host: HostAddr, asked: Sending) -> Sending {
        match self.groups.has_fields.get() && is_multicast(host) {
            true => self.groups.fill(asked),
            false => asked,
        }
    }

    /// Ends one direction or both, as shutdown(2) does with datagrams.
    ///
    /// # Errors
    /// `ENOTCONN` without a peer.
    pub(crate) fn shutdown(&self, socket: &Socket, how: Shutdown) -> Result<(), Errno> {
        if self.one.borrow().is_none() {
            return Err(Errno::NOTCONN);
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.read_shut.set(true);
            socket.status.raise(Ready::READABLE | Ready::READ_CLOSED);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.write_shut.set(true);
            socket.status.raise(Ready::WRITABLE | Ready::WRITE_CLOSED);
        }
        Ok(())
    }
}

/// The network reports something about a datagram of this socket: one that is connected hears of it
/// (RFC 1122, section 4.1.3.3) if trying again is of no use, as on Linux.
pub(super) fn report(socket: &Socket, kind: NetworkErrorKind) {
    let Body::Datagrams(datagrams) = &socket.body else {
        return;
    };
    if datagrams.one.borrow().is_some() && kind.is_hard() {
        socket.error.set(Some(error::of_network(kind)));
        socket.status.raise(Ready::ERROR | Ready::READABLE | Ready::WRITABLE);
    }
}

impl Layer {
    /// A socket for datagrams at `local`; at a free port if that is zero.
    pub(crate) fn datagrams(
        &self,
        cx: &Kernel,
        local: Endpoint,
        sharing: Sharing,
    ) -> Result<Rc<Socket>, Errno> {
        let udp = self.udp()?;
        // A group may be joined afterwards.
        if !is_multicast(local.host) {
            self.check_local(cx, &udp, local.host)?;
        }
        let (bound, group) = self.bind_datagrams(cx, &udp, local, sharing)?;
        let added = self.add(Body::Datagrams(Datagrams {
            local: Cell::new(bound),
            bound,
            sharing: Cell::new(sharing),
            group: Rc::clone(&group),
            one: RefCell::default(),
            arrived: RefCell::default(),
            arrived_octets: Cell::new(0),
            octets_max: Cell::new(self.limits.datagram_octets),
            broadcast: Cell::new(false),
            groups: Groups::default(),
            joins: Cell::new(0),
            read_shut: Cell::new(false),
            write_shut: Cell::new(false),
        }));
        match added {
            Ok(socket) => {
                group.members.borrow_mut().push(socket.place);
                group.update();
                group.session.head().set_tag(socket.tag());
                socket.status.raise(Ready::WRITABLE);
                Ok(socket)
            }
            Err(error) => {
                self.leave(cx, &group, bound);
                self.ports.unbind(Transport::Udp, bound, sharing);
                Err(error)
            }
        }
    }

    /// A group without members gives its port back; else the newest of those left hears.
    fn leave(&self, cx: &Kernel, group: &Group, bound: Endpoint) {
        match group.members.borrow().last() {
            Some(newest) => group.session.head().set_tag(newest + 1),
            None => {
                self.groups.borrow_mut().remove(&bound);
                group.session.close(cx);
            }
        }
    }

    /// The session of a group has gone: all of its sockets are told.
    pub(super) fn end_datagrams(&self, datagrams: &Datagrams) {
        if datagrams.is_over() {
            self.members(&datagrams.group).iter().for_each(|member| member.fail(Errno::NETDOWN));
        }
    }

    /// The sockets of a group, the newest first.
    fn members(&self, group: &Group) -> Vec<Rc<Socket>> {
        let table = self.table.borrow();
        let at = |place: &u32| table.get(*place as usize).cloned().flatten();
        group.members.borrow().iter().rev().filter_map(at).collect()
    }

    /// A datagram has arrived for an address that several sockets have. As on Linux those that are
    /// not connected hear it: all of them what was sent to several hosts; else the newest, or the
    /// one that a hash of the peer's address names among those that share peers.
    #[cold]
    pub(super) fn spread(
        &self,
        this: &ProtocolRef,
        lower: &SessionRef,
        tagged: &Socket,
        message: Message,
    ) -> Result<(), Refused> {
        let Body::Datagrams(datagrams) = &tagged.body else {
            return Err(this.refuse(message, &reason::CLOSED));
        };
        let mut members = match datagrams.group.session == *lower {
            true => self.members(&datagrams.group),
            false => Vec::new(),
        };
        let to = message.attribute::<Arrived>().map(|said| said.to).filter(|to| is_multicast(*to));
        let from = message.attribute::<Endpoint>().map(|from| from.host).unwrap_or_default();
        let hears = |socket: &Rc<Socket>| match &socket.body {
            Body::Datagrams(member) => {
                let admits = |to| member.groups.admits(to, from);
                member.one.borrow().is_none() && to.is_none_or(admits)
            }
            Body::Stream(_) | Body::Listener(_) | Body::Talk(_) => false,
        };
        members.retain(hears);
        let Some(newest) = members.first() else {
            if to.is_some() {
                // None of them wants this source's.
                this.discard(message, &reason::NOT_MINE);
                return Ok(());
            }
            return datagrams.take(this, lower, &tagged.status, message);
        };
        if to.is_some() || message.attribute::<LinkCast>().is_some() {
            for member in &members[1..] {
                if let (Body::Datagrams(body), Ok(copy)) = (&member.body, message.try_clone()) {
                    body.take(this, lower, &member.status, copy)?;
                }
            }
        } else if shares_peers(newest) {
            members.retain(shares_peers);
            let peer = message.attribute::<Endpoint>();
            let at = peer.map_or(0, |peer| self.place_among(members.len(), peer));
            members.swap(0, at);
        }
        match members.first().map(|member| (&member.body, member)) {
            Some((Body::Datagrams(body), member)) => {
                body.take(this, lower, &member.status, message)
            }
            _ => Err(this.refuse(message, &reason::CLOSED)),
        }
    }

    /// Datagrams tell from now on what their headers said.
    pub(crate) fn tell_arrivals(&self, cx: &Kernel) -> Result<(), Errno> {
        let udp = self.udp()?;
        let number = udp.lower().and_then(|lower| Upper::new(&udp).number_on(cx, lower).ok());
        // Protocols that lie elsewhere may not know.
        let _ = number.map(|number| udp.ask(cx, TellArrivals { number }));
        Ok(())
    }

    /// Sets how `socket` shares its port from now on.
    pub(crate) fn share_datagrams(&self, datagrams: &Datagrams, sharing: Sharing) {
        let change = (datagrams.sharing.replace(sharing), sharing);
        self.ports.share(Transport::Udp, datagrams.bound, change);
    }

    fn bind_datagrams(
        &self,
        cx: &Kernel,
        udp: &ProtocolRef,
        local: Endpoint,
        sharing: Sharing,
    ) -> Result<(Endpoint, Rc<Group>), Errno> {
        let this = self.this()?;
        let tries = if local.port == 0 { TRIES } else { 1 };
        for _ in 0..tries {
            if local.port != 0 {
                self.ports.bind(Transport::Udp, local, sharing)?;
                if let Some(group) = self.groups.borrow().get(&local) {
                    return Ok((local, Rc::clone(group)));
                }
            }
            let everybody = Participant::of(Part::Any);
            let participants = Participants::pair(participant(local), everybody);
            let opened = udp.open(cx, Upper::new(&this), participants);
            let session = match opened {
                Ok(session) => session,
                Err(error) => {
                    self.ports.unbind(Transport::Udp, local, sharing);
                    return Err(error::of_open(error, true));
                }
            };
            if local.port != 0 {
                return Ok((local, self.group(local, session)));
            }
            let port = session.ask(cx, MyPort::default()).map_or(0, |q| q.port);
            let bound = Endpoint { host: local.host, port };
            // A port that is free shares nothing yet.
            let alone = Sharing::default();
            if self.ports.bind(Transport::Udp, bound, alone).is_ok() {
                self.ports.share(Transport::Udp, bound, (alone, sharing));
                return Ok((bound, self.group(bound, session)));
            }
            session.close(cx);
        }
        Err(Errno::ADDRINUSE)
    }

    fn group(&self, bound: Endpoint, session: SessionRef) -> Rc<Group> {
        session.watch();
        let (joins, spreads) = (Cell::new(0), Cell::new(false));
        let group = Rc::new(Group { session, members: RefCell::default(), joins, spreads });
        self.groups.borrow_mut().insert(bound, Rc::clone(&group));
        group
    }

    /// Joins `socket` to `peer` alone, or, if that is `None`, to every peer.
    pub(crate) fn connect_datagrams(
        &self,
        cx: &Kernel,
        socket: &Socket,
        peer: Option<Endpoint>,
    ) -> Result<(), Errno> {
        let Body::Datagrams(datagrams) = &socket.body else {
            return Err(Errno::INVAL);
        };
        let (udp, this) = (self.udp()?, self.this()?);
        // First, because the session to the same peer may be the same one.
        self.disconnect(cx, datagrams);
        datagrams.local.set(datagrams.bound);
        let Some(peer) = peer else {
            return Ok(());
        };
        let is_broadcast = !is_multicast(peer.host) && IsGroup::ask(cx, &udp, Some(peer.host));
        if is_broadcast && !datagrams.broadcast.get() {
            return Err(Errno::ACCESS);
        }
        let peer = Self::definite(cx, &udp, peer);
        let participants = Participants::pair(participant(datagrams.bound), participant(peer));
        let session = udp
            .open(cx, Upper::new(&this), participants)
            .map_err(|error| error::of_open(error, false))?;
        session.head().set_tag(socket.tag());
        let (local, _) = ends(cx, &session);
        datagrams.local.set(Endpoint { host: local.host, port: datagrams.bound.port });
        *datagrams.one.borrow_mut() = Some((session, peer));
        Ok(())
    }

    /// Releases the session with the one peer, which another of the group may have, too.
    fn disconnect(&self, cx: &Kernel, datagrams: &Datagrams) {
        let Some((session, _)) = datagrams.one.take() else {
            return;
        };
        if datagrams.is_in_company() {
            let members = self.members(&datagrams.group);
            if let Some(heir) = members.iter().find(|member| member.has(&session)) {
                session.head().set_tag(heir.tag());
            }
        }
        session.close(cx);
    }

    pub(super) fn close_datagrams(&self, cx: &Kernel, socket: &Socket, datagrams: &Datagrams) {
        self.disconnect(cx, datagrams);
        self.leave_groups(cx, datagrams);
        let (group, bound) = (&datagrams.group, datagrams.bound);
        let is_another = |place: &u32| *place != socket.place;
        group.members.borrow_mut().retain(is_another);
        datagrams.update();
        self.leave(cx, group, bound);
        let sharing = datagrams.sharing.get();
        self.ports.unbind(Transport::Udp, bound, sharing);
        drop(datagrams.arrived.take());
    }
}

fn shares_peers(socket: &Rc<Socket>) -> bool {
    matches!(&socket.body, Body::Datagrams(member) if member.sharing.get().port)
}
