//! Mbufs: small buffers of 128 octets, chained into packets, with clusters for what is large.
//!
//! A [`Mbuf`] owns the chain that begins with it. `m_free` and `m_freem` give mbufs back to the
//! pool that they came from, as in BSD; one that is dropped without that is not lost: it is
//! counted as free, and its own memory, alone of the chain, goes back to the allocator.
//!
//! The sizes are those of a release: [`Release::Bsd43`] or [`Release::Bsd44`]. What lies beside
//! the data (links, offset, length, type) has Rust's size and is not counted in the 128.
//!
//! Clusters are buffers of the kernel's message pool, counted there. So a packet in a cluster is
//! lent to the x-kernel, and a message of the x-kernel's to BSD, without a copy:
//! [`Mbuf::into_message`], [`Mbufs::m_lend`]. Storage of others is attached by
//! [`Mbufs::m_extattach`]; dropping it is its free function.

mod chain;
mod lend;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

pub use chain::M_COPYALL;

use crate::errno::{Errno, Result};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell as Slot, RefCell};
use xk_core::{Message, Pool};

/// Octets of an mbuf, header and all, as netstat -m counts them.
pub const MSIZE: usize = 128;
/// Room for data of the largest layout, 4.3's.
const MLEN_MAX: usize = 112;
/// Room for the longest link header, which 4.4 leaves in front of a packet.
pub const MAX_LINKHDR: usize = 16;
/// Room for the longest protocol headers, of IP and TCP.
pub const MAX_PROTOHDR: usize = 40;
/// Room that 4.4 leaves in front of a packet in a cluster.
pub const MAX_HDR: usize = MAX_LINKHDR + MAX_PROTOHDR;

/// There is storage outside of the mbuf.
pub const M_EXT: u16 = 0x1;
/// First of a packet: `m_pkthdr` counts.
pub const M_PKTHDR: u16 = 0x2;
/// End of a record.
pub const M_EOR: u16 = 0x4;
/// The packet was sent to all stations of its link.
pub const M_BCAST: u16 = 0x100;
/// The packet was sent to a group of stations.
pub const M_MCAST: u16 = 0x200;
/// Flags that belong to the packet.
const M_COPYFLAGS: u16 = M_PKTHDR | M_EOR | M_BCAST | M_MCAST;

/// Type of an mbuf's contents, for the statistics and for the layout of records in socket buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mt {
    /// Nothing: it is free.
    Free = 0,
    /// Data.
    Data = 1,
    /// A packet's header.
    Header = 2,
    /// A socket.
    Socket = 3,
    /// A protocol control block.
    Pcb = 4,
    /// A routing table entry.
    Rtable = 5,
    /// A socket address.
    Soname = 8,
    /// Socket options.
    Soopts = 10,
    /// Fragments that wait for their packet.
    Ftable = 11,
    /// Access rights.
    Rights = 12,
    /// An interface's address.
    Ifaddr = 13,
    /// Control information beside data.
    Control = 14,
}

/// Number of types that [`Mt`] counts.
pub const MT_TYPES: usize = 16;

/// A release of BSD, by which sizes and rules of mbufs and the form of addresses go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// 4.3BSD (1986): MLEN 112, clusters of 1024, addresses without a length.
    #[default]
    Bsd43,
    /// 4.4BSD-Lite2 (1995): MLEN 108, packet headers, clusters of 2048, addresses with a length.
    Bsd44,
}

impl Release {
    /// Octets of data in one mbuf. (Paper 000 says 118 of 4.3; 128 less the 16 octets beside the
    /// data is 112.)
    pub const fn mlen(self) -> usize {
        match self {
            Self::Bsd43 => 112,
            Self::Bsd44 => 108,
        }
    }

    /// Octets of data in one mbuf with a packet header.
    pub const fn mhlen(self) -> usize {
        match self {
            Self::Bsd43 => 112,
            Self::Bsd44 => 100,
        }
    }

    /// Octets of a cluster.
    pub const fn mclbytes(self) -> usize {
        match self {
            Self::Bsd43 => 1024,
            Self::Bsd44 => 2048,
        }
    }

