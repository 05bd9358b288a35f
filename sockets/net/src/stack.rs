//! One host of a graph, running.

use crate::driver::{Driver, Here, Thread};
use crate::ready::{Ready, Status, Watch, WatchId};
use crate::setup::Setup;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use xk_core::Entry;

/// A running host of a graph; clones are handles of the same one. It ends with its last handle and
/// its last socket.
#[derive(Clone)]
pub struct Stack<D: Driver = Here> {
    pub(crate) driver: D,
}

impl Stack<Here> {
    /// Runs the only host of the graph in a file, driven by the calling thread. `entries` are the
    /// protocols that the graph may name; [`Setup`] has more options.
    ///
    /// # Errors
    /// If the file cannot be read, the mistakes of the graph, or what this machine lacks for it.
    pub fn from_file(path: impl AsRef<Path>, entries: &[&'static Entry]) -> io::Result<Self> {
        Setup::from_file(path, entries)?.here()
    }

    /// Runs the only host of the graph in a text.
    pub fn from_text(text: impl Into<String>, entries: &[&'static Entry]) -> io::Result<Self> {
        Setup::from_text(text, entries).here()
    }

    /// Runs the loop for a while, so that arrivals are received and answered; a time of zero runs
    /// it once.
    ///
    /// # Errors
    /// If the loop cannot run.
    pub fn run_for(&self, time: Duration) -> io::Result<()> {
        self.driver.run_for(time)
    }
}

impl Stack<Thread> {
    /// Ends the stack with this handle, if it is the last and no socket is left. Waits until the
    /// stack's thread has taken the graph down, at most `limit` long; true if it has. If a program
    /// ends without waiting, that thread ends with it, and octets that wires write at the end, such
    /// as those of captures, are lost.
    pub fn end(self, limit: Duration) -> bool {
        self.driver.end(limit)
    }
}

impl<D: Driver> Stack<D> {
    pub(crate) fn new(driver: D) -> Self {
        Self { driver }
    }

    /// Waits until the octets written into closed sockets have arrived and their peers have ended
    /// too, at most `limit` long; true if all have. If the stack has a thread of its own, peers
    /// that have all octets get a second to end. Without this call, dropping the last handle waits
    /// for a second.
    ///
    /// # Errors
    /// If the loop cannot run.
    pub fn drain(&self, limit: Duration) -> io::Result<bool> {
        self.driver.drain(limit)
    }
}

/// A socket whose readiness can be watched.
pub trait Source {
    #[doc(hidden)]
    fn status(&self) -> &Shown;

    /// Operations for which the socket is ready now.
    fn ready(&self) -> Ready {
        self.status().0.now()
    }

    /// Has `watch` told of everything that happens from now on, until [`unwatch`](Self::unwatch).
    fn watch(&self, watch: Arc<dyn Watch>) -> WatchId {
        self.status().0.watch(watch)
    }

    /// No longer.
    fn unwatch(&self, id: WatchId) {
        self.status().0.unwatch(id);
    }
}

/// The readiness of a socket, for this crate only.
#[doc(hidden)]
pub struct Shown(pub(crate) Arc<Status>);
