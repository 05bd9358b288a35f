//! The socket layer: what users call, and what protocols tell it.
//!
//! Only here a caller waits: [`soreceive`](crate::soreceive) for data, [`sosend`](crate::sosend)
//! for room, [`soaccept`] and `connect` for a peer. With [`SS_NBIO`], or on no shepherd of its
//! own, it gets [`Errno::EWOULDBLOCK`] instead.

use crate::bsd::Bsd;
use crate::errno::{Errno, Result};
use crate::mbuf::{Mbuf, Mt};
use crate::protosw::{PR_CONNREQUIRED, Prco, Protosw, Pru, PruArgs, Sock};
use crate::sockbuf::{Channel, SockBuf};
use alloc::collections::VecDeque;
use alloc::rc::{Rc, Weak};
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Kernel;

/// No user has it open.
pub const SS_NOFDREF: u16 = 0x1;
/// The socket is connected.
pub const SS_ISCONNECTED: u16 = 0x2;
/// The socket is being connected.
pub const SS_ISCONNECTING: u16 = 0x4;
/// The socket is being disconnected.
pub const SS_ISDISCONNECTING: u16 = 0x8;
/// Nothing more can be sent.
pub const SS_CANTSENDMORE: u16 = 0x10;
/// Nothing more will arrive.
pub const SS_CANTRCVMORE: u16 = 0x20;
/// The user is at the mark of out-of-band data.
pub const SS_RCVATMARK: u16 = 0x40;
/// The socket was made with privilege.
pub const SS_PRIV: u16 = 0x80;
/// Calls do not wait.
pub const SS_NBIO: u16 = 0x100;
/// The user is told of events by signal.
pub const SS_ASYNC: u16 = 0x200;
/// The user is to decide whether it is connected: by sending or receiving it says yes.
pub const SS_ISCONFIRMING: u16 = 0x400;

/// Connections that may wait to be accepted at most.
pub const SOMAXCONN: u16 = 5;

/// The level of options of the socket itself.
pub const SOL_SOCKET: u16 = 0xffff;
/// The socket waits for connections.
pub const SO_ACCEPTCONN: u16 = 0x0002;
/// The local address may be bound once more.
pub const SO_REUSEADDR: u16 = 0x0004;
/// Connections are probed.
pub const SO_KEEPALIVE: u16 = 0x0008;
/// Packets go past the routes.
pub const SO_DONTROUTE: u16 = 0x0010;
/// The socket may send to broadcast addresses.
pub const SO_BROADCAST: u16 = 0x0020;
/// A close waits until the connection has ended: four octets, and four more, the seconds at most.
pub const SO_LINGER: u16 = 0x0080;
/// Octets to send that wait at most.
pub const SO_SNDBUF: u16 = 0x1001;
/// Octets received that wait at most.
pub const SO_RCVBUF: u16 = 0x1002;
/// Room from which on a sender is woken.
pub const SO_SNDLOWAT: u16 = 0x1003;
/// Number of octets from which on a receiver is woken.
pub const SO_RCVLOWAT: u16 = 0x1004;
/// Time that a sender waits, in milliseconds here; 0 for as long as it takes.
pub const SO_SNDTIMEO: u16 = 0x1005;
/// Time that a receiver waits, in milliseconds here; 0 for as long as it takes.
pub const SO_RCVTIMEO: u16 = 0x1006;
/// The error that waits; it is cleared.
pub const SO_ERROR: u16 = 0x1007;
/// The socket's type.
pub const SO_TYPE: u16 = 0x1008;

/// Options that are bits of `so_options`.
const SO_BITS: u16 = SO_REUSEADDR | SO_KEEPALIVE | SO_DONTROUTE | SO_BROADCAST | SO_LINGER;

/// A receiver of the changes of a socket (`so_upcall`): in the place of a user that waits, an
/// adapter's or a program's that must not. It is called at splnet.
pub trait Upcall {
    /// Data, room, a connection or an error has come.
    fn upcall(&self, cx: &Kernel, so: &Rc<Socket>);
}

