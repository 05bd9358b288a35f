//! Crates that a change touches: those that it changes, and those that depend on them directly.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::workspace::Crate;

/// Crates whose tests are run because they depend on a changed one; of more, only the types are
/// checked, as a whole test run takes too long then.
const DEPENDENTS_MAX: usize = 16;

/// The packages to look at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Crates to check: the changed ones and all that depend on them directly.
    pub(crate) checked: Vec<String>,
    /// Crates to test.
    pub(crate) tested: Vec<String>,
    /// Files of no crate: what depends on them is not known.
    pub(crate) others: Vec<String>,
}

/// Crates that the working tree changes against `revision`, or against where it left `main`.
pub(crate) fn since(root: &Path, crates: &[Crate], revision: Option<&str>) -> io::Result<Touched> {
    let base = match revision {
        Some(revision) => revision.to_owned(),
        None => ["origin/main", "main"]
            .iter()
            .find_map(|main| git(root, &["merge-base", "HEAD", main]).ok())
            .map_or_else(|| "HEAD".into(), |base| base.trim().to_owned()),
    };
    let mut files = git(root, &["diff", "--name-only", &base, "--"])?;
    files += &git(root, &["ls-files", "--others", "--exclude-standard"])?;
    let files: Vec<&str> = files.lines().collect();
    let touched = touched(crates, &files);
    println!(
        "against {base}: {} files; {} crates to check, {} to test: {}\n",
        files.len(),
        touched.checked.len(),
        touched.tested.len(),
        touched.tested.join(" ")
    );
    if !touched.others.is_empty() {
        println!("of no crate, left to the whole run: {}\n", touched.others.join(" "));
    }
    Ok(touched)
}

fn git(root: &Path, words: &[&str]) -> io::Result<String> {
    let output = Command::new("git").args(words).current_dir(root).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// The crates that these files belong to, and those that depend on them directly.
fn touched(crates: &[Crate], files: &[&str]) -> Touched {
    let mut touched = Touched::default();
    for file in files {
        let is_inside = |dir: &str| file.strip_prefix(dir).is_some_and(|f| f.starts_with('/'));
        // Of a crate inside another's folder, the inner one.
        let owner = crates.iter().filter(|c| is_inside(&c.dir)).max_by_key(|c| c.dir.len());
        let (list, name) = match owner {
            Some(owner) => (&mut touched.checked, owner.name.clone()),
            None => (&mut touched.others, (*file).to_owned()),
        };
        if !list.contains(&name) {
            list.push(name);
        }
    }
    touched.tested = touched.checked.clone();
    let depends = |one: &&Crate| {
        !touched.tested.contains(&one.name)
            && one.dependencies.iter().any(|on| touched.tested.contains(&on.name))
    };
    let dependents: Vec<_> = crates.iter().filter(depends).map(|c| c.name.clone()).collect();
    touched.checked.extend(dependents.iter().cloned());
    if dependents.len() <= DEPENDENTS_MAX {
        touched.tested.extend(dependents);
    }
    touched
}

/// These packages, as arguments for cargo.
pub(crate) fn arguments(packages: &[String]) -> Vec<&str> {
    packages.iter().flat_map(|name| ["--package", name.as_str()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::krate;

    #[test]
    fn a_change_touches_its_crate_and_its_dependents() {
        let crates = [
            krate("kit", "kit", &["core"]),
            krate("xdr", "kit/xdr", &["kit"]),
            krate("rpc", "rpc", &["dev:xdr"]),
        ];
        let found = touched(&crates, &["kit/xdr/src/lib.rs", "README.md", "kitten/x"]);
        assert_eq!(found.tested, ["xdr", "rpc"]);
        assert_eq!((found.checked, found.others.len()), (found.tested, 2));
    }

    #[test]
    fn what_all_depend_on_is_not_tested_with_all() {
        let name = |n: usize| format!("c{n}");
        let mut crates: Vec<_> = (0..20).map(|n| krate(&name(n), &name(n), &["core"])).collect();
        crates.push(krate("core", "core", &[]));
        let found = touched(&crates, &["core/src/lib.rs"]);
        assert_eq!((found.tested, found.checked.len()), (vec!["core".to_owned()], 21));
    }
}
