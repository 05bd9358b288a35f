//! # Synopsis
//! `ip ETHER` — the Internet Protocol of a host or a gateway in the BSD network subsystem, with
//! ICMP.
//!
//! # Participants
//! Hosts, as `sockaddr_in`.
//!
//! # Behaviour
//! `udp` and others with a number of eight bits stand on it. A protocol that does not want a packet
//! refuses it (`pr_unreach`), and ICMP tells the sender.
//!
//! By default it is a host, and drops packets for others. With `gateway` it is a router: it
//! forwards them, fragments them for a smaller MTU, and reports to their senders: time exceeded,
//! unreachable networks and hosts, the MTU that would have fitted (RFC 1191), and redirects. It
//! never forwards broadcasts, multicasts, or packets for link-local or invalid addresses. Arrivals
//! wait in a queue of 50 for the software interrupt; version, lengths and checksum are checked, and
//! fragments reassembled. At most 64 incomplete datagrams of at most 64 fragments each are kept,
//! for 30 seconds. A packet is passed up with its header in front.
//!
//! Options are checked for their lengths and left alone; packets with a source route are dropped.
//!
//! A packet longer than its link's MTU is fragmented without a copy of its clusters, or refused
//! with `EMSGSIZE` if that is forbidden. Packets to an address of this host go through the
//! interface `lo0`.
//!
//! ICMP: echo requests are answered. Unreachable, source quench and time exceeded are passed to the
//! protocol whose packet they quote (`pr_ctlinput`). A packet for a missing protocol or port is
//! answered with unreachable, unless it is an error, a fragment other than the first, or was sent
//! to many. Arriving redirects are ignored.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ip ether { address "10.0.0.1/24"; route "default" via="10.0.0.254"; }
//!         udp ip
//!     }
//! }
//! ```
//!
//! # Standard
//! RFC 791, RFC 792, RFC 894, RFC 1122, RFC 1191, RFC 2644. Not covered: source routes, record
//! route and time stamps, multicast groups, rate limits of errors (RFC 1812).

use crate::in_var::{Rtentry, in_broadcast, is_ours, rtalloc};
use crate::reass::Ipq;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::net::Ipv4Addr;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ifnet::{IFF_LOOPBACK, IFF_RUNNING, IFF_UP, count};
use xk_bsd::mbuf::{M_BCAST, M_MCAST};
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{
    Bsd, Driver, IfAddr, Ifnet, InputArg, Mbuf, NETISR_IP, Netisr, OutputArg, Prc, ProtoFns,
    Protosw, Pru, PruArgs, SIOCGIFMTU, SIOCGIFSRCADDR, Sock, Sockaddr, Socket, Switch, add_line,
};
use xk_core::control::question;
use xk_core::graph::{
    Build, BuildError, Family, Guarantees, ParamKind, Realm, Service, StackingRules, block, flag,
    optional, required,
};
use xk_core::reason::{self, Class};
use xk_core::{Entry, Kernel, ProtocolRef, Reason};

/// Octets of a header without options.
pub const IP_HDR: usize = 20;
/// Octets of a datagram at most.
pub const IP_MAXPACKET: usize = 65_535;
/// Hops that a packet may make (`IPDEFTTL`).
pub(crate) const IPDEFTTL: u8 = 64;
/// The number of ICMP.
pub(crate) const IPPROTO_ICMP: u8 = 1;
/// The packet may not be cut.
pub(crate) const IP_DF: u16 = 0x4000;
/// More fragments follow.
pub(crate) const IP_MF: u16 = 0x2000;

/// Dropped: a packet for another host, where this one is no router.
pub static CANT_FORWARD: Reason = Reason::new("not for this host", Class::NoProtocol);
/// Dropped: a packet with a source route.
pub static SOURCE_ROUTE: Reason = Reason::new("source route", Class::Prohibited);
/// Fragments that were dropped, for their number or for their time.
pub static FRAGMENT_DROPPED: Reason = Reason::new("fragment dropped", Class::Exhausted);