    /// Number of octets from which on sosend takes a cluster: half of one in 4.3, more than two
    /// mbufs in 4.4 (MINCLSIZE).
    pub const fn minclsize(self) -> usize {
        match self {
            Self::Bsd43 => 512,
            Self::Bsd44 => self.mhlen() + self.mlen(),
        }
    }
}

/// Storage that another subsystem lends. Its `drop` is the free function of `m_ext`.
pub trait ExtBuf {
    /// The octets, the same ones at each call.
    fn octets(&self) -> &[u8];
}

/// Storage of an mbuf's data.
pub(crate) enum Ext {
    /// The mbuf itself.
    None,
    /// A cluster: a whole buffer of the kernel's pool.
    Cluster(Message),
    /// One slice of a message of the x-kernel's.
    Lent(Message),
    /// Storage of another subsystem.
    Foreign(Rc<dyn ExtBuf>),
}

/// `m_pkthdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PktHdr {
    /// Number of the interface that received it; 0 for none (`rcvif`).
    pub rcvif: u16,
    /// Octets of the packet.
    pub len: usize,
}

pub(crate) struct MCell {
    next: Option<Mbuf>,
    /// None in the free list.
    pool: Option<Rc<MbufPool>>,
    off: usize,
    len: usize,
    pkthdr: PktHdr,
    flags: u16,
    kind: Mt,
    /// A copy of its cluster was made, be it gone by now.
    shared: Slot<bool>,
    ext: Ext,
    dat: [u8; MLEN_MAX],
}

impl Drop for MCell {
    /// Counts what goes without `m_freem`, and gives what hangs on it back.
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.count_free(self.kind, !matches!(self.ext, Ext::None));
        }
        if let Some(next) = self.next.take() {
            next.m_freem();
        }
    }
}

/// An mbuf, and the chain behind it (`struct mbuf *`).
pub struct Mbuf(pub(crate) Box<MCell>);

/// The pool of mbufs, as `mbstat` counts it; cheap to clone.
#[derive(Clone)]
pub struct Mbufs(Rc<MbufPool>);

pub(crate) struct MbufPool {
    release: Release,
    /// The pool of clusters.
    clusters: Pool,
    #[expect(clippy::vec_box, reason = "an mbuf keeps its place, and is handed out as a box")]
    free: RefCell<Vec<Box<MCell>>>,
    mbufs_max: u32,
    clusters_max: u32,
    live: Slot<u32>,
    clusters_live: Slot<u32>,
    kinds: [Slot<u32>; MT_TYPES],
    made: Slot<u32>,
    drops: Slot<u64>,
    drains: Slot<u64>,
    wants_drain: Slot<bool>,
}

/// Figures of netstat -m.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MbStat {
    /// Mbufs ever taken from the system, those that are free now included (`m_mbufs`).
    pub mbufs: u32,
    /// Mbufs in use.
    pub in_use: u32,
    /// Mbufs with storage outside of them: clusters, and what others lend. One that is shared
    /// counts once for each mbuf.
    pub clusters_in_use: u32,
    /// Mbufs in use of each [`Mt`].
    pub kinds: [u32; MT_TYPES],
    /// Requests that were denied (`m_drops`).
    pub drops: u64,
    /// Times that the protocols were asked for memory (`m_drain`).
    pub drains: u64,
}

impl MbufPool {
    fn count_free(&self, kind: Mt, has_ext: bool) {
        let slot = &self.kinds[kind as usize];
        slot.set(slot.get().saturating_sub(1));
        self.live.set(self.live.get().saturating_sub(1));
        if has_ext {
            self.uncount_cluster();
        }
    }

    fn uncount_cluster(&self) {
        self.clusters_live.set(self.clusters_live.get().saturating_sub(1));
    }

    #[cold]
    fn deny(&self) -> Errno {
        self.drops.set(self.drops.get() + 1);
        self.wants_drain.set(true);
        Errno::ENOBUFS
    }

    fn count_cluster(&self) -> Result {
        if self.clusters_live.get() >= self.clusters_max {
            return Err(self.deny());
        }
        self.clusters_live.set(self.clusters_live.get() + 1);
        Ok(())
    }

