//! One result, as the table and the JSON file show it.

use crate::case::{Better, Goal};
use serde_json::{Map, Value, json};

/// Ratio of a figure to another system's of the same row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The other system.
    pub system: &'static str,
    /// This system's median divided by the other's.
    pub ratio: f64,
    /// The ratios of single rounds, without the lowest and the highest quarter of them.
    pub interval: (f64, f64),
    /// The goal.
    pub goal: Option<Goal>,
}

/// Verdict on a goal after all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The whole interval reaches it.
    Reached,
    /// A part of it does: the rounds differ by more than the goal's margin.
    Undecided,
    Missed,
}

/// One result.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The benchmark.
    pub bench: &'static str,
    /// The row.
    pub row: String,
    /// System of the figure.
    pub system: &'static str,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Direction in which they are better.
    pub better: Better,
    /// The lowest round. Not a number if there is none.
    pub min: f64,
    /// The middle round.
    pub median: f64,
    /// The highest round.
    pub max: f64,
    /// The rounds without the lowest and the highest quarter of them; `None` if the figure comes of
    /// others.
    pub interval: Option<(f64, f64)>,
    /// Number of rounds.
    pub runs: usize,
    /// The middle one of the single operations, where they were timed one by one: the median over
    /// the rounds.
    pub p50: Option<f64>,
    /// The time that 99 of 100 operations did not exceed: the median over the rounds.
    pub p99: Option<f64>,
    /// Other results, medians over the rounds, with names that state the unit.
    pub also: Vec<(&'static str, f64)>,
    /// The systems compared with.
    pub ratios: Vec<Ratio>,
    /// Instructions per operation, if they were counted.
    pub instructions: Option<f64>,
    /// The goal for the figure itself, if there is one.
    pub goal: Option<Goal>,
    /// Why there is no figure, or fewer rounds than asked for: `skipped: ...` or `error: ...`.
    pub note: Option<String>,
}

