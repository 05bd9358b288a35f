//! Cases of benchmarks and the figures that these find.

use crate::stopwatch::{self, Watched};
use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Instant;

/// The goal of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At most this, in the row's unit.
    AtMost(f64),
    /// At least this, in the row's unit.
    AtLeast(f64),
    /// At least this many times as fast as the system that it is compared with.
    TimesAsFast(f64),
    /// At most this many times the figure of the system that it is compared with.
    AtMostTimes(f64),
}

/// Direction in which a figure is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Better {
    /// A time, a size.
    #[default]
    Lower,
    /// A rate.
    Higher,
}

/// Result of one round of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The figure, in the row's unit.
    pub value: f64,
    /// The middle one of the single operations within the round, if they were timed one by one.
    pub p50: Option<f64>,
    /// The time that 99 of 100 operations did not exceed.
    pub p99: Option<f64>,
    /// Other results of the round, such as what the sender sent beside what was received. The name
    /// states the unit.
    pub also: Vec<(&'static str, f64)>,
}

impl Sample {
    /// The middle of times in nanoseconds, in order of length, in a unit of so many.
    pub(crate) fn of_times(times: &[f64], unit_ns: f64) -> Self {
        let at = |share: f64| {
            times.get((times.len() as f64 * share) as usize).map(|time| time / unit_ns)
        };
        let value = at(0.5).unwrap_or(f64::NAN);
        Self { value, p50: at(0.5), p99: at(0.99), also: Vec::new() }
    }
}

impl From<f64> for Sample {
    fn from(value: f64) -> Self {
        Self { value, ..Self::default() }
    }
}

/// Why a round found nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// This machine lacks something; the text says what and what to type.
    Skipped(String),
    /// Something went wrong.
    Failed(String),
}

impl<E: std::error::Error> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A value that several rows need, made when the first of them does.
pub(crate) type Shared<T> = Rc<OnceCell<T>>;

/// Makes the shared value if this is the first to need it; a failure is remembered.
///
/// # Errors
/// The trouble of making it.
pub(crate) fn shared<T>(
    held: &OnceCell<Result<T, Trouble>>,
    make: impl FnOnce() -> Result<T, Trouble>,
) -> Result<&T, Trouble> {
    held.get_or_init(make).as_ref().map_err(Clone::clone)
}

/// Does the operation this many times.
pub(crate) type Run = Box<dyn FnMut(u64)>;
/// Measures one round; the share of the usual effort is 1 but in tests.
type Round = Box<dyn FnMut(f64) -> Result<Sample, Trouble>>;

enum Work {
    Pending(Box<dyn FnOnce() -> Run>),
    Batches(Run),
    Rounds(Round),
}

/// A figure of another system that a row is divided by.
#[derive(Clone, Copy, Debug)]
pub struct Against {
    /// Whose.
    pub system: &'static str,
    /// The goal, if it has one.
    pub goal: Option<Goal>,
}

/// One row of one system.
pub struct Case {
    /// The quantity that is measured.
    pub row: String,
    /// System of the figure: `xk` or a peer.
    pub system: &'static str,
    /// The systems whose figures of the same row this one is compared with.
    pub against: Vec<Against>,
    /// The goal of this case alone.
    pub goal: Option<Goal>,
    /// The unit of its figures, if it is another than the benchmark's.
    pub unit: Option<&'static str>,
    work: Work,
    /// The part of its work that counts, if not all.
    watched: Option<Watched>,
    /// Number of operations in one measurement.
    pub operations: u64,
    /// Number of the row's units in one operation: 2 for a round trip of two crossings.
    pub divisor: f64,
    /// The row to subtract: one of the same system, whose cost is contained in this one.
    pub less: Option<&'static str>,
}

