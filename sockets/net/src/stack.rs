//! One host of a graph, running.

use crate::driver::{Driver, Here, Thread};
use crate::ready::{Ready, Status, Watch, WatchId};
use crate::setup::Setup;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use xk_core::Entry;

/// One host of a graph, running; clones are the same one. It ends with its last handle and its last
/// socket.
#[derive(Clone)]
pub struct Stack<D: Driver = Here> {
    pub(crate) driver: D,
}

impl Stack<Here> {
    /// The only host of the graph in a file, of protocols of these entries, driven by the calling
    /// thread; [`Setup`] has more to choose from.
    ///
    /// # Errors
    /// If the file cannot be read, the mistakes of the graph, or what this machine lacks for it.
    pub fn from_file(path: impl AsRef<Path>, entries: &[&'static Entry]) -> io::Result<Self> {
        Setup::from_file(path, entries)?.here()
    }

    /// The only host of the graph in a text.
    pub fn from_text(text: impl Into<String>, entries: &[&'static Entry]) -> io::Result<Self> {
        Setup::from_text(text, entries).here()
    }

    /// Turns the loop for a while, with nothing to wait for: what arrives is taken and answered.
    /// One turn if it is no time.
    ///
    /// # Errors
    /// If the loop cannot run.
    pub fn run_for(&self, time: Duration) -> io::Result<()> {
        self.driver.run_for(time)
    }
}

impl Stack<Thread> {
    /// Ends the stack with this handle, if it is the last and no socket is left, and waits until
    /// its thread has taken the graph down, at most `limit` long; true if it has. A program that
    /// ends without waiting takes the thread along: what wires keep back to the end, as captures
    /// do, is lost then.
    pub fn end(self, limit: Duration) -> bool {
        self.driver.end(limit)
    }
}

impl<D: Driver> Stack<D> {
    pub(crate) fn new(driver: D) -> Self {
        Self { driver }
    }

    /// Waits until what was written into sockets that are closed by now has arrived and their peers
    /// have ended, too, at most `limit` long; true if all have. Beside a stack with a thread of its
    /// own peers that have all of it have a second to end. Without it the last handle waits for a
    /// second.
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

/// The readiness of a socket, for this crate's eyes.
#[doc(hidden)]
pub struct Shown(pub(crate) Arc<Status>);
