//! Records of the tracer, and its answers.

use core::cell::{Cell, RefCell};
use core::fmt;
use std::collections::VecDeque;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, SessionId};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Time};
use xk_core::{fields, question};
use xk_kit::passthrough::{Direction, Filter, Hop, PassThrough};

/// Most octets of one message that are kept.
pub const FIRST_OCTETS_MAX: usize = 64;

/// One message that crossed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// Time.
    pub time: Time,
    /// Direction.
    pub direction: Direction,
    /// The tracer's session that it crossed.
    pub session: SessionId,
    /// Octets of the message.
    pub len: usize,
    first: [u8; FIRST_OCTETS_MAX],
    first_len: u8,
}

fields!(Crossing { time, direction, session, len, first, first_len });

impl Crossing {
    /// The message's first octets.
    pub fn first(&self) -> &[u8] {
        self.first.get(..usize::from(self.first_len)).unwrap_or_default()
    }
}

/// One line: `0.000010s down s3 60 octets 02000000...`.
impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = self.direction.name();
        write!(f, "{:.9} {direction:4} {:?} {} octets ", self.time, self.session, self.len)?;
        self.first().iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        if self.first().len() < self.len { f.write_str("...") } else { Ok(()) }
    }
}

impl fmt::Debug for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Asked of a tracer: what crossed it.
#[derive(Debug)]
pub struct TraceLog {
    /// In: how many crossings the asker wants at most: the last ones.
    pub max: usize,
    /// Out: the crossings, oldest first.
    pub crossings: Vec<Crossing>,
    /// Out: how many there were since the start, remembered or not.
    pub total: u64,
}

impl Default for TraceLog {
    /// All that are remembered.
    fn default() -> Self {
        Self { max: usize::MAX, crossings: Vec::new(), total: 0 }
    }
}

question!(TraceLog { max, crossings, total }, "trace-log", Ask);

/// Put beside a kernel, gets a line of text for each crossing: the tracer's name and the
/// [`Crossing`].
pub struct TraceLines(pub Box<dyn Fn(&str)>);

/// The tracer's filter.
pub struct Tracer {
    name: String,
    ring: RefCell<VecDeque<Crossing>>,
    ring_max: usize,
    octets: usize,
    total: Cell<u64>,
}

pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (ring_max, octets) = (build.params.number("ring", 1000), build.params.number("octets", 16));
    let tracer = Tracer::new(build.name, ring_max, octets);
    build.add(PassThrough::new(build.lower(0)?, tracer))
}

impl Tracer {
    /// A tracer that remembers `ring_max` crossings and `octets` octets of each,
    /// [`FIRST_OCTETS_MAX`] at most.
    pub fn new(name: &str, ring_max: usize, octets: usize) -> Self {
        Self {
            name: name.into(),
            ring: RefCell::default(),
            ring_max: ring_max.max(1),
            octets: octets.min(FIRST_OCTETS_MAX),
            total: Cell::new(0),
        }
    }
}

impl Filter for Tracer {
    fn leaves_alone(&self) -> bool {
        true
    }

    fn start(&self, _: &Kernel, _: &ProtocolRef, _: &ProtocolRef) -> Result<(), OpenError> {
        let mut ring = self.ring.borrow_mut();
        ring.clear();
        // All at once, so that a message that crosses allocates nothing.
        ring.reserve_exact(self.ring_max);
        Ok(())
    }

    fn seen(&self, cx: &Kernel, hop: Hop<'_>, direction: Direction, message: &Message) {
        let mut first = [0; FIRST_OCTETS_MAX];
        let kept = first.get_mut(..self.octets).unwrap_or_default();
        let crossing = Crossing {
            time: cx.now(),
            direction,
            session: hop.this.id(),
            len: message.len(),
            first_len: message.copy_to(0, kept) as u8,
            first,
        };
        self.total.set(self.total.get() + 1);
        if let Some(lines) = cx.surroundings::<TraceLines>() {
            (lines.0)(&format!("{}: {crossing}", self.name));
        }
        let mut ring = self.ring.borrow_mut();
        if ring.len() >= self.ring_max {
            ring.pop_front();
        }
        ring.push_back(crossing);
    }

    fn control(
        &self,
        _: &Kernel,
        ask: &mut Ask<'_>,
        forward: &dyn Fn(&mut Ask<'_>) -> Answer,
    ) -> Answer {
        let Some(log) = ask.get::<TraceLog>() else {
            return forward(ask);
        };
        let ring = self.ring.borrow();
        let skip = ring.len().saturating_sub(log.max);
        log.crossings.extend(ring.iter().skip(skip));
        log.total = self.total.get();
        Answer::Answered
    }
}
