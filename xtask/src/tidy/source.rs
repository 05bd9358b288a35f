//! Rules about Rust sources that neither the compiler nor clippy has: no world in the pure layers,
//! `unsafe` in its own files, nothing left undone.

use super::{File, Rule, Tree, Violation};
use crate::scan::{Line, has_word, test_lines};

static NO_STD: Rule = Rule {
    name: "no-std",
    reason: "core, kit and protocols run unchanged in a simulator, a program and a server process; `no_std` makes \
             the compiler prove that they ask no system for anything",
};

static NO_WORLD: Rule = Rule {
    name: "no-world",
    reason: "time and random bits come in through the Kernel, so that virtual time works and one seed replays a run \
             to the bit",
};

static FAMILIES: Rule = Rule {
    name: "one-host-address",
    reason: "a layer that holds hosts as `HostAddr` works over every family of them: another family is \
             then new folders, and no change of these",
};

static UNSAFE_FILES: Rule = Rule {
    name: "unsafe-files",
    reason: "whoever audits memory safety reads the files named `*_unsafe.rs`, and nothing else",
};

static UNDONE: Rule = Rule {
    name: "undone",
    reason: "what is merged is finished; what is not is an entry in the tracker, not a trap in the code",
};

static REASONS: Rule = Rule {
    name: "reasons",
    reason: "a reason that no table lists reaches another address space as its class alone",
};

/// Names that bring the world into a crate that is `no_std`.
const WORLD: &[&str] = &["extern crate std"];

/// The addresses of one family.
const ONE_FAMILY: &[&str] =
    &["Ipv4Addr", "Ipv4", "Ipv6Addr", "Ipv6", "SocketAddrV4", "SocketAddrV6"];

/// Files in which address families are known: the type that is of any family and its text, the
/// protocols of one, and the readers and writers of its packets.
const KIN: &[&str] = &[
    "core/src/participant/",
    "kit/src/net/addr.rs",
    "kit/src/wire/",
    "protocols/arp/",
    "protocols/icmp/",
    "protocols/igmp/",
    "protocols/ip/",
    "tools/noise/",
];

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for member in tree.crates.iter().filter(|c| !c.dir.starts_with("apps/") && c.dir != "core") {
        let source = format!("{}/src", member.dir);
        check_reasons(&tree.under(&source).collect::<Vec<_>>(), found);
    }
    for file in tree.files.iter().filter(|f| f.path.ends_with(".rs")) {
        let lines = file.lines();
        check_unsafe(file, lines, found);
        check_undone(file, lines, found);
        if is_pure(&file.path) {
            check_pure(file, lines, found);
        }
        let is_kin = KIN.iter().any(|kin| file.path.starts_with(kin));
        if !is_kin && (is_pure(&file.path) || file.path.starts_with("sockets/net/src/")) {
            check_names(file, lines, (&FAMILIES, ONE_FAMILY, "take a `HostAddr`"), found);
        }
    }
}

/// Whether the file is compiled into core, kit or a protocol. Their tests are not: they may time
/// themselves.
fn is_pure(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let inside = match parts.as_slice() {
        ["core" | "kit", rest @ ..] | ["protocols" | "tools", _, rest @ ..] => rest,
        _ => return false,
    };
    inside.first() == Some(&"src")
        && !inside.iter().any(|part| matches!(*part, "tests" | "tests.rs"))
}

fn check_pure(file: &File, lines: &[Line], found: &mut Vec<Violation>) {
    if file.path.ends_with("/src/lib.rs") && !lines.iter().any(|l| l.code.contains("#![no_std]")) {
        let remedy = "write `#![no_std]` under the manual";
        found.push(file.violation(&NO_STD, 1, "the crate is not `no_std`", remedy));
    }
    let remedy = "ask the Kernel for the time, for an event or for random bits";
    check_names(file, lines, (&NO_WORLD, WORLD, remedy), found);
}

