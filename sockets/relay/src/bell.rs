//! Tells the relay's loop of sockets of the stack that are ready.

use rustix::event::EventfdFlags;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use xk_net::{Ready, Watch};

/// Rings when a socket has something to say.
pub(crate) struct Bell {
    told: Mutex<VecDeque<Arc<Teller>>>,
    event: OwnedFd,
    ended: AtomicBool,
}

/// Tells of one socket; it is in the queue once at most.
pub(crate) struct Teller {
    id: u64,
    bell: Arc<Bell>,
    queued: AtomicBool,
    /// Itself, for the queue.
    own: std::sync::OnceLock<std::sync::Weak<Teller>>,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            told: Mutex::default(),
            event: rustix::event::eventfd(0, flags)?,
            ended: AtomicBool::new(false),
        })
    }

    /// Watch that rings the bell for the socket `id`.
    pub(crate) fn teller(self: &Arc<Self>, id: u64) -> Arc<Teller> {
        let teller = Arc::new(Teller {
            id,
            bell: Arc::clone(self),
            queued: AtomicBool::new(false),
            own: std::sync::OnceLock::new(),
        });
        let _ = teller.own.set(Arc::downgrade(&teller));
        teller
    }

    /// The next socket that has something to say.
    pub(crate) fn next(&self) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let teller = told.pop_front()?;
        teller.queued.store(false, Ordering::SeqCst);
        Some(teller.id)
    }

    /// Silences it until the next ring.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn ring(&self) {
        // It fails only if it rings without end already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl Watch for Teller {
    fn notify(&self, _: Ready) {
        let Some(own) = self.own.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        if self.queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut told = self.bell.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.push_back(own);
        let first = told.len() == 1;
        drop(told);
        if first {
            self.bell.ring();
        }
    }
}
