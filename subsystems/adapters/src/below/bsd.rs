//! The lower half in BSD: an entry of the protocol switch above the protocol's own, or, where the
//! protocol serves users, a socket for each door.

use crate::edge::{Below, Door, Edge, Ends, Fault, Sink, Traffic, Unwanted, remove};
use crate::form::{Addr, Form, Service};
use crate::parcel::Parcel;
use alloc::collections::btree_map::{self, BTreeMap};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use xk_bsd::errno::Errno;
use xk_bsd::mbuf::{M_BCAST, M_MCAST};
use xk_bsd::{
    ALLOWBROADCAST, Bsd, InputArg, MSG_DONTWAIT, Mbuf, Mt, OutputArg, Prc, ProtoFns, Protosw, Pru,
    PruArgs, SIOCGIFMTU, SIOCGIFSRCADDR, SO_BROADCAST, SOL_SOCKET, SS_NBIO, Sink as Into, Sockaddr,
    Socket, Switch, Uio, Upcall, getsockname, inetctlerr, sobind, soclose, socreate_on, soreceive,
    sosend, sosetopt,
};
use xk_core::object::ProtocolId;
use xk_core::{Kernel, ProtocolRef, Reason, reason};

/// Doors of one adapter at most.
pub(crate) const DOORS_MAX: usize = 1024;

/// Finds a door; every address that says nothing is the one for all.
fn key(number: u8, local: &Addr) -> (u8, Addr) {
    (number, if local.is_any() { Addr::default() } else { *local })
}

/// The half.
pub(crate) struct OnBsd(Rc<Half>);

struct Half {
    bsd: Rc<Bsd>,
    edge: Rc<Edge>,
    form: &'static Form,
    /// The entry of the protocol below.
    lower: Rc<Protosw>,
    /// The adapter's own.
    own: OnceCell<Rc<Protosw>>,
    /// The doors by the number below and the address, of which [`key`] makes one key.
    doors: RefCell<BTreeMap<(u8, Addr), Rc<EntryDoor>>>,
    sockets: RefCell<Vec<Rc<SocketDoor>>>,
    /// Numbers under which the own entry stands on the one below.
    numbers: RefCell<Vec<(ProtocolId, u8)>>,
}

impl OnBsd {
    /// On the line below. None if that is not of the subsystem.
    pub(crate) fn new(bsd: &Rc<Bsd>, edge: &Rc<Edge>) -> Option<Self> {
        Some(Self(Rc::new(Half {
            bsd: Rc::clone(bsd),
            edge: Rc::clone(edge),
            form: edge.form,
            lower: bsd.protocol(edge.lower.id())?,
            own: OnceCell::new(),
            doors: RefCell::default(),
            sockets: RefCell::default(),
            numbers: RefCell::default(),
        })))
    }
}

impl Half {
    /// The number of `selector` below; the own entry is put there at its first door.
    fn number(&self, cx: &Kernel, selector: ProtocolId) -> Result<u8, Fault> {
        let known = self.numbers.borrow().iter().find(|(id, _)| *id == selector).copied();
        if let Some((_, number)) = known {
            return Ok(number);
        }
        let own = self.own.get().ok_or(Fault::Closed)?;
        let number = self.bsd.stack(cx, &self.lower, own, selector)?;
        self.numbers.borrow_mut().push((selector, number));
        Ok(number)
    }

    /// The door for this very address before the one for all.
    fn door_for(&self, number: u8, to: &Addr) -> Option<Rc<EntryDoor>> {
        let doors = self.doors.borrow();
        doors.get(&(number, *to)).or_else(|| doors.get(&key(number, &Addr::default()))).cloned()
    }

    /// Lets a socket of datagrams send and receive the longest that there is, and to all: above the
    /// adapter is a protocol, and not a program with bounds of its own.
    fn widen(&self, cx: &Kernel, so: &Rc<Socket>) {
        const DATAGRAM_MAX: usize = 1 << 16;
        let (snd, rcv) = (so.so_snd.hiwat(), so.so_rcv.hiwat());
        if so.soreserve(snd.max(DATAGRAM_MAX), rcv.max(2 * DATAGRAM_MAX)).is_err() {
            // It was so before.
            let _ = so.soreserve(snd, rcv);
        }
        if let Ok(on) = self.bsd.mbufs().m_copyin(Mt::Data, &1_u32.to_ne_bytes()) {
            let _ = sosetopt(cx, so, (SOL_SOCKET, SO_BROADCAST), Some(on));
        }
    }