/// One end of communication (`struct socket`).
pub struct Socket {
    pub(crate) bsd: Rc<Bsd>,
    /// Type of the socket.
    pub so_type: Sock,
    /// The protocol switch entry that serves it.
    pub so_proto: Rc<Protosw>,
    /// Data that wait to be sent.
    pub so_snd: SockBuf,
    /// Data that wait to be received.
    pub so_rcv: SockBuf,
    options: Cell<u16>,
    linger: Cell<Duration>,
    /// Octets in front of the mark of out-of-band data; 0 without one.
    oobmark: Cell<usize>,
    state: Cell<u16>,
    error: Cell<Option<Errno>>,
    pcb: RefCell<Option<Rc<dyn Any>>>,
    head: RefCell<Weak<Socket>>,
    /// Connections that are incomplete, and those that wait to be accepted.
    q0: RefCell<VecDeque<Rc<Socket>>>,
    q: RefCell<VecDeque<Rc<Socket>>>,
    qlimit: Cell<u16>,
    timeo: Channel,
    upcall: RefCell<Option<Rc<dyn Upcall>>>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.bsd.sockets.set(self.bsd.sockets.get().saturating_sub(1));
    }
}

impl Socket {
    fn new(bsd: &Rc<Bsd>, pr: &Rc<Protosw>, state: u16) -> Result<Rc<Self>> {
        if bsd.sockets.get() >= bsd.sockets_max {
            return Err(Errno::ENOBUFS);
        }
        bsd.sockets.set(bsd.sockets.get() + 1);
        Ok(Rc::new(Self {
            bsd: Rc::clone(bsd),
            so_type: pr.sw.pr_type,
            so_proto: Rc::clone(pr),
            so_snd: SockBuf::default(),
            so_rcv: SockBuf::default(),
            options: Cell::new(0),
            linger: Cell::new(Duration::ZERO),
            oobmark: Cell::new(0),
            state: Cell::new(state),
            error: Cell::new(None),
            pcb: RefCell::default(),
            head: RefCell::default(),
            q0: RefCell::default(),
            q: RefCell::default(),
            qlimit: Cell::new(0),
            timeo: Channel::default(),
            upcall: RefCell::default(),
        }))
    }

    /// The subsystem.
    pub fn bsd(&self) -> &Rc<Bsd> {
        &self.bsd
    }

