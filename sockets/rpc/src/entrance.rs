//! Where threads come into a stack: a bounded queue of jobs and a bell.
//!
//! To the stack the entrance is a wire: its loop polls it with the others, and announces here that it is about to sleep. Only
//! then is the bell rung, so no system call is made while the stack is awake. A job may block: then its shepherd waits, and the
//! loop goes on with the next one.

use crate::inside::Inside;
use rustix::event::EventfdFlags;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{Kernel, ProtocolRef};

/// How many jobs wait at most; who comes then waits in turn.
const JOBS_MAX: usize = 4096;

pub(crate) type Job = Box<dyn FnOnce(&Kernel, &Rc<Inside>) + Send>;

/// A lock whose holder may have panicked: what it guards is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entrance.
pub(crate) struct Entrance {
    queue: Mutex<Queue>,
    room: Condvar,
    /// There is something in the queue.
    pending: AtomicBool,
    /// The stack sleeps, or is about to.
    asleep: AtomicBool,
    rung: AtomicBool,
    bell: OwnedFd,
    /// The last handle is gone.
    leaving: AtomicBool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ended: bool,
}

impl Entrance {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            queue: Mutex::default(),
            room: Condvar::new(),
            pending: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            bell: rustix::event::eventfd(0, flags)?,
            leaving: AtomicBool::new(false),
        })
    }

    /// Has a job done in the stack; false if the stack has ended. Waits for room unless `at_once`, which those are who come from
    /// the stack itself.
    pub(crate) fn post(&self, job: Job, at_once: bool) -> bool {
        let mut queue = lock(&self.queue);
        while queue.jobs.len() >= JOBS_MAX && !queue.ended && !at_once {
            queue = self
                .room
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if queue.ended {
            return false;
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.ring();
        true
    }

    /// No handle is left.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// The stack has ended: nothing is taken any more, and who waits for a job finds that it is gone.
    pub(crate) fn end(&self) {
        let mut queue = lock(&self.queue);
        queue.ended = true;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.room.notify_all();
        drop(jobs);
    }

    fn ring(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && !self.rung.swap(true, Ordering::SeqCst) {
            // It fails only if the bell has been rung without end, and then it rings anyway.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        let job = queue.jobs.pop_front();
        if queue.jobs.len() + 1 == JOBS_MAX {
            self.room.notify_all();
        }
        if !queue.jobs.is_empty() {
            // The job may block: whoever leads the loop then finds the others.
            self.pending.store(true, Ordering::SeqCst);
        }
        job
    }
}

/// The stack's side of the entrance.
pub(crate) struct Door {
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) inside: Rc<Inside>,
}

impl Wire for Door {
    fn poll(&self, cx: &Kernel, _: &ProtocolRef, budget: usize) -> usize {
        if !self.entrance.pending.swap(false, Ordering::SeqCst) {
            return 0;
        }
        for done in 0..budget {
            let Some(job) = self.entrance.next() else {
                return done;
            };
            job(cx, &self.inside);
            if cx.must_leave() {
                return done + 1;
            }
        }
        self.entrance.pending.store(true, Ordering::SeqCst);
        budget
    }

    fn descriptor(&self) -> Option<i32> {
        Some(self.entrance.bell.as_raw_fd())
    }

    fn rest(&self, _: &Kernel, _: &ProtocolRef, _: &dyn Sleeper) -> bool {
        self.entrance.asleep.store(true, Ordering::SeqCst);
        !self.entrance.pending.load(Ordering::SeqCst)
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.entrance.asleep.store(false, Ordering::SeqCst);
        if self.entrance.rung.swap(false, Ordering::SeqCst) {
            // Empty it for the next sleep; somebody may be about to ring, which costs one sleep cut short.
            let _ = rustix::io::read(&self.entrance.bell, &mut [0; 8]);
        }
    }
}