    /// Issues an ioctl of the protocol below, and returns what it fills in.
    fn ioctl(&self, cx: &Kernel, cmd: u32, data: &[u8]) -> Option<Mbuf> {
        let mut nam = self.bsd.mbufs().m_copyin(Mt::Data, data).ok()?;
        let mut args = PruArgs { cmd, ..PruArgs::nam(&mut nam) };
        let ask = || self.lower.pr_usrreq(cx, None, Pru::Control, &mut args);
        self.bsd.splnet(cx, ask).ok()?;
        Some(nam)
    }
}

impl Below for OnBsd {
    fn open(
        &self,
        cx: &Kernel,
        selector: ProtocolId,
        local: Addr,
        sink: Rc<dyn Sink>,
    ) -> Result<Rc<dyn Door>, Fault> {
        let half = &self.0;
        if half.doors.borrow().len() + half.sockets.borrow().len() >= DOORS_MAX {
            return Err(Fault::NoBuffers);
        }
        if half.form.is_by_port {
            let door = SocketDoor::open(cx, half, local, sink)?;
            half.sockets.borrow_mut().push(Rc::clone(&door));
            return Ok(door);
        }
        let number = half.number(cx, selector)?;
        match half.doors.borrow_mut().entry(key(number, &local)) {
            btree_map::Entry::Occupied(_) => Err(Fault::InUse),
            btree_map::Entry::Vacant(place) => {
                let door = EntryDoor { half: Rc::clone(half), number, local, sink };
                Ok(Rc::clone(place.insert(Rc::new(door))) as Rc<dyn Door>)
            }
        }
    }

    fn max_packet(&self, cx: &Kernel) -> Option<u32> {
        let answer = self.0.ioctl(cx, SIOCGIFMTU, &[0; 4])?;
        let octets = answer.mtod().first_chunk().map(|octets| u32::from_be_bytes(*octets))?;
        // A socket sends no more at once than it keeps.
        let sockets = self.0.sockets.borrow();
        let kept = sockets.iter().find_map(|door| Some(door.so.get()?.so_snd.hiwat()));
        Some(kept.and_then(|kept| u32::try_from(kept).ok()).map_or(octets, |kept| octets.min(kept)))
    }

    fn local_to(&self, cx: &Kernel, to: &Addr) -> Option<Addr> {
        let to = to.to_sockaddr(self.0.bsd.mbufs().release());
        let answer = self.0.ioctl(cx, SIOCGIFSRCADDR, &to.0)?;
        Addr::parse(answer.mtod())
    }

    /// Registers the adapter's node in the protocol switch.
    fn placed(&self, cx: &Kernel, node: &ProtocolRef) -> Result<(), Errno> {
        let half = &self.0;
        let switch = Switch { pr_domain: half.form.family, ..Switch::default() };
        let functions = Rc::new(Entry(Rc::downgrade(half)));
        let own = half.bsd.register(cx, node.id(), switch, functions)?;
        let _ = half.own.set(own);
        Ok(())
    }

    fn stop(&self, cx: &Kernel) {
        let sockets = self.0.sockets.take();
        for door in sockets {
            door.close(cx);
        }
        drop(self.0.doors.take());
    }
}

/// The adapter's entry in the protocol switch: an upper of the protocol below.
struct Entry(alloc::rc::Weak<Half>);

/// Octets of the longest header of IP (RFC 791, section 3.1).
const IP_OCTETS_MAX: usize = 60;

impl Half {
    /// Takes a packet that came by this number. Answers what is not wanted above, as it was given.
    fn input(
        &self,
        cx: &Kernel,
        pr: &Rc<Protosw>,
        m: Mbuf,
        (ends, number): (&Ends, u8),
    ) -> Option<(Mbuf, &'static Reason)> {
        let Some(door) = self.door_for(number, &ends.to) else {
            pr.m_drop(m, &reason::NO_PROTOCOL);
            return None;
        };
        // The other subsystem may wait.
        let arrived = self.bsd.spl0(cx, || door.sink.arrive(cx, ends, Parcel::Mbufs(m)));
        let Unwanted { why, parcel } = arrived.err()?;
        let Some(parcel) = parcel else {
            pr.count_drop(why);
            return None;
        };
        let m = parcel.into_mbufs(self.bsd.mbufs(), &Traffic::default()).ok()?;
        Some((m, why))
    }

