//! No comment is wider than a reader can take in, and the least layers stay small.

use super::{File, Rule, Tree, Violation};
use std::collections::BTreeSet;

static COLUMNS: Rule = Rule {
    name: "columns",
    reason: "two versions are read side by side; rustfmt holds code to 100 columns, not comments",
};

/// Columns that a line of comment may have, as rustfmt.toml has them for code.
pub(crate) const COLUMNS_MAX: usize = 100;

static BUDGET: Rule = Rule {
    name: "budget",
    reason: "what the least layers need is the measure of the skeleton: if they grow, it has lost something",
};

/// Budgets of some folders, one a line: path, lines of code, names of ours imported.
const BUDGETS: &str = "xtask/budgets.txt";

/// Holds the folders of [`BUDGETS`] to their numbers. Comments, manuals and tests do not count.
fn check_budgets(tree: &Tree, found: &mut Vec<Violation>) {
    let Some(list) = tree.file(BUDGETS) else { return };
    for (index, line) in list.text.lines().enumerate().filter(|(_, l)| !l.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [path, lines_max, names_max] = words[..] else {
            let remedy = "write `path lines names`";
            found.push(list.violation(&BUDGET, index + 1, "not three words", remedy));
            continue;
        };
        let is_own = |f: &&File| f.path.ends_with(".rs") && !f.path.contains("/tests");
        let code: Vec<String> = tree.under(path).filter(is_own).flat_map(code).collect();
        let (all, lines) = (code.join("\n"), code.len());
        for (has, max, what) in
            [(lines, lines_max, "lines of code"), (names(&all).len(), names_max, "names of ours")]
        {
            if has == 0 || max.parse().is_ok_and(|max: usize| has <= max) {
                continue;
            }
            let what = format!("`{path}` has {has} {what}, {max} are allowed");
            let remedy = "move what other layers need, too, into kit";
            found.push(list.violation(&BUDGET, index + 1, what, remedy));
        }
        if code.is_empty() {
            found.push(list.violation(&BUDGET, index + 1, "no such code", "take the line out"));
        }
    }
}

/// Lines of code without tests and comments.
fn code(file: &File) -> Vec<String> {
    let own = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = crate::scan::scan(own).into_iter().map(|line| line.code.trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// The last words of the paths into `xk-core` and `xk-kit`, each once: what an author of a protocol
/// must know of ours.
fn names(code: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for path in ["xk_core::", "xk_kit::"].into_iter().flat_map(|root| code.split(root).skip(1)) {
        let is_end = |c: char| !c.is_alphanumeric() && !"_:*".contains(c);
        let end = path.find(is_end).unwrap_or(path.len());
        let is_tree = path[end..].starts_with('{');
        let end = if is_tree { path.find(';').unwrap_or(path.len()) } else { end };
        let mut module = "";
        for word in path[..end].split(|c: char| "{},".contains(c) || c.is_whitespace()) {
            match word.strip_suffix("::") {
                Some(inner) => module = inner,
                None if word == "self" => drop(names.insert(module)),
                None => names.extend(word.rsplit("::").next().filter(|name| !name.is_empty())),
            }
        }
    }
    names
}

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    check_budgets(tree, found);
    for file in tree.files.iter().filter(|f| f.path.ends_with(".rs")) {
        for (index, _) in file.text.lines().enumerate().filter(|(_, line)| is_wide(line)) {
            let remedy = "break it between two words";
            let what = format!("a comment beyond {COLUMNS_MAX} columns");
            found.push(file.violation(&COLUMNS, index + 1, what, remedy));
        }
    }
}

/// Whether a line of comment is too wide and could be broken. Rows of tables cannot.
pub(crate) fn is_wide(line: &str) -> bool {
    let comment = line.trim_start();
    comment.starts_with("//")
        && !comment.trim_start_matches(['/', '!', ' ']).starts_with('|')
        && line.chars().count() > COLUMNS_MAX
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, tree};
    use super::*;

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
        assert!(found(check, &of("1 0")).is_empty());
        assert_eq!(found(check, &of("0 0")), ["budget xtask/budgets.txt:1"]);
        assert_eq!(found(check, &of("1")), ["budget xtask/budgets.txt:1"]);
    }

    #[test]
    fn names_of_ours_are_counted_once_each() {
        let code = "use xk_core::{Part, graph, object::{Burst,\nRefused}};\nuse xk_kit::control::{self, \
                    Peer};\nuse xk_udp::Other;\nfn f() -> xk_core::Part { xk_kit::net::ports::ANY }";
        let all = names(code);
        let expected = ["ANY", "Burst", "Part", "Peer", "Refused", "control", "graph"];
        assert_eq!(all.into_iter().collect::<Vec<_>>(), expected);
        let file = ("a/src/x.rs", "use xk_core::{Part, graph};\n");
        let of = |max| tree(&[file, (BUDGETS, &format!("a/src 9 {max}\n"))]);
        assert!(found(check, &of(2)).is_empty());
        assert_eq!(found(check, &of(1)), ["budget xtask/budgets.txt:1"]);
    }
}
