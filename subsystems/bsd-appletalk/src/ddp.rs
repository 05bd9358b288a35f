//! # Synopsis
//! `ddp ETHER [net=NETWORKS] [node=N]` — the Datagram Delivery Protocol in the BSD network
//! subsystem, with AARP.
//!
//! # Participants
//! Sockets of nodes, as `sockaddr_at`.
//!
//! # Behaviour
//! The protocol type selects the protocol above. Data of sockets of type `SOCK_DGRAM` begin with
//! the protocol type, as in netatalk.
//!
//! AARP resolves addresses in the output of `ether` below. An adapter may put an interface there
//! that resolves addresses itself.
//!
//! At the start AARP claims an address by ten probes in two seconds: that of `net` and `node`, or
//! one drawn from `net`, or from the start-up range. Packets sent before wait, at most 50.
//!
//! An arriving datagram goes to the user's socket that it names, or else to the protocol of its
//! type. Without either it is dropped, and the sender is not told. Datagrams for other networks go
//! to the router that `rtmp` heard last. A datagram to all nodes also comes up at this node.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         atp ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapters 2 and 4. Not covered: routing, LocalTalk.

use crate::aarp::{Aarp, SNAP_AARP, SNAP_DDP};
use crate::{at_addr, sockaddr};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use xk_appletalk::aarp::ALL_NODES;
use xk_appletalk::addr::{AtAddr, NetRange, Node, START_UP};
use xk_appletalk::ddp::{
    Cable, DATA_LEN_MAX, LONG_LEN, Long, NextHop, SOCKETS_DYNAMIC, Sum, is_socket,
};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::{IFQ_MAXLEN, SIOCADDMULTI, count};
use xk_bsd::mbuf::M_COPYALL;
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_bsd::{
    Bsd, Callout, Ifnet, InputArg, Mbuf, NETISR_AARP, NETISR_AT, Netisr, OutputArg, PR_ADDR,
    PR_ATOMIC, ProtoFns, Protosw, Pru, PruArgs, Sock, Socket, Switch, add_line,
};
use xk_core::control::question;
use xk_core::graph::{
    Build, BuildError, Family, Guarantees, ParamKind, Realm, Service, flag, int, optional,
};
use xk_core::reason::{self, Class};
use xk_core::{Entry, Kernel, ProtocolRef, Reason};

const NETWORKS: &str = "networks, such as 10-19 or 10, from 1 to 65534";

/// A datagram has no way: it is for other networks, and no router is known.
pub static NO_ROUTE: Reason = Reason::new("no route", Class::Bad);
/// Another node has this one's address.
pub static CONFLICT: Reason = Reason::new("address conflict", Class::Bad);

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("ddp", include_str!("ddp.rs"), build)
    .subsystem("bsd")
    .summary("Datagram Delivery Protocol of AppleTalk, with AARP: datagrams between sockets")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Ether])
    .needs(Guarantees::WHOLE)
    .service(Service::adding(Guarantees::EXACT.and(Guarantees::REPLY)))
    .header_octets(LONG_LEN)
    .numbers(&[("eth", 0x0002_809b), ("ether", 0x0002_809b)])
    .parameters(&[
        optional("net", ParamKind::Text(NETWORKS),
            "the networks of the cable; without it, those of nodes that know no router"),
        int("node", 0..=253, 0, "the node number; 0: any"),
        flag("checksum", true, "whether datagrams are sent with a checksum"),
    ])
    .questions(&[
        question("max-packet", "586 octets"),
        question("opt-packet", "586 octets"),
        question("report", "counters, and those of AARP"),
    ])
    .reasons(&[&NO_ROUTE, &CONFLICT]);

/// A control block (`struct ddpcb`).
pub(crate) struct Ddpcb {
    pub(crate) laddr: Cell<AtAddr>,
    pub(crate) faddr: Cell<Option<AtAddr>>,
    pub(crate) socket: Weak<Socket>,
}