/// Finds names that a rule forbids, outside of tests.
fn check_names(
    file: &File,
    lines: &[Line],
    (rule, names, remedy): (&'static Rule, &[&str], &str),
    found: &mut Vec<Violation>,
) {
    let in_tests = test_lines(lines);
    for (index, line) in lines.iter().enumerate().filter(|(index, _)| !in_tests[*index]) {
        for name in names.iter().filter(|name| has_word(&line.code, name)) {
            let what = format!("`{}` is mentioned", name.trim_end_matches("::"));
            found.push(file.violation(rule, index + 1, what, remedy));
        }
    }
}

/// Each reason of a crate is in its entry, or in the crate's own table.
fn check_reasons(files: &[&File], found: &mut Vec<Violation>) {
    let tables = files.iter().flat_map(|file| {
        let starts =
            [".reasons(&[", ": &[&Reason] = &["].map(|start| file.text.split(start).skip(1));
        starts.into_iter().flatten().filter_map(|rest| rest.split(']').next())
    });
    let listed: Vec<&str> = tables
        .flat_map(|table| table.split(','))
        .filter_map(|item| item.trim().strip_prefix('&'))
        .filter_map(|path| path.rsplit("::").next())
        .collect();
    for file in files {
        let lines = file.lines();
        let in_tests = test_lines(lines);
        for (index, line) in lines.iter().enumerate().filter(|(index, _)| !in_tests[*index]) {
            let declared = line.code.split_once(": Reason =");
            let Some((_, name)) = declared.and_then(|(before, _)| before.split_once("static "))
            else {
                continue;
            };
            if !listed.contains(&name) {
                let remedy = "name it in the entry's `reasons`, or in the crate's table of them";
                let what = format!("`{name}` is in no table");
                found.push(file.violation(&REASONS, index + 1, what, remedy));
            }
        }
    }
}

fn check_unsafe(file: &File, lines: &[Line], found: &mut Vec<Violation>) {
    let allowed = file.path.ends_with("_unsafe.rs");
    for (index, line) in lines.iter().enumerate() {
        if !allowed && has_word(&line.code, "unsafe") {
            let what = "`unsafe` outside a file named `*_unsafe.rs`";
            let remedy = "find a safe form, or move the smallest possible piece into such a file behind a safe function";
            found.push(file.violation(&UNSAFE_FILES, index + 1, what, remedy));
        }
    }
}

fn check_undone(file: &File, lines: &[Line], found: &mut Vec<Violation>) {
    for (index, line) in lines.iter().enumerate() {
        for name in ["TODO", "FIXME"].iter().filter(|name| has_word(&line.comment, name)) {
            let remedy = "finish it, or describe in the tracker what is not supported";
            found.push(file.violation(&UNDONE, index + 1, format!("`{name}`"), remedy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, krate, tree};
    use super::*;

    fn one(path: &str, text: &str) -> Vec<String> {
        found(check, &tree(&[(path, text)]))
    }

    #[test]
    fn the_pure_layers_have_no_world() {
        assert_eq!(one("core/src/lib.rs", "//! x\n"), ["no-std core/src/lib.rs:1"]);
        assert!(one("core/src/lib.rs", "//! std::time is absent\n#![no_std]\n").is_empty());
        assert_eq!(one("kit/src/a.rs", "\nextern crate std;\n"), ["no-world kit/src/a.rs:2"]);
        assert!(one("kit/src/a.rs", "#[cfg(test)]\nextern crate std;\n").is_empty());
        assert!(one("protocols/ip/tests/a.rs", "extern crate std;").is_empty());
        assert!(one("run/src/clock.rs", "extern crate std;").is_empty());
    }

    #[test]
    fn hosts_are_of_any_family() {
        let source = "use core::net::Ipv4Addr;\n/// An Ipv4Addr.\nstruct Ipv4Header;\n";
        let broken = ["one-host-address protocols/udp/src/a.rs:1"];
        assert_eq!(one("protocols/udp/src/a.rs", source), broken);
        assert_eq!(
            one("sockets/net/src/a.rs", source),
            ["one-host-address sockets/net/src/a.rs:1"]
        );
        assert!(one("protocols/udp/tests/a.rs", source).is_empty());
        for kin in ["protocols/ip/src/a.rs", "kit/src/wire/a.rs", "core/src/participant/host.rs"] {
            assert!(one(kin, source).is_empty(), "{kin}");
        }
    }

    #[test]
    fn tests_may_time_themselves() {
        let source = "#[cfg(test)]\nmod tests {\n    extern crate std;\n    fn f() {}\n}\n";
        assert!(one("kit/src/a.rs", source).is_empty());
        assert!(one("core/src/map/tests.rs", "extern crate std;\n").is_empty());
        let after = format!("{source}extern crate std;\n");
        assert_eq!(one("kit/src/a.rs", &after), ["no-world kit/src/a.rs:6"]);
        let behind = "#[cfg(test)]\nmod tests;\nextern crate std;\n";
        assert_eq!(one("kit/src/a.rs", behind), ["no-world kit/src/a.rs:3"]);
    }

    #[test]
    fn every_reason_is_in_a_table() {
        let text = "static A: Reason = x;\npub(crate) static B: Reason =\n    x;\n";
        let judged = |table: &str| {
            let text = format!("{text}{table}");
            let mut small = tree(&[("tools/a/src/lib.rs", &text)]);
            small.crates.push(krate("xk-a", "tools/a", &[]));
            found(check, &small)
        };
        let none = ["reasons tools/a/src/lib.rs:1", "reasons tools/a/src/lib.rs:2"];
        assert_eq!(judged("#![no_std]\n"), none);
        assert_eq!(judged("#![no_std] f.reasons(&[&m::B, ]);"), none[..1]);
        assert!(judged("#![no_std]\npub static ALL: &[&Reason] = &[&A,\n    &B];").is_empty());
    }

    #[test]
    fn unsafe_has_its_files() {
        assert_eq!(
            one("core/src/buffer.rs", "fn f() {\n    // SAFETY: x\n    unsafe { g() }\n}\n"),
            ["unsafe-files core/src/buffer.rs:3"]
        );
        assert!(
            one("run/src/a.rs", "#![forbid(unsafe_code)]\n// unsafe\nlet s = \"unsafe\";\n")
                .is_empty()
        );
    }

    #[test]
    fn nothing_is_left_undone() {
        assert_eq!(
            one("lang/src/a.rs", "fn f() {}\n// TO\u{44}O: x\n"),
            ["undone lang/src/a.rs:2"]
        );
        assert!(one("lang/src/a.rs", "// the method\nlet m = \"TO\u{44}O\";\n").is_empty());
    }
}
