//! Waiting for many sockets at once.

use crate::driver::{Driver, Here, Thread};
use crate::error::invalid;
use crate::ready::{Becomes, Ready, Status, Watch, WatchId, lock};
use crate::stack::{Source, Stack};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Rule by which a ready socket is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At each wait, as long as it is ready.
    #[default]
    Level,
    /// Once whenever it has become ready, or more has arrived.
    Edge,
    /// Once, and then not until [`Poller::modify`].
    Once,
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key that the socket was registered with.
    pub key: usize,
    /// Operations for which it is ready, of the requested ones; closed ends and errors are always
    /// reported.
    pub ready: Ready,
}

/// Waits for many sockets of one stack at once. A socket is registered under a key that the program
/// chooses; deregister a socket before you drop it.
pub struct Poller<D: Driver = Here> {
    driver: D,
    set: Arc<Set>,
}

/// The registered sockets, and those of them that are to be looked at.
#[derive(Default)]
struct Set {
    state: Mutex<PollerState>,
    /// Readable while something is to be looked at.
    status: Arc<Status>,
    /// Readable while something is to be looked at, once a program has asked for it.
    event: OnceLock<OwnedFd>,
}

#[derive(Default)]
struct PollerState {
    entries: HashMap<usize, Entry>,
    /// Keys of entries that may have become ready, each at most once.
    pending: VecDeque<usize>,
    /// The descriptor is readable.
    is_shown: bool,
}

struct Entry {
    status: Arc<Status>,
    watch: WatchId,
    interest: Ready,
    mode: Mode,
    pending: bool,
    off: bool,
}

/// Watch of one entry.
struct Teller {
    set: Weak<Set>,
    key: usize,
}

/// Told whether asked for or not.
fn always() -> Ready {
    Ready::ERROR | Ready::READ_CLOSED | Ready::WRITE_CLOSED
}

impl Watch for Teller {
    fn notify(&self, now: Ready) {
        let Some(set) = self.set.upgrade() else {
            return;
        };
        let mut state = lock(&set.state);
        let state = &mut *state;
        let Some(entry) = state.entries.get_mut(&self.key) else {
            return;
        };
        if !entry.pending && !entry.off && now.intersects(entry.interest | always()) {
            entry.pending = true;
            state.pending.push_back(self.key);
            set.show(state);
        }
    }
}

impl<D: Driver> Poller<D> {
    /// Makes a poller for sockets of `stack`.
    pub fn new(stack: &Stack<D>) -> Self {
        Self { driver: stack.driver.clone(), set: Arc::default() }
    }

    /// Watches a socket from now on; if it is ready already, the next wait reports it.
    ///
    /// # Errors
    /// `InvalidInput` if the key is taken.
    pub fn register(
        &self,
        source: &impl Source,
        key: usize,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        let status = Arc::clone(&source.status().0);
        let mut state = lock(&self.set.state);
        if state.entries.contains_key(&key) {
            return Err(invalid("the key is registered already"));
        }
        drop(state);
        let teller = Teller { set: Arc::downgrade(&self.set), key };
        let watch = status.watch(Arc::new(teller));
        state = lock(&self.set.state);
        state
            .entries
            .insert(key, Entry { status, watch, interest, mode, pending: true, off: false });
        state.pending.push_back(key);
        self.set.show(&mut state);
        Ok(())
    }

    /// Changes the operations to watch for.
    ///
    /// # Errors
    /// `NotFound` if the key is not registered.
    pub fn modify(&self, key: usize, interest: Ready, mode: Mode) -> io::Result<()> {
        let mut state = lock(&self.set.state);
        let state = &mut *state;
        let Some(entry) = state.entries.get_mut(&key) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        entry.interest = interest;
        entry.mode = mode;
        entry.off = false;
        if !entry.pending {
            entry.pending = true;
            state.pending.push_back(key);
            self.set.show(state);
        }
        Ok(())
    }

    /// Stops watching a socket.
    ///
    /// # Errors
    /// `NotFound` if the key is not registered.
    pub fn deregister(&self, key: usize) -> io::Result<()> {
        let mut state = lock(&self.set.state);
        let Some(entry) = state.entries.remove(&key) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        state.pending.retain(|other| *other != key);
        self.set.show(&mut state);
        drop(state);
        entry.status.unwatch(entry.watch);
        Ok(())
    }

    /// Waits until a socket is ready, or until `timeout` is over; replaces the contents of `events`
    /// and returns their number. A timeout of zero does not wait.
    ///
    /// # Errors
    /// If the stack cannot run.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<usize> {
        let deadline = timeout.and_then(|timeout| self.driver.now().checked_add(timeout));
        let becomes = Becomes { status: Arc::clone(&self.set.status), wanted: Ready::READABLE };
        events.clear();
        // What is always ready must not keep the stack from its turn.
        self.driver.look();
        loop {
            self.set.collect(events);
            if !events.is_empty() || timeout == Some(Duration::ZERO) {
                return Ok(events.len());
            }
            if !self.driver.wait(&becomes, deadline)? {
                return Ok(0);
            }
        }
    }
}

impl Poller<Thread> {
    /// A descriptor for poll(2), select(2), epoll(7) and loops made of them. It is readable when a
    /// socket may be ready, until a [`wait`](Self::wait) finds none. Then call `wait` with a
    /// timeout of zero. The descriptor belongs to the poller and has no other use.
    ///
    /// # Errors
    /// If the process may have no more descriptors.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(event) = self.set.event.get() {
            return Ok(event.as_fd());
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = self.set.event.get_or_init(|| event).as_fd();
        self.set.show(&mut lock(&self.set.state));
        Ok(event)
    }
}

impl Set {
    /// Whether something is to be looked at: those that wait are told, and the descriptor is
    /// readable.
    fn show(&self, state: &mut PollerState) {
        let is_due = !state.pending.is_empty();
        match is_due {
            true => self.status.raise(Ready::READABLE),
            false => self.status.lower(Ready::READABLE),
        }
        let Some(event) = self.event.get().filter(|_| is_due != state.is_shown) else {
            return;
        };
        // Of a counter that is not full, or of one that is not zero: neither waits, and none fails.
        let _ = match is_due {
            true => rustix::io::write(event, &1_u64.to_ne_bytes()),
            false => rustix::io::read(event, &mut [0; 8]),
        };
        state.is_shown = is_due;
    }

    fn collect(&self, events: &mut Vec<Event>) {
        let mut state = lock(&self.state);
        state.collect(events);
        self.show(&mut state);
    }
}

impl PollerState {
    fn collect(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.pending.len() {
            let Some(key) = self.pending.pop_front() else {
                return;
            };
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            entry.pending = false;
            let ready = entry.status.now() & (entry.interest | always());
            if ready.is_empty() || entry.off {
                continue;
            }
            events.push(Event { key, ready });
            match entry.mode {
                Mode::Level => {
                    entry.pending = true;
                    self.pending.push_back(key);
                }
                Mode::Edge => {}
                Mode::Once => entry.off = true,
            }
        }
    }
}

impl<D: Driver> Drop for Poller<D> {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut lock(&self.set.state).entries);
        for entry in entries.into_values() {
            entry.status.unwatch(entry.watch);
        }
    }
}
