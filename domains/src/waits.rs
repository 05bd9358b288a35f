//! Requests under way to the other side, each with the shepherd that waits for its answer.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{OpenError, ProtocolId, PushError};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, reason};

use crate::frame::Header;

/// The most requests that one side has under way.
pub const WAITS_MAX: usize = 256;

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The other side is gone.
    Lost,
    /// As many are under way as may be, or there is no room.
    Full,
    /// There is no buffer for it.
    NoBuffers,
    /// The message is longer than what crosses.
    TooBig,
    /// None came in time.
    TimedOut,
    /// The caller can be suspended no more.
    NoShepherds,
}

impl Unanswered {
    /// The reason under which a message counts that did not go.
    pub(crate) fn reason(self) -> &'static Reason {
        match self {
            Self::Lost => &reason::CLOSED,
            Self::NoBuffers => &reason::NO_BUFFERS,
            Self::TooBig => &reason::TOO_BIG,
            Self::Full | Self::TimedOut | Self::NoShepherds => &reason::QUEUE_FULL,
        }
    }
}

impl From<Unanswered> for PushError {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Lost => Self::Closed,
            Unanswered::NoBuffers => Self::NoBuffers,
            Unanswered::TooBig => Self::TooBig,
            Unanswered::Full | Unanswered::TimedOut | Unanswered::NoShepherds => Self::QueueFull,
        }
    }
}

impl From<Unanswered> for OpenError {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Lost => Self::NoLower,
            Unanswered::NoBuffers => Self::NoBuffers,
            _ => Self::Full,
        }
    }
}

/// Result of a request.
pub(crate) enum Answered {
    /// This frame: its header, and its fields or message.
    Frame(Header, Message),
    /// The proxy of the session that was opened, held for the opener.
    Session(Result<SessionRef, OpenError>),
}

/// The protocol and the receiver of a session that is opened.
pub(crate) type Opens = Option<(ProtocolId, ProtocolRef)>;

/// One request under way.
pub(crate) struct Wait {
    /// Signalled when the answer is there.
    pub(crate) signal: Semaphore,
    /// For a request that opens a session.
    opens: RefCell<Opens>,
    answer: RefCell<Option<Answered>>,
}

impl Wait {
    /// The answer, if it is there.
    pub(crate) fn answer(&self) -> Option<Answered> {
        self.answer.take()
    }

    /// For a request that opens a session: the protocol and the receiver.
    pub(crate) fn opens(&self) -> Opens {
        self.opens.borrow().clone()
    }

    /// True if the answer is there.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.borrow().is_some()
    }

    fn put(&self, cx: &Kernel, answer: Answered) {
        *self.answer.borrow_mut() = Some(answer);
        cx.signal(&self.signal);
    }
}

/// The place where a request waits.
struct Place {
    /// Number of requests that have waited here.
    uses: u16,
    is_used: bool,
    wait: Rc<Wait>,
}

/// All requests of one side.
#[derive(Default)]
pub(crate) struct Waits {
    /// A tag is the place in 16 bits, and above it how often the place was used, never 0.
    places: RefCell<Vec<Place>>,
    were_answered: Cell<bool>,
}

impl Waits {
    /// A place for one more request, and its tag; `None` at the bound. Allocates nothing as long
    /// as no more are under way than before.
    pub(crate) fn begin(&self, opens: Opens) -> Option<(u32, Rc<Wait>)> {
        let mut places = self.places.borrow_mut();
        let free = places.iter().position(|place| !place.is_used);
        let at = free.unwrap_or(places.len());
        if at == WAITS_MAX {
            return None;
        }
        if at == places.len() {
            let wait = Wait {
                signal: Semaphore::new(0),
                opens: RefCell::default(),
                answer: RefCell::default(),
            };
            places.push(Place { uses: 0, is_used: false, wait: Rc::new(wait) });
        }
        let Place { uses, is_used, wait } = &mut places[at];
        (*uses, *is_used) = (uses.wrapping_add(1).max(1), true);
        // An answer that was there before the wait leaves its signal.
        while wait.signal.try_wait() {}
        *wait.opens.borrow_mut() = opens;
        Some((u32::from(*uses) << 16 | at as u32, Rc::clone(wait)))
    }

    /// The request of this tag, if it is under way and has no answer yet.
    pub(crate) fn find(&self, tag: u32) -> Option<Rc<Wait>> {
        let places = self.places.borrow();
        let place = places.get(tag as usize & 0xffff)?;
        let is_it = place.is_used && u32::from(place.uses) == tag >> 16;
        Some(&place.wait).filter(|wait| is_it && !wait.is_answered()).cloned()
    }

    /// The request with this tag is over, whether it was answered or not.
    pub(crate) fn end(&self, tag: u32) {
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(tag as usize & 0xffff);
        let Some(place) = place.filter(|place| u32::from(place.uses) == tag >> 16) else {
            return;
        };
        place.is_used = false;
        let left = (place.wait.answer.take(), place.wait.opens.take());
        drop(places);
        drop(left);
    }

    /// Gives a request its answer.
    pub(crate) fn answer(&self, cx: &Kernel, wait: &Wait, answer: Answered) {
        wait.put(cx, answer);
        self.were_answered.set(true);
    }

    /// True if one was answered since this was asked last.
    pub(crate) fn were_answered(&self) -> bool {
        self.were_answered.replace(false)
    }

    /// All that are under way, for the end.
    pub(crate) fn all(&self) -> Vec<Rc<Wait>> {
        let places = self.places.borrow();
        places.iter().filter(|place| place.is_used).map(|place| Rc::clone(&place.wait)).collect()
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
