//! Checks what every manifest inherits, and that the files of a repository are there.

use super::{File, Rule, Tree, Violation};

static LINTS: Rule = Rule {
    name: "workspace-lints",
    reason: "the lints stand once, in the workspace manifest; a crate that does not inherit them is unwatched",
};

static INHERIT: Rule = Rule {
    name: "inherit",
    reason: "versions, edition and licence stand once, in the workspace manifest, so that nothing drifts apart",
};

static PRESENT: Rule = Rule {
    name: "present",
    reason: "a reader looks for these files first, and a change without a line in CHANGELOG.md is not announced",
};

static TOOLCHAIN: Rule = Rule {
    name: "toolchain",
    reason: "a forge's run and a run at home judge a change alike only with one release of Rust",
};

/// The workflow of the forge, and the file that names the release of Rust.
const FORGE: &str = ".github/workflows/ci.yml";
const RELEASE: &str = "rust-toolchain.toml";

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

const REQUIRED: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "Cargo.lock",
];

pub(super) fn check(tree: &Tree, found: &mut Vec<Violation>) {
    for path in REQUIRED.iter().filter(|path| tree.file(path).is_none()) {
        found.push(Violation {
            rule: &PRESENT,
            path: (*path).into(),
            line: 0,
            what: "the file is missing".into(),
            remedy: "write it, and commit it".into(),
        });
    }
    if let (Some(forge), Some(release)) = (tree.file(FORGE), tree.file(RELEASE)) {
        let channel = release.text.lines().find_map(|line| line.strip_prefix("channel = "));
        let channel = channel.unwrap_or_default().trim_matches('"');
        if !forge.text.contains(&format!("rust:{channel}-")) {
            let what = format!("the image is not of Rust {channel}");
            found.push(forge.violation(&TOOLCHAIN, 0, what, format!("as {RELEASE} says")));
        }
    }
    for member in &tree.crates {
        if let Some(file) = tree.file(&format!("{}/Cargo.toml", member.dir)) {
            check_manifest(file, found);
        }
    }
}

fn check_manifest(file: &File, found: &mut Vec<Violation>) {
    let mut section = "";
    let mut lints = false;
    let mut inherited = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        match section {
            "lints" if key == "workspace" && value == "true" => lints = true,
            "package" => {
                inherited.extend(key.strip_suffix(".workspace").filter(|_| value == "true"))
            }
            _ if section.ends_with("dependencies") => {
                let ours = key.ends_with(".workspace")
                    || value.contains("workspace = true")
                    || value.contains("path =");
                if !ours && !line.starts_with('#') {
                    found.push(file.violation(
                        &INHERIT,
                        index + 1,
                        format!("`{key}` is not taken from the workspace"),
                        "name it in [workspace.dependencies] and write `workspace = true` here",
                    ));
                }
            }
            _ => {}
        }
    }
    if !lints {
        let remedy = "add `[lints]` and `workspace = true`";
        found.push(file.violation(&LINTS, 0, "no inherited lints", remedy));
    }
    for key in INHERITED.iter().filter(|key| !inherited.contains(key)) {
        let remedy = format!("write `{key}.workspace = true` under [package]");
        found.push(file.violation(&INHERIT, 0, format!("`{key}` is not inherited"), remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{found, krate, tree};
    use super::*;

    const GOOD: &str = "[package]\nname = \"xk-a\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n[lints]\n\
        workspace = true\n[dependencies]\nxk-core.workspace = true\nkdl = { workspace = true, optional = true }\nxk-b = { path = \"../b\" }\n";

    fn manifest(text: &str) -> Vec<String> {
        let mut files: Vec<_> = REQUIRED.iter().map(|path| (*path, "\n")).collect();
        files.push(("protocols/a/Cargo.toml", text));
        let mut tree = tree(&files);
        tree.crates.push(krate("xk-a", "protocols/a", &[]));
        found(check, &tree)
    }

    #[test]
    fn the_ten_lines_pass() {
        assert!(manifest(GOOD).is_empty());
    }

    #[test]
    fn what_is_not_inherited_is_listed() {
        let text = GOOD.replace("edition.workspace = true", "edition = \"2021\"");
        assert_eq!(manifest(&text), ["inherit protocols/a/Cargo.toml:0"]);
        let text = GOOD.replace("[lints]\nworkspace = true\n", "");
        assert_eq!(manifest(&text), ["workspace-lints protocols/a/Cargo.toml:0"]);
        let text = format!("{GOOD}[dev-dependencies]\nproptest = \"1\"\n");
        assert_eq!(manifest(&text), ["inherit protocols/a/Cargo.toml:15"]);
    }

    #[test]
    fn missing_files_are_named() {
        assert_eq!(found(check, &tree(&[])).len(), REQUIRED.len());
    }

    #[test]
    fn a_forge_has_our_release() {
        let of = |image| tree(&[(FORGE, image), (RELEASE, "[toolchain]\nchannel = \"1.2.3\"\n")]);
        let other = found(check, &of("image: rust:1.2.4-trixie\n"));
        assert_eq!(other.len(), REQUIRED.len() + 1, "{other:?}");
        assert_eq!(found(check, &of("image: rust:1.2.3-trixie\n")).len(), REQUIRED.len());
    }
}
