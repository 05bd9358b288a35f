//! Writing to the terminal or whatever stands in its place.

use crate::failure::Failure;
use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use xk_lang::steers;

/// Whether something could not be written.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Columns of a terminal that does not say.
const WIDTH: usize = 100;

/// Beginning and end of a heading on a terminal.
const BOLD: [&str; 2] = ["\x1b[1m", "\x1b[0m"];

/// Writes to the standard output, [`plain`]. A reader that has gone is no reason to end.
pub fn print(text: &str) {
    draw(&plain(text));
}

/// Writes to the standard error, [`plain`].
pub fn error(text: &str) {
    steer(&plain(text));
}

/// Writes to the standard output what may steer the terminal, and holds nothing of others.
pub fn draw(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        IS_LOST.store(true, Ordering::Relaxed);
    }
}

/// True if the standard output did not take all that was written: a full disk, say.
pub fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed)
}

/// Shows how a command has ended, and returns what its process ends with.
pub fn exit_code(result: Result<(), Failure>) -> ExitCode {
    let failure = match result {
        Ok(()) if is_lost() => {
            Failure::new("the standard output did not take all that was written")
        }
        Ok(()) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    failure.show();
    ExitCode::from(failure.code())
}

/// Writes to the standard error what may steer the terminal, and holds nothing of others.
pub fn steer(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The text with characters that would steer a terminal written out, but for headings: names and
/// reports may come from a stranger.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let heading = BOLD.iter().find(|bold| rest.starts_with(**bold));
        let taken = match heading {
            Some(bold) => {
                out.push_str(bold);
                bold.len()
            }
            None if steers(c) => {
                out.extend(c.escape_unicode());
                c.len_utf8()
            }
            None => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    out.into()
}

/// True if a person looks at the standard output.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Width of the terminal, in columns.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns >= 40).unwrap_or(WIDTH)
}

/// A number of things, and their name in the plural unless it is one.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count as u64))
}

/// A number with its thousands apart: `12,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A heading: bold on a terminal.
pub fn heading(text: &str) -> String {
    if is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        let [begin, end] = BOLD;
        format!("{begin}{text}{end}")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        let text = "\u{1b}]0;evil\u{7}\u{1b}[2J\u{9b}2J\u{202e}";
        assert_eq!(plain(text), r"\u{1b}]0;evil\u{7}\u{1b}[2J\u{9b}2J\u{202e}");
        for text in ["a table\n\twith tabs, \u{e9}\n", "\x1b[1mheading\x1b[0m"] {
            assert_eq!(plain(text), text);
        }
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