    /// The protocol's control block, as its own type (`so_pcb`).
    pub fn pcb<T: 'static>(&self) -> Option<Rc<T>> {
        let pcb = self.pcb.borrow().clone()?;
        pcb.downcast().ok()
    }

    /// Whether there is a control block.
    pub(crate) fn pcb_is_set(&self) -> bool {
        self.pcb.borrow().is_some()
    }

    /// Sets the control block; none at `PRU_DETACH`.
    pub fn set_pcb(&self, pcb: Option<Rc<dyn Any>>) {
        drop(self.pcb.replace(pcb));
    }

    /// `so_options`.
    pub fn options(&self) -> u16 {
        self.options.get()
    }

    /// `so_state`.
    pub fn state(&self) -> u16 {
        self.state.get()
    }

    /// Sets and clears bits of `so_state`.
    pub fn set_state(&self, set: u16, clear: u16) {
        self.state.set(self.state.get() & !clear | set);
    }

    /// Whether it has all of these bits.
    pub fn is(&self, state: u16) -> bool {
        self.state.get() & state == state
    }

    /// `so_error`, for a protocol to set.
    pub fn set_error(&self, error: Option<Errno>) {
        self.error.set(error);
    }

    /// The error that waits, taken.
    pub fn take_error(&self) -> Option<Errno> {
        self.error.take()
    }

    /// The error that waits.
    pub fn error(&self) -> Option<Errno> {
        self.error.get()
    }

    /// Sets what is told of events.
    pub fn set_upcall(&self, upcall: Option<Rc<dyn Upcall>>) {
        drop(self.upcall.replace(upcall));
    }

    /// Gives both buffers room: `soreserve`.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] if it is more than the subsystem allows.
    pub fn soreserve(&self, snd: usize, rcv: usize) -> Result {
        let sb_max = self.bsd.sb_max;
        let fits = self.so_snd.sbreserve(snd, sb_max) && self.so_rcv.sbreserve(rcv, sb_max);
        if fits { Ok(()) } else { Err(Errno::ENOBUFS) }
    }

    /// A request to the protocol, at splnet.
    pub(crate) fn usrreq(self: &Rc<Self>, cx: &Kernel, req: Pru, args: &mut PruArgs<'_>) -> Result {
        self.bsd.splnet(cx, || self.so_proto.pr_usrreq(cx, Some(self), req, args))
    }

    // ---- what protocols tell (uipc_socket2.c) ----

    /// Marks it as being connected: `soisconnecting`.
    pub fn soisconnecting(&self) {
        self.set_state(SS_ISCONNECTING, SS_ISCONNECTED | SS_ISDISCONNECTING);
    }

    /// Marks it as connected: `soisconnected`. One that a listening socket waits for moves to those
    /// that can be accepted.
    pub fn soisconnected(self: &Rc<Self>, cx: &Kernel) {
        self.set_state(SS_ISCONNECTED, SS_ISCONNECTING | SS_ISDISCONNECTING | SS_ISCONFIRMING);
        let head = self.head.borrow().upgrade();
        if let Some(head) = head {
            let waits = head.q0.borrow().iter().any(|so| Rc::ptr_eq(so, self));
            if waits {
                head.q0.borrow_mut().retain(|so| !Rc::ptr_eq(so, self));
                head.q.borrow_mut().push_back(Rc::clone(self));
                head.sorwakeup(cx);
                head.timeo.wakeup(cx);
            }
        }
        self.timeo.wakeup(cx);
        self.sorwakeup(cx);
        self.sowwakeup(cx);
    }

    /// Marks it as being disconnected: `soisdisconnecting`.
    pub fn soisdisconnecting(self: &Rc<Self>, cx: &Kernel) {
        self.set_state(SS_ISDISCONNECTING | SS_CANTRCVMORE | SS_CANTSENDMORE, SS_ISCONNECTING);
        self.wake_all(cx);
    }

    /// Marks it as disconnected: `soisdisconnected`.
    pub fn soisdisconnected(self: &Rc<Self>, cx: &Kernel) {
        let gone = SS_ISCONNECTING | SS_ISCONNECTED | SS_ISDISCONNECTING | SS_ISCONFIRMING;
        self.set_state(SS_CANTRCVMORE | SS_CANTSENDMORE, gone);
        self.wake_all(cx);
    }

    fn wake_all(self: &Rc<Self>, cx: &Kernel) {
        self.timeo.wakeup(cx);
        self.sowwakeup(cx);
        self.sorwakeup(cx);
    }

    /// A connection has come that the user is to confirm, by sending or receiving.
    pub fn soisconfirming(self: &Rc<Self>, cx: &Kernel) {
        self.set_state(SS_ISCONFIRMING, SS_ISCONNECTING);
        self.wake_all(cx);
    }

    /// Out-of-band data has come, behind so many octets of the buffer (`so_oobmark`, and
    /// `sohasoutofband`).
    pub fn sohasoutofband(self: &Rc<Self>, cx: &Kernel, behind: usize) {
        self.oobmark.set(behind);
        self.set_state(if behind == 0 { SS_RCVATMARK } else { 0 }, SS_RCVATMARK);
        self.sorwakeup(cx);
    }

    /// Octets that may be received up to the mark; none without one.
    pub(crate) fn up_to_mark(&self) -> Option<usize> {
        Some(self.oobmark.get()).filter(|octets| *octets > 0)
    }

    /// Moves the mark nearer, as `octets` octets were received.
    pub(crate) fn move_mark(&self, octets: usize) {
        if octets == 0 {
            return;
        }
        let is_there = self.oobmark.get() > 0;
        self.oobmark.set(self.oobmark.get().saturating_sub(octets));
        let at_mark = is_there && self.oobmark.get() == 0;
        self.set_state(if at_mark { SS_RCVATMARK } else { 0 }, SS_RCVATMARK);
    }

    /// Nothing more can be sent: `socantsendmore`.
    pub fn socantsendmore(self: &Rc<Self>, cx: &Kernel) {
        self.set_state(SS_CANTSENDMORE, 0);
        self.sowwakeup(cx);
    }

    /// Nothing more will arrive: `socantrcvmore`.
    pub fn socantrcvmore(self: &Rc<Self>, cx: &Kernel) {
        self.set_state(SS_CANTRCVMORE, 0);
        self.sorwakeup(cx);
    }

    /// Something has come for the receiver: `sorwakeup`.
    pub fn sorwakeup(self: &Rc<Self>, cx: &Kernel) {
        self.so_rcv.wakeup(cx);
        self.call_up(cx);
    }

    /// There is room for the sender: `sowwakeup`.
    pub fn sowwakeup(self: &Rc<Self>, cx: &Kernel) {
        self.so_snd.wakeup(cx);
        self.call_up(cx);
    }

    fn call_up(self: &Rc<Self>, cx: &Kernel) {
        let upcall = self.upcall.borrow().clone();
        if let Some(upcall) = upcall {
            upcall.upcall(cx, self);
        }
    }

    /// Whether there is room for one more connection that waits: whether `sonewconn` makes one.
    pub fn soqhasroom(&self) -> bool {
        let waiting = self.q0.borrow().len() + self.q.borrow().len();
        waiting <= 3 * usize::from(self.qlimit.get()) / 2
    }

    /// A socket for a connection that came to this one: `sonewconn`. None if too many wait, or the
    /// protocol does not attach it. With `state` it can be accepted at once.
    pub fn sonewconn(self: &Rc<Self>, cx: &Kernel, state: u16) -> Option<Rc<Socket>> {
        if !self.soqhasroom() {
            return None;
        }
        let so = Self::new(&self.bsd, &self.so_proto, self.state.get() | SS_NOFDREF).ok()?;
        so.options.set(self.options.get() & !SO_ACCEPTCONN);
        so.linger.set(self.linger.get());
        so.soreserve(self.so_snd.hiwat(), self.so_rcv.hiwat()).ok()?;
        *so.head.borrow_mut() = Rc::downgrade(self);
        self.usrreq_of(cx, &so, Pru::Attach).ok()?;
        if state == 0 {
            self.q0.borrow_mut().push_back(Rc::clone(&so));
        } else {
            so.set_state(state, 0);
            self.q.borrow_mut().push_back(Rc::clone(&so));
            self.sorwakeup(cx);
            self.timeo.wakeup(cx);
        }
        Some(so)
    }

    fn usrreq_of(&self, cx: &Kernel, so: &Rc<Socket>, req: Pru) -> Result {
        so.so_proto.pr_usrreq(cx, Some(so), req, &mut PruArgs::default())
    }

    /// Whether a receiver would not wait: `soreadable`.
    pub fn soreadable(&self) -> bool {
        self.so_rcv.cc() >= self.so_rcv.lowat().max(1)
            || !self.so_rcv.is_empty() && self.so_type != Sock::Stream
            || self.is(SS_CANTRCVMORE)
            || !self.q.borrow().is_empty()
            || self.error.get().is_some()
    }

    /// Whether a sender would not wait: `sowriteable`.
    pub fn sowriteable(&self) -> bool {
        let needs = self.so_proto.sw.pr_flags & PR_CONNREQUIRED != 0;
        self.so_snd.sbspace() >= self.so_snd.lowat() && (self.is(SS_ISCONNECTED) || !needs)
            || self.is(SS_CANTSENDMORE)
            || self.error.get().is_some()
    }

    /// Whether calls at it wait.
    pub(crate) fn may_wait(&self) -> bool {
        !self.is(SS_NBIO)
    }
}

