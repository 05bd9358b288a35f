//! The state of a program on its way to a member of a conversation that has come back without it,
//! chunk by chunk, by messages beside the conversation.
//!
//! A member comes back at one place in the order of all messages. There each of the others
//! [offers](Transfer::offer) its state, which is the same at all of them, and the member
//! [fetches](Transfer::fetch) it before it takes the messages behind.

use crate::asks::HEADROOM;
use crate::group::{Aside, MyMember, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::time::Duration;
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Kernel, Message, SessionRef};

/// Octets of a chunk, but for the last one.
pub const CHUNK_OCTETS: usize = 1024;
/// Time after which the next member is asked.
const PATIENCE: Duration = Duration::from_millis(100);
/// Length in a question, of which there is no state.
const ASKS: u32 = u32::MAX;

crate::header! {
    /// Front of a question, and of its answer, which has a chunk behind it.
    pub struct Front {
        /// Number of times that the member has been started that fetches the state.
        incarnation: u16,
        /// Number of the chunk, from 0.
        number: u32,
        /// Octets of the whole state; all ones in a question.
        octets: u32,
    }
}

/// A state that is being fetched.
#[derive(Debug)]
struct Fetch {
    incarnation: u16,
    octets: Vec<u8>,
    /// Octets of the whole state, from its first chunk on.
    octets_all: Option<usize>,
}

impl Fetch {
    /// Number of the chunk that is fetched next.
    fn next(&self) -> u32 {
        (self.octets.len() / CHUNK_OCTETS) as u32
    }

    fn question(&self) -> [u8; Front::OCTETS] {
        Front { incarnation: self.incarnation, number: self.next(), octets: ASKS }.emit()
    }

    /// Takes a chunk of a state of at most `octets_max`; false if it is another than the next one,
    /// or not of this state.
    fn take(&mut self, front: Front, chunk: &[u8], octets_max: usize) -> bool {
        let (octets_all, end) = (front.octets as usize, self.octets.len() + chunk.len());
        let is_whole = chunk.len() == CHUNK_OCTETS || end == octets_all;
        let is_next = (front.incarnation, front.number) == (self.incarnation, self.next())
            && self.octets_all.is_none_or(|all| all == octets_all && end > self.octets.len())
            && (end <= octets_all && octets_all <= octets_max)
            && is_whole;
        if is_next {
            self.octets_all = Some(octets_all);
            self.octets.extend(chunk);
        }
        is_next
    }

    fn is_done(&self) -> bool {
        self.octets_all == Some(self.octets.len())
    }
}

/// Returns the answer to a question, if it is one about this state.
fn answer(state: &[u8], incarnation: u16, front: Front) -> Option<Vec<u8>> {
    let from = (front.number as usize).checked_mul(CHUNK_OCTETS)?;
    let chunk = state.get(from..state.len().min(from.saturating_add(CHUNK_OCTETS)))?;
    let front = Front { octets: state.len() as u32, ..front };
    let is_asked = front.incarnation == incarnation;
    is_asked.then(|| front.emit().into_iter().chain(chunk.iter().copied()).collect())
}

/// The states that a member gives to others, and the one that it fetches itself.
pub struct Transfer {
    octets_max: usize,
    /// By member, for its start with a number.
    offered: RefCell<BTreeMap<u8, (u16, Vec<u8>)>>,
    fetched: RefCell<Option<Fetch>>,
    /// Signalled with each chunk.
    came: Semaphore,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("fetched", &self.fetched).finish_non_exhaustive()
    }
}

impl Transfer {
    /// Takes states of at most `octets_max`.
    #[must_use]
    pub fn new(octets_max: usize) -> Self {
        Self {
            octets_max,
            offered: RefCell::default(),
            fetched: RefCell::default(),
            came: Semaphore::new(0),
        }
    }

    /// Keeps a state for a member that has come back, at its start with this number.
    pub fn offer(&self, member: u8, incarnation: u16, state: Vec<u8>) {
        self.offered.borrow_mut().insert(member, (incarnation, state));
    }

    /// Keeps none for a member any more, which has it, or has gone.
    pub fn forget(&self, member: u8) {
        self.offered.borrow_mut().remove(&member);
    }

