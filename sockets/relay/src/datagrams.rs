//! A socket of the stack for datagrams, joined to one of the system that a program has.
//!
//! Each peer is a socket here, a *stand-in*, whose name says which it stands for. The program sends
//! to it and hears from it, so it finds senders, boundaries and its connected peer by the system's
//! own means.

use crate::folder::{Folder, SocketFile};
use crate::groups::{self, Wish};
use crate::options::{Options, doubled};
use crate::outside::Outside;
use crate::splice::{Next, SCRATCH, TURNS, blocks};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, sockopt,
};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xk_net::{Arrived, Sharing, Source, Stack, Thread, UdpSocket, WatchId};
use xk_request::{Kind, LOOPBACK_6, Manner, Name, Setting, is_of_linux, stand_in};

/// Peers of a socket at once; the one that was silent longest makes room.
const STAND_INS_MAX: usize = 256;

/// One peer.
struct StandIn {
    unix: OwnedFd,
    /// Number of the peer in the relay.
    number: u64,
    name: String,
    /// File of its socket, for the program.
    file: String,
    used: u64,
    /// True if it is a peer of Linux's.
    is_outside: bool,
    folder: Arc<Folder>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.folder.hide(&self.file);
    }
}

/// A peer, and how what is for it goes.
pub(crate) type Aim = (SocketAddrV4, Manner);

/// Function by which a stand-in gets a number in the relay, where it is watched.
pub(crate) type Watch<'w> = &'w mut dyn FnMut(&OwnedFd, Aim) -> io::Result<u64>;

/// Bounds the different control messages that are kept.
const NOTES_MAX: usize = 16;

/// A socket of the stack for datagrams, joined to one of the system.
pub(crate) struct Datagrams {
    socket: UdpSocket<Thread>,
    /// The program's, with the local address as it is now.
    name: Name,
    place: SocketFile,
    folder: Arc<Folder>,
    watch: WatchId,
    /// The program hears this peer alone.
    only: Option<SocketAddrV4>,
    peers: HashMap<Aim, StandIn>,
    uses: u64,
    /// Datagram that was taken from the stack and not yet given to the program.
    down: Option<(Arrival, Vec<u8>)>,
    /// Datagram that was taken from the program and not yet given to the stack.
    up: Option<(Aim, Vec<u8>)>,
    /// Control messages, each in a file that comes along with what they are about.
    notes: HashMap<Vec<u8>, OwnedFd>,
    /// Linux's side, if it is bound for any host, and its numbers in the relay.
    outside: Option<(Outside, Vec<u64>)>,
    error: Option<Errno>,
    broadcast: bool,
    options: Options,
    /// Datagrams that neither side got.
    lost: Arc<AtomicU64>,
}

/// A datagram that has arrived, without its octets.
#[derive(Clone, Copy)]
struct Arrival {
    from: SocketAddrV4,
    octets: usize,
    is_outside: bool,
    said: Option<Arrived>,
}

/// A socket of the system for datagrams.
fn unnamed() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::DGRAM;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

fn number_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether the stack has a way to a peer.
///
/// # Errors
/// `ENETUNREACH` if not; `EACCES` for a broadcast that is not allowed.
fn probe(stack: &Stack<Thread>, peer: SocketAddrV4, broadcast: bool) -> io::Result<()> {
    let any = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
    let socket = UdpSocket::bind(stack, any)?;
    socket.set_broadcast(broadcast)?;
    socket.connect(peer)
}

impl Datagrams {
    pub(crate) fn new(
        socket: UdpSocket<Thread>,
        name: Name,
        place: SocketFile,
        folder: Arc<Folder>,
        watch: WatchId,
        lost: Arc<AtomicU64>,
        sharing: Sharing,
    ) -> Self {
        let family = name.family;
        Self {
            socket,
            name,
            place,
            folder,
            watch,
            only: None,
            peers: HashMap::new(),
            uses: 0,
            down: None,
            up: None,
            notes: HashMap::new(),
            outside: None,
            error: None,
            broadcast: false,
            options: Options::new(Kind::Datagrams, family, sharing),
            lost,
        }
    }

