//! The tasks of one host: a tokio runtime that runs until none of them can go on, and says when it
//! wants to be called again.

use crate::Result;
use crate::system_unsafe::{self, Entered};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::task::LocalSet;
use xk_core::Time;

/// An asynchronous program.
pub(crate) type Task = Pin<Box<dyn Future<Output = Result>>>;

pub(crate) struct Runtime {
    /// Before what its tasks run on.
    local: LocalSet,
    tokio: Option<tokio::runtime::Runtime>,
    /// Time at which it was made, from which tokio counts its milliseconds.
    begun: Time,
    /// Waker of the future that asks whether all tasks wait.
    asks: Asks,
}

type Asks = Arc<Mutex<Option<Waker>>>;

/// A runtime that asks each time that it has looked for events.
fn build(asks: &Asks) -> io::Result<tokio::runtime::Runtime> {
    let asks = Arc::clone(asks);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().on_thread_unpark(move || {
        if let Some(waker) = asks.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    });
    builder.build()
}

impl Runtime {
    /// On the world's thread, whose clock says `now`. A runtime has three descriptors: at the
    /// bound, this process takes as many as the system lets it have.
    ///
    /// # Errors
    /// If the system lets it have no more.
    pub(crate) fn new(now: Time, thread: &Entered) -> io::Result<Self> {
        let asks: Asks = Arc::default();
        // What it has of the system is no program's.
        let before = thread.crew().set_running(false);
        let built = build(&asks).or_else(|error| {
            if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) {
                let limit = getrlimit(Resource::Nofile);
                setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
                return build(&asks);
            }
            Err(error)
        });
        thread.crew().set_running(before);
        Ok(Self { local: LocalSet::new(), tokio: Some(built?), begun: now, asks })
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        drop(self.local.spawn_local(task));
    }

    /// Lets the tasks go on until all wait; when the first of them wants to go on by itself.
    pub(crate) fn turn(&mut self, now: Time) -> Option<Time> {
        let tokio = self.tokio.as_ref()?;
        system_unsafe::take_wait();
        // Asked before the tasks' first turn, and behind each time that the runtime has looked for
        // events: it waits for them only when no task can go on.
        let all_wait = poll_fn(|cx| match system_unsafe::take_wait() {
            Some(wait) => Poll::Ready(wait),
            None => {
                let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
                *asks = Some(cx.waker().clone());
                Poll::Pending
            }
        });
        let wait_ms = tokio.block_on(self.local.run_until(all_wait))?;
        let since_begun_ms = now.since(self.begun).as_millis() as u64;
        Some(self.begun.after(Duration::from_millis(since_begun_ms.saturating_add(wait_ms))))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Tasks first, then the runtime, without waiting for threads that it has lent.
        drop(std::mem::take(&mut self.local));
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}
