//! Packet scripts by section of the standards. `XK_SCRIPT=TEXT` runs those whose title or
//! `file.pkt:line` contains the text, and prints what happened: `XK_SCRIPT=close.pkt:12 cargo test
//! -p xk-tcp --test all scripts -- --nocapture`.

use std::path::Path;
use xk_testkit::script::{load, run_file};

/// Least number of scripts.
const CASES_MIN: usize = 150;

#[test]
fn all_go_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let files = load(&folder).unwrap_or_else(|what| panic!("{what}"));
    let filter = std::env::var("XK_SCRIPT").ok();
    let mut ran = 0;
    let mut failures = Vec::new();
    for file in &files {
        match run_file(file, &xk_tcp::ENTRY, filter.as_deref()) {
            Ok(count) => ran += count,
            Err(what) => failures.push(what),
        }
    }
    let count: usize = failures.iter().map(|what| what.matches("  script: ").count()).sum();
    assert!(failures.is_empty(), "{}{count} scripts did not go as written", failures.concat());
    println!("{ran} scripts went as written");
    assert!(filter.is_some() || ran >= CASES_MIN, "{ran} scripts are too few");
}
