//! The subsystem of a kernel: its tables, its one lock, its software interrupt, its timeouts.

use crate::errno::{Errno, Result};
use crate::ether::Arpcom;
use crate::ifnet::{Driver, IfQueue, Ifnet, count};
use crate::mbuf::{Mbuf, Mbufs};
use crate::protosw::{PR_FOREIGN, Prc, ProtoFns, Protosw, Sock, Switch};
use crate::sockaddr::Sockaddr;
use crate::sockbuf::Channel;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::object::{OpenError, ProtocolId, ProtocolRef};
use xk_core::{Kernel, Reason, Time, reason};

/// Lines, and so entries of the protocol switch, of a kernel at most.
pub const PROTOSW_MAX: usize = 256;
/// Interfaces of a kernel at most.
pub const IFNET_MAX: usize = 64;
/// Pending calls of [`Bsd::timeout`] at most.
pub const CALLOUTS_MAX: usize = 4096;
/// Ticks of [`Bsd::timeout`] in a second.
pub const HZ: u32 = 100;

/// Interval of fast timeouts: hz / 5.
pub const FAST: Duration = Duration::from_millis(200);
/// Interval of slow timeouts: hz / 2.
pub const SLOW: Duration = Duration::from_millis(500);
/// Interval at which interfaces are looked at: hz.
pub const IFSLOW: Duration = Duration::from_secs(1);

/// Longest time that a sender waits for mbufs.
pub const MBWAIT: Duration = Duration::from_secs(5);
/// Interval at which a sender that waits for mbufs looks, besides when a caller leaves the
/// subsystem.
const MBTICK: Duration = Duration::from_millis(10);

/// Bit of the software interrupt for raw sockets.
pub const NETISR_RAW: u32 = 0;
/// Bit of IP's.
pub const NETISR_IP: u32 = 2;
/// Bit of AppleTalk's (unused by 4.4BSD).
pub const NETISR_AT: u32 = 16;
/// Bit of AARP's (unused by 4.4BSD).
pub const NETISR_AARP: u32 = 17;
/// Bit of ARP's.
pub const NETISR_ARP: u32 = 18;

/// Handler that a bit of the software interrupt calls for each packet of its queue: `ipintr`.
pub trait Netisr {
    /// Takes one packet from the queue, and consumes it.
    fn intr(&self, cx: &Kernel, m: Mbuf);
}

/// Function that [`Bsd::timeout`] calls.
pub trait Callout {
    /// The time is over.
    fn expire(&self, cx: &Kernel, arg: u64);
}

/// A pending call of [`Bsd::timeout`], for [`Bsd::untimeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalloutId(u64);

struct Pending {
    id: u64,
    timer: Timer,
    callee: Rc<dyn Callout>,
    arg: u64,
}

struct Isr {
    queue: Rc<IfQueue>,
    handler: Rc<dyn Netisr>,
}

/// The BSD network subsystem of one kernel. [`Bsd::of`] finds it.
pub struct Bsd {
    mbufs: Mbufs,
    protosw: RefCell<Vec<Rc<Protosw>>>,
    /// Lower and upper of lines that are put on one another when it starts.
    stacking: RefCell<Vec<(Rc<Protosw>, Rc<Protosw>)>>,
    ifnet: RefCell<Vec<Rc<Ifnet>>>,
    /// Nodes of the graph that are interfaces.
    lines: RefCell<Vec<(ProtocolId, Rc<Ifnet>)>>,
    arpcoms: RefCell<Vec<Rc<Arpcom>>>,
    isrs: RefCell<[Option<Isr>; 32]>,
    /// Bits of the software interrupt that wait.
    netisr: Cell<u32>,
    /// Number of callers in the subsystem: above 0 at splnet.
    ipl: Cell<u32>,
    in_softint: Cell<bool>,
    softints: Cell<u64>,
    /// The node of the block, from its start on: its timers are the subsystem's.
    node: RefCell<Option<ProtocolRef>>,
    next: [Cell<Time>; 3],
    callouts: RefCell<Vec<Pending>>,
    callout_last: Cell<u64>,
    /// Channel on which senders wait for mbufs.
    mbwait: Channel,
    pub(crate) sockets: Cell<u32>,
    pub(crate) sockets_max: u32,
    pub(crate) sb_max: usize,
}

