//! Operations on chains: copies, headers, cuts.

use super::{Ext, M_COPYFLAGS, M_EXT, M_PKTHDR, Mbuf, Mt, PktHdr};
use crate::errno::{Errno, Result};
use alloc::rc::Rc;
use xk_kit::net::checksum::Checksum;

/// As a length for `m_copym`: all that is behind the offset.
pub const M_COPYALL: usize = usize::MAX;

impl Mbuf {
    /// The chain with `len` octets more in front, for the caller to write, all in its first mbuf:
    /// `M_PREPEND`. They lie in the free room of the first mbuf, or in one of their own, at its
    /// end. The packet header goes with them.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`], or [`Errno::EMSGSIZE`] if they fit in no mbuf: the chain is freed.
    #[inline]
    pub fn m_prepend(mut self, len: usize) -> Result<Mbuf> {
        if self.leading_space() >= len {
            self.0.off -= len;
            self.0.len += len;
            if self.0.flags & M_PKTHDR != 0 {
                self.0.pkthdr.len += len;
            }
            return Ok(self);
        }
        self.prepend_mbuf(len)
    }

    fn prepend_mbuf(mut self, len: usize) -> Result<Mbuf> {
        let mut fresh = self.pool()?.get(self.0.kind, self.0.flags & M_PKTHDR, 0)?;
        if len > fresh.size() {
            return Err(Errno::EMSGSIZE);
        }
        self.move_pkthdr(&mut fresh);
        fresh.0.off = (fresh.size() - len) & !3;
        fresh.0.len = len;
        if fresh.0.flags & M_PKTHDR != 0 {
            fresh.0.pkthdr.len += len;
        }
        fresh.0.next = Some(self);
        Ok(fresh)
    }

    /// `M_COPY_PKTHDR`, and this one is none any more.
    fn move_pkthdr(&mut self, to: &mut Mbuf) {
        to.0.flags = to.0.flags & M_EXT | self.0.flags & M_COPYFLAGS;
        to.0.pkthdr = core::mem::take(&mut self.0.pkthdr);
        self.0.flags &= !M_COPYFLAGS;
    }

    /// A copy of `len` octets from `off` on: `m_copy`, `m_copym`. Clusters and lent storage are
    /// shared, small mbufs copied. With [`M_COPYALL`] as length, all that is behind `off`. The copy
    /// is a packet if this is one and `off` is 0.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`]; [`Errno::EINVAL`] if the chain has fewer octets (BSD panics).
    pub fn m_copym(&self, off: usize, len: usize) -> Result<Mbuf> {
        let pool = Rc::clone(self.pool()?);
        let is_packet = self.0.flags & M_PKTHDR != 0 && off == 0;
        let (header, kind) = (self.0.pkthdr, self.0.kind);
        let flags = if is_packet { self.0.flags & M_COPYFLAGS } else { 0 };
        let (mut off, mut left) = (off, len);
        let mut copy: Option<Mbuf> = None;
        let mut from = Some(self);
        while left > 0 {
            let Some(m) = from else { break };
            if off < m.0.len {
                let n = left.min(m.0.len - off);
                let flags = if copy.is_none() { flags } else { 0 };
                let part = m.copy_part(&pool, off, n, flags)?;
                Self::append_to(&mut copy, part);
                left -= if left == M_COPYALL { 0 } else { n };
                off = 0;
            } else {
                off -= m.0.len;
            }
            from = m.m_next();
        }
        if (left > 0 && left != M_COPYALL) || (off > 0 && left == M_COPYALL) {
            return Err(Errno::EINVAL);
        }
        let mut copy = copy.map_or_else(|| pool.get(kind, flags, 0), Ok)?;
        if is_packet {
            let len = if len == M_COPYALL { header.len } else { len };
            copy.0.pkthdr = PktHdr { len, ..header };
        }
        Ok(copy)
    }

    /// Behind the last of `chain`, which is walked: copies have few mbufs.
    fn append_to(chain: &mut Option<Mbuf>, part: Mbuf) {
        match chain {
            Some(chain) => chain.last_mut().0.next = Some(part),
            None => *chain = Some(part),
        }
    }

