//! Where threads come into a stack: a bounded queue of calls, one of other jobs, and a bell.
//!
//! To the stack the entrance is a wire: its loop polls it with the others. A job may block: then
//! its shepherd waits, and the loop goes on with the next one. Calls are let in as long as there
//! are shepherds to wait for their replies; what ends a call or a wait never stands behind them.

use crate::inside::Inside;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use xk_core::wire::{Sleeper, Wire};
use xk_core::{Kernel, ProtocolRef};
use xk_run::Bell;

/// How many calls wait to be let in at most; who comes then waits in turn.
pub(crate) const CALLS_QUEUED_MAX: usize = 4096;

pub(crate) type Job = Box<dyn FnOnce(&Kernel, &Rc<Inside>) + Send>;

/// A lock whose holder may have panicked: what it guards is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entrance.
pub(crate) struct Entrance {
    queue: Mutex<Queue>,
    room: Condvar,
    pub(crate) bell: Bell,
}

#[derive(Default)]
struct Queue {
    /// What is done at once. Each belongs to something that the program holds: a call, a client, a
    /// server, a promise.
    jobs: VecDeque<Job>,
    calls: VecDeque<Job>,
    ended: bool,
}

/// What became of a call that wanted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Taken,
    /// As many wait as may.
    Full,
    Ended,
}

impl Entrance {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { queue: Mutex::default(), room: Condvar::new(), bell: Bell::new()? })
    }

    /// Has a job done in the stack; false if the stack has ended.
    pub(crate) fn post(&self, job: Job) -> bool {
        let mut queue = lock(&self.queue);
        if queue.ended {
            return false;
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.bell.ring();
        true
    }

    /// Has a call made in the stack, from another thread. Waits for room until `due`.
    pub(crate) fn post_call(&self, call: Job, due: Option<Instant>) -> Entry {
        let mut queue = lock(&self.queue);
        while queue.calls.len() >= CALLS_QUEUED_MAX && !queue.ended {
            queue = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                None => self.room.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Entry::Full,
                Some(left) => {
                    let waited = self.room.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        if queue.ended {
            return Entry::Ended;
        }
        queue.calls.push_back(call);
        drop(queue);
        self.bell.ring();
        Entry::Taken
    }

    /// The same from the thread that turns the loop, which must not wait for itself; nor has a
    /// service's call to wait for others that may wait for this service.
    pub(crate) fn post_call_here(&self, call: Job) -> Entry {
        let mut queue = lock(&self.queue);
        if queue.ended {
            return Entry::Ended;
        }
        if queue.jobs.len() >= CALLS_QUEUED_MAX {
            return Entry::Full;
        }
        queue.jobs.push_back(call);
        drop(queue);
        self.bell.ring();
        Entry::Taken
    }

    /// The stack has ended: nothing is taken any more, and who waits for a job finds that it is
    /// gone.
    pub(crate) fn end(&self) {
        let mut queue = lock(&self.queue);
        queue.ended = true;
        let (jobs, calls) = (std::mem::take(&mut queue.jobs), std::mem::take(&mut queue.calls));
        drop(queue);
        self.room.notify_all();
        drop((jobs, calls));
    }

    /// The next one, if it may come in: a call if there is `room` for one.
    fn next(&self, room: usize) -> Option<Job> {
        let mut queue = lock(&self.queue);
        let mut room = room;
        let job = match queue.jobs.pop_front() {
            Some(job) => job,
            None if room > 0 => {
                let call = queue.calls.pop_front()?;
                room -= 1;
                self.room.notify_one();
                call
            }
            None => return None,
        };
        if !queue.jobs.is_empty() || room > 0 && !queue.calls.is_empty() {
            // The job may block: whoever leads the loop then finds the others.
            self.bell.look_again();
        }
        Some(job)
    }
}

/// The stack's side of the entrance.
pub(crate) struct Door {
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) inside: Rc<Inside>,
}

impl Wire for Door {
    fn poll(&self, cx: &Kernel, _: &ProtocolRef, budget: usize) -> usize {
        if !self.entrance.bell.take() {
            return 0;
        }
        for done in 0..budget {
            let Some(job) = self.entrance.next(self.inside.room(cx)) else {
                return done;
            };
            job(cx, &self.inside);
            if cx.must_leave() {
                return done + 1;
            }
        }
        self.entrance.bell.look_again();
        budget
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.entrance.bell.descriptor(see);
    }

    fn rest(&self, _: &Kernel, _: &ProtocolRef, _: &dyn Sleeper) -> bool {
        self.entrance.bell.rest()
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.entrance.bell.woken();
    }
}
