//! # Synopsis
//! `ether WIRE` — an Ethernet interface of the BSD network subsystem, with ARP.
//!
//! # Participants
//! Those of its address families: the lines above pass it socket addresses.
//!
//! # Behaviour
//! Protocols above find its interface by the line, and its hardware address by
//! [`xk_bsd::ether::Arpcom`].
//!
//! Frames are of Ethernet II, or of IEEE 802.3 with LLC and SNAP. An arriving frame is lent by the
//! wire, loses its header, and goes to the queue of its protocol's software interrupt. Frames for
//! an unknown protocol, for another station, or for a group that was not joined are dropped and
//! counted by the interface. A sent frame waits in the interface's queue of 50 until the wire takes
//! it, usually at once. Short frames are padded.
//!
//! ARP keeps one packet for each unresolved address; a newer one replaces it. It sends at most five
//! requests, a second apart; then the address is unreachable for 20 seconds. Entries live for 20
//! minutes. At most 512 entries are kept; a new one then replaces the oldest.
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
//! RFC 894 and RFC 826; RFC 1042 for SNAP.

use crate::arp::Arp;
use alloc::rc::Rc;
use alloc::string::ToString;
use core::cell::RefCell;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ether::{Arpcom, BROADCAST, ETHER_HDR, ETHERMTU, Encap, pad};
use xk_bsd::ifnet::{IFF_BROADCAST, IFF_RUNNING, IFF_SIMPLEX, IFF_UP, SIOCADDMULTI, count};
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{Bsd, Driver, Ifnet, Mbuf, NETISR_ARP, NETISR_IP, Sockaddr, WireDevice};
use xk_core::control::{Report, question};
use xk_core::graph::{
    Build, BuildError, Family, Guarantees, ParamKind, Realm, Service, StackingRules, optional,
};
use xk_core::object::{OpenError, Refused};
use xk_core::{Answer, Ask, Entry, Kernel, Message, Protocol, ProtocolRef, Reason, SessionRef};
use xk_kit::control::MyEther;
use xk_kit::net::addr::EthAddr;
use xk_kit::wire::segments;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("ether", include_str!("ether.rs"), build)
    .subsystem("bsd")
    .summary("an Ethernet interface, with ARP")
    .above(Family::Ether)
    .numbers_as("eth")
    .on(&[Realm::Wire, Realm::Async], &[Family::Link])
    .needs(Guarantees::OPEN.and(Guarantees::WHOLE))
    .service(Service::changing(Guarantees::NONE, Guarantees::EXACT))
    .header_octets(ETHER_HDR)
    .stacking_rules(&StackingRules { own_address: Some("address"), ..StackingRules::NONE })
    .parameters(&[
        optional("address", ParamKind::Text("a hardware address, such as 02:00:00:00:00:01"),
            "the station's address, in place of the wire's"),
    ])
    .questions(&[
        question("my-ether", "the station's address"),
        question("report", "counters of the interface and of ARP"),
    ]);

/// The driver.
struct Softc {
    ac: RefCell<Option<Rc<Arpcom>>>,
    wire: WireDevice,
}

impl Driver for Softc {
    fn if_output(&self, cx: &Kernel, _: &Rc<Ifnet>, m: Mbuf, dst: &Sockaddr) -> Result {
        let ac = self.ac.borrow().clone().ok_or(Errno::ENETDOWN)?;
        ac.ether_output(cx, m, dst)
    }

    fn if_start(&self, cx: &Kernel, ifp: &Rc<Ifnet>) {
        while let Some(m) = ifp.if_snd.dequeue() {
            let sent = pad(m).and_then(|m| self.wire.output(cx, m));
            count(if sent.is_ok() { &ifp.if_data.opackets } else { &ifp.if_data.oerrors });
        }
    }

    fn if_ioctl(&self, cx: &Kernel, ifp: &Rc<Ifnet>, cmd: u32, data: &mut [u8]) -> Result {
        let ac = self.ac.borrow().clone().ok_or(Errno::ENETDOWN)?;
        let group: [u8; 6] = (&*data).try_into().map_err(|_| Errno::EINVAL)?;
        if cmd != SIOCADDMULTI {
            return Err(Errno::EINVAL);
        }
        // What is joined before the line has started is told to the wire then.
        if ac.join(group)? && ifp.is(IFF_RUNNING) {
            self.wire.join(cx, group);
        }
        Ok(())
    }
}

