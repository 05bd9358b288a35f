//! Writing to the terminal or whatever stands in its place.

use std::io::{IsTerminal, Write};

/// Columns of a terminal that does not say.
const WIDTH: usize = 100;

/// Writes to the standard output. If nobody reads it any more, that is no reason to end.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes to the standard error.
pub(crate) fn error(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// True if a person looks at the standard output.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// How wide the terminal is, in columns.
pub(crate) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns >= 40)
        .unwrap_or(WIDTH)
}

/// A number with its thousands apart: `12,345`.
pub(crate) fn grouped(number: u64) -> String {
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
pub(crate) fn heading(text: &str) -> String {
    if is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
