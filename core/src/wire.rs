//! The outside world's side of a bottom anchor.
//!
//! A wire is a protocol like any other towards the layers above it; this trait is what the executor
//! needs besides: to look for arrivals, to send what was queued, and to know what to sleep on.

use crate::kernel::Kernel;
use crate::object::ProtocolRef;
use crate::time::Time;
use core::any::Any;
use core::time::Duration;

/// Sleeper of an executor, for wires whose descriptors come and go.
///
/// A descriptor goes by reference to what owns it, so that it is open for as long as it is looked
/// at. This crate knows no operating system: on Unix, `fd` is a `std::os::fd::OwnedFd`, and
/// anything else is nothing to sleep on.
pub trait Sleeper {
    /// Ends the sleep each time that `fd` is signalled, whether or not it was read from
    /// since, until it is removed. False if the system refuses.
    fn add(&self, fd: &dyn Any) -> bool;

    /// Takes `fd` out again. It must still be open.
    fn remove(&self, fd: &dyn Any);

    /// Ends the sleep that is about to begin, and no other, while `fd` is readable, and keeps it
    /// open until then: on Unix, `fd` is a `std::rc::Rc` of an `OwnedFd`. For few descriptors,
    /// which are looked at one by one, and cost nothing while nothing sleeps.
    fn until_readable(&self, fd: &dyn Any);
}

/// The executor's view of a wire.
pub trait Wire {
    /// Takes at most `budget` arrivals and passes them up. Answers how many it took. After one that
    /// took some, one may be put off and take none, so that what follows from them goes first.
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize;

    /// Sends what was pushed since the last flush.
    fn flush(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// Shows what owns the file descriptor that becomes readable on arrivals, but for those of
    /// which [`rest`](Self::rest) tells, as for [`Sleeper`], if there is one to sleep on.
    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        let _ = see;
    }

    /// Time at which it wants to be polled next without an arrival.
    fn next_poll(&self) -> Option<Time> {
        None
    }

    /// True if something it queued could not be sent yet, so that it wants to know when it can.
    fn wants_writable(&self) -> bool {
        false
    }

    /// The executor is about to sleep: a sender to this wire that gives no signal is told to
    /// signal. False if there is something to do; then the executor does not sleep, and
    /// [`woken`](Self::woken) follows all the same.
    fn rest(&self, cx: &Kernel, this: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        let _ = (cx, this, sleeper);
        true
    }

    /// Sleeps until something arrives, for at most `limit`, in place of an executor that has
    /// nothing but this wire to sleep on. False, at once, if it cannot. The call that waits takes
    /// the arrival too, so one system call does the work of two.
    fn sleep(&self, cx: &Kernel, this: &ProtocolRef, limit: Duration) -> bool {
        let _ = (cx, this, limit);
        false
    }

    /// The executor has slept, or has thought better of it.
    fn woken(&self, cx: &Kernel, this: &ProtocolRef) {
        let _ = (cx, this);
    }

    /// False if looking again and again keeps away what is looked for: the other side needs this
    /// processor to send.
    fn may_spin(&self) -> bool {
        true
    }
}