    /// Takes a message beside the conversation on `session`; false if it is none of these.
    pub fn take(&self, cx: &Kernel, session: &SessionRef, from: u8, message: &Message) -> bool {
        let octets: Vec<u8> = message.octets().take(Front::OCTETS + CHUNK_OCTETS + 1).collect();
        let Some((front, chunk)) = octets.split_first_chunk() else {
            return false;
        };
        let front = Front::parse(front);
        if front.octets == ASKS {
            let offered = self.offered.borrow();
            let state = offered.get(&from);
            let answer = state.and_then(|(start, state)| answer(state, *start, front));
            drop(offered);
            let _ = answer.map(|answer| tell(cx, session, from, &answer));
            return true;
        }
        let mut fetched = self.fetched.borrow_mut();
        let is_next = fetched.as_mut().is_some_and(|it| it.take(front, chunk, self.octets_max));
        drop(fetched);
        if is_next {
            cx.signal(&self.came);
        }
        is_next
    }

    /// Fetches the state that the others offer at the start of this member with this number, and
    /// waits for it. `None` if the conversation ends.
    pub fn fetch(&self, cx: &Kernel, session: &SessionRef, incarnation: u16) -> Option<Vec<u8>> {
        let fetch = Fetch { incarnation, octets: Vec::new(), octets_all: None };
        *self.fetched.borrow_mut() = Some(fetch);
        let my = session.ask(cx, MyMember::default())?;
        let mut from = my.index;
        while !session.head().is_closed() {
            from = (from + 1) % my.members.max(1);
            let view = session.ask(cx, View::default());
            let is_there = view.is_none_or(|view| view.members >> from & 1 != 0);
            // One is asked as long as it answers.
            let mut answers = is_there && from != my.index;
            while core::mem::take(&mut answers) {
                let question = self.fetched.borrow().as_ref()?.question();
                tell(cx, session, from, &question);
                match cx.wait(&self.came, Some(PATIENCE)) {
                    Ok(()) => answers = true,
                    Err(WaitError::TimedOut) => {}
                    Err(_) => return None,
                }
                if self.fetched.borrow().as_ref()?.is_done() {
                    return self.fetched.take().map(|fetch| fetch.octets);
                }
            }
            if !is_there && view.is_some_and(|view| view.members.count_ones() < 2) {
                let _ = cx.wait(&self.came, Some(PATIENCE));
            }
        }
        None
    }
}

fn tell(cx: &Kernel, session: &SessionRef, member: u8, octets: &[u8]) {
    if let Ok(mut message) = cx.pool().copy_from(HEADROOM, octets)
        && message.set_attribute(Aside { member }).is_ok()
    {
        // What is lost is asked for again.
        let _ = session.push(cx, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(octets: &[u8]) -> (Front, &[u8]) {
        let (front, chunk) = octets.split_first_chunk().unwrap();
        (Front::parse(front), chunk)
    }

    #[test]
    fn a_state_goes_chunk_by_chunk() {
        for length in [0, 1, CHUNK_OCTETS - 1, CHUNK_OCTETS, CHUNK_OCTETS + 1, 5 * CHUNK_OCTETS] {
            let state: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut fetch = Fetch { incarnation: 3, octets: Vec::new(), octets_all: None };
            let mut chunks = 0;
            while !fetch.is_done() {
                let question = fetch.question();
                let (asked, rest) = parse(&question);
                assert!(rest.is_empty() && asked.octets == ASKS);
                assert_eq!(answer(&state, 2, asked), None, "of another start");
                let octets = answer(&state, 3, asked).unwrap();
                let (front, chunk) = parse(&octets);
                assert!(!fetch.take(Front { incarnation: 2, ..front }, chunk, 1 << 20));
                assert!(!fetch.take(Front { number: front.number + 1, ..front }, chunk, 1 << 20));
                assert!(length == 0 || !fetch.take(front, &chunk[1..], 1 << 20), "cut");
                assert!(length == 0 || !fetch.take(front, chunk, length - 1), "too large");
                assert!(fetch.take(front, chunk, length));
                assert!(!fetch.take(front, chunk, length), "twice");
                chunks += 1;
            }
            assert_eq!((fetch.octets, chunks), (state, length.div_ceil(CHUNK_OCTETS).max(1)));
        }
    }
}
