//! # Synopsis
//! `atp DDP` — the AppleTalk Transaction Protocol in the BSD network subsystem.
//!
//! # Participants
//! Sockets of nodes, as `sockaddr_at`.
//!
//! # Behaviour
//! Its sockets are of type `SOCK_DGRAM`. A datagram is a request or a reply. An mbuf of type
//! `MT_CONTROL` beside it tells which, with its options ([`xk_appletalk::atp::Options`]). A
//! datagram without one is a request for up to eight responses, with the options of the parameters.
//!
//! A request is repeated until its responses have arrived or its tries are used up. Then the socket
//! receives the reply, up to eight packets in one datagram, or the failure with the responses so
//! far. A request that arrives at a bound socket is received; its reply is sent with the request's
//! options, source and destination exchanged, and is cut into packets. Exactly-once requests are
//! executed once within their release timer. Timers are checked every 200 ms (`pr_fasttimo`);
//! `interval` has steps of 100 ms.
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
//! Inside AppleTalk, second edition, chapter 9.

mod settings;

use self::settings::Settings;
use crate::{SIOCDATSOCKET, SIOCSATSOCKET, at_addr, ioctl, lower_of, nam_addr, now, sockaddr};
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::addr::AtAddr;
use xk_appletalk::atp::{
    Arrived, BeginError, Bounds, DATA_OCTETS_MAX, Due, HEADER_OCTETS, Header, Heard, Kind, Limits,
    OptionKind, Options, Packet, Payload, REPLY_OCTETS_MAX, ReplyError, Requester, Responder,
    Verdict,
};
use xk_appletalk::ddp::{SOCKETS_DYNAMIC, TYPE_ATP, is_socket};
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::count;
use xk_bsd::mbuf::M_COPYALL;
use xk_bsd::sockaddr::AF_APPLETALK;
use xk_bsd::{
    Bsd, InputArg, Mbuf, Mt, OutputArg, PR_ADDR, PR_ATOMIC, ProtoFns, Protosw, Pru, PruArgs,
    SIOCGIFMTU, SIOCGIFSRCADDR, SS_ISCONNECTED, Sock, Socket, Switch, add_line,
};
use xk_core::control::question;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, Service};
use xk_core::reason::{self, Class};
use xk_core::{Answer, Ask, Entry, Kernel, ProtocolRef, Reason};
use xk_kit::rpc::call::UsualTransaction;

/// Octets sent at once at most: eight packets, and the options.
const SENDSPACE: usize = REPLY_OCTETS_MAX + 64;
/// Octets received that wait at most.
const RECVSPACE: usize = 8 * SENDSPACE;

/// A response to no transaction, or one that is there already.
pub static NO_TRANSACTION: Reason = Reason::new("no such transaction", Class::NotMine);
/// A request that is being executed came again.
pub static REPEATED_REQUEST: Reason = Reason::new("repeated request", Class::NotMine);
/// As many transactions are remembered as may be.
pub static TOO_MANY: Reason = Reason::new("too many transactions", Class::Exhausted);

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("atp", include_str!("atp.rs"), build)
    .subsystem("bsd")
    .summary("AppleTalk Transaction Protocol, by sockets")
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE).and(Guarantees::EXACT)
        .and(Guarantees::REPLY).and(Guarantees::PROMPT))
    .service(Service::adding(Guarantees::TRANSACTIONS))
    .header_octets(HEADER_OCTETS)
    .numbers(&[("ddp", TYPE_ATP as u32)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("max-packet", "the largest request: 578 octets"),
        question("opt-packet", "the largest request: 578 octets"),
        question("report", "counters"),
        question("usual-transaction", "what is asked for where a request says nothing itself"),
    ])
    .reasons(&[&NO_TRANSACTION, &REPEATED_REQUEST, &TOO_MANY]);

/// Data of the machines: a chain of mbufs.
struct Chain(Mbuf);

impl Payload for Chain {
    fn octets(&self) -> usize {
        self.0.m_length()
    }

    fn again(&self) -> Option<Self> {
        self.0.m_copym(0, M_COPYALL).ok().map(Self)
    }

    fn cut(&mut self, octets: usize) -> Option<Self> {
        let back = self.0.m_split(octets).ok()?;
        Some(Self(core::mem::replace(&mut self.0, back)))
    }

