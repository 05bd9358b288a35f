//! `cargo xtask lines`: how many lines each part of the tree has, and how many it may have.
//!
//! A part is a folder; a file belongs to the innermost that holds it. [`BUDGETS`] lists the parts,
//! and the lines of production that each may have: a number that falls with the code, and rises
//! only with a reason. Lines are counted as an editor counts them, comments and blank ones too.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::{fs, io};

use crate::scan::{test_lines, test_modules};
use crate::tidy::{File, Rule, Tree, Violation};

static LINES: Rule = Rule {
    name: "lines",
    reason: "lines are a budget: what has no use is paid for by every reader; a part that grows says why",
};

/// Budgets by part: folder, lines of production, the reason of the last rise.
const BUDGETS: &str = "xtask/lines.txt";

/// Row of all tests and benches in [`BUDGETS`], wherever they lie.
const TESTS: &str = "tests-and-benches";

/// Parts that are tests and benches as a whole.
const ALL_TESTS: &[&str] = &["bench", "fuzz", "testkit", "tests"];

/// Budgets are multiples of this, so that a few lines need none.
const STEP: usize = 100;

/// A budget that exceeds its part by more must fall.
const SLACK_MAX: usize = 500;

/// Lines of one part.
#[derive(Clone, Copy, Default)]
struct Count {
    /// All that ships, blank lines and comments included.
    production: usize,
    /// Lines of those that have code.
    code: usize,
    /// Lines of tests and benches.
    tests: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.production += other.production;
        self.code += other.code;
        self.tests += other.tests;
    }
}

/// One row of [`BUDGETS`].
struct Budget<'a> {
    /// Line of the budget in the file, from one.
    line: usize,
    part: &'a str,
    lines_max: usize,
    reason: &'a str,
}

/// Reads the rows of [`BUDGETS`]; a line that is none comes back by its number.
fn budgets(text: &str) -> Result<Vec<Budget<'_>>, usize> {
    let rows = text.lines().enumerate().filter(|(_, row)| !row.starts_with('#'));
    rows.map(|(index, row)| {
        let mut words = row.splitn(3, ' ');
        let (part, lines_max) = (words.next(), words.next().and_then(|max| max.parse().ok()));
        let (Some(part), Some(lines_max)) = (part, lines_max) else { return Err(index + 1) };
        Ok(Budget { line: index + 1, part, lines_max, reason: words.next().unwrap_or_default() })
    })
    .collect()
}

/// Whether a path lies in a folder.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a file has nothing but tests by its place.
fn is_of_tests(path: &str) -> bool {
    let is_tests = |part| matches!(part, "tests" | "benches" | "examples" | "tests.rs");
    ALL_TESTS.iter().any(|part| is_below(path, part)) || path.split('/').any(is_tests)
}

/// Counts the lines of each part; files of no part come back.
fn count<'a>(tree: &'a Tree, parts: &[&'a str]) -> (BTreeMap<&'a str, Count>, Vec<&'a File>) {
    let sources = || tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    let modules: HashSet<String> =
        sources().flat_map(|file| test_modules(&file.path, file.lines())).collect();
    let (mut counts, mut lost) = (BTreeMap::<&str, Count>::new(), Vec::new());
    for file in sources() {
        let part = parts.iter().filter(|part| is_below(&file.path, part)).max_by_key(|p| p.len());
        let Some(part) = part else {
            lost.push(file);
            continue;
        };
        // A module's file, and those of the modules below it.
        let ends = file.path.match_indices('/').map(|(at, _)| at).chain([file.path.len() - 3]);
        let is_tests = is_of_tests(&file.path)
            || ends.into_iter().any(|end| modules.contains(&file.path[..end]));
        let lines = file.lines();
        let in_tests = if is_tests { vec![true; lines.len()] } else { test_lines(lines) };
        let mut own = Count::default();
        for (line, in_tests) in lines.iter().zip(in_tests) {
            let has_code = line.is_text || !line.code.trim().is_empty();
            own.add(match in_tests {
                true => Count { tests: 1, ..Count::default() },
                false => Count { production: 1, code: has_code.into(), tests: 0 },
            });
        }
        counts.entry(part).or_default().add(own);
    }
    (counts, lost)
}

