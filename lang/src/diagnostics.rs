//! Mistakes: collected, sorted by place, and shown all at once.

use std::sync::Arc;

use crate::span::Span;

/// Mistakes of one file that are kept; the rest is only counted.
pub const DIAGNOSTICS_MAX: usize = 200;

/// Whether a graph with this mistake may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The graph cannot run.
    Error,
    /// The graph can run, but is probably not what its writer meant.
    Warning,
}

/// One mistake: where it is, what it is, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The place of the mistake.
    pub span: Span,
    /// The mistake, in one sentence without a full stop.
    pub what: String,
    /// A few words put beside the caret.
    pub label: Option<String>,
    /// The form that was expected at this place.
    pub expected: Option<String>,
    /// Remedy.
    pub help: Option<String>,
    /// Other places that belong to the mistake, each with a few words.
    pub others: Vec<(Span, String)>,
}

impl Diagnostic {
    /// A mistake at `span`.
    pub fn new(severity: Severity, span: Span, what: impl Into<String>) -> Self {
        Self {
            severity,
            span,
            what: what.into(),
            label: None,
            expected: None,
            help: None,
            others: Vec::new(),
        }
    }

    /// Puts a few words beside the caret.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = Some(label.into());
        self
    }

    /// Says what was expected.
    pub fn expected(&mut self, expected: impl Into<String>) -> &mut Self {
        self.expected = Some(expected.into());
        self
    }

    /// Says how to mend it.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// Names another place that belongs to the mistake.
    pub fn also(&mut self, span: Span, words: impl Into<String>) -> &mut Self {
        self.others.push((span, words.into()));
        self
    }

    /// Offers the nearest of `candidates` as help, if one is near.
    pub fn suggest<'a>(
        &mut self,
        name: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> &mut Self {
        if let Some(near) = nearest(name, candidates) {
            self.help = Some(format!("did you mean `{near}`?"));
        }
        self
    }
}

/// The candidate most like `name`, if any is like enough to be worth a question: at most a third of
/// the longer name's letters differ (Damerau-Levenshtein distance, so that two swapped letters
/// count once), or one letter of a short one.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    let letters = folded.chars().count();
    if letters > 100 {
        return None;
    }
    candidates
        .into_iter()
        .filter(|candidate| *candidate != name)
        .filter_map(|candidate| {
            let length = candidate.chars().count();
            let distance = strsim::damerau_levenshtein(&folded, &candidate.to_lowercase());
            (distance <= (letters.max(length) / 3).max(1) && distance < length)
                .then_some((distance, candidate))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// All mistakes found in one source text. Cheap to ask, bounded in size ([`DIAGNOSTICS_MAX`]).
#[derive(Debug, Clone)]
pub struct Diagnostics {
    file: Arc<str>,
    source: Arc<str>,
    items: Vec<Diagnostic>,
    left_out: usize,
    scratch: Diagnostic,
}

impl Diagnostics {
    /// An empty collection for `source`, called `file` in what is shown.
    pub fn new(file: impl Into<Arc<str>>, source: impl Into<Arc<str>>) -> Self {
        Self {
            file: file.into(),
            source: source.into(),
            items: Vec::new(),
            left_out: 0,
            scratch: Diagnostic::new(Severity::Error, Span::default(), ""),
        }
    }

    /// The file's name, as the caller gave it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Adds an error; what is returned takes label, expectation and help.
    pub fn error(&mut self, span: Span, what: impl Into<String>) -> &mut Diagnostic {
        self.push(Diagnostic::new(Severity::Error, span, what))
    }

    /// Adds a warning; what is returned takes label, expectation and help.
    pub fn warning(&mut self, span: Span, what: impl Into<String>) -> &mut Diagnostic {
        self.push(Diagnostic::new(Severity::Warning, span, what))
    }

    /// Adds a mistake. The same one (place, words) is not kept twice; beyond [`DIAGNOSTICS_MAX`] it
    /// is only counted.
    pub fn push(&mut self, diagnostic: Diagnostic) -> &mut Diagnostic {
        let same = |kept: &Diagnostic| kept.span == diagnostic.span && kept.what == diagnostic.what;
        if let Some(at) = self.items.iter().position(same) {
            return &mut self.items[at];
        }
        if self.items.len() >= DIAGNOSTICS_MAX {
            self.left_out += 1;
            // An error must never hide behind a heap of warnings.
            let warning = |kept: &Diagnostic| kept.severity == Severity::Warning;
            if diagnostic.severity == Severity::Error
                && let Some(at) = self.items.iter().rposition(warning)
            {
                self.items[at] = diagnostic;
                return &mut self.items[at];
            }
            self.scratch = diagnostic;
            return &mut self.scratch;
        }
        let at = self.items.len();
        self.items.push(diagnostic);
        &mut self.items[at]
    }

    /// The first mistake at a place, if one is kept: a later look may know better help.
    pub fn at(&mut self, span: Span) -> Option<&mut Diagnostic> {
        self.items.iter_mut().find(|kept| kept.span == span)
    }

    /// Takes over all mistakes of `other`, which must be about the same source text.
    pub fn extend(&mut self, other: Diagnostics) {
        self.left_out += other.left_out;
        for diagnostic in other.items {
            self.push(diagnostic);
        }
    }

    /// Whether anything forbids to run the graph.
    pub fn has_errors(&self) -> bool {
        self.items.iter().any(|d| d.severity == Severity::Error)
    }

    /// Whether nothing was found, not even a warning.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Number of mistakes, with those that were not kept.
    pub fn len(&self) -> usize {
        self.items.len() + self.left_out
    }

    /// Number of mistakes that were not kept.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The mistakes kept, sorted by place.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<&Diagnostic> = self.items.iter().collect();
        sorted.sort_by_key(|d| (d.span.offset, d.severity, d.span.len));
        sorted
    }

    /// Line and column of an offset, both from 1; columns count characters.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let (line, start) = self.line_start(offset);
        let mut end = offset.min(self.source.len());
        while !self.source.is_char_boundary(end) {
            end -= 1;
        }
        let column = self.source.get(start..end).unwrap_or("").chars().count() + 1;
        (line, column)
    }

    /// The number of the line that holds `offset` (from 1), and where that line begins.
    pub(crate) fn line_start(&self, offset: usize) -> (usize, usize) {
        let before = &self.source.as_bytes()[..offset.min(self.source.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        (line, start)
    }
}

impl std::fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_slips_and_keeps_quiet_otherwise() {
        let names = ["eth", "arp", "ip", "icmp", "udp"];
        assert_eq!(nearest("upd", names), Some("udp"));
        assert_eq!(nearest("imcp", names), Some("icmp"));
        assert_eq!(nearest("ICMP", names), Some("icmp"));
        assert_eq!(nearest("zebra", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), names), None);
    }

    #[test]
    fn a_heap_of_mistakes_is_bounded_and_errors_win() {
        let mut all = Diagnostics::new("f", "x".repeat(1000));
        for at in 0..500 {
            all.warning(Span::new(at, 1), "odd");
        }
        assert_eq!((all.len(), all.left_out()), (500, 300));
        assert!(!all.has_errors());
        all.error(Span::new(7, 1), "wrong").help("mend it");
        assert!(all.has_errors());
        all.error(Span::new(7, 1), "wrong");
        assert_eq!(all.sorted().iter().filter(|d| d.severity == Severity::Error).count(), 1);
    }
}
