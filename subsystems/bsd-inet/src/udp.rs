//! # Synopsis
//! `udp IP` — the User Datagram Protocol in the BSD network subsystem.
//!
//! # Participants
//! Hosts and ports, as `sockaddr_in`.
//!
//! # Behaviour
//! Its sockets are of type `SOCK_DGRAM` ([`xk_bsd::socreate`]).
//!
//! A datagram goes to the matching control block with the fewest wildcards, found by a linear
//! search that begins with the last block used. A broadcast goes to all matching blocks. Without a
//! block the sender gets "port unreachable". Such an error about a datagram of a connected socket
//! is the result of the socket's next call.
//!
//! A socket sends at most 9216 octets at once and keeps at most 41,600 received octets. Datagrams
//! beyond that are dropped and counted as "queue full".
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ip ether { address "10.0.0.1/24"; }
//!         udp ip
//!     }
//! }
//! ```
//!
//! # Standard
//! RFC 768.

use crate::in_pcb::{INPLOOKUP_WILDCARD, Inpcb, Inpcbs, PcbEnd};
use crate::ip::{IP_HDR, is_many};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::net::Ipv4Addr;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::count;
use xk_bsd::mbuf::M_COPYALL;
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{
    ALLOWBROADCAST, Bsd, InputArg, Mbuf, OutputArg, PR_ADDR, PR_ATOMIC, Prc, ProtoFns, Protosw,
    Pru, PruArgs, SIOCGIFMTU, SIOCGIFSRCADDR, SO_BROADCAST, SS_ISCONNECTED, Sock, Sockaddr, Socket,
    Switch, add_line, inetctlerr,
};
use xk_core::control::question;
use xk_core::graph::{Build, BuildError, Family, Guarantees, Realm, Service, flag};
use xk_core::reason;
use xk_core::{Entry, Kernel, ProtocolRef, Reason};
use xk_kit::net::checksum::Checksum;

/// Octets of the header.
const UDP_HDR: usize = 8;
/// The number on IP.
const IPPROTO_UDP: u8 = 17;
/// Octets sent at once at most (`udp_sendspace`).
const SENDSPACE: usize = 9216;
/// Octets received that wait at most (`udp_recvspace`): 40 datagrams of 1024 and their addresses.
const RECVSPACE: usize = 40 * (1024 + 16);

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("udp", include_str!("udp.rs"), build)
    .subsystem("bsd")
    .summary("User Datagram Protocol: datagrams between ports, by sockets")
    .above(Family::Port)
    .on(&[Realm::Async], &[Family::Host])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE).and(Guarantees::REPLY))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(UDP_HDR)
    .numbers(&[("ip", IPPROTO_UDP as u32)])
    .parameters(&[
        flag("checksum", true, "whether datagrams are sent with a checksum"),
    ])
    .questions(&[
        question("max-packet", "that of the layer below less the header"),
        question("opt-packet", "that of the layer below less the header"),
        question("report", "counters, as of netstat -s"),
    ]);

/// UDP of a line.
struct Udp {
    bsd: Rc<Bsd>,
    lower: Rc<Protosw>,
    pcbs: Inpcbs,
    has_checksum: bool,
    ipackets: Cell<u64>,
    opackets: Cell<u64>,
    noport: Cell<u64>,
    fullsock: Cell<u64>,
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    let bsd = xk_bsd::of(build.cx)?;
    let lower = bsd.protocol(build.lower(0)?.id()).ok_or(Errno::EPROTONOSUPPORT);
    let udp = Udp {
        lower: lower.map_err(xk_bsd::environment)?,
        bsd,
        pcbs: Inpcbs::default(),
        has_checksum: build.flag("checksum")?,
        ipackets: Cell::new(0),
        opackets: Cell::new(0),
        noport: Cell::new(0),
        fullsock: Cell::new(0),
    };
    let sw = Switch {
        pr_type: Sock::Dgram,
        pr_domain: AF_INET,
        pr_protocol: IPPROTO_UDP,
        pr_flags: PR_ATOMIC | PR_ADDR,
    };
    add_line(build, sw, Rc::new(udp)).map(|(node, _)| node)
}