    fn join(&mut self, behind: Self) {
        let rcvif = self.0.m_pkthdr().rcvif;
        self.0.m_cat(behind.0);
        self.0.make_packet(rcvif);
    }
}

/// A control block (`struct atpcb`).
struct Atpcb {
    /// Our socket; 0 until it is bound.
    local: Cell<u8>,
    peer: Cell<Option<AtAddr>>,
    socket: Weak<Socket>,
}

/// Owner of a transaction: the socket, its number there, and the peer.
type Owner = (Weak<Socket>, u16, AtAddr);

struct Atp {
    /// Options of a request that brings none.
    usual: Options,
    bsd: Rc<Bsd>,
    lower: Rc<Protosw>,
    /// The control blocks by our socket.
    pcbs: RefCell<BTreeMap<u8, Rc<Atpcb>>>,
    requester: RefCell<Requester<AtAddr, Chain, Owner>>,
    responder: RefCell<Responder<AtAddr, Chain>>,
    requests: Cell<u64>,
    executed: Cell<u64>,
    repeated: Cell<u64>,
    resent: Cell<u64>,
    failed: Cell<u64>,
    fullsock: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    let bsd = xk_bsd::of(build.cx)?;
    let settings = Settings::read(build)?;
    let limits = Limits { transactions: settings.requests_max };
    let transactions = settings.remembered_max;
    let per_host = transactions.div_ceil(4);
    let bounds = Bounds { transactions, per_host, ..Bounds::DEFAULT };
    let last = build.cx.random().next_u32() as u16;
    let atp = Atp {
        usual: Options::request(&settings.want(), 0),
        lower: lower_of(build, &bsd)?,
        bsd,
        pcbs: RefCell::default(),
        requester: RefCell::new(Requester::new(limits, last)),
        responder: RefCell::new(Responder::new(bounds)),
        requests: Cell::new(0),
        executed: Cell::new(0),
        repeated: Cell::new(0),
        resent: Cell::new(0),
        failed: Cell::new(0),
        fullsock: Cell::new(0),
    };
    let sw = Switch {
        pr_type: Sock::Dgram,
        pr_domain: AF_APPLETALK,
        pr_protocol: TYPE_ATP,
        pr_flags: PR_ATOMIC | PR_ADDR,
    };
    add_line(build, sw, Rc::new(atp)).map(|(node, _)| node)
}

impl Atp {
    /// Sends a packet of a machine's (`atp_output`).
    fn atp_output(&self, cx: &Kernel, packet: Packet<AtAddr, Chain>) -> Result {
        let m = match packet.data {
            Some(Chain(m)) => m,
            None => {
                let mut m = self.bsd.mbufs().m_gethdr(Mt::Header)?;
                m.align(HEADER_OCTETS);
                m
            }
        };
        let mut m = m.m_prepend(HEADER_OCTETS)?;
        let room = m.mtod_mut().and_then(|data| data.first_chunk_mut());
        *room.ok_or(Errno::ENOBUFS)? = packet.header.emit();
        let from = AtAddr { socket: packet.socket, ..AtAddr::default() };
        let (to, from) = (sockaddr(&self.bsd, packet.to), sockaddr(&self.bsd, from));
        self.lower.pr_output(cx, m, &OutputArg::new(to, Some(from), TYPE_ATP))
    }

    /// Gives a socket a datagram, with its options beside it.
    fn append(
        &self,
        cx: &Kernel,
        so: &Rc<Socket>,
        from: AtAddr,
        options: &Options,
        data: Option<Mbuf>,
    ) -> Result {
        let control = self.bsd.mbufs().m_copyin(Mt::Control, &options.emit())?;
        let from = sockaddr(&self.bsd, from).to_mbuf(self.bsd.mbufs())?;
        if let Err(error) = so.so_rcv.sbappendaddr(from, data, Some(control)) {
            count(&self.fullsock);
            return Err(error);
        }
        so.sorwakeup(cx);
        Ok(())
    }

