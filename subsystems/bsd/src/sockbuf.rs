//! Socket buffers: what waits for a user, or for a protocol, as records of mbufs.

use crate::bsd::Bsd;
use crate::errno::{Errno, Result};
use crate::mbuf::{MSIZE, Mbuf, Mt};
use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Kernel;
use xk_core::shepherd::{Semaphore, WaitError};

/// Octets of a socket buffer at most, unless the graph says otherwise.
pub const SB_MAX: usize = 256 * 1024;

/// Channel on which callers sleep, as on an address in BSD: a wake-up is for all of them.
pub(crate) struct Channel {
    semaphore: Semaphore,
    asleep: Cell<u32>,
}

impl Default for Channel {
    fn default() -> Self {
        Self { semaphore: Semaphore::new(0), asleep: Cell::new(0) }
    }
}

impl Channel {
    /// Waits for the next wake-up, off splnet: `tsleep`.
    pub(crate) fn sleep(&self, cx: &Kernel, bsd: &Bsd, limit: Option<Duration>) -> Result {
        self.asleep.set(self.asleep.get() + 1);
        let woken = bsd.spl0(cx, || cx.wait(&self.semaphore, limit));
        self.asleep.set(self.asleep.get().saturating_sub(1));
        woken.map_err(|error| match error {
            WaitError::TimedOut => Errno::EWOULDBLOCK,
            WaitError::Interrupted | WaitError::Closed => Errno::EINTR,
            // What runs on no shepherd of its own cannot wait.
            WaitError::NoShepherds | WaitError::NotOnShepherd => Errno::EWOULDBLOCK,
        })
    }

    /// Whether some sleep.
    pub(crate) fn is_awaited(&self) -> bool {
        self.asleep.get() > 0
    }

    /// Wakes all that sleep: `wakeup`.
    pub(crate) fn wakeup(&self, cx: &Kernel) {
        for _ in 0..self.asleep.get() {
            cx.signal(&self.semaphore);
        }
    }
}

/// One direction of a socket (`struct sockbuf`).
///
/// A record is a chain: the sender's address (of type [`Mt::Soname`]) if the protocol has
/// [`PR_ADDR`](crate::PR_ADDR), control information ([`Mt::Control`]), data. A stream is one
/// record without end.
#[derive(Default)]
pub struct SockBuf {
    records: RefCell<VecDeque<Mbuf>>,
    cc: Cell<usize>,
    mbcnt: Cell<usize>,
    hiwat: Cell<usize>,
    mbmax: Cell<usize>,
    lowat: Cell<usize>,
    timeo: Cell<Option<Duration>>,
    /// Octets, and what the mbufs count for, that were sent and stand in the peer's buffer still.
    beyond: Cell<(usize, usize)>,
    locked: Cell<bool>,
    lock: Channel,
    wait: Channel,
}

/// Octets for which an mbuf counts against `sb_mbmax`.
fn cost(m: &Mbuf) -> usize {
    MSIZE + if m.has_ext() { m.size() } else { 0 }
}

impl SockBuf {
    /// Octets in it (`sb_cc`).
    pub fn cc(&self) -> usize {
        self.cc.get()
    }

    /// Octets of the mbufs in it (`sb_mbcnt`).
    pub fn mbcnt(&self) -> usize {
        self.mbcnt.get()
    }

    /// Octets that it holds at most (`sb_hiwat`).
    pub fn hiwat(&self) -> usize {
        self.hiwat.get()
    }

    /// Number of octets from which on a user is woken (`sb_lowat`).
    pub fn lowat(&self) -> usize {
        self.lowat.get()
    }

    /// Sets `sb_lowat`.
    pub fn set_lowat(&self, octets: usize) {
        self.lowat.set(octets.min(self.hiwat.get()).max(1));
    }

    /// Time that a call waits (`sb_timeo`); none for as long as it takes.
    pub fn timeo(&self) -> Option<Duration> {
        self.timeo.get()
    }

    /// Sets `sb_timeo`.
    pub fn set_timeo(&self, limit: Option<Duration>) {
        self.timeo.set(limit);
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.records.borrow().len()
    }

    /// Whether there is no record in it.
    pub fn is_empty(&self) -> bool {
        self.records.borrow().is_empty()
    }

    /// Gives it so many octets: `sbreserve`. False if that is more than `sb_max` allows.
    #[must_use]
    pub fn sbreserve(&self, octets: usize, sb_max: usize) -> bool {
        // As in BSD: clusters cost more than their data.
        if octets == 0 || octets > sb_max * 2048 / (MSIZE + 2048) {
            return false;
        }
        self.hiwat.set(octets);
        self.mbmax.set((octets * 2).min(sb_max));
        self.lowat.set(self.lowat.get().clamp(1, octets));
        true
    }

    /// Octets that may still go in: `sbspace`.
    pub fn sbspace(&self) -> usize {
        let (cc, mbcnt) = self.beyond.get();
        let by_octets = self.hiwat.get().saturating_sub(self.cc.get() + cc);
        by_octets.min(self.mbmax.get().saturating_sub(self.mbcnt.get() + mbcnt))
    }

    /// Counts the octets in the peer's buffer against this one's room: so a protocol without a
    /// window of its own holds its sender back.
    pub fn set_beyond(&self, peer: &SockBuf) {
        self.beyond.set((peer.cc.get(), peer.mbcnt.get()));
    }