// ---- what users call (uipc_socket.c) ----

/// A socket of this family and type, of the protocol with this number or, with 0, the first that
/// serves the type: `socreate`.
///
/// # Errors
/// [`Errno::EPROTONOSUPPORT`] if there is none, [`Errno::EPROTOTYPE`] if it serves another type;
/// [`Errno::ENOBUFS`]; those of `PRU_ATTACH`.
pub fn socreate(
    cx: &Kernel,
    bsd: &Rc<Bsd>,
    family: u8,
    kind: Sock,
    protocol: u8,
) -> Result<Rc<Socket>> {
    let pr = match protocol {
        0 => bsd.pffindtype(family, kind),
        _ => bsd.pffindproto(family, protocol, kind),
    };
    let pr = pr.ok_or(Errno::EPROTONOSUPPORT)?;
    if pr.sw.pr_type != kind {
        return Err(Errno::EPROTOTYPE);
    }
    socreate_on(cx, bsd, &pr)
}

/// A socket of one entry of the protocol switch, of which a graph may have several alike.
///
/// # Errors
/// As of [`socreate`].
pub fn socreate_on(cx: &Kernel, bsd: &Rc<Bsd>, pr: &Rc<Protosw>) -> Result<Rc<Socket>> {
    let so = Socket::new(bsd, pr, SS_PRIV)?;
    if let Err(error) = so.usrreq(cx, Pru::Attach, &mut PruArgs::default()) {
        so.set_state(SS_NOFDREF, 0);
        return Err(error);
    }
    Ok(so)
}

