//! Sockets of streams: the socket buffer in front of the protocol below, which holds what is not
//! acknowledged and closes its window for what is not read.

use super::Half;
use super::users::{Place, Users};
use crate::circuit::{Circuit, Circuits, Listening, User, Wanted, numbers};
use crate::edge::Fault;
use crate::form::Addr;
use crate::parcel::Parcel;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::{
    Mbuf, ProtoFns, Protosw, Pru, PruArgs, SS_CANTRCVMORE, SS_ISCONNECTED, SS_ISCONNECTING, Socket,
};
use xk_core::Kernel;
use xk_core::reason::{self, Reason};
use xk_kit::net::stream::StreamEvent;

/// Octets that wait to be sent, beside those below, at most.
const SENDSPACE: usize = 16 << 10;
/// Octets received that wait at most: what a protocol below may announce before it is told.
const RECVSPACE: usize = 64 << 10;

/// The entry of the protocol switch.
pub(super) struct Connections {
    place: Place,
    circuits: Rc<Circuits>,
    all: RefCell<Vec<Rc<Pcb>>>,
}

/// A control block.
struct Pcb {
    half: Weak<Half>,
    so: Weak<Socket>,
    local: Cell<Addr>,
    peer: Cell<Addr>,
    circuit: RefCell<Option<Rc<Circuit>>>,
    listening: RefCell<Option<Rc<Listening>>>,
    /// Octets put into the socket's buffer of which the layer below is not told yet that they were
    /// consumed.
    given: Cell<usize>,
    /// The user has closed: what is left goes from here.
    rest: RefCell<Option<Mbuf>>,
    phase: Cell<Phase>,
}

/// State of the user's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing more: the end follows what waits.
    Shut,
    /// The end has been said.
    Ended,
    /// Nothing, and it wants to receive nothing: the socket is gone.
    Closed,
}

impl Pcb {
    fn circuit(&self) -> Option<Rc<Circuit>> {
        self.circuit.borrow().clone()
    }

    fn forget(&self) {
        drop(self.circuit.take());
        drop(self.rest.take());
    }

    /// Hands down what waits, as far as there is room, and what follows behind it.
    fn output(&self, cx: &Kernel) {
        let (Some(half), Some(circuit)) = (self.half.upgrade(), self.circuit()) else { return };
        let any = self.waiting() > 0 && half.bsd.spl0(cx, || circuit.output(cx, self));
        if self.waiting() == 0 {
            self.end_output(cx, &half, &circuit);
        }
        if let Some(so) = self.so.upgrade().filter(|_| any && self.phase.get() != Phase::Closed) {
            so.sowwakeup(cx);
        }
    }

    /// Everything has been handed down.
    fn end_output(&self, cx: &Kernel, half: &Half, circuit: &Circuit) {
        match self.phase.get() {
            Phase::Open | Phase::Ended => {}
            Phase::Shut => {
                self.phase.set(Phase::Ended);
                half.bsd.spl0(cx, || circuit.shutdown(cx));
            }
            Phase::Closed => {
                self.forget();
                half.bsd.spl0(cx, || circuit.close(cx));
            }
        }
    }

    /// Gives what has arrived to the user, as far as there are mbufs.
    fn input(&self, cx: &Kernel) {
        let (Some(half), Some(so)) = (self.half.upgrade(), self.so.upgrade()) else { return };
        let Some(circuit) = self.circuit() else { return };
        let mut any = false;
        while let Some(first) = circuit.next_arrived() {
            let octets = first.len();
            if so.is(SS_CANTRCVMORE) {
                // The user wants nothing more.
                self.consumed(cx, &half, octets);
                continue;
            }
            let kept = first.try_clone();
            let mbufs = half.bsd.mbufs();
            match (Parcel::Message(first).into_mbufs(mbufs, &half.edge.up), kept) {
                (Ok(m), _) => {
                    self.given.set(self.given.get() + octets);
                    so.so_rcv.sbappend(m);
                    any = true;
                }
                (Err(_), Ok(kept)) => {
                    circuit.put_back(kept);
                    break;
                }
                (Err(_), Err(_)) => {
                    self.fail(cx, &half, Errno::ENOBUFS);
                    return;
                }
            }
        }
        if any {
            so.sorwakeup(cx);
        }
        if circuit.is_at_end() && !so.is(SS_CANTRCVMORE) {
            so.socantrcvmore(cx);
        }
    }