/// Tokens of the timers of the block's node; those of callouts are above.
const PERIODS: [Duration; 3] = [FAST, SLOW, IFSLOW];

impl Bsd {
    /// A subsystem with this pool; `sockets_max` sockets at most, none with more than `sb_max`
    /// octets each way.
    pub fn new(mbufs: Mbufs, sockets_max: u32, sb_max: usize) -> Rc<Self> {
        Rc::new(Self {
            mbufs,
            protosw: RefCell::default(),
            stacking: RefCell::default(),
            ifnet: RefCell::default(),
            lines: RefCell::default(),
            arpcoms: RefCell::default(),
            isrs: RefCell::new([const { None }; 32]),
            netisr: Cell::new(0),
            ipl: Cell::new(0),
            in_softint: Cell::new(false),
            softints: Cell::new(0),
            node: RefCell::default(),
            next: [const { Cell::new(Time::ZERO) }; 3],
            callouts: RefCell::default(),
            callout_last: Cell::new(PERIODS.len() as u64),
            mbwait: Channel::default(),
            sockets: Cell::new(0),
            sockets_max,
            sb_max,
        })
    }

    /// The subsystem of this kernel, if its graph has the block.
    #[inline]
    pub fn of(cx: &Kernel) -> Option<Rc<Self>> {
        cx.surroundings::<Self>()
    }

    /// The pool.
    #[inline]
    pub fn mbufs(&self) -> &Mbufs {
        &self.mbufs
    }

    // ---- the switch and the interfaces ----

    /// Puts a line of the graph into the protocol switch: the node `id` of the kernel. If the
    /// subsystem has started, the entry is initialised at once.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] beyond [`PROTOSW_MAX`]; that of `pr_init`.
    pub fn register(
        &self,
        cx: &Kernel,
        id: ProtocolId,
        sw: Switch,
        functions: Rc<dyn ProtoFns>,
    ) -> Result<Rc<Protosw>> {
        let pr = Protosw::new(id, sw, functions);
        let mut all = self.protosw.borrow_mut();
        if all.len() >= PROTOSW_MAX {
            return Err(Errno::ENOBUFS);
        }
        all.push(Rc::clone(&pr));
        drop(all);
        if self.node.borrow().is_some() {
            self.init(cx, &pr)?;
        }
        Ok(pr)
    }

    fn init(&self, cx: &Kernel, pr: &Rc<Protosw>) -> Result {
        if !pr.begin_init() {
            return Ok(());
        }
        pr.set_node(cx.protocol(pr.id()));
        pr.pr_init(cx)
    }

    /// The entry of the line that is the node `id`: the native neighbour of one that stands on it.
    /// Of an adapter for programs that is the one for sockets, once the graph has started.
    pub fn protocol(&self, id: ProtocolId) -> Option<Rc<Protosw>> {
        self.protosw.borrow().iter().rev().find(|pr| pr.id() == id).map(Rc::clone)
    }

    /// Puts `upper` on `lower` under the number that the graph's tables have for the node
    /// `selector`, which is `upper`'s own but for an adapter: that has the number of what stands
    /// on it. On what has no numbers ([`PR_FOREIGN`]) it is that of the protocol's entry.
    ///
    /// # Errors
    /// [`Errno::EPROTONOSUPPORT`] if there is no number, or none of eight bits.
    pub fn stack(
        &self,
        cx: &Kernel,
        lower: &Rc<Protosw>,
        upper: &Rc<Protosw>,
        selector: ProtocolId,
    ) -> Result<u8> {
        // A layer that chooses among several has no numbers; the protocol's own tells as much.
        let is_foreign = lower.sw.pr_flags & PR_FOREIGN != 0;
        let own = Some(upper.sw.pr_protocol.into()).filter(|own| is_foreign && *own != 0);
        let number = cx.type_number(selector, lower.id()).or(own);
        let number = number.and_then(|n| u8::try_from(n).ok()).ok_or(Errno::EPROTONOSUPPORT)?;
        let is_noted = lower.add_upper(number, Rc::clone(upper));
        if is_noted { Ok(number) } else { Err(Errno::ENOBUFS) }
    }

