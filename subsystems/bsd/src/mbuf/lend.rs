//! Storage that goes between BSD and others without a copy.

use super::{Ext, ExtBuf, M_PKTHDR, Mbuf, Mbufs, Mt};
use crate::errno::{Errno, Result};
use alloc::rc::Rc;
use xk_core::{Message, Pool};
use xk_kit::wire::offload::finish_checksum;

impl Mbufs {
    /// A packet of the octets of a message, which lends them: an mbuf for each of its slices. Its
    /// attributes are gone: a checksum that was left to others is completed.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`], counted: the message is gone.
    pub fn m_lend(&self, mut message: Message, rcvif: u16) -> Result<Mbuf> {
        let pool = &self.0;
        finish_checksum(&pool.clusters, &mut message).map_err(|_| pool.deny())?;
        message.clear_attributes();
        let mut m = pool.get(Mt::Data, M_PKTHDR, 0)?;
        let total = message.len();
        m.0.pkthdr = super::PktHdr { rcvif, len: total };
        if total == 0 {
            return Ok(m);
        }
        let first = message.front_slice().len();
        pool.count_cluster()?;
        if first == total {
            m.attach(Ext::Lent(message), first);
            return Ok(m);
        }
        m.lend_slices(message)?;
        Ok(m)
    }

    /// An mbuf on storage of another subsystem (`m_ext` with a free function): `len` octets of it
    /// from `off` on. Nothing is written there.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`]; [`Errno::EINVAL`] if it has fewer octets.
    pub fn m_extattach(&self, buf: Rc<dyn ExtBuf>, off: usize, len: usize) -> Result<Mbuf> {
        if off.checked_add(len).is_none_or(|end| end > buf.octets().len()) {
            return Err(Errno::EINVAL);
        }
        let mut m = self.0.get(Mt::Data, 0, 0)?;
        self.0.count_cluster()?;
        m.attach(Ext::Foreign(buf), len);
        m.0.off = off;
        Ok(m)
    }

    /// A packet with a copy of a message's octets, as a driver makes it of a frame in its own
    /// memory: `m_devget`.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`], counted.
    pub fn m_devget(&self, message: &Message, rcvif: u16) -> Result<Mbuf> {
        let mut m = self.m_gethdr(Mt::Data)?;
        let total = message.len();
        m.0.pkthdr = super::PktHdr { rcvif, len: total };
        let mut at = 0;
        let mut last = &mut m;
        while at < total {
            if at > 0 {
                let fresh = self.m_get(Mt::Data)?;
                last.0.next = Some(fresh);
                last = last.last_mut();
            }
            if total - at >= self.release().minclsize() {
                last.mclget()?;
            }
            let n = (total - at).min(last.trailing_space());
            let room = last.extend(n).ok_or(Errno::ENOBUFS)?;
            message.copy_to(at, room);
            at += n;
        }
        Ok(m)
    }
}

impl Mbuf {
    /// Whether its data goes to the x-kernel without a copy ([`into_message`](Self::into_message)):
    /// it lies in a cluster, or in what the x-kernel has lent.
    pub fn is_message(&self) -> bool {
        matches!(self.0.ext, Ext::Cluster(_) | Ext::Lent(_))
    }

    /// Puts the slices of a message into this mbuf, which has a cluster's room accounted for, and
    /// others behind it.
    fn lend_slices(&mut self, message: Message) -> Result {
        let pool = Rc::clone(self.pool()?);
        let mut message = message;
        let mut last = self;
        let mut is_first = true;
        while !message.is_empty() {
            let n = message.front_slice().len();
            let part = match message.split_front(n) {
                Ok(part) => part,
                Err(_) => {
                    if is_first {
                        pool.uncount_cluster();
                    }
                    return Err(pool.deny());
                }
            };
            if !is_first {
                let fresh = pool.get(Mt::Data, 0, 0)?;
                pool.count_cluster()?;
                last.0.next = Some(fresh);
                last = last.last_mut();
            }
            last.attach(Ext::Lent(part), n);
            is_first = false;
        }
        Ok(())
    }

    /// The packet as a message of the x-kernel's: clusters and what is lent go as they are, small
    /// mbufs are copied, with `headroom` octets in front. Where the first mbuf is a cluster with
    /// free room in front, that is the headroom.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] if `pool` is exhausted: the chain is freed.
    pub fn into_message(self, pool: &Pool, headroom: usize) -> Result<Message> {
        let (mut message, mut next) = self.into_part(pool, headroom)?;
        while let Some(m) = next {
            let part;
            (part, next) = m.into_part(pool, 0)?;
            message.join(part);
        }
        Ok(message)
    }

    /// A message of this mbuf, or a copy of all that have to be copied from it on; and the mbuf
    /// behind.
    #[inline]
    fn into_part(self, pool: &Pool, headroom: usize) -> Result<(Message, Option<Mbuf>)> {
        match self.take_message() {
            Ok(part) => Ok(part),
            Err(m) => m.copy_out(pool, headroom),
        }
    }

    /// Takes the message in which the data of this mbuf [lies](Self::is_message), and the mbuf
    /// behind, if there is one.
    ///
    /// # Errors
    /// This mbuf, whose data would have to be copied.
    #[inline]
    pub fn take_message(self) -> core::result::Result<(Message, Option<Mbuf>), Self> {
        let Mbuf(mut cell) = self;
        let mut part = match core::mem::replace(&mut cell.ext, Ext::None) {
            Ext::Cluster(part) | Ext::Lent(part) => part,
            ext => {
                cell.ext = ext;
                return Err(Mbuf(cell));
            }
        };
        let (off, len, next) = (cell.off, cell.len, cell.next.take());
        if let Some(pool) = cell.pool.take() {
            pool.count_free(cell.kind, true);
            pool.free.borrow_mut().push(cell);
        }
        // Both hold: offset and length lie in the storage.
        let whole = part.strip(off);
        part.truncate(if whole { len } else { 0 });
        Ok((part, next))
    }

    /// A message with a copy of the mbufs up to the next that can go as it is; and that one.
    #[cold]
    fn copy_out(self, pool: &Pool, headroom: usize) -> Result<(Message, Option<Mbuf>)> {
        let total = self.mbufs().take_while(|m| !m.is_message()).map(Mbuf::m_len).sum();
        let mut message = pool.alloc(headroom, total).map_err(|_| Errno::ENOBUFS)?;
        let mut next = Some(self);
        let mut at = 0;
        while let Some(m) = next {
            if m.is_message() {
                return Ok((message, Some(m)));
            }
            at += message.copy_in(at, m.mtod());
            next = m.m_free();
        }
        Ok((message, None))
    }
}
