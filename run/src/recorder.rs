//! Recording every crossing of a message, and how long each layer took.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::{Cell, RefCell};
use std::time::Instant;
use xk_core::object::{ProtocolId, SessionId};
use xk_core::trace::{Crossing, Observer, Operation};

/// One operation on one message.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The operation.
    pub operation: Operation,
    /// The protocol above the edge.
    pub upper: ProtocolId,
    /// The protocol below the edge.
    pub lower: ProtocolId,
    /// The lower protocol's session.
    pub session: SessionId,
    /// The message's length at that point, in octets.
    pub octets: usize,
    /// How many operations it lies within.
    pub depth: u32,
    /// When it began, in nanoseconds since the recorder was made.
    pub start_ns: u64,
    /// When it ended; 0 while it runs.
    pub end_ns: u64,
}

/// An observer that keeps the first operations it sees, up to a bound.
pub struct Recorder {
    start: Instant,
    /// That moment by the system's clock that all processes share.
    begun: Timespec,
    spans_max: usize,
    spans: RefCell<Vec<Span>>,
    depth: Cell<u32>,
    missed: Cell<u64>,
}

impl Recorder {
    /// A recorder for at most `spans_max` operations.
    pub fn new(spans_max: usize) -> Self {
        Self {
            start: Instant::now(),
            begun: clock_gettime(ClockId::Monotonic),
            spans_max,
            spans: RefCell::new(Vec::with_capacity(spans_max.min(4096))),
            depth: Cell::new(0),
            missed: Cell::new(0),
        }
    }

    /// True once the bound is reached and the last operation kept has ended.
    pub fn is_full(&self) -> bool {
        self.spans.borrow().len() >= self.spans_max && self.depth.get() == 0
    }

    /// When it was made, in nanoseconds of CLOCK_MONOTONIC (clock_gettime(2)).
    pub fn begun_ns(&self) -> u64 {
        let seconds = u64::try_from(self.begun.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(self.begun.tv_nsec).unwrap_or(0)
    }

    /// What was recorded, in the order in which the operations began.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.borrow().clone()
    }

    /// How many operations came after the bound was reached.
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Observer for Recorder {
    fn enter(&self, crossing: Crossing<'_>) -> u64 {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        let mut spans = self.spans.borrow_mut();
        if spans.len() >= self.spans_max {
            self.missed.set(self.missed.get() + 1);
            return u64::MAX;
        }
        spans.push(Span {
            operation: crossing.operation,
            upper: crossing.upper,
            lower: crossing.lower,
            session: crossing.session,
            octets: crossing.message.len(),
            depth,
            start_ns: self.now_ns(),
            end_ns: 0,
        });
        (spans.len() - 1) as u64
    }

    fn leave(&self, span: u64) {
        let now = self.now_ns();
        self.depth.set(self.depth.get().saturating_sub(1));
        if let Some(span) =
            self.spans.borrow_mut().get_mut(usize::try_from(span).unwrap_or(usize::MAX))
        {
            span.end_ns = now;
        }
    }
}