/// The count that a budget is of.
fn counted(counts: &BTreeMap<&str, Count>, part: &str) -> usize {
    match part {
        TESTS => counts.values().map(|count| count.tests).sum(),
        part => counts.get(part).map_or(0, |count| count.production),
    }
}

/// The budget of so many lines.
fn rounded(lines: usize) -> usize {
    lines.next_multiple_of(STEP)
}

/// Holds every part to its budget, and every budget to its part.
pub(crate) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    let Some(list) = tree.file(BUDGETS) else { return };
    let rows = match budgets(&list.text) {
        Ok(rows) => rows,
        Err(line) => {
            let remedy = "write `FOLDER LINES [REASON]`";
            return found.push(list.violation(&LINES, line, "no folder with its lines", remedy));
        }
    };
    let (counts, lost) = count(tree, &rows.iter().map(|row| row.part).collect::<Vec<_>>());
    for Budget { line, part, lines_max, .. } in rows {
        let has = counted(&counts, part);
        let (what, remedy) = if has > lines_max {
            (
                format!("`{part}` has {has} lines, {lines_max} are allowed"),
                format!(
                    "delete as many elsewhere in it, or `cargo xtask lines --raise {part} REASON`"
                ),
            )
        } else if rounded(has) + SLACK_MAX < lines_max {
            let what = format!("`{part}` has {has} lines only, {lines_max} are allowed");
            (what, "keep what was won: `cargo xtask lines --lower`".to_owned())
        } else {
            continue;
        };
        found.push(list.violation(&LINES, line, what, remedy));
    }
    for file in lost {
        let remedy = format!("name the folder in {BUDGETS}");
        found.push(file.violation(&LINES, 0, "belongs to no part", remedy));
    }
}

/// The text of the budgets after they fell to `counts`, or after `raised` rose for a reason.
fn rewritten(
    text: &str,
    rows: &[Budget<'_>],
    counts: &BTreeMap<&str, Count>,
    raised: Option<(&str, &str)>,
) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for row in rows {
        let now = rounded(counted(counts, row.part));
        let (lines_max, reason) = match raised {
            Some((part, reason)) if part == row.part => (now, reason),
            Some(_) => continue,
            None => (now.min(row.lines_max), row.reason),
        };
        lines[row.line - 1] = format!("{} {lines_max} {reason}", row.part).trim_end().to_owned();
    }
    lines.join("\n") + "\n"
}

