//! Segments that come while another of their connection is being taken in, for which the layers
//! above and below may be asked: they follow it, in their order.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::Message;

use crate::table::Key;

/// Connections of which a segment is being taken in with others waiting behind it, and segments
/// that wait for one: a window that has not grown yet.
const CONNECTIONS_MAX: usize = 256;
const WAITING_MAX: usize = 64;

/// Verdict on a segment of no session.
pub(crate) enum Begun {
    /// The segment is taken in at once.
    First(Message),
    /// The segment follows another.
    Waits,
    /// There is no room for it.
    Full(Message),
}

/// Segments of no session by what names it; the first of each is being taken in.
#[derive(Default)]
pub(crate) struct Firsts(RefCell<Vec<(Key, VecDeque<Message>)>>);

impl Firsts {
    /// A segment of no session has come.
    pub(crate) fn begin(&self, key: Key, segment: Message) -> Begun {
        let mut all = self.0.borrow_mut();
        let has_room = all.len() < CONNECTIONS_MAX;
        match all.iter_mut().find(|(of, _)| *of == key) {
            Some((_, waiting)) if waiting.len() >= WAITING_MAX => Begun::Full(segment),
            Some((_, waiting)) => {
                waiting.push_back(segment);
                Begun::Waits
            }
            None if !has_room => Begun::Full(segment),
            None => {
                all.push((key, VecDeque::new()));
                Begun::First(segment)
            }
        }
    }

    /// The next segment behind the one that was taken in.
    pub(crate) fn next(&self, key: Key) -> Option<Message> {
        let mut all = self.0.borrow_mut();
        all.iter_mut().find(|(of, _)| *of == key)?.1.pop_front()
    }

    /// The next segment likewise; if there is none, the one that comes next is the first again.
    pub(crate) fn next_or_end(&self, key: Key) -> Option<Message> {
        let next = self.next(key);
        if next.is_none() {
            self.0.borrow_mut().retain(|(of, _)| *of != key);
        }
        next
    }

    /// Drops all of them.
    pub(crate) fn clear(&self) {
        drop(self.0.take());
    }
}
