//! A simulation drives the stack: a call that has to wait suspends the shepherd that the program
//! runs on, in virtual time.
//!
//! A handle names its host and socket by numbers, and finds both in a table of the simulation's
//! thread: so it is `Send`, as tasks of asynchronous runtimes must be, although a kernel is not.

use super::drive::Wait;
use super::here::SETTLE_EVERY;
use super::inside::Inside;
use crate::address::Endpoint;
use crate::layer::{Layer, Socket};
use crate::ready::{Becomes, Ready, Status, Watch};
use crate::stack::Stack;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Kernel, Time};

/// Payload of the panic that unwinds a program whose host has crashed. A program that catches it
/// goes on running.
#[derive(Debug)]
pub struct Crashed;

/// Driver of a stack that a simulation runs.
#[derive(Clone, Copy, Debug)]
pub struct Sim {
    host: u64,
}

/// Sockets of a simulated host, as long as this is kept. When it is dropped they vanish without a
/// word to their peers; drop it before the host crashes.
#[derive(Debug)]
pub struct SimHost {
    host: u64,
}

pub(super) struct Inner {
    kernel: Rc<Kernel>,
    layer: Rc<Layer>,
    /// Time zero of the kernel, as programs see it.
    origin: Instant,
    /// Semaphores on which shepherds wait, by place.
    bells: RefCell<BTreeMap<u32, Rc<Semaphore>>>,
    /// Called whenever a program goes on that has waited.
    resumed: RefCell<Option<Rc<dyn Fn()>>>,
}

thread_local! {
    static HOSTS: RefCell<BTreeMap<u64, Rc<Inner>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The hosts of all threads are told apart, so that none takes a handle for that of another.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The host whose blocking program this thread runs now.
pub(super) fn current() -> Option<Rc<Inner>> {
    let runs = |inner: &&Rc<Inner>| inner.kernel.shepherds().current().is_some();
    HOSTS.try_with(|hosts| hosts.borrow().values().find(runs).cloned()).ok().flatten()
}

pub(super) fn find(host: u64) -> Result<Rc<Inner>, Errno> {
    let found = HOSTS.try_with(|hosts| hosts.borrow().get(&host).cloned());
    found.ok().flatten().ok_or(Errno::NETDOWN)
}

impl SimHost {
    /// Makes sockets on the only `tcp` and the only `udp` of a kernel whose graph is built.
    ///
    /// # Errors
    /// If the graph has neither, or more than one.
    pub fn new(kernel: &Rc<Kernel>) -> io::Result<Self> {
        let layer = crate::setup::stand_on(kernel)?;
        let (now, past) = (Instant::now(), kernel.now().since(Time::ZERO));
        let origin = now.checked_sub(past).unwrap_or(now);
        let (kernel, bells) = (Rc::clone(kernel), RefCell::default());
        let resumed = RefCell::default();
        let inner = Rc::new(Inner { kernel, layer, origin, bells, resumed });
        let host = LAST.fetch_add(1, Ordering::Relaxed);
        HOSTS.with(|hosts| hosts.borrow_mut().insert(host, inner));
        Ok(Self { host })
    }

    /// The stack to make sockets on.
    pub fn stack(&self) -> Stack<Sim> {
        Stack::new(Sim { host: self.host })
    }

    pub(super) fn number(&self) -> u64 {
        self.host
    }

    /// Calls `call` whenever a blocking program of this host goes on after a wait.
    pub fn on_resume(&self, call: impl Fn() + 'static) {
        if let Ok(inner) = find(self.host) {
            *inner.resumed.borrow_mut() = Some(Rc::new(call));
        }
    }

    /// Resets the streams with a peer host, as a middlebox would: both ends find them reset.
    /// Returns their number.
    pub fn reset(&self, peer: IpAddr) -> usize {
        let peer = Endpoint::from(SocketAddr::new(peer, 0)).host;
        find(self.host).map_or(0, |inner| inner.layer.reset(&inner.kernel, peer))
    }
}

impl Sim {
    pub(super) fn host(self) -> u64 {
        self.host
    }
}

impl Drop for SimHost {
    fn drop(&mut self) {
        super::programs::forget_spawned(self.host);
        let gone = HOSTS.try_with(|hosts| hosts.borrow_mut().remove(&self.host));
        drop(gone);
    }
}

impl Stack<Sim> {
    /// The virtual time; [`Time::MAX`] once the host has crashed.
    pub fn now(&self) -> Time {
        find(self.driver.host).map_or(Time::MAX, |inner| inner.kernel.now())
    }

    /// The host's address; `None` if its graph has none, or once it has crashed.
    pub fn address(&self) -> Option<IpAddr> {
        let inner = find(self.driver.host).ok()?;
        let host = inner.layer.host(&inner.kernel)?;
        Some(SocketAddr::from(Endpoint { host, port: 0 }).ip())
    }

    /// Lets a program that runs on a shepherd wait for a time.
    ///
    /// # Errors
    /// `ENETDOWN` once the host has crashed; [`io::ErrorKind::Other`] if the program runs on no
    /// shepherd, or no further one can be had.
    pub fn sleep(&self, time: Duration) -> io::Result<()> {
        let inner = find(self.driver.host)?;
        inner.wait(&Semaphore::new(0), Some(time)).map(drop)
    }

    /// Random bits from the simulation's seed; 0 once the host has crashed.
    pub fn random(&self) -> u64 {
        find(self.driver.host).map_or(0, |inner| inner.kernel.random().next_u64())
    }
}

impl Inner {
    pub(super) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub(super) fn signal(&self, bell: &Semaphore) {
        self.kernel.signal(bell);
    }

    /// A program goes on.
    pub(super) fn resumed(&self) {
        let call = self.resumed.borrow().clone();
        if let Some(call) = call {
            call();
        }
    }

    /// Suspends this shepherd until the signal; false if `time` was first.
    pub(super) fn wait(&self, bell: &Semaphore, time: Option<Duration>) -> io::Result<bool> {
        // The thread counts panics: no other program is to run while this one unwinds.
        if std::thread::panicking() {
            return Err(Errno::NETDOWN.into());
        }
        let waited = self.kernel.wait(bell, time);
        self.resumed();
        match waited {
            Ok(()) => Ok(true),
            Err(WaitError::TimedOut) => Ok(false),
            Err(WaitError::Interrupted | WaitError::Closed) => {
                std::panic::resume_unwind(Box::new(Crashed))
            }
            Err(error @ WaitError::NotOnShepherd) => Err(io::Error::other(format!(
                "{error}: asynchronous programs wait by their runtime, and other threads are \
                 outside of the simulation"
            ))),
            Err(error @ WaitError::NoShepherds) => Err(io::Error::other(error)),
        }
    }
}

/// Ends the wait of a shepherd.
struct Bell {
    host: u64,
    shepherd: u32,
}

impl Watch for Bell {
    fn notify(&self, _: Ready) {
        let Ok(inner) = find(self.host) else { return };
        let bell = inner.bells.borrow().get(&self.shepherd).cloned();
        if let Some(bell) = bell {
            inner.kernel.signal(&bell);
        }
    }
}

/// A socket of a simulated host.
pub struct Numbered {
    host: u64,
    place: u32,
    status: Arc<Status>,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if let Ok(inner) = find(self.host)
            && let Some(socket) = inner.layer.socket_at(self.place)
        {
            inner.layer.close(&inner.kernel, &socket);
        }
    }
}

