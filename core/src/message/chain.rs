//! Operations on the chain of slices: split, join, clone, and the slow paths of the frequent
//! operations.

use core::mem::ManuallyDrop;

use super::config::NoBuffers;
use super::message_unsafe::{Message, release_chain};
use super::node_unsafe::DescRef;
use crate::reason::{self, Reason};

/// Most octets that [`Message::pull_up`] brings together: it is for headers.
pub const PULL_UP_OCTETS_MAX: usize = 256;

/// Why a message was not split. It is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The message has fewer octets.
    #[error("the message has fewer octets")]
    TooShort,
    /// The pool has no descriptor left; counted there.
    #[error("{NoBuffers}")]
    NoBuffers,
}

impl From<NoBuffers> for SplitError {
    fn from(_: NoBuffers) -> Self {
        Self::NoBuffers
    }
}

/// Why the first octets were not brought together. The message is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullUpError {
    /// The message has fewer octets.
    #[error("the message has fewer octets")]
    TooShort,
    /// More than [`PULL_UP_OCTETS_MAX`] asked for.
    #[error("a header has at most {PULL_UP_OCTETS_MAX} octets")]
    TooLong,
    /// The pool is exhausted; counted there.
    #[error("{NoBuffers}")]
    NoBuffers,
}

impl From<PullUpError> for &'static Reason {
    /// The reason for dropping a message whose header could not be brought together.
    fn from(error: PullUpError) -> Self {
        match error {
            PullUpError::NoBuffers => &reason::NO_BUFFERS,
            PullUpError::TooShort | PullUpError::TooLong => &reason::TRUNCATED,
        }
    }
}

impl Message {
    /// The descriptors of the chain, from the front.
    #[inline]
    pub(super) fn descs(&self) -> impl Iterator<Item = DescRef> + use<> {
        core::iter::successors(Some(self.head), |desc| desc.next.get())
    }

    /// Octets of the buffers that this message refers to, headroom and all.
    pub(super) fn buffer_octets(&self) -> usize {
        self.descs().map(|desc| desc.buf.get().capacity as usize).sum()
    }

    /// The last descriptor of the chain.
    #[inline]
    fn last(&self) -> DescRef {
        match (self.head.next.get(), self.head.tail.get()) {
            (Some(_), Some(tail)) => tail,
            _ => self.head,
        }
    }

