//! `cargo xtask new-protocol NAME [--calls | --many]`: a protocol that builds, a copy of one of
//! ours.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::scan::{find_word, has_word, scan};
use crate::tidy::{COLUMNS_MAX, is_wide};
use crate::workspace;

/// The line that opens and the line that closes a list that the catalog keeps sorted.
const MARKER: &str = "catalog:protocols";

/// A finished protocol that new ones are copied from.
pub(crate) struct Model {
    /// Folder.
    pub(crate) folder: &'static str,
    /// Package without `xk-`.
    package: &'static str,
    /// Kind in graphs; the type of its objects is the same with a capital.
    kind: &'static str,
}

/// A layer of messages: the protocol of the guide.
pub(crate) const MESSAGES: Model = Model { folder: "docs/guide", package: "guide", kind: "seq" };
/// A layer of calls: that of the guide's chapter about them.
pub(crate) const CALLS: Model =
    Model { folder: "protocols/deadline", package: "deadline", kind: "deadline" };
/// A layer of messages whose conversations have several peers: that of the guide's chapter about
/// them.
pub(crate) const MANY: Model =
    Model { folder: "protocols/fanout", package: "fanout", kind: "fanout" };

/// Copies this model to `protocols/NAME`, lists it in the catalog; gives back what to do next.
pub(crate) fn create(root: &Path, model: &Model, name: &str) -> io::Result<String> {
    let files = workspace::files(root)?;
    validate(name).map_err(io::Error::other)?;
    let package = format!("name = \"xk-{name}\"");
    for manifest in files.iter().filter(|path| path.ends_with("Cargo.toml")) {
        if fs::read_to_string(root.join(manifest))?.lines().any(|line| line == package) {
            let what = format!("{manifest} names a package xk-{name}; nothing was changed");
            return Err(io::Error::other(what));
        }
    }
    // Read and change everything before the first file is written, so that a refusal leaves the
    // tree as it was.
    let source = root.join("catalog/src/lib.rs");
    let manifest = root.join("catalog/Cargo.toml");
    let new_source =
        list_in_source(&fs::read_to_string(&source)?, name).map_err(io::Error::other)?;
    let workspace_manifest = root.join("Cargo.toml");
    let new_workspace = list_in_workspace(&fs::read_to_string(&workspace_manifest)?, name);
    let new_manifest =
        list_in_manifest(&fs::read_to_string(&manifest)?, name, new_workspace.is_some());
    let new_manifest = new_manifest.map_err(io::Error::other)?;

    let mut copies = Vec::new();
    for path in &files {
        let inner = path.strip_prefix(model.folder).and_then(|path| path.strip_prefix('/'));
        if let Some(inner) = inner.filter(|inner| is_copied(inner)) {
            let text = fs::read_to_string(root.join(path))?;
            if inner.ends_with(".rs") && name != model.kind && names_type(&text, name) {
                let what = format!("`{}` has another meaning in {path}", title(name));
                return Err(io::Error::other(what + "; nothing was changed"));
            }
            copies.push((inner, rename(&text, model, name)));
        }
    }
    prune(&mut copies);
    if copies.is_empty() {
        let what = format!("{} holds no files; nothing was changed", model.folder);
        return Err(io::Error::other(what));
    }
    let dir = root.join("protocols").join(name);
    for (inner, text) in copies {
        let target = dir.join(inner);
        fs::create_dir_all(target.parent().unwrap_or(&dir))?;
        fs::write(target, text)?;
    }
    fs::write(source, new_source)?;
    fs::write(manifest, new_manifest)?;
    if let Some(text) = new_workspace {
        fs::write(workspace_manifest, text)?;
    }
    format(root, name)?;
    Ok(format!(
        "protocols/{name} is a copy of {}, and the catalog lists it.\n\
         Write its manual in protocols/{name}/src/lib.rs first; then: cargo test -p xk-{name}",
        model.folder
    ))
}

/// Whether a file of a model belongs to its protocol; the guide has chapters and examples besides.
fn is_copied(inner: &str) -> bool {
    inner.starts_with("src/")
        || ["Cargo.toml", "tests/behaviour.rs", "tests/laws.rs"].contains(&inner)
}

/// Takes those crates out of the copied manifest that no copied file names.
fn prune(copies: &mut [(&str, String)]) {
    let (manifests, sources): (Vec<_>, Vec<_>) =
        copies.iter_mut().partition(|(inner, _)| *inner == "Cargo.toml");
    for (_, manifest) in manifests {
        let (head, tests) = manifest.split_once("[dev-dependencies]\n").unwrap_or((manifest, ""));
        let is_used = |line: &&str| {
            let name = line.split(['.', ' ']).next().unwrap_or_default().replace('-', "_");
            sources.iter().any(|(_, text)| has_word(text, &name))
        };
        let used: String =
            tests.lines().filter(is_used).map(|line| line.to_owned() + "\n").collect();
        *manifest = format!("{head}[dev-dependencies]\n{used}");
    }
}