    /// A packet from below (`atp_input`).
    fn atp_input(
        &self,
        cx: &Kernel,
        m: Mbuf,
        arg: &InputArg,
    ) -> core::result::Result<(), &'static Reason> {
        let InputArg::Addressed { from, to, .. } = arg else {
            return Err(&reason::NOT_SUPPORTED);
        };
        let (from, socket) = (at_addr(from), to.socket());
        let mut m = m.m_pullup(HEADER_OCTETS).map_err(|_| &reason::TRUNCATED)?;
        let header = Header::parse(m.mtod()).map_err(|_| &reason::MALFORMED)?;
        m.m_adj(HEADER_OCTETS as isize);
        match header.kind {
            Kind::Request => self.request(cx, from, socket, &header, m),
            Kind::Response => self.response(cx, (from, socket), &header, m),
            Kind::Release => {
                self.responder.borrow_mut().release(now(cx), (from, socket), header.tid);
                Ok(())
            }
        }
    }

    fn request(
        &self,
        cx: &Kernel,
        from: AtAddr,
        socket: u8,
        header: &Header,
        m: Mbuf,
    ) -> core::result::Result<(), &'static Reason> {
        let pcb = self.pcbs.borrow().get(&socket).cloned().ok_or(&reason::NO_PORT)?;
        let so = pcb.socket.upgrade().ok_or(&reason::NO_PORT)?;
        if m.m_length() > DATA_OCTETS_MAX {
            return Err(&reason::TOO_BIG);
        }
        let verdict = self.responder.borrow_mut().request(now(cx), (from, socket), header);
        match verdict {
            Verdict::Execute(ticket) => {
                count(&self.executed);
                let options = Options::asked(&ticket, header.user);
                self.append(cx, &so, from, &options, Some(m)).map_err(|errno| {
                    self.responder.borrow_mut().refuse(&ticket);
                    <&Reason>::from(errno)
                })
            }
            Verdict::Repeat(segments) => {
                count(&self.repeated);
                for packet in segments {
                    self.atp_output(cx, packet)?;
                }
                Ok(())
            }
            Verdict::InProgress => Err(&REPEATED_REQUEST),
            Verdict::Full | Verdict::Unreleased => Err(&TOO_MANY),
        }
    }

    fn response(
        &self,
        cx: &Kernel,
        (from, socket): (AtAddr, u8),
        header: &Header,
        m: Mbuf,
    ) -> core::result::Result<(), &'static Reason> {
        let end = (from, socket);
        let heard = self.requester.borrow_mut().response(now(cx), end, header, Chain(m));
        match heard {
            Err(_) => Err(&NO_TRANSACTION),
            Ok(Heard::Kept(None)) => Ok(()),
            Ok(Heard::Kept(Some(again))) => {
                count(&self.resent);
                self.atp_output(cx, again).map_err(<&Reason>::from)
            }
            Ok(Heard::Done { owner, wanted, arrived, release }) => {
                // A release that is lost is made up for by the responder's timer.
                let _ = release.map(|release| self.atp_output(cx, release));
                self.done(cx, owner, OptionKind::Response, wanted, arrived).map_err(<&Reason>::from)
            }
        }
    }

    /// A transaction of ours is over.
    fn done(
        &self,
        cx: &Kernel,
        (so, number, peer): Owner,
        kind: OptionKind,
        wanted: u8,
        arrived: Arrived<Chain>,
    ) -> Result {
        let Some(so) = so.upgrade() else { return Ok(()) };
        let options = Options {
            kind,
            once: None,
            end_of_message: arrived.end_of_message,
            number,
            user: arrived.user(),
            bitmap: arrived.bitmap(),
            tries: 0,
            amount: 0,
        };
        let data = arrived.join(wanted).map(|Chain(m)| m);
        self.append(cx, &so, peer, &options, data)
    }

    /// A datagram of a user's.
    fn send(
        &self,
        cx: &Kernel,
        so: &Rc<Socket>,
        pcb: &Rc<Atpcb>,
        peer: AtAddr,
        m: Mbuf,
        control: Option<Mbuf>,
    ) -> Result {
        let options = match &control {
            Some(control) => Options::parse(control.mtod()).map_err(|_| Errno::EINVAL)?,
            None => self.usual,
        };
        match options.kind {
            OptionKind::Request => {
                self.bind(cx, pcb, 0)?;
                let owner = (Rc::downgrade(so), options.number, peer);
                let end = (pcb.local.get(), peer);
                let want = options.want();
                let begun = self.requester.borrow_mut().begin(now(cx), end, &want, Chain(m), owner);
                let (_, packet) = begun.map_err(|(error, ..)| match error {
                    BeginError::TooBig => Errno::EMSGSIZE,
                    BeginError::Full | BeginError::NoBuffers => Errno::ENOBUFS,
                })?;
                count(&self.requests);
                // It goes again: an error now is as a loss.
                match self.atp_output(cx, packet) {
                    Err(error @ (Errno::EINVAL | Errno::EMSGSIZE)) => Err(error),
                    _ => Ok(()),
                }
            }
            OptionKind::Response => {
                let ticket = options.ticket(peer, pcb.local.get());
                let octets = match options.amount {
                    0 => DATA_OCTETS_MAX,
                    octets => octets.into(),
                };
                let mut responder = self.responder.borrow_mut();
                let reply = responder.reply(now(cx), &ticket, options.user, octets, Chain(m));
                drop(responder);
                let segments = reply.map_err(|(error, _)| match error {
                    ReplyError::TooBig => Errno::EMSGSIZE,
                    ReplyError::NoBuffers => Errno::ENOBUFS,
                    ReplyError::Unknown | ReplyError::Repeated => Errno::EINVAL,
                })?;
                for packet in segments {
                    // The requester asks again for what is not sent.
                    let _ = self.atp_output(cx, packet);
                }
                Ok(())
            }
            OptionKind::Refused => {
                let ticket = options.ticket(peer, pcb.local.get());
                self.responder.borrow_mut().refuse(&ticket);
                Ok(())
            }
            OptionKind::Failed => Err(Errno::EINVAL),
        }
    }

    /// Gives a block a socket, any with 0; DDP gives it, or, if what is below does not, ATP.
    fn bind(&self, cx: &Kernel, pcb: &Rc<Atpcb>, socket: u8) -> Result {
        if pcb.local.get() != 0 {
            return if socket == 0 { Ok(()) } else { Err(Errno::EINVAL) };
        }
        let wanted = AtAddr { socket, ..AtAddr::default() };
        let given = match ioctl(cx, &self.bsd, &self.lower, SIOCSATSOCKET, wanted) {
            Ok(sa) => sa.socket(),
            Err(Errno::EOPNOTSUPP) => {
                let pcbs = self.pcbs.borrow();
                let is_free = |socket: &u8| !pcbs.contains_key(socket);
                match socket {
                    0 => SOCKETS_DYNAMIC.into_iter().find(is_free).ok_or(Errno::EADDRNOTAVAIL)?,
                    socket if !is_socket(socket) => return Err(Errno::EADDRNOTAVAIL),
                    socket if is_free(&socket) => socket,
                    _ => return Err(Errno::EADDRINUSE),
                }
            }
            Err(error) => return Err(error),
        };
        pcb.local.set(given);
        self.pcbs.borrow_mut().insert(given, Rc::clone(pcb));
        Ok(())
    }

    fn unbind(&self, cx: &Kernel, pcb: &Rc<Atpcb>) {
        let socket = pcb.local.replace(0);
        if socket == 0 {
            return;
        }
        self.pcbs.borrow_mut().remove(&socket);
        let at = AtAddr { socket, ..AtAddr::default() };
        // What does not give sockets takes none back.
        let _ = ioctl(cx, &self.bsd, &self.lower, SIOCDATSOCKET, at);
        self.responder.borrow_mut().close(socket);
        while let Some(tid) = self.of_socket(&pcb.socket) {
            let gone = self.requester.borrow_mut().cancel(tid);
            drop(gone);
        }
    }

    fn of_socket(&self, so: &Weak<Socket>) -> Option<u16> {
        self.requester.borrow().find(|(owner, ..)| Weak::ptr_eq(owner, so))
    }

    /// The address of our end.
    fn local(&self, cx: &Kernel, pcb: &Atpcb) -> AtAddr {
        let at = AtAddr { socket: pcb.local.get(), ..AtAddr::default() };
        let me = ioctl(cx, &self.bsd, &self.lower, SIOCGIFSRCADDR, pcb.peer.get().unwrap_or(at));
        me.map_or(at, |me| AtAddr { socket: at.socket, ..at_addr(&me) })
    }
}

