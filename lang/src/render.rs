//! Mistakes as plain text that never changes its form.

use std::fmt::Write as _;

use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::span::Span;

/// Characters of a source line that are shown.
const LINE_CHARS_MAX: usize = 120;

impl Diagnostics {
    /// All mistakes as plain text, sorted by place: `file:line:column: error: what`, the source
    /// line, a line of carets, then what was expected and the help. Empty when there are none. The
    /// form is stable; tests may compare it.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for diagnostic in self.sorted() {
            self.one(&mut out, diagnostic);
        }
        if self.left_out() > 0 {
            let _ = writeln!(out, "{}: {} more not shown", clean(self.file()), self.left_out());
        }
        out
    }

    pub(crate) fn one(&self, out: &mut String, diagnostic: &Diagnostic) {
        let (line, column) = self.line_column(diagnostic.span.offset);
        let word = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let (file, what) = (clean(self.file()), clean(&diagnostic.what));
        let _ = writeln!(out, "{file}:{line}:{column}: {word}: {what}");
        let others = diagnostic.others.iter().map(|(span, _)| self.line_start(span.offset).0);
        let width = digits(others.fold(line, usize::max));
        self.excerpt(out, width, diagnostic.span, '^', diagnostic.label.as_deref().unwrap_or(""));
        for (span, words) in &diagnostic.others {
            self.excerpt(out, width, *span, '-', words);
        }
        let pad = " ".repeat(width);
        if let Some(expected) = &diagnostic.expected {
            let _ = writeln!(out, "  {pad} = expected: {}", clean(expected));
        }
        if let Some(help) = &diagnostic.help {
            let _ = writeln!(out, "  {pad} = help: {}", clean(help));
        }
    }

    /// The source line of `span` and a line that marks the place. A long line is cut around the
    /// place.
    fn excerpt(&self, out: &mut String, width: usize, span: Span, mark: char, words: &str) {
        let (line, start) = self.line_start(span.offset);
        let (_, column) = self.line_column(span.offset);
        let rest = self.source().get(start..).unwrap_or("");
        let text = rest.split(['\n', '\r']).next().unwrap_or("");
        let skip = if column > LINE_CHARS_MAX * 3 / 4 { column - LINE_CHARS_MAX / 2 } else { 0 };
        let shown: String = text.chars().skip(skip).take(LINE_CHARS_MAX).collect();
        let shown = clean(&shown);
        let ahead: String = shown
            .chars()
            .take(column.saturating_sub(1 + skip))
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let room = shown.chars().count().saturating_sub(ahead.chars().count());
        let marks = span.of(self.source()).chars().take_while(|c| *c != '\n' && *c != '\r').count();
        let marks = mark.to_string().repeat(marks.min(room).max(1));
        let pad = " ".repeat(width);
        let _ = writeln!(out, "  {line:>width$} | {shown}");
        let _ =
            writeln!(out, "{}", format!("  {pad} | {ahead}{marks} {}", clean(words)).trim_end());
    }
}

/// Whether a character could steer a terminal or turn the writing direction instead of being shown.
pub fn steers(c: char) -> bool {
    (c.is_control() && c != '\t' && c != '\n')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}