/// Owner of a socket of this node.
#[derive(Clone)]
pub(crate) enum Port {
    /// A user.
    User(Rc<Ddpcb>),
    /// A protocol above.
    Protocol,
}

/// DDP of a line.
pub(crate) struct Ddp {
    pub(crate) bsd: Rc<Bsd>,
    pub(crate) ifp: Rc<Ifnet>,
    aarp: OnceCell<Rc<Aarp>>,
    range: Option<NetRange>,
    node: u8,
    has_checksum: bool,
    pr: OnceCell<Weak<Protosw>>,
    myself: Weak<Ddp>,
    /// Since there is an address.
    pub(crate) cable: Cell<Option<Cable>>,
    pub(crate) ports: RefCell<BTreeMap<u8, Port>>,
    /// Datagrams to be sent once there is an address.
    waiting: RefCell<VecDeque<(Mbuf, OutputArg)>>,
    ipackets: Cell<u64>,
    opackets: Cell<u64>,
    noport: Cell<u64>,
    pub(crate) fullsock: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    let bsd = xk_bsd::of(build.cx)?;
    if bsd.has_netisr(NETISR_AT) {
        return Err(BuildError::param("net", "one `ddp` in a block"));
    }
    let ifp = bsd.interface(build.lower(0)?.id()).ok_or(Errno::ENXIO);
    let ifp = ifp.map_err(xk_bsd::environment)?;
    let range = build.params.parse::<NetRange>("net", NETWORKS)?;
    let (node, has_checksum) = (build.int("node")?, build.flag("checksum")?);
    let ddp = Rc::new_cyclic(|myself| Ddp {
        bsd: Rc::clone(&bsd),
        ifp,
        aarp: OnceCell::new(),
        range,
        node,
        has_checksum,
        pr: OnceCell::new(),
        myself: myself.clone(),
        cable: Cell::new(None),
        ports: RefCell::default(),
        waiting: RefCell::default(),
        ipackets: Cell::new(0),
        opackets: Cell::new(0),
        noport: Cell::new(0),
        fullsock: Cell::new(0),
    });
    bsd.set_netisr(NETISR_AT, IFQ_MAXLEN, Rc::new(Ddpintr(Rc::clone(&ddp))));
    let sw = Switch {
        pr_type: Sock::Dgram,
        pr_domain: AF_APPLETALK,
        pr_protocol: 0,
        pr_flags: PR_ATOMIC | PR_ADDR,
    };
    add_line(build, sw, ddp).map(|(node, _)| node)
}

/// The software interrupt of DDP.
struct Ddpintr(Rc<Ddp>);

impl Netisr for Ddpintr {
    /// `ddpintr`.
    fn intr(&self, cx: &Kernel, m: Mbuf) {
        if let Err(reason) = self.0.ddp_input(cx, m) {
            self.0.count_drop(reason);
        }
    }
}

/// The first call of the line's own, when its interface is up.
impl Callout for Ddp {
    fn expire(&self, cx: &Kernel, _: u64) {
        let range = self.range.unwrap_or(START_UP);
        let first = (self.node != 0).then(|| Node::new(range.first(), self.node));
        match self.aarp.get() {
            Some(aarp) => aarp.aarpprobe(cx, range, first),
            // An interface that resolves by itself has the address that it is given.
            None => self.claimed(cx, first.unwrap_or(Node::new(range.first(), 1))),
        }
    }
}

impl Ddp {
    fn count_drop(&self, reason: &'static Reason) {
        if let Some(pr) = self.pr.get().and_then(Weak::upgrade) {
            pr.count_drop(reason);
        }
    }

    /// This address is the node's from now on.
    pub(crate) fn claimed(&self, cx: &Kernel, node: Node) {
        let mut cable = Cable::new(node);
        if let Some(range) = self.range {
            cable.range = range;
        }
        self.cable.set(Some(cable));
        let waiting = self.waiting.take();
        for (m, arg) in waiting {
            if let Err(errno) = self.ddp_output(cx, m, &arg) {
                self.count_drop(errno.into());
            }
        }
    }

