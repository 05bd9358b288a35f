//! ARP (`netinet/if_ether.c`).

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_bsd::errno::{Errno, Result};
use xk_bsd::ether::{Arpcom, BROADCAST, Encap, Resolve, Resolved};
use xk_bsd::ifnet::count;
use xk_bsd::mbuf::M_BCAST;
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{Bsd, Mbuf, Mt, NETISR_ARP, Netisr, Sockaddr};
use xk_core::{Kernel, Time, reason};

/// Octets of a packet for Ethernet and IPv4.
const ARP_LEN: usize = 28;
/// Hardware Ethernet, protocol IPv4, six and four octets.
const FORM: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
/// Addresses that it knows at most.
pub(crate) const ARPTAB_SIZE: usize = 512;
/// Number of requests for an address.
const TRIES: u8 = 5;
/// Time between two requests for one address.
const APART: Duration = Duration::from_secs(1);
/// Time for which an address that does not answer is unreachable (`arpt_down`).
const DOWN: Duration = Duration::from_secs(20);
/// Time for which an address is known (`arpt_keep`).
const KEEP: Duration = Duration::from_secs(20 * 60);
/// Packets that wait for `arpintr`.
const QUEUE_MAX: usize = 50;

/// State of an address (`struct llinfo_arp`).
struct LlInfo {
    station: Option<[u8; 6]>,
    /// Time until which the address holds, or until which it cannot be reached.
    expire: Time,
    is_down: bool,
    asked: u8,
    asked_at: Time,
    /// The newest packet for it.
    hold: Option<Mbuf>,
    /// Time of its last use.
    used: Time,
}

/// ARP of a kernel, for all its Ethernets.
pub(crate) struct Arp {
    bsd: Rc<Bsd>,
    table: RefCell<BTreeMap<(u16, Ipv4Addr), LlInfo>>,
    requests: Cell<u64>,
    replies: Cell<u64>,
    replaced: Cell<u64>,
    unreachable: Cell<u64>,
    evicted: Cell<u64>,
    bad: Cell<u64>,
    duplicates: Cell<u64>,
}

impl Arp {
    /// The ARP of this kernel.
    pub(crate) fn of(cx: &Kernel, bsd: &Rc<Bsd>) -> Rc<Self> {
        if let Some(arp) = cx.surroundings::<Self>() {
            return arp;
        }
        let arp = Rc::new(Self {
            bsd: Rc::clone(bsd),
            table: RefCell::default(),
            requests: Cell::new(0),
            replies: Cell::new(0),
            replaced: Cell::new(0),
            unreachable: Cell::new(0),
            evicted: Cell::new(0),
            bad: Cell::new(0),
            duplicates: Cell::new(0),
        });
        bsd.set_netisr(NETISR_ARP, QUEUE_MAX, Rc::clone(&arp) as Rc<dyn Netisr>);
        cx.surround(Rc::clone(&arp));
        arp
    }

