//! Makes words from text. Lines for the C preprocessor are obeyed here as far as they decide what
//! is read at all.

use xk_lang::{Diagnostics, Span, Spanned};

/// A word of the language.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A name or a keyword.
    Word(String),
    /// A number; RFC 4506, section 6.2.
    Number(i128),
    /// A string of C, which only constants have that are C's business.
    Text,
    /// One of `{}()[]<>;:,=*`.
    Mark(char),
    /// The end of the text.
    End,
}

impl Token {
    /// Name of the token for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Word(word) => format!("`{word}`"),
            Self::Number(number) => format!("`{number}`"),
            Self::Text => "a string".into(),
            Self::Mark(mark) => format!("`{mark}`"),
            Self::End => "the end of the file".into(),
        }
    }
}

/// A `#define` of a number: a constant, as `const` makes one.
pub(crate) struct Define {
    pub(crate) name: Spanned<String>,
    pub(crate) value: Spanned<i128>,
}

/// Words of a file, with their places.
pub(crate) struct Words {
    pub(crate) tokens: Vec<Spanned<Token>>,
    pub(crate) defines: Vec<Define>,
    /// Lines that were left out, and may have brought in types: the first one, and how many they
    /// are.
    pub(crate) left_out: Option<(Span, usize)>,
}

/// One `#if` that is open.
struct Condition {
    span: Span,
    /// True if the text around it is read.
    around: bool,
    /// This part of it is read.
    active: bool,
    /// A part of it has been.
    taken: bool,
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Nothing but white space stands before on this line.
    line_start: bool,
    words: Words,
    defined: Vec<String>,
    conditions: Vec<Condition>,
    found: &'a mut Diagnostics,
}

/// Largest depth of nested `#if`.
const CONDITIONS_MAX: usize = 64;

/// Reads a file's words.
pub(crate) fn lex(text: &str, found: &mut Diagnostics) -> Words {
    let mut lexer = Lexer {
        text,
        at: 0,
        line_start: true,
        words: Words { tokens: Vec::new(), defines: Vec::new(), left_out: None },
        defined: Vec::new(),
        conditions: Vec::new(),
        found,
    };
    while lexer.next() {}
    if let Some(open) = lexer.conditions.last() {
        lexer.found.error(open.span, "this condition has no end").expected("a line `#endif`");
    }
    let end = Span::new(text.len(), 0);
    lexer.words.tokens.push(Spanned::new(Token::End, end));
    lexer.words
}

