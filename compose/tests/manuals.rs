//! The examples in the manuals are graphs, and check.

use xk_catalog::{Catalog, PROTOCOLS};
use xk_compose::{check, default_of};

/// The fragments in ```kdl fences of a manual.
fn examples(manual: &str) -> Vec<String> {
    let mut examples = Vec::new();
    let mut open: Option<String> = None;
    for line in manual.lines() {
        match (&mut open, line.trim()) {
            (None, "```kdl") => open = Some(String::new()),
            (Some(_), "```") => examples.extend(open.take()),
            (Some(text), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    examples
}

#[test]
fn every_manual_has_an_example_that_checks() {
    let catalog = Catalog::standard();
    let mut wrong = String::new();
    for entry in PROTOCOLS {
        let examples = examples(&entry.manual_text());
        if examples.is_empty() {
            wrong += &format!("{}: no example in the manual\n", entry.kind);
        }
        for mut example in examples {
            // A host alone is enough of an example; its link is taken for granted.
            if !example.contains("\nlink ") && !example.starts_with("link ") {
                example.push_str("link lan\n");
            }
            if let Err(mistakes) = check(&example, entry.kind, &catalog) {
                wrong += &format!("{example}{mistakes}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_default_reads() {
    for entry in PROTOCOLS {
        let blocks = entry.blocks.iter();
        let inner = blocks.flat_map(|block| block.arguments.iter().chain(block.properties));
        for spec in entry.parameters.iter().chain(inner) {
            assert!(
                spec.default.is_none() || default_of(spec).is_some(),
                "{}: the default of `{}`",
                entry.kind,
                spec.name
            );
        }
    }
}
