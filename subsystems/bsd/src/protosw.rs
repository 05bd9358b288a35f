//! The protocol switch: one entry for each protocol, found by family, type and number.

use crate::errno::{Errno, Result};
use crate::ifnet::Ifnet;
use crate::mbuf::Mbuf;
use crate::sockaddr::Sockaddr;
use crate::socket::Socket;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use xk_core::object::{ProtocolId, ProtocolRef};
use xk_core::{Answer, Ask, Kernel, Reason};

/// The type of a socket (`SOCK_STREAM` ...), and of the protocol switch entry that serves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Sock {
    /// For no socket: a protocol that is used by others only, such as IP itself.
    #[default]
    None = 0,
    /// A stream of octets.
    Stream = 1,
    /// Datagrams.
    Dgram = 2,
    /// The packets of a protocol.
    Raw = 3,
    /// Datagrams that arrive.
    Rdm = 4,
    /// A stream of messages.
    Seqpacket = 5,
}

/// One send is one message: it goes whole or not at all.
pub const PR_ATOMIC: u16 = 0x01;
/// An address comes with each message.
pub const PR_ADDR: u16 = 0x02;
/// The socket must be connected before it carries data.
pub const PR_CONNREQUIRED: u16 = 0x04;
/// The protocol wants to know when the user has received (`PRU_RCVD`).
pub const PR_WANTRCVD: u16 = 0x08;
/// The protocol passes access rights.
pub const PR_RIGHTS: u16 = 0x10;
/// The entry stands for a protocol of another subsystem, where there may be no numbers.
pub const PR_FOREIGN: u16 = 0x20;

/// Requests to `pr_usrreq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pru {
    /// A socket was made.
    Attach = 0,
    /// The socket goes.
    Detach = 1,
    /// Binds it to the address `nam`.
    Bind = 2,
    /// The socket waits for connections.
    Listen = 3,
    /// Connects it to the address `nam`.
    Connect = 4,
    /// A connection is accepted: fills in the peer's address.
    Accept = 5,
    /// Ends the connection.
    Disconnect = 6,
    /// Nothing more will be sent.
    Shutdown = 7,
    /// The user has taken data.
    Rcvd = 8,
    /// Sends `m`, to `nam` if that is given.
    Send = 9,
    /// Ends the connection at once.
    Abort = 10,
    /// An ioctl: `cmd`, with its data in `nam`, for the interface `ifp`.
    Control = 11,
    /// The figures of fstat(2).
    Sense = 12,
    /// Out-of-band data is wanted, into `m`.
    RcvOob = 13,
    /// Sends out-of-band data.
    SendOob = 14,
    /// Fills in the local address.
    Sockaddr = 15,
    /// Fills in the peer's address.
    Peeraddr = 16,
    /// Connects two sockets.
    Connect2 = 17,
    /// The fast timeout, from within a protocol.
    FastTimo = 18,
    /// The slow timeout, from within a protocol.
    SlowTimo = 19,
    /// From below.
    ProtoRcv = 20,
    /// From above.
    ProtoSend = 21,
}

/// Arguments of a request to `pr_usrreq`.
///
/// The protocol takes `m` out, and consumes or frees it, but for `Sense`, `RcvOob` and `Control`;
/// it takes `control` only if it keeps it. What is left is freed by the caller; `nam` stays the
/// caller's.
#[derive(Default)]
pub struct PruArgs<'a> {
    /// Data.
    pub m: Option<Mbuf>,
    /// An address, or room for one; the data of an ioctl.
    pub nam: Option<&'a mut Mbuf>,
    /// Control information: options of the message.
    pub control: Option<Mbuf>,
    /// The command of an ioctl.
    pub cmd: u32,
    /// The interface of an ioctl.
    pub ifp: Option<Rc<Ifnet>>,
    /// The other socket of `Connect2`.
    pub so2: Option<Rc<Socket>>,
}

impl<'a> PruArgs<'a> {
    /// Data alone.
    pub fn data(m: Mbuf) -> Self {
        Self { m: Some(m), ..Self::default() }
    }

    /// An address alone.
    pub fn nam(nam: &'a mut Mbuf) -> Self {
        Self { nam: Some(nam), ..Self::default() }
    }

    /// The address, which the request needs.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if there is none.
    pub fn need_nam(&mut self) -> Result<&mut Mbuf> {
        self.nam.as_deref_mut().ok_or(Errno::EINVAL)
    }

    /// The data, which the request needs.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if there is none.
    pub fn need_m(&mut self) -> Result<Mbuf> {
        self.m.take().ok_or(Errno::EINVAL)
    }
}

