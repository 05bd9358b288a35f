//! Classes of characters, and the escapes in strings, as KDL 2 has them.

/// The length of the escape that `text` begins with, and its value or what is wrong with it.
pub(crate) type Escape = (usize, Result<Option<char>, (&'static str, &'static str)>);

pub(crate) fn escape(text: &str) -> Escape {
    let mut chars = text.chars();
    chars.next();
    let value = match chars.next() {
        Some('\\') => '\\',
        Some('"') => '"',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('s') => ' ',
        Some('u') => {
            let tail = text.get(2..).unwrap_or("");
            let wrong = (
                "this is no character's number",
                "an escape like `\\u{e9}`: one to six hexadecimal digits",
            );
            let Some(end) =
                tail.find('}').filter(|end| (2..=7).contains(end) && tail.starts_with('{'))
            else {
                return (2, Err(wrong));
            };
            let digits = tail.get(1..end).unwrap_or("");
            let hexadecimal = digits.bytes().all(|b| b.is_ascii_hexdigit());
            let value = u32::from_str_radix(digits, 16)
                .ok()
                .filter(|_| hexadecimal)
                .and_then(char::from_u32);
            return (2 + end + 1, value.map(Some).ok_or(wrong));
        }
        Some(c) if is_space(c) || is_newline(c) => {
            let tail = text.get(1..).unwrap_or("");
            let skipped =
                tail.len() - tail.trim_start_matches(|c| is_space(c) || is_newline(c)).len();
            return (1 + skipped, Ok(None));
        }
        c => {
            let wrong =
                ("this escape is unknown", "one of `\\\\ \\\" \\b \\f \\n \\r \\t \\s \\u{...}`");
            let len = c.filter(|c| !is_newline(*c)).map_or(1, |c| 1 + c.len_utf8());
            return (len, Err(wrong));
        }
    };
    (2, Ok(Some(value)))
}

/// Whether a backslash at the beginning of `text` joins two lines.
pub(crate) fn continues_line(text: &str) -> bool {
    let tail = text.get(1..).unwrap_or("").trim_start_matches(is_space);
    tail.is_empty() || tail.starts_with(is_newline) || tail.starts_with("//")
}

pub(crate) fn starts_comment(text: &str) -> bool {
    text.starts_with("//") || text.starts_with("/*")
}

pub(crate) fn ends_word(c: char) -> bool {
    is_space(c) || is_newline(c) || is_forbidden(c) || matches!(c, '{' | '}' | ';' | '=')
}

/// KDL 2, section Newline.
pub(crate) fn is_newline(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

pub(crate) fn newline_len(text: &str) -> usize {
    if text.starts_with("\r\n") { 2 } else { text.chars().next().map_or(0, char::len_utf8) }
}

/// KDL 2, section Whitespace.
pub(crate) fn is_space(c: char) -> bool {
    matches!(
        c,
        '\t' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

/// KDL 2, section Disallowed Literal Code Points.
pub(crate) fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
