//! Rules about every text file: no machine's own paths or hosts, and white space that no diff trips
//! over.

use super::{File, Rule, Tree, Violation};

static MACHINE: Rule = Rule {
    name: "machine-path",
    reason: "a home folder or a private host exists on one machine only, and tells about it",
};

static SPACE: Rule =
    Rule { name: "white-space", reason: "invisible differences make noise in every later diff" };

static SOURCES: Rule = Rule {
    name: "package-source",
    reason: "a package must come from the public registry that its name promises, whoever builds",
};

/// Folders that belong to one machine. Written in two halves: the rule reads this file as well.
const HOMES: &[&str] =
    &[concat!("/ro", "ot"), concat!("/wo", "rk"), concat!("/ho", "me"), concat!("/Us", "ers")];

/// Endings of host names that only a private network knows.
const PRIVATE_HOSTS: &[&str] = &[".internal", ".intranet", ".corp", ".lan"];

const INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";
const NPM: &str = "https://registry.npmjs.org/";

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for file in &tree.files {
        if !is_generated(&file.path) {
            check_space(file, found);
        }
        check_machine(file, found);
        check_sources(file, found);
    }
}

/// Files that a tool writes in its own form, and what a test feeds in or expects, where each octet
/// is meant.
fn is_generated(path: &str) -> bool {
    let endings =
        [".snap", ".lock", ".svg", ".patch", ".proptest-regressions", "package-lock.json"];
    let data = ["/tests/", "/corpus/"].iter().any(|part| path.contains(part));
    let test_data = data && !path.ends_with(".rs");
    test_data || path.contains("/dist/") || endings.iter().any(|ending| path.ends_with(ending))
}

fn may_have_tabs(path: &str) -> bool {
    path.ends_with("Makefile")
        || path.ends_with(".go")
        || path.ends_with(".tsv")
        || path.ends_with(".gitmodules")
}

fn check_space(file: &File, found: &mut Vec<Violation>) {
    for (index, line) in file.text.split('\n').enumerate() {
        let what = if line.ends_with('\r') {
            "the line ends with a carriage return"
        } else if line.ends_with([' ', '\t']) {
            "white space at the line's end"
        } else if line.contains('\t') && !may_have_tabs(&file.path) {
            "a tab"
        } else {
            continue;
        };
        let remedy = "delete it, or write spaces (in a string: the escape)";
        found.push(file.violation(&SPACE, index + 1, what, remedy));
    }
    let last = file.text.lines().count();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(file.violation(&SPACE, last, "no newline at the end", "add one"));
    } else if file.text.ends_with("\n\n") {
        found.push(file.violation(&SPACE, last, "an empty line at the end", "delete it"));
    }
}

fn check_machine(file: &File, found: &mut Vec<Violation>) {
    for (index, line) in file.text.lines().enumerate() {
        if let Some(home) = HOMES.iter().find(|home| has_path(line, home)) {
            let remedy =
                "write a path relative to the repository, or one that the program finds out";
            let what = format!("a path under `{home}`");
            found.push(file.violation(&MACHINE, index + 1, what, remedy));
        }
        if let Some(host) = hosts(line).find(|host| is_private(host)) {
            let remedy = "name a public host, or take it from the environment";
            let what = format!("the private host `{host}`");
            found.push(file.violation(&MACHINE, index + 1, what, remedy));
        }
    }
}

/// Whether `line` holds an absolute path that begins with `home`.
fn has_path(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + home.len()..].chars().next();
        let begins = before.is_none_or(|c| !(c.is_alphanumeric() || "_-./~}*)>".contains(c)));
        begins && after == Some('/')
    })
}

/// The host parts of the URLs on a line.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("://").map(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "-.@".contains(c)))
            .unwrap_or(rest.len());
        rest[..end].rsplit('@').next().unwrap_or_default().trim_end_matches('.')
    })
}

fn is_private(host: &str) -> bool {
    PRIVATE_HOSTS.iter().any(|ending| host.ends_with(ending))
}

fn check_sources(file: &File, found: &mut Vec<Violation>) {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        let wrong = match name {
            "Cargo.lock" => line.starts_with("source = ") && !line.contains(INDEX),
            "package-lock.json" => line.starts_with("\"resolved\": \"http") && !line.contains(NPM),
            "config.toml" if file.path.contains(".cargo/") => {
                ["[source", "[registr", "replace-with", "index"]
                    .iter()
                    .any(|key| line.starts_with(key))
            }
            "pip.conf" | ".npmrc" => line.contains("://"),
            _ => false,
        };
        if wrong {
            let remedy = "keep mirrors in the machine's own configuration, not in the repository";
            let what = "a source of packages other than the public one";
            found.push(file.violation(&SOURCES, index + 1, what, remedy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, tree};
    use super::*;

    fn one(path: &str, text: &str) -> Vec<String> {
        found(check, &tree(&[(path, text)]))
    }

    #[test]
    fn white_space_is_seen() {
        assert!(one("a.md", "fine\n").is_empty());
        assert!(one("empty.md", "").is_empty());
        assert_eq!(
            one("a.md", "x \n\ty\nz\r\n"),
            (1..=3).map(|n| format!("white-space a.md:{n}")).collect::<Vec<_>>()
        );
        assert_eq!(one("a.md", "x"), ["white-space a.md:1"]);
        assert_eq!(one("a.md", "x\n\n"), ["white-space a.md:2"]);
        assert!(one("a/Makefile", "all:\n\tcargo\n").is_empty());
        assert!(one("a.snap", "x \n").is_empty());
        assert!(one("lang/tests/tab.txt", "\tx\n").is_empty());
    }

    #[test]
    fn machine_paths_are_seen() {
        for home in HOMES {
            assert_eq!(one("a.sh", &format!("cd {home}/x\n")), ["machine-path a.sh:1"], "{home}");
        }
        let fine = format!("dir{0}/x ./a{0}/x $HOME{0} {0}s a{0}\n", HOMES[0]);
        assert!(one("a.sh", &fine).is_empty());
    }

    #[test]
    fn private_hosts_are_seen() {
        let private = format!("url = http://u@mirror.some{}/x\n", PRIVATE_HOSTS[2]);
        assert_eq!(one("a.md", &private), ["machine-path a.md:1"]);
        assert!(one("a.md", "https://www.rust-lang.org/ http://10.0.0.2:8080/\n").is_empty());
    }

    #[test]
    fn packages_come_from_the_public_registries() {
        assert!(one("Cargo.lock", &format!("source = \"{INDEX}\"\n")).is_empty());
        assert_eq!(
            one("Cargo.lock", "source = \"git+https://x.org/y\"\n"),
            ["package-source Cargo.lock:1"]
        );
        assert_eq!(
            one(".cargo/config.toml", "[source.x]\n"),
            ["package-source .cargo/config.toml:1"]
        );
        assert!(one(".cargo/config.toml", "[alias]\nxtask = \"run\"\n").is_empty());
    }
}
