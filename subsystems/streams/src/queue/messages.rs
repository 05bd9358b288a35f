//! Messages of a queue: their order, and what putting, getting and flushing do to flow control.

use super::{Band, Q, QFULL, QNOENB, QWANTR, QWANTW};
use crate::block::{Kind, Mblk};
use alloc::collections::VecDeque;
use xk_core::Kernel;

/// Messages to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Data and control of protocols (FLUSHDATA).
    Data,
    /// All (FLUSHALL).
    All,
}

/// Class of a message in its queue: high priority first, then bands 255 to 1, then band 0.
fn class(mp: &Mblk) -> u16 {
    if mp.kind().is_high() { 256 } else { u16::from(mp.band) }
}

impl Q {
    /// Puts a message into the queue, behind all of its priority; it is never refused (`putq`). The
    /// queue is enabled if the message is of high priority, or if ordinary messages enable it and a
    /// reader has found it empty, or the message is the first of a band above 0.
    pub fn putq(&self, cx: &Kernel, mp: Mblk) {
        let class = class(&mp);
        self.add(&mp);
        let mut messages = self.queue().messages.borrow_mut();
        let at = match messages.back() {
            Some(last) if self::class(last) < class => {
                messages.iter().position(|other| self::class(other) < class).unwrap_or(0)
            }
            _ => messages.len(),
        };
        if at == messages.len() {
            messages.push_back(mp);
        } else {
            messages.insert(at, mp);
        }
        drop(messages);
        let may = class == 256 || self.flags() & QNOENB == 0;
        let must = class == 256 || self.flags() & QWANTR != 0 || class > 0 && at == 0;
        if may && must {
            self.qenable(cx);
        }
    }

    /// Puts a message back to the front of those of its priority (`putbq`). It enables as
    /// [`putq`](Self::putq) does.
    pub fn putbq(&self, cx: &Kernel, mp: Mblk) {
        let class = class(&mp);
        self.add(&mp);
        let mut messages = self.queue().messages.borrow_mut();
        let at = messages.iter().position(|other| self::class(other) <= class);
        let at = at.unwrap_or(messages.len());
        messages.insert(at, mp);
        drop(messages);
        let is_wanted = self.flags() & QNOENB == 0 && self.flags() & QWANTR != 0;
        if class == 256 || is_wanted {
            self.qenable(cx);
        }
    }

    /// Puts a message in front of the one at place `at`, or last (`insq`); false, and the message
    /// is freed, if the order of priorities forbids it there.
    #[must_use]
    pub fn insq(&self, cx: &Kernel, at: usize, mp: Mblk) -> bool {
        let class = class(&mp);
        let mut messages = self.queue().messages.borrow_mut();
        let at = at.min(messages.len());
        let behind = messages.get(at).is_none_or(|other| self::class(other) <= class);
        let before = at.checked_sub(1).and_then(|at| messages.get(at));
        if !behind || before.is_some_and(|other| self::class(other) < class) {
            return false;
        }
        self.add(&mp);
        messages.insert(at, mp);
        drop(messages);
        if class == 256 || self.flags() & QNOENB == 0 && self.flags() & QWANTR != 0 {
            self.qenable(cx);
        }
        true
    }

    /// Takes the first message; when that makes room that a writer waits for, the nearest queue
    /// behind with a service procedure is enabled (`getq`). An empty queue remembers the reader.
    pub fn getq(&self, cx: &Kernel) -> Option<Mblk> {
        let first = self.queue().messages.borrow_mut().pop_front();
        let Some(mp) = first else {
            self.set_flag(QWANTR);
            return None;
        };
        self.clear_flag(QWANTR);
        self.take_off(cx, &mp);
        Some(mp)
    }

    /// Takes the message at place `at` out (`rmvq`).
    pub fn rmvq(&self, cx: &Kernel, at: usize) -> Option<Mblk> {
        let mp = self.queue().messages.borrow_mut().remove(at)?;
        self.take_off(cx, &mp);
        Some(mp)
    }

    /// Frees messages of all bands (`flushq`); answers how many.
    pub fn flushq(&self, cx: &Kernel, what: What) -> usize {
        let flushed = self.flush_if(|mp| what == What::All || mp.kind().is_data());
        self.take_off_all(cx, &flushed);
        flushed.len()
    }

    /// Frees messages of one band, of band 0 all that have none and are not of high priority
    /// (`flushband`); answers how many.
    pub fn flushband(&self, cx: &Kernel, band: u8, what: What) -> usize {
        let flushed = self.flush_if(|mp| {
            let is_of_band = class(mp) == u16::from(band);
            is_of_band && (what == What::All || mp.kind().is_data())
        });
        self.take_off_all(cx, &flushed);
        flushed.len()
    }

    fn flush_if(&self, is_flushed: impl Fn(&Mblk) -> bool) -> VecDeque<Mblk> {
        let mut messages = self.queue().messages.borrow_mut();
        if messages.iter().all(&is_flushed) {
            return core::mem::take(&mut *messages);
        }
        let (flushed, kept) =
            core::mem::take(&mut *messages).into_iter().partition(|mp| is_flushed(mp));
        *messages = kept;
        flushed
    }

    fn take_off_all(&self, cx: &Kernel, flushed: &VecDeque<Mblk>) {
        for mp in flushed {
            self.take_off(cx, mp);
        }
        self.core().add_flushed(flushed.len());
        // A queue whose waiting writer came while it was empty.
        self.relieve(cx);
    }

    /// Looks at the first message, or the one at place `at`.
    pub fn peek<T>(&self, at: usize, look: impl FnOnce(&Mblk) -> T) -> Option<T> {
        self.queue().messages.borrow().get(at).map(look)
    }

