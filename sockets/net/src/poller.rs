//! Waiting for many sockets at once.

use crate::driver::{Driver, Here};
use crate::error::invalid;
use crate::ready::{Condition, Ready, Status, Watch, WatchId, lock, rest_of, sleep_on};
use crate::stack::{Source, Stack};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// When a socket that is ready is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By each wait, as long as it is ready.
    #[default]
    Level,
    /// Once each time that it has become ready, or that more has come.
    Edge,
    /// Once, and then no more until [`Poller::modify`].
    Once,
}

/// What a wait has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key that the socket was registered with.
    pub key: usize,
    /// What it is ready for, of what was asked for; closed ends and errors are always told.
    pub ready: Ready,
}

/// Waits for many sockets of one stack at once. A socket is registered under a key of the program's
/// choice; one that is dropped must be taken out before.
pub struct Poller<D: Driver = Here> {
    driver: D,
    set: Arc<Set>,
}

/// The registered sockets, and those of them that are to be looked at.
#[derive(Default)]
struct Set {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: HashMap<usize, Entry>,
    /// Keys of entries that may have become ready, each at most once.
    pending: VecDeque<usize>,
}

struct Entry {
    status: Arc<Status>,
    watch: WatchId,
    interest: Ready,
    mode: Mode,
    pending: bool,
    off: bool,
}

/// What is told of one entry.
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
            set.changed.notify_all();
        }
    }
}

impl Condition for Set {
    fn holds(&self) -> bool {
        !lock(&self.state).pending.is_empty()
    }

    fn block(&self, deadline: Option<Instant>) {
        let mut state = lock(&self.state);
        while state.pending.is_empty() {
            let Some(rest) = rest_of(deadline) else {
                return;
            };
            state = sleep_on(&self.changed, state, rest);
        }
    }
}

impl<D: Driver> Poller<D> {
    /// A poller for sockets of `stack`.
    pub fn new(stack: &Stack<D>) -> Self {
        Self { driver: stack.driver.clone(), set: Arc::default() }
    }

    /// Watches a socket from now on; if it is ready already, the next wait says so.
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
        drop(state);
        self.set.changed.notify_all();
        Ok(())
    }

    /// Asks for something else.
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
            self.set.changed.notify_all();
        }
        Ok(())
    }

    /// Watches no longer.
    ///
    /// # Errors
    /// `NotFound` if the key is not registered.
    pub fn deregister(&self, key: usize) -> io::Result<()> {
        let mut state = lock(&self.set.state);
        let Some(entry) = state.entries.remove(&key) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        state.pending.retain(|other| *other != key);
        drop(state);
        entry.status.unwatch(entry.watch);
        Ok(())
    }

    /// Waits until a socket is ready, or until `timeout` is over, and puts what it finds into
    /// `events` in place of what was there; answers how many. No time only looks.
    ///
    /// # Errors
    /// If the stack cannot run.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<usize> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        events.clear();
        // What is always ready must not keep the stack from its turn.
        self.driver.look();
        loop {
            self.set.collect(events);
            if !events.is_empty() || timeout == Some(Duration::ZERO) {
                return Ok(events.len());
            }
            let set: Arc<dyn Condition> = Arc::clone(&self.set) as _;
            if !self.driver.wait(&set, deadline)? {
                return Ok(0);
            }
        }
    }
}

impl Set {
    fn collect(&self, events: &mut Vec<Event>) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        for _ in 0..state.pending.len() {
            let Some(key) = state.pending.pop_front() else {
                return;
            };
            let Some(entry) = state.entries.get_mut(&key) else {
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
                    state.pending.push_back(key);
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
