//! The entrance of other threads into a loop: a queue of commands, a bounded one of calls, and a
//! bell.
//!
//! To the loop the queue is a wire, which it polls with the others. A command may block: then its
//! shepherd waits, and the loop goes on with the next one. Calls are let in as long as the executor
//! has room for them; what ends a call or a wait never stands behind them.

use crate::Bell;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use xk_core::wire::{Sleeper, Wire};
use xk_core::{Kernel, ProtocolRef};

/// Calls that wait to be let in at most; further callers wait in turn.
pub const CALLS_QUEUED_MAX: usize = 4096;

/// A lock whose holder may have panicked: what it guards is whole between any two statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue, for any thread.
pub struct CommandQueue<C> {
    queue: Mutex<Queue<C>>,
    room: Condvar,
    bell: Bell,
}

struct Queue<C> {
    /// Commands that are executed at once. Each belongs to something that the program holds, such
    /// as a handle, or a thread that waits for the answer.
    commands: VecDeque<C>,
    calls: VecDeque<C>,
    ended: bool,
}

/// Result of posting a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The call is in the queue.
    Taken,
    /// As many wait as may.
    Full,
    /// The loop has ended.
    Ended,
}

impl<C> CommandQueue<C> {
    /// An empty queue.
    ///
    /// # Errors
    /// The system has no eventfd to give.
    pub fn new() -> io::Result<Self> {
        let (commands, calls) = (VecDeque::new(), VecDeque::new());
        let queue = Mutex::new(Queue { commands, calls, ended: false });
        Ok(Self { queue, room: Condvar::new(), bell: Bell::new()? })
    }

    /// The bell that wakes the loop.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Has a command executed; false if the loop has ended.
    pub fn post(&self, command: C) -> bool {
        let taken = self.put(|| Some(command));
        self.bell.ring();
        taken
    }

    /// Has the command executed that `command` makes, if any, when the loop turns next: nothing
    /// wakes it. Nothing else enters the queue meanwhile. False if the loop has ended.
    pub fn put(&self, command: impl FnOnce() -> Option<C>) -> bool {
        let mut queue = lock(&self.queue);
        if !queue.ended
            && let Some(command) = command()
        {
            queue.commands.push_back(command);
            self.bell.look_again();
        }
        !queue.ended
    }

    /// Has the command executed that `command` makes around a place for its answer, and waits for
    /// that; `None` if the loop has ended. Not for the thread that turns the loop.
    pub fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> C) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        self.post(command(answer)).then_some(())?;
        answered.recv().ok()
    }

    /// Has a call made, from another thread than the loop's. Waits for room until `due`.
    pub fn post_call(&self, call: C, due: Option<Instant>) -> Posted {
        let mut queue = lock(&self.queue);
        while queue.calls.len() >= CALLS_QUEUED_MAX && !queue.ended {
            queue = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                None => self.room.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Posted::Full,
                Some(left) => {
                    let waited = self.room.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        if queue.ended {
            return Posted::Ended;
        }
        queue.calls.push_back(call);
        drop(queue);
        self.bell.ring();
        Posted::Taken
    }

    /// Has a call made, from the thread that turns the loop, which must not wait for itself; nor
    /// has a service's call to wait for others that may wait for this service.
    pub fn post_call_here(&self, call: C) -> Posted {
        let mut queue = lock(&self.queue);
        if queue.ended {
            return Posted::Ended;
        }
        if queue.commands.len() >= CALLS_QUEUED_MAX {
            return Posted::Full;
        }
        queue.commands.push_back(call);
        drop(queue);
        self.bell.ring();
        Posted::Taken
    }

    /// The loop has ended: nothing is taken any more, and a thread that waits for an answer finds
    /// that its command is gone.
    pub fn end(&self) {
        let mut queue = lock(&self.queue);
        queue.ended = true;
        let commands = std::mem::take(&mut queue.commands);
        let calls = std::mem::take(&mut queue.calls);
        drop(queue);
        self.room.notify_all();
        drop((commands, calls));
    }

    /// The next one, if it may come in: a call if there is `room` for one.
    fn next(&self, room: usize) -> Option<C> {
        let mut queue = lock(&self.queue);
        let mut room = room;
        let next = match queue.commands.pop_front() {
            Some(command) => command,
            None if room > 0 => {
                let call = queue.calls.pop_front()?;
                room -= 1;
                self.room.notify_one();
                call
            }
            None => return None,
        };
        if !queue.commands.is_empty() || room > 0 && !queue.calls.is_empty() {
            // This one may block: the shepherd that leads the loop then finds the others.
            self.bell.look_again();
        }
        Some(next)
    }
}

/// Executes the commands of a queue, on the thread that turns the loop.
pub trait Executor {
    /// A command of another thread.
    type Command;

    /// Number of further calls that may come in.
    fn room(&self, cx: &Kernel) -> usize {
        let _ = cx;
        0
    }

    /// Executes a command; it may block.
    fn execute(self: &Rc<Self>, cx: &Kernel, command: Self::Command);
}

/// The loop's side of a queue.
pub struct CommandWire<E: Executor> {
    queue: Arc<CommandQueue<E::Command>>,
    executor: Rc<E>,
}

impl<E: Executor> CommandWire<E> {
    /// Has `executor` execute what is in the queue.
    pub fn new(queue: Arc<CommandQueue<E::Command>>, executor: Rc<E>) -> Self {
        Self { queue, executor }
    }

    /// The executor of the commands.
    pub fn executor(&self) -> &Rc<E> {
        &self.executor
    }
}

impl<E: Executor> Wire for CommandWire<E> {
    fn poll(&self, cx: &Kernel, _: &ProtocolRef, budget: usize) -> usize {
        if !self.queue.bell.take() {
            return 0;
        }
        for done in 0..budget {
            let Some(command) = self.queue.next(self.executor.room(cx)) else {
                return done;
            };
            self.executor.execute(cx, command);
            if cx.must_leave() {
                return done + 1;
            }
        }
        self.queue.bell.look_again();
        budget
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        self.queue.bell.descriptor(see);
    }

    fn rest(&self, _: &Kernel, _: &ProtocolRef, _: &dyn Sleeper) -> bool {
        self.queue.bell.rest()
    }

    fn woken(&self, _: &Kernel, _: &ProtocolRef) {
        self.queue.bell.woken();
    }
}
