//! Shared state of the protocol and its sessions.

use crate::config::Config;
use crate::control::IpFigures;
use crate::forward::Hops;
use crate::identification::Identifications;
use crate::interface::Interfaces;
use crate::path::PathMtus;
use crate::reassembly::Reassembly;
use crate::route::Routes;
use crate::wire::Plain;
use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::map::Map;
use xk_core::object::{Payer, SessionTable, USER_SHARE};
use xk_core::{Kernel, Message, ProtocolRef, Reason, reason};
use xk_kit::net::addr::Ipv4;
use xk_kit::net::attribute::LinkCast;
use xk_kit::net::drop_sources::{DropSources, Source};

/// Why it drops packets, besides the reasons that all protocols share.
pub mod reasons {
    use xk_core::reason::{Class, Reason};

    /// A source or destination that no wire may bring (RFC 1812, section 5.3.7).
    pub static MARTIAN: Reason = Reason::new("martian", Class::Bad);
    /// A packet to one host came in a link-layer broadcast (RFC 1122, section 3.3.6).
    pub static LINK_BROADCAST: Reason = Reason::new("unicast in a link broadcast", Class::NotMine);
    /// An option is malformed.
    pub static BAD_OPTION: Reason = Reason::new("bad option", Class::Bad);
    /// Source routes are not followed.
    pub static SOURCE_ROUTE: Reason = Reason::new("source route", Class::Prohibited);
    /// Time to live exceeded while forwarding.
    pub static TTL_EXCEEDED: Reason = Reason::new("time to live exceeded", Class::Bad);
    /// No route to forward by.
    pub static NO_ROUTE: Reason = Reason::new("no route", Class::Bad);
    /// The layer below did not take a forwarded packet.
    pub static NOT_SENT: Reason = Reason::new("not sent", Class::Exhausted);
    /// A fragment overlaps another (RFC 5722), or belongs to a datagram where that happened.
    pub static OVERLAP: Reason = Reason::new("overlapping fragments", Class::Bad);
    /// A fragment that was there already.
    pub static DUPLICATE: Reason = Reason::new("duplicate fragment", Class::NotMine);
    /// Fragments that together are longer than a datagram can be.
    pub static TOO_LONG: Reason = Reason::new("datagram too long", Class::Bad);
    /// More fragments than one datagram may have.
    pub static TOO_MANY_FRAGMENTS: Reason = Reason::new("too many fragments", Class::Exhausted);
    /// Given up for a newer datagram.
    pub static EVICTED: Reason = Reason::new("incomplete, evicted", Class::Exhausted);
    /// Given up when the reassembly timer went off.
    pub static TIMED_OUT: Reason = Reason::new("incomplete, timed out", Class::Bad);
    /// An error about a packet that no session has sent.
    pub static UNMATCHED_ERROR: Reason = Reason::new("unmatched error", Class::NotMine);
}

/// The key that a packet is demultiplexed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The peer (the upper half) and the local host, as they lie in an arriving header.
    hosts: u64,
    /// The protocol number with [`FLAG_LOOP`], [`FLAG_CAST`] or [`FLAG_GROUP`].
    kind: u16,
}

impl Key {
    /// The key of what comes from `peer` to `local`.
    pub(crate) fn new(local: Ipv4, peer: Ipv4, kind: u16) -> Self {
        let (local, peer) = (u64::from(local.to_bits()), u64::from(peer.to_bits()));
        let hosts = peer << 32 | local;
        Self { hosts, kind }
    }

    /// The key of an arrival that is not ours.
    #[inline]
    pub(crate) fn of_plain(header: Plain) -> Self {
        Self { hosts: header.hosts(), kind: u16::from(header.protocol()) }
    }

    pub(crate) fn local(self) -> Ipv4 {
        Ipv4::from_bits(self.hosts as u32)
    }

    pub(crate) fn peer(self) -> Ipv4 {
        Ipv4::from_bits((self.hosts >> 32) as u32)
    }

    pub(crate) fn protocol(self) -> u8 {
        self.kind as u8
    }

    pub(crate) fn is_looped(self) -> bool {
        self.kind & FLAG_LOOP != 0
    }
}

impl xk_core::map::Key for Key {
    #[inline]
    fn put(&self, octets: &mut impl core::hash::Hasher) {
        (self.hosts, self.kind).put(octets);
    }
}

/// In a key: of packets that never left us. So no wire can bring what looks like them.
pub(crate) const FLAG_LOOP: u16 = 0x100;
/// In a key: the peer is a broadcast or group, from which nothing ever comes.
pub(crate) const FLAG_CAST: u16 = 0x200;
/// In a key: of packets to a group. Each is looked at, for the group may have been left.
pub(crate) const FLAG_GROUP: u16 = 0x400;

/// Largest number of enabled protocols and local hosts.
const ENABLES_MAX: usize = 1024;

