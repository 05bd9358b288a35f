//! The same with stacks in other languages: a program for each, built when it is measured, if its tools are here.
//!
//! Nothing is fetched. Each program prints the nanoseconds of a segment, and how many frames came back for each that went.

use super::{OPERATIONS, ROW};
use crate::case::{Case, Trouble};
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) const LWIP: &str = "lwIP";
pub(super) const GVISOR: &str = "gVisor";

/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Frames back for each there that an acknowledgement of every second segment makes, with some grace for what both sides begin with.
const ANSWERED_MIN: f64 = 0.45;
/// gVisor takes so many times as long as others: its rounds are shorter.
const GVISOR_SHARE: f64 = 0.25;

/// The files of a program.
type Files = &'static [(&'static str, &'static str)];

static C: Files = &[("stream.c", include_str!("../../peers/lwip/stream.c"))];
static GO: Files = &[
    ("main.go", include_str!("../../peers/gvisor/main.go")),
    ("go.mod", include_str!("../../peers/gvisor/go.mod")),
    ("go.sum", include_str!("../../peers/gvisor/go.sum")),
];

/// lwIP from the system's package.
pub(super) fn lwip() -> Case {
    case(LWIP, 1.0, build_lwip)
}

/// gVisor's netstack from the cache of Go's modules.
pub(super) fn gvisor() -> Case {
    case(GVISOR, GVISOR_SHARE, build_gvisor)
}

fn case(system: &'static str, share: f64, build: fn() -> Result<Built, Trouble>) -> Case {
    let built = OnceCell::new();
    let case = Case::measured(ROW, move |effort| {
        let segments = (OPERATIONS as f64 * share * effort) as u64 + 1000;
        match built.get_or_init(build) {
            Ok(built) => built.measure(segments).map(Into::into),
            Err(trouble) => Err(trouble.clone()),
        }
    });
    case.of(system)
}

fn build_lwip() -> Result<Built, Trouble> {
    const HEADERS: &str = "/usr/include/lwip";
    if !Path::new(HEADERS).join("lwip/tcp.h").exists() {
        let what = "needs lwIP (apt install liblwip-dev)";
        return Err(Trouble::Skipped(what.into()));
    }
    let built = Built::new(LWIP, C)?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-I", HEADERS, "-o", PROGRAM, "stream.c", "-llwip"]);
    built.build(&mut cc, "a C compiler (apt install gcc)")?;
    Ok(built)
}

fn build_gvisor() -> Result<Built, Trouble> {
    let built = Built::new(GVISOR, GO)?;
    let usual = Path::new("/usr/local/go/bin/go");
    let mut go = match usual.exists() {
        true => Command::new(usual),
        false => Command::new("go"),
    };
    // What is not in the cache is not fetched.
    go.env("GOPROXY", "off").env("GOTOOLCHAIN", "local");
    go.args(["build", "-o", PROGRAM, "."]);
    let what = "Go and gVisor's module in its cache (cd bench/peers/gvisor && go mod download)";
    built.build(&mut go, what)?;
    Ok(built)
}

/// The name of what is built.
const PROGRAM: &str = "stream";

/// A program in a folder of its own, which goes with it.
struct Built {
    folder: PathBuf,
}

impl Drop for Built {
    fn drop(&mut self) {
        // What cannot be removed lies among other temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Built {
    fn new(name: &str, files: Files) -> Result<Self, Trouble> {
        let folder = format!("xk-bench-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let built = Self { folder };
        let written = fs::create_dir_all(&built.folder).and_then(|()| {
            let mut files = files.iter();
            files.try_for_each(|(name, text)| fs::write(built.folder.join(name), text))
        });
        written.map_err(|error| Trouble::Failed(format!("no folder to build in: {error}")))?;
        Ok(built)
    }

    /// Runs a compiler; `what` says what it needs.
    fn build(&self, compiler: &mut Command, what: &str) -> Result<(), Trouble> {
        let output = compiler
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output();
        let said = match output {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let first = said.lines().next().unwrap_or_default();
        Err(Trouble::Skipped(format!("needs {what}: {first}")))
    }

    /// Nanoseconds of one of so many segments.
    fn measure(&self, segments: u64) -> Result<f64, Trouble> {
        let failed = |what: String| Trouble::Failed(format!("the peer's program {what}"));
        let mut child = Command::new(self.folder.join(PROGRAM))
            .arg(segments.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("does not start: {error}")))?;
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("did not end within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = child.wait_with_output();
        let output = output.map_err(|error| failed(format!("is lost: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(ns)), Some(Ok(answered))) = (numbers.next(), numbers.next()) else {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("said {:?}", said.trim())));
        };
        if answered < ANSWERED_MIN {
            let times = 1.0 / answered;
            let what = format!("acknowledges but every {times:.1}th segment");
            return Err(failed(what));
        }
        Ok(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_stack_is_measured_or_says_what_it_needs() {
        for build in [build_lwip, build_gvisor] {
            match build().and_then(|built| built.measure(1000)) {
                Ok(ns) => assert!(ns > 0.0),
                Err(Trouble::Skipped(why)) => assert!(why.starts_with("needs "), "{why}"),
                Err(Trouble::Failed(what)) => panic!("{what}"),
            }
        }
    }

    #[test]
    fn what_was_built_goes_with_it() {
        let built = Built::new("nothing", C).unwrap();
        let folder = built.folder.clone();
        assert!(folder.join("stream.c").exists());
        drop(built);
        assert!(!folder.exists());
    }
}
