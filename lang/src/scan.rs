//! The words of a file, before its grammar is looked at.
//!
//! The grammar is the `kdl` crate's business, but that parser recurses for every brace, for every
//! star in a comment and for every brace too many, and starts over where something is commented
//! out. So its input is made harmless first: comments become spaces, strings become plain words of
//! the same length (their values are kept here), words that are none are reported and become plain
//! words too, braces are balanced and nest at most [`DEPTH_MAX`] deep. Because every replacement
//! has the length of what it replaces, places stay right.

use crate::chars::{
    continues_line, ends_word, escape, is_forbidden, is_newline, is_space, newline_len,
    starts_comment,
};
use crate::diagnostics::Diagnostics;
use crate::span::Span;
use crate::{COMMENTED_DEPTH_MAX, DEPTH_MAX};

/// Literal for which a replaced word stood.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    /// A string with this value.
    Text(String),
    /// Something already reported.
    Bad,
}

/// A file made harmless.
#[derive(Debug)]
pub(crate) struct Scan {
    /// As long as the source, apart from closing braces that may be added at the end.
    pub(crate) clean: String,
    /// Strings and bad words by their first octet, in order.
    literals: Vec<(usize, Literal)>,
    /// Places at which top-level nodes are cut apart, and for each whether the piece that ends
    /// there can be given to the grammar.
    cuts: Vec<(usize, bool)>,
}

impl Scan {
    /// The literal at `offset`, if it was replaced.
    pub(crate) fn literal(&self, offset: usize) -> Option<&Literal> {
        let at = self.literals.binary_search_by_key(&offset, |(at, _)| *at).ok()?;
        self.literals.get(at).map(|(_, literal)| literal)
    }

    /// The top-level pieces, each with its offset: whole nodes, so that a mistake in one hides none
    /// in the next.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, &str)> {
        let starts = std::iter::once(0).chain(self.cuts.iter().map(|(at, _)| *at));
        starts.zip(&self.cuts).filter_map(|(start, (end, sound))| {
            let piece = self.clean.get(start..*end).filter(|_| *sound)?;
            Some((start, piece))
        })
    }
}

/// Reads the words of `source`. `None` if it nests too deep to go on.
pub(crate) fn scan(source: &str, diagnostics: &mut Diagnostics) -> Option<Scan> {
    let mut scanner = Scanner {
        source,
        at: 0,
        diagnostics,
        scan: Scan {
            clean: String::with_capacity(source.len() + 16),
            literals: Vec::new(),
            cuts: Vec::new(),
        },
        open: Vec::new(),
        commented: None,
        fresh: false,
        last: Last::Nothing,
        sound: true,
        word_in_piece: false,
    };
    while scanner.at < source.len() {
        scanner.step()?;
    }
    scanner.close();
    Some(scanner.scan)
}

/// Token before the place in hand, apart from space.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Last {
    /// The beginning of a node, or of a block.
    Nothing,
    /// A word that begins here.
    Word(usize),
    /// The value of a property.
    Value,
    /// A block that was closed, and whether it was commented out.
    Closed(bool),
    /// An equals sign, and where the word before it begins.
    Equals(usize),
}

struct Scanner<'a, 'd> {
    source: &'a str,
    /// Everything before was read; always at a character's beginning.
    at: usize,
    diagnostics: &'d mut Diagnostics,
    scan: Scan,
    /// Open braces: place, and how many commented-out blocks they are in.
    open: Vec<(usize, usize)>,
    /// A `/-` whose victim has not been seen yet, with the brace depth it stands at.
    commented: Option<usize>,
    /// Whether nothing but space was read since the last `/-`.
    fresh: bool,
    /// The last word, if only space came after it.
    last: Last,
    /// Whether the current top-level piece can be given to the grammar, which loses its way (and
    /// with many of them its stack) where two nodes touch.
    sound: bool,
    /// Whether the current top-level piece holds a word that is not commented out.
    word_in_piece: bool,
}