/// Timer: packets to ourselves wait.
pub(crate) const TOKEN_LOOP: u64 = 1;
/// Timer: a datagram has been incomplete for too long.
pub(crate) const TOKEN_REASSEMBLY: u64 = 2;
/// Timer: a path's maximum is to be forgotten.
pub(crate) const TOKEN_PATH_MTU: u64 = 3;

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) interfaces: Interfaces,
    pub(crate) routes: RefCell<Routes>,
    /// Changes whenever routes or path maxima do; a session compares it with its own at each push.
    pub(crate) generation: Cell<u32>,
    pub(crate) sessions: SessionTable<Key>,
    /// The enables by local host (0: any) and protocol number.
    pub(crate) enables: Map<(u32, u8), ProtocolRef>,
    pub(crate) path_mtus: PathMtus,
    pub(crate) reassembly: RefCell<Reassembly>,
    /// Whether a timer for the oldest incomplete datagram is set.
    pub(crate) reassembly_armed: Cell<bool>,
    pub(crate) hops: Hops,
    /// The hosts whose packets were dropped.
    pub(crate) drop_sources: DropSources,
    pub(crate) error_protocol: RefCell<Option<ProtocolRef>>,
    /// The protocol that is told of groups, and its number.
    pub(crate) watcher: RefCell<Option<(ProtocolRef, u8)>>,
    /// Packets to ourselves, with the users that are charged for them.
    looped: RefCell<VecDeque<(Option<Payer>, Message)>>,
    pub(crate) identifications: Identifications,
    figures: Cell<IpFigures>,
    /// The protocols whose arrivals tell what their headers said, a bit each.
    told: [Cell<u64>; 4],
}

impl Shared {
    pub(crate) fn new(cx: &Kernel, config: Config, interfaces: Interfaces, routes: Routes) -> Self {
        let key = cx.secret();
        Self {
            drop_sources: DropSources::new(config.sources_max),
            path_mtus: PathMtus::new(key, config.paths_max),
            hops: Hops::new(key, config.next_hops_max),
            sessions: SessionTable::new(key, config.sessions_max)
                .with_idle_max(config.idle_max)
                .with_passive_max(config.passive_max),
            reassembly: RefCell::new(Reassembly::new(config.limits())),
            config,
            interfaces,
            routes: RefCell::new(routes),
            generation: Cell::new(1),
            enables: Map::new(key, ENABLES_MAX),
            reassembly_armed: Cell::new(false),
            error_protocol: RefCell::default(),
            watcher: RefCell::default(),
            looped: RefCell::default(),
            identifications: Identifications::new(cx),
            figures: Cell::default(),
            told: Default::default(),
        }
    }

    /// Arrivals for the protocol with this number tell what their headers said from now on.
    pub(crate) fn tell_arrivals(&self, number: u32) {
        if let Some(told) = self.told.get(number as usize / 64) {
            told.set(told.get() | 1 << (number % 64));
        }
    }

    /// Whether arrivals for this protocol are to tell what their headers said.
    #[inline(always)]
    pub(crate) fn tells(&self, protocol: u8) -> bool {
        self.told[usize::from(protocol / 64)].get() >> (protocol % 64) & 1 == 1
    }

    /// Makes every session look for its path before it sends again.
    pub(crate) fn outdate(&self) {
        // Zero is for sessions without a path.
        let next = self.generation.get().wrapping_add(1).max(1);
        self.generation.set(next);
    }

    /// As [`outdate`](Self::outdate), and releases the ways of packets for others.
    pub(crate) fn invalidate(&self, cx: &Kernel) {
        self.outdate();
        self.hops.clear(cx);
    }

    pub(crate) fn figure(&self, change: impl FnOnce(&mut IpFigures)) {
        let mut figures = self.figures.get();
        change(&mut figures);
        self.figures.set(figures);
    }

    pub(crate) fn figures(&self) -> IpFigures {
        let mut figures = self.figures.get();
        figures.fragments_held = self.reassembly.borrow().fragments();
        figures
    }

    /// Queues a packet to ourselves; false, and it is dropped and counted, if the queue is full. It
    /// arrives by a timer of its own, so that no protocol is called while it still pushes, and a
    /// receiver that blocks holds up no other packet.
    pub(crate) fn put_looped(&self, cx: &Kernel, this: &ProtocolRef, mut packet: Message) -> bool {
        packet.remove_attribute::<LinkCast>();
        let payer = cx.payer();
        let full = !self.has_room_for(payer);
        let arm = || cx.schedule_protocol(this, Duration::ZERO, TOKEN_LOOP);
        if full || arm().is_err() {
            this.discard(packet, &reason::QUEUE_FULL);
            return false;
        }
        self.looped.borrow_mut().push_back((payer, packet));
        self.figure(|f| f.looped += 1);
        true
    }

    /// True if one more packet to ourselves may wait: a user has an eighth of all places.
    fn has_room_for(&self, payer: Option<Payer>) -> bool {
        let (looped, most) = (self.looped.borrow(), self.config.loop_max);
        let own = || looped.iter().filter(|(of, _)| *of == payer).count();
        looped.len() < most && (payer.is_none() || own() < (most / USER_SHARE).max(1))
    }

    /// The packet to ourselves that waits longest, and the user that is charged for it.
    pub(crate) fn take_looped(&self) -> Option<(Option<Payer>, Message)> {
        self.looped.borrow_mut().pop_front()
    }

    /// Releases everything.
    pub(crate) fn clear(&self, cx: &Kernel) {
        self.sessions.clear();
        self.enables.clear();
        self.hops.clear(cx);
        self.error_protocol.take();
        self.watcher.take();
        self.looped.take();
        self.reassembly.borrow_mut().clear();
        self.drop_sources.clear();
    }

    /// Notes whose packet is being dropped.
    #[cold]
    pub(crate) fn record_drop(&self, source: Ipv4, why: &'static Reason) {
        self.drop_sources.count(Source::Host(source.into()), why);
    }
}