/// Arguments with a packet from below: the signature of `pr_input` varies in BSD, here are its
/// forms.
#[derive(Clone, Debug)]
pub enum InputArg {
    /// From IP, whose header is still in front.
    Ip {
        /// Octets of IP's header, options included.
        hlen: usize,
        /// The sender.
        from: Ipv4Addr,
        /// The receiver: a local address, a broadcast or a group.
        to: Ipv4Addr,
        /// The number in IP's header by which it came here.
        kind: u8,
    },
    /// From a protocol that has taken its header off.
    Addressed {
        /// The sender.
        from: Sockaddr,
        /// The receiver: a local address, a broadcast or a group.
        to: Sockaddr,
        /// The number in the header below by which it came here.
        kind: u8,
    },
    /// From an interface, without its link's header.
    Interface(Rc<Ifnet>),
}

/// Arguments with a packet to a protocol below.
#[derive(Clone, Copy, Debug)]
pub struct OutputArg {
    /// The receiver.
    pub to: Sockaddr,
    /// The sender; if none, or its host is unspecified, the protocol chooses.
    pub from: Option<Sockaddr>,
    /// The number in the header by which the receiver knows the protocol above.
    pub kind: u8,
    /// `IP_ROUTETOIF` and such, as the protocol has them.
    pub flags: u16,
    /// The time to live; 0 for the protocol's own choice.
    pub ttl: u8,
}

impl OutputArg {
    /// To this receiver, for the protocol of this number.
    pub fn new(to: Sockaddr, from: Option<Sockaddr>, kind: u8) -> Self {
        Self { to, from, kind, flags: 0, ttl: 0 }
    }
}

/// The message may go to a broadcast address (`SO_BROADCAST` was set).
pub const ALLOWBROADCAST: u16 = 0x20;

/// Commands to `pr_ctlinput`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Prc {
    /// An interface went down.
    IfDown = 0,
    /// The route is dead.
    RouteDead = 1,
    /// Some said: slow down (DECbit).
    Quench2 = 3,
    /// Some said: slow down.
    Quench = 4,
    /// The message was too long.
    MsgSize = 5,
    /// The host is down.
    HostDead = 6,
    /// The host cannot be reached.
    HostUnreach = 7,
    /// No route to the network.
    UnreachNet = 8,
    /// No route to the host.
    UnreachHost = 9,
    /// The receiver has no such protocol.
    UnreachProtocol = 10,
    /// The receiver has no such port.
    UnreachPort = 11,
    /// The source route failed.
    UnreachSrcfail = 13,
    /// A better route to the network.
    RedirectNet = 14,
    /// A better route to the host.
    RedirectHost = 15,
    /// A better route to the network, by type of service.
    RedirectTosnet = 16,
    /// A better route to the host, by type of service.
    RedirectToshost = 17,
    /// Too many hops.
    TimxceedIntrans = 18,
    /// The packet's fragments did not come in time.
    TimxceedReass = 19,
    /// The header is wrong.
    Paramprob = 20,
}

/// Error that a command of `pr_ctlinput` is to a user (`inetctlerrmap`); `None` if it is none.
pub fn inetctlerr(cmd: Prc) -> Option<Errno> {
    match cmd {
        Prc::MsgSize => Some(Errno::EMSGSIZE),
        Prc::HostDead => Some(Errno::EHOSTDOWN),
        Prc::HostUnreach | Prc::UnreachNet | Prc::UnreachHost | Prc::UnreachSrcfail => {
            Some(Errno::EHOSTUNREACH)
        }
        Prc::UnreachProtocol | Prc::UnreachPort => Some(Errno::ECONNREFUSED),
        Prc::Paramprob => Some(Errno::ENOPROTOOPT),
        _ => None,
    }
}

/// Operations of `pr_ctloutput`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Prco {
    /// Gets an option.
    Getopt = 0,
    /// Sets an option.
    Setopt = 1,
}

/// The functions of a protocol switch entry. All run at splnet; none may wait.
///
/// Everything has a default, so that an entry has the functions that its protocol has.
pub trait ProtoFns {
    /// Once, when the subsystem is started (`pr_init`).
    ///
    /// # Errors
    /// Whatever prevents the graph from running.
    fn pr_init(&self, cx: &Kernel, pr: &Rc<Protosw>) -> Result {
        let _ = (cx, pr);
        Ok(())
    }

    /// A packet from below (`pr_input`). It is consumed; one that is dropped is counted under a
    /// reason ([`Protosw::m_drop`]).
    fn pr_input(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: InputArg) {
        let _ = (cx, arg);
        pr.m_drop(m, &xk_core::reason::NOT_SUPPORTED);
    }

    /// A packet from a protocol above (`pr_output`). It is consumed.
    ///
    /// # Errors
    /// [`Errno`].
    fn pr_output(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: &OutputArg) -> Result {
        let _ = (cx, pr, m, arg);
        Err(Errno::EOPNOTSUPP)
    }