    fn consumed(&self, cx: &Kernel, half: &Half, octets: usize) {
        if let Some(circuit) = self.circuit() {
            half.bsd.spl0(cx, || circuit.consumed(cx, octets));
        }
    }

    /// The user has taken data.
    fn received(&self, cx: &Kernel, half: &Half, so: &Socket) {
        let left = so.so_rcv.cc();
        let octets = self.given.replace(left).saturating_sub(left);
        self.consumed(cx, half, octets);
        self.input(cx);
    }

    /// Breaks it off, for the user to see why.
    fn fail(&self, cx: &Kernel, half: &Half, error: Errno) {
        self.abort(cx, half);
        if let Some(so) = self.so.upgrade() {
            so.set_error(Some(error));
            so.soisdisconnected(cx);
        }
    }

    fn abort(&self, cx: &Kernel, half: &Half) {
        let circuit = self.circuit();
        self.forget();
        if let Some(circuit) = circuit {
            half.bsd.spl0(cx, || circuit.abort(cx));
        }
    }

    /// The user has closed: what it has sent goes all the same, unless something is unread (RFC
    /// 2525, section 2.17).
    fn close(&self, cx: &Kernel, half: &Half, so: &Rc<Socket>) {
        if so.so_rcv.cc() > 0 || self.has_arrived() {
            so.soisdisconnecting(cx);
            return self.abort(cx, half);
        }
        let octets = so.so_snd.cc();
        if octets > 0 {
            let rest = so.so_snd.first(|m| m?.m_copym(0, octets).ok());
            if rest.is_none() {
                return self.fail(cx, half, Errno::ENOBUFS);
            }
            so.so_snd.sbflush();
            drop(self.rest.replace(rest));
        }
        self.phase.set(Phase::Closed);
        so.soisdisconnecting(cx);
        self.output(cx);
    }

    /// Whether messages have arrived for which there were no mbufs.
    fn has_arrived(&self) -> bool {
        self.circuit.borrow().as_ref().is_some_and(|circuit| circuit.has_arrived())
    }

    fn is_over(&self) -> bool {
        self.circuit.borrow().is_none() && self.listening.borrow().is_none()
    }
}

impl User for Pcb {
    fn arrived(&self, cx: &Kernel) {
        let Some(half) = self.half.upgrade() else { return };
        half.bsd.splnet(cx, || match self.phase.get() {
            // As TCP does for a process that is gone.
            Phase::Closed => self.abort(cx, &half),
            _ => self.input(cx),
        });
    }

    fn happened(&self, cx: &Kernel, event: StreamEvent) {
        let Some(half) = self.half.upgrade() else { return };
        let so = self.so.upgrade().filter(|_| self.phase.get() != Phase::Closed);
        half.bsd.splnet(cx, || match event {
            StreamEvent::Connected => {
                let ends = |circuit: Rc<Circuit>| half.bsd.spl0(cx, || circuit.ends(cx));
                if let Some((local, peer)) = self.circuit().and_then(ends) {
                    self.local.set(local);
                    self.peer.set(peer);
                }
                if let Some(so) = &so {
                    so.soisconnected(cx);
                }
                self.output(cx);
            }
            StreamEvent::Writable => self.output(cx),
            StreamEvent::EndOfStream => self.input(cx),
            StreamEvent::Failed(_) | StreamEvent::Closed => {
                self.input(cx);
                let is_short = self.has_arrived();
                self.forget();
                let Some(so) = &so else { return };
                match event {
                    StreamEvent::Failed(error) => so.set_error(Some(numbers(error).0)),
                    _ if is_short => so.set_error(Some(Errno::ENOBUFS)),
                    _ => {}
                }
                so.soisdisconnected(cx);
            }
        });
    }

    fn waiting(&self) -> usize {
        match &*self.rest.borrow() {
            Some(rest) => rest.m_length(),
            None if self.phase.get() == Phase::Closed => 0,
            None => self.so.upgrade().map_or(0, |so| so.so_snd.cc()),
        }
    }

    /// Shares their clusters. Without mbufs the next timeout tries again.
    fn first(&self, octets: usize) -> Option<Parcel> {
        let copy = |m: Option<&Mbuf>| m?.m_copym(0, octets).ok();
        let copy = match &*self.rest.borrow() {
            Some(rest) => copy(Some(rest)),
            None => self.so.upgrade()?.so_snd.first(copy),
        };
        copy.map(Parcel::Mbufs)
    }