/// The line's node.
struct Line {
    bsd: Rc<Bsd>,
    ac: Rc<Arpcom>,
    softc: Rc<Softc>,
    arp: Rc<Arp>,
    given: Option<EthAddr>,
    lower: ProtocolRef,
}

fn build(build: &mut Build<'_>) -> core::result::Result<ProtocolRef, BuildError> {
    const ADDRESS: &str = "the address of one station, such as 02:00:00:00:00:01";
    let given = build.params.parse::<EthAddr>("address", ADDRESS)?;
    if given.is_some_and(|address| !address.is_unicast()) {
        return Err(BuildError::param("address", ADDRESS));
    }
    let (cx, lower) = (build.cx, build.lower(0)?);
    let bsd = xk_bsd::of(cx)?;
    let wire = WireDevice::new(lower.clone());
    let softc = Rc::new(Softc { ac: RefCell::default(), wire });
    let ifp = bsd.if_attach("en", Rc::clone(&softc) as Rc<dyn Driver>);
    let ac = Arpcom::new(&bsd, ifp.map_err(xk_bsd::environment)?);
    softc.ac.replace(Some(Rc::clone(&ac)));
    let arp = Arp::of(cx, &bsd);
    ac.add_type(Encap::Type(0x0800), NETISR_IP);
    ac.add_type(Encap::Type(0x0806), NETISR_ARP);
    ac.add_resolver(AF_INET, Rc::clone(&arp) as Rc<dyn xk_bsd::ether::Resolve>);
    let line = Line { bsd: Rc::clone(&bsd), ac: Rc::clone(&ac), softc, arp, given, lower };
    let node = build.add(line)?;
    bsd.set_interface(node.id(), Rc::clone(&ac.ac_if));
    Ok(node)
}

impl Line {
    /// A frame of the wire's, or a run of segments.
    fn receive(&self, cx: &Kernel, message: Message) -> core::result::Result<(), &'static Reason> {
        segments::each_whole(cx.pool(), message, |frame| {
            let m = self.bsd.mbufs().m_lend(frame, self.ac.ac_if.if_index)?;
            self.ac.ether_input(cx, m);
            Ok(())
        })
    }
}

impl Protocol for Line {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> core::result::Result<(), OpenError> {
        let wire = &self.softc.wire;
        wire.open(cx, this)?;
        let (address, max) = (wire.address(cx), wire.max(cx));
        let drawn = || {
            let mut octets = [0; 6];
            cx.random().fill(&mut octets);
            octets[0] = octets[0] & !1 | 2;
            octets
        };
        self.ac.set_enaddr(self.given.map(|given| given.0).or(address).unwrap_or_else(drawn));
        let ifp = &self.ac.ac_if;
        let mtu = if max > ETHER_HDR { max - ETHER_HDR } else { ETHERMTU };
        ifp.if_mtu.set(mtu.min(ETHERMTU));
        ifp.set_flags(IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_SIMPLEX, 0);
        // What the lines above have joined before the wire was open.
        for group in self.ac.groups().into_iter().chain([BROADCAST]) {
            wire.join(cx, group);
        }
        // Tells the others our addresses, and hears whether another station has one.
        self.bsd.splnet(cx, || {
            for mine in ifp.addresses().iter().filter(|a| a.addr.family() == AF_INET) {
                self.arp.arpwhohas(cx, &self.ac, mine.addr.addr(), mine.addr.addr());
            }
        });
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> core::result::Result<(), Refused> {
        // A frame that finds no mbuf is gone, as in a driver without a buffer to give its board.
        let taken = self.bsd.splnet(cx, || self.receive(cx, message));
        if let Err(reason) = taken {
            this.head().drops().count(reason);
            count(&self.ac.ac_if.if_data.ierrors);
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<MyEther>() {
            question.address = self.ac.enaddr();
            return Answer::Answered;
        }
        let Some(report) = ask.get::<Report>() else { return self.lower.control(cx, ask) };
        let data = &self.ac.ac_if.if_data;
        let figures = [
            ("packets received", data.ipackets.get()),
            ("packets sent", data.opackets.get()),
            ("errors in", data.ierrors.get()),
            ("errors out", data.oerrors.get()),
            ("for no protocol", data.noproto.get()),
            ("queue full in", data.iqdrops.get()),
            ("queue full out", self.ac.ac_if.if_snd.drops()),
        ];
        let all = figures.into_iter().chain(self.arp.stats());
        report.lines = all.map(|(name, n)| (name.into(), n.to_string())).collect();
        report.finished = true;
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.softc.wire.close(cx);
        drop(self.softc.ac.take());
        self.arp.stop();
    }
}
