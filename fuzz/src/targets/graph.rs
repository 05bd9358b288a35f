//! Graph files, read: any octets in, no panic, and some laws hold.

#[cfg(test)]
mod tests;

use xk_lang::parse;

/// Reads `data` as a graph file and does with it all that can be done.
///
/// # Panics
/// When a law is broken: a place lies outside the text, or is not what stands there.
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
            // The node that stands for a subsystem is called so behind that word.
            assert!(node.span.of(&text).contains(node.kind.span.of(&text)));
        }
    }
}