    /// Has IP tell the sender of a packet that is not wanted, with its header in front again.
    #[cold]
    fn unreach(
        &self,
        cx: &Kernel,
        m: Mbuf,
        (header, arg): (&[u8], &InputArg),
        why: &'static Reason,
    ) {
        let cmd = match why {
            why if why == &reason::NO_PORT => Prc::UnreachPort,
            why if why == &reason::NO_PROTOCOL => Prc::UnreachProtocol,
            _ => return m.m_freem(),
        };
        // Its own mbuf: what was lent is not written.
        let Ok(mut front) = self.bsd.mbufs().m_copyin(Mt::Data, header) else {
            return m.m_freem();
        };
        front.set_next(Some(m));
        front.make_packet(0);
        self.lower.pr_unreach(cx, front, arg, cmd);
    }
}

impl ProtoFns for Entry {
    fn pr_input(&self, cx: &Kernel, pr: &Rc<Protosw>, mut m: Mbuf, arg: InputArg) {
        match (self.0.upgrade(), &arg) {
            (Some(half), InputArg::Addressed { from, to, kind }) => {
                let ends = Ends::new((*from).into(), (*to).into());
                // What is not wanted is counted above, and nothing here tells the sender.
                if let Some((m, _)) = half.input(cx, pr, m, (&ends, *kind)) {
                    m.m_freem();
                }
            }
            (Some(half), InputArg::Ip { hlen, from, to, kind }) => {
                let mut header = [0; IP_OCTETS_MAX];
                let Some(header) = header.get_mut(..*hlen) else {
                    return pr.m_drop(m, &reason::NOT_SUPPORTED);
                };
                m.m_copydata(0, header);
                m.m_adj(*hlen as isize);
                let flags = m.m_flags() & (M_BCAST | M_MCAST);
                let ends = Ends::new(Addr::inet(*from), Addr::inet(*to));
                let ends = Ends { is_for_many: flags != 0, ..ends };
                if let Some((mut m, why)) = half.input(cx, pr, m, (&ends, *kind)) {
                    m.set_flags(flags, 0);
                    half.unreach(cx, m, (header, &arg), why);
                }
            }
            _ => pr.m_drop(m, &reason::NOT_SUPPORTED),
        }
    }

    fn pr_ctlinput(&self, cx: &Kernel, _: &Rc<Protosw>, cmd: Prc, sa: &Sockaddr, _: Option<&[u8]>) {
        let (Some(half), Some(errno)) = (self.0.upgrade(), inetctlerr(cmd)) else { return };
        let sinks: Vec<_> =
            half.doors.borrow().values().map(|door| Rc::clone(&door.sink)).collect();
        for sink in sinks {
            sink.fault(cx, &(*sa).into(), errno.into(), None);
        }
    }

    fn pr_stop(&self) {
        if let Some(half) = self.0.upgrade() {
            drop(half.doors.take());
        }
    }
}

/// A door at the protocol's own level: packets go by `pr_output`, and arrive by number.
struct EntryDoor {
    half: Rc<Half>,
    number: u8,
    local: Addr,
    sink: Rc<dyn Sink>,
}

impl Door for EntryDoor {
    fn send(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Fault> {
        let bsd = &self.half.bsd;
        let m = parcel.into_mbufs(bsd.mbufs(), &self.half.edge.down)?;
        let sockaddr = |addr: &Addr| addr.to_sockaddr(bsd.mbufs().release());
        let from = (!ends.from.is_any()).then(|| sockaddr(&ends.from));
        // The x-kernel and STREAMS ask for no leave to send to all.
        let arg = OutputArg::new(sockaddr(&ends.to), from, self.number);
        let arg = OutputArg { flags: ALLOWBROADCAST, ..arg };
        bsd.splnet(cx, || self.half.lower.pr_output(cx, m, &arg)).map_err(Fault::from)
    }

    fn local(&self, _: &Kernel) -> Addr {
        self.local
    }

    fn close(&self, _: &Kernel) {
        let at = key(self.number, &self.local);
        let mut doors = self.half.doors.borrow_mut();
        let is_its = doors.get(&at).is_some_and(|door| core::ptr::eq(&**door, self));
        let gone = if is_its { doors.remove(&at) } else { None };
        drop(doors);
        drop(gone);
    }
}

/// A door at a protocol that serves users: a socket whose upcall is in the place of a process.
struct SocketDoor {
    half: Rc<Half>,
    so: OnceCell<Rc<Socket>>,
    sink: Rc<dyn Sink>,
    /// Inside of the upcall.
    is_taking: Cell<bool>,
}

/// A socket's upcall; it does not keep the door.
struct Wakeup(alloc::rc::Weak<SocketDoor>);

impl Upcall for Wakeup {
    fn upcall(&self, cx: &Kernel, so: &Rc<Socket>) {
        if let Some(door) = self.0.upgrade() {
            door.take(cx, so);
        }
    }
}

impl SocketDoor {
    fn open(
        cx: &Kernel,
        half: &Rc<Half>,
        local: Addr,
        sink: Rc<dyn Sink>,
    ) -> Result<Rc<Self>, Fault> {
        let so = socreate_on(cx, &half.bsd, &half.lower)?;
        so.set_state(SS_NBIO, 0);
        let mbufs = half.bsd.mbufs();
        let bound = local.to_sockaddr(mbufs.release()).to_mbuf(mbufs).and_then(|mut nam| {
            let bound = sobind(cx, &so, &mut nam);
            nam.m_freem();
            bound
        });
        if let Err(error) = bound {
            let _ = soclose(cx, &so);
            return Err(error.into());
        }
        if half.form.service == Service::Datagrams {
            half.widen(cx, &so);
        }
        let (half, is_taking) = (Rc::clone(half), Cell::new(false));
        let door = Rc::new(Self { half, so: OnceCell::new(), sink, is_taking });
        so.set_upcall(Some(Rc::new(Wakeup(Rc::downgrade(&door)))));
        let _ = door.so.set(so);
        Ok(door)
    }

