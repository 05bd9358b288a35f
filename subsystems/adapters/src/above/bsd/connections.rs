//! Sockets of streams: the socket buffer in front of the protocol below, which holds what is not
//! acknowledged and closes its window for what is not read.

use super::Half;
use super::users::{Place, Users};
use crate::circuit::{Circuit, Listener, Streams, User, Wanted};
use crate::edge::Door;
use crate::form::Addr;
use crate::parcel::Parcel;
use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::{
    Mbuf, ProtoFns, Protosw, Pru, PruArgs, SS_CANTRCVMORE, SS_ISCONNECTED, SS_ISCONNECTING, Socket,
};
use xk_core::reason::{self, Reason};
use xk_core::{Kernel, Message};
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::stream::{StreamError, StreamEvent};

/// Octets that wait to be sent, beside those below, at most.
const SENDSPACE: usize = 16 << 10;
/// Octets received that wait at most: what a protocol below may announce before it is told.
const RECVSPACE: usize = 64 << 10;
/// Octets that are handed down at once at most.
const CHUNK: usize = 16 << 10;

/// The error number that users see.
fn errno_of(error: StreamError) -> Errno {
    match error {
        StreamError::Refused => Errno::ECONNREFUSED,
        StreamError::Reset => Errno::ECONNRESET,
        StreamError::TimedOut => Errno::ETIMEDOUT,
        StreamError::Network(NetworkErrorKind::NetUnreachable | NetworkErrorKind::NetUnknown) => {
            Errno::ENETUNREACH
        }
        StreamError::Network(_) => Errno::EHOSTUNREACH,
        StreamError::Aborted => Errno::ECONNABORTED,
        StreamError::NoBuffers => Errno::ENOBUFS,
    }
}

/// The entry of the protocol switch.
pub(super) struct Connections {
    place: Place,
    streams: Rc<dyn Streams>,
    all: RefCell<Vec<Rc<Pcb>>>,
}

/// A control block.
struct Pcb {
    half: Weak<Half>,
    so: Weak<Socket>,
    local: Cell<Addr>,
    peer: Cell<Addr>,
    circuit: RefCell<Option<Rc<dyn Circuit>>>,
    listening: RefCell<Option<Rc<dyn Door>>>,
    /// Octets put into the socket's buffer of which the layer below is not told yet that they were
    /// consumed.
    given: Cell<usize>,
    /// Messages that arrived while there were no mbufs.
    arrived: RefCell<VecDeque<Message>>,
    /// True if the stream ended after them.
    is_ended: Cell<bool>,
    /// The user has closed: what is left goes from here.
    rest: RefCell<Option<Mbuf>>,
    phase: Cell<Phase>,
    /// Octets are handed down; what asks for that meanwhile has it done again.
    is_sending: Cell<bool>,
    again: Cell<bool>,
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
    fn circuit(&self) -> Option<Rc<dyn Circuit>> {
        self.circuit.borrow().clone()
    }

    fn forget(&self) {
        drop(self.circuit.take());
        drop(self.rest.take());
        drop(self.arrived.take());
    }

    /// Octets that wait to be handed down.
    fn waiting(&self) -> usize {
        match &*self.rest.borrow() {
            Some(rest) => rest.m_length(),
            None if self.phase.get() == Phase::Closed => 0,
            None => self.so.upgrade().map_or(0, |so| so.so_snd.cc()),
        }
    }

    /// A copy of the first of them, which shares their clusters.
    fn copy(&self, octets: usize) -> Option<Mbuf> {
        let copy = |m: Option<&Mbuf>| m?.m_copym(0, octets).ok();
        match &*self.rest.borrow() {
            Some(rest) => copy(Some(rest)),
            None => self.so.upgrade()?.so_snd.first(copy),
        }
    }

    /// The first of them have gone.
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