    /// `sballoc` of a chain.
    fn account(&self, m: &Mbuf) {
        for m in m.mbufs() {
            self.cc.set(self.cc.get() + m.m_len());
            self.mbcnt.set(self.mbcnt.get() + cost(m));
        }
    }

    /// `sbfree` of a chain.
    pub(crate) fn unaccount(&self, m: &Mbuf) {
        m.mbufs().for_each(|m| self.unaccount_one(m));
    }

    pub(crate) fn unaccount_one(&self, m: &Mbuf) {
        self.cc.set(self.cc.get().saturating_sub(m.m_len()));
        self.mbcnt.set(self.mbcnt.get().saturating_sub(cost(m)));
    }

    /// Counts octets off that an mbuf which stays has lost.
    pub(crate) fn uncount(&self, octets: usize) {
        self.cc.set(self.cc.get().saturating_sub(octets));
    }

    /// Puts a chain behind the last record: `sbappend`. Small mbufs are brought together.
    pub fn sbappend(&self, m: Mbuf) {
        // As `sbcompress` does: a record of no octets would be read as the end.
        if m.m_length() == 0 {
            return m.m_freem();
        }
        let mut records = self.records.borrow_mut();
        let Some(last) = records.pop_back() else {
            drop(records);
            return self.sbappendrecord(m);
        };
        self.unaccount(&last);
        let mut last = last;
        last.m_cat(m);
        self.account(&last);
        records.push_back(last);
    }

    /// Puts a chain in as a record of its own: `sbappendrecord`.
    pub fn sbappendrecord(&self, m: Mbuf) {
        self.account(&m);
        self.records.borrow_mut().push_back(m);
    }

    /// Puts a datagram in, behind its sender's address and control information: `sbappendaddr`.
    ///
    /// # Errors
    /// [`Errno::ENOBUFS`] if there is no room: all of it is freed.
    pub fn sbappendaddr(&self, asa: Mbuf, m0: Option<Mbuf>, control: Option<Mbuf>) -> Result {
        let length = |m: &Option<Mbuf>| m.as_ref().map_or(0, Mbuf::m_length);
        if asa.m_length() + length(&m0) + length(&control) > self.sbspace() {
            return Err(Errno::ENOBUFS);
        }
        let (mut asa, mut behind) = (asa, m0);
        if let Some(mut control) = control {
            control.last_mut().set_next(behind);
            behind = Some(control);
        }
        asa.set_next(behind);
        self.sbappendrecord(asa);
        Ok(())
    }

    /// Takes the first record out, accounted for still: what stays of it is put back.
    pub(crate) fn take_record(&self) -> Option<Mbuf> {
        self.records.borrow_mut().pop_front()
    }

    pub(crate) fn put_back(&self, m: Mbuf) {
        self.records.borrow_mut().push_front(m);
    }

    /// Puts back what is left of a record that was not accounted for any more.
    pub(crate) fn put_back_counted(&self, m: Mbuf) {
        self.account(&m);
        self.put_back(m);
    }

    /// A look at the first record.
    pub fn first<T>(&self, look: impl FnOnce(Option<&Mbuf>) -> T) -> T {
        look(self.records.borrow().front())
    }

    /// Takes so many octets off the front, records and all: `sbdrop`.
    pub fn sbdrop(&self, octets: usize) {
        let mut left = octets;
        while left > 0 {
            let Some(m) = self.take_record() else { break };
            let mut next = Some(m);
            while let Some(mut m) = next {
                if m.m_len() > left {
                    self.uncount(left);
                    m.m_adj(left as isize);
                    self.put_back(m);
                    return;
                }
                left -= m.m_len();
                self.unaccount_one(&m);
                next = m.m_free();
            }
        }
    }

    /// Takes the first record off: `sbdroprecord`.
    pub fn sbdroprecord(&self) {
        let first = self.take_record();
        if let Some(m) = first {
            self.unaccount(&m);
            m.m_freem();
        }
    }

    /// Frees everything: `sbflush`.
    pub fn sbflush(&self) {
        while !self.is_empty() {
            self.sbdroprecord();
        }
    }

    /// Waits until something has changed: `sbwait`.
    pub(crate) fn sbwait(&self, cx: &Kernel, bsd: &Bsd) -> Result {
        self.wait.sleep(cx, bsd, self.timeo.get())
    }

    /// Wakes what waits: the half of `sowakeup` that is the buffer's.
    pub(crate) fn wakeup(&self, cx: &Kernel) {
        self.wait.wakeup(cx);
    }

    /// Has it for this caller alone, so that what one call sends or receives stays together:
    /// `sblock`.
    pub(crate) fn sblock(&self, cx: &Kernel, bsd: &Bsd, may_wait: bool) -> Result {
        while self.locked.get() {
            if !may_wait {
                return Err(Errno::EWOULDBLOCK);
            }
            self.lock.sleep(cx, bsd, None)?;
        }
        self.locked.set(true);
        Ok(())
    }

    /// Gives it to others: `sbunlock`.
    pub(crate) fn sbunlock(&self, cx: &Kernel) {
        self.locked.set(false);
        self.lock.wakeup(cx);
    }
}

/// Whether this mbuf of a record is data.
pub(crate) fn is_data(m: &Mbuf) -> bool {
    !matches!(m.m_type(), Mt::Soname | Mt::Control | Mt::Rights)
}
