//! The tree: its crates as `cargo metadata` names them, and its files as git lists them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A member of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Crate {
    /// The package's name.
    pub(crate) name: String,
    /// Folder, relative to the root.
    pub(crate) dir: String,
    /// Dependencies in its manifest, inside the workspace and outside.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependencies.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    /// The package depended on.
    pub(crate) name: String,
    /// Whether only tests, examples and benchmarks see it.
    pub(crate) dev: bool,
}

/// The root of this checkout: the folder above this crate's own.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run`; the built-in value serves a binary that is started
    // by hand.
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or_else(|| own.clone(), Path::to_path_buf)
}

/// The folder that cargo builds into.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Asks cargo for the members of the workspace at `root`.
pub(crate) fn crates(root: &Path) -> io::Result<Vec<Crate>> {
    let output = Command::new(env_cargo())
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    parse_metadata(&metadata).ok_or_else(|| io::Error::other("cargo metadata has an unknown form"))
}

/// The crates that a package links, by name, itself included.
pub(crate) fn linked(root: &Path, package: &str) -> io::Result<Vec<String>> {
    let output = Command::new(env_cargo())
        .args([
            "tree",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--no-dedupe",
            "--package",
            package,
        ])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // Two versions of one crate are two.
    let mut names: Vec<String> = text
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn env_cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn parse_metadata(metadata: &Value) -> Option<Vec<Crate>> {
    let root = metadata["workspace_root"].as_str()?;
    let mut crates = Vec::new();
    for package in metadata["packages"].as_array()? {
        let manifest = package["manifest_path"].as_str()?;
        let dir =
            manifest.strip_prefix(root)?.trim_start_matches('/').strip_suffix("/Cargo.toml")?;
        let mut dependencies = Vec::new();
        for dependency in package["dependencies"].as_array()? {
            dependencies.push(Dependency {
                name: dependency["name"].as_str()?.to_owned(),
                dev: dependency["kind"].as_str() == Some("dev"),
            });
        }
        crates.push(Crate {
            name: package["name"].as_str()?.to_owned(),
            dir: dir.to_owned(),
            dependencies,
        });
    }
    crates.sort_by(|a, b| a.dir.cmp(&b.dir));
    Some(crates)
}

/// Every file of the tree that git does not ignore, relative to `root`, sorted. A tree without git
/// is walked.
pub(crate) fn files(root: &Path) -> io::Result<Vec<String>> {
    let mut files = if root.join(".git").exists() {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let names = String::from_utf8_lossy(&output.stdout);
        names.split('\0').filter(|n| !n.is_empty()).map(str::to_owned).collect()
    } else {
        let mut found = Vec::new();
        walk(root, "", &mut found)?;
        found
    };
    // A file deleted but not yet committed is listed as well; a link may point at a folder.
    files.retain(|name| root.join(name).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// The name of the commit that is checked out at `root`, if git knows it.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn walk(dir: &Path, prefix: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if matches!(name.as_str(), "target" | ".git" | "node_modules") {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{path}/"), found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_becomes_crates() {
        let metadata = serde_json::json!({
            "workspace_root": "/tree",
            "packages": [{
                "name": "xk-udp",
                "manifest_path": "/tree/protocols/udp/Cargo.toml",
                "dependencies": [
                    {"name": "xk-core", "kind": null},
                    {"name": "proptest", "kind": "dev"},
                ],
            }],
        });
        let crates = parse_metadata(&metadata).unwrap();
        assert_eq!(crates[0].dir, "protocols/udp");
        assert_eq!(crates[0].dependencies.iter().map(|d| d.dev).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn another_form_is_refused() {
        assert!(parse_metadata(&serde_json::json!({"packages": []})).is_none());
    }
}