    /// Sees to it that the next [`push_header`](Self::push_header) calls of `n` octets together
    /// take no buffer.
    ///
    /// # Errors
    /// [`NoBuffers`], counted; the message is unchanged.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> Result<(), NoBuffers> {
        self.head = Self::reserve_slow(self.head, n)?;
        Ok(())
    }

    /// The message with this head, for the slow halves below. They take the head by value and not
    /// the message by reference: one whose address goes nowhere stays in a register, and a layer's
    /// call to the next can be a jump.
    #[inline]
    fn lent(head: DescRef) -> ManuallyDrop<Message> {
        ManuallyDrop::new(Message { head })
    }

    /// [`reserve`](Self::reserve) for the message with this head; answers the head it has then.
    #[cold]
    #[inline(never)]
    pub(super) fn reserve_slow(head: DescRef, n: usize) -> Result<DescRef, NoBuffers> {
        let mut message = Self::lent(head);
        if message.headroom() < n {
            let pool = head.pool;
            let fresh = Self::at_buffer_end(pool, n).ok_or_else(|| pool.count_failure())?;
            fresh.head.skip(n);
            message.put_in_front(fresh);
        }
        Ok(message.head)
    }

    /// Puts `front` in front of this message, whose attributes stay.
    fn put_in_front(&mut self, front: Message) {
        front.head.attributes.copy_from(&self.head.attributes);
        let old = core::mem::replace(self, front);
        self.join_behind(old);
    }

    /// If this head has no octets but the next slice has, drops the head's slice (and with it its
    /// headroom).
    #[inline(never)]
    pub(super) fn pass_empty_head(head: DescRef) {
        if head.len() == 0 {
            Self::drop_head_slice(head);
        }
    }

    /// Drops this head's slice if there is a next one, which takes its place.
    fn drop_head_slice(head: DescRef) -> bool {
        let Some(next) = head.next.get() else {
            return false;
        };
        head.buf.get().release();
        head.move_slice_from(&next);
        // What is taken off from now on lies in another buffer than what was.
        head.room_end.set(core::ptr::null_mut());
        head.rest.set(head.rest.get() - next.len());
        // The tail counts only while there is a next.
        head.next.set(next.next.get());
        next.pool.put_desc(next);
        true
    }

    #[cold]
    #[inline(never)]
    pub(super) fn strip_slow(head: DescRef, n: usize) -> bool {
        if n > Self::lent(head).len() {
            return false;
        }
        let mut left = n;
        while left > head.len() {
            left -= head.len();
            if !Self::drop_head_slice(head) {
                break;
            }
        }
        head.skip(left);
        true
    }

    /// The descriptor in whose slice the octet `at` lies or behind whose slice it would be the
    /// next, and the position in that slice (from 1 on, or from 0 on in the head). `at` is at most
    /// the length.
    fn find(&self, at: usize) -> (DescRef, usize) {
        let mut desc = self.head;
        let mut within = at;
        while within > desc.len()
            && let Some(next) = desc.next.get()
        {
            within -= desc.len();
            desc = next;
        }
        (desc, within)
    }

    /// Makes `desc`, of this chain, the last; everything behind it is the caller's. `len` octets
    /// are kept.
    fn end_at(&mut self, desc: DescRef, len: usize) -> Option<DescRef> {
        let behind = desc.next.replace(None);
        self.head.tail.set(Some(desc));
        self.head.rest.set(len - self.head.len());
        behind
    }

    #[cold]
    #[inline(never)]
    pub(super) fn truncate_slow(head: DescRef, n: usize) {
        let mut message = Self::lent(head);
        if n >= message.len() {
            return;
        }
        let (desc, within) = message.find(n);
        desc.len.set(within as u32);
        if let Some(behind) = message.end_at(desc, n) {
            release_chain(behind);
        }
    }

    /// Keeps the first `at` octets and answers the others, as a message of their own on the same
    /// buffers. Both carry the attributes. The front part keeps the headroom; the back part gets
    /// none as long as the front part, or a clone, holds the buffer.
    ///
    /// # Errors
    /// [`SplitError`]; the message is unchanged.
    pub fn split_off(&mut self, at: usize) -> Result<Message, SplitError> {
        let len = self.len();
        if at > len {
            return Err(SplitError::TooShort);
        }
        let last = self.last();
        let (desc, within) = self.find(at);
        let back = match desc.next.get() {
            Some(next) if within == desc.len() => next,
            next => {
                let back = self.share(desc)?;
                back.skip(within);
                back.next.set(next);
                desc.len.set(within as u32);
                desc.limit_room(desc.end());
                back
            }
        };
        self.end_at(desc, at);
        back.rest.set(len - at - back.len());
        back.tail.set(Some(last));
        back.attributes.copy_from(&self.head.attributes);
        Ok(Message { head: back })
    }

    /// Takes the first `n` octets off and answers them, as a message of their own on the same
    /// buffers. Both carry the attributes; the headroom goes with the answer. See
    /// [`split_off`](Self::split_off).
    ///
    /// # Errors
    /// [`SplitError`]; the message is unchanged.
    pub fn split_front(&mut self, n: usize) -> Result<Message, SplitError> {
        let back = self.split_off(n)?;
        Ok(core::mem::replace(self, back))
    }

    /// A new descriptor that sees what `desc` sees and owns nothing of the room in front of it.
    fn share(&self, desc: DescRef) -> Result<DescRef, NoBuffers> {
        let pool = desc.pool;
        let buf = desc.buf.get();
        if !buf.retain() {
            return Err(pool.count_failure());
        }
        let Some(shared) = pool.take_desc(buf) else {
            buf.release();
            return Err(pool.count_failure());
        };
        shared.move_slice_from(&desc);
        shared.room_end.set(core::ptr::null_mut());
        shared.next.set(None);
        Ok(shared)
    }

    /// Another message of the same octets, on the same buffers, with the same attributes. The
    /// headroom stays with this one; the clone gets none as long as this one holds the buffer.
    ///
    /// # Errors
    /// [`NoBuffers`], counted.
    pub fn try_clone(&self) -> Result<Message, NoBuffers> {
        let head = self.share(self.head)?;
        head.rest.set(0);
        head.attributes.copy_from(&self.head.attributes);
        let clone = Message { head };
        let mut last = head;
        for desc in self.descs().skip(1) {
            // On failure the clone so far is dropped as a whole chain.
            let shared = self.share(desc)?;
            last.next.set(Some(shared));
            last = shared;
        }
        head.tail.set(Some(last));
        head.rest.set(self.head.rest.get());
        for desc in self.descs() {
            desc.limit_room(desc.data.get());
        }
        Ok(clone)
    }

    /// Another message of the `len` octets from `at` on, on the same buffers, without attributes.
    /// See [`try_clone`](Self::try_clone), which it is like in all else.
    ///
    /// # Errors
    /// [`SplitError`]; the message is unchanged.
    pub fn try_clone_part(&self, at: usize, len: usize) -> Result<Message, SplitError> {
        if at.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(SplitError::TooShort);
        }
        let (mut desc, mut within) = self.find(at);
        if within == desc.len()
            && len > 0
            && let Some(next) = desc.next.get()
        {
            (desc, within) = (next, 0);
        }
        let head = self.share(desc)?;
        desc.limit_room(desc.data.get());
        head.skip(within);
        head.rest.set(0);
        head.attributes.clear();
        let clone = Message { head };
        let mut last = head;
        let mut left = len;
        while left > last.len()
            && let Some(next) = desc.next.get()
        {
            left -= last.len();
            desc = next;
            // On failure the clone so far is dropped as a whole chain.
            let shared = self.share(desc)?;
            desc.limit_room(desc.data.get());
            last.next.set(Some(shared));
            last = shared;
        }
        last.len.set(left as u32);
        head.tail.set(Some(last));
        head.rest.set(len - head.len());
        Ok(clone)
    }

    /// Puts `other` behind this message, in constant time. This message's attributes stay,
    /// `other`'s are dropped. Slices that are neighbours in the same buffer become one again.
    #[inline]
    pub fn join(&mut self, other: Message) {
        if self.is_empty() && self.headroom() == 0 && !other.is_empty() {
            other.head.attributes.copy_from(&self.head.attributes);
            *self = other;
        } else {
            self.join_behind(other);
        }
    }

    fn join_behind(&mut self, other: Message) {
        Self::pass_empty_head(other.head);
        if other.is_empty() {
            return;
        }
        let (head, last) = (self.head, self.last());
        let (other_len, other_last) = (other.len(), other.last());
        let first = other.into_head();
        let merges = last.buf.get() == first.buf.get() && last.end() == first.data.get();
        head.rest.set(head.rest.get() + other_len);
        if !merges {
            last.next.set(Some(first));
            head.tail.set(Some(other_last));
            return;
        }
        last.len.set(last.len.get() + first.len.get());
        if last == head {
            head.rest.set(head.rest.get() - first.len());
        }
        last.next.set(first.next.get());
        head.tail.set(Some(if other_last == first { last } else { other_last }));
        first.release();
    }

    /// Puts zeros behind the message until it has `len` octets: in its buffer if there is room that
    /// no other message sees, else in one of their own.
    ///
    /// # Errors
    /// [`NoBuffers`], counted; the message is unchanged.
    #[cold]
    pub fn pad(&mut self, len: usize) -> Result<(), NoBuffers> {
        let short = len.saturating_sub(self.len());
        if short == 0 || self.put_zeros(short, short) {
            return Ok(());
        }
        let pool = self.head.pool;
        let mut zeros = Self::in_one_buffer(pool, 0, short).ok_or_else(|| pool.count_failure())?;
        if let Some(octets) = zeros.front_mut() {
            octets.fill(0);
        }
        self.join(zeros);
        Ok(())
    }

    /// Brings the first `n` octets together, so that [`peek_slice`](Self::peek_slice) shows them:
    /// copies them into a buffer of their own unless they lie together already.
    ///
    /// # Errors
    /// [`PullUpError`]; the message is unchanged.
    #[inline]
    pub fn pull_up(&mut self, n: usize) -> Result<(), PullUpError> {
        if n > self.head.len() {
            self.head = Self::pull_up_slow(self.head, n)?;
        }
        Ok(())
    }

    /// The first `N` octets, brought together as by [`pull_up`](Self::pull_up). They stay in the
    /// message: [`strip`](Self::strip) takes them off, whichever slice they lie in.
    ///
    /// # Errors
    /// [`PullUpError`]; the message is unchanged.
    #[inline]
    pub fn header<const N: usize>(&mut self) -> Result<[u8; N], PullUpError> {
        match self.peek_in_place() {
            Some(header) => Ok(*header),
            None => self.header_in_pieces(),
        }
    }

    #[cold]
    fn header_in_pieces<const N: usize>(&mut self) -> Result<[u8; N], PullUpError> {
        self.pull_up(N)?;
        self.peek().copied().ok_or(PullUpError::TooShort)
    }

    #[cold]
    #[inline(never)]
    fn pull_up_slow(head: DescRef, n: usize) -> Result<DescRef, PullUpError> {
        let mut message = Self::lent(head);
        if n > message.len() {
            return Err(PullUpError::TooShort);
        }
        if n <= message.front_slice().len() {
            return Ok(head);
        }
        if n > PULL_UP_OCTETS_MAX {
            return Err(PullUpError::TooLong);
        }
        let pool = head.pool;
        let failure = |_| PullUpError::NoBuffers;
        // In front of the octets lies nothing that `uncover` could take for octets taken off.
        let mut fresh =
            Self::in_one_buffer(pool, 0, n).ok_or_else(|| pool.count_failure()).map_err(failure)?;
        if let Some(header) = fresh.front_mut() {
            message.copy_to(0, header);
        }
        Self::strip_slow(head, n);
        message.put_in_front(fresh);
        Ok(message.head)
    }
}
