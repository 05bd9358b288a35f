//! Mistakes drawn for terminals, by miette.

use std::fmt::Write as _;
use std::sync::Arc;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceSpan};

use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::render::{clean, steers};
use crate::span::Span;

impl Diagnostics {
    /// All mistakes drawn for a terminal `width` characters wide, with colours if `colours`.
    pub fn to_fancy(&self, width: usize, colours: bool) -> String {
        let theme =
            if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false);
        let mut out = String::new();
        // Characters that steer a terminal are replaced by as many octets, so that places stay
        // right.
        let shown: String = (self.source().chars())
            .flat_map(|c| {
                let times = if steers(c) { c.len_utf8() } else { 1 };
                std::iter::repeat_n(if steers(c) { '?' } else { c }, times)
            })
            .collect();
        let shown = Arc::new(shown);
        for diagnostic in self.sorted() {
            let report = Report::new(self, &shown, diagnostic);
            if handler.render_report(&mut out, &report).is_err() {
                // The drawing failed (it never should): the plain form says the same.
                self.one(&mut out, diagnostic);
            }
        }
        if self.left_out() > 0 {
            let _ = writeln!(out, "{}: {} more not shown", clean(self.file()), self.left_out());
        }
        out
    }
}

/// One mistake as miette wants it.
#[derive(Debug)]
struct Report {
    source: NamedSource<Arc<String>>,
    what: String,
    help: Option<String>,
    severity: miette::Severity,
    labels: Vec<LabeledSpan>,
}

impl Report {
    fn new(all: &Diagnostics, shown: &Arc<String>, diagnostic: &Diagnostic) -> Self {
        let place = |span: Span| {
            let offset = span.offset.min(shown.len());
            SourceSpan::from((offset, span.len.min(shown.len() - offset)))
        };
        let label = diagnostic.label.as_deref().map(clean);
        let mut labels = vec![LabeledSpan::new_primary_with_span(
            Some(label.unwrap_or_else(|| "here".into())),
            place(diagnostic.span),
        )];
        for (span, words) in &diagnostic.others {
            labels.push(LabeledSpan::new_with_span(Some(clean(words)), place(*span)));
        }
        let help = match (&diagnostic.expected, &diagnostic.help) {
            (Some(expected), Some(help)) => Some(format!("expected: {expected}\n{help}")),
            (Some(expected), None) => Some(format!("expected: {expected}")),
            (None, help) => help.clone(),
        };
        Self {
            source: NamedSource::new(clean(all.file()), shown.clone()),
            what: clean(&diagnostic.what),
            help: help.as_deref().map(clean),
            severity: match diagnostic.severity {
                Severity::Error => miette::Severity::Error,
                Severity::Warning => miette::Severity::Warning,
            },
            labels,
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Report {}

impl miette::Diagnostic for Report {
    fn severity(&self) -> Option<miette::Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn std::fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}