/// A datagram that was checked: its ends, and its data.
struct Datagram {
    from: PcbEnd,
    to: PcbEnd,
    data: Mbuf,
}

/// Why a packet is no datagram.
enum Unfit {
    Bad(&'static Reason),
    /// There is no block for it; the packet as it came.
    NoPort(Mbuf),
}

impl Udp {
    fn end(&self, sa: &Sockaddr) -> PcbEnd {
        (sa.addr(), sa.port())
    }

    fn sockaddr(&self, (host, port): PcbEnd) -> Sockaddr {
        Sockaddr::inet(self.bsd.mbufs().release(), host, port)
    }

    /// A packet from below (`udp_input`).
    fn udp_input(&self, cx: &Kernel, m: Mbuf, arg: &InputArg) -> core::result::Result<(), Unfit> {
        use Unfit::Bad;
        count(&self.ipackets);
        // Octets in front of the header, and the hosts.
        let (hlen, m, src, dst) = match arg {
            InputArg::Ip { hlen, from, to, .. } => {
                let m = m.m_pullup(hlen + UDP_HDR).map_err(|_| Bad(&reason::TRUNCATED))?;
                (*hlen, m, *from, *to)
            }
            InputArg::Addressed { from, to, .. } => {
                let m = m.m_pullup(UDP_HDR).map_err(|_| Bad(&reason::TRUNCATED))?;
                (0, m, from.addr(), to.addr())
            }
            InputArg::Interface(_) => return Err(Bad(&reason::NOT_SUPPORTED)),
        };
        let header: Option<&[u8; UDP_HDR]> = m.mtod().get(hlen..).and_then(<[u8]>::first_chunk);
        let [a, b, c, d, e, f, g, h] = *header.ok_or(Bad(&reason::TRUNCATED))?;
        let (sport, dport) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let (len, sum) = (usize::from(u16::from_be_bytes([e, f])), [g, h]);
        let total = m.m_length() - hlen;
        if len < UDP_HDR || len > total {
            return Err(Bad(&reason::BAD_LENGTH));
        }
        if sum != [0, 0] {
            let sum = Checksum::pseudo_header(src, dst, IPPROTO_UDP, len as u32);
            if m.in_cksum_add(sum, hlen, len).finish() != 0 {
                return Err(Bad(&reason::BAD_CHECKSUM));
            }
        }
        if dport == 0 {
            return Err(Bad(&reason::NO_PORT));
        }
        let (from, to) = ((src, sport), (dst, dport));
        let mut m = m;
        m.m_adj(-((total - len) as isize));
        if is_many(&m) {
            m.m_adj((hlen + UDP_HDR) as isize);
            return self.to_all(cx, Datagram { from, to, data: m }).map_err(Bad);
        }
        let Some(inp) = self.pcbs.in_pcblookup(from, to, INPLOOKUP_WILDCARD) else {
            count(&self.noport);
            return Err(Unfit::NoPort(m));
        };
        m.m_adj((hlen + UDP_HDR) as isize);
        self.append(cx, &inp, Datagram { from, to, data: m }).map_err(Bad)
    }

    /// Gives a datagram for many to all blocks that it fits.
    fn to_all(&self, cx: &Kernel, datagram: Datagram) -> core::result::Result<(), &'static Reason> {
        let fits = |inp: &Rc<Inpcb>| {
            let ((laddr, lport), foreign) = (inp.local(), inp.foreign());
            lport == datagram.to.1
                && (laddr.is_unspecified() || laddr == datagram.to.0)
                && (!inp.is_connected() || foreign == datagram.from)
        };
        let mut all: Vec<_> = self.pcbs.all().into_iter().filter(fits).collect();
        let Some(last) = all.pop() else { return Err(&reason::NO_PORT) };
        for inp in all {
            let copy = datagram.data.m_copym(0, M_COPYALL);
            if let Ok(data) = copy {
                let _ = self.append(cx, &inp, Datagram { data, ..datagram });
            }
        }
        self.append(cx, &last, datagram)
    }

