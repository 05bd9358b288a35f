//! Tables that quote figures say what they quote, and are filled from the page of results.
//!
//! Before such a table stands `<!-- quotes: CLAUSE; CLAUSE -->`, with a clause for each column
//! behind the first: `BENCHMARK | ROW | SYSTEM | COLUMN`, where `{}` is the row's first cell, or
//! `-` for a column that quotes nothing.

use super::{File, Rule, Tree, Violation};
use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

static QUOTES: Rule = Rule {
    name: "quoted-figures",
    reason: "figures of two runs, or of two commits, do not compare: a table shows what one page has measured",
};

/// The page of results.
const RESULTS: &str = "docs/benchmarks.md";
const REMEDY: &str = "`cargo xtask quote` fills the tables from docs/benchmarks.md";
const MARK: &str = "<!-- quotes: ";
/// Cell of a row that the page does not have.
const NONE: &str = "not measured";

/// The page's cells, by benchmark, row, system and column.
struct Figures<'a>(HashMap<[&'a str; 4], &'a str>);

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

impl<'a> Figures<'a> {
    fn read(page: &'a str) -> Self {
        let (mut bench, mut head) = ("", Vec::new());
        let mut found = HashMap::new();
        for line in page.lines() {
            if let Some(name) = line.strip_prefix("## ") {
                bench = name;
            }
            match cells(line) {
                None => head.clear(),
                Some(first) if head.is_empty() => head = first,
                Some(row) => {
                    for (column, cell) in head.iter().zip(&row).skip(2) {
                        found.insert([bench, row[0], row[1], *column], *cell);
                    }
                }
            }
        }
        Self(found)
    }

    /// The figure that a clause names for the row `name`; `present` if it names none.
    fn quoted(&self, clause: &str, name: &str, present: &str) -> String {
        let parts: Vec<String> =
            clause.split('|').map(|part| part.trim().replace("{}", name)).collect();
        match &parts[..] {
            [bench, row, system, column] => {
                let figure = self.0.get(&[bench, row, system, column].map(String::as_str));
                figure.map_or(NONE, |figure| *figure).to_owned()
            }
            _ => present.to_owned(),
        }
    }

    /// The text with its tables filled.
    fn fill<'t>(&self, text: &'t str) -> String {
        let mut clauses: Option<Vec<&'t str>> = None;
        let mut in_table = 0;
        let fill = |line: &'t str| {
            if let Some(mark) = line.strip_prefix(MARK) {
                clauses = Some(mark.trim_end_matches("-->").split(';').collect());
                in_table = 0;
                return line.to_owned();
            }
            let (Some(of), Some(row)) = (&clauses, cells(line)) else {
                if in_table > 0 {
                    (clauses, in_table) = (None, 0);
                }
                return line.to_owned();
            };
            in_table += 1;
            // Behind the heads and the line below them.
            if in_table <= 2 {
                return line.to_owned();
            }
            let name = row[0];
            let quoted = row.iter().skip(1).enumerate().map(|(at, present)| {
                self.quoted(of.get(at).copied().unwrap_or("-"), name, present)
            });
            let filled: Vec<String> = std::iter::once(name.to_owned()).chain(quoted).collect();
            format!("| {} |", filled.join(" | "))
        };
        text.split('\n').map(fill).collect::<Vec<_>>().join("\n")
    }
}

fn quoting(tree: &Tree) -> impl Iterator<Item = (&File, String)> {
    let figures = Figures::read(tree.file(RESULTS).map_or("", |page| &page.text));
    let pages = tree.files.iter().filter(|f| f.path.ends_with(".md"));
    pages.filter(|file| file.text.contains(MARK)).map(move |file| (file, figures.fill(&file.text)))
}

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for (file, filled) in quoting(tree) {
        let lines = file.text.lines().zip(filled.lines()).enumerate();
        for (at, (present, filled)) in lines.filter(|(_, (a, b))| a != b) {
            let what = format!("`{present}` is `{filled}` in {RESULTS}");
            found.push(file.violation(&QUOTES, at + 1, what, REMEDY));
        }
    }
}

/// `cargo xtask quote`: fills the tables.
pub(crate) fn run(root: &Path) -> io::Result<bool> {
    for (file, filled) in quoting(&Tree::read(root)?) {
        if filled != file.text {
            fs::write(root.join(&file.path), filled)?;
            println!("quote: filled {}", file.path);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, tree};
    use super::*;

    const PAGE: &str = "\
## rpc

a call (us).

| row | system | min | median |
| --- | --- | ---: | ---: |
| A, latency | xk | 1.00 | 2.50 |
| A, latency | x-kernel | 1790 | 1790 |
| B, latency | xk | 3.00 | 4.00 |

## other

| row | system | min | median |
| --- | --- | ---: | ---: |
| A, latency | xk | 7.00 | 8.00 |
";

    fn page(a: &str, b: &str) -> String {
        format!(
            "Text | of no table |\n{MARK}rpc | {{}}, latency | x-kernel | median; -; rpc | {{}}, latency | xk | median -->\n\n\
             | | paper | what | xk |\n| --- | --- | --- | --- |\n{a}\n{b}\n\n| x | 9 |\n| - | - |\n| A | 9 |\n"
        )
    }

    #[test]
    fn a_figure_of_another_run_or_row_is_named() {
        let b = "| B | not measured | two | 4.00 |";
        let right = page("| A | 1790 | one | 2.50 |", b);
        assert!(found(check, &tree(&[(RESULTS, PAGE), ("docs/rpc.md", &right)])).is_empty());
        for wrong in ["| A | 1790 | one | 8.00 |", "| A | 1.79 | one | 2.50 |"] {
            let wrong = page(wrong, b);
            let files = tree(&[(RESULTS, PAGE), ("docs/rpc.md", &wrong)]);
            assert_eq!(found(check, &files), ["quoted-figures docs/rpc.md:6"]);
            assert_eq!(Figures::read(PAGE).fill(&wrong), right);
        }
    }
}
