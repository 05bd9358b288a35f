//! A place for a session's handle that is read on the way of every message.

use super::SessionRef;
use core::cell::UnsafeCell;

/// A cell with a session's handle, or none. Unlike a `RefCell` it keeps no account of borrows, for it lends nothing:
/// the handle is cloned, or moved, in and out.
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
        // SAFETY: no reference to the content leaves this file, and cloning a handle only counts: it runs nobody's code
        // that could come back here while this reference lives. The cell stays on its thread (`UnsafeCell` is not Sync).
        unsafe { (*self.0.get()).clone() }
    }

    /// Keeps another handle; answers what was kept, which the caller drops when that can do no harm.
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

    /// Whether a handle is kept.
    #[inline]
    pub fn is_some(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.0.get()).is_some() }
    }
}