/// Dropped: a packet that has made too many hops.
pub static TTL_EXCEEDED: Reason = Reason::new("time to live exceeded", Class::Bad);
/// There is no way to its host.
pub static NO_ROUTE: Reason = Reason::new("no route", Class::Bad);

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("ip", include_str!("ip.rs"), build)
    .subsystem("bsd")
    .summary("the Internet Protocol, version 4, of a host or a gateway, with ICMP")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Ether])
    .lowers(1..=16)
    .needs(Guarantees::WHOLE)
    .service(Service::changing(
        Guarantees::EXACT.and(Guarantees::REPLY).and(Guarantees::ROUTES).and(Guarantees::HOSTS),
        Guarantees::NEIGHBOURS))
    .header_octets(IP_HDR)
    .stacking_rules(&StackingRules { own_address: Some("address"), ..StackingRules::NONE })
    .numbers(&[("eth", 0x0800), ("ether", 0x0800)])
    .parameters(&[
        flag("gateway", false, "whether packets for others are sent on (IPFORWARDING)"),
    ])
    .blocks(&[
        block("address", 1..=16,
            &[required("address",
                ParamKind::Text("an IPv4 address of one host and its prefix, such as 10.0.0.1/24"),
                "a host of ours and its network")],
            &[optional("on", ParamKind::Text("the name of a line below"), "the interface")],
            "a host of ours and its network; on the first interface if not said"),
        block("route", 0..=256,
            &[required("network", ParamKind::Text("an IPv4 network, or default"), "where to")],
            &[required("via", ParamKind::Text("an IPv4 address"), "the router on the way")],
            "a way to a network, or `default`"),
    ])
    .questions(&[
        question("max-packet", "65515: the longest datagram less its header"),
        question("opt-packet", "the longest datagram less its header"),
        question("report", "counters, as of netstat -s"),
    ])
    .reasons(&[&CANT_FORWARD, &SOURCE_ROUTE, &FRAGMENT_DROPPED, &TTL_EXCEEDED, &NO_ROUTE]);

/// Counters (`struct ipstat`).
#[derive(Default)]
pub(crate) struct Ipstat {
    pub(crate) total: Cell<u64>,
    pub(crate) delivered: Cell<u64>,
    pub(crate) fragments: Cell<u64>,
    pub(crate) reassembled: Cell<u64>,
    pub(crate) localout: Cell<u64>,
    pub(crate) fragmented: Cell<u64>,
    pub(crate) ofragments: Cell<u64>,
    pub(crate) forward: Cell<u64>,
    pub(crate) cantforward: Cell<u64>,
    pub(crate) redirects: Cell<u64>,
    pub(crate) noroute: Cell<u64>,
    pub(crate) icmp_in: Cell<u64>,
    pub(crate) icmp_errors: Cell<u64>,
    pub(crate) icmp_echoes: Cell<u64>,
}

/// IP of a kernel.
pub(crate) struct Ip {
    pub(crate) bsd: Rc<Bsd>,
    /// The entry in the protocol switch.
    pr: OnceCell<Weak<Protosw>>,
    pub(crate) lo: OnceCell<Rc<Ifnet>>,
    interfaces: Vec<Rc<Ifnet>>,
    addresses: Vec<(usize, Ipv4Addr, u8)>,
    pub(crate) routes: Vec<Rtentry>,
    /// Whether packets for others are sent on (`ipforwarding`).
    is_gateway: bool,
    pub(crate) ip_id: Cell<u16>,
    pub(crate) ipq: RefCell<Ipq>,
    pub(crate) stat: Ipstat,
}

/// `lo0`: what is sent arrives (`net/if_loop.c`).
struct Loop(Rc<Bsd>);

impl Driver for Loop {
    fn if_output(&self, cx: &Kernel, ifp: &Rc<Ifnet>, mut m: Mbuf, _: &Sockaddr) -> Result {
        count(&ifp.if_data.opackets);
        count(&ifp.if_data.ipackets);
        m.make_packet(ifp.if_index);
        self.0.netisr_input(cx, NETISR_IP, ifp, m);
        Ok(())
    }
}