    #[inline]
    fn get(self: &Rc<Self>, kind: Mt, flags: u16, off: usize) -> Result<Mbuf> {
        if self.live.get() >= self.mbufs_max {
            return Err(self.deny());
        }
        let found = self.free.borrow_mut().pop();
        let mut cell = found.unwrap_or_else(|| self.make());
        self.live.set(self.live.get() + 1);
        let slot = &self.kinds[kind as usize];
        slot.set(slot.get() + 1);
        cell.pool = Some(Rc::clone(self));
        (cell.off, cell.len, cell.flags, cell.kind) = (off, 0, flags, kind);
        cell.pkthdr = PktHdr::default();
        Ok(Mbuf(cell))
    }

    #[cold]
    fn make(&self) -> Box<MCell> {
        self.made.set(self.made.get() + 1);
        Box::new(MCell {
            next: None,
            pool: None,
            off: 0,
            len: 0,
            pkthdr: PktHdr::default(),
            flags: 0,
            kind: Mt::Free,
            shared: Slot::new(false),
            ext: Ext::None,
            dat: [0; MLEN_MAX],
        })
    }
}

impl Mbufs {
    /// A pool of at most so many mbufs and clusters; the latter come from `clusters`.
    pub fn new(release: Release, clusters: Pool, mbufs_max: u32, clusters_max: u32) -> Self {
        Self(Rc::new(MbufPool {
            release,
            clusters,
            free: RefCell::default(),
            mbufs_max,
            clusters_max,
            live: Slot::new(0),
            clusters_live: Slot::new(0),
            kinds: [const { Slot::new(0) }; MT_TYPES],
            made: Slot::new(0),
            drops: Slot::new(0),
            drains: Slot::new(0),
            wants_drain: Slot::new(false),
        }))
    }

    /// The release by whose sizes it goes.
    pub fn release(&self) -> Release {
        self.0.release
    }

    /// The statistics.
    pub fn mbstat(&self) -> MbStat {
        let pool = &self.0;
        MbStat {
            mbufs: pool.made.get(),
            in_use: pool.live.get(),
            clusters_in_use: pool.clusters_live.get(),
            kinds: core::array::from_fn(|kind| pool.kinds[kind].get()),
            drops: pool.drops.get(),
            drains: pool.drains.get(),
        }
    }

    /// Whether a request was denied since the last call: then the protocols are to be drained.
    pub(crate) fn take_wants_drain(&self) -> bool {
        let wants = self.0.wants_drain.replace(false);
        self.0.drains.set(self.0.drains.get() + u64::from(wants));
        wants
    }

    /// An mbuf of this type, without data: `m_get`, `MGET`. Never waits.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] if the pool is exhausted, counted.
    #[inline]
    pub fn m_get(&self, kind: Mt) -> Result<Mbuf> {
        self.0.get(kind, 0, 0)
    }

    /// The first mbuf of a packet, without data: `m_gethdr`, `MGETHDR`.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`], counted.
    #[inline]
    pub fn m_gethdr(&self, kind: Mt) -> Result<Mbuf> {
        self.0.get(kind, M_PKTHDR, 0)
    }

    /// An mbuf with a header that data goes behind, as `m_getclr` and `bcopy`: `octets` in one
    /// mbuf, or in a cluster if they are too many for it.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`]; [`Errno::EMSGSIZE`] for more than a cluster.
    pub fn m_copyin(&self, kind: Mt, octets: &[u8]) -> Result<Mbuf> {
        let mut m = self.m_get(kind)?;
        if octets.len() > m.size() {
            m.mclget()?;
        }
        if !m.put(octets) {
            m.m_freem();
            return Err(Errno::EMSGSIZE);
        }
        Ok(m)
    }
}

impl Mbuf {
    fn pool(&self) -> Result<&Rc<MbufPool>> {
        self.0.pool.as_ref().ok_or(Errno::ENOBUFS)
    }

    fn release(&self) -> Release {
        self.0.pool.as_ref().map(|pool| pool.release).unwrap_or_default()
    }

    /// Gives this mbuf back and answers the one behind it: `m_free`, `MFREE`.
    #[inline]
    pub fn m_free(self) -> Option<Mbuf> {
        let Mbuf(mut cell) = self;
        let next = cell.next.take();
        let Some(pool) = cell.pool.take() else { return next };
        let ext = core::mem::replace(&mut cell.ext, Ext::None);
        pool.count_free(cell.kind, !matches!(ext, Ext::None));
        // The kind is kept until it is used again, and is of no meaning.
        pool.free.borrow_mut().push(cell);
        drop(ext);
        next
    }