    /// Puts `upper` on `lower` under its own number, now if the subsystem has started, or else at
    /// its start: a graph has its numbers only when it is built.
    ///
    /// # Errors
    /// As of [`stack`](Self::stack).
    pub(crate) fn stack_at_start(
        &self,
        cx: &Kernel,
        lower: Rc<Protosw>,
        upper: &Rc<Protosw>,
    ) -> Result {
        if self.node.borrow().is_some() {
            return self.stack(cx, &lower, upper, upper.id()).map(|_| ());
        }
        self.stacking.borrow_mut().push((lower, Rc::clone(upper)));
        Ok(())
    }

    /// All entries of the protocol switch, in the order of the graph.
    pub fn protosw(&self) -> Vec<Rc<Protosw>> {
        self.protosw.borrow().clone()
    }

    /// The first entry of the family for sockets of this type: `pffindtype`.
    pub fn pffindtype(&self, family: u8, kind: Sock) -> Option<Rc<Protosw>> {
        let all = self.protosw.borrow();
        let is_it = |pr: &&Rc<Protosw>| {
            pr.sw.pr_domain == family && pr.sw.pr_type == kind && kind != Sock::None
        };
        all.iter().find(is_it).cloned()
    }

    /// The entry of the family with this number and type, or else the raw one of number 0 for raw
    /// sockets: `pffindproto`.
    pub fn pffindproto(&self, family: u8, protocol: u8, kind: Sock) -> Option<Rc<Protosw>> {
        if family == 0 {
            return None;
        }
        let all = self.protosw.borrow();
        let ours = || all.iter().filter(|pr| pr.sw.pr_domain == family);
        let exact = |pr: &&Rc<Protosw>| pr.sw.pr_protocol == protocol && pr.sw.pr_type == kind;
        let wild = |pr: &&Rc<Protosw>| {
            kind == Sock::Raw && pr.sw.pr_type == Sock::Raw && pr.sw.pr_protocol == 0
        };
        ours().find(exact).or_else(|| ours().find(wild)).cloned()
    }

    /// Tells every protocol: `pfctlinput`.
    pub fn pfctlinput(&self, cx: &Kernel, cmd: Prc, sa: &Sockaddr) {
        for pr in self.protosw() {
            pr.pr_ctlinput(cx, cmd, sa, None);
        }
    }

    /// Asks every protocol for memory: `m_reclaim`.
    pub fn m_reclaim(&self, cx: &Kernel) {
        for pr in self.protosw() {
            pr.pr_drain(cx);
        }
    }

    /// Adds an interface: `if_attach`. Its unit is the next one of this name.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] beyond [`IFNET_MAX`].
    pub fn if_attach(&self, name: &'static str, driver: Rc<dyn Driver>) -> Result<Rc<Ifnet>> {
        let mut all = self.ifnet.borrow_mut();
        let index = all.len() + 1;
        let index = u16::try_from(index).ok().filter(|_| index <= IFNET_MAX);
        let unit = all.iter().filter(|ifp| ifp.if_name == name).count() as u16;
        let ifp = Rc::new(Ifnet::new(name, unit, index.ok_or(Errno::ENOBUFS)?, driver));
        all.push(Rc::clone(&ifp));
        Ok(ifp)
    }

    /// All interfaces.
    pub fn interfaces(&self) -> Vec<Rc<Ifnet>> {
        self.ifnet.borrow().clone()
    }

    /// The interface of this number, `m_pkthdr.rcvif`.
    pub fn ifnet(&self, index: u16) -> Option<Rc<Ifnet>> {
        let at = usize::from(index).checked_sub(1)?;
        self.ifnet.borrow().get(at).cloned()
    }

    /// Notes that the node `id` of the kernel is this interface, for the lines that stand on it.
    pub fn set_interface(&self, id: ProtocolId, ifp: Rc<Ifnet>) {
        self.lines.borrow_mut().push((id, ifp));
    }

    /// The interface that is the node `id`: a driver's line, or an adapter's.
    pub fn interface(&self, id: ProtocolId) -> Option<Rc<Ifnet>> {
        self.lines.borrow().iter().find(|(of, _)| *of == id).map(|(_, ifp)| Rc::clone(ifp))
    }