    pub(crate) fn stats(&self) -> [(&'static str, u64); 7] {
        [
            ("arp requests sent", self.requests.get()),
            ("arp replies sent", self.replies.get()),
            ("held packets replaced", self.replaced.get()),
            ("held packets given up", self.unreachable.get()),
            ("arp entries evicted", self.evicted.get()),
            ("bad arp packets", self.bad.get()),
            ("duplicate addresses", self.duplicates.get()),
        ]
    }

    pub(crate) fn stop(&self) {
        drop(self.table.take());
    }

    /// Asks for `target`: `arpwhohas`.
    pub(crate) fn arpwhohas(&self, cx: &Kernel, ac: &Arpcom, mine: Ipv4Addr, target: Ipv4Addr) {
        count(&self.requests);
        // One that cannot be sent is lost like one on the wire.
        let _ = self.send(cx, ac, REQUEST, (ac.enaddr(), mine), ([0; 6], target), BROADCAST);
    }

    fn send(
        &self,
        cx: &Kernel,
        ac: &Arpcom,
        op: u8,
        (sha, spa): ([u8; 6], Ipv4Addr),
        (tha, tpa): ([u8; 6], Ipv4Addr),
        to: [u8; 6],
    ) -> Result {
        let mut octets = [0; ARP_LEN];
        octets[..6].copy_from_slice(&FORM);
        octets[7] = op;
        octets[8..14].copy_from_slice(&sha);
        octets[14..18].copy_from_slice(&spa.octets());
        octets[18..24].copy_from_slice(&tha);
        octets[24..28].copy_from_slice(&tpa.octets());
        let mut m = self.bsd.mbufs().m_gethdr(Mt::Data)?;
        m.align(ARP_LEN);
        if !m.put(&octets) {
            return Err(Errno::ENOBUFS);
        }
        m.make_packet(0);
        ac.send(cx, Resolved { m, to, encap: Encap::Type(0x0806) })
    }

    /// Makes room for one more address.
    fn make_room(&self, table: &mut BTreeMap<(u16, Ipv4Addr), LlInfo>) {
        if table.len() < ARPTAB_SIZE {
            return;
        }
        let rank = |info: &LlInfo| (info.station.is_some(), info.used);
        let oldest = table.iter().min_by_key(|(_, info)| rank(info)).map(|(key, _)| *key);
        if let Some(oldest) = oldest {
            table.remove(&oldest);
            count(&self.evicted);
        }
    }

    /// A packet: `in_arpinput`.
    fn in_arpinput(&self, cx: &Kernel, m: &Mbuf) {
        let mut octets = [0; ARP_LEN];
        let ifp = self.bsd.ifnet(m.m_pkthdr().rcvif);
        let ac = ifp.and_then(|ifp| self.bsd.arpcom(&ifp));
        let Some(ac) = ac else { return count(&self.bad) };
        let refuse = |why| {
            count(&self.bad);
            self.bsd.count_drop(cx, &ac.ac_if, why);
        };
        if m.m_copydata(0, &mut octets) != ARP_LEN {
            return refuse(&reason::TRUNCATED);
        }
        let part = |at: usize| [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
        let (spa, tpa) = (Ipv4Addr::from(part(14)), Ipv4Addr::from(part(24)));
        let sha: [u8; 6] = core::array::from_fn(|at| octets[8 + at]);
        let is_group = sha[0] & 1 != 0;
        if octets[..6] != FORM || octets[6] != 0 {
            return refuse(&reason::MALFORMED);
        }
        if is_group || sha == ac.enaddr() {
            return refuse(&reason::BAD_SOURCE);
        }
        let ours = ac.ac_if.addresses();
        let ours = || ours.iter().filter(|a| a.addr.family() == AF_INET).map(|a| a.addr.addr());
        if ours().any(|mine| mine == spa) {
            count(&self.duplicates);
            if octets[7] == REQUEST {
                // Defends its address: the other station hears that it is in use.
                count(&self.replies);
                let _ = self.send(cx, &ac, REPLY, (ac.enaddr(), spa), (sha, spa), BROADCAST);
            }
            return;
        }
        let is_for_us = ours().any(|mine| mine == tpa);
        if !spa.is_unspecified() && !spa.is_multicast() && !spa.is_broadcast() {
            self.learn(cx, &ac, spa, sha, is_for_us);
        }
        if is_for_us && octets[7] == REQUEST {
            count(&self.replies);
            let _ = self.send(cx, &ac, REPLY, (ac.enaddr(), tpa), (sha, spa), sha);
        }
    }

    /// Learns where an address is; a new one only if it asks for ours. Sends what was held for it.
    fn learn(&self, cx: &Kernel, ac: &Rc<Arpcom>, spa: Ipv4Addr, sha: [u8; 6], may_create: bool) {
        let key = (ac.ac_if.if_index, spa);
        let now = cx.now();
        let mut table = self.table.borrow_mut();
        if !table.contains_key(&key) {
            if !may_create {
                return;
            }
            self.make_room(&mut table);
        }
        let info = table.entry(key).or_insert_with(|| LlInfo::new(now));
        info.station = Some(sha);
        (info.is_down, info.asked, info.expire) = (false, 0, now.after(KEEP));
        let hold = info.hold.take();
        drop(table);
        if let Some(m) = hold {
            let _ = ac.send(cx, Resolved { m, to: sha, encap: Encap::Type(0x0800) });
        }
    }
}

impl LlInfo {
    fn new(now: Time) -> Self {
        Self {
            station: None,
            expire: Time::ZERO,
            is_down: false,
            asked: 0,
            asked_at: Time::ZERO,
            hold: None,
            used: now,
        }
    }
}

impl Resolve for Arp {
    /// `arpresolve`.
    fn resolve(
        &self,
        cx: &Kernel,
        ac: &Rc<Arpcom>,
        m: Mbuf,
        dst: &Sockaddr,
    ) -> Result<Option<Resolved>> {
        let encap = Encap::Type(0x0800);
        if m.m_flags() & M_BCAST != 0 {
            return Ok(Some(Resolved { m, to: BROADCAST, encap }));
        }
        let host = dst.addr();
        if host.is_multicast() {
            let [_, b, c, d] = host.octets();
            return Ok(Some(Resolved { m, to: [1, 0, 0x5e, b & 0x7f, c, d], encap }));
        }
        let now = cx.now();
        let mine = ac.ac_if.address(AF_INET).ok_or(Errno::EADDRNOTAVAIL)?.addr.addr();
        let mut table = self.table.borrow_mut();
        let key = (ac.ac_if.if_index, host);
        if !table.contains_key(&key) {
            self.make_room(&mut table);
        }
        let info = table.entry(key).or_insert_with(|| LlInfo::new(now));
        info.used = now;
        if let Some(to) = info.station.filter(|_| now < info.expire) {
            return Ok(Some(Resolved { m, to, encap }));
        }
        info.station = None;
        if info.is_down {
            if now < info.expire {
                return Err(Errno::EHOSTDOWN);
            }
            (info.is_down, info.asked) = (false, 0);
        }
        if info.hold.replace(m).is_some() {
            count(&self.replaced);
            self.bsd.count_drop(cx, &ac.ac_if, &reason::QUEUE_FULL);
        }
        if info.asked > 0 && now < info.asked_at.after(APART) {
            return Ok(None);
        }
        if info.asked >= TRIES {
            (info.is_down, info.expire) = (true, now.after(DOWN));
            drop(info.hold.take());
            count(&self.unreachable);
            return Err(Errno::EHOSTDOWN);
        }
        (info.asked, info.asked_at) = (info.asked + 1, now);
        drop(table);
        self.arpwhohas(cx, ac, mine, host);
        Ok(None)
    }
}

impl Netisr for Arp {
    /// `arpintr`.
    fn intr(&self, cx: &Kernel, m: Mbuf) {
        self.in_arpinput(cx, &m);
        m.m_freem();
    }
}