    fn sent(&self, octets: usize) {
        let rest = self.rest.take();
        if let Some(mut rest) = rest {
            if octets < rest.m_length() {
                rest.m_adj(octets as isize);
                drop(self.rest.replace(Some(rest)));
            }
        } else if let Some(so) = self.so.upgrade() {
            so.so_snd.sbdrop(octets);
        }
    }

    fn has_room(&self) -> bool {
        self.so.upgrade().is_some_and(|so| so.soqhasroom())
    }

    fn accept(
        &self,
        cx: &Kernel,
        circuit: Rc<Circuit>,
    ) -> core::result::Result<(), &'static Reason> {
        let (half, head) = (self.half.upgrade(), self.so.upgrade());
        let (Some(half), Some(head)) = (half, head) else { return Err(&reason::CLOSED) };
        let (local, peer) = circuit.ends(cx).ok_or(&reason::CLOSED)?;
        half.bsd.splnet(cx, || {
            let so = head.sonewconn(cx, 0).ok_or(&reason::TABLE_FULL)?;
            let pcb = so.pcb::<Self>().ok_or(&reason::TABLE_FULL)?;
            pcb.local.set(local);
            pcb.peer.set(peer);
            circuit.set_user(Rc::<Self>::downgrade(&pcb));
            drop(pcb.circuit.replace(Some(circuit)));
            so.soisconnected(cx);
            Ok(())
        })
    }
}

impl Connections {
    pub(super) fn new(place: Place, circuits: Rc<Circuits>) -> Self {
        Self { place, circuits, all: RefCell::default() }
    }

    fn attach(&self, half: &Rc<Half>, so: &Rc<Socket>) -> Result {
        if so.so_snd.hiwat() == 0 || so.so_rcv.hiwat() == 0 {
            // Less where the graph bounds all sockets to that.
            so.soreserve(SENDSPACE, RECVSPACE).or_else(|_| so.soreserve(4096, 4096))?;
        }
        let pcb = Rc::new(Pcb {
            half: Rc::downgrade(half),
            so: Rc::downgrade(so),
            local: Cell::new(half.form.any()),
            peer: Cell::new(half.form.any()),
            circuit: RefCell::default(),
            listening: RefCell::default(),
            given: Cell::new(0),
            rest: RefCell::default(),
            phase: Cell::new(Phase::Open),
        });
        let mut all = self.all.borrow_mut();
        // Those that have gone on without their sockets, and are done.
        all.retain(|pcb| !(pcb.phase.get() == Phase::Closed && pcb.is_over()));
        all.push(Rc::clone(&pcb));
        so.set_pcb(Some(pcb));
        Ok(())
    }

    fn bind(&self, half: &Half, pcb: &Pcb, local: Addr) -> Result {
        if pcb.local.get() != half.form.any() {
            return Err(Errno::EINVAL);
        }
        let (local, ()) = self.place.bind(half, local, |local| {
            let port = half.form.port_of(&local);
            let listens = |pcb: &Rc<Pcb>| pcb.circuit.borrow().is_none();
            let is_it = |pcb: &Rc<Pcb>| half.form.port_of(&pcb.local.get()) == port;
            let is_taken = self.all.borrow().iter().any(|pcb| listens(pcb) && is_it(pcb));
            if is_taken { Err(Fault::InUse) } else { Ok(()) }
        })?;
        pcb.local.set(local);
        Ok(())
    }

    fn wanted(&self, pcb: &Pcb, so: &Socket) -> Wanted {
        let unread_max = u32::try_from(so.so_rcv.hiwat()).unwrap_or(u32::MAX);
        Wanted { selector: self.place.selector, local: pcb.local.get(), unread_max }
    }

    fn listen(&self, cx: &Kernel, half: &Rc<Half>, pcb: &Rc<Pcb>, so: &Rc<Socket>) -> Result {
        if so.state() & (SS_ISCONNECTED | SS_ISCONNECTING) != 0 {
            return Err(Errno::EINVAL);
        }
        if pcb.listening.borrow().is_some() {
            return Ok(());
        }
        if !half.has_port(&pcb.local.get()) {
            self.bind(half, pcb, half.form.any())?;
        }
        let (wanted, user) = (self.wanted(pcb, so), Rc::<Pcb>::downgrade(pcb));
        let listening = half.bsd.spl0(cx, || self.circuits.listen(cx, wanted, user))?;
        drop(pcb.listening.replace(Some(listening)));
        Ok(())
    }