/// The value of a number as the language writes it: decimal, `0x` hexadecimal, or octal behind a 0.
fn number(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let value = match hexadecimal {
        Some(digits) => i128::from_str_radix(digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => i128::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    let value = value.ok()?;
    let fits = value <= i128::from(u64::MAX) && (!negative || value <= 1 << 63);
    fits.then_some(if negative { -value } else { value })
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn is_active(&self) -> bool {
        self.conditions.last().is_none_or(|c| c.active)
    }

    /// Goes behind all characters that fit; answers them.
    fn take(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn push(&mut self, token: Token, start: usize) {
        if self.is_active() {
            let span = Span::from(start..self.at);
            self.words.tokens.push(Spanned::new(token, span));
        }
    }

    /// Reads one word; false at the end.
    fn next(&mut self) -> bool {
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return false;
        };
        let fresh = self.line_start;
        match first {
            '\n' => {
                self.at += 1;
                self.line_start = true;
                return true;
            }
            c if c.is_whitespace() => {
                self.at += c.len_utf8();
                return true;
            }
            '/' if self.rest().starts_with("/*") => {
                self.comment();
                return true;
            }
            '/' if self.rest().starts_with("//") => {
                self.take(|c| c != '\n');
                return true;
            }
            '%' if fresh => self.passed_through(),
            '#' if fresh => self.directive(),
            c if c.is_ascii_alphabetic() || c == '_' => {
                let word = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
                self.push(Token::Word(word.into()), start);
            }
            c if c.is_ascii_digit() || c == '-' => self.number(start),
            '"' | '\'' => {
                self.at += 1;
                self.take(|c| c != first && c != '\n');
                if self.rest().starts_with(first) {
                    self.at += 1;
                }
                self.push(Token::Text, start);
            }
            c if "{}()[]<>;:,=*".contains(c) => {
                self.at += 1;
                self.push(Token::Mark(c), start);
            }
            c => {
                self.at += c.len_utf8();
                if self.is_active() {
                    let span = Span::from(start..self.at);
                    let what = format!("`{}` is no part of the language", c.escape_default());
                    self.found.error(span, what).help("take it out");
                }
            }
        }
        self.line_start = false;
        true
    }

    fn comment(&mut self) {
        let start = self.at;
        match self.rest().get(2..).and_then(|rest| rest.find("*/")) {
            Some(end) => self.at += end + 4,
            None => {
                self.at = self.text.len();
                let span = Span::new(start, 2);
                let what = "this comment has no end";
                self.found.error(span, what).expected("`*/`");
            }
        }
    }

    fn number(&mut self, start: usize) {
        self.at += 1;
        self.take(|c| c.is_ascii_alphanumeric());
        let text = &self.text[start..self.at];
        let value = number(text);
        if value.is_none() && self.is_active() {
            let what = format!("`{text}` is no number");
            let expected = "decimal digits, `0x` and hexadecimal ones, or 0 and octal ones, of at most 64 bits";
            self.found.error(Span::from(start..self.at), what).expected(expected);
        }
        self.push(Token::Number(value.unwrap_or(0)), start);
    }

    /// A line that rpcgen copies into C.
    fn passed_through(&mut self) {
        let start = self.at;
        self.take(|c| c != '\n');
        if self.is_active() {
            self.leave_out(Span::from(start..self.at));
        }
    }

    fn leave_out(&mut self, line: Span) {
        let (_, count) = self.words.left_out.get_or_insert((line, 0));
        *count += 1;
    }

    /// A line for the C preprocessor, as rpcgen has one run over the file.
    fn directive(&mut self) {
        let start = self.at;
        let line = self.take(|c| c != '\n').trim_end();
        let span = Span::new(start, line.len());
        let body = line.strip_prefix('#').unwrap_or(line).trim_start();
        let (name, rest) = split_word(body);
        let (word, value) = split_word(rest);
        match name {
            "ifdef" => self.open(span, self.defined.iter().any(|d| d == word)),
            "ifndef" => self.open(span, !self.defined.iter().any(|d| d == word)),
            "if" => {
                let holds = match number(rest.trim()) {
                    Some(number) => Some(number != 0),
                    // A name that is not defined is 0 in C.
                    None if value.trim().is_empty() => Some(self.defined.iter().any(|d| d == word)),
                    None => None,
                };
                if holds.is_none() && self.is_active() {
                    let what = "this condition is not understood and taken as true";
                    self.found.warning(span, what).help("use `#ifdef`, `#if 0` or `#if 1`");
                }
                self.open(span, holds.unwrap_or(true));
            }
            "else" | "elif" => self.other_part(span),
            "endif" => {
                if self.conditions.pop().is_none() {
                    self.found.error(span, "there is no condition to end here");
                }
            }
            _ if !self.is_active() => {}
            "define" => self.define(span, word, value),
            "undef" => self.defined.retain(|d| d != word),
            // `# 1 "file.x"`, left by a preprocessor, and nothing at all.
            _ if name.is_empty() || name.bytes().all(|c| c.is_ascii_digit()) => {}
            "pragma" | "ident" | "line" => {}
            "include" => self.leave_out(span),
            _ => {
                let what = format!("`#{name}` is left out");
                self.found.warning(span, what).help("what it brings must stand in this file");
            }
        }
    }

    fn open(&mut self, span: Span, holds: bool) {
        if self.conditions.len() >= CONDITIONS_MAX {
            self.found.error(span, "conditions nest too deep");
            return;
        }
        let around = self.is_active();
        self.conditions.push(Condition { span, around, active: around && holds, taken: holds });
    }

    fn other_part(&mut self, span: Span) {
        match self.conditions.last_mut() {
            Some(condition) => {
                condition.active = condition.around && !condition.taken;
                condition.taken = true;
            }
            None => {
                self.found.error(span, "there is no condition that this is the other part of");
            }
        }
    }

    fn define(&mut self, span: Span, name: &str, value: &str) {
        self.defined.push(name.into());
        let value = value.split("/*").next().unwrap_or("").trim();
        if value.is_empty() {
            return;
        }
        match number(value) {
            Some(number) => self.words.defines.push(Define {
                name: Spanned::new(name.into(), span),
                value: Spanned::new(number, span),
            }),
            None => {
                let what = format!("the definition of `{name}` is no number and is left out");
                self.found.warning(span, what).help("constants are numbers: `const NAME = 1;`");
            }
        }
    }
}

/// The first word, and what is behind it.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    text.split_at(end)
}