    /// Looks at all messages in their order.
    pub fn each(&self, mut look: impl FnMut(&Mblk)) {
        self.queue().messages.borrow().iter().for_each(&mut look);
    }

    /// Number of waiting messages (`qsize`).
    pub fn qsize(&self) -> usize {
        self.queue().messages.borrow().len()
    }

    /// Octets of the messages of band 0 and of high priority that wait.
    pub fn count(&self) -> usize {
        self.queue().count.get()
    }

    /// Octets of the messages of a band that wait.
    pub fn band_count(&self, band: u8) -> usize {
        match band {
            0 => self.count(),
            _ => self.with_band(band, |band| band.count),
        }
    }

    /// Sets the marks of one band.
    pub fn set_band_marks(&self, band: u8, hiwat: Option<u32>, lowat: Option<u32>) {
        if band == 0 {
            return self.set_marks(hiwat, lowat);
        }
        self.with_band(band, |band| {
            band.hiwat = hiwat.unwrap_or(band.hiwat);
            band.lowat = lowat.unwrap_or(band.lowat);
        });
    }

    /// Does something with the record of a band above 0, which is made if there is none.
    pub(super) fn with_band<T>(&self, band: u8, act: impl FnOnce(&mut Band) -> T) -> T {
        let (hiwat, lowat) = self.marks();
        let mut bands = self.queue().bands.borrow_mut();
        let at = bands.partition_point(|known| known.band < band);
        if bands.get(at).is_none_or(|known| known.band != band) {
            bands.insert(at, Band { band, hiwat, lowat, ..Band::default() });
        }
        act(&mut bands[at])
    }

    /// Counts a message in.
    fn add(&self, mp: &Mblk) {
        let octets = mp.size();
        if class(mp) == 256 || mp.band == 0 {
            let queue = self.queue();
            let count = queue.count.get() + octets;
            queue.count.set(count);
            if count > self.figures().octets_max {
                self.figure(|figures| figures.octets_max = count);
            }
            if count >= queue.hiwat.get() as usize {
                self.set_flag(QFULL);
            }
        } else {
            self.with_band(mp.band, |band| {
                band.count += octets;
                band.is_full |= band.count >= band.hiwat as usize;
            });
        }
    }

    /// Counts a message out, and enables the queue behind if it waits for the room.
    fn take_off(&self, cx: &Kernel, mp: &Mblk) {
        let octets = mp.size();
        if class(mp) == 256 || mp.band == 0 {
            let queue = self.queue();
            let count = queue.count.get().saturating_sub(octets);
            queue.count.set(count);
            if count < queue.hiwat.get() as usize {
                self.clear_flag(QFULL);
            }
            if self.flags() & QWANTW != 0 {
                self.relieve(cx);
            }
        } else {
            let wanted = self.with_band(mp.band, |band| {
                band.count = band.count.saturating_sub(octets);
                band.is_full &= band.count >= band.hiwat as usize;
                let is_low = band.lowat == 0 || band.count < band.lowat as usize;
                let wanted = band.is_wanted && is_low;
                band.is_wanted &= !wanted;
                wanted
            });
            if wanted {
                self.tell_room(cx);
            }
        }
    }

    /// If a writer waits for room in band 0 and there is enough, enables the queue behind.
    fn relieve(&self, cx: &Kernel) {
        let (lowat, count) = (self.marks().1 as usize, self.count());
        if self.flags() & QWANTW != 0 && (lowat == 0 || count < lowat) {
            self.clear_flag(QWANTW);
            self.tell_room(cx);
        }
    }

    /// Enables the queue behind, whose writer has waited for the room that there is.
    fn tell_room(&self, cx: &Kernel) {
        self.figure(|figures| figures.back_enables += 1);
        self.core().add_back_enable();
        self.backenable(cx);
    }

    /// Whether this message's octets are the type of data that a put procedure passes on when
    /// nothing waits in front: the queue is empty and there is room ahead.
    pub fn may_pass(&self, mp: &Mblk) -> bool {
        mp.kind().is_high() || self.qsize() == 0 && self.bcanputnext(mp.band)
    }

    /// Treats M_FLUSH for put procedures of modules with service procedures: flushes this pair as
    /// the message says; answers which queues it names, read and write.
    pub fn flush_pair(&self, cx: &Kernel, mp: &Mblk, what: What) -> (bool, bool) {
        debug_assert_eq!(mp.kind(), Kind::Flush);
        let octets = mp.octets();
        let bits = octets.first().copied().unwrap_or(0);
        let band = if bits & FLUSHBAND == 0 { None } else { octets.get(1).copied() };
        let flush = |q: Q| match band {
            Some(band) => q.flushband(cx, band, what),
            None => q.flushq(cx, what),
        };
        let named = (bits & FLUSHR != 0, bits & FLUSHW != 0);
        if named.0 {
            flush(self.read_side());
        }
        if named.1 {
            flush(self.write_side());
        }
        named
    }

    /// Treats M_FLUSH for the driver's write put procedure: flushes what it names, and sends it
    /// back up for the read side.
    pub fn flush_at_driver(&self, cx: &Kernel, mut mp: Mblk) {
        let (reads, _) = self.flush_pair(cx, &mp, What::Data);
        if reads && let Some(first) = mp.octets_mut().and_then(|octets| octets.first_mut()) {
            *first &= !FLUSHW;
            self.read_side().putnext(cx, mp);
        }
    }
}

/// M_FLUSH: the read queues.
pub const FLUSHR: u8 = 1;
/// M_FLUSH: the write queues.
pub const FLUSHW: u8 = 2;
/// M_FLUSH: both.
pub const FLUSHRW: u8 = 3;
/// M_FLUSH: only the band that the second octet names.
pub const FLUSHBAND: u8 = 4;
