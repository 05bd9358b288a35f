//! Origin of figures: the machine and the commit.

use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// Marks a commit from which files differed.
pub(crate) const CHANGED: &str = " with changes";

/// Origin of figures.
pub(crate) struct Origin {
    /// The processor and how many cores of it.
    pub(crate) machine: String,
    /// The commit that the program was built from, as far as the folder in which it runs tells.
    pub(crate) commit: String,
    /// The other load of the machine at the start.
    pub(crate) load: String,
}

/// Above this load average the machine does something else that benchmarks would measure.
const QUIET: f64 = 0.3;

impl Origin {
    /// Why figures made now are not to be trusted; `None` on a quiet machine.
    pub(crate) fn noise(&self) -> Option<String> {
        let load: f64 = self.load.parse().ok()?;
        (load > QUIET).then(|| {
            format!("the machine was not quiet: its load average was {load} before the run, above {QUIET}")
        })
    }

    pub(crate) fn find() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model = cpu
            .lines()
            .find_map(|l| l.strip_prefix("model name"))
            .map_or("unknown processor", |l| l.trim_start_matches([' ', '\t', ':']));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let system = read("/proc/sys/kernel/osrelease");
        let load = read("/proc/loadavg");
        Self {
            machine: format!("{model}, {cores} cores, Linux {}", system.trim()),
            commit: commit().unwrap_or_else(|| "unknown".into()),
            load: load.split(' ').next().unwrap_or("?").to_owned(),
        }
    }

    /// One line below a drawing.
    pub(crate) fn caption(&self) -> String {
        format!("{}; commit {}", self.machine, self.commit)
    }

    /// A record with its origin.
    pub(crate) fn with(&self, mut record: Value) -> Value {
        record["machine"] = self.machine.clone().into();
        record["commit"] = self.commit.clone().into();
        record
    }
}

/// The commit of the repository in whose folder this runs, with a mark if files differ from it.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { commit + CHANGED })
}
