//! Interfaces: what packets are sent by and come from.

use crate::errno::{Errno, Result};
use crate::mbuf::Mbuf;
use crate::sockaddr::Sockaddr;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::Kernel;

/// Packets that a queue holds at most.
pub const IFQ_MAXLEN: usize = 50;
/// Addresses that an interface has at most.
pub const IFADDRS_MAX: usize = 16;

/// The interface is up.
pub const IFF_UP: u16 = 0x1;
/// The link has a broadcast address.
pub const IFF_BROADCAST: u16 = 0x2;
/// The interface is a loopback.
pub const IFF_LOOPBACK: u16 = 0x8;
/// The link has two ends.
pub const IFF_POINTOPOINT: u16 = 0x10;
/// The interface's resources are allocated.
pub const IFF_RUNNING: u16 = 0x40;
/// The interface takes all frames.
pub const IFF_PROMISC: u16 = 0x100;
/// The interface takes frames to all groups.
pub const IFF_ALLMULTI: u16 = 0x200;
/// The interface does not hear its own frames.
pub const IFF_SIMPLEX: u16 = 0x800;

/// An ioctl: takes frames to a group of stations, six octets, from now on.
pub const SIOCADDMULTI: u32 = 0x8020_6931;

/// A bounded queue of packets (`struct ifqueue`).
pub struct IfQueue {
    packets: RefCell<VecDeque<Mbuf>>,
    /// Packets that it holds at most (`ifq_maxlen`).
    maxlen: usize,
    drops: Cell<u64>,
}

impl Default for IfQueue {
    fn default() -> Self {
        Self::new(IFQ_MAXLEN)
    }
}

impl IfQueue {
    /// A queue of at most so many packets.
    pub fn new(maxlen: usize) -> Self {
        Self { packets: RefCell::default(), maxlen, drops: Cell::new(0) }
    }

    /// Packets in it (`ifq_len`).
    pub fn len(&self) -> usize {
        self.packets.borrow().len()
    }

    /// Whether there is none in it.
    pub fn is_empty(&self) -> bool {
        self.packets.borrow().is_empty()
    }

    /// Whether it is full: `IF_QFULL`.
    pub fn is_full(&self) -> bool {
        self.len() >= self.maxlen
    }

    /// Packets that found it full (`ifq_drops`).
    pub fn drops(&self) -> u64 {
        self.drops.get()
    }

    /// Puts a packet behind the others: `IF_QFULL`, `IF_DROP`, `IF_ENQUEUE`.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] if it is full: the new packet is freed and counted.
    pub fn enqueue(&self, m: Mbuf) -> Result {
        if self.is_full() {
            self.drops.set(self.drops.get() + 1);
            m.m_freem();
            return Err(Errno::ENOBUFS);
        }
        self.packets.borrow_mut().push_back(m);
        Ok(())
    }

    /// Puts a packet in front of the others, be it full: `IF_PREPEND`.
    pub fn prepend(&self, m: Mbuf) {
        self.packets.borrow_mut().push_front(m);
    }

    /// Takes the first packet: `IF_DEQUEUE`.
    #[inline]
    pub fn dequeue(&self) -> Option<Mbuf> {
        self.packets.borrow_mut().pop_front()
    }

    /// Frees all packets: `if_qflush`.
    pub fn flush(&self) {
        let all = self.packets.take();
        all.into_iter().for_each(Mbuf::m_freem);
    }
}

/// The functions of an interface. All run at splnet (splimp); none may wait.
pub trait Driver {
    /// Sends a packet of the family of `dst` (`if_output`): puts the link's header in front and
    /// queues the frame. It is consumed.
    ///
    /// # Errors
    /// [`Errno`].
    fn if_output(&self, cx: &Kernel, ifp: &Rc<Ifnet>, m: Mbuf, dst: &Sockaddr) -> Result;

    /// Sends what is in `if_snd` (`if_start`).
    fn if_start(&self, cx: &Kernel, ifp: &Rc<Ifnet>) {
        let _ = (cx, ifp);
    }

    /// Does what [`ProtoFns::pr_usrreq`](crate::ProtoFns::pr_usrreq) is asked of an interface
    /// (`if_ioctl`).
    ///
    /// # Errors
    /// [`Errno`].
    fn if_ioctl(&self, cx: &Kernel, ifp: &Rc<Ifnet>, cmd: u32, data: &mut [u8]) -> Result {
        let _ = (cx, ifp, cmd, data);
        Err(Errno::EINVAL)
    }

    /// `if_timer` has run down (`if_watchdog`).
    fn if_watchdog(&self, cx: &Kernel, ifp: &Rc<Ifnet>) {
        let _ = (cx, ifp);
    }
}

