//! TCP in one process by stacks in other languages: a program for each, built when it is measured,
//! if its tools are here.
//!
//! Nothing is fetched. Each program prints the nanoseconds of a segment, and how many frames came
//! back for each that went.

use super::ours::{OPERATIONS, ROW};
use crate::built::{Built, Files, numbers};
use crate::case::{Case, Shared, Trouble};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub(super) const LWIP: &str = "lwIP";
pub(super) const GVISOR: &str = "gVisor";

/// Longest time of a round.
const ROUND_TIME_MAX: Duration = Duration::from_secs(60);
/// Frames back for each there that an acknowledgement of every second segment makes, with some
/// grace for what both sides begin with.
const ANSWERED_MIN: f64 = 0.45;
/// gVisor takes so many times as long as others: its rounds are shorter.
const GVISOR_SHARE: f64 = 0.25;

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
    let case = Case::measured_on(
        ROW,
        &Shared::default(),
        move |_| build(),
        move |built, effort| {
            let segments = (OPERATIONS as f64 * share * effort) as u64 + 1000;
            measure(built, segments).map(Into::into)
        },
    );
    case.of(system)
}

fn build_lwip() -> Result<Built, Trouble> {
    const HEADERS: &str = "/usr/include/lwip";
    if !Path::new(HEADERS).join("lwip/tcp.h").exists() {
        let what = "needs lwIP (apt install liblwip-dev)";
        return Err(Trouble::Skipped(what.into()));
    }
    let built = Built::new(C)?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-I", HEADERS, "-o", PROGRAM, "stream.c", "-llwip"]);
    built.build(&mut cc, "a C compiler (apt install gcc)")?;
    Ok(built)
}

fn build_gvisor() -> Result<Built, Trouble> {
    let built = Built::new(GO)?;
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

/// Nanoseconds of one of so many segments.
fn measure(built: &Built, segments: u64) -> Result<f64, Trouble> {
    let mut program = Command::new(built.path(PROGRAM));
    let found = numbers(program.arg(segments.to_string()), ROUND_TIME_MAX)?;
    let [ns, answered] = found[..] else {
        return Err(Trouble::Failed(format!("the peer's program said {found:?}")));
    };
    if answered < ANSWERED_MIN {
        let times = 1.0 / answered;
        let what = format!("the peer's program acknowledges but every {times:.1}th segment");
        return Err(Trouble::Failed(what));
    }
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_stack_is_measured_or_says_what_it_needs() {
        for build in [build_lwip, build_gvisor] {
            match build().and_then(|built| measure(&built, 1000)) {
                Ok(ns) => assert!(ns > 0.0),
                Err(Trouble::Skipped(why)) => assert!(why.starts_with("needs "), "{why}"),
                Err(Trouble::Failed(what)) => panic!("{what}"),
            }
        }
    }
}
