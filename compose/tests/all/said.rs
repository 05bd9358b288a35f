//! Small graphs with all that the check says of them, as files: `said/NAME.txt` has cases, each
//! with its title behind `===`, a graph, and the text behind `---`. After a change that is meant,
//! look at what `XK_BLESS=1 cargo test -p xk-compose` writes.

use xk_compose::check;
use xk_core::graph::Catalog;

/// Text of the check; empty for a graph without a mistake.
pub(crate) fn said(graph: &str, catalog: &Catalog) -> String {
    match check(graph, "g", catalog) {
        Ok(graph) => graph.warnings().to_text(),
        Err(mistakes) => mistakes.to_text(),
    }
}

/// Checks every case of a file.
pub(crate) fn as_written(name: &str, catalog: &Catalog) {
    let path = format!("{}/tests/all/said/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let written = std::fs::read_to_string(&path).unwrap();
    let bless = std::env::var_os("XK_BLESS").is_some();
    let mut all = String::new();
    for case in written.split("=== ").skip(1) {
        let (graph, _) = case.split_once("---\n").expect("a graph, and what is said of it");
        let (_, text) = graph.split_once('\n').expect("a title");
        let now = format!("{graph}---\n{}", said(text, catalog));
        let now: String = now.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        assert!(bless || now == case, "{name}.txt has\n{case}and it says\n{now}");
        all += &format!("=== {now}");
    }
    assert!(!all.is_empty());
    if bless {
        std::fs::write(path, all).unwrap();
    }
}
