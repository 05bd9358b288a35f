//! Recording every crossing of a message, and how long each layer took.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::{Cell, RefCell};
use std::time::Instant;
use xk_core::object::{ProtocolId, SessionId};
use xk_core::trace::{Crossing, Observer, Operation};
use xk_core::{ProtocolRef, Reason};

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
    /// Number of operations within which it lies.
    pub depth: u32,
    /// Start, in nanoseconds since the recorder was made.
    pub start_ns: u64,
    /// End, in nanoseconds since then; 0 while it runs.
    pub end_ns: u64,
}

/// Messages that a protocol has dropped, or refused, during an operation.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// The innermost operation, by its place in [`Recorder::spans`].
    pub span: usize,
    /// The protocol that has counted them.
    pub protocol: ProtocolId,
    /// Why.
    pub reason: &'static Reason,
    /// Number of drops.
    pub count: u64,
}

/// A protocol, and what it had dropped when it was looked at last.
struct Watched {
    protocol: ProtocolRef,
    total: Cell<u64>,
    known: RefCell<Vec<(&'static Reason, u64)>>,
}

impl Watched {
    /// Tells the drops since the last look.
    fn look(&self, mut tell: impl FnMut(&'static Reason, u64)) {
        let drops = self.protocol.head().drops();
        let total = drops.total();
        if self.total.replace(total) == total {
            return;
        }
        let now = drops.list();
        let known = self.known.replace(now.clone());
        for (at, (reason, count)) in now.into_iter().enumerate() {
            // They stay in the order of their first occurrence.
            let new = count - known.get(at).map_or(0, |(_, count)| *count);
            if new > 0 {
                tell(reason, new);
            }
        }
    }
}

/// An observer that keeps the first operations it sees, up to a bound, and what was dropped in
/// them.
pub struct Recorder {
    start: Instant,
    /// Begin of the record by the system's clock, which all processes share.
    begun: Timespec,
    spans_max: usize,
    spans: RefCell<Vec<Span>>,
    /// The places of those that run, the innermost last.
    open: RefCell<Vec<usize>>,
    /// The protocols that are watched, by number.
    watched: Vec<Watched>,
    dropped: RefCell<Vec<Dropped>>,
    depth: Cell<u32>,
    missed: Cell<u64>,
}

impl Recorder {
    /// A recorder for at most `spans_max` operations of these protocols, all of a kernel in their
    /// order.
    pub fn new(spans_max: usize, protocols: Vec<ProtocolRef>) -> Self {
        let watch =
            |protocol| Watched { protocol, total: Cell::default(), known: RefCell::default() };
        Self {
            start: Instant::now(),
            begun: clock_gettime(ClockId::Monotonic),
            spans_max,
            spans: RefCell::new(Vec::with_capacity(spans_max.min(4096))),
            open: RefCell::default(),
            watched: protocols.into_iter().map(watch).collect(),
            dropped: RefCell::default(),
            depth: Cell::new(0),
            missed: Cell::new(0),
        }
    }

    /// True once the bound is reached and the last operation kept has ended.
    pub fn is_full(&self) -> bool {
        self.spans.borrow().len() >= self.spans_max && self.depth.get() == 0
    }

    /// Time at which the recorder was made, in nanoseconds of CLOCK_MONOTONIC (clock_gettime(2)).
    pub fn begun_ns(&self) -> u64 {
        let seconds = u64::try_from(self.begun.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(self.begun.tv_nsec).unwrap_or(0)
    }

    /// The recorded operations, in the order in which they began.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.borrow().clone()
    }

    /// Drops within the recorded operations, in order. A drop outside of all operations, as by a
    /// timer, is not among them.
    pub fn dropped(&self) -> Vec<Dropped> {
        self.dropped.borrow().clone()
    }

    /// Number of operations that came after the bound was reached.
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }

    /// Looks what was dropped since the last look, by both ends of the innermost operation; at the
    /// beginning and the end of the outermost, by all.
    fn look(&self) {
        let innermost = self.open.borrow().last().copied();
        let spans = self.spans.borrow();
        let span = innermost.and_then(|at| spans.get(at));
        let see = |watched: &Watched| {
            watched.look(|reason, count| {
                if let Some(span) = innermost {
                    let protocol = watched.protocol.id();
                    self.dropped.borrow_mut().push(Dropped { span, protocol, reason, count });
                }
            });
        };
        match span.filter(|_| self.depth.get() > 1) {
            None => self.watched.iter().for_each(see),
            Some(span) => [span.upper, span.lower]
                .iter()
                .filter_map(|id| self.watched.get(id.0 as usize))
                .for_each(see),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Observer for Recorder {
    fn enter(&self, crossing: Crossing<'_>) -> u64 {
        self.look();
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
        let at = spans.len() - 1;
        self.open.borrow_mut().push(at);
        at as u64
    }

    fn leave(&self, span: u64) {
        let now = self.now_ns();
        self.look();
        self.depth.set(self.depth.get().saturating_sub(1));
        let at = usize::try_from(span).unwrap_or(usize::MAX);
        // Others may have ended before it that a shepherd had begun later.
        self.open.borrow_mut().retain(|open| *open != at);
        if let Some(span) = self.spans.borrow_mut().get_mut(at) {
            span.end_ns = now;
        }
    }
}
