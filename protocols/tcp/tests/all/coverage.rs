//! The report which sections of which standards the packet scripts cover: `docs/tcp-coverage.md`.
//! The test says when it is not current; `XK_WRITE=1 cargo test -p xk-tcp --test all coverage`
//! writes it again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use xk_testkit::script::{File, load};

/// Parts of one section that the scripts show.
type Shown<'a> = BTreeMap<(&'a str, &'a str), Vec<(&'a str, &'a str)>>;

fn shown(files: &[File]) -> Shown<'_> {
    let mut shown = Shown::new();
    for file in files {
        for case in &file.cases {
            for (document, section) in &case.covers {
                let list = shown.entry((document, section)).or_default();
                list.push((&case.title, &file.name));
            }
        }
    }
    shown
}

const HEAD: &str = "\
# What the packet scripts cover

Written by `XK_WRITE=1 cargo test -p xk-tcp --test all coverage` from `protocols/tcp/tests/scripts`; the same test without `XK_WRITE`
checks that it is current. One script may cover several sections. A section without a script says why.
";

const OPEN: &str = "
## What the standards leave open

What is done where they do, or where Linux does otherwise, and why.

| matter | decision |
| --- | --- |
";

/// The lines of a list that say something.
fn lines(list: &str) -> impl Iterator<Item = &str> {
    let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
    list.lines().filter(says)
}

/// The report, and the sections that no list knows or accounts for.
fn report(list: &str, open: &str, files: &[File]) -> (String, Vec<String>) {
    let mut shown = shown(files);
    let cases: usize = files.iter().map(|file| file.cases.len()).sum();
    let mut text = format!("{HEAD}\n{cases} scripts.\n");
    let mut wrong = Vec::new();
    let mut document = "";
    for line in lines(list) {
        if let (true, Some((name, title))) = (line.starts_with("RFC"), line.split_once(": ")) {
            document = name;
            let _ = write!(
                text,
                "\n## {name}: {title}\n\n| section | | scripts |\n| --- | --- | --- |\n"
            );
            continue;
        }
        let (section, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (title, reason) = match rest.split_once(" - ") {
            Some((title, reason)) => (title, Some(reason)),
            None => (rest, None),
        };
        let found = shown.remove(&(document, section));
        let cell = match (found, reason) {
            (Some(cases), _) => cases
                .iter()
                .map(|(title, file)| format!("{title} (`{file}`)"))
                .collect::<Vec<_>>()
                .join("<br>"),
            (None, Some(reason)) => format!("none: {reason}"),
            (None, None) => {
                wrong.push(format!(
                    "no script covers {document}, {section}, and no reason is given"
                ));
                String::new()
            }
        };
        let _ = writeln!(text, "| {section} | {title} | {cell} |");
    }
    let unknown = shown
        .keys()
        .map(|(document, section)| format!("{document}, {section} is not in sections.txt"));
    wrong.extend(unknown);
    text.push_str(OPEN);
    for line in lines(open) {
        match line.split_once(" - ") {
            Some((matter, decision)) => {
                let _ = writeln!(text, "| {matter} | {decision} |");
            }
            None => wrong.push(format!("open.txt: no decision: {line}")),
        }
    }
    (text, wrong)
}

#[test]
fn the_report_is_current() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("tests/scripts");
    let files = load(&folder).unwrap_or_else(|what| panic!("{what}"));
    let list = std::fs::read_to_string(folder.join("sections.txt")).unwrap();
    let open = std::fs::read_to_string(folder.join("open.txt")).unwrap();
    let (report, wrong) = report(&list, &open, &files);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let path = here.join("../../docs/tcp-coverage.md");
    if std::env::var_os("XK_WRITE").is_some() {
        std::fs::write(&path, &report).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == report,
        "docs/tcp-coverage.md is not current: XK_WRITE=1 cargo test -p xk-tcp --test all coverage"
    );
}
