//! Tasks that wait for a socket.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use xk_net::{Ready, Source, Watch, WatchId};

/// A socket that does not block, and the tasks that wait for it.
pub(crate) struct Awaited<S: Source> {
    pub(crate) socket: S,
    tasks: Arc<Tasks>,
    watch: WatchId,
}

/// Direction that a task waits for.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Read,
    Write,
}

#[derive(Default)]
struct Tasks {
    reading: Mutex<Vec<Waker>>,
    writing: Mutex<Vec<Waker>>,
}

impl Tasks {
    fn of(&self, way: Direction) -> &Mutex<Vec<Waker>> {
        match way {
            Direction::Read => &self.reading,
            Direction::Write => &self.writing,
        }
    }

    fn add(&self, way: Direction, waker: &Waker) {
        let mut list = self.of(way).lock().unwrap_or_else(PoisonError::into_inner);
        if !list.iter().any(|other| other.will_wake(waker)) {
            list.push(waker.clone());
        }
    }

    fn wake(&self, way: Direction) {
        let mut list = self.of(way).lock().unwrap_or_else(PoisonError::into_inner);
        for waker in list.drain(..) {
            waker.wake();
        }
    }
}

impl Watch for Tasks {
    fn notify(&self, now: Ready) {
        if now.intersects(Ready::READABLE | Ready::READ_CLOSED | Ready::ERROR) {
            self.wake(Direction::Read);
        }
        if now.intersects(Ready::WRITABLE | Ready::WRITE_CLOSED | Ready::ERROR) {
            self.wake(Direction::Write);
        }
    }
}

impl<S: Source> Awaited<S> {
    /// `socket` must not block.
    pub(crate) fn new(socket: S) -> Self {
        let tasks: Arc<Tasks> = Arc::default();
        let watch = socket.watch(Arc::clone(&tasks) as _);
        Self { socket, tasks, watch }
    }

    /// Tries, and has the task come again if it would have to wait.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        way: Direction,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        match attempt(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
        self.tasks.add(way, cx.waker());
        // It may have become ready before the task was among those that are told.
        match attempt(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        }
    }

    /// Attempts as a future.
    pub(crate) async fn wait<T>(
        &self,
        way: Direction,
        mut attempt: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        std::future::poll_fn(|cx| self.poll(cx, way, &mut attempt)).await
    }
}

impl<S: Source> Drop for Awaited<S> {
    fn drop(&mut self) {
        self.socket.unwatch(self.watch);
    }
}
