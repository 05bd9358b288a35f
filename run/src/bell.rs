//! The bell by which other threads wake a kernel's loop: by a flag while it is awake, by an eventfd
//! while it sleeps.

use rustix::event::EventfdFlags;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bell of a queue that other threads fill. The loop polls the queue as a [`Wire`], whose methods
/// call those of the bell with the same names.
///
/// The loop says before it sleeps; only then a [`ring`](Bell::ring) is a system call.
///
/// [`Wire`]: xk_core::wire::Wire
pub struct Bell {
    /// There is something in the queue.
    pending: AtomicBool,
    /// The loop sleeps, or is about to.
    asleep: AtomicBool,
    rung: AtomicBool,
    event: OwnedFd,
    /// The last handle is gone.
    leaving: AtomicBool,
}

impl Bell {
    /// A bell that has not been rung.
    ///
    /// # Errors
    /// The system has no eventfd to give.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            pending: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            event: rustix::event::eventfd(0, flags)?,
            leaving: AtomicBool::new(false),
        })
    }

    /// Has the loop look at the queue, from any thread.
    #[inline]
    pub fn ring(&self) {
        self.look_again();
        if self.asleep.load(Ordering::SeqCst) && !self.rung.swap(true, Ordering::SeqCst) {
            // It fails only if the counter is full, and then the loop wakes anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Has the loop look at the queue before it sleeps: for the loop's own thread.
    #[inline]
    pub fn look_again(&self) {
        self.pending.store(true, Ordering::SeqCst);
    }

    /// Whether the queue is to be looked at; not again until it rings.
    #[inline]
    pub fn take(&self) -> bool {
        self.pending.swap(false, Ordering::SeqCst)
    }

    /// No handle of the stack is left: its loop may end.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether [`leave`](Bell::leave) was called.
    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// Shows the descriptor on which the loop sleeps.
    pub fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(&self.event);
    }

    /// The loop is about to sleep; false if it must not.
    pub fn rest(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !self.pending.load(Ordering::SeqCst)
    }

    /// The loop has woken.
    pub fn woken(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        if self.rung.swap(false, Ordering::SeqCst) {
            // Empty it for the next sleep; a thread may be about to ring, which costs one sleep cut
            // short.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }
}