    fn copy_part(
        &self,
        pool: &Rc<super::MbufPool>,
        off: usize,
        n: usize,
        flags: u16,
    ) -> Result<Mbuf> {
        let ext = match &self.0.ext {
            Ext::None => None,
            Ext::Cluster(of) => Some(of.try_clone().map(Ext::Cluster)),
            Ext::Lent(of) => Some(of.try_clone().map(Ext::Lent)),
            Ext::Foreign(of) => Some(Ok(Ext::Foreign(Rc::clone(of)))),
        };
        let mut copy = pool.get(self.0.kind, flags, 0)?;
        let Some(ext) = ext else {
            let octets = self.mtod().get(off..off + n).unwrap_or_default();
            // In 4.4 the first mbuf of a packet holds less than another: the rest goes behind it.
            let (here, behind) = octets.split_at(n.min(copy.size()));
            let taken = copy.put(here);
            if !behind.is_empty() {
                let mut more = pool.get(self.0.kind, 0, 0)?;
                let _ = more.put(behind);
                copy.0.next = Some(more);
            }
            return taken.then_some(copy).ok_or(Errno::ENOBUFS);
        };
        let ext = ext.map_err(|_| pool.deny())?;
        pool.count_cluster()?;
        copy.attach(ext, n);
        copy.0.off = self.0.off + off;
        copy.0.shared.set(true);
        self.0.shared.set(true);
        Ok(copy)
    }

    /// The chain with its first `len` octets in one mbuf, for `mtod` to show: `m_pullup`. They are
    /// copied into the first mbuf if it has room behind its data and no storage outside, else into
    /// a fresh one in front.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if `len` is more than the data of a packet's first mbuf (MHLEN),
    /// [`Errno::EMSGSIZE`] if the chain is shorter, [`Errno::ENOBUFS`]: the chain is freed.
    #[inline]
    pub fn m_pullup(self, len: usize) -> Result<Mbuf> {
        if self.0.len >= len {
            return Ok(self);
        }
        self.pullup_slow(len)
    }

    #[cold]
    fn pullup_slow(mut self, len: usize) -> Result<Mbuf> {
        if len > self.release().mhlen() {
            return Err(Errno::EINVAL);
        }
        let in_place = !self.has_ext() && self.trailing_space() >= len - self.0.len;
        let (mut front, mut rest) = if in_place {
            let rest = self.0.next.take();
            (self, rest)
        } else {
            let mut fresh = self.pool()?.get(self.0.kind, self.0.flags & M_PKTHDR, 0)?;
            self.move_pkthdr(&mut fresh);
            (fresh, Some(self))
        };
        while front.0.len < len {
            let Some(mut m) = rest else { return Err(Errno::EMSGSIZE) };
            let n = m.0.len.min(len - front.0.len);
            if !front.put(m.mtod().get(..n).unwrap_or_default()) {
                return Err(Errno::ENOBUFS);
            }
            m.0.off += n;
            m.0.len -= n;
            rest = if m.0.len == 0 { m.m_free() } else { Some(m) };
        }
        front.0.next = rest;
        Ok(front)
    }

    /// Takes octets off: `m_adj`. The first `n`, or the last `-n` if it is negative; all of them if
    /// there are not so many. The mbufs stay, be they empty. A packet's length follows.
    pub fn m_adj(&mut self, n: isize) {
        let total = self.m_length();
        let cut = n.unsigned_abs().min(total);
        if n >= 0 {
            let mut left = cut;
            let mut m = Some(&mut *self);
            while let Some(here) = m
                && left > 0
            {
                let step = left.min(here.0.len);
                here.0.off += step;
                here.0.len -= step;
                left -= step;
                m = here.m_next_mut();
            }
        } else {
            let mut keep = total - cut;
            let mut m = Some(&mut *self);
            while let Some(here) = m {
                here.0.len = here.0.len.min(keep);
                keep -= here.0.len;
                m = here.m_next_mut();
            }
        }
        if self.0.flags & M_PKTHDR != 0 {
            self.0.pkthdr.len = total - cut;
        }
    }

    /// Puts `n` behind this chain: `m_cat`. What fits into the room behind the last mbuf is copied
    /// there, as long as that holds. No packet's length is changed, as in BSD.
    pub fn m_cat(&mut self, n: Mbuf) {
        let mut last = self.last_mut();
        let mut n = Some(n);
        while let Some(m) = n {
            if last.has_ext() || m.has_ext() || m.0.len > last.trailing_space() {
                last.0.next = Some(m);
                return;
            }
            let put = last.put(m.mtod());
            debug_assert!(put, "there was room");
            n = m.m_free();
            last = last.last_mut();
        }
    }

