//! Words outside quotes: which are right, and what to say about the others.

use crate::diagnostics::Diagnostics;
use crate::span::Span;

/// Why a bare word is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Begins like a number and is none: addresses, times and the like want quotes.
    NotANumber,
    /// A number of more digits than any parameter can take.
    TooLarge,
    /// `true`, `false`, `null` and their kin need a `#`.
    BareKeyword,
    /// Ends with a comma.
    Comma,
    /// A `#` that begins no keyword.
    UnknownKeyword,
    /// A type annotation.
    Annotation,
    /// A character that a bare word cannot hold.
    Character(char),
}

impl Mistake {
    pub(crate) fn report(self, diagnostics: &mut Diagnostics, span: Span, word: &str) {
        let word: String = word.chars().take(60).collect();
        let quoted = format!("put it in quotes: \"{}\"", word.replace('\\', "\\\\"));
        match self {
            Mistake::NotANumber => diagnostics
                .error(span, format!("`{word}` begins like a number but is none"))
                .help(quoted),
            Mistake::TooLarge => diagnostics
                .error(span, "this number has too many digits")
                .expected("a number below 2^127"),
            Mistake::BareKeyword if matches!(word.as_str(), "true" | "false") => diagnostics
                .error(span, format!("`{word}` is a keyword and needs a `#`"))
                .help(format!("write `#{word}`, or \"{word}\" if it is a name")),
            Mistake::BareKeyword => diagnostics
                .error(span, format!("`{word}` is a word of the graph language"))
                .help(format!("as a name it stands in quotes: \"{word}\"")),
            Mistake::Comma => diagnostics
                .error(span, format!("`{word}` ends with a comma, which separates nothing here"))
                .help("put space between words, and `;` between lines"),
            Mistake::UnknownKeyword => diagnostics
                .error(span, format!("`{word}` is no keyword"))
                .expected("`#true`, `#false` or `#null`, or a string in quotes")
                .help("a comment begins with `//`"),
            Mistake::Annotation => diagnostics
                .error(span, "type annotations are not part of the graph language")
                .help(format!("leave `{word}` away, or put it in quotes")),
            Mistake::Character(c) => diagnostics
                .error(span, format!("`{c}` cannot stand in a word without quotes"))
                .help(quoted),
        };
    }
}

/// The mistake of a bare word, if there is one.
pub(crate) fn judge(word: &str) -> Option<Mistake> {
    if word.starts_with('#') {
        let known = ["#true", "#false", "#null", "#inf", "#-inf", "#nan"].contains(&word);
        return (!known).then_some(Mistake::UnknownKeyword);
    }
    if word.starts_with('(') {
        return Some(Mistake::Annotation);
    }
    if word.ends_with(',') {
        return Some(Mistake::Comma);
    }
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if digit(unsigned) {
        return number(unsigned);
    }
    if unsigned.strip_prefix('.').is_some_and(digit) {
        return Some(Mistake::NotANumber);
    }
    if ["true", "false", "null", "inf", "-inf", "nan"].contains(&word) {
        return Some(Mistake::BareKeyword);
    }
    let out_of_place = |c: &char| matches!(c, '\\' | '/' | '(' | ')' | '[' | ']' | '#');
    word.chars().find(out_of_place).map(Mistake::Character)
}

/// Whether `text` begins with a number or a keyword, which can be a value but no name.
pub(crate) fn is_number_or_keyword(text: &str) -> bool {
    let raw_string = text.trim_start_matches('#').starts_with('"');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    (text.starts_with('#') && !raw_string) || unsigned.starts_with(|c: char| c.is_ascii_digit())
}

/// KDL 2, section Number, without the sign.
fn number(text: &str) -> Option<Mistake> {
    for (prefixes, radix) in [(["0x", "0X"], 16), (["0o", "0O"], 8), (["0b", "0B"], 2)] {
        if let Some(digits) = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)) {
            return whole(digits, radix);
        }
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
        }
        None => (text, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    [Some(integer), fraction, exponent].into_iter().flatten().find_map(|digits| whole(digits, 10))
}

fn whole(digits: &str, radix: u32) -> Option<Mistake> {
    let well_formed = digits.chars().next().is_some_and(|c| c.is_digit(radix))
        && digits.chars().all(|c| c.is_digit(radix) || c == '_');
    if !well_formed {
        return Some(Mistake::NotANumber);
    }
    i128::from_str_radix(&digits.replace('_', ""), radix).is_err().then_some(Mistake::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        for right in [
            "eth", "a-b.c", "0x1f", "-1_000", "2.5e-3", "#true", "+", "-", "..", "é:x", "lan1",
            "0", "tap0",
        ] {
            assert_eq!(judge(right), None, "{right}");
        }
        for (word, mistake) in [
            ("10.0.1.2/24", Mistake::NotANumber),
            ("1ms", Mistake::NotANumber),
            ("02:00", Mistake::NotANumber),
            (".5", Mistake::NotANumber),
            ("5%", Mistake::NotANumber),
            ("0x", Mistake::NotANumber),
            ("1e", Mistake::NotANumber),
            ("true", Mistake::BareKeyword),
            ("#yes", Mistake::UnknownKeyword),
            ("(u8)5", Mistake::Annotation),
            ("a/b", Mistake::Character('/')),
        ] {
            assert_eq!(judge(word), Some(mistake), "{word}");
        }
        assert_eq!(judge(&"9".repeat(40)), Some(Mistake::TooLarge));
    }
}