impl Case {
    /// A row of xk: nanoseconds per operation, measured by the clock around a batch of them.
    ///
    /// `setup` runs once, before the first measurement and outside it.
    pub fn new<R: FnMut(u64) + 'static>(
        row: impl Into<String>,
        operations: u64,
        setup: impl FnOnce() -> R + 'static,
    ) -> Self {
        let work = Work::Pending(Box::new(|| Box::new(setup())));
        Self::with(row.into(), operations, work)
    }

    /// [`new`](Self::new) for what several rows share.
    pub(crate) fn on<T: 'static>(
        row: impl Into<String>,
        operations: u64,
        held: &Shared<T>,
        make: impl FnOnce() -> T + 'static,
        run: impl Fn(&T, u64) + 'static,
    ) -> Self {
        let held = Rc::clone(held);
        Self::new(row, operations, move || {
            held.get_or_init(make);
            move |operations| run(held.get().expect("it was made"), operations)
        })
    }

    /// [`measured`](Self::measured) for what several rows share; making it gets the effort, too.
    pub(crate) fn measured_on<T: 'static>(
        row: impl Into<String>,
        held: &Shared<Result<T, Trouble>>,
        make: impl Fn(f64) -> Result<T, Trouble> + 'static,
        round: impl Fn(&T, f64) -> Result<Sample, Trouble> + 'static,
    ) -> Self {
        let held = Rc::clone(held);
        Self::measured(row, move |effort| round(shared(&held, || make(effort))?, effort))
    }

    /// A row of xk that measures each round by itself.
    ///
    /// `round` gets the share of the usual effort that is to be made: 1, and less in tests.
    pub fn measured(
        row: impl Into<String>,
        round: impl FnMut(f64) -> Result<Sample, Trouble> + 'static,
    ) -> Self {
        Self::with(row.into(), 0, Work::Rounds(Box::new(round)))
    }

    fn with(row: String, operations: u64, work: Work) -> Self {
        Self {
            row,
            system: "xk",
            against: Vec::new(),
            goal: None,
            unit: None,
            work,
            watched: None,
            operations,
            divisor: 1.0,
            less: None,
        }
    }

    /// True if the operation can be done a given number of times, as counting instructions needs
    /// it.
    pub fn is_countable(&self) -> bool {
        !matches!(self.work, Work::Rounds(_))
    }

    /// Whether a part of its work counts alone.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.is_some()
    }

    /// Does the operation this many times under callgrind.
    pub(crate) fn run_counted(&mut self, operations: u64) {
        match self.watched {
            Some(watched) => stopwatch::count(watched, || self.run(operations)),
            None => self.run(operations),
        }
    }

    /// Does the operation this many times; nothing for a case that measures by itself.
    pub fn run(&mut self, operations: u64) {
        if let Work::Pending(_) = self.work {
            let nothing = Work::Batches(Box::new(|_| {}));
            if let Work::Pending(setup) = std::mem::replace(&mut self.work, nothing) {
                self.work = Work::Batches(setup());
            }
        }
        if let Work::Batches(run) = &mut self.work {
            run(operations);
        }
    }

    /// Measures one round with a share of the usual effort.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn measure(&mut self, effort: f64) -> Result<Sample, Trouble> {
        if let Work::Rounds(round) = &mut self.work {
            return round(effort);
        }
        let operations = ((self.operations as f64 * effort) as u64).max(1);
        let ns = match self.watched {
            Some(watched) => stopwatch::time(watched, || self.run(operations)),
            None => {
                let start = Instant::now();
                self.run(operations);
                start.elapsed().as_nanos() as f64
            }
        };
        Ok((ns / operations as f64 / self.divisor).into())
    }

    /// Counts only the work within `watched`: see [`stopwatch`].
    #[must_use]
    pub(crate) fn watched(mut self, watched: Watched) -> Self {
        self.watched = Some(watched);
        self
    }

    /// The row as measured on a peer.
    #[must_use]
    pub fn of(mut self, system: &'static str) -> Self {
        self.system = system;
        self
    }

    /// Compares it with a peer's figure of the same row. A goal set next that names a ratio is
    /// about it.
    #[must_use]
    pub fn beside(mut self, system: &'static str) -> Self {
        self.against.push(Against { system, goal: None });
        self
    }

    /// Sets its goal; one that names a ratio is about the system named last by [`Case::beside`].
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        match (goal, self.against.last_mut()) {
            (Goal::TimesAsFast(_) | Goal::AtMostTimes(_), Some(against)) => {
                against.goal = Some(goal);
            }
            _ => self.goal = Some(goal),
        }
        self
    }

    /// Sets the unit of its figures.
    #[must_use]
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Converts its figures, such as a time into a rate.
    #[must_use]
    pub(crate) fn shown_as(mut self, figure: impl Fn(f64) -> f64 + 'static) -> Self {
        self.work = match self.work {
            Work::Rounds(mut round) => Work::Rounds(Box::new(move |effort| {
                let Sample { value, p50, p99, also } = round(effort)?;
                let [p50, p99] = [p50, p99].map(|one| one.map(&figure));
                Ok(Sample { value: figure(value), p50, p99, also })
            })),
            batches => batches,
        };
        self
    }

    /// Divides each operation's cost.
    #[must_use]
    pub fn per(mut self, units: f64) -> Self {
        self.divisor = units;
        self
    }

    /// Subtracts what another row measured.
    #[must_use]
    pub fn less(mut self, row: &'static str) -> Self {
        self.less = Some(row);
        self
    }
}
