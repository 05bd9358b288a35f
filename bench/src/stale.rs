//! Finds tables of the page that are older than the code they measure.
//!
//! Each table of the page names the commit that it was measured at; `sources.txt` names the folders
//! and files that it measures. A table is old if a commit since has changed one of them.

use crate::origin::CHANGED;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Marks the commit below the head of a table, and the commit of the whole page.
pub(crate) const MEASURED_AT: &str = "Measured at commit ";
const OF_PAGE: &str = ", commit ";

/// Groups of sources, then the sources of benchmarks by the beginnings of their names, of which the
/// first counts.
const SOURCES: &str = include_str!("sources.txt");

/// Sources of a benchmark: paths in the repository.
fn sources(name: &str) -> Vec<&'static str> {
    let behind = |is: &dyn Fn(&str) -> bool| {
        let mut lines = SOURCES.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(first, _)| is(first)).map_or(Vec::new(), |(_, all)| all.split(' ').collect())
    };
    let expanded = |word: &'static str| match word.starts_with('@') {
        true => behind(&|group| group == word),
        false => vec![word],
    };
    behind(&|prefix| name.starts_with(prefix)).into_iter().flat_map(expanded).collect()
}

/// A table of the page.
#[derive(Debug, PartialEq, Eq)]
struct Table<'a> {
    name: &'a str,
    rows: usize,
    /// The table's own commit, or the page's.
    commit: &'a str,
}

/// The word behind `mark`, without the point at its end, with what says that files differed.
fn commit_behind<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let rest = line.split_once(mark)?.1;
    let end = rest.find(['.', ',', ';']).unwrap_or(rest.len());
    Some(rest[..end].trim())
}

fn tables(page: &str) -> Vec<Table<'_>> {
    let mut list: Vec<Table<'_>> = Vec::new();
    let mut of_page = "unknown";
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            list.push(Table { name, rows: 0, commit: of_page });
            continue;
        }
        let Some(table) = list.last_mut() else {
            of_page = commit_behind(line, OF_PAGE).unwrap_or(of_page);
            continue;
        };
        if line.starts_with(MEASURED_AT) {
            table.commit = commit_behind(line, MEASURED_AT).unwrap_or(table.commit);
        }
        let is_head = line.starts_with("| row |") || line.starts_with("| ---");
        table.rows += usize::from(line.starts_with("| ") && !is_head);
    }
    list
}

/// Runs git in a folder and gives its output.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let output = command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Why a table of this commit is old; `None` if nothing that it measures has changed since.
fn why_old(folder: &Path, name: &str, commit: &str) -> Option<String> {
    let (hash, rest) = commit.split_once(' ').unwrap_or((commit, ""));
    if !rest.is_empty() {
        return Some(format!("of {hash}{CHANGED} that no commit has"));
    }
    let mut arguments = vec!["log", "--format=%h %s", "HEAD", "--not", hash, "--"];
    arguments.extend(sources(name));
    arguments.push(":(exclude,glob)**/tests/**");
    let Some(since) = git(folder, &arguments) else {
        return Some(format!("of {hash}, which this repository does not have"));
    };
    let newest = since.lines().next()?;
    Some(format!("of {hash}, {} commits since, at last {newest}", since.lines().count()))
}

/// Says of a page which of its tables are older than what they measure, and which are missing.
///
/// # Errors
/// The page cannot be read.
pub fn stale(page: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(page);
    let text = text.map_err(|error| format!("cannot read {}: {error}", page.display()))?;
    let folder = page.parent().filter(|folder| !folder.as_os_str().is_empty());
    let top = git(folder.unwrap_or(Path::new(".")), &["rev-parse", "--show-toplevel"]);
    let top = top.ok_or_else(|| format!("{} is in no repository of git", page.display()))?;
    let (known, found) = (crate::list::benchmarks(), tables(&text));
    let mut told = String::new();
    let mut old = 0;
    for table in &found {
        let why = match known.iter().any(|benchmark| benchmark.name == table.name) {
            true => why_old(Path::new(&top), table.name, table.commit),
            false => Some("of no benchmark that there is".into()),
        };
        if let Some(why) = why {
            old += 1;
            let _ = writeln!(told, "{} ({} rows): {why}", table.name, table.rows);
        }
    }
    for benchmark in known.iter().filter(|b| !found.iter().any(|table| table.name == b.name)) {
        old += 1;
        let _ = writeln!(told, "{}: not on the page", benchmark.name);
    }
    let _ = writeln!(told, "{old} tables of {} are older than what they measure", known.len());
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_benchmark_measures_something_that_is_there() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for benchmark in crate::list::benchmarks() {
            let all = sources(benchmark.name);
            assert!(!all.is_empty(), "{}", benchmark.name);
            for path in all {
                assert!(top.join(path).exists(), "{}: {path}", benchmark.name);
            }
        }
    }

    const PAGE: &str = "# Benchmarks\n\nMachine: x, version 0.1.0, commit aaaa. The rows.\n\n\
        ## layer\n\nlayers (ns).\n\n| row | system |\n| --- | --- |\n| a | xk |\n| b | xk |\n\n\
        ## map\n\nmaps (ns).\n\nMeasured at commit bbbb with changes.\n\n| row |\n| --- |\n| a |\n";

    #[test]
    fn each_table_has_its_commit_or_the_pages() {
        let expected = [
            Table { name: "layer", rows: 2, commit: "aaaa" },
            Table { name: "map", rows: 1, commit: "bbbb with changes" },
        ];
        assert_eq!(tables(PAGE), expected);
    }

    #[test]
    fn a_table_is_old_once_what_it_measures_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let run = |words: &[&str]| {
            let all: Vec<_> = author.iter().chain(words).copied().collect();
            git(folder.path(), &all).unwrap_or_else(|| panic!("git {words:?}"))
        };
        let commit = |path: &str, title: &str| {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), title).unwrap();
            run(&["add", "."]);
            run(&["commit", "-qm", title]);
            run(&["rev-parse", "HEAD"])
        };
        run(&["init", "-q"]);
        let first = commit("core/src/map.rs", "core: map");
        commit("core/tests/map.rs", "core: test it");
        commit("protocols/udp/src/lib.rs", "udp: refuse");
        let why = |name, commit: &str| why_old(folder.path(), name, commit);
        assert_eq!(why("map", &first), None, "neither UDP nor a test is measured by it");
        let old = why("udp-inprocess", &first).unwrap();
        assert!(old.contains("1 commits since") && old.ends_with("udp: refuse"), "{old}");
        assert!(why("map", &format!("{first}{CHANGED}")).is_some());
        assert!(why("map", "0123456789abcdef").unwrap().contains("does not have"));
    }
}