    /// Gives the chain back: `m_freem`.
    pub fn m_freem(self) {
        let mut next = self.m_free();
        while let Some(m) = next {
            next = m.m_free();
        }
    }

    /// The data of this mbuf: `mtod`.
    #[inline]
    pub fn mtod(&self) -> &[u8] {
        let (off, end) = (self.0.off, self.0.off + self.0.len);
        self.storage().get(off..end).unwrap_or_default()
    }

    fn storage(&self) -> &[u8] {
        match &self.0.ext {
            Ext::None => &self.0.dat,
            Ext::Cluster(message) | Ext::Lent(message) => message.front_slice(),
            Ext::Foreign(buf) => buf.octets(),
        }
    }

    /// The data of this mbuf, for writing; none if it lies in storage that others may see.
    #[inline]
    pub fn mtod_mut(&mut self) -> Option<&mut [u8]> {
        let (off, end) = (self.0.off, self.0.off + self.0.len);
        match &mut self.0.ext {
            Ext::None => self.0.dat.get_mut(off..end),
            Ext::Cluster(message) | Ext::Lent(message) => message.front_mut()?.get_mut(off..end),
            Ext::Foreign(_) => None,
        }
    }

    /// Octets in this mbuf.
    #[inline]
    pub fn m_len(&self) -> usize {
        self.0.len
    }

    /// Octets in the chain.
    pub fn m_length(&self) -> usize {
        self.mbufs().map(Mbuf::m_len).sum()
    }

    /// Type of the contents.
    pub fn m_type(&self) -> Mt {
        self.0.kind
    }

    /// Changes what it holds, in the statistics too.
    pub fn set_type(&mut self, kind: Mt) {
        if let Some(pool) = &self.0.pool {
            let from = &pool.kinds[self.0.kind as usize];
            from.set(from.get().saturating_sub(1));
            let to = &pool.kinds[kind as usize];
            to.set(to.get() + 1);
        }
        self.0.kind = kind;
    }

    /// `M_EXT` and the others.
    #[inline]
    pub fn m_flags(&self) -> u16 {
        self.0.flags
    }

    /// Sets and clears flags; `M_EXT` and `M_PKTHDR` are not changed so.
    pub fn set_flags(&mut self, set: u16, clear: u16) {
        let fixed = M_EXT | M_PKTHDR;
        self.0.flags = self.0.flags & !(clear & !fixed) | (set & !fixed);
    }

    /// The packet header; that of no packet if `M_PKTHDR` is not set.
    pub fn m_pkthdr(&self) -> PktHdr {
        self.0.pkthdr
    }

    /// The packet header, for writing.
    pub fn m_pkthdr_mut(&mut self) -> &mut PktHdr {
        &mut self.0.pkthdr
    }

    /// Makes it the first of a packet, whose length is that of the chain. It stays as it is if
    /// there is no room for the header in 4.4; the length counts all the same.
    pub fn make_packet(&mut self, rcvif: u16) {
        self.0.flags |= M_PKTHDR;
        self.0.pkthdr = PktHdr { rcvif, len: self.m_length() };
    }

    /// The mbuf behind it in the chain: `m_next`.
    pub fn m_next(&self) -> Option<&Mbuf> {
        self.0.next.as_ref()
    }

    /// The mbuf behind it, for writing.
    pub fn m_next_mut(&mut self) -> Option<&mut Mbuf> {
        self.0.next.as_mut()
    }

    /// Takes off what is behind it.
    pub fn take_next(&mut self) -> Option<Mbuf> {
        self.0.next.take()
    }

    /// Puts a chain behind it, in place of what was there, which is answered.
    pub fn set_next(&mut self, next: Option<Mbuf>) -> Option<Mbuf> {
        core::mem::replace(&mut self.0.next, next)
    }

    /// The mbufs of the chain, from this one on.
    pub fn mbufs(&self) -> impl Iterator<Item = &Mbuf> {
        core::iter::successors(Some(self), |m| m.m_next())
    }

