//! The message itself: what every layer does with every message.

use core::mem::ManuallyDrop;

use super::attribute::{ATTRIBUTE_OCTETS, Attribute, AttributesFull};
use super::config::NoBuffers;
use super::node_unsafe::{CoreRef, DescRef};
use super::pool_unsafe::Pool;

/// Octets on their way through the layers: one pointer wide, moved and never shared.
///
/// Behind it lies a chain of counted slices of pooled buffers. Taking headers off the front and
/// putting them on, cutting at both ends, splitting, joining and cloning copy no octets.
///
/// ```compile_fail,E0277
/// fn needs_send<T: Send>() {}
/// needs_send::<xk_core::message::Message>();
/// ```
pub struct Message {
    /// First of the chain. This message owns the whole chain: no other message refers to any node
    /// of it.
    pub(super) head: DescRef,
}

const _: () = assert!(size_of::<Option<Message>>() == size_of::<usize>());

impl Message {
    /// A message in one buffer of `pool`, `start` octets behind the buffer's first. Counts no
    /// failure.
    #[inline]
    pub(super) fn in_one_buffer(pool: CoreRef, start: usize, len: usize) -> Option<Self> {
        let (head, octets) = pool.take_both(start.checked_add(len)?)?;
        let base = head.base.get();
        head.data.set(base.wrapping_add(start));
        head.room_end.set(base.wrapping_add(octets));
        head.len.set(len as u32);
        head.next.set(None);
        head.rest.set(0);
        head.attributes.clear();
        Some(Self { head })
    }

    /// A message of `len` octets at the end of a buffer of `pool`: all that is left over is
    /// headroom.
    pub(super) fn at_buffer_end(pool: CoreRef, len: usize) -> Option<Self> {
        let message = Self::in_one_buffer(pool, 0, len)?;
        let head = message.head;
        let start = head.buf.get().capacity as usize - len;
        head.data.set(head.base.get().wrapping_add(start));
        Some(message)
    }

