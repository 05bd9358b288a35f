//! The tasks of one host: a tokio runtime that runs until none of them can go on, and says when it
//! wants to be called again.

use crate::{Result, system_unsafe};
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
    /// When it was made, from which tokio counts its milliseconds.
    begun: Time,
    /// What asks whether all tasks wait.
    asks: Arc<Mutex<Option<Waker>>>,
}

impl Runtime {
    /// On the world's thread, whose clock says `now`.
    ///
    /// # Errors
    /// If the process may have no more descriptors: a runtime has three.
    pub(crate) fn new(now: Time) -> io::Result<Self> {
        let asks: Arc<Mutex<Option<Waker>>> = Arc::default();
        let parked = Arc::clone(&asks);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().on_thread_unpark(move || {
            if let Some(waker) = parked.lock().unwrap_or_else(PoisonError::into_inner).take() {
                waker.wake();
            }
        });
        let tokio = Some(builder.build()?);
        Ok(Self { local: LocalSet::new(), tokio, begun: now, asks })
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
