//! Sockets of datagrams, or of transactions, whose options go beside the data.

use super::Half;
use super::users::{Place, Users};
use crate::edge::{Door, Ends, Fault, Options, Sink, Unwanted};
use crate::form::Addr;
use crate::parcel::Parcel;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::{Mt, ProtoFns, Protosw, Pru, PruArgs, SS_ISCONNECTED, Sockaddr, Socket};
use xk_core::Kernel;
use xk_core::reason;

/// Octets sent at once at most.
const SENDSPACE: usize = 9216;
/// Octets received that wait at most: 40 datagrams of 1024 and their addresses.
const RECVSPACE: usize = 40 * (1024 + 16);

/// The entry of the protocol switch.
pub(super) struct Datagrams {
    place: Place,
    /// The number in front of what users send and receive, if they see one.
    number: Option<u8>,
    all: RefCell<Vec<Rc<Pcb>>>,
}

/// A control block.
struct Pcb {
    so: Weak<Socket>,
    local: Cell<Addr>,
    peer: Cell<Option<Addr>>,
    door: RefCell<Option<Rc<dyn Door>>>,
}

/// Receives what comes through the door of a control block.
struct Input {
    half: Weak<Half>,
    pcb: Weak<Pcb>,
    number: Option<u8>,
}

impl Sink for Input {
    fn arrive(
        &self,
        cx: &Kernel,
        ends: &Ends,
        parcel: Parcel,
    ) -> core::result::Result<(), Unwanted> {
        let (half, pcb) = (self.half.upgrade(), self.pcb.upgrade());
        let (Some(half), Some(pcb)) = (half, pcb) else { return Err((&reason::CLOSED).into()) };
        let so = pcb.so.upgrade().ok_or(&reason::CLOSED)?;
        if pcb.peer.get().is_some_and(|peer| peer != ends.from) {
            return Err((&reason::BAD_SOURCE).into());
        }
        let mbufs = half.bsd.mbufs();
        let mut m = parcel.into_mbufs(mbufs, &half.edge.up).map_err(Fault::reason)?;
        if let Some(number) = self.number {
            // Its own mbuf: what was lent is not written.
            let mut front = mbufs.m_copyin(Mt::Data, &[number])?;
            front.set_next(Some(m));
            front.make_packet(0);
            m = front;
        }
        let options = ends.options.map(|options| mbufs.m_copyin(Mt::Control, &options));
        let options = options.transpose()?;
        let from = half.sockaddr(ends.from).to_mbuf(mbufs)?;
        half.bsd.splnet(cx, || {
            so.so_rcv.sbappendaddr(from, Some(m), options).map_err(|_| &reason::QUEUE_FULL)?;
            so.sorwakeup(cx);
            Ok(())
        })
    }

    fn fault(&self, cx: &Kernel, to: &Addr, fault: Fault, _: Option<&Options>) {
        let (half, pcb) = (self.half.upgrade(), self.pcb.upgrade());
        let (Some(half), Some(pcb)) = (half, pcb) else { return };
        // As in BSD: only one that has a peer is told.
        let is_its = pcb.peer.get().is_some_and(|peer| peer == *to || to.is_any());
        if let Some(so) = pcb.so.upgrade().filter(|_| is_its) {
            half.bsd.splnet(cx, || tell(cx, &so, fault.into()));
        }
    }

    fn gone(&self, cx: &Kernel) {
        let (half, pcb) = (self.half.upgrade(), self.pcb.upgrade());
        let (Some(half), Some(pcb)) = (half, pcb) else { return };
        drop(pcb.door.take());
        if let Some(so) = pcb.so.upgrade() {
            half.bsd.splnet(cx, || tell(cx, &so, Errno::ENETDOWN));
        }
    }
}

fn tell(cx: &Kernel, so: &Rc<Socket>, error: Errno) {
    so.set_error(Some(error));
    so.sorwakeup(cx);
    so.sowwakeup(cx);
}

impl Datagrams {
    pub(super) fn new(place: Place, number: Option<u8>) -> Self {
        Self { place, number, all: RefCell::default() }
    }

    /// Opens the door of a block.
    fn bind(&self, cx: &Kernel, pcb: &Rc<Pcb>, local: Addr) -> Result {
        if pcb.door.borrow().is_some() {
            return Err(Errno::EINVAL);
        }
        let half = self.place.half()?;
        let sink = || {
            let (half, pcb) = (Rc::downgrade(&half), Rc::downgrade(pcb));
            Rc::new(Input { half, pcb, number: self.number })
        };
        let (local, door) = self.place.bind(&half, local, |local| {
            let port = half.form.port_of(&local);
            let is_open = |other: &Rc<Pcb>| other.door.borrow().is_some();
            let is_it = |other: &Rc<Pcb>| half.form.port_of(&other.local.get()) == port;
            if self.all.borrow().iter().any(|other| is_open(other) && is_it(other)) {
                return Err(Fault::InUse);
            }
            half.bsd.spl0(cx, || half.below.open(cx, self.place.selector, local, sink()))
        })?;
        pcb.local.set(local);
        drop(pcb.door.replace(Some(door)));
        Ok(())
    }

