//! A file that can be changed without spoiling what its writer made of it.

use crate::diagnostics::Diagnostics;
use crate::graph::{Graph, Host, Node, Param};
use crate::parse::parse;
use crate::span::Span;
use crate::value::Value;

/// Why a document was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// There is no host of this name.
    #[error("there is no host called `{0}`")]
    NoHost(String),
    /// The host has no node of this name.
    #[error("there is no node called `{0}`")]
    NoNode(String),
    /// The node has no property of this name.
    #[error("there is no parameter called `{0}`")]
    NoParam(String),
    /// The text would have these mistakes afterwards.
    #[error("the file would not be right afterwards:\n{0}")]
    Spoils(Box<Diagnostics>),
    /// The text would not say afterwards what it should; it holds something the edits do not know.
    #[error("the file is written in a way that this change cannot be made in")]
    Unclear,
}

/// A graph file without errors: its text and what it says. Every edit is one replacement in the
/// text, checked by reading the whole text again: it succeeds with a right file, or changes
/// nothing.
#[derive(Debug, Clone)]
pub struct Document {
    file: String,
    text: String,
    graph: Graph,
    warnings: Diagnostics,
}

impl Document {
    /// Reads a file; the diagnostics are those of [`parse`] when they hold an error.
    pub fn parse(file: &str, text: &str) -> Result<Self, Box<Diagnostics>> {
        let (graph, warnings) = parse(file, text);
        if warnings.has_errors() {
            return Err(Box::new(warnings));
        }
        Ok(Self { file: file.into(), text: text.into(), graph, warnings })
    }

    /// What the file says.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What is probably not meant, but right.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// The text: to the octet what was read, apart from the edits.
    pub fn to_text(&self) -> &str {
        &self.text
    }

    /// Sets a node's property: replaces its value, or adds it behind the last one. `name` renames
    /// the node.
    pub fn set_param(
        &mut self,
        host: &str,
        node: &str,
        param: &str,
        value: &Value,
    ) -> Result<(), EditError> {
        let found = self.node(host, node)?;
        if param == "name" {
            let Value::Text(new) = value else {
                return Err(EditError::Unclear);
            };
            return self.rename(host, node, &new.clone());
        }
        let (span, text) = match found.param(param) {
            Some(old) => (old.value.span, value.to_string()),
            None => {
                let name = Value::from(param);
                (Span::new(found.head.end(), 0), format!(" {name}={value}"))
            }
        };
        let value = value.clone();
        self.replace(span, &text, |graph| {
            let node = graph.host(host).and_then(|host| host.node(node));
            node.and_then(|node| node.param(param)).is_some_and(|param| param.value.value == value)
        })
    }

    /// Sets a link's property in the same way.
    pub fn set_link_param(
        &mut self,
        link: &str,
        param: &str,
        value: &Value,
    ) -> Result<(), EditError> {
        let found = self.graph.link(link).ok_or_else(|| EditError::NoHost(link.into()))?;
        let (span, text) = match found.param(param) {
            Some(old) => (old.value.span, value.to_string()),
            None => {
                let end = found.params.iter().map(|param| param.value.span.end()).max();
                let end = end.unwrap_or(0).max(found.name.span.end());
                (Span::new(end, 0), format!(" {}={value}", Value::from(param)))
            }
        };
        let value = value.clone();
        self.replace(span, &text, |graph| {
            let param = graph.link(link).and_then(|link| link.param(param));
            param.is_some_and(|param| param.value.value == value)
        })
    }

    /// Removes a node's property.
    pub fn remove_param(&mut self, host: &str, node: &str, param: &str) -> Result<(), EditError> {
        let found = self.node(host, node)?;
        let span = found.param(param).ok_or_else(|| EditError::NoParam(param.into()))?.span();
        let before = self.text.get(..span.offset).unwrap_or("");
        let space = before.len() - before.trim_end_matches([' ', '\t']).len();
        self.replace(Span::new(span.offset - space, span.len + space), "", |graph| {
            let node = graph.host(host).and_then(|host| host.node(node));
            node.is_some_and(|node| node.param(param).is_none())
        })
    }