    /// Takes all that has arrived. What arrives meanwhile is taken by the same loop.
    fn take(&self, cx: &Kernel, so: &Rc<Socket>) {
        if self.is_taking.replace(true) {
            return;
        }
        while !so.so_rcv.is_empty() {
            let Ok(got) = soreceive(cx, so, Into::Chain(usize::MAX), MSG_DONTWAIT) else { break };
            let options = got.control.as_ref().and_then(|c| c.mtod().first_chunk().copied());
            let from = got.from().map(Addr::from);
            for m in [got.nam, got.control].into_iter().flatten() {
                m.m_freem();
            }
            let parcel = match got.m {
                Some(m) => Ok(Parcel::Mbufs(m)),
                // A message of no octets, for which no mbuf is needed.
                None => cx.pool().empty(0).map(Parcel::Message),
            };
            let arrived = match (from, parcel) {
                (Some(from), Ok(parcel)) => {
                    let ends = Ends { options, ..Ends::new(from, self.local(cx)) };
                    self.half.bsd.spl0(cx, || self.sink.arrive(cx, &ends, parcel))
                }
                _ => Err((&reason::NO_BUFFERS).into()),
            };
            // What comes back was counted above.
            if let (Err(Unwanted { why, parcel: None }), Some(own)) = (arrived, self.half.own.get())
            {
                own.count_drop(why);
            }
        }
        self.is_taking.set(false);
        if let Some(error) = so.take_error() {
            self.sink.fault(cx, &Addr::any(self.half.form.family), error.into(), None);
        }
    }
}

impl Door for SocketDoor {
    fn send(&self, cx: &Kernel, ends: &Ends, parcel: Parcel) -> Result<(), Fault> {
        let so = self.so.get().ok_or(Fault::Closed)?;
        let mbufs = self.half.bsd.mbufs();
        let m = parcel.into_mbufs(mbufs, &self.half.edge.down)?;
        let nam = ends.to.to_sockaddr(mbufs.release()).to_mbuf(mbufs);
        let control = ends.options.map(|options| mbufs.m_copyin(Mt::Control, &options)).transpose();
        let (nam, control) = match (nam, control) {
            (Ok(nam), Ok(control)) => (nam, control),
            (nam, control) => {
                let rest = [nam.ok(), control.ok().flatten(), Some(m)];
                rest.into_iter().flatten().for_each(Mbuf::m_freem);
                return Err(Fault::NoBuffers);
            }
        };
        let sent = sosend(cx, so, Some(nam), Uio::Top(m), control, MSG_DONTWAIT);
        sent.map(|_| ()).map_err(Fault::from)
    }

    fn local(&self, cx: &Kernel) -> Addr {
        let name = self.so.get().and_then(|so| getsockname(cx, so).ok());
        name.map_or(Addr::any(self.half.form.family), Addr::from)
    }

    fn close(&self, cx: &Kernel) {
        remove(&self.half.sockets, self);
        if let Some(so) = self.so.get() {
            let _ = soclose(cx, so);
        }
    }
}
