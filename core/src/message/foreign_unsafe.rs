//! Messages over octets of another pool's arena: what another domain has lent.
//!
//! The domain that lends keeps each message that it has lent in a [`Loans`](super::Loans); only it
//! writes its arena. The other one sees the arena through a [`View`] and wraps the lent octets in
//! messages of its own, whose descriptors come from its own pool. Nothing is ever written through
//! them: no message has a foreign buffer to itself, so a header goes into a fresh buffer in front.
//! When the last reference is gone the loan is in a list, which goes back to the lender.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::ptr::NonNull;

use super::config::NoBuffers;
use super::message_unsafe::Message;
use super::node_unsafe::{BufRef, CoreRef};
use super::pool_unsafe::Pool;

/// Octets in front of what is copied, free for headers.
const HEADROOM: usize = 128;

/// The arena of another pool, as this side sees it.
///
/// # Safety
/// While the view lives, at whatever place it is moved to:
/// - [`region`](Self::region) answers the same as before, and all octets of the region are
///   initialised memory that can be read,
/// - octets for which [`is_steady`](Self::is_steady) answered true are written by nothing, in this
///   program or another, until [`Foreign::returned`] has answered with their loan.
pub unsafe trait View {
    /// The first octet and how many there are: the lender's
    /// [`Pool::region`](super::Pool::region), at its address here.
    fn region(&self) -> (NonNull<u8>, usize);

    /// Whether these octets, said to be lent under the number `index`, stay as they are while they
    /// are lent. Where that is not promised, as by a lender that is not trusted, they are copied at
    /// once, and the copy alone is looked at.
    fn is_steady(&self, index: u32, slice: LentSlice) -> bool;
}

/// Place of some lent octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentSlice {
    /// The position of the first in the lender's arena, in octets.
    pub offset: usize,
    /// Length in octets; not 0.
    pub octets: usize,
}

/// Why there is no message of what was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// A slice is empty, or does not lie in the lender's arena: the lender is broken. The loan is
    /// not told as returned.
    #[error("what is lent does not lie in the lender's arena")]
    Outside,
    /// More loans at one time than were agreed, or no memory to note one: the lender is broken, or
    /// this domain. The loan is not told as returned.
    #[error("more is lent at one time than may be")]
    TooMany,
    /// The own pool is exhausted; counted there. The loan is told as returned.
    #[error("{NoBuffers}")]
    NoBuffers,
}

/// One lender, seen by the domain that borrows. Made by [`Pool::foreign`].
pub struct Foreign {
    /// A pool that has no buffers but those that are lent.
    core: CoreRef,
    own: Pool,
    view: Rc<dyn View>,
}

impl Foreign {
    pub(super) fn new(own: &Pool, view: impl View + 'static, loans_max: u32) -> Self {
        let view: Rc<dyn View> = Rc::new(view);
        let (base, octets) = view.region();
        // The messages keep the view beyond this handle.
        let kept = Box::new(Rc::clone(&view));
        let core = CoreRef::foreign((base.as_ptr(), octets), kept, loans_max);
        Self { core, own: own.clone(), view }
    }

    /// A message of these octets in this order, lent under the number `index`. It bears no
    /// attributes. With no slice it is an empty one.
    ///
    /// # Errors
    /// [`WrapError`].
    pub fn wrap(&self, index: u32, slices: &[LentSlice]) -> Result<Message, WrapError> {
        let (_, arena) = self.core.region();
        let mut sum = Some(0_u32);
        for slice in slices {
            let end = slice.offset.checked_add(slice.octets).filter(|end| *end <= arena);
            let octets = u32::try_from(slice.octets).ok().filter(|octets| *octets != 0);
            sum = end.and(octets).zip(sum).and_then(|(octets, sum)| sum.checked_add(octets));
        }
        let octets = sum.ok_or(WrapError::Outside)?;
        let buf = self.core.take_foreign(index).ok_or(WrapError::TooMany)?;
        let is_steady = slices.iter().all(|slice| self.view.is_steady(index, *slice));
        let message = match slices.split_first() {
            Some((first, behind)) if is_steady => {
                behind.iter().try_fold(self.over(buf, *first), |front, slice| {
                    let mut front = front?;
                    front.join(self.over(buf, *slice)?);
                    Ok(Ok(front))
                })
            }
            _ => Ok(self.copied(octets as usize, slices)),
        };
        // The reference of this function: the loan is returned unless a message has another.
        buf.release();
        message.flatten().map_err(|NoBuffers| WrapError::NoBuffers)
    }

    /// A message of one slice on a foreign buffer.
    fn over(&self, buf: BufRef, slice: LentSlice) -> Result<Message, NoBuffers> {
        let pool = self.own.core();
        if !buf.retain() {
            return Err(pool.count_failure());
        }
        let Some(head) = pool.take_desc(buf) else {
            buf.release();
            return Err(pool.count_failure());
        };
        let start = buf.base.wrapping_add(slice.offset);
        head.data.set(start);
        head.base.set(start);
        head.room_end.set(core::ptr::null_mut());
        head.len.set(slice.octets as u32);
        head.next.set(None);
        head.rest.set(0);
        head.attributes.clear();
        Ok(Message { head })
    }

    /// A message of the own pool with a copy of octets that may change at any time.
    fn copied(&self, octets: usize, slices: &[LentSlice]) -> Result<Message, NoBuffers> {
        let mut message = self.own.alloc(HEADROOM, octets)?;
        let (base, _) = self.core.region();
        let mut slices = slices.iter().copied();
        let mut from = LentSlice { offset: 0, octets: 0 };
        for desc in message.descs() {
            let mut to = message.octets_of_mut(desc).unwrap_or_default();
            while !to.is_empty() {
                if from.octets == 0 {
                    let Some(next) = slices.next() else { break };
                    from = next;
                }
                let (here, behind) = to.split_at_mut(from.octets.min(to.len()));
                let start = base.cast_const().wrapping_add(from.offset);
                // SAFETY: the octets lie in the region (checked by `wrap`), which can be read;
                // `here` is this message's own. Another process may write the octets meanwhile:
                // then the copy has some of both, and only the copy is looked at.
                unsafe { core::ptr::copy_nonoverlapping(start, here.as_mut_ptr(), here.len()) };
                from.offset += here.len();
                from.octets -= here.len();
                to = behind;
            }
        }
        Ok(message)
    }

    /// The number of a loan to which no message refers any more, for telling the lender; each once.
    pub fn returned(&self) -> Option<u32> {
        self.core.take_returned()
    }

    /// Number of loans that messages refer to.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.core.buffers_live()
    }
}

impl Drop for Foreign {
    /// The messages stay as they are, and keep the view.
    fn drop(&mut self) {
        self.core.drop_handle();
    }
}

impl core::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Foreign({} held)", self.held())
    }
}
