//! Places for a session's handle that are read on the way of every message.

use super::SessionRef;
use crate::kernel::Kernel;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;

/// A cell with a session's handle, or none. Unlike a `RefCell` it keeps no account of borrows, for
/// it lends nothing: the handle is cloned, or moved, in and out.
#[derive(Default)]
pub struct SessionSlot(UnsafeCell<Option<SessionRef>>);

impl SessionSlot {
    /// A place with this handle.
    pub const fn new(session: Option<SessionRef>) -> Self {
        Self(UnsafeCell::new(session))
    }

    /// The handle kept here, once more.
    #[inline]
    pub fn get(&self) -> Option<SessionRef> {
        // SAFETY: no reference to the content leaves this file, and neither copying it nor cloning
        // a handle runs any code that could come back here meanwhile. The cell stays on its
        // thread (`UnsafeCell` is not Sync). The copy is never dropped, and the original outlives
        // it: cloned from a copy, the handle is loaded once.
        let kept = unsafe { ManuallyDrop::new(core::ptr::read(self.0.get())) };
        (*kept).clone()
    }

    /// The handle kept here, once more, unless its session has ended: what can go on over another
    /// opens that before it sends, for what is pushed to one that has ended is lost.
    #[inline]
    pub fn live(&self) -> Option<SessionRef> {
        self.get().filter(|session| !session.head().is_closed())
    }

    /// Keeps another handle; answers what was kept, which the caller drops when that can do no
    /// harm.
    #[inline]
    pub fn replace(&self, session: Option<SessionRef>) -> Option<SessionRef> {
        // SAFETY: as above; the old content is moved out, not dropped.
        unsafe { core::mem::replace(&mut *self.0.get(), session) }
    }

    /// Empties the place; answers what was kept.
    #[inline]
    pub fn take(&self) -> Option<SessionRef> {
        self.replace(None)
    }

    /// Empties the place, and releases the session that was kept.
    pub fn close(&self, cx: &Kernel) {
        if let Some(session) = self.take() {
            session.close(cx);
        }
    }

    /// Whether this session's handle is kept.
    #[inline]
    pub fn has(&self, session: &SessionRef) -> bool {
        self.get().as_ref() == Some(session)
    }

    /// Whether a handle is kept.
    #[inline]
    pub fn is_some(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.0.get()).is_some() }
    }
}

/// A [`SessionSlot`] of one handle, with the key that it was found by.
pub(super) struct KeyedSlot<K>(UnsafeCell<Option<(K, SessionRef)>>);

impl<K: Copy + Eq> KeyedSlot<K> {
    /// An empty place.
    pub(super) const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Whether a handle is kept under this key.
    #[inline(always)]
    pub(super) fn has(&self, key: &K) -> bool {
        // SAFETY: as in `SessionSlot::get`. The key is copied out first, since comparing is the
        // key's own code.
        let kept = unsafe { (*self.0.get()).as_ref().map(|(kept, _)| *kept) };
        kept.is_some_and(|kept| kept == *key)
    }

    /// The handle kept under this key, once more.
    #[inline(always)]
    pub(super) fn get(&self, key: &K) -> Option<SessionRef> {
        if !self.has(key) {
            return None;
        }
        // SAFETY: as in `SessionSlot::get`; the copy of the handle is not dropped.
        let kept = unsafe {
            (*self.0.get()).as_ref().map(|(_, session)| ManuallyDrop::new(core::ptr::read(session)))
        };
        kept.map(|session| (*session).clone())
    }

    /// Keeps another, or none; answers what was kept, which the caller drops when that can do no
    /// harm.
    pub(super) fn replace(&self, kept: Option<(K, SessionRef)>) -> Option<(K, SessionRef)> {
        // SAFETY: as in `SessionSlot::replace`.
        unsafe { core::mem::replace(&mut *self.0.get(), kept) }
    }
}
