//! Flow control ahead, and enabling.

use super::{Q, QENAB, QFULL, QNOENB, QWANTW};
use crate::scheduler::TimerId;
use core::time::Duration;
use xk_core::Kernel;

impl Q {
    /// The queue that takes what is put here: this one, or the nearest ahead that has a service
    /// procedure, or the last.
    fn nearest(&self) -> Q {
        let mut q = self.clone();
        while !q.queue().has_service.get()
            && let Some(next) = q.next()
        {
            q = next;
        }
        q
    }

    /// Whether there is room for an ordinary message from this queue on (`canput`): looks at the
    /// nearest queue with a service procedure, this one first. A full one remembers that a writer
    /// wants room.
    pub fn canput(&self) -> bool {
        self.bcanput(0)
    }

    /// As [`canput`](Self::canput), in a band (`bcanput`).
    #[inline]
    pub fn bcanput(&self, band: u8) -> bool {
        match self.queue().has_service.get() || self.is_last() {
            true => self.has_room(band),
            false => self.nearest().has_room(band),
        }
    }

    #[inline]
    fn has_room(&self, band: u8) -> bool {
        if band != 0 {
            return self.band_has_room(band);
        }
        let is_full = self.flags() & QFULL != 0;
        if is_full && self.flags() & QWANTW == 0 {
            self.set_flag(QWANTW);
            self.count_blocked();
        }
        !is_full
    }

    fn band_has_room(&self, band: u8) -> bool {
        let (is_full, is_first) = self.with_band(band, |band| {
            let is_first = band.is_full && !band.is_wanted;
            band.is_wanted |= band.is_full;
            (band.is_full, is_first)
        });
        if is_first {
            self.count_blocked();
        }
        !is_full
    }

    #[cold]
    fn count_blocked(&self) {
        self.figure(|figures| figures.blocked += 1);
        self.core().add_blocked();
    }

    /// Whether there is room for an ordinary message ahead (`canputnext`). Ahead of the last queue
    /// there always is.
    #[inline]
    pub fn canputnext(&self) -> bool {
        self.bcanputnext(0)
    }

    /// As [`canputnext`](Self::canputnext), in a band (`bcanputnext`).
    pub fn bcanputnext(&self, band: u8) -> bool {
        // Nothing is changed ahead meanwhile.
        self.queue().next.borrow().as_ref().is_none_or(|next| next.bcanput(band))
    }

    /// Whether there is room ahead in band 0 or in a band that is there.
    pub fn canputnext_any(&self) -> bool {
        let Some(next) = self.next() else { return true };
        let q = next.nearest();
        q.flags() & QFULL == 0 || q.queue().bands.borrow().iter().any(|band| !band.is_full)
    }

    /// Enables the nearest queue behind that has a service procedure (`backenable`).
    pub(crate) fn backenable(&self, cx: &Kernel) {
        let mut behind = self.back();
        while let Some(q) = behind {
            if q.queue().has_service.get() {
                return q.qenable(cx);
            }
            behind = q.back();
        }
    }

    /// Enables the queue: its service procedure will run (`qenable`). One without is not enabled.
    pub fn qenable(&self, cx: &Kernel) {
        if self.flags() & QENAB != 0 || !self.queue().has_service.get() || self.is_gone() {
            return;
        }
        self.set_flag(QENAB);
        self.core().schedule(cx, self.clone());
    }

    /// Ordinary messages enable it again (`enableok`).
    pub fn enableok(&self) {
        self.clear_flag(QNOENB);
    }

    /// Ordinary messages no longer enable it (`noenable`).
    pub fn noenable(&self) {
        self.set_flag(QNOENB);
    }

    /// Sets a timer: the module's [`timer`](crate::Module::timer) gets `arg` after `delay`, unless
    /// the queue is gone by then (`timeout`). `None` if the bound on timers is reached.
    pub fn timeout(&self, cx: &Kernel, delay: Duration, arg: u64) -> Option<TimerId> {
        self.core().set_timer(cx, self, delay, arg)
    }

    /// Takes a timer back (`untimeout`); false if it has gone off.
    pub fn untimeout(&self, cx: &Kernel, timer: TimerId) -> bool {
        self.core().cancel_timer(cx, timer)
    }

    /// Enables this queue when so many blocks, of so many octets together, can be had (`bufcall`).
    /// It waits once, however often it asks.
    pub fn bufcall(&self, cx: &Kernel, need: (usize, usize)) {
        self.core().bufcall(cx, self, need);
    }
}
