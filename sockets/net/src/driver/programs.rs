//! Blocking programs of a simulation: they start others on their host, and wait for what is no
//! socket.

use super::sim::{Inner, Sim, SimHost, current, find};
use crate::stack::Stack;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::thread;
use std::time::Duration;
use xk_core::shepherd::{Semaphore, WaitError};

/// A program that was started, and the number of its host.
type Spawned = (u64, Box<dyn FnOnce()>);

thread_local! {
    static SPAWNED: RefCell<Vec<Spawned>> = const { RefCell::new(Vec::new()) };
}

impl Stack<Sim> {
    /// Starts another blocking program on this host, as `std::thread::spawn` starts a thread. The
    /// program gets a shepherd with a stack of its own, on which calls to this host's sockets wait.
    /// It begins at this moment of virtual time, when the calling program next waits. Values that
    /// both use need not be `Send`, because one of them runs at a time.
    ///
    /// # Errors
    /// `ENETDOWN` once the host has crashed.
    pub fn spawn<T: 'static>(
        &self,
        program: impl FnOnce() -> T + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let inner = find(self.driver.host())?;
        let end = Rc::new(End { result: RefCell::new(None), has_come: Semaphore::new(0) });
        let (told, kernel) = (Rc::clone(&end), Rc::clone(&inner));
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(program));
            match result {
                // The host has crashed, and with it all that would wait.
                Err(payload) if payload.is::<super::Crashed>() => resume_unwind(payload),
                result => *told.result.borrow_mut() = Some(result),
            }
            kernel.signal(&told.has_come);
        };
        SPAWNED.with_borrow_mut(|list| list.push((self.driver.host(), Box::new(run) as _)));
        Ok(JoinHandle { inner, end })
    }
}

struct End<T> {
    result: RefCell<Option<thread::Result<T>>>,
    has_come: Semaphore,
}

/// A program that [`Stack::spawn`] has started; dropping the handle lets it go on.
pub struct JoinHandle<T> {
    inner: Rc<Inner>,
    end: Rc<End<T>>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> JoinHandle<T> {
    /// True once the program has ended.
    pub fn is_finished(&self) -> bool {
        self.end.result.borrow().is_some()
    }

    /// Waits for the end of the program; returns its result, or its panic.
    ///
    /// # Errors
    /// What it has panicked with; an [`io::Error`], if this program cannot wait.
    pub fn join(self) -> thread::Result<T> {
        loop {
            let result = self.end.result.borrow_mut().take();
            if let Some(result) = result {
                return result;
            }
            if let Err(error) = self.inner.wait(&self.end.has_come, None) {
                return Err(Box::new(error));
            }
        }
    }
}

impl SimHost {
    /// Takes the programs that programs of this host have started, each to be run on a shepherd of
    /// its own.
    pub fn take_spawned(&self) -> Vec<Box<dyn FnOnce()>> {
        let is_its = |spawned: &mut Spawned| spawned.0 == self.number();
        let taken: Vec<Spawned> =
            SPAWNED.with_borrow_mut(|list| list.extract_if(.., is_its).collect());
        taken.into_iter().map(|(_, run)| run).collect()
    }
}

/// True if a program of this thread has started others that [`SimHost::take_spawned`] has not taken
/// yet.
pub fn have_spawned() -> bool {
    SPAWNED.with_borrow(|list| !list.is_empty())
}

/// Forgets the programs that hosts have started which are gone by now.
pub(super) fn forget_spawned(host: u64) {
    let gone = SPAWNED.try_with(|list| {
        list.borrow_mut().extract_if(.., |(other, _)| *other == host).collect::<Vec<_>>()
    });
    drop(gone);
}

/// A blocking program that waits for something other than a socket, such as a lock.
#[derive(Clone)]
pub struct Parked {
    inner: Rc<Inner>,
    bell: Rc<Semaphore>,
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parked").finish_non_exhaustive()
    }
}

impl Parked {
    /// The blocking program that this thread runs now, if there is one.
    pub fn here() -> Option<Self> {
        let inner = current()?;
        Some(Self { inner, bell: Rc::new(Semaphore::new(0)) })
    }

    /// Waits until [`end`](Self::end), or for a time; false if the time was over first. Once the
    /// host has crashed it never returns, and does not unwind.
    ///
    /// # Errors
    /// If no further shepherd can be had, for the host to go on meanwhile.
    pub fn wait(&self, time: Option<Duration>) -> io::Result<bool> {
        let mut time = time;
        loop {
            let waited = self.inner.kernel().wait(&self.bell, time);
            self.inner.resumed();
            match waited {
                Ok(()) => return Ok(true),
                Err(WaitError::TimedOut) => return Ok(false),
                // It cannot unwind through code of others, and has nothing to do any more.
                Err(WaitError::Interrupted | WaitError::Closed) => time = None,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    /// Ends the wait.
    pub fn end(&self) {
        self.inner.signal(&self.bell);
    }
}
