//! Shared parts of the steps of `cargo xtask test`: the tree, and how they start programs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::changed::{self, Touched};
use crate::leftovers;
use crate::workspace::{self, Crate};

/// The variable from which property tests take their seed.
const SEED: &str = "PROPTEST_RNG_SEED";

/// The variable by which tests by chance take more seeds; see `xk_testkit::seeds`.
const LONG: &str = "XK_LONG";

/// Shared state of the steps.
pub(crate) struct World {
    pub(crate) root: PathBuf,
    /// Folder into which cargo builds.
    pub(crate) target: PathBuf,
    /// Mark of the run's processes and namespaces.
    pub(crate) mark: String,
    /// Crates to look at, if not the whole workspace.
    pub(crate) touched: Option<Touched>,
    /// Whether tests take as long as they are meant to be.
    pub(crate) is_long: bool,
    crates: Vec<Crate>,
    seed: Option<String>,
}

impl World {
    /// The tree at `root`.
    pub(crate) fn look(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            target: workspace::target_dir(root),
            mark: leftovers::mark(),
            touched: None,
            is_long: false,
            crates: workspace::crates(root)?,
            seed: std::env::var(SEED)
                .ok()
                .or_else(|| workspace::commit(root).as_deref().and_then(seed_of)),
        })
    }

    /// Looks only at what the tree changes against `revision`, or against where it left `main`.
    pub(crate) fn limit(&mut self, revision: Option<&str>) -> io::Result<()> {
        self.touched = Some(changed::since(&self.root, &self.crates, revision)?);
        Ok(())
    }

    /// Cargo, to run tests with.
    ///
    /// A commit's property tests have the same cases whenever it is tested, and another commit's
    /// have others: so what fails can be seen again, and yet new cases are tried every day.
    pub(crate) fn tests(&self) -> Command {
        let mut command = self.cargo();
        command.envs(self.seed.as_ref().map(|seed| (SEED, seed)));
        command.envs(self.is_long.then_some((LONG, "1")));
        command
    }

    pub(crate) fn cargo(&self) -> Command {
        self.program(&workspace::env_cargo())
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(&self.root).env(leftovers::MARK, &self.mark);
        // What `cargo run` set for us is wrong for the crates that are built next.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")) {
            command.env_remove(name);
        }
        command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
        command
    }

    /// Whether the workspace has this package.
    pub(crate) fn has(&self, package: &str) -> bool {
        self.crates.iter().any(|c| c.name == package)
    }
}

/// The first digits of a commit's name, as a decimal number.
fn seed_of(commit: &str) -> Option<String> {
    let digits = commit.get(..8)?;
    u32::from_str_radix(digits, 16).ok().map(|seed| seed.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_a_seed() {
        assert_eq!(seed_of("0000002a6f7e").as_deref(), Some("42"));
        assert_eq!(seed_of("HEAD"), None);
        assert_eq!(seed_of("not a commit"), None);
    }
}