impl<'a> Scanner<'a, '_> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or("")
    }

    /// Copies `len` octets.
    fn keep(&mut self, len: usize) {
        let end = (self.at + len).min(self.source.len());
        self.scan.clean.push_str(self.source.get(self.at..end).unwrap_or(""));
        self.at = end;
    }

    /// Replaces `len` octets by as many of `filler`.
    fn fill(&mut self, len: usize, filler: char) {
        let end = (self.at + len).min(self.source.len());
        self.scan.clean.extend(std::iter::repeat_n(filler, end - self.at));
        self.at = end;
    }

    fn literal(&mut self, len: usize, literal: Literal) {
        self.next_word();
        self.scan.literals.push((self.at, literal));
        self.fill(len, '_');
        self.word_seen();
    }

    /// A word ends the search of a `/-` unless it is a node's name: then its block is commented
    /// out, too.
    fn word_seen(&mut self) {
        self.fresh = false;
        if self.open.is_empty() && self.commented.is_none() {
            self.word_in_piece = true;
        }
    }

    /// Whether a `#` is a comment of other languages: one that stands alone, or where a node
    /// begins.
    fn means_comment(&self, rest: &str) -> bool {
        let word = rest.trim_start_matches('#');
        let keyword = ["true", "false", "null"].iter().any(|k| word.starts_with(k));
        let alone = word.chars().next().is_none_or(|c| is_space(c) || is_newline(c));
        alone || self.last == Last::Nothing && !keyword
    }

    fn step(&mut self) -> Option<()> {
        let rest = self.rest();
        let c = rest.chars().next()?;
        match c {
            '\u{feff}' if self.at == 0 => self.fill(c.len_utf8(), ' '),
            '/' if rest.starts_with("//") => {
                let len = rest.find(is_newline).unwrap_or(rest.len());
                self.blank_comment(len);
            }
            '/' if rest.starts_with("/*") => self.block_comment(),
            '/' if rest.starts_with("/-") => {
                self.commented = Some(self.open.len());
                if matches!(self.last, Last::Equals(_)) {
                    self.value_missing();
                }
                self.fresh = true;
                self.keep(2);
            }
            '"' => self.quoted(),
            '#' if rest.trim_start_matches('#').starts_with('"') => self.raw(),
            '#' if self.means_comment(rest) => {
                let len = rest.find(is_newline).unwrap_or(rest.len());
                self.diagnostics
                    .error(Span::new(self.at, 1), "`#` begins no comment")
                    .help("begin it with `//`");
                self.blank_comment(len);
            }
            '{' => return self.open_brace(),
            '}' => self.close_brace(),
            ';' if self.last == Last::Nothing && self.commented.is_none() => {
                self.diagnostics
                    .error(Span::new(self.at, 1), "nothing stands before this `;`")
                    .help("leave it out: one ends a line");
                self.fill(1, ' ');
            }
            ';' => {
                self.keep(1);
                self.node_ends();
            }
            '=' => self.equals(),
            '\\' if continues_line(rest) => {
                // Up to and over the line's end, which then ends no node.
                let line = rest.find(is_newline).unwrap_or(rest.len());
                self.keep(1);
                self.fill(line.saturating_sub(1), ' ');
                let newline = newline_len(self.rest());
                self.keep(newline);
            }
            c if is_newline(c) => {
                self.keep(newline_len(rest));
                self.node_ends();
            }
            c if is_space(c) => self.keep(c.len_utf8()),
            c if is_forbidden(c) => {
                self.forbidden(c);
                self.fill(c.len_utf8(), ' ');
            }
            _ => self.word(),
        }
        Some(())
    }

    fn forbidden(&mut self, c: char) {
        let span = Span::new(self.at, c.len_utf8());
        self.diagnostics
            .error(
                span,
                format!("the character U+{:04X} is not allowed in a graph file", u32::from(c)),
            )
            .help("remove it; inside a string, write it as an escape like `\\u{7f}`");
    }

    fn next_word(&mut self) {
        if let Last::Closed(_) = self.last {
            self.touching();
        }
        self.last = match self.last {
            Last::Equals(_) => Last::Value,
            _ => Last::Word(self.at),
        };
    }

    fn touching(&mut self) {
        self.diagnostics
            .error(Span::new(self.at, 1), "the node before is not ended")
            .expected("a new line or `;` behind its `}`");
        self.sound = false;
    }

    fn equals(&mut self) {
        let span = Span::new(self.at, 1);
        match self.last {
            Last::Word(word)
                if self.source.get(word..).is_some_and(crate::words::is_number_or_keyword) =>
            {
                self.diagnostics
                    .error(span, "what is before this `=` is no name")
                    .expected("`name=value`");
                self.fill(1, ' ');
            }
            Last::Word(word) => {
                self.keep(1);
                self.last = Last::Equals(word);
            }
            Last::Nothing | Last::Value | Last::Closed(_) | Last::Equals(_) => {
                self.diagnostics
                    .error(span, "this `=` has no name before it")
                    .expected("`name=value`");
                self.fill(1, ' ');
            }
        }
    }

    /// Called where no value can come any more. A property without one becomes a single bad word.
    fn value_missing(&mut self) {
        if let Last::Equals(word) = self.last {
            let written = self.source.get(word..self.at).unwrap_or("").trim_end();
            let span = Span::new(word, written.find('=').map_or(written.len(), |at| at + 1));
            self.diagnostics
                .error(span, "this property has no value")
                .expected("`name=value`, the value in quotes unless it is a plain word or number");
            if self.scan.literals.last().is_some_and(|(at, _)| *at == word) {
                self.scan.literals.pop();
            }
            self.scan.literals.push((word, Literal::Bad));
            self.scan.clean.truncate(word);
            self.scan.clean.extend(std::iter::repeat_n('_', self.at - word));
        }
        self.last = Last::Nothing;
    }

    fn node_ends(&mut self) {
        if self.fresh {
            // What a `/-` comments out may begin on a later line.
            return;
        }
        self.value_missing();
        if self.open.is_empty() && self.word_in_piece {
            self.scan.cuts.push((self.at, self.sound));
            self.sound = true;
            self.word_in_piece = false;
        }
        if self.commented == Some(self.open.len()) {
            self.commented = None;
        }
    }

    fn blank_comment(&mut self, len: usize) {
        let comment = self.rest().get(..len).unwrap_or("");
        let forbidden = comment.char_indices().find(|(_, c)| is_forbidden(*c));
        if let Some((offset, c)) = forbidden {
            let start = self.at;
            self.fill(offset, ' ');
            self.forbidden(c);
            self.fill((start + len).saturating_sub(self.at), ' ');
        } else {
            self.fill(len, ' ');
        }
    }

    fn block_comment(&mut self) {
        let octets = self.rest().as_bytes();
        let (mut depth, mut at) = (0_usize, 0);
        loop {
            match (octets.get(at), octets.get(at + 1)) {
                (Some(b'/'), Some(b'*')) => (depth, at) = (depth + 1, at + 2),
                (Some(b'*'), Some(b'/')) => (depth, at) = (depth - 1, at + 2),
                (Some(_), _) => at += 1,
                (None, _) => break,
            }
            if depth == 0 {
                break;
            }
        }
        if depth > 0 {
            let span = Span::new(self.at, 2);
            self.diagnostics
                .error(span, "this comment is never closed")
                .expected("`*/` before the end of the file");
        }
        self.blank_comment(at);
    }

    fn open_brace(&mut self) -> Option<()> {
        match self.last {
            Last::Nothing => {
                self.diagnostics
                    .error(Span::new(self.at, 1), "this block belongs to no node")
                    .expected("a node's name before it, on the same line");
                self.sound = false;
            }
            Last::Closed(false) if !self.fresh => self.touching(),
            _ => {}
        }
        self.value_missing();
        let mut commented = self.open.last().map_or(0, |(_, commented)| *commented);
        if self.commented.take().is_some() {
            commented += 1;
        }
        let span = Span::new(self.at, 1);
        if self.open.len() >= DEPTH_MAX || commented > COMMENTED_DEPTH_MAX {
            let limit = if commented > COMMENTED_DEPTH_MAX {
                format!(
                    "at most {COMMENTED_DEPTH_MAX} blocks that are commented out, one in the other"
                )
            } else {
                format!("at most {DEPTH_MAX} blocks, one in the other")
            };
            self.diagnostics.error(span, "blocks nest too deep here").expected(limit);
            return None;
        }
        self.word_seen();
        self.open.push((self.at, commented));
        self.keep(1);
        Some(())
    }

    fn close_brace(&mut self) {
        self.value_missing();
        match self.open.pop() {
            Some((_, commented)) => {
                self.keep(1);
                let around = self.open.last().map_or(0, |(_, commented)| *commented);
                self.last = Last::Closed(commented > around);
            }
            None => {
                self.diagnostics
                    .error(Span::new(self.at, 1), "this `}` closes nothing")
                    .help("remove it, or look for a `{` that is missing above");
                self.fill(1, ' ');
            }
        }
        self.commented = None;
        self.fresh = false;
    }

    fn close(&mut self) {
        self.value_missing();
        while let Some((open, _)) = self.open.pop() {
            self.diagnostics
                .error(Span::new(open, 1), "this `{` is never closed")
                .expected("`}` before the end of the file");
            self.scan.clean.push_str("\n}");
        }
        self.scan.cuts.push((self.scan.clean.len(), self.sound));
    }

    fn quoted(&mut self) {
        let rest = self.rest();
        if rest.starts_with("\"\"\"") {
            self.multi_line(3);
            return;
        }
        let mut text = String::new();
        let mut wrong: Vec<(Span, &'static str, &'static str)> = Vec::new();
        let mut at = 1;
        let closed = loop {
            let Some(c) = rest.get(at..).and_then(|rest| rest.chars().next()) else {
                break false;
            };
            match c {
                '"' => break true,
                '\\' => {
                    let (len, value) = escape(rest.get(at..).unwrap_or(""));
                    match value {
                        Ok(value) => text.extend(value),
                        Err((what, expected)) => {
                            wrong.push((Span::new(self.at + at, len), what, expected))
                        }
                    }
                    at += len;
                }
                c if is_newline(c) => break false,
                c => {
                    if is_forbidden(c) {
                        let what = "this character is not allowed in a string as it is";
                        wrong.push((
                            Span::new(self.at + at, c.len_utf8()),
                            what,
                            "an escape like `\\u{7f}`",
                        ));
                    }
                    text.push(c);
                    at += c.len_utf8();
                }
            }
        };
        let len = if closed { at + 1 } else { at };
        self.string_ends(len, closed, wrong, text);
    }

    fn raw(&mut self) {
        let rest = self.rest();
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let body = rest.get(hashes + 1..).unwrap_or("");
        if body.starts_with("\"\"") {
            self.multi_line(hashes + 3);
            return;
        }
        let line = body.find(is_newline).unwrap_or(body.len());
        let mut end = String::with_capacity(hashes + 1);
        end.push('"');
        end.extend(std::iter::repeat_n('#', hashes));
        let found = body.get(..line).and_then(|body| body.find(&end));
        let text = body.get(..found.unwrap_or(line)).unwrap_or("").to_string();
        let len = hashes + 1 + found.map_or(line, |at| at + end.len());
        let mut wrong: Vec<(Span, &'static str, &'static str)> = Vec::new();
        if text.contains(is_forbidden) {
            let what = "this string holds a character that is not allowed as it is";
            wrong.push((
                Span::new(self.at, len),
                what,
                "a string in plain quotes with an escape like `\\u{7f}`",
            ));
        }
        self.string_ends(len, found.is_some(), wrong, text);
    }

    fn multi_line(&mut self, quotes: usize) {
        self.diagnostics
            .error(
                Span::new(self.at, quotes),
                "strings over several lines are not part of the graph language",
            )
            .expected("a string on one line, in one pair of quotes");
        // What belongs to it is skipped, so that it is reported once.
        let rest = self.rest();
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let end = format!("\"\"\"{}", "#".repeat(hashes));
        let body = rest.get(quotes..).unwrap_or("");
        let len = quotes + body.find(&end).map_or(body.len(), |at| at + end.len());
        self.literal(len, Literal::Bad);
    }

    fn string_ends(
        &mut self,
        len: usize,
        closed: bool,
        wrong: Vec<(Span, &'static str, &'static str)>,
        text: String,
    ) {
        let bad = !closed || !wrong.is_empty();
        for (span, what, expected) in wrong {
            self.diagnostics.error(span, what).expected(expected);
        }
        if !closed {
            self.diagnostics
                .error(Span::new(self.at, len), "this string is never closed")
                .expected("a closing quote on the same line");
        }
        self.literal(len, if bad { Literal::Bad } else { Literal::Text(text) });
        let after = self.rest().chars().next();
        if closed
            && after.is_some_and(|c| !ends_word(c) && c != '=')
            && !starts_comment(self.rest())
        {
            self.diagnostics
                .error(Span::new(self.at, 0), "a space is missing behind this string")
                .expected("a space between two values");
            // The two words touch in what the grammar sees and become one, which is reported only
            // here.
        }
    }

    fn word(&mut self) {
        let rest = self.rest();
        let mut len = 0;
        for c in rest.chars() {
            let tail = rest.get(len..).unwrap_or("");
            if ends_word(c)
                || c == '"'
                || starts_comment(tail)
                || (c == '\\' && continues_line(tail))
            {
                break;
            }
            len += c.len_utf8();
        }
        let word = rest.get(..len).unwrap_or("");
        let span = Span::new(self.at, len);
        let bad = crate::words::judge(word);
        let touches = rest.get(len..).is_some_and(|tail| tail.starts_with('"'));
        if let Some(mistake) = bad {
            mistake.report(self.diagnostics, span, word);
            self.literal(len.max(1), Literal::Bad);
        } else {
            if self.last == Last::Nothing && crate::words::is_number_or_keyword(word) {
                self.diagnostics
                    .error(span, format!("`{word}` is no name of a node"))
                    .expected("a plain word, or a string in quotes");
                self.literal(len, Literal::Bad);
            } else {
                self.next_word();
                self.word_seen();
                self.keep(len);
            }
        }
        if touches {
            self.diagnostics
                .error(Span::new(self.at, 0), "a space is missing before this string")
                .expected("a space between two values");
        }
    }
}