    fn door(&self, cx: &Kernel, pcb: &Rc<Pcb>) -> Result<Rc<dyn Door>> {
        if pcb.door.borrow().is_none() {
            self.bind(cx, pcb, self.place.half()?.form.any())?;
        }
        pcb.door.borrow().clone().ok_or(Errno::ENETDOWN)
    }

    fn send(&self, cx: &Kernel, pcb: &Rc<Pcb>, args: &mut PruArgs<'_>) -> Result {
        let half = self.place.half()?;
        let mut m = args.need_m()?;
        let to = match (&args.nam, pcb.peer.get()) {
            (Some(_), Some(_)) => return Err(Errno::EISCONN),
            (Some(nam), None) => half.addr_of(nam)?,
            (None, Some(peer)) => peer,
            (None, None) => return Err(Errno::ENOTCONN),
        };
        if !half.has_port(&to) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if let Some(number) = self.number {
            m = m.m_pullup(1)?;
            // What is of another protocol cannot go: the layer below has the number of this one.
            if m.mtod().first() != Some(&number) {
                return Err(Errno::EPROTONOSUPPORT);
            }
            m.m_adj(1);
        }
        let options = args.control.as_ref().map(|control| control.mtod().first_chunk().copied());
        let options = match options {
            Some(None) => return Err(Errno::EINVAL),
            Some(options) => options,
            None => None,
        };
        let door = self.door(cx, pcb)?;
        let ends = Ends { options, ..Ends::new(pcb.local.get(), to) };
        // The other subsystem may wait.
        half.bsd.spl0(cx, || door.send(cx, &ends, Parcel::Mbufs(m))).map_err(Errno::from)
    }

    fn close(&self, cx: &Kernel, pcb: &Rc<Pcb>) {
        self.all.borrow_mut().retain(|other| !Rc::ptr_eq(other, pcb));
        let door = pcb.door.take();
        if let (Some(door), Ok(half)) = (door, self.place.half()) {
            half.bsd.spl0(cx, || door.close(cx));
        }
    }

    /// Our address: the host, too, where that is known by the peer.
    fn local(&self, cx: &Kernel, pcb: &Pcb) -> Result<Sockaddr> {
        let half = self.place.half()?;
        let mut local = pcb.local.get();
        if let (Some(peer), Some(port)) = (pcb.peer.get(), half.form.port_number(&local))
            && let Some(known) = half.bsd.spl0(cx, || half.below.local_to(cx, &peer))
        {
            local = known;
            half.form.set_port(&mut local, port);
        }
        Ok(half.sockaddr(local))
    }
}

impl Users for Datagrams {
    fn stop(&self, cx: &Kernel) {
        let all = self.all.borrow().clone();
        for pcb in all {
            if let Some(so) = pcb.so.upgrade() {
                so.set_pcb(None);
            }
            self.close(cx, &pcb);
        }
    }
}

impl ProtoFns for Datagrams {
    fn pr_usrreq(
        &self,
        cx: &Kernel,
        pr: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        let half = self.place.half()?;
        if req == Pru::Control {
            let own = half.own.get().ok_or(Errno::ENETDOWN)?;
            return own.functions().pr_usrreq(cx, pr, so, req, args);
        }
        let so = so.ok_or(Errno::EINVAL)?;
        if req == Pru::Attach {
            so.soreserve(SENDSPACE, RECVSPACE)?;
            let pcb = Rc::new(Pcb {
                so: Rc::downgrade(so),
                local: Cell::new(half.form.any()),
                peer: Cell::new(None),
                door: RefCell::default(),
            });
            self.all.borrow_mut().push(Rc::clone(&pcb));
            so.set_pcb(Some(pcb));
            return Ok(());
        }
        let pcb = so.pcb::<Pcb>().ok_or(Errno::EINVAL)?;
        match req {
            Pru::Detach | Pru::Abort => {
                so.set_pcb(None);
                self.close(cx, &pcb);
                if req == Pru::Abort {
                    so.soisdisconnected(cx);
                }
            }
            Pru::Bind => self.bind(cx, &pcb, half.addr_of(args.need_nam()?)?)?,
            Pru::Connect => {
                if pcb.peer.get().is_some() {
                    return Err(Errno::EISCONN);
                }
                let peer = half.addr_of(args.need_nam()?)?;
                if !half.has_port(&peer) {
                    return Err(Errno::EADDRNOTAVAIL);
                }
                self.door(cx, &pcb)?;
                pcb.peer.set(Some(peer));
                so.soisconnected(cx);
            }
            Pru::Disconnect => {
                pcb.peer.take().ok_or(Errno::ENOTCONN)?;
                so.set_state(0, SS_ISCONNECTED);
            }
            Pru::Shutdown => so.socantsendmore(cx),
            Pru::Send => self.send(cx, &pcb, args)?,
            Pru::Sockaddr => self.local(cx, &pcb)?.store(args.need_nam()?),
            Pru::Peeraddr => {
                let peer = pcb.peer.get().ok_or(Errno::ENOTCONN)?;
                half.sockaddr(peer).store(args.need_nam()?);
            }
            Pru::Sense => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn pr_stop(&self) {
        drop(self.all.take());
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        Vec::from([("control blocks", self.all.borrow().len() as u64)])
    }
}
