//! The four rings that a socket shares with the system: producer and consumer numbers, and a power
//! of two of entries.
//!
//! Each number is written by one side alone. The producer fills entries and then stores its number
//! with *release*; the consumer loads it with *acquire*, copies the entries out and then stores its
//! own. Both keep what they last saw of the other's, so that a burst costs one load and one store.
//! The numbers run over and are masked; whatever the other side stores, no access leaves the ring.
//!
//! Source: Linux `include/uapi/linux/if_xdp.h`, `Documentation/networking/af_xdp.rst` (Rings).

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpDesc, XdpRingOffset};

/// Flag of the fill and sending rings: the system waits to be woken.
const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// Entry of a ring: plain data in which any octets are valid.
///
/// # Safety
/// Holds of the type.
pub(crate) unsafe trait Entry: Copy {}

// SAFETY: integers.
unsafe impl Entry for u64 {}

// SAFETY: integers; the options are a `repr(transparent)` set of bits that keeps unknown ones.
unsafe impl Entry for XdpDesc {}

/// Memory of a ring, and where its parts lie in it.
pub(crate) struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    mapping: (NonNull<u8>, usize),
    is_mapped: bool,
    _owns: PhantomData<T>,
}

// SAFETY: the memory belongs to this value alone; shared words are atomic, entries are touched
// through `&mut self`.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Octets that a ring of `size` entries takes.
    fn octets(at: &XdpRingOffset, size: u32) -> Option<usize> {
        let entries = usize::try_from(at.desc).ok()?;
        let octets = entries.checked_add(size_of::<T>().checked_mul(size as usize)?)?;
        let fits = |word: u64| word.is_multiple_of(4) && word < octets as u64;
        let words = [at.producer, at.consumer, at.flags?];
        (words.into_iter().all(fits) && at.desc.is_multiple_of(8) && size.is_power_of_two())
            .then_some(octets)
    }

    /// A ring in the socket's memory at `page`.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        at: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let octets = Self::octets(at, size).ok_or(io::ErrorKind::Unsupported)?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address of the system's choice disturbs nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), octets, protection, flags, socket, page) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the mapping has `octets` octets, begins at a page and is this value's.
        Ok(unsafe { Self::new(base, octets, at, size, true) })
    }

    /// # Safety
    /// `octets` is [`Self::octets`] of the same arguments; that many from `base` on, aligned to 8,
    /// can be read and written by this value until it is dropped, and are a mapping if `is_mapped`.
    unsafe fn new(
        base: NonNull<u8>,
        octets: usize,
        at: &XdpRingOffset,
        size: u32,
        is_mapped: bool,
    ) -> Self {
        // SAFETY: `octets` has been computed so that the offsets lie inside.
        let place = |offset: u64| unsafe { base.add(offset as usize) };
        Self {
            producer: place(at.producer).cast(),
            consumer: place(at.consumer).cast(),
            flags: place(at.flags.unwrap_or(at.producer)).cast(),
            entries: place(at.desc).cast(),
            mask: size - 1,
            mapping: (base, octets),
            is_mapped,
            _owns: PhantomData,
        }
    }

    #[inline]
    fn word(&self, place: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: `place` is one of the three words, mapped while `self` lives and touched through
        // atomics alone.
        unsafe { place.as_ref() }
    }

    /// The place of entry number `at`, whatever it is.
    #[inline]
    fn entry(&self, at: u32) -> NonNull<T> {
        // SAFETY: masked, the number is below the size, and `new`'s contract says that all entries
        // lie in the mapping.
        unsafe { self.entries.add((at & self.mask) as usize) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        if self.is_mapped {
            let (base, octets) = self.mapping;
            // SAFETY: base and length are those of the mapping made by `map`; no borrow of it
            // outlives this value.
            let _never_fails = unsafe { munmap(base.as_ptr().cast::<c_void>(), octets) };
        }
    }
}

/// The end that puts entries in: of a fill or sending ring.
pub(crate) struct Producer<T: Entry> {
    ring: Ring<T>,
    /// Number of the next entry; ahead of the shared number until [`Self::publish`].
    next: u32,
    /// As far as the other side has come, when last looked at.
    consumed: u32,
    published: u32,
}

impl<T: Entry> Producer<T> {
    pub(crate) fn of(ring: Ring<T>) -> Self {
        Self { ring, next: 0, consumed: 0, published: 0 }
    }

    /// Whether one more entry fits.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        let full = |this: &Self| this.next.wrapping_sub(this.consumed) > this.ring.mask;
        if !full(self) {
            return true;
        }
        self.consumed = self.ring.word(self.ring.consumer).load(Ordering::Acquire);
        !full(self)
    }

    /// Puts an entry in, not shown yet. False, and nothing done, if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the place lies in the ring; its entry has been consumed (seen with acquire) and
        // not been shown again, so the other side does not touch it.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the other side all that was put in.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != self.next {
            self.published = self.next;
            self.ring.word(self.ring.producer).store(self.next, Ordering::Release);
        }
    }

    /// Entries shown that the other side has not taken yet.
    #[inline]
    pub(crate) fn waiting(&mut self) -> u32 {
        self.consumed = self.ring.word(self.ring.consumer).load(Ordering::Acquire);
        self.published.wrapping_sub(self.consumed)
    }

    /// Whether the other side sleeps until it is woken by a system call.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        let flags = self.ring.word(self.ring.flags).load(Ordering::Relaxed);
        flags & NEED_WAKEUP != 0
    }
}

