//! The plan of a sweep: its runs.

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::io::{self, Read};
use std::ops::Range;

/// The spread of values between two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// As far apart each.
    #[default]
    Linear,
    /// In equal proportions.
    Log,
}

impl Scale {
    /// The value at `part` of the way, 0 to 1.
    pub fn at(self, from: f64, to: f64, part: f64) -> f64 {
        match self {
            Self::Linear => from + (to - from) * part,
            Self::Log => from * (to / from).powf(part),
        }
    }
}

/// A parameter, and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The parameter, such as `lan.loss`.
    pub name: String,
    /// Values of the axis, in the order of the table.
    pub values: Vec<String>,
}

impl Axis {
    /// Reads `NAME=VALUE,VALUE,...`.
    ///
    /// # Errors
    /// What does not read, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "expected a parameter and its values, such as lan.loss=0%,1%,5%";
        let (name, values) = text.split_once('=').ok_or(form)?;
        let axis = Self {
            name: name.trim().into(),
            values: values.split(',').map(|value| value.trim().to_owned()).collect(),
        };
        match axis.mistake() {
            Some(mistake) => Err(format!("{mistake}; {form}")),
            None => Ok(axis),
        }
    }

    fn mistake(&self) -> Option<String> {
        let twice = |at: usize| self.values[..at].contains(&self.values[at]);
        if self.name.is_empty() {
            Some("the parameter has no name".into())
        } else if self.values.iter().any(String::is_empty) {
            Some(format!("`{}` has an empty value", self.name))
        } else {
            let at = (0..self.values.len()).find(|at| twice(*at))?;
            Some(format!("`{}` has the value `{}` twice", self.name, self.values[at]))
        }
    }
}

/// A parameter that is drawn for each run, by its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draw {
    /// The parameter.
    pub name: String,
    /// The least value.
    pub from: f64,
    /// The greatest value.
    pub to: f64,
    /// The spread of the values.
    pub scale: Scale,
    /// Whether only whole numbers do.
    pub is_whole: bool,
    /// The unit behind the number, such as `ms`.
    pub unit: String,
}

impl Draw {
    /// The value of a seed: the same in every combination.
    pub fn value(&self, seed: u64) -> String {
        let mut hasher = SipHasher13::new_with_keys(0x6472_6177, seed);
        hasher.write(self.name.as_bytes());
        let part = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
        if self.is_whole {
            // Each whole number has an equal share of a linear spread, the greatest too.
            let value = self.scale.at(self.from, self.to + 1.0, part).floor().min(self.to);
            return format!("{value}{}", self.unit);
        }
        format!("{:.6}{}", self.scale.at(self.from, self.to, part), self.unit)
    }
}

/// One run to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The place of its row in the table.
    pub number: u64,
    /// The seed.
    pub seed: u64,
    /// The parameters with their values.
    pub set: Vec<(String, String)>,
}

impl Job {
    /// The value of a parameter.
    ///
    /// # Panics
    /// If there is no such parameter.
    pub fn value(&self, name: &str) -> &str {
        let found = self.set.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("the sweep sets no `{name}`"), |(_, value)| value)
    }
}

/// The runs of a sweep, and the parts of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The text of a graph, or a test's name. The plan does not read it.
    pub what: String,
    /// Other options that a run depends on, in words of the command line.
    pub options: Vec<String>,
    /// Parameters with their values; every combination is run.
    pub axes: Vec<Axis>,
    /// Parameters that are drawn.
    pub draws: Vec<Draw>,
    /// The first seed, and the first one that is not run.
    pub seeds: (u64, u64),
}

impl Plan {
    /// Counts the combinations of values.
    pub fn combinations(&self) -> u64 {
        self.axes.iter().fold(1, |all, axis| all.saturating_mul(axis.values.len() as u64))
    }

    /// The seeds.
    pub fn seeds(&self) -> Range<u64> {
        self.seeds.0..self.seeds.1
    }

    /// Counts the runs.
    pub fn runs(&self) -> u64 {
        self.combinations().saturating_mul(self.seeds.1.saturating_sub(self.seeds.0))
    }

