//! Requests under way to the other side, each with the shepherd that waits for its answer.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::object::{OpenError, ProtocolId};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef};

use crate::frame::Header;

/// How many requests one side has under way at most.
pub const WAITS_MAX: usize = 256;

/// What came of a request.
pub(crate) enum Answered {
    /// This frame: its header, and its fields or message.
    Frame(Header, Message),
    /// What stands for the session that was opened; held for the opener.
    Session(Result<SessionRef, OpenError>),
}

/// The protocol and the receiver of a session that is opened.
pub(crate) type Opens = Option<(ProtocolId, ProtocolRef)>;

/// One request under way.
pub(crate) struct Wait {
    /// Signalled when the answer is there.
    pub(crate) signal: Semaphore,
    /// For a request that opens a session.
    pub(crate) opens: Opens,
    answer: RefCell<Option<Answered>>,
}

impl Wait {
    /// The answer, if it is there.
    pub(crate) fn answer(&self) -> Option<Answered> {
        self.answer.take()
    }

    /// True if the answer is there.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.borrow().is_some()
    }

    /// Gives it the answer.
    pub(crate) fn put(&self, cx: &Kernel, answer: Answered) {
        *self.answer.borrow_mut() = Some(answer);
        cx.signal(&self.signal);
    }
}

/// All requests of one side.
#[derive(Default)]
pub(crate) struct Waits {
    /// A tag is the place in 16 bits, and above it how often the place was used, never 0.
    places: RefCell<Vec<(u16, Option<Rc<Wait>>)>>,
}

impl Waits {
    /// A place for one more request, and its tag; `None` at the bound.
    pub(crate) fn begin(&self, opens: Opens) -> Option<(u32, Rc<Wait>)> {
        let mut places = self.places.borrow_mut();
        let free = places.iter().position(|(_, wait)| wait.is_none());
        let at = free.unwrap_or(places.len());
        if at == WAITS_MAX {
            return None;
        }
        if at == places.len() {
            places.push((0, None));
        }
        let wait = Rc::new(Wait { signal: Semaphore::new(0), opens, answer: RefCell::default() });
        let (used, place) = &mut places[at];
        *used = used.wrapping_add(1).max(1);
        *place = Some(Rc::clone(&wait));
        Some((u32::from(*used) << 16 | at as u32, wait))
    }

    /// The request of this tag, if it is under way and has no answer yet.
    pub(crate) fn find(&self, tag: u32) -> Option<Rc<Wait>> {
        let places = self.places.borrow();
        let (used, wait) = places.get(tag as usize & 0xffff)?;
        let wait = wait.as_ref().filter(|_| u32::from(*used) == tag >> 16);
        wait.filter(|wait| !wait.is_answered()).cloned()
    }

    /// The request with this tag is over, whether it was answered or not.
    pub(crate) fn end(&self, tag: u32) {
        let mut places = self.places.borrow_mut();
        if let Some((used, wait)) = places.get_mut(tag as usize & 0xffff)
            && u32::from(*used) == tag >> 16
        {
            *wait = None;
        }
    }

    /// All that are under way, for the end.
    pub(crate) fn all(&self) -> Vec<Rc<Wait>> {
        self.places.borrow().iter().filter_map(|(_, wait)| wait.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_of_one_request() {
        let waits = Waits::default();
        let (first, wait) = waits.begin(None).unwrap();
        assert!(waits.find(first ^ 1 << 16).is_none(), "of another use of the place");
        let found = waits.find(first).unwrap();
        *found.answer.borrow_mut() = Some(Answered::Session(Err(OpenError::Full)));
        assert!(waits.find(first).is_none() && wait.is_answered(), "answered once");
        assert!(wait.answer().is_some());
        waits.end(first);
        waits.end(first);
        let (second, _) = waits.begin(None).unwrap();
        assert!(second != first && waits.find(first).is_none());
    }

    #[test]
    fn requests_are_bounded() {
        let waits = Waits::default();
        let tags: Vec<u32> = (0..WAITS_MAX).map(|_| waits.begin(None).unwrap().0).collect();
        assert!(waits.begin(None).is_none());
        tags.iter().for_each(|tag| waits.end(*tag));
        assert!(waits.begin(None).is_some() && waits.all().len() == 1);
    }
}
