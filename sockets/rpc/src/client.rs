//! Calls from a program.

use crate::error::{Error, ErrorKind};
use crate::reactor::{Answered, Reactor, Request};
use crate::replies::Replies;
use crate::stack::{Shared, Stack};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use xk_core::Participant;
use xk_kit::rpc::call::Gather;
use xk_run::{Posted, lock};
use xk_xdr::Xdr;

/// Names calls and targets, in all stacks of the process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Target of a client's calls.
pub(crate) struct Target {
    pub(crate) id: u64,
    pub(crate) peer: Participant,
    pub(crate) program: Option<(u32, u32)>,
    stack: Arc<Shared>,
}

impl Target {
    /// Another call may come in.
    pub(crate) fn look_again(&self) {
        self.stack.commands.bell().look_again();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let id = self.id;
        let job = Box::new(move |cx: &_, reactor: &Rc<Reactor>| {
            reactor.forget(cx, id);
        });
        // A stack that has ended has forgotten.
        let _ = self.stack.commands.post(job);
    }
}

/// Calls the procedures of one peer. Clones call the same peer; many threads may call at once.
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

/// Longest time after its deadline at which a call ends, whatever the stack's thread does.
const GRACE: Duration = Duration::from_millis(500);

impl Client {
    /// Default for the longest time of a call.
    pub const DEADLINE: Duration = Duration::from_secs(10);

    pub(crate) fn new(stack: &Stack, peer: Participant) -> Self {
        Self::of(&stack.shared, peer, None, Some(Self::DEADLINE))
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
        Self { target: Arc::new(target), deadline }
    }

    /// Returns a client of another program and version of the same peer. A stack that names
    /// procedures by number alone ignores program and version.
    #[must_use]
    pub fn program(&self, program: u32, version: u32) -> Self {
        let target = &self.target;
        let program = Some((program, version));
        Self::of(&target.stack, target.peer.clone(), program, self.deadline)
    }

    /// Returns a client whose calls take at most this long, instead of [`Client::DEADLINE`]. A call
    /// waits this long also for a peer that is not there yet: a server that is starting, or a link
    /// that is coming up.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { target: Arc::clone(&self.target), deadline: Some(deadline) }
    }

    /// Returns a client without a deadline. The timers of the layers decide whether there is a
    /// server; nothing limits its work, or the wait for a peer that is not there.
    #[must_use]
    pub fn without_deadline(&self) -> Self {
        Self { target: Arc::clone(&self.target), deadline: None }
    }

    /// Calls a procedure with these octets, waits for the reply and returns its octets.
    ///
    /// # Errors
    /// What went wrong, and which layer says so.
    pub fn call(&self, procedure: u32, arguments: &[u8]) -> Result<Vec<u8>, Error> {
        self.start(procedure, arguments)?.wait()
    }

    /// Calls a procedure with this value, and waits for the reply, as generated clients do.
    ///
    /// # Errors
    /// As for [`Client::call`], or if the value has no representation, or the reply is none of its
    /// type.
    pub fn invoke<A: Xdr, R: Xdr>(&self, procedure: u32, arguments: &A) -> Result<R, Error> {
        let arguments = xk_xdr::to_vec(arguments).map_err(ErrorKind::Arguments)?;
        let reply = self.call(procedure, &arguments)?;
        Ok(xk_xdr::from_slice(&reply).map_err(ErrorKind::Reply)?)
    }

    /// Calls a procedure of all hosts of a network or group. The client's peer is a broadcast
    /// address, `port2049@10.0.0.255`, or `port0@10.0.0.255` on `portmap`, which has the hosts'
    /// port mappers find the program. The replies come one by one until the deadline; servers do
    /// not answer a broadcast that they refuse (RFC 5531, section 8.4.2).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), xk_rpc::Error> {
    /// let stack = xk_rpc::Stack::from_file("client.kdl", xk_catalog::PROTOCOLS)?;
    /// let everyone = stack.client("port0@10.0.0.255")?.program(0x2000_0007, 1);
    /// let everyone = everyone.with_deadline(std::time::Duration::from_secs(2));
    /// for reply in everyone.broadcast(0, b"") {
    ///     println!("there is one at {}", reply?.host);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn broadcast(&self, procedure: u32, arguments: &[u8]) -> Replies {
        let call = (procedure, arguments.to_vec());
        Replies::new(self.clone(), call, self.begun())
    }

    /// Begins a call without waiting for its reply. It waits only if thousands of other calls are
    /// already waiting.
    ///
    /// # Errors
    /// The stack has ended, or no room came before the deadline.
    pub fn start(&self, procedure: u32, arguments: &[u8]) -> Result<Pending, Error> {
        self.begin((procedure, arguments.to_vec()), self.begun(), None)
    }

    fn begun(&self) -> Begun {
        Begun {
            tag: NEXT.fetch_add(1, Ordering::Relaxed),
            // What is too far away to be told is no deadline.
            due: self.deadline.and_then(|d| Instant::now().checked_add(d)),
        }
    }

    /// Has a call made, or the next reply to one to many hosts waited for.
    pub(crate) fn begin(
        &self,
        (procedure, octets): (u32, Vec<u8>),
        Begun { tag, due }: Begun,
        gather: Option<Gather>,
    ) -> Result<Pending, Error> {
        let state = Arc::new(CallState::default());
        let job = {
            let end = CallEnd(Arc::clone(&state));
            let target = Arc::clone(&self.target);
            Box::new(move |cx: &_, reactor: &Rc<Reactor>| {
                let request = Request {
                    target: &target,
                    procedure,
                    octets: &octets,
                    due,
                    tag,
                    gather,
                    cancelled: &end.0.cancelled,
                };
                let waiter = end.0.finish(reactor.call(cx, &request));
                if let Some(waiter) = waiter {
                    reactor.wake(cx, waiter);
                }
            })
        };
        let stack = &self.target.stack;
        let posted = match stack.is_here() {
            true => stack.commands.post_call_here(job),
            false => stack.commands.post_call(job, due),
        };
        match posted {
            Posted::Taken => {}
            Posted::Full => return Err(ErrorKind::Full.into()),
            Posted::Ended => return Err(ErrorKind::Ended.into()),
        }
        Ok(Pending { canceller: Canceller { state, tag, stack: Arc::clone(stack) }, due })
    }

    /// The further replies to a call to many hosts are not wanted.
    pub(crate) fn end_broadcast(&self, procedure: u32, tag: u64) {
        let key = (self.target.id, procedure);
        let job = Box::new(move |cx: &_, reactor: &Rc<Reactor>| {
            reactor.end_broadcast(cx, key, tag);
        });
        // With a stack that has ended the call has, too.
        let _ = self.target.stack.commands.post(job);
    }
}