    /// A protocol above has no use for a packet that it was given with `arg`, for the reason `cmd`
    /// (in BSD it calls `icmp_error`): the sender is told if that is this protocol's way. The
    /// packet is as it was given, and is consumed.
    fn pr_unreach(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: &InputArg, cmd: Prc) {
        let _ = (cx, pr, arg, cmd);
        m.m_freem();
    }

    /// Something happened below (`pr_ctlinput`), about the receiver `sa` of a packet. The packet
    /// that was sent is shown from the header of this protocol on, if it is known.
    fn pr_ctlinput(
        &self,
        cx: &Kernel,
        pr: &Rc<Protosw>,
        cmd: Prc,
        sa: &Sockaddr,
        packet: Option<&[u8]>,
    ) {
        let _ = (cx, pr, cmd, sa, packet);
    }

    /// Gets or sets an option from above (`pr_ctloutput`). The value is in `mp`.
    ///
    /// # Errors
    /// [`Errno`].
    fn pr_ctloutput(
        &self,
        cx: &Kernel,
        op: Prco,
        so: &Rc<Socket>,
        (level, name): (u16, u16),
        mp: &mut Option<Mbuf>,
    ) -> Result {
        let _ = (cx, op, so, level, name, mp);
        Err(Errno::ENOPROTOOPT)
    }

    /// A question to the line, of those that are the protocol's own.
    fn pr_control(&self, ask: &mut Ask<'_>) -> Answer {
        let _ = ask;
        Answer::Unknown
    }

    /// A request of a user (`pr_usrreq`). Only `Control` may come without a socket.
    ///
    /// # Errors
    /// [`Errno`].
    fn pr_usrreq(
        &self,
        cx: &Kernel,
        pr: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        let _ = (cx, pr, so, req, args);
        Err(Errno::EOPNOTSUPP)
    }

    /// Every 200 ms (`pr_fasttimo`), if [`has_fasttimo`](Self::has_fasttimo).
    fn pr_fasttimo(&self, cx: &Kernel, pr: &Rc<Protosw>) {
        let _ = (cx, pr);
    }

    /// Every 500 ms (`pr_slowtimo`), if [`has_slowtimo`](Self::has_slowtimo).
    fn pr_slowtimo(&self, cx: &Kernel, pr: &Rc<Protosw>) {
        let _ = (cx, pr);
    }

    /// Whether the entry has a fast timeout.
    fn has_fasttimo(&self) -> bool {
        false
    }

    /// Whether the entry has a slow timeout.
    fn has_slowtimo(&self) -> bool {
        false
    }

    /// Memory is short: frees what can be had again (`pr_drain`).
    fn pr_drain(&self, cx: &Kernel, pr: &Rc<Protosw>) {
        let _ = (cx, pr);
    }

    /// The graph is taken down: releases sockets and entries of the switch, so that nothing
    /// keeps itself alive.
    fn pr_stop(&self) {}

    /// Counters, as netstat -s shows them.
    fn pr_stats(&self) -> alloc::vec::Vec<(&'static str, u64)> {
        alloc::vec::Vec::new()
    }
}

/// Description in an entry of the protocol switch: the fields in front of the functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// The sockets that it serves.
    pub pr_type: Sock,
    /// Domain, an address family.
    pub pr_domain: u8,
    /// Number within the domain.
    pub pr_protocol: u8,
    /// [`PR_ATOMIC`] and the others.
    pub pr_flags: u16,
}

/// An entry of the protocol switch (`struct protosw`): one line of a graph.
pub struct Protosw {
    /// Type, domain, number and flags.
    pub sw: Switch,
    /// The line's node: its counters, its name.
    node: RefCell<Option<ProtocolRef>>,
    id: ProtocolId,
    functions: Rc<dyn ProtoFns>,
    /// Upper protocols, by the number in its header (`ip_protox`).
    protox: RefCell<[u8; 256]>,
    uppers: RefCell<alloc::vec::Vec<(u8, Rc<Protosw>)>>,
    is_inited: Cell<bool>,
}

/// In `protox`: there is none.
const NONE: u8 = u8::MAX;

impl Protosw {
    pub(crate) fn new(id: ProtocolId, sw: Switch, functions: Rc<dyn ProtoFns>) -> Rc<Self> {
        Rc::new(Self {
            sw,
            node: RefCell::default(),
            id,
            functions,
            protox: RefCell::new([NONE; 256]),
            uppers: RefCell::default(),
            is_inited: Cell::new(false),
        })
    }

    /// The number of the line's node in the kernel.
    pub fn id(&self) -> ProtocolId {
        self.id
    }

    /// The line's node, from its start on.
    pub fn node(&self) -> Option<ProtocolRef> {
        self.node.borrow().clone()
    }

    /// The line's functions as their own type's; for the subsystem's calls see the methods.
    pub fn functions(&self) -> &Rc<dyn ProtoFns> {
        &self.functions
    }