    /// Counts a packet that an interface has dropped under a reason: at its line's node, or at the
    /// block's if it has none.
    #[cold]
    pub fn count_drop(&self, cx: &Kernel, ifp: &Ifnet, why: &'static Reason) {
        let lines = self.lines.borrow();
        let line = lines.iter().find(|(_, of)| of.if_index == ifp.if_index).map(|(id, _)| *id);
        drop(lines);
        let node = line.and_then(|line| cx.protocol(line)).or_else(|| self.node.borrow().clone());
        if let Some(node) = node {
            node.head().drops().count(why);
        }
    }

    pub(crate) fn add_arpcom(&self, ac: Rc<Arpcom>) {
        self.arpcoms.borrow_mut().push(ac);
    }

    /// The Ethernet part of an interface; none if it is of another link.
    pub fn arpcom(&self, ifp: &Ifnet) -> Option<Rc<Arpcom>> {
        let all = self.arpcoms.borrow();
        all.iter().find(|ac| ac.ac_if.if_index == ifp.if_index).map(Rc::clone)
    }

    // ---- splnet and the software interrupt ----

    /// Does `what` at splnet. When the last caller has left the subsystem, the software interrupts
    /// that were scheduled meanwhile are served: never within each other.
    ///
    /// Everything that enters the subsystem comes this way: drivers with packets, the socket layer,
    /// timeouts, adapters. None of it waits; what must wait leaves by [`spl0`](Self::spl0).
    #[inline]
    pub fn splnet<T>(&self, cx: &Kernel, what: impl FnOnce() -> T) -> T {
        self.ipl.set(self.ipl.get() + 1);
        let done = what();
        self.ipl.set(self.ipl.get().saturating_sub(1));
        if self.ipl.get() == 0 {
            if self.netisr.get() != 0 {
                self.softint(cx);
            }
            if self.mbwait.is_awaited() {
                // Something may have been freed.
                self.mbwait.wakeup(cx);
            }
        }
        done
    }

