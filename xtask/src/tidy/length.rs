//! No file and no line is longer than a reader can take in.

use super::{File, Rule, Tree, Violation};

static LENGTH: Rule = Rule {
    name: "file-length",
    reason: "a file is read whole; beyond 800 lines it holds several things that deserve a home of their own",
};

static COLUMNS: Rule = Rule {
    name: "columns",
    reason: "two versions are read side by side; rustfmt holds code to 100 columns, not comments",
};

/// Columns that a line of comment may have, as rustfmt.toml has them for code.
pub(crate) const COLUMNS_MAX: usize = 100;

/// Lines that a source file may have.
const LINES_MAX: usize = 800;

static BUDGET: Rule = Rule {
    name: "budget",
    reason: "what the least layers need is the measure of the skeleton: if they grow, it has lost something",
};

/// Lines of code that some folders may have: one a line, path and number.
const BUDGETS: &str = "xtask/budgets.txt";

/// Holds the folders of [`BUDGETS`] to their numbers. Comments, manuals and tests do not count.
fn check_budgets(tree: &Tree, found: &mut Vec<Violation>) {
    let Some(list) = tree.file(BUDGETS) else { return };
    for (index, line) in list.text.lines().enumerate().filter(|(_, l)| !l.starts_with('#')) {
        let Some((path, Ok(max))) = line.split_once(' ').map(|(p, n)| (p, n.parse::<usize>()))
        else {
            found.push(list.violation(&BUDGET, index + 1, "no number", "write `path lines`"));
            continue;
        };
        let is_own = |f: &&File| f.path.ends_with(".rs") && !f.path.contains("/tests");
        let lines: usize = tree.under(path).filter(is_own).map(code).sum();
        if lines > max || lines == 0 {
            let what = format!("`{path}` has {lines} lines of code, {max} are allowed");
            let remedy = "move what other layers need, too, into kit";
            found.push(list.violation(&BUDGET, index + 1, what, remedy));
        }
    }
}

/// Lines of code without tests.
fn code(file: &File) -> usize {
    let own = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    crate::scan::scan(own).iter().filter(|line| !line.code.trim().is_empty()).count()
}

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    check_budgets(tree, found);
    for file in tree.files.iter().filter(|f| is_source(&f.path)) {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            let remedy = "move one of its parts, or its tests, into a file beside it";
            let what = format!("{lines} lines, allowed are {LINES_MAX}");
            found.push(file.violation(&LENGTH, LINES_MAX + 1, what, remedy));
        }
    }
    for file in tree.files.iter().filter(|f| f.path.ends_with(".rs")) {
        for (index, _) in file.text.lines().enumerate().filter(|(_, line)| is_wide(line)) {
            let remedy = "break it between two words";
            let what = format!("a comment beyond {COLUMNS_MAX} columns");
            found.push(file.violation(&COLUMNS, index + 1, what, remedy));
        }
    }
}

/// Is it a line of comment that is too wide and could be broken? Rows of tables cannot.
pub(crate) fn is_wide(line: &str) -> bool {
    let comment = line.trim_start();
    comment.starts_with("//")
        && !comment.trim_start_matches(['/', '!', ' ']).starts_with('|')
        && line.chars().count() > COLUMNS_MAX
}

fn is_source(path: &str) -> bool {
    [".rs", ".c", ".h", ".py", ".sh"].iter().any(|ending| path.ends_with(ending))
        || path == ".ci/run"
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, tree};
    use super::*;

    #[test]
    fn long_files_are_named() {
        let (long, short) = ("x\n".repeat(801), "x\n".repeat(800));
        let files = tree(&[("a/long.rs", &long), ("a/short.rs", &short), ("a/long.md", &long)]);
        assert_eq!(found(check, &files), ["file-length a/long.rs:801"]);
    }

    #[test]
    fn wide_comments_are_named() {
        let [wide, table] = ["x ".repeat(60), "| ".repeat(60)];
        let files = tree(&[("a.rs", &format!("// short\n/// {wide}\n//! {table}\n"))]);
        assert_eq!(found(check, &files), ["columns a.rs:2"]);
    }

    #[test]
    fn a_budget_is_held() {
        let file = ("a/src/x.rs", "//! Manual.\nfn f() {}\n\n#[cfg(test)]\nmod tests;\n");
        let of = |max| tree(&[file, (BUDGETS, &format!("a/src {max}\n"))]);
        assert!(found(check, &of(1)).is_empty());
        assert_eq!(found(check, &of(0)), ["budget xtask/budgets.txt:1"]);
    }
}