    /// Hands down what waits, as far as there is room, and what follows behind it.
    fn output(&self, cx: &Kernel) {
        let (Some(half), Some(circuit)) = (self.half.upgrade(), self.circuit()) else { return };
        if self.is_sending.replace(true) {
            return self.again.set(true);
        }
        let mut any = false;
        loop {
            self.again.set(false);
            let waiting = self.waiting();
            if waiting == 0 {
                self.end_output(cx, &half, &circuit);
                break;
            }
            let space = half.bsd.spl0(cx, || circuit.space(cx));
            let octets = space.min(waiting).min(CHUNK);
            if octets > 0
                && let Some(copy) = self.copy(octets)
                && half.bsd.spl0(cx, || circuit.send(cx, Parcel::Mbufs(copy))).is_ok()
            {
                self.sent(octets);
                any = true;
            } else if !self.again.get() {
                // Room is told of; without mbufs the next timeout tries again.
                break;
            }
        }
        self.is_sending.set(false);
        if let Some(so) = self.so.upgrade().filter(|_| any && self.phase.get() != Phase::Closed) {
            so.sowwakeup(cx);
        }
    }

    /// Everything has been handed down.
    fn end_output(&self, cx: &Kernel, half: &Half, circuit: &Rc<dyn Circuit>) {
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
        let mut any = false;
        loop {
            let first = self.arrived.borrow_mut().pop_front();
            let Some(first) = first else { break };
            let octets = first.len();
            if so.is(SS_CANTRCVMORE) {
                // The user wants nothing more.
                self.consumed(cx, &half, octets);
                continue;
            }
            let kept = first.try_clone();
            let mbufs = half.bsd.mbufs();
            match (Parcel::Message(first).into_mbufs(mbufs, &half.up), kept) {
                (Ok(m), _) => {
                    self.given.set(self.given.get() + octets);
                    so.so_rcv.sbappend(m);
                    any = true;
                }
                (Err(_), Ok(kept)) => {
                    self.arrived.borrow_mut().push_front(kept);
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
        if self.is_ended.get() && self.arrived.borrow().is_empty() && !so.is(SS_CANTRCVMORE) {
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
        let unread = so.so_rcv.cc() + self.arrived.borrow().len();
        if unread > 0 {
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

    fn is_over(&self) -> bool {
        self.circuit.borrow().is_none() && self.listening.borrow().is_none()
    }
}

/// A block hears of its stream through this: it does not keep the block.
struct Hears(Weak<Pcb>);

impl Hears {
    fn pcb(&self) -> Option<(Rc<Half>, Rc<Pcb>)> {
        let pcb = self.0.upgrade()?;
        Some((pcb.half.upgrade()?, pcb))
    }
}

impl User for Hears {
    fn arrive(&self, cx: &Kernel, parcel: Parcel) {
        let Some((half, pcb)) = self.pcb() else { return };
        half.bsd.splnet(cx, || {
            if pcb.phase.get() == Phase::Closed {
                // As TCP does for a process that is gone.
                return pcb.abort(cx, &half);
            }
            match parcel.into_message(cx.pool(), &half.up) {
                Ok(message) => pcb.arrived.borrow_mut().push_back(message),
                Err(_) => return pcb.fail(cx, &half, Errno::ENOBUFS),
            }
            pcb.input(cx);
        });
    }

    fn happened(&self, cx: &Kernel, event: StreamEvent) {
        let Some((half, pcb)) = self.pcb() else { return };
        let so = pcb.so.upgrade().filter(|_| pcb.phase.get() != Phase::Closed);
        half.bsd.splnet(cx, || match event {
            StreamEvent::Connected => {
                if let Some(circuit) = pcb.circuit() {
                    let (local, peer) = half.bsd.spl0(cx, || circuit.ends(cx));
                    pcb.local.set(local);
                    pcb.peer.set(peer);
                }
                if let Some(so) = &so {
                    so.soisconnected(cx);
                }
                pcb.output(cx);
            }
            StreamEvent::Writable => pcb.output(cx),
            StreamEvent::EndOfStream => {
                pcb.is_ended.set(true);
                pcb.input(cx);
            }
            StreamEvent::Failed(_) | StreamEvent::Closed => {
                let circuit = pcb.circuit();
                pcb.input(cx);
                let is_short = !pcb.arrived.borrow().is_empty();
                pcb.forget();
                if let Some(circuit) = circuit {
                    half.bsd.spl0(cx, || circuit.close(cx));
                }
                let Some(so) = &so else { return };
                match event {
                    StreamEvent::Failed(error) => so.set_error(Some(errno_of(error))),
                    _ if is_short => so.set_error(Some(Errno::ENOBUFS)),
                    _ => {}
                }
                so.soisdisconnected(cx);
            }
        });
    }
}

/// A socket that listens.
struct Accepts {
    half: Weak<Half>,
    so: Weak<Socket>,
}

impl Listener for Accepts {
    fn has_room(&self) -> bool {
        self.so.upgrade().is_some_and(|so| so.soqhasroom())
    }

    fn accept(
        &self,
        cx: &Kernel,
        circuit: Rc<dyn Circuit>,
    ) -> core::result::Result<Rc<dyn User>, &'static Reason> {
        let (half, head) = (self.half.upgrade(), self.so.upgrade());
        let (Some(half), Some(head)) = (half, head) else { return Err(&reason::CLOSED) };
        let (local, peer) = circuit.ends(cx);
        half.bsd.splnet(cx, || {
            let so = head.sonewconn(cx, 0).ok_or(&reason::TABLE_FULL)?;
            let pcb = so.pcb::<Pcb>().ok_or(&reason::TABLE_FULL)?;
            pcb.local.set(local);
            pcb.peer.set(peer);
            drop(pcb.circuit.replace(Some(circuit)));
            so.soisconnected(cx);
            Ok(Rc::new(Hears(Rc::downgrade(&pcb))) as Rc<dyn User>)
        })
    }
}

impl Connections {
    pub(super) fn new(place: Place, streams: Rc<dyn Streams>) -> Self {
        Self { place, streams, all: RefCell::default() }
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
            arrived: RefCell::default(),
            is_ended: Cell::new(false),
            rest: RefCell::default(),
            phase: Cell::new(Phase::Open),
            is_sending: Cell::new(false),
            again: Cell::new(false),
        });
        let mut all = self.all.borrow_mut();
        // Those that have gone on without their sockets, and are done.
        all.retain(|pcb| !(pcb.phase.get() == Phase::Closed && pcb.is_over()));
        all.push(Rc::clone(&pcb));
        so.set_pcb(Some(pcb));
        Ok(())
    }

    fn bind(&self, half: &Half, pcb: &Pcb, mut local: Addr) -> Result {
        if pcb.local.get() != half.form.any() {
            return Err(Errno::EINVAL);
        }
        let is_taken = |local: &Addr| {
            let port = half.form.port_of(local);
            let listens = |pcb: &Rc<Pcb>| pcb.circuit.borrow().is_none();
            let is_it = |pcb: &Rc<Pcb>| half.form.port_of(&pcb.local.get()) == port;
            self.all.borrow().iter().any(|pcb| listens(pcb) && is_it(pcb))
        };
        if half.has_port(&local) {
            if is_taken(&local) {
                return Err(Errno::EADDRINUSE);
            }
        } else {
            let with = |port| {
                let mut one = local;
                half.form.set_port(&mut one, port);
                one
            };
            let mut free = self.place.free_ports(half).map(with).filter(|one| !is_taken(one));
            local = free.next().ok_or(Errno::EADDRNOTAVAIL)?;
        }
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
        let accepts = Rc::new(Accepts { half: Rc::downgrade(half), so: Rc::downgrade(so) });
        let wanted = self.wanted(pcb, so);
        let door = half.bsd.spl0(cx, || self.streams.listen(cx, wanted, accepts))?;
        drop(pcb.listening.replace(Some(door)));
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
        let user = Rc::new(Hears(Rc::downgrade(pcb)));
        let wanted = self.wanted(pcb, so);
        so.soisconnecting();
        let opened = half.bsd.spl0(cx, || self.streams.connect(cx, wanted, peer, user));
        let circuit = opened.inspect_err(|_| so.set_state(0, SS_ISCONNECTING))?;
        pcb.peer.set(peer);
        let (local, _) = half.bsd.spl0(cx, || circuit.ends(cx));
        pcb.local.set(local);
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
            if !pcb.arrived.borrow().is_empty() {
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
