//! The calling thread drives the stack.

use super::drive::Wait;
use super::inside::{Inside, made};
use crate::layer::{Body, Layer, Loss, Socket};
use crate::ready::{Becomes, Status};
use rustix::io::Errno;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xk_compose::OpenHost;
use xk_core::Kernel;
use xk_run::{Runner, interrupt_unsafe};

/// Time that the last handle of a stack waits for sockets that were closed before.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// From one look whether all has ended to the next.
pub(super) const SETTLE_EVERY: Duration = Duration::from_millis(1);

/// Turns the loop until it `is_quiet`, at most `limit` long; true if it is. That is asked between
/// runs of the loop: an answer from another domain is not to let the loop wait.
pub(super) fn run_until_quiet(
    runner: &Runner,
    limit: Duration,
    is_quiet: impl Fn() -> bool,
) -> io::Result<bool> {
    let begun = Instant::now();
    loop {
        if is_quiet() {
            return Ok(true);
        }
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() || interrupt_unsafe::is_requested() {
            return Ok(false);
        }
        runner.run(Some(left.min(SETTLE_EVERY)), Rc::new(|_| false))?;
    }
}

/// Turns the loop until it `is_quiet`, and until what has not ended by then ends elsewhere, where
/// that can be.
pub(super) fn bid_farewell(
    runner: &Runner,
    kernel: &Kernel,
    layer: &Layer,
    is_quiet: impl Fn() -> bool,
) {
    // Whatever goes wrong now, no handle is left to tell.
    let _ = run_until_quiet(runner, FAREWELL, is_quiet);
    let _ = run_until_quiet(runner, FAREWELL, || layer.has_left(kernel));
}

/// Driver of a stack that runs on the calling thread; no other thread takes part.
#[derive(Clone)]
pub struct Here {
    inner: Rc<Inner>,
}

struct Inner {
    runner: Rc<Runner>,
    kernel: Rc<Kernel>,
    layer: Rc<Layer>,
}

/// A socket of a stack with this driver.
pub struct Held {
    socket: Rc<Socket>,
    inner: Rc<Inner>,
}

impl super::Driver for Here {}

impl Here {
    pub(crate) fn new(made: OpenHost<Rc<Layer>>) -> Self {
        Self { inner: Rc::new(Inner { runner: made.runner, kernel: made.kernel, layer: made.top }) }
    }

    pub(crate) fn run_for(&self, time: Duration) -> io::Result<()> {
        self.inner.runner.run(Some(time), Rc::new(|_| false))
    }
}

impl Inner {
    fn drain(&self, limit: Duration) -> io::Result<bool> {
        run_until_quiet(&self.runner, limit, || self.layer.is_quiet(&self.kernel))
    }
}

impl Here {
    /// The stream as octets; it is over here.
    pub(crate) fn give(&self, socket: &Held) -> Result<Vec<u8>, Errno> {
        let Body::Stream(stream) = &socket.socket.body else {
            return Err(Errno::NOTCONN);
        };
        let (inner, begun) = (&self.inner, Instant::now());
        loop {
            // What waits to go out belongs to what was given.
            inner.runner.flush();
            let given = stream.give(&inner.kernel, &socket.socket);
            // A stream that a registry has begun is a moment on its way.
            let may_move = inner.layer.is_elsewhere() && begun.elapsed() < FAREWELL;
            if given != Err(Errno::OPNOTSUPP) || !may_move {
                return given;
            }
            self.run_for(SETTLE_EVERY).map_err(|_| Errno::NETDOWN)?;
        }
    }

    /// The stream that was given elsewhere.
    pub(crate) fn resume(&self, octets: &[u8]) -> Result<Held, Errno> {
        made(self, |cx, layer| layer.resume(cx, octets))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Self { runner, kernel, layer } = &*self;
        bid_farewell(runner, kernel, layer, || layer.is_quiet(kernel));
        self.kernel.stop();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.layer.close(&self.inner.kernel, &self.socket);
        self.inner.runner.flush();
    }
}

impl Inside for Here {
    type Held = Held;

    fn within<T>(
        &self,
        work: impl FnOnce(&Kernel, &Layer) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        work(&self.inner.kernel, &self.inner.layer)
    }

    #[inline]
    fn with<T>(
        &self,
        held: &Held,
        work: impl FnOnce(&Kernel, &Layer, &Rc<Socket>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        work(&self.inner.kernel, &self.inner.layer, &held.socket)
    }

    fn hold(&self, socket: Rc<Socket>) -> Held {
        Held { socket, inner: Rc::clone(&self.inner) }
    }

    fn status(held: &Held) -> &Arc<Status> {
        &held.socket.status
    }

    #[inline]
    fn flush(&self) {
        self.inner.runner.flush();
    }
}

impl Wait for Here {
    fn look(&self) {
        // One turn; if it cannot be had, the next wait says so.
        let _ = self.run_for(Duration::ZERO);
    }

    fn wait(&self, becomes: &Becomes, deadline: Option<Instant>) -> io::Result<bool> {
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let (until, layer) = (becomes.clone(), Rc::clone(&self.inner.layer));
        let is_over = move || until.holds() || layer.loss() == Loss::All;
        self.inner.runner.run(limit, Rc::new(move |_| is_over()))?;
        if becomes.holds() {
            return Ok(true);
        }
        if self.inner.layer.loss() == Loss::All {
            return Err(Errno::NETDOWN.into());
        }
        if interrupt_unsafe::is_requested() {
            return Err(Errno::INTR.into());
        }
        Ok(false)
    }

    fn drain(&self, limit: Duration) -> io::Result<bool> {
        self.inner.drain(limit)
    }
}