impl super::Driver for Sim {}

impl Inside for Sim {
    type Held = Numbered;

    fn within<T>(
        &self,
        work: impl FnOnce(&Kernel, &Layer) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let inner = find(self.host)?;
        work(&inner.kernel, &inner.layer)
    }

    fn with<T>(
        &self,
        held: &Numbered,
        work: impl FnOnce(&Kernel, &Layer, &Rc<Socket>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let inner = find(held.host)?;
        let socket = inner.layer.socket_at(held.place).ok_or(Errno::NETDOWN)?;
        work(&inner.kernel, &inner.layer, &socket)
    }

    fn hold(&self, socket: Rc<Socket>) -> Numbered {
        Numbered { host: self.host, place: socket.place, status: Arc::clone(&socket.status) }
    }

    fn status(held: &Numbered) -> &Arc<Status> {
        &held.status
    }
}

impl Wait for Sim {
    fn now(&self) -> Instant {
        find(self.host).map_or_else(
            |_| Instant::now(),
            |inner| inner.origin + inner.kernel.now().since(Time::ZERO),
        )
    }

    fn wait(&self, becomes: &Becomes, deadline: Option<Instant>) -> io::Result<bool> {
        let inner = find(self.host)?;
        let Some(shepherd) = inner.kernel.shepherds().current() else {
            return inner.wait(&Semaphore::new(0), None);
        };
        let bell = Rc::new(Semaphore::new(0));
        inner.bells.borrow_mut().insert(shepherd, Rc::clone(&bell));
        let watch = becomes.status.watch(Arc::new(Bell { host: self.host, shepherd }));
        let _watched = Watched { inner: &inner, becomes, watch, shepherd };
        loop {
            if becomes.holds() {
                return Ok(true);
            }
            let rest = deadline.map(|end| end.saturating_duration_since(self.now()));
            if rest == Some(Duration::ZERO) {
                return Ok(false);
            }
            inner.wait(&bell, rest)?;
        }
    }

    fn drain(&self, limit: Duration) -> io::Result<bool> {
        let inner = find(self.host)?;
        let end = inner.kernel.now().after(limit);
        while !inner.layer.is_quiet(&inner.kernel) {
            if inner.kernel.now() >= end {
                return Ok(false);
            }
            inner.wait(&Semaphore::new(0), Some(SETTLE_EVERY))?;
        }
        Ok(true)
    }
}

/// A watch that ends with the wait, however that ends.
struct Watched<'w> {
    inner: &'w Inner,
    becomes: &'w Becomes,
    watch: crate::ready::WatchId,
    shepherd: u32,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.becomes.status.unwatch(self.watch);
        self.inner.bells.borrow_mut().remove(&self.shepherd);
    }
}
