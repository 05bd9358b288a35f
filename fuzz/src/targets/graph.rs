//! Graph files, read: any octets in, no panic, and some laws hold.

#[cfg(test)]
mod tests;

use xk_lang::{Document, Value, parse};

/// Reads `data` as a graph file and does with it all that can be done.
///
/// # Panics
/// When a law is broken: a place lies outside the text, an unchanged document does not print as it
/// was read, or an edit that succeeded left a file that does not read.
pub(crate) fn read(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (graph, diagnostics) = parse("fuzz", &text);
    for diagnostic in diagnostics.sorted() {
        let (line, column) = diagnostics.line_column(diagnostic.span.offset);
        assert!(line >= 1 && column >= 1, "lines and columns count from 1");
        assert!(diagnostic.span.end() <= text.len(), "a place outside the text: {diagnostic:?}");
    }
    assert_eq!(diagnostics.to_text().is_empty(), diagnostics.is_empty());
    if text.len() < 4096 {
        let _ = diagnostics.to_fancy(80, false);
    }
    if diagnostics.has_errors() {
        return;
    }
    for host in graph.expand().iter().take(100) {
        for node in host.nodes().iter() {
            assert_eq!(node.span.of(&text).is_empty(), node.span.len == 0);
            assert!(node.span.of(&text).starts_with(node.kind.span.of(&text)));
        }
    }
    let Ok(document) = Document::parse("fuzz", &text) else {
        panic!("a file without errors is a document");
    };
    assert_eq!(document.to_text(), text);
    if text.len() < 4096 {
        edits(&document);
    }
}

fn edits(document: &Document) {
    for host in document.graph().hosts.iter().take(3) {
        let name = host.name.as_str();
        let mut changed = document.clone();
        if changed.add_node(name, "added one", "fuzzed", &[], &[("a", Value::Bool(true))]).is_ok() {
            assert!(
                changed.set_param(name, "fuzzed", "a", &Value::from("2 \" {n}\\")).is_ok()
                    || host.count.is_some()
            );
            assert!(changed.remove_node(name, "fuzzed").is_ok());
            assert_eq!(changed.graph(), document.graph());
        }
        for node in host.nodes.iter().take(3) {
            let mut changed = document.clone();
            let _ = changed.remove_node(name, &node.name);
            let mut changed = document.clone();
            let _ = changed.set_param(name, &node.name, "name", &Value::from("renamed"));
            let _ = changed.remove_param(name, "renamed", "port");
        }
    }
}