    /// Another node has the address.
    pub(crate) fn conflict(&self) {
        self.count_drop(&CONFLICT);
    }

    /// A datagram of an interface (`ddp_input`).
    fn ddp_input(&self, cx: &Kernel, m: Mbuf) -> core::result::Result<(), &'static Reason> {
        count(&self.ipackets);
        let mut m = m.m_pullup(LONG_LEN).map_err(|_| &reason::TRUNCATED)?;
        let header = m.mtod().first_chunk().ok_or(&reason::TRUNCATED)?;
        let header = Long::parse(header).map_err(|_| &reason::MALFORMED)?;
        let total = m.m_length();
        let len = header.data_of(total - LONG_LEN).map_err(|_| &reason::BAD_LENGTH)?;
        m.m_adj(-((total - LONG_LEN - len) as isize));
        m.m_adj(LONG_LEN as isize);
        if header.checksum != 0 && sum(&header, &m).checksum() != header.checksum {
            return Err(&reason::BAD_CHECKSUM);
        }
        let cable = self.cable.get().ok_or(&reason::NOT_MINE)?;
        if !cable.is_for_me(header.to.at()) {
            return Err(&reason::NOT_MINE);
        }
        let port = self.ports.borrow().get(&header.to.socket).cloned();
        if let Some(Port::User(ddp)) = port {
            return self.append(cx, &ddp, &header, m);
        }
        let pr = self.pr.get().and_then(Weak::upgrade);
        let Some(upper) = pr.and_then(|pr| pr.upper(header.kind)) else {
            count(&self.noport);
            return Err(&reason::NO_PORT);
        };
        let (from, to) = (sockaddr(&self.bsd, header.from), sockaddr(&self.bsd, header.to));
        upper.pr_input(cx, m, InputArg::Addressed { from, to, kind: header.kind });
        Ok(())
    }

    /// Sends a datagram (`ddp_output`).
    ///
    /// # Errors
    /// [`Errno::EMSGSIZE`], [`Errno::EINVAL`], [`Errno::ENETUNREACH`], [`Errno::ENOBUFS`]; those of
    /// the interface.
    pub(crate) fn ddp_output(&self, cx: &Kernel, m: Mbuf, arg: &OutputArg) -> Result {
        let Some(cable) = self.cable.get() else {
            let mut waiting = self.waiting.borrow_mut();
            if waiting.len() >= IFQ_MAXLEN {
                return Err(Errno::ENOBUFS);
            }
            waiting.push_back((m, *arg));
            return Ok(());
        };
        let to = at_addr(&arg.to);
        let from = arg.from.ok_or(Errno::EINVAL)?.socket();
        if !is_socket(to.socket) || !is_socket(from) {
            return Err(Errno::EINVAL);
        }
        let len = m.m_length();
        let from = cable.me.socket(from);
        let mut header = Long::new(to, from, arg.kind, len).ok_or(Errno::EMSGSIZE)?;
        if self.has_checksum {
            header.checksum = sum(&header, &m).checksum();
        }
        let Some(way) = cable.way(to.at(), None) else {
            self.count_drop(&NO_ROUTE);
            return Err(Errno::ENETUNREACH);
        };
        let mut m = m.m_prepend(LONG_LEN)?;
        let room = m.mtod_mut().and_then(|data| data.first_chunk_mut());
        *room.ok_or(Errno::ENOBUFS)? = header.octets();
        m.make_packet(self.ifp.if_index);
        count(&self.opackets);
        let next = match way {
            NextHop::Here => {
                self.bsd.netisr_input(cx, NETISR_AT, &self.ifp, m);
                return Ok(());
            }
            NextHop::Node(node) => node,
            NextHop::All => {
                // The interface does not hear its own frames.
                let copy = m.m_copym(0, M_COPYALL)?;
                self.bsd.netisr_input(cx, NETISR_AT, &self.ifp, copy);
                Node::ALL
            }
        };
        self.ifp.if_output(cx, m, &sockaddr(&self.bsd, next.socket(0)))
    }

    /// Gives a socket away, any of the free ones with 0 (`at_pcbsetaddr`).
    ///
    /// # Errors
    /// [`Errno::EADDRINUSE`]; [`Errno::EADDRNOTAVAIL`] if none is free.
    pub(crate) fn bind(&self, socket: u8, port: Port) -> Result<u8> {
        let mut ports = self.ports.borrow_mut();
        let socket = match socket {
            0 => SOCKETS_DYNAMIC.into_iter().find(|socket| !ports.contains_key(socket)),
            socket if !is_socket(socket) => None,
            socket if ports.contains_key(&socket) => return Err(Errno::EADDRINUSE),
            socket => Some(socket),
        };
        let socket = socket.ok_or(Errno::EADDRNOTAVAIL)?;
        ports.insert(socket, port);
        Ok(socket)
    }

    /// The node's own address, as far as it is known.
    pub(crate) fn me(&self) -> Node {
        self.cable.get().map_or(Node::default(), |cable| cable.me)
    }
}

