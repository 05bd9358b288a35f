//! A protocol's folder: its files, its manual, its line in the catalog.

use super::layers::is_of_protocols;
use super::{File, Rule, Tree, Violation};

static FOLDER: Rule = Rule {
    name: "protocol-folder",
    reason: "every protocol is laid out alike, so that who has read one finds the way in all: the header in wire.rs, \
             the object that opens and demultiplexes in protocol.rs, the conversation in session.rs unless it is one of \
             xk_kit's skeletons",
};

static MANUAL: Rule = Rule {
    name: "manual",
    reason: "`xk help PROTOCOL` and the editor's palette are made from the crate documentation of lib.rs, by its \
             headings",
};

static CATALOGUED: Rule =
    Rule { name: "catalog", reason: "a graph file can only name what the catalog lists" };

/// The headings of a manual, in their order.
pub(super) const HEADINGS: &[&str] =
    &["Synopsis", "Participants", "Behaviour", "Example", "Standard"];

/// Headings that `xk help` prints from the catalog entry.
const SAID_BY_ENTRY: &[&str] = &["Realm", "Above", "Below", "Parameters", "Control"];

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for member in tree.crates.iter().filter(|c| is_of_protocols(&c.dir)) {
        let lib = format!("{}/src/lib.rs", member.dir);
        let Some(lib) = tree.file(&lib) else {
            found.push(missing(lib, "start from `cargo xtask new-protocol`"));
            continue;
        };
        // Kinds beside the first, and all of a family, have manuals in modules of their own.
        let src = format!("{}/src", member.dir);
        let kinds: Vec<&File> = tree.under(&src).filter(|file| has_manual(file)).collect();
        kinds.iter().for_each(|file| check_manual(file, found));
        if kinds.is_empty() || lib.text.contains("include_str!") {
            check_manual(lib, found);
            check_folder(tree, &member.dir, lib, found);
        }
        check_catalog(tree, lib, &member.name, found);
    }
}

/// Whether the file is a module with a catalog entry whose manual is its documentation.
fn has_manual(file: &File) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    name != "lib.rs" && file.text.contains(&format!("include_str!(\"{name}\")"))
}

/// The crate documentation: each line's number and its text behind `//!`.
fn manual(lib: &File) -> impl Iterator<Item = (usize, &str)> {
    lib.text.lines().enumerate().filter_map(|(index, line)| {
        let text = line.strip_prefix("//!")?;
        Some((index + 1, text.strip_prefix(' ').unwrap_or(text)))
    })
}

fn check_manual(lib: &File, found: &mut Vec<Violation>) {
    let mut expected = HEADINGS.iter().peekable();
    for (line, heading) in
        manual(lib).filter_map(|(line, text)| Some((line, text.strip_prefix("# ")?.trim())))
    {
        if SAID_BY_ENTRY.contains(&heading) {
            let remedy = "say it in the catalog entry, which `xk help` prints, or under Behaviour";
            let what = format!("`# {heading}` says again what the entry says");
            found.push(lib.violation(&MANUAL, line, what, remedy));
        }
        if !HEADINGS.contains(&heading) {
            continue;
        }
        match expected.next() {
            Some(next) if *next == heading => {}
            Some(next) => {
                let what = format!("`# {heading}` stands where `# {next}` is expected");
                found.push(lib.violation(
                    &MANUAL,
                    line,
                    what,
                    format!("the order is {}", HEADINGS.join(", ")),
                ));
                return;
            }
            None => {
                found.push(lib.violation(
                    &MANUAL,
                    line,
                    format!("`# {heading}` once more"),
                    "keep one of them",
                ));
                return;
            }
        }
    }
    if let Some(next) = expected.next() {
        let remedy = "add the section; write `None.` where there is nothing to say";
        found.push(lib.violation(&MANUAL, 0, format!("the manual lacks `# {next}`"), remedy));
    }
}

fn check_folder(tree: &Tree, dir: &str, lib: &File, found: &mut Vec<Violation>) {
    let is_any = |shapes: &[&str]| shapes.iter().any(|shape| lib.text.contains(shape));
    let object = tree.file(&format!("{dir}/src/protocol.rs"));
    let is_layer = object.is_some_and(|file| {
        let skeletons = ["Layer", "CallLayer", "VirtualLayer"];
        skeletons.iter().any(|of| crate::scan::has_word(&file.text, of))
    });
    let wanted = [
        ("protocol", false, "every protocol has its object there"),
        (
            "wire",
            is_any(&["Shape::Virtual", "Entry::top("]),
            "put sizes, header, parse and emit there",
        ),
        (
            "session",
            is_layer || is_any(&["Realm::Control", "Shape::Virtual", "Entry::top("]),
            "make protocol.rs a `Layer`, `CallLayer` or `VirtualLayer` of xk_kit, or put push, pop, control \
             and close there",
        ),
    ];
    for (module, not_needed, remedy) in wanted {
        let (file, folder) = (format!("{dir}/src/{module}.rs"), format!("{dir}/src/{module}"));
        if !not_needed && tree.file(&file).is_none() && tree.under(&folder).next().is_none() {
            found.push(missing(file, remedy));
        }
    }
}

fn missing(path: String, remedy: &str) -> Violation {
    Violation {
        rule: &FOLDER,
        path,
        line: 0,
        what: "the file is missing".into(),
        remedy: remedy.into(),
    }
}