/// Binds a socket to the local address `nam`: `sobind`.
///
/// # Errors
/// Those of the protocol.
pub fn sobind(cx: &Kernel, so: &Rc<Socket>, nam: &mut Mbuf) -> Result {
    so.usrreq(cx, Pru::Bind, &mut PruArgs::nam(nam))
}

/// Has a socket wait for connections, of which at most `backlog`, and [`SOMAXCONN`], wait to be
/// accepted: `solisten`.
///
/// # Errors
/// Those of the protocol.
pub fn solisten(cx: &Kernel, so: &Rc<Socket>, backlog: u16) -> Result {
    so.usrreq(cx, Pru::Listen, &mut PruArgs::default())?;
    so.options.set(so.options.get() | SO_ACCEPTCONN);
    so.qlimit.set(backlog.min(SOMAXCONN));
    Ok(())
}

/// Takes a connection that waits at a listening socket, and its peer's address: what accept(2)
/// does. Waits for one.
///
/// # Errors
/// [`Errno::EINVAL`] if it does not listen, [`Errno::EWOULDBLOCK`], [`Errno::ECONNABORTED`]; those
/// of the protocol.
pub fn soaccept(cx: &Kernel, so: &Rc<Socket>, nam: &mut Mbuf) -> Result<Rc<Socket>> {
    if so.options.get() & SO_ACCEPTCONN == 0 {
        return Err(Errno::EINVAL);
    }
    let accepted = loop {
        let first = so.q.borrow_mut().pop_front();
        if let Some(first) = first {
            break first;
        }
        if so.is(SS_CANTRCVMORE) {
            return Err(Errno::ECONNABORTED);
        }
        if let Some(error) = so.take_error() {
            return Err(error);
        }
        if !so.may_wait() {
            return Err(Errno::EWOULDBLOCK);
        }
        so.timeo.sleep(cx, &so.bsd, so.so_rcv.timeo())?;
    };
    *accepted.head.borrow_mut() = Weak::new();
    accepted.set_state(0, SS_NOFDREF);
    if let Some(error) = accepted.take_error() {
        // It has ended while it waited.
        let _ = soclose(cx, &accepted);
        return Err(error);
    }
    accepted.usrreq(cx, Pru::Accept, &mut PruArgs::nam(nam))?;
    Ok(accepted)
}

/// Connects a socket to the peer `nam`: `soconnect`, and of connect(2) the wait for it. A socket
/// whose protocol needs no connection may be connected again, to another.
///
/// # Errors
/// [`Errno::EOPNOTSUPP`] if it listens, [`Errno::EISCONN`], [`Errno::EINPROGRESS`] if it may not
/// wait; those of the protocol.
pub fn soconnect(cx: &Kernel, so: &Rc<Socket>, nam: &mut Mbuf) -> Result {
    if so.options.get() & SO_ACCEPTCONN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if so.state.get() & (SS_ISCONNECTED | SS_ISCONNECTING) != 0 {
        let needs = so.so_proto.sw.pr_flags & PR_CONNREQUIRED != 0;
        if needs || sodisconnect(cx, so).is_err() {
            return Err(Errno::EISCONN);
        }
    }
    so.usrreq(cx, Pru::Connect, &mut PruArgs::nam(nam))?;
    while so.is(SS_ISCONNECTING) && so.error.get().is_none() {
        if !so.may_wait() {
            return Err(Errno::EINPROGRESS);
        }
        so.timeo.sleep(cx, &so.bsd, so.so_snd.timeo())?;
    }
    so.take_error().map_or(Ok(()), Err)
}

/// Connects two sockets with each other: `soconnect2`.
///
/// # Errors
/// Those of the protocol.
pub fn soconnect2(cx: &Kernel, so: &Rc<Socket>, so2: &Rc<Socket>) -> Result {
    let mut args = PruArgs { so2: Some(Rc::clone(so2)), ..PruArgs::default() };
    so.usrreq(cx, Pru::Connect2, &mut args)
}