/// A name with another length wraps lines elsewhere.
fn format(root: &Path, name: &str) -> io::Result<()> {
    let package = format!("xk-{name}");
    let status = Command::new(workspace::env_cargo())
        .args(["fmt", "--package", &package, "--package", "xk-catalog"])
        .current_dir(root)
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other("the copy stands, but `cargo fmt` refused it"))
    }
}

fn validate(name: &str) -> Result<(), String> {
    let tail = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !tail || !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.len() > 24 {
        return Err(format!(
            "`{name}`: a name is a small letter, then up to 23 small letters and digits, as in `vip2`"
        ));
    }
    // Words of KDL: a graph would have to quote them.
    if ["true", "false", "null", "inf", "nan"].contains(&name) {
        return Err(format!("`{name}` is a word of the graph language"));
    }
    Ok(())
}

/// Whether a source uses the name that the type of a protocol of this name would have.
fn names_type(source: &str, name: &str) -> bool {
    scan(source).iter().any(|line| has_word(&line.code, &title(name)))
}

/// Replaces the model's package, type and kind. The kind is a word of English, too: it is replaced
/// where it begins a string or a code span, and in the manual's example.
fn rename(text: &str, model: &Model, name: &str) -> String {
    let mut renamed = String::new();
    let mut is_example = false;
    for line in text.lines() {
        if line.starts_with("//! ```") {
            is_example = line.ends_with("```kdl");
        }
        let mut line = line.to_owned();
        for prefix in ["xk-", "xk_"] {
            let own = format!("{prefix}{name}");
            line = replace_word(&line, &format!("{prefix}{}", model.package), &own);
        }
        line = replace_word(&line, &title(model.kind), &title(name));
        if is_example {
            line = replace_word(&line, model.kind, name);
        }
        for quote in ['"', '`'] {
            let own = format!("{quote}{name}");
            line = replace_word(&line, &format!("{quote}{}", model.kind), &own);
        }
        renamed += &narrow(&line);
    }
    renamed
}

/// The line, or two where a comment has become too wide by a longer name.
fn narrow(line: &str) -> String {
    let space = line.char_indices().take(COLUMNS_MAX + 1).filter(|(_, c)| *c == ' ').last();
    match space {
        Some((at, _)) if is_wide(line) => {
            let text = line.trim_start_matches([' ', '/', '!']);
            let marker = &line[..line.len() - text.len()];
            format!("{}\n{marker}{}\n", &line[..at], &line[at + 1..])
        }
        _ => format!("{line}\n"),
    }
}

/// Replaces `word` where it is not part of a longer one.
fn replace_word(line: &str, word: &str, with: &str) -> String {
    let (mut done, mut rest) = (String::new(), line);
    while let Some(at) = find_word(rest, word) {
        done += &format!("{}{with}", &rest[..at]);
        rest = &rest[at + word.len()..];
    }
    done + rest
}

/// `udp` becomes `Udp`.
fn title(name: &str) -> String {
    let mut chars = name.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + chars.as_str())
}

/// Adds the protocol between the markers of `catalog/src/lib.rs`, in the form of the line that is
/// there for another.
fn list_in_source(source: &str, name: &str) -> Result<String, String> {
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    let is_marker = |line: &String| line.trim_start().starts_with("//") && line.contains(MARKER);
    let missing = || format!("catalog/src/lib.rs has no two lines with `// {MARKER}`");
    let open = lines.iter().position(is_marker).ok_or_else(missing)?;
    let close = lines.iter().skip(open + 1).position(is_marker).ok_or_else(missing)? + open + 1;
    let (model, known) = lines[open + 1..close]
        .iter()
        .find_map(|line| Some((line.clone(), crate_named(line)?)))
        .ok_or_else(|| {
            format!("no line between the markers `{MARKER}` names a crate, so its form is unknown")
        })?;
    let line = model
        .replace(&format!("xk_{known}"), &format!("xk_{name}"))
        .replace(&title(&known), &title(name))
        .replace(&format!("\"{known}\""), &format!("\"{name}\""));
    let place = (open + 1..close).find(|&at| lines[at].trim() > line.trim()).unwrap_or(close);
    lines.insert(place, line);
    Ok(lines.join("\n") + "\n")
}

/// The `udp` of `xk_udp`, where a line names such a crate.
fn crate_named(line: &str) -> Option<String> {
    let rest = &line[line.find("xk_")? + "xk_".len()..];
    let name: String =
        rest.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit()).collect();
    (!name.is_empty()).then_some(name)
}

/// Adds the dependency under `[dependencies]`, in its sorted place and in the form of the protocols
/// that are there.
fn list_in_manifest(manifest: &str, name: &str, shared: bool) -> Result<String, String> {
    let line = if shared {
        format!("xk-{name}.workspace = true")
    } else {
        format!("xk-{name} = {{ path = \"../protocols/{name}\" }}")
    };
    insert_in_section(manifest, "[dependencies]", &line)
        .ok_or_else(|| "catalog/Cargo.toml has no [dependencies]".into())
}

/// Adds the path under `[workspace.dependencies]`, when the protocols' paths stand there; `None`
/// when they do not.
fn list_in_workspace(manifest: &str, name: &str) -> Option<String> {
    let shared =
        manifest.lines().any(|l| l.starts_with("xk-") && l.contains("path = \"protocols/"));
    let line = format!("xk-{name} = {{ path = \"protocols/{name}\" }}");
    insert_in_section(manifest, "[workspace.dependencies]", &line).filter(|_| shared)
}