/// An address of an interface (`struct ifaddr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfAddr {
    /// The address.
    pub addr: Sockaddr,
    /// Mask of the network's bits; for AppleTalk the last network of the range.
    pub netmask: Sockaddr,
    /// All hosts of the network, or the other end of a link with two.
    pub broadaddr: Sockaddr,
}

/// Counters of an interface, as netstat -i shows them.
#[derive(Default)]
pub struct IfCounters {
    /// Packets received.
    pub ipackets: Cell<u64>,
    /// Packets received with an error.
    pub ierrors: Cell<u64>,
    /// Packets sent.
    pub opackets: Cell<u64>,
    /// Packets that could not be sent.
    pub oerrors: Cell<u64>,
    /// Octets received.
    pub ibytes: Cell<u64>,
    /// Octets sent.
    pub obytes: Cell<u64>,
    /// Packets received that were sent to groups.
    pub imcasts: Cell<u64>,
    /// Packets sent to groups.
    pub omcasts: Cell<u64>,
    /// Packets received for no protocol.
    pub noproto: Cell<u64>,
    /// Packets received that found their queue full.
    pub iqdrops: Cell<u64>,
}

/// Counts one more.
pub fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// An interface (`struct ifnet`).
pub struct Ifnet {
    /// Name without its number, such as `en`.
    pub if_name: &'static str,
    /// Number among interfaces of this name.
    pub if_unit: u16,
    /// Number among all interfaces, from 1 on.
    pub if_index: u16,
    /// The largest packet, without the link's header.
    pub if_mtu: Cell<usize>,
    /// [`IFF_UP`] and the others.
    pub if_flags: Cell<u16>,
    /// Seconds until `if_watchdog`; 0 for never.
    pub if_timer: Cell<u16>,
    /// Cost of a route through it.
    pub if_metric: Cell<u16>,
    /// Octets of the link's header.
    pub if_hdrlen: Cell<usize>,
    /// Frames that wait to be sent.
    pub if_snd: IfQueue,
    /// Counters.
    pub if_data: IfCounters,
    addresses: RefCell<Vec<IfAddr>>,
    driver: Rc<dyn Driver>,
}

impl Ifnet {
    pub(crate) fn new(name: &'static str, unit: u16, index: u16, driver: Rc<dyn Driver>) -> Self {
        Self {
            if_name: name,
            if_unit: unit,
            if_index: index,
            if_mtu: Cell::new(0),
            if_flags: Cell::new(0),
            if_timer: Cell::new(0),
            if_metric: Cell::new(0),
            if_hdrlen: Cell::new(0),
            if_snd: IfQueue::default(),
            if_data: IfCounters::default(),
            addresses: RefCell::default(),
            driver,
        }
    }

    /// Addresses (`if_addrlist`).
    pub fn addresses(&self) -> Vec<IfAddr> {
        self.addresses.borrow().clone()
    }

    /// First address of this family.
    pub fn address(&self, family: u8) -> Option<IfAddr> {
        self.addresses.borrow().iter().find(|a| a.addr.family() == family).copied()
    }

    /// Gives it an address (`SIOCSIFADDR`), in place of one that is the same.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] beyond [`IFADDRS_MAX`].
    pub fn add_address(&self, address: IfAddr) -> Result {
        let mut all = self.addresses.borrow_mut();
        all.retain(|kept| kept.addr != address.addr);
        if all.len() >= IFADDRS_MAX {
            return Err(Errno::ENOBUFS);
        }
        all.push(address);
        Ok(())
    }

    /// Whether it has all of these flags.
    pub fn is(&self, flags: u16) -> bool {
        self.if_flags.get() & flags == flags
    }

    /// Sets and clears flags.
    pub fn set_flags(&self, set: u16, clear: u16) {
        self.if_flags.set(self.if_flags.get() & !clear | set);
    }

    /// See [`Driver::if_output`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn if_output(self: &Rc<Self>, cx: &Kernel, m: Mbuf, dst: &Sockaddr) -> Result {
        self.driver.if_output(cx, self, m, dst)
    }

    /// See [`Driver::if_start`].
    pub fn if_start(self: &Rc<Self>, cx: &Kernel) {
        self.driver.if_start(cx, self);
    }

    /// See [`Driver::if_ioctl`].
    ///
    /// # Errors
    /// As there.
    pub fn if_ioctl(self: &Rc<Self>, cx: &Kernel, cmd: u32, data: &mut [u8]) -> Result {
        self.driver.if_ioctl(cx, self, cmd, data)
    }

    /// See [`Driver::if_watchdog`].
    pub fn if_watchdog(self: &Rc<Self>, cx: &Kernel) {
        self.driver.if_watchdog(cx, self);
    }
}

impl core::fmt::Debug for Ifnet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}{}", self.if_name, self.if_unit)
    }
}