    /// Allocates as `get` does, and where that finds the pool exhausted waits for what others free,
    /// for [`MBWAIT`] at most (`M_WAIT`): the protocols are drained first. At splnet, which is left
    /// meanwhile.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] after that time, or at once where the caller cannot wait.
    pub fn m_wait<T>(&self, cx: &Kernel, mut get: impl FnMut() -> Result<T>) -> Result<T> {
        let waits_until = cx.now().after(MBWAIT);
        let mut is_drained = false;
        loop {
            match get() {
                Err(Errno::ENOBUFS) => {}
                got => return got,
            }
            if !is_drained {
                is_drained = true;
                self.m_reclaim(cx);
                continue;
            }
            let shepherds = cx.shepherds();
            let can_wait = shepherds.may_suspend() && shepherds.current().is_some();
            if !can_wait || cx.now() >= waits_until {
                return Err(Errno::ENOBUFS);
            }
            match self.mbwait.sleep(cx, self, Some(MBTICK)) {
                Ok(()) | Err(Errno::EWOULDBLOCK) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Leaves the subsystem for `what`, which may wait, as `tsleep` does: the software interrupts
    /// are served meanwhile.
    pub fn spl0<T>(&self, cx: &Kernel, what: impl FnOnce() -> T) -> T {
        let (ipl, in_softint) = (self.ipl.replace(0), self.in_softint.replace(false));
        if self.netisr.get() != 0 {
            self.softint(cx);
        }
        let done = what();
        // Others may have come in meanwhile, and wait in turn.
        self.ipl.set(self.ipl.get() + ipl);
        self.in_softint.set(in_softint | self.in_softint.get());
        done
    }

    /// Whether the caller is at splnet.
    pub fn is_splnet(&self) -> bool {
        self.ipl.get() > 0
    }

    /// Has the queue of this bit served when the processor is free for it: `schednetisr`. At splnet
    /// that is later, else at once.
    pub fn schednetisr(&self, cx: &Kernel, bit: u32) {
        self.netisr.set(self.netisr.get() | 1_u32.checked_shl(bit).unwrap_or(0));
        if self.ipl.get() == 0 {
            self.softint(cx);
        }
    }

    /// Sets what serves the packets of this bit, and how many wait at most. What is there is
    /// replaced.
    pub fn set_netisr(&self, bit: u32, maxlen: usize, handler: Rc<dyn Netisr>) {
        let isr = Isr { queue: Rc::new(IfQueue::new(maxlen)), handler };
        if let Some(place) = self.isrs.borrow_mut().get_mut(bit as usize) {
            *place = Some(isr);
        }
    }

    /// Puts a packet into the queue of a bit, and schedules that: `IF_ENQUEUE(&ipintrq)` and
    /// `schednetisr`. If the queue is full, or there is none, it is freed, and counted at the
    /// interface that received it.
    pub fn netisr_input(&self, cx: &Kernel, bit: u32, ifp: &Ifnet, m: Mbuf) {
        let queue = {
            let isrs = self.isrs.borrow();
            isrs.get(bit as usize).and_then(Option::as_ref).map(|isr| Rc::clone(&isr.queue))
        };
        let Some(queue) = queue else {
            count(&ifp.if_data.noproto);
            self.count_drop(cx, ifp, &reason::NO_PROTOCOL);
            return m.m_freem();
        };
        match queue.enqueue(m) {
            Ok(()) => self.schednetisr(cx, bit),
            Err(_) => {
                count(&ifp.if_data.iqdrops);
                self.count_drop(cx, ifp, &reason::QUEUE_FULL);
            }
        }
    }

    /// Whether packets of this bit are served.
    pub fn has_netisr(&self, bit: u32) -> bool {
        self.isrs.borrow().get(bit as usize).is_some_and(Option::is_some)
    }

    /// The queues of the software interrupt: bit, packets that wait, packets dropped.
    pub fn netisrs(&self) -> Vec<(u32, usize, u64)> {
        let isrs = self.isrs.borrow();
        let each = isrs.iter().enumerate();
        each.filter_map(|(bit, isr)| {
            let queue = &isr.as_ref()?.queue;
            Some((bit as u32, queue.len(), queue.drops()))
        })
        .collect()
    }

    /// Number of software interrupts.
    pub fn softints(&self) -> u64 {
        self.softints.get()
    }

    /// The software interrupt (`dosoftint`): serves the bits that wait, lowest first, until none
    /// does. What a packet schedules is served after it.
    fn softint(&self, cx: &Kernel) {
        if self.in_softint.replace(true) {
            return;
        }
        self.softints.set(self.softints.get() + 1);
        self.ipl.set(self.ipl.get() + 1);
        loop {
            let bits = self.netisr.replace(0);
            if bits == 0 {
                break;
            }
            for bit in (0..32_usize).filter(|bit| bits & 1 << bit != 0) {
                let isr = {
                    let isrs = self.isrs.borrow();
                    isrs[bit].as_ref().map(|isr| (Rc::clone(&isr.queue), Rc::clone(&isr.handler)))
                };
                let Some((queue, handler)) = isr else { continue };
                // What comes in meanwhile has its own turn.
                let waiting = queue.len();
                for m in core::iter::from_fn(|| queue.dequeue()).take(waiting) {
                    handler.intr(cx, m);
                }
                if !queue.is_empty() {
                    self.netisr.set(self.netisr.get() | 1 << bit);
                }
            }
        }
        self.ipl.set(self.ipl.get().saturating_sub(1));
        self.in_softint.set(false);
        if self.mbufs.take_wants_drain() {
            self.m_reclaim(cx);
        }
    }

    // ---- timeouts ----

    /// Starts the subsystem (`domaininit`, `ifinit`): initialises every protocol in the graph's
    /// order, and sets the timers going, on the node `this`.
    ///
    /// # Errors
    /// [`OpenError`] if a protocol does not start.
    pub fn start(&self, cx: &Kernel, this: &ProtocolRef) -> core::result::Result<(), OpenError> {
        *self.node.borrow_mut() = Some(this.clone());
        let stacking = self.stacking.take();
        for (lower, upper) in stacking {
            let stacked = self.stack(cx, &lower, &upper, upper.id());
            stacked.map_err(|_| OpenError::NoTypeNumber)?;
        }
        for pr in self.protosw() {
            self.splnet(cx, || self.init(cx, &pr)).map_err(|_| OpenError::NotSupported)?;
        }
        for (token, period) in PERIODS.into_iter().enumerate() {
            self.next[token].set(cx.now().after(period));
            cx.schedule_protocol(this, period, token as u64)?;
        }
        Ok(())
    }

    /// A timer of the block's node went off.
    pub(crate) fn expire(&self, cx: &Kernel, this: &ProtocolRef, token: u64) {
        if let Some(period) = PERIODS.get(token as usize) {
            let next = &self.next[token as usize];
            // As a clock ticks: what comes late does not make the next late.
            next.set(next.get().after(*period).max(cx.now()));
            let delay = next.get().since(cx.now());
            if cx.schedule_protocol(this, delay, token).is_err() {
                this.head().drops().count(&xk_core::reason::TABLE_FULL);
            }
        }
        self.splnet(cx, || match token {
            0 => self.each(|pr| pr.functions().has_fasttimo(), |pr| pr.pr_fasttimo(cx)),
            1 => self.each(|pr| pr.functions().has_slowtimo(), |pr| pr.pr_slowtimo(cx)),
            2 => self.if_slowtimo(cx),
            _ => self.expire_callout(cx, token),
        });
        if self.mbufs.take_wants_drain() {
            self.splnet(cx, || self.m_reclaim(cx));
        }
    }

    fn each(&self, which: impl Fn(&Protosw) -> bool, what: impl Fn(&Rc<Protosw>)) {
        for at in 0.. {
            let pr = self.protosw.borrow().get(at).cloned();
            let Some(pr) = pr else { break };
            if which(&pr) {
                what(&pr);
            }
        }
    }

    /// Counts the interfaces' timers down: `if_slowtimo`.
    fn if_slowtimo(&self, cx: &Kernel) {
        for ifp in self.interfaces() {
            let left = ifp.if_timer.get();
            ifp.if_timer.set(left.saturating_sub(1));
            if left == 1 {
                ifp.if_watchdog(cx);
            }
        }
    }

    /// Calls `callee` at splnet in so many ticks of 10 ms: `timeout`.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] beyond [`CALLOUTS_MAX`], or before the subsystem is started.
    pub fn timeout(
        &self,
        cx: &Kernel,
        callee: Rc<dyn Callout>,
        arg: u64,
        ticks: u32,
    ) -> Result<CalloutId> {
        let node = self.node.borrow().clone().ok_or(Errno::ENOBUFS)?;
        if self.callouts.borrow().len() >= CALLOUTS_MAX {
            return Err(Errno::ENOBUFS);
        }
        let id = self.callout_last.get() + 1;
        let delay = Duration::from_millis(u64::from(ticks) * 1000 / u64::from(HZ));
        let timer = cx.schedule_protocol(&node, delay, id).map_err(|_| Errno::ENOBUFS)?;
        self.callout_last.set(id);
        self.callouts.borrow_mut().push(Pending { id, timer, callee, arg });
        Ok(CalloutId(id))
    }

    /// Takes a call back: `untimeout`. Does nothing if it was made.
    pub fn untimeout(&self, cx: &Kernel, id: CalloutId) {
        let found = self.take_callout(id.0);
        if let Some(pending) = found {
            cx.cancel(pending.timer);
        }
    }

    fn take_callout(&self, id: u64) -> Option<Pending> {
        let mut all = self.callouts.borrow_mut();
        let at = all.iter().position(|pending| pending.id == id)?;
        Some(all.swap_remove(at))
    }

    fn expire_callout(&self, cx: &Kernel, id: u64) {
        let found = self.take_callout(id);
        if let Some(pending) = found {
            pending.callee.expire(cx, pending.arg);
        }
    }

    /// The graph is taken down: releases everything.
    pub(crate) fn stop(&self) {
        let protosw = self.protosw.take();
        drop(self.stacking.take());
        for pr in &protosw {
            pr.set_node(None);
            pr.forget_uppers();
        }
        let ifnet = self.ifnet.take();
        for ifp in &ifnet {
            ifp.if_snd.flush();
        }
        let (lines, arpcoms) = (self.lines.take(), self.arpcoms.take());
        arpcoms.iter().for_each(|ac| ac.stop());
        let isrs = self.isrs.replace([const { None }; 32]);
        let (node, callouts) = (self.node.take(), self.callouts.take());
        drop((protosw, ifnet, lines, arpcoms, isrs, node, callouts));
    }
}
