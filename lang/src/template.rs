//! Many hosts alike: `{n}` in their strings, and the hosts themselves.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::graph::{Domain, Graph, Host, Node, Param, ParamBlock};
use crate::span::Spanned;
use crate::value::Value;

/// Largest number of operations of one placeholder.
const OPERATIONS_MAX: usize = 8;
/// Largest width of a placeholder's number, in characters.
const WIDTH_MAX: usize = 32;

/// Why a placeholder does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{` without `}`.
    #[error("a `{{` in this string is never closed")]
    Open,
    /// `}` without `{`.
    #[error("a `}}` in this string closes nothing")]
    Close,
    /// The text between the braces does not read.
    #[error("a placeholder in this string cannot be read")]
    Form,
    /// Division by nought.
    #[error("a placeholder in this string divides by 0")]
    Zero,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Number { operations: Vec<(u8, u32)>, width: usize, zeros: bool, hexadecimal: bool },
}

/// A string with placeholders: `{n}` is the host's index, from 0. Operations (`+ - * / %` and a
/// number below 2^32, at most 8) are done from left to right: `{n/250%250+1}`. A format may follow
/// a colon: `{n%256:02x}` writes at least two hexadecimal digits, `{n:4}` at least four characters.
/// `{{` and `}}` stand for braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// Reads a string.
    pub fn compile(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            if let Some(tail) = brace.strip_prefix("{{") {
                plain.push('{');
                rest = tail;
            } else if let Some(tail) = brace.strip_prefix("}}") {
                plain.push('}');
                rest = tail;
            } else if let Some(tail) = brace.strip_prefix('{') {
                let (inside, tail) = tail.split_once('}').ok_or(TemplateError::Open)?;
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(placeholder(inside)?);
                rest = tail;
            } else {
                return Err(TemplateError::Close);
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// The string for the host with index `n`.
    pub fn fill(&self, n: u32) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Number { operations, width, zeros, hexadecimal } => {
                    let number =
                        operations.iter().fold(i128::from(n), |number, (operation, by)| {
                            let by = i128::from(*by);
                            match operation {
                                b'+' => number.saturating_add(by),
                                b'-' => number.saturating_sub(by),
                                b'*' => number.saturating_mul(by),
                                b'/' => number.checked_div_euclid(by).unwrap_or(0),
                                _ => number.checked_rem_euclid(by).unwrap_or(0),
                            }
                        });
                    // Writing to a string cannot fail.
                    let _ = match (hexadecimal, zeros) {
                        (false, false) => write!(out, "{number:width$}"),
                        (false, true) => write!(out, "{number:0width$}"),
                        (true, false) => write!(out, "{number:width$x}"),
                        (true, true) => write!(out, "{number:0width$x}"),
                    };
                }
            }
        }
        out
    }
}

fn placeholder(inside: &str) -> Result<Piece, TemplateError> {
    let (sum, format) = inside.split_once(':').unwrap_or((inside, ""));
    let mut rest = sum.trim().strip_prefix('n').ok_or(TemplateError::Form)?.trim_start();
    let mut operations = Vec::new();
    while let Some(operation) = rest.bytes().next() {
        if !b"+-*/%".contains(&operation) || operations.len() == OPERATIONS_MAX {
            return Err(TemplateError::Form);
        }
        let tail = rest.get(1..).unwrap_or("").trim_start();
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (digits, tail) = tail.split_at(end);
        let by: u32 = digits.parse().map_err(|_| TemplateError::Form)?;
        if by == 0 && matches!(operation, b'/' | b'%') {
            return Err(TemplateError::Zero);
        }
        operations.push((operation, by));
        rest = tail.trim_start();
    }
    let (width, hexadecimal) = match format.strip_suffix('x') {
        Some(width) => (width, true),
        None => (format, false),
    };
    let zeros = width.starts_with('0');
    let width: usize =
        if width.is_empty() { 0 } else { width.parse().map_err(|_| TemplateError::Form)? };
    if width > WIDTH_MAX {
        return Err(TemplateError::Form);
    }
    Ok(Piece::Number { operations, width, zeros, hexadecimal })
}

/// Whether a string in a host without a count seems to be meant as a template.
pub(crate) fn looks_like_one(text: &str) -> bool {
    text.contains("{n") && Template::compile(text).is_ok()
}

/// One host of a graph whose counts are written out. It borrows from the graph and is made on
/// demand.
#[derive(Debug, Clone)]
pub struct HostInstance<'g> {
    /// The name: the template's with its placeholders filled, or with the index behind it when
    /// there are none; for a host without a count its name.
    pub name: Cow<'g, str>,
    /// The index among the hosts alike, from 0.
    pub index: u32,
    /// The host as written, with its places.
    pub template: &'g Host,
}