/// An address and its prefix.
fn cidr(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    Some((address.parse().ok()?, prefix))
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    const ADDRESS: &str = "an IPv4 address of one host and its prefix, such as 10.0.0.1/24";
    let bsd = xk_bsd::of(build.cx)?;
    if bsd.has_netisr(NETISR_IP) {
        return Err(BuildError::param("address", "one `ip` in a block, with all its addresses"));
    }
    let mut interfaces = Vec::new();
    for lower in build.lowers {
        let ifp = bsd.interface(lower.id()).ok_or(Errno::ENXIO).map_err(xk_bsd::environment)?;
        interfaces.push(ifp);
    }
    let wrong =
        |name, index, expected: &str| BuildError::Param { name, index, expected: expected.into() };
    let mut addresses = Vec::new();
    for (index, block) in build.params.blocks("address").enumerate() {
        let on = block.text("on");
        let at = on.map_or(Some(0), |on| build.lowers.iter().position(|l| l.name() == on));
        let at = at.ok_or_else(|| wrong("address", index, "the name of a line below"))?;
        let found = block.text("address").and_then(cidr);
        let (address, prefix) = found.ok_or_else(|| wrong("address", index, ADDRESS))?;
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            return Err(wrong("address", index, ADDRESS));
        }
        addresses.push((at, address, prefix));
    }
    let mut routes = Vec::new();
    for (index, block) in build.params.blocks("route").enumerate() {
        let net = match block.text("network") {
            Some("default") => Some((Ipv4Addr::UNSPECIFIED, 0)),
            net => net.and_then(cidr),
        };
        let via = block.text("via").and_then(|via| via.parse().ok());
        let (Some((net, prefix)), Some(gateway)) = (net, via) else {
            return Err(wrong("route", index, "a network such as 10.1.0.0/16, and a router"));
        };
        routes.push(Rtentry { net, prefix, gateway });
    }
    let ip = Rc::new(Ip {
        bsd: Rc::clone(&bsd),
        pr: OnceCell::new(),
        lo: OnceCell::new(),
        interfaces,
        addresses,
        routes,
        is_gateway: build.flag("gateway")?,
        ip_id: Cell::new(build.cx.random().next_u32() as u16),
        ipq: RefCell::default(),
        stat: Ipstat::default(),
    });
    let lo = bsd.if_attach("lo", Rc::new(Loop(Rc::clone(&bsd)))).map_err(xk_bsd::environment)?;
    lo.if_mtu.set(IP_MAXPACKET);
    lo.set_flags(IFF_UP | IFF_RUNNING | IFF_LOOPBACK, 0);
    let _ = ip.lo.set(lo);
    bsd.set_netisr(NETISR_IP, xk_bsd::ifnet::IFQ_MAXLEN, Rc::new(Ipintr(Rc::clone(&ip))));
    let sw = Switch { pr_type: Sock::None, pr_domain: AF_INET, ..Switch::default() };
    let (node, _) = add_line(build, sw, ip as Rc<dyn ProtoFns>)?;
    Ok(node)
}

/// The software interrupt of IP.
struct Ipintr(Rc<Ip>);

impl Netisr for Ipintr {
    /// `ipintr`.
    fn intr(&self, cx: &Kernel, m: Mbuf) {
        if let Err(reason) = self.0.ip_input(cx, m) {
            self.0.count_drop(reason);
        }
    }
}

/// The fields of a header that was checked.
#[derive(Clone, Copy)]
pub(crate) struct IpHdr {
    pub(crate) hlen: usize,
    pub(crate) len: usize,
    pub(crate) id: u16,
    pub(crate) off: u16,
    pub(crate) proto: u8,
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
}

impl IpHdr {
    /// Reads a header at the beginning of these octets, without a check of its lengths.
    pub(crate) fn of(octets: &[u8]) -> Option<Self> {
        let h: &[u8; IP_HDR] = octets.first_chunk()?;
        let two = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        Some(Self {
            hlen: usize::from(h[0] & 15) * 4,
            len: two(2).into(),
            id: two(4),
            off: two(6),
            proto: h[9],
            src: Ipv4Addr::new(h[12], h[13], h[14], h[15]),
            dst: Ipv4Addr::new(h[16], h[17], h[18], h[19]),
        })
    }
}

impl Ip {
    pub(crate) fn pr(&self) -> Option<Rc<Protosw>> {
        self.pr.get()?.upgrade()
    }

    pub(crate) fn count_drop(&self, reason: &'static Reason) {
        if let Some(pr) = self.pr() {
            pr.count_drop(reason);
        }
    }

    pub(crate) fn sockaddr(&self, host: Ipv4Addr) -> Sockaddr {
        Sockaddr::inet(self.bsd.mbufs().release(), host, 0)
    }

