//! Why a command ended badly, and what to do about it.

use crate::output;
use std::fmt::Display;
use std::io::IsTerminal;
use std::path::Path;
use xk_lang::Diagnostics;

/// Why a command ended badly.
#[derive(Debug)]
pub enum Failure {
    /// Mistakes in a graph file.
    Mistakes(Box<Diagnostics>),
    /// Anything else: what, what to do instead, the exit code.
    Other(String, Option<String>, u8),
    /// All has been said already.
    Said,
    /// A program that was run has ended with this number.
    Ended(u8),
}

impl Failure {
    /// Something is wrong.
    pub fn new(what: impl Into<String>) -> Self {
        Self::Other(what.into(), None, 1)
    }

    /// The command line makes no sense.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Other(what.into(), None, 2)
    }

    /// Something is wrong that has an exit code of its own.
    pub fn coded(what: impl Into<String>, code: u8) -> Self {
        Self::Other(what.into(), None, code)
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        match self {
            Self::Other(what, _, code) => Self::Other(what, Some(help.into()), code),
            other => other,
        }
    }

    /// A file could not be read, written or made.
    pub fn file(action: &str, path: &Path, error: impl Display) -> Self {
        Self::new(format!("{action} {}: {error}", path.display()))
    }

    /// The failure in words.
    pub fn text(&self) -> String {
        match self {
            Self::Mistakes(diagnostics) => diagnostics.to_text(),
            Self::Other(what, ..) => what.clone(),
            Self::Said | Self::Ended(_) => String::new(),
        }
    }

    /// Exit code of the process.
    pub fn code(&self) -> u8 {
        match self {
            Self::Other(_, _, code) | Self::Ended(code) => *code,
            Self::Mistakes(_) | Self::Said => 1,
        }
    }

    /// Says it, on the standard error.
    pub fn show(&self) {
        match self {
            Self::Mistakes(diagnostics) => show(diagnostics),
            Self::Other(what, help, _) => {
                output::error(&format!("xk: {what}\n"));
                if let Some(help) = help {
                    output::error(&format!("  help: {help}\n"));
                }
            }
            Self::Said | Self::Ended(_) => {}
        }
    }
}

impl From<Box<Diagnostics>> for Failure {
    fn from(diagnostics: Box<Diagnostics>) -> Self {
        Self::Mistakes(diagnostics)
    }
}

/// Shows mistakes: with the lines of the file and colours on a terminal, else in plain text.
pub fn show(diagnostics: &Diagnostics) {
    if diagnostics.is_empty() {
        return;
    }
    if std::io::stderr().is_terminal() {
        let colours = std::env::var_os("NO_COLOR").is_none();
        output::steer(&diagnostics.to_fancy(output::width(), colours));
    } else {
        output::error(&diagnostics.to_text());
    }
}