/// Two sockets of the local domain that are connected with each other: what socketpair(2) does.
///
/// # Errors
/// As of [`socreate`].
pub fn socketpair(cx: &Kernel, bsd: &Rc<Bsd>, kind: Sock) -> Result<(Rc<Socket>, Rc<Socket>)> {
    let create = || socreate(cx, bsd, crate::sockaddr::AF_UNIX, kind, 0);
    let (one, other) = (create()?, create()?);
    soconnect2(cx, &one, &other)?;
    if kind == Sock::Dgram {
        // Datagram sockets are connected one way at a time.
        soconnect2(cx, &other, &one)?;
    }
    Ok((one, other))
}

/// Ends a connection: `sodisconnect`.
///
/// # Errors
/// [`Errno::ENOTCONN`], [`Errno::EALREADY`]; those of the protocol.
pub fn sodisconnect(cx: &Kernel, so: &Rc<Socket>) -> Result {
    if !so.is(SS_ISCONNECTED) {
        return Err(Errno::ENOTCONN);
    }
    if so.is(SS_ISDISCONNECTING) {
        return Err(Errno::EALREADY);
    }
    so.usrreq(cx, Pru::Disconnect, &mut PruArgs::default())
}

/// Directions that [`soshutdown`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing more is received.
    Read,
    /// Nothing more is sent.
    Write,
    /// Both.
    Both,
}

/// Ends directions of a socket: `soshutdown`.
///
/// # Errors
/// Those of the protocol.
pub fn soshutdown(cx: &Kernel, so: &Rc<Socket>, how: How) -> Result {
    if how != How::Write {
        so.bsd.splnet(cx, || {
            so.socantrcvmore(cx);
            so.so_rcv.sbflush();
        });
    }
    match how {
        How::Read => Ok(()),
        _ => so.usrreq(cx, Pru::Shutdown, &mut PruArgs::default()),
    }
}

/// Closes a socket: `soclose`. A protocol that still has something to send keeps it until then.
///
/// # Errors
/// What went wrong on the way; it is closed all the same.
pub fn soclose(cx: &Kernel, so: &Rc<Socket>) -> Result {
    so.set_upcall(None);
    let waiting: alloc::vec::Vec<_> =
        so.q0.borrow_mut().drain(..).chain(so.q.borrow_mut().drain(..)).collect();
    for waiting in waiting {
        *waiting.head.borrow_mut() = Weak::new();
        let _ = waiting.usrreq(cx, Pru::Abort, &mut PruArgs::default());
    }
    let mut result = Ok(());
    if so.pcb.borrow().is_some() {
        if so.is(SS_ISCONNECTED) && !so.is(SS_ISDISCONNECTING) {
            result = sodisconnect(cx, so);
        }
        if result.is_ok() && so.options.get() & SO_LINGER != 0 {
            result = linger(cx, so);
        }
        if so.pcb.borrow().is_some() {
            result = result.and(so.usrreq(cx, Pru::Detach, &mut PruArgs::default()));
        }
    }
    so.set_state(SS_NOFDREF, 0);
    so.bsd.splnet(cx, || {
        so.wake_all(cx);
        so.so_rcv.sbflush();
        so.so_snd.sbflush();
    });
    result
}

