//! Calls that wait for their turn: first come, first served, each until its deadline or until it
//! is taken back.

use crate::rpc::call::CallOptions;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Kernel;
use xk_core::object::{CallCause, CallError, PushError, SessionId};
use xk_core::shepherd::{Semaphore, WaitError};

/// State of one call's wait.
#[derive(Clone, Copy)]
enum Turn {
    /// The call waits.
    Waits,
    /// The call has been granted what it waited for.
    Granted,
    /// The call was taken back, or its session closed.
    Ended(CallCause),
}

/// One call that waits.
struct Waiter<T> {
    session: Cell<SessionId>,
    tag: Cell<u64>,
    turn: Cell<Turn>,
    granted: Cell<Option<T>>,
    semaphore: Semaphore,
}

/// Calls that wait, each for a `T`. A wait costs no allocation once as many have waited at a time.
pub struct WaitQueue<T> {
    /// Waiting calls. One that was granted something stays until its shepherd goes on.
    waiting: RefCell<VecDeque<Rc<Waiter<T>>>>,
    spare: RefCell<Vec<Rc<Waiter<T>>>>,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self { waiting: RefCell::default(), spare: RefCell::default() }
    }
}

impl<T> WaitQueue<T> {
    /// True if no call waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Waits, behind the calls that wait already, for what [`grant`](Self::grant) gives to this
    /// call of `session`. What it gives to a call that has ended otherwise goes to `pass_on`.
    ///
    /// # Errors
    /// Why the call ends: its deadline has passed, [`end`](Self::end), no shepherd can wait.
    pub fn wait(
        &self,
        cx: &Kernel,
        session: SessionId,
        options: Option<CallOptions>,
        pass_on: impl FnOnce(T),
    ) -> Result<T, CallCause> {
        self.wait_at(cx, session, options, false, pass_on)
    }

    /// Waits like [`wait`](Self::wait), but in front of all others if `is_first`.
    fn wait_at(
        &self,
        cx: &Kernel,
        session: SessionId,
        options: Option<CallOptions>,
        is_first: bool,
        pass_on: impl FnOnce(T),
    ) -> Result<T, CallCause> {
        let timed_out = CallCause::TimedOut { tries: 0 };
        let limit = CallOptions::clip(options, cx.now(), Duration::MAX).ok_or(timed_out)?;
        let spare = self.spare.borrow_mut().pop();
        let waiter = spare.unwrap_or_else(new_waiter);
        waiter.session.set(session);
        waiter.tag.set(options.map_or(0, |options| options.tag));
        waiter.turn.set(Turn::Waits);
        {
            let mut waiting = self.waiting.borrow_mut();
            let place = if is_first { 0 } else { waiting.len() };
            waiting.insert(place, Rc::clone(&waiter));
        }
        let waited = cx.wait(&waiter.semaphore, (limit != Duration::MAX).then_some(limit));
        if waited.is_err() {
            // What was decided came after the wait had ended: its signal is for no other call.
            waiter.semaphore.try_wait();
        }
        let (turn, granted) = (waiter.turn.get(), waiter.granted.take());
        {
            let mut waiting = self.waiting.borrow_mut();
            let place = waiting.iter().position(|other| Rc::ptr_eq(other, &waiter));
            place.and_then(|place| waiting.remove(place));
            self.spare.borrow_mut().push(waiter);
        }
        match (granted, turn, waited) {
            (Some(granted), Turn::Granted, Ok(())) => return Ok(granted),
            (Some(granted), ..) => pass_on(granted),
            (None, ..) => {}
        }
        Err(match (turn, waited) {
            (Turn::Ended(cause), _) => cause,
            (_, Err(WaitError::TimedOut)) => timed_out,
            (_, Err(error)) => CallError::from(error).cause,
            (_, Ok(())) => CallCause::Closed,
        })
    }

    /// Gives this to the call that waits longest; back if none waits.
    pub fn grant(&self, cx: &Kernel, granted: T) -> Option<T> {
        let waits = |waiter: &&Rc<Waiter<T>>| matches!(waiter.turn.get(), Turn::Waits);
        let next = self.waiting.borrow().iter().find(waits).cloned();
        let Some(waiter) = next else {
            return Some(granted);
        };
        waiter.turn.set(Turn::Granted);
        waiter.granted.set(Some(granted));
        cx.signal(&waiter.semaphore);
        None
    }