    /// A run by the place of its row: combinations in the order of the axes, the last axis first to
    /// change, and the seeds of each in order.
    pub fn job(&self, number: u64) -> Job {
        let seeds = (self.seeds.1 - self.seeds.0).max(1);
        let mut rest = number / seeds;
        let seed = self.seeds.0 + number % seeds;
        let mut set: Vec<(String, String)> = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            let count = axis.values.len().max(1) as u64;
            let value = axis.values.get((rest % count) as usize).cloned().unwrap_or_default();
            set.push((axis.name.clone(), value));
            rest /= count;
        }
        set.reverse();
        set.extend(self.draws.iter().map(|draw| (draw.name.clone(), draw.value(seed))));
        Job { number, seed, set }
    }

    /// The place of the row of a run; `None` if it is none of this plan's.
    pub fn number(&self, seed: u64, value: impl Fn(&str) -> Option<String>) -> Option<u64> {
        let mut combination = 0;
        for axis in &self.axes {
            let of = value(&axis.name)?;
            let at = axis.values.iter().position(|known| *known == of)?;
            combination = combination * axis.values.len() as u64 + at as u64;
        }
        self.seeds().contains(&seed).then_some(())?;
        Some(combination * (self.seeds.1 - self.seeds.0) + (seed - self.seeds.0))
    }

    /// A name for all of the plan but its seeds, so that more of them can be added.
    pub fn hash(&self) -> String {
        let seedless = Self { seeds: (0, 0), ..self.clone() };
        let text = serde_json::to_string(&seedless).unwrap_or_default();
        hash(text.as_bytes()).unwrap_or_default()
    }
}

/// A name for octets: 128 bits in hexadecimal. Few of them are in memory at a time.
pub(crate) fn hash(mut octets: impl Read) -> io::Result<String> {
    let mut hasher = SipHasher13::new();
    let mut some = vec![0; 1 << 16];
    loop {
        match octets.read(&mut some) {
            Ok(0) => return Ok(format!("{:032x}", hasher.finish128().as_u128())),
            Ok(count) => hasher.write(&some[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads `A..B` (B is not run), `A..=B`, or a single seed.
///
/// # Errors
/// The form that was expected.
pub fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let form = || format!("`{text}` is no range of seeds: expected 0..1000, 0..=999 or 17");
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().map_err(|_| form());
    let (from, to) = match text.split_once("..") {
        None => (number(text)?, number(text)?.checked_add(1)),
        Some((from, to)) => match to.strip_prefix('=') {
            Some(to) => (number(from)?, number(to)?.checked_add(1)),
            None => (number(from)?, Some(number(to)?)),
        },
    };
    let to = to.ok_or_else(form)?;
    if from < to { Ok((from, to)) } else { Err(format!("`{text}` holds no seed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            what: "host a".into(),
            options: Vec::new(),
            axes: ["lan.loss=0%,1%,5%", "a.count=1,10"]
                .map(|axis| Axis::parse(axis).unwrap())
                .into(),
            draws: vec![Draw {
                name: "lan.delay".into(),
                from: 1.0,
                to: 100.0,
                scale: Scale::Log,
                is_whole: true,
                unit: "ms".into(),
            }],
            seeds: (10, 15),
        }
    }

    #[test]
    fn every_run_has_a_number_and_every_number_a_run() {
        let plan = plan();
        assert_eq!(plan.runs(), 30);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..plan.runs() {
            let job = plan.job(number);
            let of = |name: &str| {
                job.set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            };
            assert_eq!(plan.number(job.seed, of), Some(number));
            assert!(seen.insert((job.seed, job.set.clone())), "{job:?} is twice");
        }
        assert_eq!(plan.job(0).set[0], ("lan.loss".into(), "0%".into()));
        assert_eq!(plan.job(5).set[1], ("a.count".into(), "10".into()));
        assert_eq!(plan.number(9, |_| Some("1%".into())), None);
        assert_eq!(plan.number(10, |_| None), None);
    }

    #[test]
    fn what_is_drawn_follows_the_seed_and_stays_between_the_ends() {
        let draw = &plan().draws[0];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..10_000 {
            let text = draw.value(seed);
            assert_eq!(text, draw.value(seed));
            let value: u64 = text.strip_suffix("ms").unwrap().parse().unwrap();
            assert!((1..=100).contains(&value), "{value}");
            seen.insert(value);
        }
        assert_eq!(seen.len(), 100, "every whole number comes");
    }

    #[test]
    fn the_name_of_a_plan_is_that_of_all_but_its_seeds() {
        let (one, mut other) = (plan(), plan());
        other.seeds = (0, 1_000);
        assert_eq!(one.hash(), other.hash());
        other.axes[0].values.pop();
        assert_ne!(one.hash(), other.hash());
    }

    #[test]
    fn ranges_and_axes_that_do_not_read_are_refused() {
        assert_eq!(parse_seeds("0..1_000"), Ok((0, 1000)));
        assert_eq!(parse_seeds("3..=3"), Ok((3, 4)));
        assert_eq!(parse_seeds("7"), Ok((7, 8)));
        for wrong in ["", "a", "5..5", "6..5", "..", "1..x", "18446744073709551615"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong}");
        }
        for wrong in ["lan.loss", "=1", "lan.loss=", "lan.loss=1%,,2%", "lan.loss=1%,1%"] {
            assert!(Axis::parse(wrong).is_err(), "{wrong}");
        }
    }
}