/// Waits until the connection has ended, as long as `SO_LINGER` says.
fn linger(cx: &Kernel, so: &Rc<Socket>) -> Result {
    let until = cx.now().after(so.linger.get());
    while so.is(SS_ISCONNECTED) && so.may_wait() {
        let left = until.since(cx.now());
        if left.is_zero() {
            break;
        }
        match so.timeo.sleep(cx, &so.bsd, Some(left)) {
            Ok(()) => {}
            Err(Errno::EWOULDBLOCK) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets an option: `sosetopt`. Of the socket's own level the value is four octets, in this
/// machine's order.
///
/// # Errors
/// [`Errno::EINVAL`], [`Errno::ENOPROTOOPT`], [`Errno::ENOBUFS`]; those of the protocol.
pub fn sosetopt(
    cx: &Kernel,
    so: &Rc<Socket>,
    (level, name): (u16, u16),
    value: Option<Mbuf>,
) -> Result {
    if level != SOL_SOCKET {
        let mut mp = value;
        let set = || so.so_proto.pr_ctloutput(cx, Prco::Setopt, so, (level, name), &mut mp);
        return so.bsd.splnet(cx, set);
    }
    let value = value.ok_or(Errno::EINVAL)?;
    if name == SO_LINGER
        && let Some(seconds) = value.mtod().get(4..8).and_then(<[u8]>::first_chunk)
    {
        so.linger.set(Duration::from_secs(u32::from_ne_bytes(*seconds).into()));
    }
    let value: &[u8; 4] = value.mtod().first_chunk().ok_or(Errno::EINVAL)?;
    let value = u32::from_ne_bytes(*value);
    let size = usize::try_from(value).map_err(|_| Errno::EINVAL)?;
    let time = (value != 0).then(|| Duration::from_millis(u64::from(value)));
    let reserve = |sb: &SockBuf| {
        if sb.sbreserve(size, so.bsd.sb_max) { Ok(()) } else { Err(Errno::ENOBUFS) }
    };
    match name {
        _ if name & SO_BITS == name && name.is_power_of_two() => {
            let set = if value != 0 { name } else { 0 };
            so.options.set(so.options.get() & !name | set);
        }
        SO_SNDBUF => reserve(&so.so_snd)?,
        SO_RCVBUF => reserve(&so.so_rcv)?,
        SO_SNDLOWAT => so.so_snd.set_lowat(size),
        SO_RCVLOWAT => so.so_rcv.set_lowat(size),
        SO_SNDTIMEO => so.so_snd.set_timeo(time),
        SO_RCVTIMEO => so.so_rcv.set_timeo(time),
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// The value of an option: `sogetopt`. Of the socket's own level four octets, in this machine's
/// order.
///
/// # Errors
/// As of [`sosetopt`].
pub fn sogetopt(cx: &Kernel, so: &Rc<Socket>, level: u16, name: u16) -> Result<Mbuf> {
    if level != SOL_SOCKET {
        let mut mp = None;
        let get = || so.so_proto.pr_ctloutput(cx, Prco::Getopt, so, (level, name), &mut mp);
        so.bsd.splnet(cx, get)?;
        return mp.ok_or(Errno::ENOPROTOOPT);
    }
    let millis = |limit: Option<Duration>| limit.map_or(0, |limit| limit.as_millis() as usize);
    let value = match name {
        SO_ACCEPTCONN => usize::from(so.options.get() & name),
        _ if name & SO_BITS == name && name.is_power_of_two() => {
            usize::from(so.options.get() & name)
        }
        SO_SNDBUF => so.so_snd.hiwat(),
        SO_RCVBUF => so.so_rcv.hiwat(),
        SO_SNDLOWAT => so.so_snd.lowat(),
        SO_RCVLOWAT => so.so_rcv.lowat(),
        SO_SNDTIMEO => millis(so.so_snd.timeo()),
        SO_RCVTIMEO => millis(so.so_rcv.timeo()),
        SO_ERROR => so.take_error().map_or(0, |error| error as usize),
        SO_TYPE => so.so_type as usize,
        _ => return Err(Errno::ENOPROTOOPT),
    };
    so.bsd.mbufs().m_copyin(Mt::Soopts, &(value as u32).to_ne_bytes())
}

/// The local address of a socket: what getsockname(2) does.
///
/// # Errors
/// Those of the protocol.
pub fn getsockname(cx: &Kernel, so: &Rc<Socket>) -> Result<crate::Sockaddr> {
    name_of(cx, so, Pru::Sockaddr)
}

/// The peer's address of a connected socket: what getpeername(2) does.
///
/// # Errors
/// [`Errno::ENOTCONN`]; those of the protocol.
pub fn getpeername(cx: &Kernel, so: &Rc<Socket>) -> Result<crate::Sockaddr> {
    if !so.is(SS_ISCONNECTED) {
        return Err(Errno::ENOTCONN);
    }
    name_of(cx, so, Pru::Peeraddr)
}

fn name_of(cx: &Kernel, so: &Rc<Socket>, req: Pru) -> Result<crate::Sockaddr> {
    let mut nam = so.bsd.mbufs().m_get(Mt::Soname)?;
    let asked = so.usrreq(cx, req, &mut PruArgs::nam(&mut nam));
    let name = asked.and_then(|()| crate::Sockaddr::of(&nam));
    nam.m_freem();
    name
}