/// The end that takes entries out: of a receiving or completion ring.
pub(crate) struct Consumer<T: Entry> {
    ring: Ring<T>,
    /// The next entry to take; ahead of the shared number until [`Self::release`].
    next: u32,
    /// As far as the other side has come, when last looked at.
    produced: u32,
    released: u32,
}

impl<T: Entry> Consumer<T> {
    pub(crate) fn of(ring: Ring<T>) -> Self {
        Self { ring, next: 0, produced: 0, released: 0 }
    }

    /// Whether there is one more entry.
    #[inline]
    pub(crate) fn has_next(&mut self) -> bool {
        if self.next == self.produced {
            self.produced = self.ring.word(self.ring.producer).load(Ordering::Acquire);
        }
        self.next != self.produced
    }

    /// Takes the next entry out.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<T> {
        if !self.has_next() {
            return None;
        }
        // SAFETY: the place lies in the ring and was filled before the producer's number, read with
        // acquire, passed it; the other side writes it again only after `release`.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Number of entries that are known to wait: those that were there when all before them had
    /// been taken.
    #[inline]
    pub(crate) fn known(&self) -> u32 {
        self.produced.wrapping_sub(self.next)
    }

    /// Gives the places of all entries taken back.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.next {
            self.released = self.next;
            self.ring.word(self.ring.consumer).store(self.next, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: XdpRingOffset =
        XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(4) };

    /// Both ends of a ring in plain memory, whose numbers begin at `begin`.
    fn ends(size: u32, begin: u32, memory: &mut Vec<u64>) -> (Producer<u64>, Consumer<u64>) {
        let octets = Ring::<u64>::octets(&AT, size).unwrap();
        memory.resize(octets / 8, 0);
        let base = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
        // SAFETY: the vector has `octets` octets aligned to 8 and is not touched while the ends
        // live, in one thread.
        let ring = || unsafe { Ring::new(base, octets, &AT, size, false) };
        let (mut producer, mut consumer) = (Producer::of(ring()), Consumer::of(ring()));
        for word in [producer.ring.producer, producer.ring.consumer] {
            producer.ring.word(word).store(begin, Ordering::Relaxed);
        }
        (producer.next, producer.consumed, producer.published) = (begin, begin, begin);
        (consumer.next, consumer.produced, consumer.released) = (begin, begin, begin);
        (producer, consumer)
    }

    #[test]
    fn entries_pass_in_order_around_and_over() {
        for begin in [0, 5, u32::MAX - 3] {
            let memory = &mut Vec::new();
            let (mut producer, mut consumer) = ends(4, begin, memory);
            let (mut sent, mut seen) = (0..100, 0);
            while seen < 100 {
                while producer.has_room() {
                    let Some(entry) = sent.next() else { break };
                    assert!(producer.push(entry));
                }
                assert!(consumer.next().is_none(), "nothing is seen before it is shown");
                producer.publish();
                assert!(producer.waiting() > 0);
                while let Some(entry) = consumer.next() {
                    assert_eq!(entry, seen);
                    seen += 1;
                }
                assert!(seen >= 100 || !producer.has_room(), "nor free before it is given back");
                consumer.release();
                assert_eq!(producer.waiting(), 0);
            }
        }
    }

    #[test]
    fn a_full_ring_refuses() {
        let memory = &mut Vec::new();
        let (mut producer, mut consumer) = ends(2, u32::MAX, memory);
        assert!(producer.push(1) && producer.push(2) && !producer.push(3));
        producer.publish();
        assert_eq!(consumer.next(), Some(1));
        assert!(!producer.push(3));
        consumer.release();
        assert!(producer.push(3) && !producer.push(4));
        producer.publish();
        assert_eq!([consumer.next(), consumer.next(), consumer.next()], [Some(2), Some(3), None]);
    }

    #[test]
    fn a_wild_number_leads_nowhere_else() {
        let memory = &mut Vec::new();
        let (mut producer, mut consumer) = ends(2, 0, memory);
        producer.ring.word(producer.ring.producer).store(0x8000_0001, Ordering::Relaxed);
        assert!((0..10).all(|_| consumer.next().is_some()));
        producer.ring.word(producer.ring.consumer).store(77, Ordering::Relaxed);
        let _whatever = producer.push(1);
        producer.ring.word(producer.ring.flags).store(NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn strange_offsets_are_refused() {
        let strange = [
            XdpRingOffset { flags: None, ..AT },
            XdpRingOffset { producer: 2, ..AT },
            XdpRingOffset { desc: 4, ..AT },
            XdpRingOffset { consumer: 1 << 40, ..AT },
            XdpRingOffset { desc: u64::MAX - 7, ..AT },
        ];
        for at in strange {
            assert_eq!(Ring::<u64>::octets(&at, 8), None, "{at:?}");
        }
        assert_eq!(Ring::<u64>::octets(&AT, 7), None);
        assert_eq!(Ring::<XdpDesc>::octets(&AT, 8), Some(256));
    }
}
