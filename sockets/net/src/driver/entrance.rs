//! Where other threads come into a stack: a bounded queue of commands and a bell.
//!
//! To the stack the entrance is a wire: its loop polls it with the others.

use super::port::Port;
use super::pump::Inside;
use crate::ready::lock;
use rustix::io::Errno;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use xk_core::wire::{Sleeper, Wire};
use xk_core::{Kernel, ProtocolRef};
use xk_run::Bell;

/// How many commands wait at most; who comes then waits in turn.
const COMMANDS_MAX: usize = 4096;

type Job = Box<dyn FnOnce(&Kernel, &Inside) + Send>;

enum Command {
    /// Do this.
    Run(Job),
    /// Look after this port; each is in the queue once at most.
    Tend(Arc<Port>),
}

/// The entrance.
pub(super) struct Entrance {
    queue: Mutex<Queue>,
    room: Condvar,
    pub(super) bell: Bell,
}

#[derive(Default)]
struct Queue {
    commands: VecDeque<Command>,
    jobs: usize,
    ended: bool,
}

impl Entrance {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { queue: Mutex::default(), room: Condvar::new(), bell: Bell::new()? })
    }

    /// Has `job` done in the stack, and answers what it answers.
    ///
    /// # Errors
    /// `ENETDOWN` if the stack has ended.
    pub(super) fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Kernel, &Inside) -> T + Send + 'static,
    ) -> Result<T, Errno> {
        let (answer, answered) = sync_channel(1);
        let job = Box::new(move |cx: &Kernel, inside: &Inside| {
            // Nobody may be left to hear it.
            let _ = answer.send(job(cx, inside));
        });
        let mut queue = lock(&self.queue);
        while queue.jobs >= COMMANDS_MAX && !queue.ended {
            queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.ended {
            return Err(Errno::NETDOWN);
        }
        queue.jobs += 1;
        queue.commands.push_back(Command::Run(job));
        drop(queue);
        self.bell.ring();
        answered.recv().map_err(|_| Errno::NETDOWN)
    }

    /// Has the stack look after a port.
    pub(super) fn tend(&self, port: &Arc<Port>) {
        if port.queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut queue = lock(&self.queue);
        if queue.ended {
            return;
        }
        queue.commands.push_back(Command::Tend(Arc::clone(port)));
        drop(queue);
        self.bell.ring();
    }

    /// The stack has ended: nothing is taken any more.
    pub(super) fn end(&self) {
        let mut queue = lock(&self.queue);
        queue.ended = true;
        let commands = std::mem::take(&mut queue.commands);
        drop(queue);
        self.room.notify_all();
        // Whoever waits for an answer finds that there is none.
        drop(commands);
    }

    fn next(&self) -> Option<Command> {
        let mut queue = lock(&self.queue);
        let command = queue.commands.pop_front();
        if let Some(Command::Run(_)) = &command {
            queue.jobs -= 1;
            if queue.jobs + 1 == COMMANDS_MAX {
                self.room.notify_all();
            }
        }
        command
    }
}

/// The stack's side of the entrance.
pub(super) struct Door {
    pub(super) entrance: Arc<Entrance>,
    pub(super) inside: Rc<Inside>,
}

impl Wire for Door {
    fn poll(&self, cx: &Kernel, _: &ProtocolRef, budget: usize) -> usize {
        if !self.entrance.bell.take() {
            return 0;
        }
        for done in 0..budget {
            match self.entrance.next() {
                None => return done,
                Some(Command::Run(job)) => job(cx, &self.inside),
                Some(Command::Tend(port)) => {
                    // Before it is looked at: what comes meanwhile has it looked at again.
                    port.queued.store(false, Ordering::SeqCst);
                    self.inside.tend(cx, &port);
                }
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