/// The table of all parts.
fn table(rows: &[Budget<'_>], counts: &BTreeMap<&str, Count>) -> String {
    let mut text =
        format!("{:<22}{:>11}{:>9}{:>9}{:>9}\n", "part", "production", "code", "tests", "budget");
    let mut all = Count::default();
    let mut row = |name: &str, count: Count, budget: usize| {
        let Count { production, code, tests } = count;
        text += &format!("{name:<22}{production:>11}{code:>9}{tests:>9}{budget:>9}\n");
    };
    for Budget { part, lines_max, .. } in rows.iter().filter(|row| row.part != TESTS) {
        let own = counts.get(part).copied().unwrap_or_default();
        all.add(own);
        row(part, own, *lines_max);
    }
    row("all", all, rows.iter().filter(|row| row.part != TESTS).map(|row| row.lines_max).sum());
    for Budget { lines_max, .. } in rows.iter().filter(|row| row.part == TESTS) {
        row(TESTS, Count { tests: all.tests, ..Count::default() }, *lines_max);
    }
    text
}

/// Prints the table; with `--lower` budgets fall to what is there, with `--raise` one rises.
pub(crate) fn run(root: &Path, options: &[&str]) -> io::Result<bool> {
    let tree = Tree::of_files(root)?;
    let list =
        tree.file(BUDGETS).ok_or_else(|| io::Error::other(format!("{BUDGETS} is missing")))?;
    let rows = budgets(&list.text)
        .map_err(|line| io::Error::other(format!("{BUDGETS}:{line}: no folder with its lines")))?;
    let (counts, _) = count(&tree, &rows.iter().map(|row| row.part).collect::<Vec<_>>());
    let raised = match options {
        [] => {
            print!("{}", table(&rows, &counts));
            return Ok(true);
        }
        ["--lower"] => None,
        ["--raise", part, reason @ ..] if !reason.is_empty() => {
            if !rows.iter().any(|row| row.part == *part && counted(&counts, part) > row.lines_max) {
                return Err(io::Error::other(format!(
                    "`{part}` is no part that exceeds its budget"
                )));
            }
            Some((*part, reason.join(" ")))
        }
        _ => {
            return Err(io::Error::other(
                "try `cargo xtask lines [--lower | --raise PART REASON]`",
            ));
        }
    };
    let raised = raised.as_ref().map(|(part, reason)| (*part, reason.as_str()));
    let text = rewritten(&list.text, &rows, &counts, raised);
    fs::write(root.join(BUDGETS), &text)?;
    let rows = budgets(&text).unwrap_or_default();
    print!("{}", table(&rows, &counts));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture::{found, tree};

    const FILES: &[(&str, &str)] = &[
        (
            "kit/src/a.rs",
            "//! Manual.\n\nfn f() {}\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod tests {\n}\n",
        ),
        ("kit/src/a/b.rs", "fn g() {}\n"),
        ("kit/src/a/b/deep.rs", "fn g() {}\n"),
        ("kit/tests/all/main.rs", "fn g() {}\n"),
        ("kit/deep/src/lib.rs", "const TEXT: &str = \"one\n// two\n\";\n"),
        ("bench/src/main.rs", "fn main() {}\n"),
    ];

    fn with(budgets: &str) -> Tree {
        let mut files = FILES.to_vec();
        files.push((BUDGETS, budgets));
        tree(&files)
    }

    #[test]
    fn lines_are_counted_by_part_and_kind() {
        let tree = with("");
        let (counts, lost) = count(&tree, &["kit", "kit/deep", "bench"]);
        let of = |part| counts.get(part).map(|c| (c.production, c.code, c.tests));
        assert_eq!(of("kit"), Some((3, 1, 8)));
        assert_eq!(of("kit/deep"), Some((3, 3, 0)));
        assert_eq!(of("bench"), Some((0, 0, 1)));
        assert!(lost.is_empty());
        assert_eq!(counted(&counts, TESTS), 9);
    }

    #[test]
    fn budgets_hold_parts_and_follow_them() {
        let judged = |text: &str| found(check, &with(text));
        assert!(
            judged("# Words.\nkit 3\nkit/deep 3 for a reason\nbench 0\ntests-and-benches 9\n")
                .is_empty()
        );
        assert_eq!(judged("kit 5\nbench 0\n"), ["lines xtask/lines.txt:1"]);
        assert_eq!(judged("kit 50\nbench 0\ntests-and-benches 8\n"), ["lines xtask/lines.txt:3"]);
        assert_eq!(judged("kit 601\nbench 0\n"), ["lines xtask/lines.txt:1"]);
        assert_eq!(judged("kit 50\n"), ["lines bench/src/main.rs:0"]);
        assert_eq!(judged("kit 50\nbench\n"), ["lines xtask/lines.txt:2"]);
    }

    #[test]
    fn budgets_fall_alone_and_rise_with_a_reason() {
        let text = "# Words.\nkit 900 old\nbench 0\ntests-and-benches 1\n";
        let tree = with(text);
        let rows = budgets(text).unwrap();
        let (counts, _) = count(&tree, &["kit", "bench", TESTS]);
        let lowered = rewritten(text, &rows, &counts, None);
        assert_eq!(lowered, "# Words.\nkit 100 old\nbench 0\ntests-and-benches 1\n");
        let raised = rewritten(text, &rows, &counts, Some((TESTS, "a law more")));
        assert_eq!(raised, "# Words.\nkit 900 old\nbench 0\ntests-and-benches 100 a law more\n");
        assert_eq!(table(&rows, &counts).lines().count(), 5);
    }
}