    fn append(
        &self,
        cx: &Kernel,
        inp: &Rc<Inpcb>,
        datagram: Datagram,
    ) -> core::result::Result<(), &'static Reason> {
        let so = &inp.inp_socket;
        let from = self.sockaddr(datagram.from).to_mbuf(self.bsd.mbufs())?;
        if so.so_rcv.sbappendaddr(from, Some(datagram.data), None).is_err() {
            count(&self.fullsock);
            return Err(&reason::QUEUE_FULL);
        }
        so.sorwakeup(cx);
        Ok(())
    }

    /// The host that packets to this host are sent from.
    fn source(&self, cx: &Kernel, to: Ipv4Addr) -> Result<Ipv4Addr> {
        let mut nam = self.sockaddr((to, 0)).to_mbuf(self.bsd.mbufs())?;
        let mut args = PruArgs { cmd: SIOCGIFSRCADDR, ..PruArgs::nam(&mut nam) };
        self.lower.pr_usrreq(cx, None, Pru::Control, &mut args)?;
        let source = Sockaddr::of_family(&nam, AF_INET)?.addr();
        nam.m_freem();
        Ok(source)
    }

    /// Sends a datagram (`udp_output`).
    fn udp_output(&self, cx: &Kernel, inp: &Rc<Inpcb>, m: Mbuf, nam: Option<&mut Mbuf>) -> Result {
        let to = match nam {
            Some(_) if inp.is_connected() => return Err(Errno::EISCONN),
            Some(nam) => self.end(&Sockaddr::of_family(nam, AF_INET)?),
            None if inp.is_connected() => inp.foreign(),
            None => return Err(Errno::ENOTCONN),
        };
        if to.1 == 0 {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if inp.local().1 == 0 {
            self.pcbs.in_pcbbind(inp, None)?;
        }
        let (laddr, lport) = inp.local();
        let laddr = if laddr.is_unspecified() { self.source(cx, to.0)? } else { laddr };
        let len = m.m_length() + UDP_HDR;
        let wire_len = u16::try_from(len).map_err(|_| Errno::EMSGSIZE)?;
        let mut header = [0; UDP_HDR];
        header[..2].copy_from_slice(&lport.to_be_bytes());
        header[2..4].copy_from_slice(&to.1.to_be_bytes());
        header[4..6].copy_from_slice(&wire_len.to_be_bytes());
        if self.has_checksum {
            let mut sum = Checksum::pseudo_header(laddr, to.0, IPPROTO_UDP, len as u32);
            sum.add(&header);
            let sum = match m.in_cksum_add(sum, 0, len - UDP_HDR).finish() {
                0 => 0xffff,
                sum => sum,
            };
            header[6..].copy_from_slice(&sum.to_be_bytes());
        }
        let mut m = m.m_prepend(UDP_HDR)?;
        let room = m.mtod_mut().and_then(|data| data.first_chunk_mut());
        *room.ok_or(Errno::ENOBUFS)? = header;
        count(&self.opackets);
        let may = inp.inp_socket.options() & SO_BROADCAST != 0;
        let flags = if may { ALLOWBROADCAST } else { 0 };
        let (to, from) = (self.sockaddr((to.0, 0)), self.sockaddr((laddr, 0)));
        let arg = OutputArg { flags, ..OutputArg::new(to, Some(from), IPPROTO_UDP) };
        self.lower.pr_output(cx, m, &arg)
    }

    /// Whether an address is ours: packets to it come from it.
    fn check_local(&self, cx: &Kernel, host: Ipv4Addr) -> Result {
        let is_ours = host.is_unspecified() || self.source(cx, host) == Ok(host);
        if is_ours { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) }
    }
}

impl ProtoFns for Udp {
    fn pr_input(&self, cx: &Kernel, pr: &Rc<Protosw>, m: Mbuf, arg: InputArg) {
        match self.udp_input(cx, m, &arg) {
            Ok(()) => {}
            Err(Unfit::Bad(reason)) => pr.count_drop(reason),
            Err(Unfit::NoPort(m)) => {
                pr.count_drop(&reason::NO_PORT);
                self.lower.pr_unreach(cx, m, &arg, Prc::UnreachPort);
            }
        }
    }

