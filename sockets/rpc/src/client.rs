//! Calls from a program.

use crate::entrance::lock;
use crate::error::{Error, ErrorKind};
use crate::stack::{Shared, Stack};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use xk_core::Participant;
use xk_core::object::CallCause;
use xk_xdr::Xdr;

/// Names calls and targets, in all stacks of the process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Whom a client calls.
pub(crate) struct Target {
    pub(crate) id: u64,
    pub(crate) peer: Participant,
    pub(crate) program: Option<(u32, u32)>,
    stack: Arc<Shared>,
}

impl Drop for Target {
    fn drop(&mut self) {
        let id = self.id;
        let job = Box::new(move |cx: &_, inside: &std::rc::Rc<crate::inside::Inside>| {
            inside.forget(cx, id);
        });
        // A stack that has ended has forgotten.
        let _ = self.stack.entrance.post(job, true);
    }
}

/// Calls the procedures of one peer. Clones call the same one; many threads may call at once.
#[derive(Clone)]
pub struct Client {
    target: Arc<Target>,
    deadline: Option<Duration>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("peer", &self.target.peer.to_string())
            .field("program", &self.target.program)
            .field("deadline", &self.deadline)
            .finish()
    }
}

impl Client {
    pub(crate) fn new(stack: &Stack, peer: Participant) -> Self {
        Self::of(&stack.shared, peer, None, None)
    }

    fn of(
        stack: &Arc<Shared>,
        peer: Participant,
        program: Option<(u32, u32)>,
        deadline: Option<Duration>,
    ) -> Self {
        let target = Target {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            peer,
            program,
            stack: Arc::clone(stack),
        };
        Self {
            target: Arc::new(target),
            deadline,
        }
    }

    /// One that calls this version of this program of the same peer. A stack that names procedures by number alone leaves program
    /// and version out.
    #[must_use]
    pub fn program(&self, program: u32, version: u32) -> Self {
        let target = &self.target;
        let program = Some((program, version));
        Self::of(&target.stack, target.peer.clone(), program, self.deadline)
    }

    /// One whose calls wait at most this long each. Without a deadline the layers' own timers decide alone.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            target: Arc::clone(&self.target),
            deadline: Some(deadline),
        }
    }

    /// Calls a procedure with these octets, and waits for its reply's.
    ///
    /// # Errors
    /// What went wrong, and which layer says so.
    pub fn call(&self, procedure: u32, arguments: &[u8]) -> Result<Vec<u8>, Error> {
        self.start(procedure, arguments)?.wait()
    }

    /// Calls a procedure with this value, and waits for its reply: what generated clients do.
    ///
    /// # Errors
    /// As for [`Client::call`], or if the value has no representation, or the reply is none of its type.
    pub fn invoke<A: Xdr, R: Xdr>(&self, procedure: u32, arguments: &A) -> Result<R, Error> {
        let arguments = xk_xdr::to_vec(arguments).map_err(ErrorKind::Arguments)?;
        let reply = self.call(procedure, &arguments)?;
        Ok(xk_xdr::from_slice(&reply).map_err(ErrorKind::Reply)?)
    }

    /// Begins a call and does not wait.
    ///
    /// # Errors
    /// The stack has ended.
    pub fn start(&self, procedure: u32, arguments: &[u8]) -> Result<Pending, Error> {
        let tag = NEXT.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State::default());
        let job = {
            let end = End(Arc::clone(&state));
            let (target, deadline) = (Arc::clone(&self.target), self.deadline);
            let request = arguments.to_vec();
            Box::new(move |cx: &_, inside: &std::rc::Rc<crate::inside::Inside>| {
                let result = match end.0.cancelled.load(Ordering::SeqCst) {
                    true => Err(CallCause::Cancelled.into()),
                    false => inside.call(cx, &target, procedure, &request, deadline, tag),
                };
                let waiter = end.0.finish(result);
                if let Some(waiter) = waiter {
                    inside.wake(cx, waiter);
                }
            })
        };
        let stack = &self.target.stack;
        if !stack.entrance.post(job, stack.is_here()) {
            return Err(ErrorKind::Ended.into());
        }
        Ok(Pending {
            canceller: Canceller {
                state,
                tag,
                stack: Arc::clone(stack),
            },
        })
    }
}

/// What a call has come to.
#[derive(Default)]
pub(crate) struct State {
    result: Mutex<Outcome>,
    changed: Condvar,
    cancelled: AtomicBool,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<Vec<u8>, Error>>,
    done: bool,
    /// The shepherd that waits for it.
    waiter: Option<u64>,
}

impl State {
    fn finish(&self, result: Result<Vec<u8>, Error>) -> Option<u64> {
        let mut outcome = lock(&self.result);
        if !outcome.done {
            outcome.done = true;
            outcome.result = Some(result);
        }
        self.changed.notify_all();
        outcome.waiter.take()
    }

    pub(crate) fn is_done(&self) -> bool {
        lock(&self.result).done
    }

    fn take(&self) -> Result<Vec<u8>, Error> {
        let result = lock(&self.result).result.take();
        result.unwrap_or_else(|| Err(ErrorKind::Ended.into()))
    }

    /// Notes who waits; false if there is nothing to wait for.
    pub(crate) fn set_waiter(&self, waiter: u64) -> bool {
        let mut outcome = lock(&self.result);
        outcome.waiter = Some(waiter);
        !outcome.done
    }
}

/// The call's result, whatever becomes of its job.
struct End(Arc<State>);

impl Drop for End {
    fn drop(&mut self) {
        // After a result this changes nothing.
        let _ = self.0.finish(Err(ErrorKind::Ended.into()));
    }
}

/// A call under way. Dropping it takes the call back.
#[must_use]
pub struct Pending {
    canceller: Canceller,
}

impl Pending {
    /// Waits for the reply.
    ///
    /// # Errors
    /// As for [`Client::call`].
    pub fn wait(self) -> Result<Vec<u8>, Error> {
        let Canceller { state, stack, .. } = &self.canceller;
        if !stack.wait_here(state)? {
            let mut outcome = lock(&state.result);
            while !outcome.done {
                outcome = state
                    .changed
                    .wait(outcome)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.take()
    }

    /// Whether there is a reply, or an error, by now.
    pub fn is_done(&self) -> bool {
        self.canceller.state.is_done()
    }

    /// What takes the call back, for another thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.canceller.cancel();
    }
}

/// Takes a call back: whoever waits for it gets [`CallCause::Cancelled`].
#[derive(Clone)]
pub struct Canceller {
    state: Arc<State>,
    tag: u64,
    stack: Arc<Shared>,
}

impl Canceller {
    /// Takes the call back, unless it is over. The server may execute it all the same.
    pub fn cancel(&self) {
        if self.state.is_done() || self.state.cancelled.swap(true, Ordering::SeqCst) {
            return;
        }
        let tag = self.tag;
        let job = Box::new(move |cx: &_, inside: &std::rc::Rc<crate::inside::Inside>| {
            inside.cancel(cx, tag);
        });
        // With a stack that has ended the call has, too.
        let _ = self.stack.entrance.post(job, true);
    }
}