impl<'g> HostInstance<'g> {
    /// The nodes of this host, placeholders filled; the places are the template's.
    pub fn nodes(&self) -> Cow<'g, [Node]> {
        if self.template.count.is_none() {
            return Cow::Borrowed(&self.template.nodes);
        }
        let fill = Fill(self.index);
        Cow::Owned(self.template.nodes.iter().map(|node| fill.node(node)).collect())
    }

    /// The domains of this host besides the first, placeholders filled.
    pub fn domains(&self) -> Cow<'g, [Domain]> {
        if self.template.count.is_none() {
            return Cow::Borrowed(&self.template.domains);
        }
        let fill = Fill(self.index);
        Cow::Owned(self.template.domains.iter().map(|domain| fill.domain(domain)).collect())
    }

    /// The properties of this host, placeholders filled.
    pub fn params(&self) -> Cow<'g, [Param]> {
        if self.template.count.is_none() {
            return Cow::Borrowed(&self.template.params);
        }
        Cow::Owned(Fill(self.index).params(&self.template.params))
    }
}

impl Graph {
    /// All hosts with the counts written out, in the file's order. Names are made here, nodes only
    /// on demand, so that ten thousand hosts cost ten thousand short strings.
    pub fn expand(&self) -> Vec<HostInstance<'_>> {
        let mut all = Vec::new();
        for template in &self.hosts {
            let Some(count) = &template.count else {
                all.push(HostInstance {
                    name: Cow::Borrowed(&template.name.value),
                    index: 0,
                    template,
                });
                continue;
            };
            let name = template.name.as_str();
            let compiled = Template::compile(name).ok().filter(|_| name.contains('{'));
            all.extend((0..count.value).map(|index| {
                let name = match &compiled {
                    Some(compiled) => compiled.fill(index),
                    None => format!("{name}{index}"),
                };
                HostInstance { name: Cow::Owned(name), index, template }
            }));
        }
        all
    }
}

struct Fill(u32);

impl Fill {
    fn text(&self, text: &str) -> String {
        if !text.contains(['{', '}']) {
            return text.to_string();
        }
        // What does not compile was reported when the file was read; it stays as it is.
        Template::compile(text).map_or_else(|_| text.to_string(), |template| template.fill(self.0))
    }

    fn spanned(&self, text: &Spanned<String>) -> Spanned<String> {
        Spanned::new(self.text(text), text.span)
    }

    fn value(&self, value: &Spanned<Value>) -> Spanned<Value> {
        match &value.value {
            Value::Text(text) => Spanned::new(Value::Text(self.text(text)), value.span),
            other => Spanned::new(other.clone(), value.span),
        }
    }

    fn params(&self, params: &[Param]) -> Vec<Param> {
        let fill =
            |param: &Param| Param { name: param.name.clone(), value: self.value(&param.value) };
        params.iter().map(fill).collect()
    }

    fn domain(&self, domain: &Domain) -> Domain {
        Domain {
            name: self.spanned(&domain.name),
            kind: domain.kind,
            params: self.params(&domain.params),
            grants: domain.grants.iter().map(|grant| self.block(grant)).collect(),
            span: domain.span,
        }
    }

    fn node(&self, node: &Node) -> Node {
        Node {
            domain: node.domain,
            subsystem: node.subsystem,
            kind: node.kind.clone(),
            name: self.spanned(&node.name),
            lowers: node.lowers.iter().map(|lower| self.spanned(lower)).collect(),
            params: self.params(&node.params),
            children: node.children.iter().map(|child| self.block(child)).collect(),
            span: node.span,
        }
    }

    fn block(&self, block: &ParamBlock) -> ParamBlock {
        ParamBlock {
            name: block.name.clone(),
            args: block.args.iter().map(|arg| self.value(arg)).collect(),
            params: self.params(&block.params),
            children: block.children.iter().map(|child| self.block(child)).collect(),
            span: block.span,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled() {
        let fill = |text: &str, n| Template::compile(text).map(|template| template.fill(n));
        assert_eq!(fill("10.0.{n/250}.{n%250+2}/16", 251), Ok("10.0.1.3/16".into()));
        assert_eq!(
            fill("02:00:00:00:{n/256:02x}:{n%256:02x}", 511),
            Ok("02:00:00:00:01:ff".into())
        );
        assert_eq!(fill("{{n}} { n * 2 - 1 }", 3), Ok("{n} 5".into()));
        assert_eq!(fill("{n:3}|{n:03}", 7), Ok("  7|007".into()));
        assert_eq!(
            fill("{n*4294967295*4294967295*4294967295*4294967295*9}", 9).map(|s| s.len()),
            Ok(39)
        );
        assert_eq!(fill("{n", 0), Err(TemplateError::Open));
        assert_eq!(fill("n}", 0), Err(TemplateError::Close));
        assert_eq!(fill("{n%0}", 0), Err(TemplateError::Zero));
        for wrong in [
            "{}",
            "{m}",
            "{n+}",
            "{n 2}",
            "{n:z}",
            "{n:99}",
            "{n+1+1+1+1+1+1+1+1+1}",
            "{n+4294967296}",
        ] {
            assert_eq!(fill(wrong, 0), Err(TemplateError::Form), "{wrong}");
        }
    }
}