    /// `udp_ctlinput`.
    fn pr_ctlinput(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        cmd: Prc,
        sa: &Sockaddr,
        packet: Option<&[u8]>,
    ) {
        let Some(error) = inetctlerr(cmd) else { return };
        let told = match packet.and_then(<[u8]>::first_chunk) {
            Some(&[a, b, c, d]) => {
                let peer = (sa.addr(), u16::from_be_bytes([c, d]));
                self.pcbs.in_pcbnotify(peer, u16::from_be_bytes([a, b]))
            }
            None => {
                let is_it = |inp: &Rc<Inpcb>| inp.is_connected() && inp.foreign().0 == sa.addr();
                self.pcbs.all().into_iter().filter(is_it).collect()
            }
        };
        for inp in told {
            inp.inp_socket.set_error(Some(error));
            inp.inp_socket.sorwakeup(cx);
            inp.inp_socket.sowwakeup(cx);
        }
    }

    /// `udp_usrreq`.
    fn pr_usrreq(
        &self,
        cx: &Kernel,
        _: &Rc<Protosw>,
        so: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        if req == Pru::Control {
            let is_mtu = args.cmd == SIOCGIFMTU;
            self.lower.pr_usrreq(cx, so, req, args)?;
            if is_mtu
                && let Some(octets) = args.need_nam()?.mtod_mut().and_then(<[u8]>::first_chunk_mut)
            {
                let below = u32::from_be_bytes(*octets);
                *octets = below.saturating_sub(UDP_HDR as u32).to_be_bytes();
            }
            return Ok(());
        }
        let so = so.ok_or(Errno::EINVAL)?;
        if req == Pru::Attach {
            if so.pcb::<Inpcb>().is_some() {
                return Err(Errno::EINVAL);
            }
            so.soreserve(SENDSPACE, RECVSPACE)?;
            self.pcbs.in_pcballoc(so);
            return Ok(());
        }
        let inp = so.pcb::<Inpcb>().ok_or(Errno::EINVAL)?;
        match req {
            Pru::Detach => self.pcbs.in_pcbdetach(&inp),
            Pru::Bind => {
                let end = self.end(&Sockaddr::of_family(args.need_nam()?, AF_INET)?);
                self.check_local(cx, end.0)?;
                self.pcbs.in_pcbbind(&inp, Some(end))?;
            }
            Pru::Connect => {
                if inp.is_connected() {
                    return Err(Errno::EISCONN);
                }
                let peer = self.end(&Sockaddr::of_family(args.need_nam()?, AF_INET)?);
                let source = self.source(cx, peer.0)?;
                self.pcbs.in_pcbconnect(&inp, peer, source)?;
                so.soisconnected(cx);
            }
            Pru::Disconnect => {
                if !inp.is_connected() {
                    return Err(Errno::ENOTCONN);
                }
                self.pcbs.in_pcbdisconnect(&inp);
                so.set_state(0, SS_ISCONNECTED);
            }
            Pru::Abort => {
                so.soisdisconnected(cx);
                self.pcbs.in_pcbdetach(&inp);
            }
            Pru::Shutdown => so.socantsendmore(cx),
            Pru::Send => {
                let m = args.need_m()?;
                return self.udp_output(cx, &inp, m, args.nam.as_deref_mut());
            }
            Pru::Sockaddr => self.sockaddr(inp.local()).store(args.need_nam()?),
            Pru::Peeraddr => self.sockaddr(inp.foreign()).store(args.need_nam()?),
            Pru::Sense => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn pr_stop(&self) {
        self.pcbs.clear();
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        let (hits, looked_at) = self.pcbs.figures();
        Vec::from([
            ("datagrams received", self.ipackets.get()),
            ("datagrams sent", self.opackets.get()),
            ("for no port", self.noport.get()),
            ("dropped, socket full", self.fullsock.get()),
            ("control blocks", self.pcbs.len() as u64),
            ("blocks found by the cache", hits),
            ("blocks looked at", looked_at),
        ])
    }
}

/// Octets of the headers in front of a datagram's data on IP.
pub const HEADERS: usize = IP_HDR + UDP_HDR;