/// The sum over what a checksum covers.
fn sum(header: &Long, data: &Mbuf) -> Sum {
    let mut sum = header.sum();
    data.mbufs().for_each(|m| sum.add(m.mtod()));
    sum
}

impl ProtoFns for Ddp {
    fn pr_init(&self, cx: &Kernel, pr: &Rc<Protosw>) -> Result {
        let _ = self.pr.set(Rc::downgrade(pr));
        let myself = self.myself.upgrade().ok_or(Errno::EINVAL)?;
        if let Some(ac) = self.bsd.arpcom(&self.ifp) {
            let aarp = Aarp::new(&self.bsd, Rc::clone(&ac), self.myself.clone());
            ac.add_type(SNAP_DDP, NETISR_AT);
            ac.add_type(SNAP_AARP, NETISR_AARP);
            ac.add_resolver(AF_APPLETALK, Rc::clone(&aarp) as Rc<dyn xk_bsd::ether::Resolve>);
            self.ifp.if_ioctl(cx, SIOCADDMULTI, &mut { ALL_NODES })?;
            let intr = Rc::clone(&aarp) as Rc<dyn Netisr>;
            self.bsd.set_netisr(NETISR_AARP, IFQ_MAXLEN, intr);
            let _ = self.aarp.set(aarp);
        }
        // The interface below is not up yet.
        self.bsd.timeout(cx, myself, 0, 1).map(drop)
    }

    fn pr_output(&self, cx: &Kernel, _: &Rc<Protosw>, m: Mbuf, arg: &OutputArg) -> Result {
        self.ddp_output(cx, m, arg)
    }

    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        match (req, so) {
            (Pru::Control, _) => self.at_control(cx, args),
            (_, Some(so)) => self.ddp_usrreq(cx, so, req, args),
            (_, None) => Err(Errno::EINVAL),
        }
    }

    fn pr_stop(&self) {
        let ports = self.ports.take();
        for port in ports.values() {
            if let Port::User(ddp) = port {
                ddp.socket.upgrade().inspect(|so| so.set_pcb(None));
            }
        }
        drop((ports, self.waiting.take()));
        if let Some(aarp) = self.aarp.get() {
            aarp.stop();
        }
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        let figures = [
            ("datagrams received", self.ipackets.get()),
            ("datagrams sent", self.opackets.get()),
            ("for no socket", self.noport.get()),
            ("dropped, socket full", self.fullsock.get()),
            ("network", self.me().net.into()),
            ("node", self.me().node.into()),
        ];
        let aarp = self.aarp.get().into_iter().flat_map(|aarp| aarp.stats());
        figures.into_iter().chain(aarp).collect()
    }
}

/// Octets of data at most.
pub const DDP_MAXDATA: usize = DATA_LEN_MAX;