/// A call's name within its stack, and the time when it ends.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) tag: u64,
    pub(crate) due: Option<Instant>,
}

/// State of a call.
#[derive(Default)]
pub(crate) struct CallState {
    result: Mutex<Outcome>,
    changed: Condvar,
    cancelled: AtomicBool,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<Answered, Error>>,
    done: bool,
    /// The shepherd that waits for it.
    waiter: Option<u64>,
}

impl CallState {
    fn finish(&self, result: Result<Answered, Error>) -> Option<u64> {
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

    /// Waits on a thread that does not turn the loop; false if it is not over by `until`.
    fn wait(&self, until: Option<Instant>) -> bool {
        let mut outcome = lock(&self.result);
        while !outcome.done {
            outcome = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(outcome).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return false,
                Some(left) => {
                    let waited = self.changed.wait_timeout(outcome, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    fn take(&self) -> Result<Answered, Error> {
        let result = lock(&self.result).result.take();
        result.unwrap_or_else(|| Err(ErrorKind::Ended.into()))
    }

    /// Notes which shepherd waits; false if there is nothing to wait for.
    pub(crate) fn set_waiter(&self, waiter: u64) -> bool {
        let mut outcome = lock(&self.result);
        outcome.waiter = Some(waiter);
        !outcome.done
    }
}

/// The call's result, whatever becomes of its job.
struct CallEnd(Arc<CallState>);

impl Drop for CallEnd {
    fn drop(&mut self) {
        // After a result this changes nothing.
        let _ = self.0.finish(Err(ErrorKind::Ended.into()));
    }
}

/// A call under way. Dropping it cancels the call.
#[must_use]
pub struct Pending {
    canceller: Canceller,
    due: Option<Instant>,
}

impl Pending {
    /// Waits for the reply.
    pub fn wait(self) -> Result<Vec<u8>, Error> {
        self.answered().map(|answered| answered.octets)
    }

    /// Waits for the reply, with the host that it is of.
    pub(crate) fn answered(self) -> Result<Answered, Error> {
        let Canceller { state, stack, .. } = &self.canceller;
        if !stack.wait_here(state)? && !state.wait(self.due.and_then(|due| due.checked_add(GRACE)))
        {
            return Err(ErrorKind::Stuck.into());
        }
        state.take()
    }

    /// True if there is a reply or an error.
    pub fn is_done(&self) -> bool {
        self.canceller.state.is_done()
    }

    /// Handle by which another thread can cancel the call.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.canceller.cancel();
    }
}

/// Cancels a call: the thread that waits for it gets
/// [`CallCause::Cancelled`](crate::CallCause::Cancelled).
#[derive(Clone)]
pub struct Canceller {
    state: Arc<CallState>,
    tag: u64,
    stack: Arc<Shared>,
}

impl Canceller {
    /// Cancels the call, unless it has ended. The server may execute it all the same.
    pub fn cancel(&self) {
        if self.state.is_done() || self.state.cancelled.swap(true, Ordering::SeqCst) {
            return;
        }
        let tag = self.tag;
        let job = Box::new(move |cx: &_, reactor: &Rc<Reactor>| {
            reactor.cancel(cx, tag);
        });
        // With a stack that has ended the call has, too.
        let _ = self.stack.commands.post(job);
    }
}