    pub(crate) fn set_node(&self, node: Option<ProtocolRef>) {
        *self.node.borrow_mut() = node;
    }

    pub(crate) fn begin_init(&self) -> bool {
        !self.is_inited.replace(true)
    }

    /// Frees a packet, counted under a reason at the line's node.
    #[cold]
    pub fn m_drop(&self, m: Mbuf, reason: &'static Reason) {
        m.m_freem();
        self.count_drop(reason);
    }

    /// Counts a packet that is gone already.
    #[cold]
    pub fn count_drop(&self, reason: &'static Reason) {
        if let Some(node) = &*self.node.borrow() {
            node.head().drops().count(reason);
        }
    }

    /// Notes what stands on it under this number. False if 255 do already.
    pub(crate) fn add_upper(&self, number: u8, upper: Rc<Protosw>) -> bool {
        let mut uppers = self.uppers.borrow_mut();
        let Some(at) = u8::try_from(uppers.len()).ok().filter(|at| *at != NONE) else {
            return false;
        };
        uppers.push((number, upper));
        self.protox.borrow_mut()[usize::from(number)] = at;
        true
    }

    pub(crate) fn forget_uppers(&self) {
        self.uppers.borrow_mut().clear();
        self.protox.replace([NONE; 256]);
    }

    /// The upper protocol with this number: `inetsw[ip_protox[number]]`.
    #[inline]
    pub fn upper(&self, number: u8) -> Option<Rc<Protosw>> {
        let at = self.protox.borrow()[usize::from(number)];
        self.uppers.borrow().get(usize::from(at)).map(|(_, upper)| Rc::clone(upper))
    }

    /// All that stands on it, with the numbers.
    pub fn uppers(&self) -> alloc::vec::Vec<(u8, Rc<Protosw>)> {
        self.uppers.borrow().clone()
    }

    /// See [`ProtoFns::pr_init`].
    ///
    /// # Errors
    /// As there.
    pub fn pr_init(self: &Rc<Self>, cx: &Kernel) -> Result {
        self.functions.pr_init(cx, self)
    }

    /// See [`ProtoFns::pr_input`].
    #[inline]
    pub fn pr_input(self: &Rc<Self>, cx: &Kernel, m: Mbuf, arg: InputArg) {
        self.functions.pr_input(cx, self, m, arg);
    }

    /// See [`ProtoFns::pr_output`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn pr_output(self: &Rc<Self>, cx: &Kernel, m: Mbuf, arg: &OutputArg) -> Result {
        self.functions.pr_output(cx, self, m, arg)
    }

    /// See [`ProtoFns::pr_unreach`].
    pub fn pr_unreach(self: &Rc<Self>, cx: &Kernel, m: Mbuf, arg: &InputArg, cmd: Prc) {
        self.functions.pr_unreach(cx, self, m, arg, cmd);
    }

    /// See [`ProtoFns::pr_ctlinput`].
    pub fn pr_ctlinput(
        self: &Rc<Self>,
        cx: &Kernel,
        cmd: Prc,
        sa: &Sockaddr,
        packet: Option<&[u8]>,
    ) {
        self.functions.pr_ctlinput(cx, self, cmd, sa, packet);
    }

    /// See [`ProtoFns::pr_ctloutput`].
    ///
    /// # Errors
    /// As there.
    pub fn pr_ctloutput(
        &self,
        cx: &Kernel,
        op: Prco,
        so: &Rc<Socket>,
        option: (u16, u16),
        mp: &mut Option<Mbuf>,
    ) -> Result {
        self.functions.pr_ctloutput(cx, op, so, option, mp)
    }

    /// See [`ProtoFns::pr_usrreq`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn pr_usrreq(
        self: &Rc<Self>,
        cx: &Kernel,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        self.functions.pr_usrreq(cx, self, so, req, args)
    }

    /// See [`ProtoFns::pr_fasttimo`].
    pub fn pr_fasttimo(self: &Rc<Self>, cx: &Kernel) {
        self.functions.pr_fasttimo(cx, self);
    }

    /// See [`ProtoFns::pr_slowtimo`].
    pub fn pr_slowtimo(self: &Rc<Self>, cx: &Kernel) {
        self.functions.pr_slowtimo(cx, self);
    }

    /// See [`ProtoFns::pr_drain`].
    pub fn pr_drain(self: &Rc<Self>, cx: &Kernel) {
        self.functions.pr_drain(cx, self);
    }
}

/// An ioctl of `Control`: the largest datagram that goes whole, as four octets in `nam`.
pub const SIOCGIFMTU: u32 = 0xc020_6933;
/// An ioctl of `Control`: `nam` holds a receiver, in whose place the local address is put from
/// which packets to it are sent (what `in_pcbconnect` finds by the route).
pub const SIOCGIFSRCADDR: u32 = 0xc020_6980;
