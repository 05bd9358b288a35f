//! What is measured.

use std::time::Instant;

/// What a row is to reach.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most this, in the row's unit.
    AtMost(f64),
    /// At least this, in the row's unit: for rates.
    AtLeast(f64),
    /// At least this many times as fast as the system that the row is compared with.
    TimesAsFast(f64),
}

/// What a case that measures itself found in one round, in the row's unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// The figure.
    pub figure: f64,
    /// The middle of the single operations' durations, if they were taken.
    pub p50: Option<f64>,
    /// What 99 of 100 operations do not exceed.
    pub p99: Option<f64>,
}

impl From<f64> for Found {
    fn from(figure: f64) -> Self {
        Self {
            figure,
            ..Self::default()
        }
    }
}

/// Does the operation this many times.
pub(crate) type Run = Box<dyn FnMut(u64)>;

/// Does the operation about this many times and says what came out, or why it cannot be measured here.
pub(crate) type Measure = Box<dyn FnMut(u64) -> Result<Found, String>>;

enum Setup {
    Pending(Box<dyn FnOnce() -> Run>),
    Done(Run),
    /// It measures itself.
    Own(Measure),
    /// A figure that somebody else has published.
    Quoted(f64),
}

/// One row of one system.
pub struct Case {
    /// What is measured.
    pub row: String,
    /// Whose figure it is: `xk` or a peer.
    pub system: &'static str,
    /// The system whose figure of the same row this one is divided by.
    pub ratio_to: Option<&'static str>,
    /// What it is to reach.
    pub goal: Option<Goal>,
    /// Its unit, where it is not the benchmark's.
    pub unit: Option<&'static str>,
    /// Sets up what is measured, and answers what does the operation a number of times.
    setup: Setup,
    /// How many operations one measurement does.
    pub operations: u64,
    /// Whether instructions are counted, if they can be; not where the set-up is long.
    pub counted: bool,
    /// How many of the row's units one operation holds: 2 for a round trip of two crossings.
    pub divisor: f64,
    /// What is subtracted: the row of the same system whose cost is contained in this one.
    pub less: Option<&'static str>,
}

impl Case {
    /// A row of xk.
    ///
    /// `setup` runs once, before the first measurement and outside it.
    pub fn new<R: FnMut(u64) + 'static>(
        row: impl Into<String>,
        operations: u64,
        setup: impl FnOnce() -> R + 'static,
    ) -> Self {
        let setup = Setup::Pending(Box::new(|| Box::new(setup())));
        Self::made(row.into(), operations, setup)
    }

    /// A row of xk that measures itself: `measure` is handed how many operations one round does, and answers
    /// the figure in the row's unit, or why it cannot be measured here; then it is not asked again.
    pub fn own(
        row: impl Into<String>,
        operations: u64,
        measure: impl FnMut(u64) -> Result<Found, String> + 'static,
    ) -> Self {
        Self::made(row.into(), operations, Setup::Own(Box::new(measure)))
    }

    /// A figure that somebody else has published, beside which the others stand.
    pub fn quoted(row: impl Into<String>, system: &'static str, figure: f64) -> Self {
        Self::made(row.into(), 0, Setup::Quoted(figure)).of(system)
    }

    fn made(row: String, operations: u64, setup: Setup) -> Self {
        Self {
            row,
            system: "xk",
            ratio_to: None,
            goal: None,
            unit: None,
            setup,
            operations,
            counted: true,
            divisor: 1.0,
            less: None,
        }
    }

    /// Does the operation this many times. Nothing for a quoted figure.
    pub fn run(&mut self, operations: u64) {
        let nothing = Setup::Quoted(0.0);
        let mut run = match std::mem::replace(&mut self.setup, nothing) {
            Setup::Pending(setup) => setup(),
            Setup::Done(run) => run,
            Setup::Own(mut measure) => {
                let _ = measure(operations);
                self.setup = Setup::Own(measure);
                return;
            }
            Setup::Quoted(figure) => {
                self.setup = Setup::Quoted(figure);
                return;
            }
        };
        run(operations);
        self.setup = Setup::Done(run);
    }

    /// Does what comes once before the first round.
    pub(crate) fn warm_up(&mut self) {
        if matches!(self.setup, Setup::Pending(_) | Setup::Done(_)) {
            self.run(self.operations / 4 + 1);
        }
    }

    /// Measures one round.
    pub(crate) fn round(&mut self) -> Result<Found, String> {
        match &mut self.setup {
            Setup::Own(measure) => measure(self.operations),
            Setup::Quoted(figure) => Ok((*figure).into()),
            Setup::Pending(_) | Setup::Done(_) => {
                let start = Instant::now();
                self.run(self.operations);
                let ns = start.elapsed().as_nanos() as f64;
                Ok((ns / self.operations as f64 / self.divisor).into())
            }
        }
    }

    /// Whether its instructions can be counted by running it twice as often.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted && matches!(self.setup, Setup::Pending(_) | Setup::Done(_))
    }

    /// Whether it is a figure of somebody else's.
    pub(crate) fn is_quoted(&self) -> bool {
        matches!(self.setup, Setup::Quoted(_))
    }

    /// The same row of a peer.
    #[must_use]
    pub fn of(mut self, system: &'static str) -> Self {
        self.system = system;
        self
    }

    /// Compares it with a peer's figure of the same row.
    #[must_use]
    pub fn beside(mut self, system: &'static str) -> Self {
        self.ratio_to = Some(system);
        self
    }

    /// Sets its goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// Leaves the instruction count out.
    #[must_use]
    pub fn uncounted(mut self) -> Self {
        self.counted = false;
        self
    }

    /// Gives it a unit of its own.
    #[must_use]
    pub fn in_unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
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

/// A table of rows.
pub struct Benchmark {
    /// Its name, as `xk bench` takes it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// Makes its rows; what they need is set up here, outside the measurement.
    pub cases: fn() -> Vec<Case>,
    /// Rows computed from the measured ones, such as a slope.
    pub derived: fn(&[crate::Record]) -> Vec<crate::Record>,
}

/// For benchmarks that compute no further rows.
pub(crate) fn nothing_derived(_: &[crate::Record]) -> Vec<crate::Record> {
    Vec::new()
}
