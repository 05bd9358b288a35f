//! `cargo xtask tidy`: the repository's own rules, each with its reason.
//!
//! A rule that matters is a test. Every violation is listed at once, with its file, its line and
//! what to do about it; after each rule's violations stands why the rule is there.

mod layers;
mod length;
mod manifest;
mod manual;
pub(crate) mod quotes;
mod source;
mod text;
pub(crate) mod words;

pub(crate) use length::{COLUMNS_MAX, is_wide};

use crate::scan::{Line, scan};
use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::path::Path;

use crate::workspace::{self, Crate};

/// A rule's name and the reason for it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
}

/// One place where the tree breaks a rule.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) rule: &'static Rule,
    /// Relative to the root.
    pub(crate) path: String,
    /// Counted from one; zero where the whole file is meant.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what)?,
            line => write!(f, "{}:{line}: {}", self.path, self.what)?,
        }
        write!(f, "\n    {}", self.remedy)
    }
}

/// The tree as the rules see it.
pub(crate) struct Tree {
    pub(crate) crates: Vec<Crate>,
    pub(crate) files: Vec<File>,
    /// The crates that the example of an embedded stack links.
    pub(crate) embedded: Vec<String>,
}

/// One text file of the tree.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    lines: OnceCell<Vec<Line>>,
}

impl Tree {
    /// Reads every file at `root`; files that are not UTF-8 text are left out.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let embedded = workspace::linked(root, "xk-embed")?;
        Ok(Self { crates: workspace::crates(root)?, embedded, ..Self::of_files(root)? })
    }

    /// Reads the files alone, for what asks cargo nothing.
    pub(crate) fn of_files(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for path in workspace::files(root)? {
            match String::from_utf8(std::fs::read(root.join(&path))?) {
                Ok(text) if !text.contains('\0') => files.push(File::new(path, text)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(Self { crates: Vec::new(), files, embedded: Vec::new() })
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// The files under `dir` (without a slash at its end).
    pub(crate) fn under<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = &'a File> {
        self.files
            .iter()
            .filter(move |f| f.path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/')))
    }
}

impl File {
    pub(crate) fn new(path: String, text: String) -> Self {
        Self { path, text, lines: OnceCell::new() }
    }

    /// Lines of a Rust source, which several rules look at.
    pub(crate) fn lines(&self) -> &[Line] {
        self.lines.get_or_init(|| scan(&self.text))
    }

    pub(crate) fn violation(
        &self,
        rule: &'static Rule,
        line: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Violation {
        Violation { rule, path: self.path.clone(), line, what: what.into(), remedy: remedy.into() }
    }
}

/// All violations of the tree at `root`, sorted by rule and place.
pub(crate) fn check(root: &Path) -> io::Result<Vec<Violation>> {
    let tree = Tree::read(root)?;
    let mut found = Vec::new();
    for rules in [
        layers::check,
        layers::check_embedded,
        manifest::check,
        source::check,
        length::check,
        manual::check,
        quotes::check,
        text::check,
        words::check,
        crate::lines::check,
    ] {
        rules(&tree, &mut found);
    }
    found.sort_by(|a, b| (a.rule, &a.path, a.line).cmp(&(b.rule, &b.path, b.line)));
    Ok(found)
}

/// Checks and prints; whether the tree is tidy.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    let found = check(root)?;
    for (index, violation) in found.iter().enumerate() {
        println!("{violation}");
        if found.get(index + 1).is_none_or(|next| next.rule != violation.rule) {
            println!("  rule {}: {}\n", violation.rule.name, violation.rule.reason);
        }
    }
    match found.len() {
        0 => println!("tidy: no violations"),
        n => println!("tidy: {n} violation{}", if n == 1 { "" } else { "s" }),
    }
    Ok(found.is_empty())
}

#[cfg(test)]
pub(crate) mod fixture {
    //! Small trees for the rules' tests.
    use super::{File, Tree, Violation};
    use crate::workspace::{Crate, Dependency};

    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(p, t)| File::new((*p).into(), (*t).into())).collect();
        Tree { crates: Vec::new(), files, embedded: Vec::new() }
    }

    /// A crate in `dir`; a dependency written `dev:name` is one of tests.
    pub(crate) fn krate(name: &str, dir: &str, dependencies: &[&str]) -> Crate {
        let dependencies = dependencies.iter().map(|d| Dependency {
            name: d.trim_start_matches("dev:").into(),
            dev: d.starts_with("dev:"),
        });
        Crate { name: name.into(), dir: dir.into(), dependencies: dependencies.collect() }
    }

    /// Rule, path and line of everything that `rules` finds.
    pub(crate) fn found(rules: fn(&Tree, &mut Vec<Violation>), tree: &Tree) -> Vec<String> {
        let mut found = Vec::new();
        rules(tree, &mut found);
        found.iter().map(|v| format!("{} {}:{}", v.rule.name, v.path, v.line)).collect()
    }
}