    /// Cuts the chain behind `len0` octets, and answers what was behind them: `m_split`. Clusters
    /// are shared, as of a small mbuf that is cut the second part is copied. If this is a packet,
    /// the answer is one, too.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`]; [`Errno::EINVAL`] if the chain has fewer octets: it is as it was.
    pub fn m_split(&mut self, len0: usize) -> Result<Mbuf> {
        let total = self.m_length();
        if len0 > total {
            return Err(Errno::EINVAL);
        }
        let pool = Rc::clone(self.pool()?);
        let (flags, header, kind) = (self.0.flags & M_COPYFLAGS, self.0.pkthdr, self.0.kind);
        let is_packet = flags & M_PKTHDR != 0;
        let mut at = len0;
        let mut m = &mut *self;
        while at > m.0.len && m.0.next.is_some() {
            at -= m.0.len;
            m = m.step();
        }
        let mut back = if at < m.0.len {
            let back = m.copy_part(&pool, at, m.0.len - at, 0)?;
            m.0.len = at;
            Some(back)
        } else {
            None
        };
        let rest = m.0.next.take();
        match (&mut back, rest) {
            (Some(back), Some(rest)) => back.last_mut().0.next = Some(rest),
            (None, rest) => back = rest,
            (Some(_), None) => {}
        }
        let back = match back {
            Some(back) if !is_packet => return Ok(back),
            Some(mut back) if back.has_ext() || back.0.off + back.0.len <= pool.release.mhlen() => {
                back.0.flags |= flags;
                back
            }
            // There is no room for a header in the mbuf itself: an empty one stands in front.
            rest => {
                let fresh = pool.get(kind, flags, 0);
                let Ok(mut fresh) = fresh else {
                    let _ = m.set_next(rest);
                    return Err(Errno::ENOBUFS);
                };
                fresh.0.next = rest;
                fresh
            }
        };
        let mut back = back;
        if is_packet {
            back.0.pkthdr = PktHdr { len: total - len0, ..header };
            self.0.pkthdr.len = len0;
        }
        Ok(back)
    }

    /// Copies octets from `off` on into `to`: `m_copydata`. Answers how many there were (BSD panics
    /// if they are too few).
    pub fn m_copydata(&self, off: usize, to: &mut [u8]) -> usize {
        let (mut off, mut done) = (off, 0);
        for m in self.mbufs() {
            let Some(octets) = m.mtod().get(off..) else {
                off -= m.0.len;
                continue;
            };
            off = 0;
            let to = to.get_mut(done..).unwrap_or_default();
            let n = octets.len().min(to.len());
            to[..n].copy_from_slice(&octets[..n]);
            done += n;
            if n < octets.len() {
                break;
            }
        }
        done
    }

    /// Writes octets over those from `off` on, and makes the chain longer by mbufs where it is too
    /// short: `m_copyback`.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`]; [`Errno::EINVAL`] if they would lie in storage that others may see. What
    /// was written stays.
    pub fn m_copyback(&mut self, off: usize, octets: &[u8]) -> Result {
        let pool = Rc::clone(self.pool()?);
        let total = self.m_length();
        let end = off.checked_add(octets.len()).ok_or(Errno::EINVAL)?;
        let mut short = end.saturating_sub(total);
        while short > 0 {
            let last = self.last_mut();
            let n = short.min(last.trailing_space());
            if let Some(room) = last.extend(n) {
                room.fill(0);
            }
            short -= n;
            if short > 0 {
                last.0.next = Some(pool.get(Mt::Data, 0, 0)?);
            }
        }
        if self.0.flags & M_PKTHDR != 0 && end > self.0.pkthdr.len {
            self.0.pkthdr.len = end;
        }
        let (mut off, mut octets) = (off, octets);
        let mut m = Some(self);
        while let Some(here) = m
            && !octets.is_empty()
        {
            let len = here.0.len;
            if off < len {
                let (now, later) = octets.split_at(octets.len().min(len - off));
                let room = here.mtod_mut().and_then(|data| data.get_mut(off..off + now.len()));
                room.ok_or(Errno::EINVAL)?.copy_from_slice(now);
                octets = later;
                off = 0;
            } else {
                off -= len;
            }
            m = here.m_next_mut();
        }
        Ok(())
    }

    /// The Internet's checksum over `len` octets from `off` on: `in_cksum`.
    pub fn in_cksum(&self, off: usize, len: usize) -> u16 {
        self.in_cksum_add(Checksum::new(), off, len).finish()
    }

    /// A sum with `len` octets from `off` on added.
    pub fn in_cksum_add(&self, mut sum: Checksum, off: usize, len: usize) -> Checksum {
        let (mut off, mut left) = (off, len);
        for m in self.mbufs() {
            let Some(octets) = m.mtod().get(off..) else {
                off -= m.0.len;
                continue;
            };
            off = 0;
            let octets = &octets[..octets.len().min(left)];
            left -= octets.len();
            sum.add(octets);
            if left == 0 {
                break;
            }
        }
        sum
    }
}