impl Record {
    /// The row of one system among others, if it has a figure.
    pub(crate) fn find<'a>(all: &'a [Self], row: &str, system: &str) -> Option<&'a Self> {
        all.iter().find(|r| r.row == row && r.system == system && r.is_measured())
    }

    /// A row of this one's system with figures of its own: lowest, middle and highest.
    pub(crate) fn computed(
        &self,
        row: impl Into<String>,
        unit: &'static str,
        [min, median, max]: [f64; 3],
    ) -> Self {
        let Self { bench, system, better, runs, .. } = *self;
        let row = row.into();
        Self { bench, row, system, unit, better, min, median, max, runs, ..Self::default() }
    }

    /// A row computed of the low, middle and high figures of this one and another.
    pub(crate) fn with(
        &self,
        other: &Self,
        (row, unit): (impl Into<String>, &'static str),
        figure: impl Fn(f64, f64) -> f64,
    ) -> Self {
        let (a, b) = (self, other);
        let figures = [(a.min, b.min), (a.median, b.median), (a.max, b.max)];
        self.computed(row, unit, figures.map(|(a, b)| figure(a, b)))
    }

    /// The rounds without the lowest and the highest quarter of them, or the one figure there is.
    fn ends(&self) -> (f64, f64) {
        self.interval.unwrap_or((self.median, self.median))
    }

    /// A row of how much this one is beyond `others` together, in so many parts. Rounds of one and
    /// of another are none of a pair, so its interval is from the least to the most that theirs
    /// allow.
    pub(crate) fn beyond(&self, row: impl Into<String>, others: &[&Self], parts: f64) -> Self {
        let over = |own: f64, of: fn(&Self) -> f64| {
            (own - others.iter().map(|other| of(other)).sum::<f64>()) / parts
        };
        let figures = [
            over(self.min, |other| other.max),
            over(self.median, |other| other.median),
            over(self.max, |other| other.min),
        ];
        let (low, high) = self.ends();
        let interval = (over(low, |other| other.ends().1), over(high, |other| other.ends().0));
        let counted = others.iter().map(|other| other.instructions).sum::<Option<f64>>();
        let instructions = self.instructions.zip(counted).map(|(own, less)| (own - less) / parts);
        Self { interval: Some(interval), instructions, ..self.computed(row, self.unit, figures) }
    }

    /// A row of this one and another together, as [`beyond`](Self::beyond) is of less.
    pub(crate) fn and(&self, other: &Self, row: impl Into<String>) -> Self {
        let figures = [self.min + other.min, self.median + other.median, self.max + other.max];
        let ((low, high), (a, b)) = (self.ends(), other.ends());
        let instructions = self.instructions.zip(other.instructions).map(|(a, b)| a + b);
        let sum = self.computed(row, self.unit, figures);
        Self { interval: Some((low + a, high + b)), instructions, ..sum }
    }

    /// This row as so many times another; its interval is as wide as theirs allow.
    pub(crate) fn by(&self, other: &Self) -> Self {
        let least = |low: f64, (a, b): (f64, f64)| (low / a).min(low / b);
        let most = |high: f64, (a, b): (f64, f64)| (high / a).max(high / b);
        let ((low, high), ends) = (self.ends(), other.ends());
        let range = (other.min, other.max);
        let figures = [least(self.min, range), self.median / other.median, most(self.max, range)];
        let interval = (least(low, ends), most(high, ends));
        let also = self.instructions.zip(other.instructions);
        let also = also.map(|(own, other)| ("by instructions", own / other));
        let ratio = self.computed(self.row.clone(), "times", figures);
        Self { interval: Some(interval), also: also.into_iter().collect(), ..ratio }
    }

    /// True if there is a figure.
    pub fn is_measured(&self) -> bool {
        self.runs > 0
    }

    /// True if a round of it failed, or its figures were refused.
    pub fn is_lost(&self) -> bool {
        self.note.as_ref().is_some_and(|note| note.starts_with("error: "))
    }

    /// Tells the loss and its reason.
    pub fn loss(&self) -> String {
        let Self { row, system, note, .. } = self;
        format!("{row}, {system}: {}", note.as_deref().unwrap_or_default())
    }

    /// Whether a figure, or its ratio to another system's, reaches a goal.
    fn reaches(&self, goal: Goal, figure: f64) -> bool {
        match goal {
            Goal::AtMost(most) | Goal::AtMostTimes(most) => figure <= most,
            Goal::AtLeast(least) => figure >= least,
            Goal::TimesAsFast(times) => match self.better {
                Better::Lower => figure * times <= 1.0,
                Better::Higher => figure >= times,
            },
        }
    }

    fn verdict(&self, goal: Goal, (low, high): (f64, f64)) -> Option<Verdict> {
        if !self.is_measured() {
            return None;
        }
        Some(match [low, high].map(|end| self.reaches(goal, end)) {
            [true, true] => Verdict::Reached,
            [false, false] => Verdict::Missed,
            _ => Verdict::Undecided,
        })
    }

    /// All goals, each with how it stands, the system that it is about, and the median of that one.
    fn goals(&self) -> impl Iterator<Item = (Goal, Option<&'static str>, Option<Verdict>, f64)> {
        let own = self.goal.map(|goal| (goal, None, self.verdict(goal, self.ends()), f64::NAN));
        let others = self.ratios.iter().filter_map(|r| {
            let goal = r.goal?;
            let other = self.median / r.ratio;
            Some((goal, Some(r.system), self.verdict(goal, r.interval), other))
        });
        own.into_iter().chain(others)
    }

    /// Whether all goals were reached; `None` if there are none, or no figures.
    pub fn reached(&self) -> Option<bool> {
        self.goals()
            .map(|(_, _, verdict, _)| verdict.map(|verdict| verdict == Verdict::Reached))
            .reduce(|all, one| Some(all? && one?))?
    }

    /// Whether the rounds of a goal's row differ by more than its margin.
    pub fn is_undecided(&self) -> bool {
        self.goals().any(|(_, _, verdict, _)| verdict == Some(Verdict::Undecided))
    }

    /// The goals as text.
    pub fn goal_text(&self) -> String {
        let mut list = Vec::new();
        for (goal, system, verdict, _) in self.goals() {
            let mark = match verdict {
                Some(Verdict::Reached) => ": reached",
                Some(Verdict::Undecided) => ": UNDECIDED",
                Some(Verdict::Missed) => ": MISSED",
                None => "",
            };
            let of = system.map_or(String::new(), |s| format!(" {s}"));
            list.push(match goal {
                Goal::AtMost(most) => format!("<= {most}{mark}"),
                Goal::AtLeast(least) => format!(">= {least}{mark}"),
                Goal::AtMostTimes(times) => format!("<= {times} times{of}{mark}"),
                Goal::TimesAsFast(times) if self.ratios.len() > 1 => {
                    format!(">= {times} times as fast as{of}{mark}")
                }
                Goal::TimesAsFast(times) => format!(">= {times} times as fast{mark}"),
            });
        }
        list.join("; ")
    }

    /// The goals as figures in the row's unit, for a drawing, each with whether it was reached.
    pub fn goal_figures(&self) -> Vec<(f64, bool)> {
        let figure = |goal: Goal, other: f64| match (goal, self.better) {
            (Goal::AtMost(x) | Goal::AtLeast(x), _) => x,
            (Goal::TimesAsFast(times), Better::Lower) => other / times,
            (Goal::AtMostTimes(times) | Goal::TimesAsFast(times), _) => other * times,
        };
        self.goals()
            .filter_map(|(goal, _, verdict, other)| {
                let figure = figure(goal, other);
                let reached = verdict? == Verdict::Reached;
                figure.is_finite().then_some((figure, reached))
            })
            .collect()
    }

    /// The ratios as text.
    pub fn ratio_text(&self) -> String {
        let one = |r: &Ratio| format!("{} of {}", figure(r.ratio), r.system);
        self.ratios.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The other results, as text.
    pub fn also_text(&self) -> String {
        let mut list: Vec<String> = Vec::new();
        let rest = self.also.iter().map(|(name, x)| (*name, Some(*x)));
        for (name, x) in [("p50", self.p50), ("p99", self.p99)].into_iter().chain(rest) {
            list.extend(x.map(|x| format!("{name} {}", figure(x))));
        }
        list.extend(self.note.clone());
        list.join(", ")
    }

    /// The record for a JSON file.
    pub fn to_json(&self) -> Value {
        let interval = |(low, high): (f64, f64)| json!([number(low), number(high)]);
        let ratio = |r: &Ratio| json!({"system": r.system, "ratio": number(r.ratio), "interval": interval(r.interval), "goal": r.goal.map(|g| format!("{g:?}"))});
        let also: Map<String, Value> =
            self.also.iter().map(|(name, x)| ((*name).to_owned(), number(*x))).collect();
        let goal = self.goal_text();
        json!({
            "bench": self.bench, "row": self.row, "system": self.system, "unit": self.unit,
            "min": number(self.min), "median": number(self.median), "max": number(self.max), "interval": self.interval.map(interval), "runs": self.runs,
            "p50": self.p50.map(number), "p99": self.p99.map(number), "also": also,
            "ratio_to": self.ratios.first().map(ratio),
            "ratios": self.ratios.iter().map(ratio).collect::<Vec<_>>(),
            "instructions": self.instructions.map(number),
            "goal": (!goal.is_empty()).then_some(goal),
            "reached": self.reached(),
            "note": self.note,
        })
    }
}

/// A number for a JSON file: five significant digits are more than any of them has.
fn number(x: f64) -> Value {
    if !x.is_finite() {
        return Value::Null;
    }
    format!("{x:.4e}").parse::<f64>().map_or(Value::Null, Value::from)
}

/// A figure with as many digits as say something.
pub(crate) fn figure(x: f64) -> String {
    match x.abs() {
        size if !size.is_finite() => String::new(),
        size if size >= 10_000.0 => {
            let digits = format!("{:.0}", size);
            let mut text = String::from(if x < 0.0 { "-" } else { "" });
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        size if size >= 1000.0 => format!("{x:.0}"),
        size if size >= 10.0 => format!("{x:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_as_many_digits_as_they_need() {
        let texts = [0.0, 0.0042, 0.11, 9.96, 12.34, 1234.5, 12_345.6, 12_345_678.0].map(figure);
        let expected = ["0.00", "0.004", "0.11", "9.96", "12.3", "1234", "12,346", "12,345,678"];
        assert_eq!(texts, expected);
        assert_eq!(figure(f64::NAN), "");
    }

    fn record(better: Better, goal: Goal) -> Record {
        let ratio = Ratio { system: "bare", ratio: 2.0, interval: (1.9, 2.0), goal: Some(goal) };
        Record { median: 10.0, runs: 1, better, ratios: vec![ratio], ..Record::default() }
    }

    #[test]
    fn a_goal_is_reached_in_the_direction_of_the_unit() {
        for (better, goal, reached, mark) in [
            (Better::Lower, Goal::AtMostTimes(3.0), true, 15.0),
            (Better::Lower, Goal::TimesAsFast(1.0), false, 5.0),
            (Better::Lower, Goal::TimesAsFast(0.5), true, 10.0),
            (Better::Higher, Goal::TimesAsFast(1.9), true, 9.5),
            (Better::Higher, Goal::TimesAsFast(2.5), false, 12.5),
        ] {
            let record = record(better, goal);
            assert_eq!(record.reached(), Some(reached), "{}", record.goal_text());
            assert_eq!(record.goal_figures(), [(mark, reached)]);
        }
    }

    #[test]
    fn a_goal_is_reached_if_the_whole_interval_reaches_it() {
        let mut record = record(Better::Higher, Goal::TimesAsFast(2.0));
        assert_eq!((record.reached(), record.is_undecided()), (Some(false), true));
        assert_eq!(record.goal_text(), ">= 2 times as fast: UNDECIDED");
        record.ratios[0].interval = (2.0, 2.2);
        assert_eq!((record.reached(), record.is_undecided()), (Some(true), false));
        record.goal = Some(Goal::AtMost(10.0));
        record.interval = Some((9.0, 10.5));
        assert_eq!((record.reached(), record.is_undecided()), (Some(false), true));
    }

    #[test]
    fn one_missed_goal_is_enough() {
        let mut record = record(Better::Lower, Goal::AtMostTimes(3.0));
        record.goal = Some(Goal::AtMost(9.0));
        assert_eq!(record.reached(), Some(false));
        assert_eq!(record.goal_text(), "<= 9: MISSED; <= 3 times bare: reached");
        assert_eq!(Record::default().reached(), None);
    }

    #[test]
    fn a_difference_is_as_uncertain_as_both() {
        let one = |min, (low, median, high), max| Record {
            min,
            median,
            max,
            interval: Some((low, high)),
            runs: 7,
            ..Record::default()
        };
        let (cut, bare) = (one(9.0, (10.0, 12.0, 16.0), 20.0), one(1.0, (2.0, 4.0, 6.0), 7.0));
        let over = cut.beyond("over", &[&bare], 2.0);
        assert_eq!([over.min, over.median, over.max], [1.0, 4.0, 9.5]);
        assert_eq!(over.interval, Some((2.0, 7.0)));
        let judged = Record { goal: Some(Goal::AtMost(5.0)), ..over };
        assert!(judged.is_undecided());
    }

    #[test]
    fn a_quotient_is_as_uncertain_as_both() {
        let one = |(low, median, high), instructions| Record {
            min: low - 1.0,
            median,
            max: high + 1.0,
            interval: Some((low, high)),
            runs: 7,
            instructions: Some(instructions),
            ..Record::default()
        };
        let (whole, bare) = (one((10.0, 12.0, 16.0), 90.0), one((3.0, 4.0, 5.0), 30.0));
        let times = whole.and(&bare, "row").by(&bare);
        assert_eq!([times.min, times.median, times.max], [11.0 / 6.0, 4.0, 11.5]);
        assert_eq!((times.interval, times.unit), (Some((2.6, 7.0)), "times"));
        assert_eq!(times.also, [("by instructions", 4.0)]);
        let less = bare.beyond("row", &[&whole], 1.0).by(&bare);
        let (low, high) = less.interval.unwrap();
        assert!(low < less.median && less.median < high && high < 0.0, "{low} {high}");
    }

    #[test]
    fn a_computed_row_is_judged_by_its_own_figures() {
        for benchmark in crate::list::benchmarks() {
            let measured = |case: crate::case::Case| Record {
                bench: benchmark.name,
                row: case.row,
                system: case.system,
                unit: case.unit.unwrap_or(benchmark.unit),
                min: 100.0,
                median: 200.0,
                max: 300.0,
                interval: Some((150.0, 250.0)),
                runs: 7,
                instructions: Some(1.0),
                ..Record::default()
            };
            let measured: Vec<_> = (benchmark.cases)().into_iter().map(measured).collect();
            for row in (benchmark.derived)(&measured) {
                let (low, high) = row.ends();
                let is_its_own = row.min <= low && high <= row.max;
                // Rows that are all alike have no correlation.
                assert!(is_its_own || row.median.is_nan(), "{}, {}", row.bench, row.row);
            }
        }
    }
}