/// Puts `line` before the first line of ours (`xk-...`) in the section that is greater, or behind
/// the last of them.
fn insert_in_section(manifest: &str, section: &str, line: &str) -> Option<String> {
    let mut lines: Vec<&str> = manifest.lines().collect();
    let start = lines.iter().position(|l| l.trim() == section)? + 1;
    let ours = lines[start..].iter().take_while(|l| !l.starts_with('[')).enumerate();
    let ours: Vec<usize> =
        ours.filter(|(_, l)| l.starts_with("xk-")).map(|(index, _)| start + index).collect();
    let behind = ours.last().map_or(start, |last| last + 1);
    let place = ours.iter().copied().find(|&at| lines[at] > line).unwrap_or(behind);
    lines.insert(place, line);
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["udp", "vip2", "demo"] {
            assert!(validate(good).is_ok(), "{good}");
        }
        for bad in ["", "Udp", "2udp", "u-dp", "u_dp", "../x", "a123456789012345678901234", "true"]
        {
            assert!(validate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_spelling_is_renamed() {
        let text = "xk-guide xk_guide::Seq Sequence \"seq\" `seq-tally` seq sequence\n";
        let renamed = "xk-udp xk_udp::Udp Sequence \"udp\" `udp-tally` seq sequence\n";
        assert_eq!(rename(text, &MESSAGES, "udp"), renamed);
        let text = "//! ```kdl\n//!     deadline select\n//! ```\n//! a deadline\n";
        assert_eq!(rename(text, &CALLS, "x"), text.replace("deadline select", "x select"));
    }

    #[test]
    fn a_longer_name_leaves_no_wide_comment() {
        let text = format!("    /// {}`seq` end\n", "x ".repeat(42));
        let renamed = rename(&text, &MESSAGES, "longer");
        assert_eq!(renamed, text.replace("`seq` ", "`longer`\n    /// "));
    }

    #[test]
    fn a_type_of_the_model_is_no_name() {
        let source = "use xk_core::Message; // Order\nfn f() -> Self {}\n";
        assert!(names_type(source, "message") && names_type(source, "self"));
        assert!(!names_type(source, "order"));
    }

    #[test]
    fn crates_without_use_are_left_out() {
        let manifest = "[dependencies]\nxk-core.workspace = true\n\n[dev-dependencies]\n";
        let dev = "proptest.workspace = true\nxk-sim = { path = \"../sim\" }\n";
        let source = ("tests/laws.rs", String::from("use proptest::prelude::*;\n"));
        let mut copies = [("Cargo.toml", format!("{manifest}{dev}")), source];
        prune(&mut copies);
        assert_eq!(copies[0].1, format!("{manifest}proptest.workspace = true\n"));
    }

    #[test]
    fn the_catalog_stays_sorted() {
        let source = "a\n    // catalog:protocols\n    (\"arp\", xk_arp::Arp::ENTRY),\n    (\"udp\", xk_udp::Udp::ENTRY),\n    \
                      // catalog:protocols\nz\n";
        let listed = list_in_source(source, "ip").unwrap();
        let expected =
            "(\"arp\", xk_arp::Arp::ENTRY),\n    (\"ip\", xk_ip::Ip::ENTRY),\n    (\"udp\"";
        assert!(listed.contains(expected), "{listed}");
        assert!(
            list_in_source(source, "vip").unwrap().contains("xk_vip::Vip::ENTRY),\n    // catalog")
        );
        assert!(list_in_source("no markers\n", "ip").is_err());
    }

    #[test]
    fn the_manifests_stay_sorted() {
        let manifest =
            "[dependencies]\nxk-arp.workspace = true\nxk-udp.workspace = true\n\n[lints]\n";
        let listed = list_in_manifest(manifest, "ip", true).unwrap();
        assert_eq!(listed, manifest.replace("xk-udp", "xk-ip.workspace = true\nxk-udp"));
        let listed = list_in_manifest(manifest, "vip", true).unwrap();
        assert_eq!(listed, manifest.replace("\n\n", "\nxk-vip.workspace = true\n\n"));
        let listed = list_in_manifest(manifest, "ip", false).unwrap();
        assert_eq!(
            listed,
            manifest.replace("xk-udp", "xk-ip = { path = \"../protocols/ip\" }\nxk-udp")
        );
        assert!(list_in_manifest("[package]\n", "ip", true).is_err());
    }

    #[test]
    fn the_workspace_lists_paths_where_it_does() {
        let without = "[workspace.dependencies]\nxk-core = { path = \"core\" }\nkdl = \"6\"\n";
        assert_eq!(list_in_workspace(without, "ip"), None);
        let with = format!("{without}xk-udp = {{ path = \"protocols/udp\" }}\n");
        let listed = list_in_workspace(&with, "ip").unwrap();
        assert!(listed.contains("xk-ip = { path = \"protocols/ip\" }\nxk-udp"), "{listed}");
    }
}