    /// The numbers of all stand-ins and of Linux's side.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let peers = self.peers.values().map(|peer| peer.number);
        let outside = self.outside_numbers().iter().copied();
        peers.chain(outside).collect()
    }

    /// The numbers of Linux's side.
    pub(crate) fn outside_numbers(&self) -> &[u64] {
        let outside = self.outside.as_ref();
        outside.map_or(&[], |(_, numbers)| numbers)
    }

    /// Has Linux's side, if it is bound for any host and hears everybody; a wide one in the place
    /// of one that is not. True if that is new.
    pub(crate) fn widen(
        &mut self,
        is_wide: bool,
        watch: impl FnMut(&std::net::UdpSocket) -> io::Result<u64>,
    ) -> bool {
        let has_it = |(outside, _): &(Outside, Vec<u64>)| !is_wide || outside.is_wide();
        let is_for_any = self.name.local.ip().is_unspecified() && self.only.is_none();
        if !is_for_any || self.outside.as_ref().is_some_and(has_it) {
            return false;
        }
        // The port is free for the other only then.
        self.outside = None;
        let sharing = self.options.sharing;
        let made =
            Outside::bind(self.name.family, self.port(), sharing, is_wide).and_then(|made| {
                let numbers: io::Result<_> = made.sockets().iter().map(watch).collect();
                Ok((made, numbers?))
            });
        self.outside = made.ok();
        self.outside.is_some()
    }

    /// Whether datagrams for this peer are Linux's.
    fn goes_outside(&self, aim: Aim) -> bool {
        let found = [aim, (aim.0, Manner::USUAL)].map(|aim| self.peers.get(&aim));
        found.into_iter().flatten().any(|found| found.is_outside)
    }

    /// The port it is bound at.
    pub(crate) fn port(&self) -> u16 {
        self.name.local.port()
    }

    /// Takes the error that the network has reported.
    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }

    /// Sets an option.
    pub(crate) fn set(&mut self, setting: &Setting) -> Result<(), Errno> {
        if setting.level == libc::IPPROTO_TCP {
            return Err(Errno::NOPROTOOPT);
        }
        if let Some(wish) = groups::wish(setting) {
            return self.set_groups(wish?);
        }
        let (before, told) = (self.options.sharing, self.options.tells());
        self.options.set(None, setting)?;
        if let Some(set) = self.options.set_to_groups(setting, &self.socket) {
            return set.map_err(|error| number_of(&error));
        }
        if self.options.tells() && !told {
            self.socket.tell_arrivals().map_err(|error| number_of(&error))?;
        }
        if self.options.sharing != before {
            let set = self.socket.set_sharing(self.options.sharing);
            return set.map_err(|error| number_of(&error));
        }
        if let (libc::SOL_SOCKET, libc::SO_RCVBUF, Ok(octets)) =
            (setting.level, setting.option, setting.value[..].try_into())
        {
            let octets = doubled(i32::from_ne_bytes(octets));
            let set = self.socket.set_receive_buffer(octets);
            return set.map_err(|error| number_of(&error));
        }
        if (setting.level, setting.option) == (libc::SOL_SOCKET, libc::SO_BROADCAST) {
            self.broadcast = setting.value.iter().any(|octet| *octet != 0);
            let set = self.socket.set_broadcast(self.broadcast);
            return set.map_err(|error| number_of(&error));
        }
        Ok(())
    }

    /// Changes a membership in a group, or the interface for datagrams to groups.
    fn set_groups(&self, wish: Wish) -> Result<(), Errno> {
        let done = match wish {
            Wish::Change(group, on, change) => self.socket.change_group_v4(group, on, change),
            // As Linux has it (ip(7)).
            Wish::From(on) => match self.socket.set_multicast_if_v4(on) {
                Err(error) if number_of(&error) == Errno::NODEV => return Err(Errno::ADDRNOTAVAIL),
                done => done,
            },
        };
        done.map_err(|error| number_of(&error))
    }

    /// The octets of an option's value.
    ///
    /// # Errors
    /// As for a stream's; `EOPNOTSUPP` for one that only a stream has, as on Linux.
    pub(crate) fn get(&self, level: i32, option: i32) -> Result<Vec<u8>, Errno> {
        match level {
            libc::IPPROTO_TCP => Err(Errno::OPNOTSUPP),
            _ => self.options.get(None, level, option),
        }
    }

    /// True if the program still has its socket.
    pub(crate) fn is_alive(&self) -> bool {
        self.place.is_alive()
    }

    /// Has a stand-in for a peer; if `only`, hears no other from now on. Answers with the numbers
    /// of those that are no longer needed.
    ///
    /// # Errors
    /// `ENETUNREACH` if there is no way, `EACCES` for a broadcast that was not allowed.
    pub(crate) fn peer(
        &mut self,
        stack: &Stack<Thread>,
        (peer, manner): Aim,
        only: bool,
        scratch: &mut [u8],
        watch: Watch<'_>,
    ) -> io::Result<Vec<u64>> {
        let mut gone = Vec::new();
        if peer.ip().is_broadcast() && !self.broadcast {
            return Err(Errno::ACCESS.into());
        }
        if only {
            // What was written before goes its old way.
            self.tend_all(scratch);
            self.socket.connect(peer)?;
            self.only = Some(peer);
            self.renamed(self.socket.local_addr()?);
            gone.extend(self.peers.drain().map(|(_, peer)| peer.number));
            self.outside = None;
            self.stand_in((peer, manner), false, &mut gone, watch)?;
            return Ok(gone);
        }
        let mut is_outside = self.goes_outside((peer, manner)) || is_of_linux(*peer.ip());
        let is_known = self.peers.contains_key(&(peer, Manner::USUAL));
        if !is_known && !peer.ip().is_broadcast() && !is_outside {
            let reached = probe(stack, peer, self.broadcast);
            let no_way = |error: &io::Error| error.kind() == io::ErrorKind::NetworkUnreachable;
            is_outside = reached.as_ref().is_err_and(no_way);
            if !is_outside {
                reached?;
            }
        }
        let reaches = |(outside, _): &(Outside, Vec<u64>)| outside.reaches(peer);
        if is_outside && !self.outside.as_ref().is_some_and(reaches) {
            return Err(Errno::NETUNREACH.into());
        }
        self.stand_in((peer, manner), is_outside, &mut gone, watch)?;
        Ok(gone)
    }

    /// Hears everybody again.
    ///
    /// # Errors
    /// If the port was given away meanwhile.
    pub(crate) fn alone(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        self.tend_all(scratch);
        self.socket.disconnect()?;
        self.only = None;
        self.renamed(self.socket.local_addr()?);
        Ok(())
    }

    fn renamed(&mut self, local: std::net::SocketAddr) {
        if let std::net::SocketAddr::V4(local) = local {
            self.name.local = local;
        }
    }

    /// The stand-in for a peer, made if there is none yet.
    fn stand_in(
        &mut self,
        aim: Aim,
        is_outside: bool,
        gone: &mut Vec<u64>,
        watch: Watch<'_>,
    ) -> io::Result<()> {
        let (peer, manner) = aim;
        let mut name = self.name.clone();
        name.peer = Some(peer);
        let name = name.to_string();
        self.uses += 1;
        if let Some(kept) = self.peers.get_mut(&aim) {
            if kept.name == name && kept.is_outside == is_outside {
                kept.used = self.uses;
                return Ok(());
            }
            gone.extend(self.peers.remove(&aim).map(|old| old.number));
        }
        if self.peers.len() >= STAND_INS_MAX {
            let free = self.peers.iter().filter(|(at, _)| self.only != Some(at.0));
            let oldest = free.min_by_key(|(_, kept)| kept.used).map(|(at, _)| *at);
            let oldest = oldest.and_then(|oldest| self.peers.remove(&oldest));
            gone.extend(oldest.map(|old| old.number));
        }
        let unix = unnamed()?;
        // Before it has a name, so that no other than the program can ever send to it.
        match rustix::net::connect(&unix, &self.place.way()?) {
            // The program hears another alone; to this one it only sends.
            Err(Errno::PERM) => {}
            connected => connected?,
        }
        let file = stand_in(self.name.id, peer, manner);
        self.folder.show(&unix, &name, &file)?;
        let mut made = StandIn {
            unix,
            number: 0,
            name,
            file,
            used: self.uses,
            is_outside,
            folder: Arc::clone(&self.folder),
        };
        made.number = watch(&made.unix, aim)?;
        self.peers.insert(aim, made);
        Ok(())
    }

    /// Moves what can be moved in both directions.
    pub(crate) fn tend(
        &mut self,
        from: Option<Aim>,
        scratch: &mut [u8],
        gone: &mut Vec<u64>,
        watch: Watch<'_>,
    ) -> Next {
        let up = match from {
            Some(peer) => self.tend_peer(peer, scratch),
            None => self.tend_all(scratch),
        };
        match (up, self.tend_program(scratch, gone, watch)) {
            (Next::Over(why), _) | (_, Next::Over(why)) => Next::Over(why),
            (Next::Again, _) | (_, Next::Again) => Next::Again,
            _ => Next::Wait,
        }
    }

    fn tend_all(&mut self, scratch: &mut [u8]) -> Next {
        let peers: Vec<Aim> = self.peers.keys().copied().collect();
        let mut next = Next::Wait;
        for peer in peers {
            if self.tend_peer(peer, scratch) == Next::Again {
                next = Next::Again;
            }
        }
        next
    }

    /// Passes on what the program sends to a peer.
    fn tend_peer(&mut self, peer: Aim, scratch: &mut [u8]) -> Next {
        for _ in 0..TURNS {
            if let Some((to, datagram)) = self.up.take()
                && self.send(to, &datagram).is_err()
            {
                self.up = Some((to, datagram));
                return Next::Wait;
            }
            let Some(from) = self.peers.get(&peer) else {
                return Next::Wait;
            };
            match rustix::net::recv(&from.unix, &mut *scratch, RecvFlags::DONTWAIT) {
                Ok((octets, _)) => {
                    let datagram = &scratch[..octets];
                    if self.send(peer, datagram).is_err() {
                        self.up = Some((peer, datagram.into()));
                        return Next::Wait;
                    }
                }
                // The program has turned to another peer, or back.
                Err(Errno::CONNRESET) => {}
                Err(_) => return Next::Wait,
            }
        }
        Next::Again
    }

    /// Sends a datagram; fails only if it is to be sent later.
    fn send(&mut self, to: Aim, datagram: &[u8]) -> Result<(), ()> {
        // A socket may have what it sends cut (`UDP_SEGMENT`).
        let segment = self.options.segment().unwrap_or(usize::MAX);
        for part in datagram.chunks(segment.max(1)) {
            self.send_one(to, part)?;
        }
        if datagram.is_empty() { self.send_one(to, datagram) } else { Ok(()) }
    }

    fn send_one(&mut self, (to, manner): Aim, datagram: &[u8]) -> Result<(), ()> {
        let sending = self.options.sending(manner, *to.ip());
        let peer = (self.only != Some(to) || manner.from != Ipv4Addr::UNSPECIFIED).then_some(to);
        // An earlier error is told before anything is sent.
        for _ in 0..2 {
            let sent = match &self.outside {
                Some((outside, _)) if self.goes_outside((to, manner)) => outside.send(datagram, to),
                _ => self.socket.send_as(datagram, peer.map(Into::into), sending),
            };
            match sent {
                Ok(_) => return Ok(()),
                Err(error) if blocks(&error) => return Err(()),
                Err(error) => self.report(&error),
            }
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the next datagram, in the graph or outside.
    fn next(&self, scratch: &mut [u8]) -> io::Result<Arrival> {
        match (self.socket.recv_told(scratch), &self.outside) {
            (Ok((octets, std::net::SocketAddr::V4(from), said)), _) => {
                Ok(Arrival { from, octets, is_outside: false, said })
            }
            (Ok(_), _) => Err(Errno::AFNOSUPPORT.into()),
            (Err(error), Some((outside, _))) if blocks(&error) => {
                let (from, octets) = outside.receive(scratch)?;
                // Linux's loopback, as it has it by itself.
                let to = if *from.ip() == LOOPBACK_6 { LOOPBACK_6 } else { Ipv4Addr::LOCALHOST };
                let said = Some(Arrived { to: to.into(), hops: 64, class: 0 });
                Ok(Arrival { from, octets, is_outside: true, said })
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Passes on what has arrived for the program.
    fn tend_program(&mut self, scratch: &mut [u8], gone: &mut Vec<u64>, watch: Watch<'_>) -> Next {
        for _ in 0..TURNS {
            let arrival = match self.down.take() {
                Some((arrival, datagram)) => {
                    scratch[..datagram.len()].copy_from_slice(&datagram);
                    arrival
                }
                None => match self.next(scratch) {
                    Ok(next) => next,
                    Err(error) if blocks(&error) => return Next::Wait,
                    Err(error) if number_of(&error) == Errno::NETDOWN => return Next::Over(None),
                    Err(error) => {
                        self.report(&error);
                        continue;
                    }
                },
            };
            let Arrival { from, octets, is_outside, said } = arrival;
            let aim = (from, Manner::USUAL);
            if self.stand_in(aim, is_outside, gone, &mut *watch).is_err() {
                // The program is gone, or has not taken its name yet; or there is no descriptor
                // left.
                self.lost.fetch_add(1, Ordering::Relaxed);
                return if self.is_alive() { Next::Wait } else { Next::Over(None) };
            }
            self.note(said);
            let note = said.map(|said| self.options.control(said, self.name.family));
            let note = note.and_then(|note| self.notes.get(&note));
            let Some(peer) = self.peers.get(&aim) else {
                return Next::Wait;
            };
            match give(&peer.unix, &scratch[..octets], note) {
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    self.down = Some((arrival, scratch[..octets].into()));
                    return Next::Wait;
                }
                // It has turned to another peer.
                Err(Errno::PERM) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET) if !self.is_alive() => {
                    return Next::Over(None);
                }
                // A stand-in that has lost the program is made again next time.
                Err(_) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    gone.extend(self.peers.remove(&aim).map(|old| old.number));
                }
            }
        }
        Next::Again
    }

    /// Has a file with the control messages that tell what a header said, if any are asked for.
    fn note(&mut self, said: Option<Arrived>) {
        let control = said.map(|said| self.options.control(said, self.name.family));
        let Some(control) = control.filter(|control| !control.is_empty()) else {
            return;
        };
        if self.notes.contains_key(&control) {
            return;
        }
        if self.notes.len() >= NOTES_MAX {
            self.notes.clear();
        }
        // Without a file the datagram goes without them.
        let made = rustix::fs::memfd_create("note", MemfdFlags::CLOEXEC);
        if let Ok(file) = made
            && rustix::io::write(&file, &control).is_ok()
        {
            self.notes.insert(control, file);
        }
    }

    /// The network has reported something: a connected program hears of it by its next call.
    fn report(&mut self, error: &io::Error) {
        let number = number_of(error);
        let Some(peer) = self.only.and_then(|only| self.peers.get(&(only, Manner::USUAL))) else {
            return;
        };
        // If it cannot be told now, it is when it asks.
        let _ = alarm(peer, &self.place);
        self.error = Some(number);
    }
}

/// Sends a datagram to the program, with the file of its control messages.
fn give(unix: &OwnedFd, datagram: &[u8], note: Option<&OwnedFd>) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let Some(note) = note else {
        return rustix::net::send(unix, datagram, flags);
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [note.as_fd()];
    // There is room for one.
    control.push(SendAncillaryMessage::ScmRights(&files));
    rustix::net::sendmsg(unix, &[IoSlice::new(datagram)], &mut control, flags)
}

/// Has the next call of the program's socket fail, which is connected to the stand-in. A socket for
/// datagrams is told that its peer has turned away when that leaves something unread; so there is
/// something to read first.
fn alarm(peer: &StandIn, place: &SocketFile) -> io::Result<()> {
    let (unix, program) = (&peer.unix, place.way()?);
    let other = unnamed()?;
    rustix::net::connect_unspec(unix)?;
    let own = peer.folder.way(&peer.file)?;
    let filled = rustix::net::sendto(&other, b"!", SendFlags::NOSIGNAL, &own);
    rustix::net::connect(unix, &program)?;
    if filled.is_ok() {
        rustix::net::connect_unspec(unix)?;
        rustix::net::connect(unix, &program)?;
        // What this end is told in turn.
        let _ = sockopt::socket_error(unix);
    }
    Ok(())
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.socket.unwatch(self.watch);
    }
}

/// The scratch holds the largest datagram.
const _: () = assert!(SCRATCH > 65_507);