    /// All octets of the chain.
    pub fn octets(&self) -> impl Iterator<Item = u8> + '_ {
        self.mbufs().flat_map(|m| m.mtod().iter().copied())
    }

    /// The last mbuf of the chain.
    pub fn last_mut(&mut self) -> &mut Mbuf {
        let mut m = self;
        while m.0.next.is_some() {
            m = m.step();
        }
        m
    }

    /// The mbuf behind this one, which has been seen: the borrow checker does not follow a loop
    /// that looks and goes on at one time.
    fn step(&mut self) -> &mut Mbuf {
        let Some(next) = &mut self.0.next else { unreachable!("the caller has looked") };
        next
    }

    /// Octets of storage for data.
    #[inline]
    pub fn size(&self) -> usize {
        match &self.0.ext {
            Ext::None if self.0.flags & M_PKTHDR != 0 => self.release().mhlen(),
            Ext::None => self.release().mlen(),
            Ext::Cluster(message) | Ext::Lent(message) => message.front_slice().len(),
            Ext::Foreign(buf) => buf.octets().len(),
        }
    }

    /// Free octets in front of the data: `M_LEADINGSPACE`. None in storage that others may see.
    pub fn leading_space(&self) -> usize {
        match &self.0.ext {
            Ext::None | Ext::Cluster(_) if self.is_writable() => self.0.off,
            _ => 0,
        }
    }

    /// Free octets behind the data: `M_TRAILINGSPACE`. None in storage that others may see.
    #[inline]
    pub fn trailing_space(&self) -> usize {
        match &self.0.ext {
            Ext::None | Ext::Cluster(_) if self.is_writable() => {
                self.size().saturating_sub(self.0.off + self.0.len)
            }
            _ => 0,
        }
    }

    fn is_writable(&self) -> bool {
        match &self.0.ext {
            Ext::None => true,
            Ext::Cluster(_) => !self.0.shared.get(),
            Ext::Lent(_) | Ext::Foreign(_) => false,
        }
    }

    /// Whether the data lies in storage outside of the mbuf.
    pub fn has_ext(&self) -> bool {
        self.0.flags & M_EXT != 0
    }

    /// Gives it a cluster: `MCLGET`. It must be without data.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] if the clusters or the kernel's pool are exhausted, counted: the mbuf is
    /// as it was, `M_EXT` not set. [`Errno::EINVAL`] if it has data.
    pub fn mclget(&mut self) -> Result {
        if self.0.len != 0 || self.has_ext() {
            return Err(Errno::EINVAL);
        }
        let pool = self.pool()?;
        pool.count_cluster()?;
        let Ok(message) = pool.clusters.alloc(0, pool.release.mclbytes()) else {
            pool.uncount_cluster();
            return Err(pool.deny());
        };
        self.attach(Ext::Cluster(message), 0);
        Ok(())
    }

    fn attach(&mut self, ext: Ext, len: usize) {
        self.0.ext = ext;
        self.0.shared.set(false);
        self.0.flags |= M_EXT;
        (self.0.off, self.0.len) = (0, len);
    }

    /// Puts octets behind its data; false, and nothing is changed, if there is no room.
    #[must_use]
    pub fn put(&mut self, octets: &[u8]) -> bool {
        let room = self.extend(octets.len());
        room.map(|room| room.copy_from_slice(octets)).is_some()
    }

    /// Lengthens its data by `n` octets and shows them, for the caller to fill; none if there is
    /// no room.
    #[inline]
    pub fn extend(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.trailing_space() {
            return None;
        }
        let at = self.0.len;
        self.0.len += n;
        self.mtod_mut()?.get_mut(at..)
    }

    /// Moves the place of its data, of which there is none yet, to `off`: `m_data +=`. At most the
    /// storage.
    pub fn set_offset(&mut self, off: usize) {
        if self.0.len == 0 {
            self.0.off = off.min(self.size());
        }
    }

    /// Puts its data, of which there will be `len` octets, at the end of the storage, so that
    /// there is room in front: `M_ALIGN`, `MH_ALIGN`.
    pub fn align(&mut self, len: usize) {
        let off = self.size().saturating_sub(len) & !3;
        self.set_offset(off);
    }
}

/// Lengths and types, not the contents.
impl core::fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Mbuf(")?;
        for m in self.mbufs() {
            let at = if m.has_ext() { "*" } else { "" };
            write!(f, " {}{at}", m.m_len())?;
        }
        f.write_str(" )")
    }
}