    fn connect(
        &self,
        cx: &Kernel,
        half: &Half,
        (pcb, so): (&Rc<Pcb>, &Rc<Socket>),
        peer: Addr,
    ) -> Result {
        if pcb.circuit.borrow().is_some() {
            return Err(Errno::EISCONN);
        }
        if !half.has_port(&peer) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let (wanted, user) = (self.wanted(pcb, so), Rc::<Pcb>::downgrade(pcb));
        so.soisconnecting();
        let opened = half.bsd.spl0(cx, || self.circuits.connect(cx, wanted, peer, user));
        let circuit = opened.inspect_err(|_| so.set_state(0, SS_ISCONNECTING))?;
        pcb.peer.set(peer);
        if let Some((local, _)) = half.bsd.spl0(cx, || circuit.ends(cx)) {
            pcb.local.set(local);
        }
        drop(pcb.circuit.replace(Some(circuit)));
        Ok(())
    }

    /// The socket goes.
    fn detach(&self, cx: &Kernel, half: &Half, (pcb, so): (&Rc<Pcb>, &Rc<Socket>)) {
        so.set_pcb(None);
        let listening = pcb.listening.take();
        if let Some(door) = listening {
            half.bsd.spl0(cx, || door.close(cx));
        }
        if pcb.phase.get() != Phase::Closed {
            pcb.abort(cx, half);
        }
        // One that still sends is kept until that is done.
        self.all.borrow_mut().retain(|other| !Rc::ptr_eq(other, pcb) || !pcb.is_over());
    }
}

impl Users for Connections {
    fn stop(&self, cx: &Kernel) {
        let all = self.all.take();
        let Ok(half) = self.place.half() else { return };
        for pcb in all {
            if let Some(so) = pcb.so.upgrade() {
                so.set_pcb(None);
            }
            if let Some(door) = pcb.listening.take() {
                door.close(cx);
            }
            pcb.abort(cx, &half);
        }
    }
}

impl ProtoFns for Connections {
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
            return self.attach(&half, so);
        }
        let pcb = so.pcb::<Pcb>().ok_or(Errno::EINVAL)?;
        match req {
            Pru::Detach => self.detach(cx, &half, (&pcb, so)),
            Pru::Abort => {
                self.detach(cx, &half, (&pcb, so));
                so.soisdisconnected(cx);
            }
            Pru::Bind => self.bind(&half, &pcb, half.addr_of(args.need_nam()?)?)?,
            Pru::Listen => self.listen(cx, &half, &pcb, so)?,
            Pru::Connect => {
                let peer = half.addr_of(args.need_nam()?)?;
                self.connect(cx, &half, (&pcb, so), peer)?;
            }
            Pru::Accept | Pru::Peeraddr => {
                half.sockaddr(pcb.peer.get()).store(args.need_nam()?);
            }
            Pru::Disconnect => pcb.close(cx, &half, so),
            Pru::Shutdown => {
                so.socantsendmore(cx);
                if pcb.phase.get() == Phase::Open {
                    pcb.phase.set(Phase::Shut);
                }
                pcb.output(cx);
            }
            Pru::Rcvd => pcb.received(cx, &half, so),
            Pru::Send => {
                let m = args.need_m()?;
                if pcb.circuit.borrow().is_none() {
                    return Err(Errno::ENOTCONN);
                }
                so.so_snd.sbappend(m);
                pcb.output(cx);
            }
            Pru::Sockaddr => half.sockaddr(pcb.local.get()).store(args.need_nam()?),
            Pru::Sense => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn has_slowtimo(&self) -> bool {
        true
    }

    /// Goes on where mbufs, or room of which nothing tells, were wanting.
    fn pr_slowtimo(&self, cx: &Kernel, _: &Rc<Protosw>) {
        let all = self.all.borrow().clone();
        for pcb in all {
            if pcb.has_arrived() {
                pcb.input(cx);
            }
            if pcb.waiting() > 0 {
                pcb.output(cx);
            }
        }
        self.all.borrow_mut().retain(|pcb| !(pcb.phase.get() == Phase::Closed && pcb.is_over()));
    }

    fn pr_stop(&self) {
        drop(self.all.take());
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        let all = self.all.borrow();
        let connected = all.iter().filter(|pcb| pcb.circuit.borrow().is_some()).count();
        Vec::from([("control blocks", all.len() as u64), ("connections", connected as u64)])
    }
}
