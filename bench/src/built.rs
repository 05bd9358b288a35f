//! Programs of peers in other languages or with libraries of their own, built when they are
//! measured, if their tools are here.
//!
//! Nothing is fetched.

use crate::case::Trouble;
use crate::folder;
use crate::report::progress;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The files of a program.
pub(crate) type Files = &'static [(&'static str, &'static str)];

/// A program in a folder.
pub(crate) struct Built {
    folder: PathBuf,
    /// Goes with it, unless it is one that stays.
    _own: Option<TempDir>,
}

impl Built {
    /// One in a folder of its own, which goes with it.
    ///
    /// # Errors
    /// There is no place for it.
    pub(crate) fn new(files: Files) -> Result<Self, Trouble> {
        let own = folder::own()?;
        Self::at(own.path().into(), files, Some(own))
    }

    /// One in the user's folder of caches, which stays, for what takes long to build.
    ///
    /// # Errors
    /// There is no place for it.
    pub(crate) fn kept(name: &str, files: Files) -> Result<Self, Trouble> {
        let home = |key, rest: &str| Some(PathBuf::from(std::env::var_os(key)?).join(rest));
        let caches = home("XDG_CACHE_HOME", "").or_else(|| home("HOME", ".cache"));
        match caches {
            Some(caches) => Self::at(caches.join("xk-bench").join(name), files, None),
            None => Self::new(files),
        }
    }

    fn at(folder: PathBuf, files: Files, own: Option<TempDir>) -> Result<Self, Trouble> {
        let built = Self { folder, _own: own };
        let put = |(name, text): &(&str, &str)| -> std::io::Result<()> {
            let path = built.folder.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&built.folder))?;
            // A file that is new makes a compiler work.
            let same = fs::read_to_string(&path).is_ok_and(|there| there == *text);
            if same { Ok(()) } else { fs::write(path, text) }
        };
        let written = files.iter().try_for_each(put);
        written.map_err(|error| Trouble::Failed(format!("no folder to build in: {error}")))?;
        Ok(built)
    }

    /// The path of a file in its folder.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a compiler; `what` says what it needs.
    ///
    /// # Errors
    /// [`Trouble::Skipped`] with what it needs and what it says.
    pub(crate) fn build(&self, compiler: &mut Command, what: &str) -> Result<(), Trouble> {
        let output = compiler.current_dir(&self.folder).stdin(Stdio::null()).output();
        let said = match output {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let first = said.lines().next().unwrap_or_default();
        Err(Trouble::Skipped(format!("needs {what}: {first}")))
    }
}

/// The time between two words on a program that takes long.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// Runs a program that prints numbers, for no longer than `patience`.
///
/// # Errors
/// It does not start, does not end, or prints something else.
pub(crate) fn numbers(program: &mut Command, patience: Duration) -> Result<Vec<f64>, Trouble> {
    let failed = |what: String| Trouble::Failed(format!("the peer's program {what}"));
    let mut child = program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("does not start: {error}")))?;
    let (begun, mut told) = (Instant::now(), Duration::ZERO);
    while matches!(child.try_wait(), Ok(None)) {
        if begun.elapsed() >= told + TOLD_EVERY {
            told += TOLD_EVERY;
            progress(&format!("the peer's program runs, {told:?} of at most {patience:?}"));
        }
        if begun.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("did not end within {patience:?}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output();
    let output = output.map_err(|error| failed(format!("is lost: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(format!("said {:?}", said.trim())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: Files = &[("a/b.txt", "text")];

    #[test]
    fn what_was_built_goes_with_it() {
        let built = Built::new(FILES).unwrap();
        let folder = built.folder.clone();
        assert!(folder.join("a/b.txt").exists());
        drop(built);
        assert!(!folder.exists());
    }

    #[test]
    fn numbers_come_in_time_and_nothing_else_passes_for_them() {
        let second = Duration::from_secs(1);
        let [printed, words, slow] = [["printf", "1 2.5"], ["echo", "none"], ["sleep", "60"]]
            .map(|[program, word]| numbers(Command::new(program).arg(word), second));
        assert_eq!(printed, Ok(vec![1.0, 2.5]));
        assert!(words.is_err() && slow.is_err());
    }

    #[test]
    fn a_missing_compiler_is_named() {
        let built = Built::new(FILES).unwrap();
        let missing = built.build(&mut Command::new("xk-no-such-compiler"), "a compiler");
        let Err(Trouble::Skipped(why)) = missing else {
            panic!("{missing:?}");
        };
        assert!(why.starts_with("needs a compiler: "), "{why}");
    }
}