fn check_catalog(tree: &Tree, lib: &File, name: &str, found: &mut Vec<Violation>) {
    let Some(catalog) = tree.file("catalog/src/lib.rs") else {
        return;
    };
    let path = name.replace('-', "_");
    let listed = tree.under("catalog/src").any(|f| crate::scan::has_word(&f.text, &path));
    if !listed {
        let remedy = format!("add the line that names `{path}` to {}", catalog.path);
        found.push(lib.violation(
            &CATALOGUED,
            0,
            format!("`{name}` is not in the catalog"),
            remedy,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, krate, tree};
    use super::*;

    fn lib(headings: &[&str], realm: &str) -> String {
        let mut text = String::from("//! One sentence.\n//!\n");
        for heading in headings {
            text += &format!("//! # {heading}\n//!\n//! {realm}\n//!\n");
        }
        text
    }

    fn protocol(lib: &str, modules: &[&str], catalog: &str) -> Vec<String> {
        let paths: Vec<_> = modules.iter().map(|m| format!("protocols/a/src/{m}.rs")).collect();
        let mut files = vec![("protocols/a/src/lib.rs", lib), ("catalog/src/lib.rs", catalog)];
        files.extend(paths.iter().map(|p| (p.as_str(), "")));
        let mut tree = tree(&files);
        tree.crates.push(krate("xk-a", "protocols/a", &[]));
        found(check, &tree)
    }

    const ALL: &[&str] = &["wire", "protocol", "session"];

    #[test]
    fn a_whole_folder_passes() {
        assert!(protocol(&lib(HEADINGS, "Async."), ALL, "&xk_a::ENTRY,").is_empty());
    }

    #[test]
    fn a_layer_needs_no_session() {
        let layer = "use xk_kit::layer::Layer;";
        let lib = lib(HEADINGS, "Async.");
        let mut tree = tree(&[
            ("protocols/a/src/lib.rs", lib.as_str()),
            ("protocols/a/src/wire.rs", ""),
            ("protocols/a/src/protocol.rs", layer),
            ("catalog/src/lib.rs", "xk_a::ENTRY"),
        ]);
        tree.crates.push(krate("xk-a", "protocols/a", &[]));
        assert!(found(check, &tree).is_empty());
    }

    #[test]
    fn files_are_excused_by_the_entry() {
        let catalog = "xk_a::ENTRY";
        assert_eq!(protocol(&lib(HEADINGS, "Async."), &["protocol"], catalog).len(), 2);
        assert!(
            protocol(&lib(HEADINGS, "Shape::Virtual"), &["protocol", "session"], catalog)
                .is_empty()
        );
        assert!(
            protocol(&lib(HEADINGS, "Realm::Control"), &["protocol", "wire"], catalog).is_empty()
        );
    }

    #[test]
    fn headings_have_their_order() {
        let mut headings = HEADINGS.to_vec();
        headings.swap(1, 2);
        assert_eq!(protocol(&lib(&headings, ""), ALL, "xk_a"), ["manual protocols/a/src/lib.rs:7"]);
        assert_eq!(
            protocol(&lib(&HEADINGS[..HEADINGS.len() - 1], ""), ALL, "xk_a"),
            ["manual protocols/a/src/lib.rs:0"]
        );
        for said in SAID_BY_ENTRY {
            let repeated = [HEADINGS, &[*said]].concat();
            let found = protocol(&lib(&repeated, "Async."), ALL, "xk_a");
            assert_eq!(found, ["manual protocols/a/src/lib.rs:23"], "{said}");
        }
        let twice = [HEADINGS, &["Example"]].concat();
        assert_eq!(protocol(&lib(&twice, ""), ALL, "xk_a"), ["manual protocols/a/src/lib.rs:23"]);
    }

    #[test]
    fn kinds_in_modules_have_manuals() {
        let first = lib(HEADINGS, "Async.") + "include_str!(\"lib.rs\")";
        let of = |first: &str, kind: &str| {
            let second =
                format!("{}Entry::layer(\"b\", include_str!(\"b.rs\"))", lib(&HEADINGS[1..], ""));
            let mut tree = tree(&[
                ("protocols/a/src/lib.rs", first),
                ("protocols/a/src/wire.rs", ""),
                ("protocols/a/src/protocol.rs", ""),
                ("protocols/a/src/session.rs", ""),
                (kind, second.as_str()),
            ]);
            tree.crates.push(krate("xk-a", "protocols/a", &[]));
            found(check, &tree)
        };
        assert_eq!(of(&first, "protocols/a/src/b.rs"), ["manual protocols/a/src/b.rs:3"]);
        assert!(of(&first, "protocols/a/src/c.rs").is_empty());
        let family = "//! A family.\npub mod b;\n";
        assert_eq!(of(family, "protocols/a/src/b.rs"), ["manual protocols/a/src/b.rs:3"]);
        assert_eq!(of(family, "protocols/a/src/c.rs").len(), 1);
    }

    #[test]
    fn the_catalog_names_it() {
        assert_eq!(
            protocol(&lib(HEADINGS, ""), ALL, "xk_ab::ENTRY"),
            ["catalog protocols/a/src/lib.rs:0"]
        );
    }
}
