//! Readiness: what can be done with a socket without waiting, and what is told when that changes.

use std::cell::Cell;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;
pub(crate) use xk_run::lock;

/// Operations that a socket can do without waiting: a set of the constants below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready(u32);

impl Ready {
    /// No operation.
    pub const NONE: Self = Self(0);
    /// There are octets to read, a peer to accept, the end of the stream, or an error.
    pub const READABLE: Self = Self(1);
    /// There is room to write, the stream has connected, or there is an error.
    pub const WRITABLE: Self = Self(2);
    /// The peer sends no more.
    pub const READ_CLOSED: Self = Self(4);
    /// Nothing more can be written.
    pub const WRITE_CLOSED: Self = Self(8);
    /// There is a pending error.
    pub const ERROR: Self = Self(16);
    /// A connection that was being made stands, or has failed.
    pub(crate) const SETTLED: Self = Self(32);

    /// This if `on`, else no operation.
    pub(crate) fn when(self, on: bool) -> Self {
        if on { self } else { Self::NONE }
    }

    /// True if every member of `other` is one of this.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if a member of `other` is one of this.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// True if it has no member.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if reading does not wait.
    pub fn is_readable(self) -> bool {
        self.intersects(Self::READABLE)
    }

    /// True if writing does not wait.
    pub fn is_writable(self) -> bool {
        self.intersects(Self::WRITABLE)
    }
}

impl BitOr for Ready {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Ready {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Ready {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// Receives notice when a socket becomes ready. A notice is repeated whenever more arrives, so no
/// edge is missed; it may be spurious. It comes from within the stack, so the receiver must not use
/// a socket itself.
pub trait Watch: Send + Sync {
    /// Tells the operations for which the socket is ready now.
    fn notify(&self, now: Ready);
}

/// The readiness of one socket, or of a poller's set: set by the stack, seen by the threads,
/// shepherds and tasks that wait.
#[derive(Default)]
pub(crate) struct Status {
    ready: AtomicU32,
    /// Threads that block here.
    waiting: AtomicUsize,
    watches: Mutex<Watches>,
    changed: Condvar,
}

thread_local! {
    /// This thread has told something that waits or watches.
    static STIRRED: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread has notified anything that waits for a socket or watches one since the last
/// call. A simulation asks whether a host that had a turn has woken its programs.
pub fn take_stirred() -> bool {
    STIRRED.take()
}

/// Notes that this thread has woken a program other than by a socket, for [`take_stirred`].
pub fn stir() {
    // A thread that ends has no simulation any more.
    let _ = STIRRED.try_with(|stirred| stirred.set(true));
}

#[derive(Default)]
struct Watches {
    list: Vec<(u64, Arc<dyn Watch>)>,
    last: u64,
    /// Threads have begun to wait since the last notice to threads.
    has_sleepers: bool,
}

/// The number of a watch on a socket; give it back to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchId(u64);

impl Status {
    /// The readiness now.
    #[inline]
    pub(crate) fn now(&self) -> Ready {
        Ready(self.ready.load(Ordering::SeqCst))
    }

    /// Adds to the readiness and tells everybody, news or not: more of the same is an edge, too.
    pub(crate) fn raise(&self, more: Ready) {
        let before = Ready(self.ready.fetch_or(more.0, Ordering::SeqCst));
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        stir();
        let mut watches = lock(&self.watches);
        if std::mem::take(&mut watches.has_sleepers) {
            self.changed.notify_all();
        }
        for (_, watch) in &watches.list {
            watch.notify(before | more);
        }
    }

    /// Takes away from the readiness.
    #[inline]
    pub(crate) fn lower(&self, less: Ready) {
        self.ready.fetch_and(!less.0, Ordering::SeqCst);
    }

    /// Has `watch` told from now on.
    pub(crate) fn watch(&self, watch: Arc<dyn Watch>) -> WatchId {
        let mut watches = lock(&self.watches);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        watches.last += 1;
        let id = watches.last;
        watches.list.push((id, watch));
        WatchId(id)
    }

    /// No longer.
    pub(crate) fn unwatch(&self, id: WatchId) {
        let mut watches = lock(&self.watches);
        let before = watches.list.len();
        watches.list.retain(|(other, _)| *other != id.0);
        let gone = before - watches.list.len();
        self.waiting.fetch_sub(gone, Ordering::SeqCst);
    }

    /// Blocks this thread until the socket is ready for any of `wanted`, or until `deadline`.
    pub(crate) fn block(&self, wanted: Ready, deadline: Option<Instant>) {
        let mut watches = lock(&self.watches);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.now().intersects(wanted) {
            watches.has_sleepers = true;
            watches = match deadline {
                None => self.changed.wait(watches).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let rest = deadline.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        break;
                    }
                    let slept = self.changed.wait_timeout(watches, rest);
                    slept.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Condition that a status has any of the wanted operations.
#[derive(Clone)]
pub(crate) struct Becomes {
    pub(crate) status: Arc<Status>,
    pub(crate) wanted: Ready,
}

impl Becomes {
    /// Whether it is.
    pub(crate) fn holds(&self) -> bool {
        self.status.now().intersects(self.wanted)
    }
}