    /// Adds a node at the end of a host, indented like the node before.
    pub fn add_node(
        &mut self,
        host: &str,
        kind: &str,
        name: &str,
        lowers: &[&str],
        params: &[(&str, Value)],
    ) -> Result<(), EditError> {
        let found = self.host(host)?;
        let mut line = Value::from(kind).to_string();
        for lower in lowers {
            line += &format!(" {}", Value::from(*lower));
        }
        if name != kind {
            line += &format!(" name={}", Value::from(name));
        }
        for (param, value) in params {
            line += &format!(" {}={value}", Value::from(*param));
        }
        let own = indent(&self.text, found.span.offset);
        let beside = |node: &&Node| node.domain.is_none();
        let inner = match found.nodes.iter().rfind(beside) {
            Some(last) => indent(&self.text, last.span.offset),
            None => format!("{own}    "),
        };
        let (span, text) = match found.body {
            None => (Span::new(found.span.end(), 0), format!(" {{\n{inner}{line}\n{own}}}")),
            Some(body) => {
                let written = body.of(&self.text);
                let kept = written.trim_end_matches([' ', '\t']);
                if kept.ends_with('\n') {
                    // The closing brace has a line of its own: it keeps it.
                    let at = body.offset + kept.len();
                    (Span::new(at, 0), format!("{inner}{line}\n"))
                } else {
                    let space = Span::new(body.offset + kept.len(), written.len() - kept.len());
                    (space, format!("\n{inner}{line}\n{own}"))
                }
            }
        };
        let count = found.nodes.len();
        self.replace(span, &text, |graph| {
            let host = graph.host(host);
            host.is_some_and(|host| host.nodes.len() == count + 1 && host.node(name).is_some())
        })
    }

    /// Removes a node, with its line if it stands alone on it. Fails when another node stands on
    /// it.
    pub fn remove_node(&mut self, host: &str, node: &str) -> Result<(), EditError> {
        let count = self.host(host)?.nodes.len();
        let span = self.node(host, node)?.span;
        let before = self.text.get(..span.offset).unwrap_or("");
        let after = self.text.get(span.end()..).unwrap_or("");
        let start = before.trim_end_matches([' ', '\t']).len();
        let line_end = after.find('\n').map_or(after.len(), |at| at + 1);
        let tail = after.get(..line_end).unwrap_or("").trim();
        let alone =
            before.get(..start).is_none_or(|before| before.is_empty() || before.ends_with('\n'))
                && (tail.is_empty() || tail == ";" || tail.starts_with("//"));
        let span = if alone {
            Span::from(start..span.end() + line_end)
        } else {
            let space = after.len() - after.trim_start_matches([' ', '\t', ';']).len();
            Span::new(span.offset, span.len + space)
        };
        self.replace(span, "", |graph| {
            let host = graph.host(host);
            host.is_some_and(|host| host.nodes.len() + 1 == count && host.node(node).is_none())
        })
    }

    /// Gives a node another name, also where others of the host stand on it.
    fn rename(&mut self, host: &str, node: &str, new: &str) -> Result<(), EditError> {
        let (owner, found) = (self.host(host)?, self.node(host, node)?);
        let written = Value::from(new).to_string();
        let mut places: Vec<(Span, String)> = Vec::new();
        if found.name.span == found.kind.span {
            places.push((Span::new(found.head.end(), 0), format!(" name={written}")));
        } else {
            places.push((found.name.span, written.clone()));
        }
        let lowers = owner.nodes.iter().flat_map(|node| &node.lowers);
        places.extend(
            lowers.filter(|lower| *lower.value == *node).map(|lower| (lower.span, written.clone())),
        );
        places.sort_by_key(|(span, _)| std::cmp::Reverse(span.offset));
        let mut text = self.text.clone();
        for (span, written) in places {
            if text.get(span.offset..span.end()).is_none() {
                return Err(EditError::Unclear);
            }
            text.replace_range(span.offset..span.end(), &written);
        }
        self.take(text, |graph| graph.host(host).is_some_and(|host| host.node(new).is_some()))
    }

    fn host(&self, host: &str) -> Result<&Host, EditError> {
        self.graph.host(host).ok_or_else(|| EditError::NoHost(host.into()))
    }

    fn node(&self, host: &str, node: &str) -> Result<&Node, EditError> {
        self.host(host)?.node(node).ok_or_else(|| EditError::NoNode(node.into()))
    }

    fn replace(
        &mut self,
        span: Span,
        by: &str,
        wanted: impl Fn(&Graph) -> bool,
    ) -> Result<(), EditError> {
        let (Some(before), Some(after)) =
            (self.text.get(..span.offset), self.text.get(span.end()..))
        else {
            return Err(EditError::Unclear);
        };
        let text = [before, by, after].concat();
        self.take(text, wanted)
    }

    fn take(&mut self, text: String, wanted: impl Fn(&Graph) -> bool) -> Result<(), EditError> {
        let changed = Document::parse(&self.file, &text).map_err(EditError::Spoils)?;
        if !wanted(&changed.graph) {
            return Err(EditError::Unclear);
        }
        *self = changed;
        Ok(())
    }
}

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Param {
    /// A property that was not read from a file.
    pub fn new(name: &str, value: Value) -> Self {
        let place = Span::default();
        Self {
            name: crate::Spanned::new(name.into(), place),
            value: crate::Spanned::new(value, place),
        }
    }
}

/// The space at the beginning of the line that holds `offset`.
fn indent(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or("");
    let line = before.rsplit('\n').next().unwrap_or("");
    let space = line.len() - line.trim_start_matches([' ', '\t']).len();
    line.get(..space).unwrap_or("").to_string()
}
