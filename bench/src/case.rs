//! What is measured.

/// What a row is to reach.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most this, in the row's unit.
    AtMost(f64),
    /// At least this many times as fast as the system that the row is compared with.
    TimesAsFast(f64),
}

/// Does the operation this many times.
pub(crate) type Run = Box<dyn FnMut(u64)>;

enum Setup {
    Pending(Box<dyn FnOnce() -> Run>),
    Done(Run),
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
    /// Sets up what is measured, and answers what does the operation a number of times.
    setup: Setup,
    /// How many operations one measurement does.
    pub operations: u64,
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
        Self {
            row: row.into(),
            system: "xk",
            ratio_to: None,
            goal: None,
            setup: Setup::Pending(Box::new(|| Box::new(setup()))),
            operations,
            divisor: 1.0,
            less: None,
        }
    }

    /// Does the operation this many times.
    pub fn run(&mut self, operations: u64) {
        let nothing = Setup::Done(Box::new(|_| {}));
        let mut run = match std::mem::replace(&mut self.setup, nothing) {
            Setup::Pending(setup) => setup(),
            Setup::Done(run) => run,
        };
        run(operations);
        self.setup = Setup::Done(run);
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
