//! The calling thread drives the stack.

use super::drive::{Drive, Scatter, Setting};
use crate::address::Endpoint;
use crate::layer::{Body, Layer, Loss, Received, Sharing, Socket};
use crate::ready::{Condition, Status};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use xk_compose::OpenHost;
use xk_core::Kernel;
use xk_kit::net::stream::{StreamInfo, StreamSetting};
use xk_run::{Runner, interrupt_unsafe};

/// How long the last handle of a stack waits for what was closed before.
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

/// The calling thread drives the stack: no other takes part.
#[derive(Clone)]
pub struct Here {
    inner: Rc<Inner>,
}

struct Inner {
    runner: Rc<Runner>,
    kernel: Rc<Kernel>,
    layer: Rc<Layer>,
}

/// A socket of such a stack.
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

    fn held(&self, socket: Result<Rc<Socket>, Errno>) -> Result<Held, Errno> {
        self.inner.runner.flush();
        Ok(Held { socket: socket?, inner: Rc::clone(&self.inner) })
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
        let inner = &self.inner;
        self.held(inner.layer.resume(&inner.kernel, octets))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Whatever goes wrong now, no handle is left to tell.
        let _ = self.drain(FAREWELL);
        self.kernel.stop();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.layer.close(&self.inner.kernel, &self.socket);
        self.inner.runner.flush();
    }
}

#[allow(private_interfaces, reason = "as for the trait")]
impl Drive for Here {
    type Socket = Held;

    fn connect(
        &self,
        local: Option<Endpoint>,
        peer: Endpoint,
        before: &[StreamSetting],
    ) -> Result<Held, Errno> {
        let inner = &self.inner;
        self.held(inner.layer.connect(&inner.kernel, local, peer, before))
    }

    fn reserve(&self, local: Endpoint, sharing: Sharing) -> Result<Held, Errno> {
        let inner = &self.inner;
        self.held(inner.layer.reserve(&inner.kernel, local, sharing))
    }

    fn datagrams(&self, local: Endpoint, sharing: Sharing) -> Result<Held, Errno> {
        let inner = &self.inner;
        self.held(inner.layer.datagrams(&inner.kernel, local, sharing))
    }

    fn status(socket: &Held) -> &Arc<Status> {
        &socket.socket.status
    }

    fn accept(&self, socket: &Held) -> Result<(Held, Endpoint), Errno> {
        let Body::Listener(listener) = &socket.socket.body else {
            return Err(Errno::INVAL);
        };
        let (accepted, peer) = listener.accept(&socket.socket)?;
        listener.unaccepted().fetch_sub(1, Ordering::Relaxed);
        Ok((self.held(Ok(accepted))?, peer))
    }

    #[inline]
    fn read(&self, socket: &Held, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let Body::Stream(stream) = &socket.socket.body else {
            return Err(Errno::NOTCONN);
        };
        let mut scatter = Scatter::new(into);
        let room = scatter.room();
        let put = |octets: &[u8]| scatter.put(octets);
        let octets = stream.read(&self.inner.kernel, &socket.socket, room, peek, put)?;
        self.inner.runner.flush();
        Ok(octets)
    }

    #[inline]
    fn write(&self, socket: &Held, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let Body::Stream(stream) = &socket.socket.body else {
            return Err(Errno::NOTCONN);
        };
        let octets = stream.write(&self.inner.kernel, &socket.socket, from)?;
        self.inner.runner.flush();
        Ok(octets)
    }

    #[inline]
    fn receive(
        &self,
        socket: &Held,
        into: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Received, Errno> {
        let Body::Datagrams(datagrams) = &socket.socket.body else {
            return Err(Errno::OPNOTSUPP);
        };
        let mut scatter = Scatter::new(into);
        let room = scatter.room();
        datagrams.receive(&socket.socket, room, peek, |octets| scatter.put(octets))
    }

    #[inline]
    fn send(
        &self,
        socket: &Held,
        from: &[IoSlice<'_>],
        to: Option<Endpoint>,
    ) -> Result<usize, Errno> {
        let Body::Datagrams(datagrams) = &socket.socket.body else {
            return Err(Errno::OPNOTSUPP);
        };
        let result = datagrams.send(&self.inner.kernel, &socket.socket, from, to);
        self.inner.runner.flush();
        result
    }

    fn connect_datagrams(&self, socket: &Held, peer: Option<Endpoint>) -> Result<(), Errno> {
        let layer = &self.inner.layer;
        layer.connect_datagrams(&self.inner.kernel, &socket.socket, peer)
    }

    fn shutdown(&self, socket: &Held, how: Shutdown) -> Result<(), Errno> {
        let result = match &socket.socket.body {
            Body::Stream(stream) => stream.shutdown(&self.inner.kernel, &socket.socket, how),
            Body::Datagrams(datagrams) => datagrams.shutdown(&socket.socket, how),
            Body::Listener(_) => Err(Errno::NOTCONN),
        };
        self.inner.runner.flush();
        result
    }

    fn set(&self, socket: &Held, setting: Setting) -> Result<(), Errno> {
        let result =
            super::drive_set(&self.inner.layer, &self.inner.kernel, &socket.socket, setting);
        self.inner.runner.flush();
        result
    }

    fn info(&self, socket: &Held) -> Result<StreamInfo, Errno> {
        match &socket.socket.body {
            Body::Stream(stream) => stream.info(&self.inner.kernel),
            Body::Listener(_) | Body::Datagrams(_) => Err(Errno::NOPROTOOPT),
        }
    }

    fn addresses(&self, socket: &Held) -> (Endpoint, Option<Endpoint>) {
        socket.socket.addresses()
    }

    fn take_error(&self, socket: &Held) -> Option<Errno> {
        socket.socket.take_error()
    }

    fn unread(&self, socket: &Held) -> usize {
        socket.socket.unread()
    }

    fn look(&self) {
        // One turn; if it cannot be had, the next wait says so.
        let _ = self.run_for(Duration::ZERO);
    }

    fn wait(&self, condition: &Arc<dyn Condition>, deadline: Option<Instant>) -> io::Result<bool> {
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let (until, layer) = (Arc::clone(condition), Rc::clone(&self.inner.layer));
        let is_over = move || until.holds() || layer.loss() == Loss::All;
        self.inner.runner.run(limit, Rc::new(move |_| is_over()))?;
        if condition.holds() {
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
