//! The outcome of one run, as a line of JSON.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The ways in which a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All that was asked for was done.
    Clean,
    /// A budget ran out: of virtual time, or of real time.
    Exhausted,
    /// Something went wrong.
    Failed,
}

impl Verdict {
    /// The word for it, as tables have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Exhausted => "exhausted",
            Self::Failed => "failed",
        }
    }
}

/// The outcome of one run. Two runs of one [`Job`](crate::Job) have equal rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The parameters, by name.
    pub set: BTreeMap<String, String>,
    /// The seed.
    pub seed: u64,
    /// The way in which it ended.
    pub verdict: Verdict,
    /// Why, unless it is clean; one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The end, in seconds of virtual time.
    #[serde(default)]
    pub ended: f64,
    /// A fold of what happened: the same for the same run.
    #[serde(default)]
    pub digest: String,
    /// Counts of each fault of the plan.
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
    /// Everything that was measured, by name: `HOST.NODE.LINE` of a report, for example.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// The faults that chance has chosen, as lines that say them without; for making a run small.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The command that does this run again.
    #[serde(default)]
    pub replay: String,
}

impl Row {
    /// The row of a run that answered nothing itself.
    pub fn silent(job: &crate::Job, verdict: Verdict, why: impl Into<String>) -> Self {
        Self {
            set: job.set.iter().cloned().collect(),
            seed: job.seed,
            verdict,
            why: why.into(),
            ended: 0.0,
            digest: String::new(),
            faults: BTreeMap::new(),
            figures: BTreeMap::new(),
            events: Vec::new(),
            replay: String::new(),
        }
    }
}
