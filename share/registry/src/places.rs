//! The sessions of a library, each by its place: what a session stands on has that as its tag.

use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::SessionRef;
use xk_core::control::{ListSessions, Listed};

/// All of them; the tag of what each stands on is its place + 1.
#[derive(Default)]
pub(crate) struct Places {
    sessions: RefCell<Vec<Option<SessionRef>>>,
    free: RefCell<Vec<u32>>,
}

impl Places {
    /// The place of a new session.
    pub(crate) fn enter(&self, session: &SessionRef) -> u32 {
        let mut sessions = self.sessions.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            sessions.push(None);
            (sessions.len() - 1) as u32
        });
        if let Some(slot) = sessions.get_mut(place as usize) {
            *slot = Some(session.clone());
        }
        place
    }

    /// The place is free; false if it was.
    pub(crate) fn leave(&self, place: u32) -> bool {
        let gone = self.sessions.borrow_mut().get_mut(place as usize).and_then(Option::take);
        if gone.is_some() {
            self.free.borrow_mut().push(place);
        }
        gone.is_some()
    }

    /// The session at a place.
    pub(crate) fn at(&self, place: u32) -> Option<SessionRef> {
        self.sessions.borrow().get(place as usize)?.clone()
    }

    /// The session whose place is the tag of what it may stand on.
    #[inline]
    pub(crate) fn above(&self, lower: &SessionRef) -> Option<SessionRef> {
        self.at(lower.head().tag().checked_sub(1)?)
    }

    /// Answers which there are.
    pub(crate) fn list(&self, list: &mut ListSessions) {
        let sessions = self.sessions.borrow();
        let all = sessions.iter().flatten();
        list.total = all.clone().count();
        list.sessions.extend(all.take(list.max).cloned().map(Listed::Here));
    }

    /// Lets go of all.
    pub(crate) fn clear(&self) {
        drop((self.sessions.take(), self.free.take()));
    }
}
