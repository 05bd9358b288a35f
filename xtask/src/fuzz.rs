//! `cargo xtask fuzz`: the fuzz targets, built so that they count the edges of the program's flow.

use crate::world::World;
use std::io;
use std::path::Path;

/// Options for LLVM: a counter of one octet at each edge.
const COUNTERS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters";

/// Builds the targets with counters and runs them as `options` say; whether all passed.
pub(crate) fn run(root: &Path, options: &[&str]) -> io::Result<bool> {
    let world = World::look(root)?;
    let about = world.program("rustc").arg("-vV").output()?;
    let about = String::from_utf8_lossy(&about.stdout).into_owned();
    let mut lines = about.lines();
    let host = lines.find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| io::Error::other("rustc does not say for what it builds"))?;
    // A target of its own, so that build scripts and macros are built without counters.
    let mut run = world.cargo();
    run.args(["run", "-p", "xk-fuzz", "--target", host, "--target-dir"])
        .arg(world.target.join("fuzz"))
        .args(["--", "smoke"])
        .args(options)
        .env("RUSTFLAGS", COUNTERS);
    Ok(run.status()?.success())
}