    /// Octets in the message.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.head.rest.get()
    }

    /// Whether the message has no octets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets that [`push_header`](Self::push_header) can still put in front without taking a
    /// buffer.
    #[inline]
    pub fn headroom(&self) -> usize {
        let head = self.head;
        if !head.owns_room() {
            head.refresh_room();
        }
        if head.owns_room() { head.room() } else { 0 }
    }

    /// Puts `n` octets in front of the message, for the caller to fill: all of them, for they hold
    /// what lay there before. Lies in the headroom if that is large enough and this message's
    /// alone, else in a fresh buffer.
    ///
    /// # Errors
    /// [`NoBuffers`], counted; the message is unchanged.
    #[inline]
    pub fn push_header(&mut self, n: usize) -> Result<&mut [u8], NoBuffers> {
        if n > self.head.room() || !self.head.owns_room() {
            self.head = Self::reserve_slow(self.head, n)?;
        }
        let head = self.head;
        let start = head.data.get().wrapping_sub(n);
        head.data.set(start);
        head.len.set(head.len.get() + n as u32);
        // SAFETY: `start..start+n` is initialised memory inside the head's buffer, and this
        // descriptor alone may see or write it (Desc's invariant, tested above or made true by
        // `reserve`); the message is borrowed for as long.
        Ok(unsafe { core::slice::from_raw_parts_mut(start, n) })
    }

    /// Puts `octets` in front of the message. See [`push_header`](Self::push_header).
    ///
    /// # Errors
    /// [`NoBuffers`], counted; the message is unchanged.
    #[inline]
    pub fn push_array<const N: usize>(&mut self, octets: &[u8; N]) -> Result<(), NoBuffers> {
        self.push_header(N)?.copy_from_slice(octets);
        Ok(())
    }

    /// Puts `octets` in front of the message if there is room for them; false, and nothing is
    /// changed, if that would take a buffer: then [`push_array`](Self::push_array) does it. For the
    /// way that almost every message takes.
    #[inline]
    #[must_use]
    pub fn push_in_place<const N: usize>(&mut self, octets: &[u8; N]) -> bool {
        self.fill_in_place(|room: &mut [u8; N]| *room = *octets)
    }

    /// True if there is room in front for `n` octets that no other message sees: then
    /// [`push_in_place`](Self::push_in_place) does it.
    #[inline]
    pub fn has_room(&self, n: usize) -> bool {
        n <= self.head.room() && self.head.owns_room()
    }

    /// Puts `N` octets in front that `fill` writes: all of them, for they hold what lay there
    /// before.
    #[inline(always)]
    #[must_use]
    pub fn fill_in_place<const N: usize>(&mut self, fill: impl FnOnce(&mut [u8; N])) -> bool {
        let head = self.head;
        if !self.has_room(N) {
            return false;
        }
        let start = head.data.get().wrapping_sub(N);
        head.data.set(start);
        head.len.set(head.len.get() + N as u32);
        // SAFETY: as in `push_header`: `start..start+N` is initialised memory inside the head's
        // buffer, which this descriptor alone may see or write, and the message is borrowed for as
        // long.
        fill(unsafe { &mut *start.cast::<[u8; N]>() });
        true
    }

    /// Has the processor fetch the first octets, for a layer that reads them soon. Changes nothing.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing that the program sees, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.head.data.get().cast()) };
        }
    }

    /// The octets of one slice of the chain.
    #[inline]
    pub(super) fn octets_of(&self, desc: DescRef) -> &[u8] {
        // SAFETY: `desc` is of this message's chain, so its slice is initialised memory inside a
        // buffer that it counts (Desc's invariant). Nothing writes what a descriptor sees except
        // through `&mut self` of its only message, and only while no other descriptor sees it.
        unsafe { core::slice::from_raw_parts(desc.data.get(), desc.len()) }
    }

    /// The first slice that has octets; an empty one if the message is empty.
    #[inline]
    fn front(&self) -> DescRef {
        match self.head.next.get() {
            Some(next) if self.head.len() == 0 => next,
            _ => self.head,
        }
    }

    /// The first octets, as many as lie together. Empty only if the message is.
    #[inline]
    pub fn front_slice(&self) -> &[u8] {
        self.octets_of(self.front())
    }

    /// All octets, if the message has no more than one slice.
    #[inline]
    pub fn single_slice(&self) -> Option<&[u8]> {
        match self.head.next.get() {
            None => Some(self.octets_of(self.head)),
            Some(_) => None,
        }
    }

    /// The first octets, as many as lie together, for writing; none if another message sees the
    /// same buffer.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut [u8]> {
        let front = self.front();
        self.octets_of_mut(front)
    }

    /// The octets of one slice of the chain, for writing; none if the buffer has another reference.
    #[inline]
    pub(super) fn octets_of_mut(&mut self, desc: DescRef) -> Option<&mut [u8]> {
        if desc.buf.get().refs.get() != 1 {
            return None;
        }
        // SAFETY: `desc` is of this message's chain (see `octets_of`) and the only one that refers
        // to the buffer; the message is borrowed mutably for as long.
        Some(unsafe { core::slice::from_raw_parts_mut(desc.data.get(), desc.len()) })
    }

    /// The first `N` octets, if they lie together (else see [`pull_up`](Self::pull_up)).
    #[inline]
    pub fn peek<const N: usize>(&self) -> Option<&[u8; N]> {
        if self.head.len() >= N {
            return self.octets_of(self.head).first_chunk();
        }
        self.front_slice().first_chunk()
    }

    /// The first `N` octets if the first slice, be it empty, has them; [`peek`](Self::peek) finds
    /// them in more cases. For the way that almost every message takes.
    #[inline]
    pub fn peek_in_place<const N: usize>(&self) -> Option<&[u8; N]> {
        if self.head.len() < N {
            return None;
        }
        let start = self.head.data.get();
        // SAFETY: a slice with octets lies in a buffer, so its start is not null; for the rest see
        // `octets_of`.
        unsafe {
            core::hint::assert_unchecked(!start.is_null());
            Some(&*start.cast::<[u8; N]>())
        }
    }

    /// The `N` octets behind the first `n`, if the first slice has all of them.
    #[inline]
    pub fn peek_behind<const N: usize>(&self, n: usize) -> Option<&[u8; N]> {
        if self.head.len() < n.saturating_add(N) {
            return None;
        }
        let start = self.head.data.get().wrapping_add(n);
        // SAFETY: as in `peek_in_place`; `n` and the `N` octets behind it lie inside the slice.
        unsafe {
            core::hint::assert_unchecked(!start.is_null());
            Some(&*start.cast::<[u8; N]>())
        }
    }

    /// The first `n` octets, if they lie together (else see [`pull_up`](Self::pull_up)).
    #[inline]
    pub fn peek_slice(&self, n: usize) -> Option<&[u8]> {
        self.front_slice().get(..n)
    }

    /// Takes the first `n` octets off and shows them, if they lie together (else see
    /// [`pull_up`](Self::pull_up)); otherwise the message is unchanged. Their room is headroom
    /// again, as far as no other message sees it.
    #[inline]
    pub fn pop_header(&mut self, n: usize) -> Option<&[u8]> {
        if n > self.head.len() {
            Self::pass_empty_head(self.head);
            if n > self.head.len() {
                return None;
            }
        }
        let head = self.head;
        let start = head.data.get();
        head.skip(n);
        // SAFETY: `start..start+n` was in the head's slice until now (see `octets_of`). The head
        // still holds the buffer, even when its slice is empty now, and the message is borrowed for
        // as long, so nothing writes there.
        Some(unsafe { core::slice::from_raw_parts(start, n) })
    }

    /// Takes the first `N` octets off and shows them. See [`pop_header`](Self::pop_header).
    #[inline]
    pub fn pop_array<const N: usize>(&mut self) -> Option<&[u8; N]> {
        self.pop_header(N)?.first_chunk()
    }

    /// Drops the first `n` octets; false, and nothing is changed, if there are not so many.
    #[inline]
    #[must_use]
    pub fn strip(&mut self, n: usize) -> bool {
        if n <= self.head.len() {
            self.head.skip(n);
            return true;
        }
        Self::strip_slow(self.head, n)
    }

    /// Drops the first `n` octets if the first slice has them; false, and nothing is changed, if it
    /// has not. Goes with [`peek_in_place`](Self::peek_in_place).
    #[inline]
    pub fn strip_in_place(&mut self, n: usize) -> bool {
        let seen = n <= self.head.len();
        if seen {
            self.head.skip(n);
        }
        seen
    }

    /// Finds the `n` octets again that were last taken off the front; false, and nothing is
    /// changed, if they are not there any more: they lay in a slice that is gone, or this message
    /// does not own what lies in front of it (a clone, or the back part of a split; what another
    /// domain has lent is written by nothing, and always found).
    ///
    /// Holds for as many octets as were taken off since the pool made the message, and only until
    /// something is written in front or the message is joined to an empty one: the caller knows of
    /// that. What a receiver above may have done with the message it does not know, so it checks
    /// what it finds like what arrives.
    #[inline]
    #[must_use]
    pub fn uncover(&mut self, n: usize) -> bool {
        let head = self.head;
        let is_there = n <= head.room() && head.keeps_front();
        if is_there {
            head.data.set(head.data.get().wrapping_sub(n));
            head.len.set(head.len.get() + n as u32);
        }
        is_there
    }

    /// Puts zeros behind a message of fewer octets until it has `LEN`, if behind its only slice
    /// there is room for as many that no other message sees; false, and nothing is changed,
    /// otherwise: then [`pad`](Self::pad) does it. For the way that almost every short message
    /// takes.
    #[inline(always)]
    #[must_use]
    pub fn pad_in_place<const LEN: usize>(&mut self) -> bool {
        // As many zeros whatever is missing: a few stores, and no call.
        self.put_zeros(LEN, LEN.saturating_sub(self.head.len()))
    }

    /// Writes so many zeros behind the only slice, and lengthens it by `octets` of them; false,
    /// and nothing is changed, if its buffer has no room for them or another message sees that.
    #[inline(always)]
    pub(super) fn put_zeros(&mut self, zeros: usize, octets: usize) -> bool {
        let (head, buf) = (self.head, self.head.buf.get());
        let room = || buf.capacity as usize - (head.end().addr() - buf.base.addr());
        if head.next.get().is_some() || buf.refs.get() != 1 || zeros > room() {
            return false;
        }
        // SAFETY: `zeros` octets behind the slice lie inside its buffer, of which this descriptor
        // holds the only reference (Desc's invariant: then it may write everything); the message is
        // borrowed mutably.
        unsafe { core::ptr::write_bytes(head.end(), 0, zeros) };
        head.len.set(head.len.get() + octets.min(zeros) as u32);
        true
    }

    /// Keeps the first `n` octets and drops what is behind them; does nothing if there are not so
    /// many.
    #[inline]
    pub fn truncate(&mut self, n: usize) {
        if self.head.next.get().is_none() {
            if n < self.head.len() {
                self.head.len.set(n as u32);
            }
        } else {
            Self::truncate_slow(self.head, n);
        }
    }

    /// Attaches `attribute`, in place of another of its type.
    ///
    /// # Errors
    /// [`AttributesFull`]; nothing is changed.
    #[inline]
    pub fn set_attribute<A: Attribute>(&mut self, attribute: A) -> Result<(), AttributesFull> {
        self.head.attributes.set(A::KEY, attribute.encode())
    }

    /// Whether there is any attribute.
    #[inline]
    pub fn has_attributes(&self) -> bool {
        self.head.attributes.len() != 0
    }

    /// The attribute of type `A`, if there is one.
    #[inline]
    pub fn attribute<A: Attribute>(&self) -> Option<A> {
        self.head.attributes.get(A::KEY).map(A::decode)
    }

    /// Takes the attribute of type `A` off.
    #[inline]
    pub fn remove_attribute<A: Attribute>(&mut self) -> Option<A> {
        self.head.attributes.remove(A::KEY).map(A::decode)
    }

    /// All attributes as they cross into another address space: key and encoded value.
    pub fn attributes_encoded(&self) -> impl Iterator<Item = (u32, [u8; ATTRIBUTE_OCTETS])> + '_ {
        self.head.attributes.iter()
    }

    /// Attaches an attribute that came from another address space.
    ///
    /// # Errors
    /// [`AttributesFull`]; nothing is changed.
    pub fn set_attribute_encoded(
        &mut self,
        key: u32,
        value: [u8; ATTRIBUTE_OCTETS],
    ) -> Result<(), AttributesFull> {
        self.head.attributes.set(key, value)
    }

    /// Takes all attributes off.
    pub fn clear_attributes(&mut self) {
        self.head.attributes.clear();
    }

    /// Whether all octets lie in buffers of `pool`, so that a process that shares its arena can
    /// find them.
    pub fn lies_in(&self, pool: &Pool) -> bool {
        self.descs().all(|desc| desc.buf.get().pool == pool.core())
    }
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        if self.head.next.get().is_none() {
            self.head.release();
        } else {
            release_chain(self.head);
        }
    }
}

/// Gives back every descriptor of a chain.
#[inline(never)]
pub(super) fn release_chain(first: DescRef) {
    let mut next = Some(first);
    while let Some(desc) = next {
        next = desc.next.get();
        desc.release();
    }
}

impl Message {
    /// The chain of this message, without giving it back.
    #[inline]
    pub(super) fn into_head(self) -> DescRef {
        ManuallyDrop::new(self).head
    }
}
