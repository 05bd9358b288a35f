//! Makes chapter 12's program: smoltcp's own example with the changes that the chapter shows.

use std::path::PathBuf;
use std::{env, fs};

/// Folder of smoltcp's sources in cargo's registry.
fn smoltcp() -> PathBuf {
    let lock = fs::read_to_string("../../Cargo.lock").expect("the workspace is locked");
    let (_, rest) = lock.split_once("name = \"smoltcp\"\nversion = \"").expect("it is locked");
    let (version, _) = rest.split_once('"').expect("it has a version");
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let sources = home.expect("cargo has a folder").join("registry/src");
    let registries = fs::read_dir(&sources).expect("it has sources");
    let folders = registries.filter_map(Result::ok).map(|entry| entry.path());
    let mut folders = folders.map(|path| path.join(format!("smoltcp-{version}")));
    let found = folders.find(|path| path.exists());
    found.unwrap_or_else(|| panic!("no smoltcp-{version} in {}", sources.display()))
}

/// The changes of a chapter: what was there, and what is instead.
fn changes(chapter: &str) -> Vec<(String, String)> {
    let blocks = chapter.split("```diff\n").skip(1).filter_map(|rest| rest.split("```").next());
    let side = |block: &str, gone: char| -> String {
        let kept = block.lines().filter(|line| !line.starts_with(gone));
        // The mark of a line that stays may be missing in front of nothing.
        kept.map(|line| line.get(1..).unwrap_or("").to_owned() + "\n").collect()
    };
    blocks.map(|block| (side(block, '+'), side(block, '-'))).collect()
}

fn main() {
    println!("cargo::rerun-if-changed=12-smoltcp.md");
    println!("cargo::rerun-if-changed=build.rs");
    let chapter = fs::read_to_string("12-smoltcp.md").expect("the chapter");
    let example = smoltcp().join("examples/client.rs");
    let mut program = fs::read_to_string(example).expect("smoltcp's example");
    let changes = changes(&chapter);
    assert!(changes.len() > 4, "the chapter shows all changes");
    for (before, after) in changes {
        assert_eq!(program.matches(&before).count(), 1, "smoltcp's example has once:\n{before}");
        program = program.replacen(&before, &after, 1);
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo gives a folder"));
    fs::write(out.join("smoltcp_client.rs"), program).expect("it can be written");
}