    /// Ends the waits of the calls that `is` says true of, by session and tag; false if there are
    /// none. A call that was granted its turn, and has not gone on, still waits.
    pub fn end(&self, cx: &Kernel, cause: CallCause, is: impl Fn(SessionId, u64) -> bool) -> bool {
        let mut is_any = false;
        for waiter in self.waiting.borrow().iter() {
            let turn = waiter.turn.get();
            if matches!(turn, Turn::Ended(_)) || !is(waiter.session.get(), waiter.tag.get()) {
                continue;
            }
            waiter.turn.set(Turn::Ended(cause));
            if matches!(turn, Turn::Waits) {
                cx.signal(&waiter.semaphore);
            }
            is_any = true;
        }
        is_any
    }

    /// Takes back the call of `session` with this tag; false if it does not wait.
    pub fn cancel(&self, cx: &Kernel, session: SessionId, tag: u64) -> bool {
        tag != 0 && self.end(cx, CallCause::Cancelled, |s, t| (s, t) == (session, tag))
    }
}

fn new_waiter<T>() -> Rc<Waiter<T>> {
    Rc::new(Waiter {
        session: Cell::new(SessionId(0)),
        tag: Cell::new(0),
        turn: Cell::new(Turn::Waits),
        granted: Cell::new(None),
        semaphore: Semaphore::new(0),
    })
}

/// Room for one more push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is none.
    None,
    /// For the push that waits longest.
    ForNext,
    /// For any push, whichever others wait.
    ForAny,
}

/// Pushes of a session that wait for room, first come, first served.
#[derive(Default)]
pub struct Pushes {
    queue: WaitQueue<()>,
    /// One of them goes on, and has not yet: it is the only one, so that none loses its place.
    goes_on: Cell<bool>,
}

impl Pushes {
    /// Largest number of pushes that wait.
    pub const WAITING_MAX: usize = 64;

    /// Waits until `room` says that there is some: for the deadline of `options`, if there are any.
    ///
    /// # Errors
    /// That of `room`; [`PushError::QueueFull`] past the deadline, where no shepherd can wait, or
    /// if too many wait; [`PushError::Closed`] after [`end`](Self::end).
    pub fn wait(
        &self,
        cx: &Kernel,
        session: SessionId,
        options: Option<CallOptions>,
        room: impl Fn() -> Result<Room, PushError>,
    ) -> Result<(), PushError> {
        let mut is_next = false;
        loop {
            match room()? {
                Room::ForAny => return Ok(()),
                Room::ForNext if is_next || self.queue.is_empty() => return Ok(()),
                _ if self.queue.waiting.borrow().len() >= Self::WAITING_MAX => {
                    return Err(PushError::QueueFull);
                }
                _ => {}
            }
            let pass_on = |()| self.goes_on.set(self.queue.grant(cx, ()).is_none());
            // One that went on, and whose room another took meanwhile, keeps its place.
            let waited = self.queue.wait_at(cx, session, options, is_next, pass_on);
            match waited {
                Ok(()) => {
                    self.goes_on.set(false);
                    is_next = true;
                }
                Err(CallCause::TimedOut { .. } | CallCause::NoShepherds) => {
                    return Err(PushError::QueueFull);
                }
                Err(cause) => return Err(cause.into()),
            }
        }
    }

    /// Lets the push go on that waits longest, if there is room.
    pub fn go_on(&self, cx: &Kernel, room: Result<Room, PushError>) {
        let has_room = matches!(room, Ok(Room::ForNext | Room::ForAny));
        if has_room && !self.queue.is_empty() && !self.goes_on.get() {
            self.goes_on.set(self.queue.grant(cx, ()).is_none());
        }
    }

    /// Ends all waits: the session is closed.
    pub fn end(&self, cx: &Kernel) {
        let _ = self.queue.end(cx, CallCause::Closed, |_, _| true);
    }
}