    /// A packet of an interface (`ip_input`).
    fn ip_input(&self, cx: &Kernel, m: Mbuf) -> core::result::Result<(), &'static Reason> {
        count(&self.stat.total);
        let m = m.m_pullup(IP_HDR).map_err(|_| &reason::TRUNCATED)?;
        let first = m.mtod().first().copied().unwrap_or(0);
        let hlen = usize::from(first & 15) * 4;
        if first >> 4 != 4 || hlen < IP_HDR {
            return Err(&reason::MALFORMED);
        }
        let mut m = m.m_pullup(hlen).map_err(|_| &reason::TRUNCATED)?;
        if m.in_cksum(0, hlen) != 0 {
            return Err(&reason::BAD_CHECKSUM);
        }
        let ip = IpHdr::of(m.mtod()).ok_or(&reason::TRUNCATED)?;
        let total = m.m_length();
        if ip.len < hlen || ip.len > total {
            return Err(&reason::BAD_LENGTH);
        }
        m.m_adj(-((total - ip.len) as isize));
        self.ip_dooptions(&m, hlen)?;
        let ifp = self.bsd.ifnet(m.m_pkthdr().rcvif).ok_or(&reason::NOT_MINE)?;
        let is_many = in_broadcast(&ifp, ip.dst);
        let is_other = !is_many && !is_ours(&self.bsd, ip.dst) && !ifp.is(IFF_LOOPBACK);
        if is_other && !self.is_gateway {
            return Err(&CANT_FORWARD);
        }
        // A sender is one host (RFC 1122, section 3.2.1.3).
        if ip.src.is_multicast() || ip.src.is_broadcast() || in_broadcast(&ifp, ip.src) {
            return Err(&reason::BAD_SOURCE);
        }
        // Only what goes round by lo0 comes from us.
        if is_ours(&self.bsd, ip.src) && !ifp.is(IFF_LOOPBACK) {
            return Err(&reason::BAD_SOURCE);
        }
        if is_other {
            return self.ip_forward(cx, m, ip, &ifp);
        }
        if is_many {
            m.set_flags(M_BCAST, 0);
        }
        if ip.off & (IP_MF | 0x1fff) != 0 {
            count(&self.stat.fragments);
            let (whole, dropped) = self.ipq.borrow_mut().ip_reass(m, ip);
            for _ in 0..dropped {
                self.count_drop(&FRAGMENT_DROPPED);
            }
            let Some(whole) = whole else { return Ok(()) };
            count(&self.stat.reassembled);
            m = whole;
        }
        self.deliver(cx, m, ip)
    }

    /// Passes a datagram to its protocol.
    fn deliver(
        &self,
        cx: &Kernel,
        m: Mbuf,
        ip: IpHdr,
    ) -> core::result::Result<(), &'static Reason> {
        let upper = self.pr().and_then(|pr| pr.upper(ip.proto));
        if let Some(upper) = upper {
            count(&self.stat.delivered);
            let arg = InputArg::Ip { hlen: ip.hlen, from: ip.src, to: ip.dst, kind: ip.proto };
            upper.pr_input(cx, m, arg);
            return Ok(());
        }
        if ip.proto == IPPROTO_ICMP {
            count(&self.stat.delivered);
            return self.icmp_input(cx, m, ip);
        }
        self.icmp_unreach(cx, m, Prc::UnreachProtocol);
        Err(&reason::NO_PROTOCOL)
    }

    /// Looks at the options (`ip_dooptions`): their lengths, and for source routes.
    fn ip_dooptions(&self, m: &Mbuf, hlen: usize) -> core::result::Result<(), &'static Reason> {
        let mut options = m.mtod().get(IP_HDR..hlen).unwrap_or_default();
        while let [kind, rest @ ..] = options {
            match kind {
                0 => break,
                1 => options = rest,
                131 | 137 => return Err(&SOURCE_ROUTE),
                _ => {
                    let len = rest.first().copied().map_or(0, usize::from);
                    options = options.get(len..).filter(|_| len >= 2).ok_or(&reason::MALFORMED)?;
                }
            }
        }
        Ok(())
    }

    fn first_address(&self) -> Option<Ipv4Addr> {
        let all = self.interfaces.iter().flat_map(|ifp| ifp.addresses());
        let mut ours = all.filter(|a| a.addr.family() == AF_INET);
        ours.next().map(|a| a.addr.addr())
    }

    /// Answers with unreachable.
    pub(crate) fn icmp_unreach(&self, cx: &Kernel, m: Mbuf, cmd: Prc) {
        let code = match cmd {
            Prc::UnreachProtocol => 2,
            Prc::UnreachPort => 3,
            Prc::UnreachHost | Prc::HostUnreach => 1,
            _ => 0,
        };
        self.icmp_error(cx, m, crate::icmp::UNREACH, code, [0; 4]);
    }
}

