//! Commands of other threads to a stack.

use super::port::Port;
use super::pump::Reactor;
use rustix::io::Errno;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xk_core::Kernel;
use xk_run::Executor;

type Job = Box<dyn FnOnce(&Kernel, &Reactor) + Send>;

/// A command to the stack's thread.
pub(super) enum Command {
    /// Run this job.
    Run(Job),
    /// Serve this port; each port is in the queue at most once.
    Tend(Arc<Port>),
}

/// Queue of commands to the stack's thread.
pub(super) type CommandQueue = xk_run::CommandQueue<Command>;

/// Has `job` done in the stack, and answers what it answers.
///
/// # Errors
/// `ENETDOWN` if the stack has ended.
pub(super) fn call<T: Send + 'static>(
    commands: &CommandQueue,
    job: impl FnOnce(&Kernel, &Reactor) -> T + Send + 'static,
) -> Result<T, Errno> {
    let answer = commands.ask(|answer| {
        Command::Run(Box::new(move |cx: &Kernel, reactor: &Reactor| {
            // The thread that waits for it may be gone.
            let _ = answer.send(job(cx, reactor));
        }))
    });
    answer.ok_or(Errno::NETDOWN)
}

impl Executor for Reactor {
    type Command = Command;

    fn execute(self: &Rc<Self>, cx: &Kernel, command: Command) {
        match command {
            Command::Run(job) => job(cx, self),
            Command::Tend(port) => {
                // Before it is looked at: what comes meanwhile has it looked at again.
                port.queued.store(false, Ordering::SeqCst);
                self.tend(cx, &port);
            }
        }
    }
}