impl ProtoFns for Atp {
    fn pr_input(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: InputArg) {
        if let Err(reason) = self.atp_input(cx, m, &arg) {
            pr.count_drop(reason);
        }
    }

    fn pr_control(&self, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<UsualTransaction>(|usual| usual.octets = self.usual.emit())
    }

    /// `atp_usrreq`.
    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        if req == Pru::Control {
            if args.cmd != SIOCGIFMTU {
                return self.lower.pr_usrreq(cx, so, req, args);
            }
            let room = args.need_nam()?.mtod_mut().and_then(<[u8]>::first_chunk_mut);
            *room.ok_or(Errno::EINVAL)? = (DATA_OCTETS_MAX as u32).to_be_bytes();
            return Ok(());
        }
        let so = so.ok_or(Errno::EINVAL)?;
        if req == Pru::Attach {
            so.soreserve(SENDSPACE, RECVSPACE)?;
            let (local, peer) = (Cell::new(0), Cell::new(None));
            so.set_pcb(Some(Rc::new(Atpcb { local, peer, socket: Rc::downgrade(so) })));
            return Ok(());
        }
        let pcb = so.pcb::<Atpcb>().ok_or(Errno::EINVAL)?;
        match req {
            Pru::Detach | Pru::Abort => {
                self.unbind(cx, &pcb);
                so.set_pcb(None);
            }
            Pru::Bind => {
                let at = nam_addr(args.need_nam()?)?;
                if pcb.local.get() != 0 {
                    return Err(Errno::EINVAL);
                }
                self.bind(cx, &pcb, at.socket)?;
            }
            Pru::Connect => {
                let peer = nam_addr(args.need_nam()?)?;
                self.bind(cx, &pcb, 0)?;
                pcb.peer.set(Some(peer));
                so.soisconnected(cx);
            }
            Pru::Disconnect => {
                pcb.peer.take().ok_or(Errno::ENOTCONN)?;
                so.set_state(0, SS_ISCONNECTED);
            }
            Pru::Shutdown => so.socantsendmore(cx),
            Pru::Send => {
                let m = args.need_m()?;
                let peer = match &args.nam {
                    Some(nam) => nam_addr(nam)?,
                    None => pcb.peer.get().ok_or(Errno::ENOTCONN)?,
                };
                return self.send(cx, so, &pcb, peer, m, args.control.take());
            }
            Pru::Sockaddr => {
                let local = self.local(cx, &pcb);
                sockaddr(&self.bsd, local).store(args.need_nam()?);
            }
            Pru::Peeraddr => {
                let peer = pcb.peer.get().ok_or(Errno::ENOTCONN)?;
                sockaddr(&self.bsd, peer).store(args.need_nam()?);
            }
            Pru::Sense => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn has_fasttimo(&self) -> bool {
        true
    }

    /// `atp_fasttimo`.
    fn pr_fasttimo(&self, cx: &Kernel, pr: &Rc<Protosw>) {
        loop {
            let due = self.requester.borrow_mut().poll(now(cx));
            let result = match due {
                None => break,
                Some(Due::Again(packet)) => {
                    count(&self.resent);
                    self.atp_output(cx, packet)
                }
                Some(Due::Failed { owner, wanted, arrived }) => {
                    count(&self.failed);
                    self.done(cx, owner, OptionKind::Failed, wanted, arrived)
                }
            };
            if let Err(errno) = result {
                pr.count_drop(errno.into());
            }
        }
        self.responder.borrow_mut().poll(now(cx));
    }

    fn pr_stop(&self) {
        drop(self.pcbs.take());
        let limits = Limits { transactions: 0 };
        let gone = self.requester.replace(Requester::new(limits, 0));
        let kept = self.responder.replace(Responder::new(Bounds::DEFAULT));
        drop((gone, kept));
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        Vec::from([
            ("requests sent", self.requests.get()),
            ("requests sent again", self.resent.get()),
            ("requests failed", self.failed.get()),
            ("requests executed", self.executed.get()),
            ("replies repeated", self.repeated.get()),
            ("transactions remembered", self.responder.borrow().len() as u64),
            ("dropped, socket full", self.fullsock.get()),
        ])
    }
}