impl ProtoFns for Ip {
    /// `ip_init`, and the interfaces' `SIOCSIFADDR`.
    fn pr_init(&self, _: &Kernel, pr: &Rc<Protosw>) -> Result {
        let _ = self.pr.set(Rc::downgrade(pr));
        for (at, address, prefix) in &self.addresses {
            let Some(ifp) = self.interfaces.get(*at) else { continue };
            let mask = crate::in_var::mask(*prefix);
            let broad = Ipv4Addr::from_bits(address.to_bits() | !mask);
            ifp.add_address(IfAddr {
                addr: self.sockaddr(*address),
                netmask: self.sockaddr(Ipv4Addr::from_bits(mask)),
                // A network of two hosts has no broadcast (RFC 3021).
                broadaddr: self.sockaddr(if *prefix < 31 { broad } else { Ipv4Addr::BROADCAST }),
            })?;
        }
        Ok(())
    }

    fn pr_output(&self, cx: &Kernel, _: &Rc<Protosw>, m: Mbuf, arg: &OutputArg) -> Result {
        self.ip_output(cx, m, arg)
    }

    fn pr_unreach(&self, cx: &Kernel, _: &Rc<Protosw>, m: Mbuf, _: &InputArg, cmd: Prc) {
        self.icmp_unreach(cx, m, cmd);
    }

    fn pr_usrreq(
        &self,
        _: &Kernel,
        _: &Rc<Protosw>,
        _: Option<&Rc<Socket>>,
        req: Pru,
        args: &mut PruArgs<'_>,
    ) -> Result {
        if req != Pru::Control {
            return Err(Errno::EOPNOTSUPP);
        }
        let (cmd, nam) = (args.cmd, args.need_nam()?);
        match cmd {
            SIOCGIFMTU => {
                let largest = (IP_MAXPACKET - IP_HDR) as u32;
                nam.mtod_mut()
                    .and_then(|octets| octets.first_chunk_mut())
                    .map(|octets| *octets = largest.to_be_bytes())
                    .ok_or(Errno::EINVAL)
            }
            SIOCGIFSRCADDR => {
                let to = Sockaddr::of_family(nam, AF_INET)?;
                let lo = self.lo.get().ok_or(Errno::ENETDOWN)?;
                let source = match to.addr() {
                    // Of no address it is the first (`in_pcbconnect`).
                    Ipv4Addr::UNSPECIFIED => self.first_address(),
                    to => rtalloc(&self.bsd, lo, &self.routes, to).map(|route| route.source),
                };
                self.sockaddr(source.ok_or(Errno::ENETUNREACH)?).store(nam);
                Ok(())
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn has_slowtimo(&self) -> bool {
        true
    }

    /// `ip_slowtimo`.
    fn pr_slowtimo(&self, _: &Kernel, pr: &Rc<Protosw>) {
        let dropped = self.ipq.borrow_mut().ip_slowtimo();
        (0..dropped).for_each(|_| pr.count_drop(&FRAGMENT_DROPPED));
    }

    /// `ip_drain`.
    fn pr_drain(&self, _: &Kernel, pr: &Rc<Protosw>) {
        let dropped = self.ipq.borrow_mut().ip_drain();
        (0..dropped).for_each(|_| pr.count_drop(&FRAGMENT_DROPPED));
    }

    fn pr_stop(&self) {
        self.ipq.borrow_mut().ip_drain();
    }

    fn pr_stats(&self) -> Vec<(&'static str, u64)> {
        let stat = &self.stat;
        [
            ("total packets received", &stat.total),
            ("fragments received", &stat.fragments),
            ("datagrams put together", &stat.reassembled),
            ("datagrams delivered", &stat.delivered),
            ("datagrams sent", &stat.localout),
            ("datagrams cut", &stat.fragmented),
            ("fragments sent", &stat.ofragments),
            ("datagrams sent on", &stat.forward),
            ("datagrams not sent on", &stat.cantforward),
            ("redirects sent", &stat.redirects),
            ("no route", &stat.noroute),
            ("icmp received", &stat.icmp_in),
            ("icmp errors sent", &stat.icmp_errors),
            ("icmp echoes answered", &stat.icmp_echoes),
        ]
        .map(|(name, count)| (name, count.get()))
        .into()
    }
}

/// Whether a packet went to more than one host.
pub(crate) fn is_many(m: &Mbuf) -> bool {
    m.m_flags() & (M_BCAST | M_MCAST) != 0
}
