//! Python's packages for the peer tests that spread sweeps. They are installed below `target`, and
//! nowhere else. Without them the tests that meet them are skipped by name.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::setup;

/// The packages with their versions: the one place that has them.
const PACKAGES: &str = include_str!("../../tests/peers/programs/requirements.txt");
/// Bounds the time of Python and pip together, in seconds.
const SECONDS_MAX: &str = "300";

/// Installs them unless they are there.
pub(crate) fn offer(target: &Path) {
    let root = target.join("python");
    // Written last: what is there is whole, and of these versions.
    let mark = root.join("packages.txt");
    let is_there = fs::read_to_string(&mark).is_ok_and(|installed| installed == PACKAGES);
    setup::offer(&named(), (&root, is_there), || {
        install(&root)?;
        fs::write(&mark, PACKAGES)
    });
}

/// The packages and their versions, in a line.
fn named() -> String {
    PACKAGES.trim().replace('\n', ", ")
}

fn install(root: &Path) -> io::Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    println!("setup: fetching {} for Python (100 MB)", named());
    let script = "python3 -m venv \"$1\"\n\
        \"$1/bin/pip\" install --quiet --no-input --disable-pip-version-check $2\n";
    let words = ["-ec", script, "sh", &root.to_string_lossy(), &PACKAGES.replace('\n', " ")];
    let mut command = Command::new("timeout");
    let output = command.args([SECONDS_MAX, "sh"]).args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let error = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("pip failed");
    Err(io::Error::other(error.to_owned()))
}
