//! Makes a [`Graph`] from text: the words by `scan`, the grammar by `kdl`, the meaning of the top
//! level here.

use std::collections::HashMap;

use kdl::{KdlDocument, KdlEntry, KdlIdentifier, KdlNode, KdlValue};

use crate::check;
use crate::diagnostics::{Diagnostics, Severity};
use crate::graph::{Domain, DomainKind, Graph, Host, Link, Node, Param, ParamBlock, Subsystem};
use crate::scan::{Literal, Scan, scan};
use crate::span::{Span, Spanned};
use crate::value::Value;
use crate::{HOSTS_MAX, NODES_MAX, SOURCE_OCTETS_MAX};

/// Nodes at the top of a file.
const TOP: [&str; 5] = ["title", "host", "link", "faults", "sweep"];

/// Reads a graph file. The graph holds all that could be understood; it is whole only if the
/// diagnostics hold no errors. What a mistake made unreadable is left out of the graph or is
/// [`Value::Bad`] there, so that later checks report nothing twice.
///
/// `file` is the name shown in the diagnostics. Time and memory are linear in the text, which may
/// have [`SOURCE_OCTETS_MAX`] octets.
pub fn parse(file: &str, source: &str) -> (Graph, Diagnostics) {
    let mut diagnostics = Diagnostics::new(file, source);
    if source.len() > SOURCE_OCTETS_MAX {
        diagnostics
            .error(Span::default(), format!("this file has {} octets", source.len()))
            .expected(format!("at most {SOURCE_OCTETS_MAX} octets"));
        return (Graph::default(), diagnostics);
    }
    let Some(scan) = scan(source, &mut diagnostics) else {
        return (Graph::default(), diagnostics);
    };
    let mut reader =
        Reader { source, scan: &scan, base: 0, diagnostics, graph: Graph::default(), nodes: 0 };
    for (base, piece) in scan.pieces() {
        if piece.trim().is_empty() {
            continue;
        }
        reader.base = base;
        match KdlDocument::parse_v2(piece) {
            Ok(document) => document.nodes().iter().for_each(|node| reader.top(node)),
            Err(error) => reader.grammar(&error, piece),
        }
    }
    let Reader { graph, mut diagnostics, .. } = reader;
    check::check(&graph, &mut diagnostics);
    (graph, diagnostics)
}

struct Reader<'a> {
    source: &'a str,
    scan: &'a Scan,
    /// Offset of the piece in hand.
    base: usize,
    diagnostics: Diagnostics,
    graph: Graph,
    nodes: usize,
}

impl Reader<'_> {
    /// Takes over what the grammar objects to.
    fn grammar(&mut self, error: &kdl::KdlError, piece: &str) {
        for found in &error.diagnostics {
            let end = self.source.len();
            let mut span = Span::new(self.base + found.span.offset(), found.span.len());
            // Places end with the source (closing braces may have been added) and hold no space at
            // the end.
            span.offset = span.offset.min(end);
            span.len = span.len.min(end - span.offset);
            span.len = span.of(self.source).trim_end().len();
            let what = found.message.as_deref().unwrap_or("this cannot be read as a node");
            let severity = match found.severity {
                miette::Severity::Error => Severity::Error,
                _ => Severity::Warning,
            };
            let lower = what.get(..1).map(str::to_lowercase).unwrap_or_default();
            let what = format!("{lower}{}", what.get(1..).unwrap_or("").trim_end_matches('.'));
            let kept = self.diagnostics.push(crate::Diagnostic::new(severity, span, what));
            if let Some(label) = &found.label {
                kept.label(label.clone());
            }
            if let Some(help) = &found.help {
                kept.help(help.clone());
            }
        }
        if error.diagnostics.is_empty() {
            let span = Span::new(self.base, piece.trim_end().len());
            self.diagnostics.error(span, "this cannot be read as a node");
        }
    }

    fn top(&mut self, node: &KdlNode) {
        let name = self.identifier(node.name());
        let Some(name) = name else { return };
        match name.as_str() {
            "title" => self.title(node),
            "host" => self.host(node),
            "link" => self.link(node),
            "faults" => {
                let block = self.block(node);
                self.graph.faults.extend(block);
            }
            "sweep" => {
                let block = self.block(node);
                self.graph.sweep.extend(block);
            }
            _ => {
                self.diagnostics
                    .error(name.span, format!("`{name}` cannot stand at the top of a file"))
                    .expected("`title`, `host`, `link`, `faults` or `sweep`")
                    .suggest(&name, TOP);
            }
        }
    }

    fn title(&mut self, node: &KdlNode) {
        let span = self.head(node);
        let values: Vec<Spanned<Value>> = self.args(node);
        let first = self.graph.title.as_ref().map(|title| title.span);
        if let Some(first) = first {
            self.diagnostics.error(span, "a file has one title").also(first, "the first one");
            return;
        }
        if node.children().is_some() || !self.params(node).is_empty() || values.len() != 1 {
            self.diagnostics.error(span, "this title cannot be read").expected("`title \"...\"`");
            return;
        }
        if let Some(value) = values.first()
            && let Some(text) = value.text(&mut self.diagnostics)
        {
            self.graph.title = Some(Spanned::new(text.to_string(), value.span));
        }
    }

    fn host(&mut self, node: &KdlNode) {
        let name = self.own_name(node, "host");
        let mut params = self.params(node);
        let count = params
            .iter()
            .position(|param| *param.name == "count")
            .map(|at| params.remove(at).value)
            .and_then(|value| {
                let count = value.integer(&mut self.diagnostics, 1..=HOSTS_MAX)?;
                Some(Spanned::new(count, value.span))
            });
        let mut host = Host { count, params, span: self.whole(node), ..Host::default() };
        for child in node.iter_children() {
            if self.count(child).is_none() {
                return;
            }
            let whole = match child.name().value() {
                "domain" => self.domain(child, &mut host),
                "subsystem" => self.subsystem(child, None, &mut host),
                _ => {
                    host.nodes.extend(self.node(child, Node::default()));
                    Some(())
                }
            };
            if whole.is_none() {
                return;
            }
        }
        if let Some(name) = name {
            self.graph.hosts.push(Host { name, ..host });
        }
    }

    /// Counts one more line of a host; `None` if there are too many.
    fn count(&mut self, line: &KdlNode) -> Option<()> {
        self.nodes += 1;
        if self.nodes <= NODES_MAX {
            return Some(());
        }
        if self.nodes == NODES_MAX + 1 {
            self.diagnostics
                .error(self.head(line), "this file has too many nodes")
                .expected(format!("at most {NODES_MAX}"));
        }
        None
    }

    /// A domain and its lines; `None` if there are too many of them.
    fn domain(&mut self, node: &KdlNode, host: &mut Host) -> Option<()> {
        let (args, params) = (self.args(node), self.params(node));
        let mut domain = Domain { params, span: self.whole(node), ..Domain::default() };
        let words = args.iter().map(|arg| {
            let text = arg.text(&mut self.diagnostics)?;
            Some(Spanned::new(text.to_string(), arg.span))
        });
        let words: Vec<_> = words.collect();
        match words.first() {
            Some(Some(name)) if !name.is_empty() => domain.name = name.clone(),
            Some(None) => {}
            _ => {
                self.diagnostics
                    .error(self.head(node), "this domain has no name")
                    .expected("`domain NAME [thread|process|open] ... { ... }`");
            }
        }
        for (at, word) in words.iter().flatten().enumerate().skip(1) {
            let kind = DomainKind::ALL.iter().find(|(kind, _)| *kind == word.as_str());
            match kind {
                Some((_, kind)) if at == 1 => domain.kind = *kind,
                _ => {
                    self.diagnostics
                        .error(word.span, format!("`{word}` is no kind of domain"))
                        .expected("`thread`, `process` or `open`, once, behind the domain's name")
                        .suggest(word, DomainKind::ALL.map(|(kind, _)| kind));
                }
            }
        }
        for child in node.iter_children() {
            self.count(child)?;
            match child.name().value() {
                "grant" => domain.grants.extend(self.block(child)),
                "domain" => {
                    self.diagnostics
                        .error(self.head(child), "a domain does not lie in another")
                        .help("write it beside the other one, in the host");
                }
                "subsystem" => self.subsystem(child, Some(host.domains.len()), host)?,
                _ => {
                    let place = Node { domain: Some(host.domains.len()), ..Node::default() };
                    host.nodes.extend(self.node(child, place));
                }
            }
        }
        host.domains.push(domain);
        Some(())
    }

    /// A subsystem and its lines, behind a node that stands for it; `None` if there are too many
    /// of them.
    fn subsystem(&mut self, node: &KdlNode, domain: Option<usize>, host: &mut Host) -> Option<()> {
        // One without a name has been told of.
        let name = self.own_name(node, "subsystem").unwrap_or_default();
        let (params, span) = (self.params(node), self.whole(node));
        let mut known = host.subsystems.iter();
        let at = known.position(|other| !name.is_empty() && other.name.value == name.value);
        if let Some(first) = at {
            let what = format!("this host has two blocks of the subsystem `{name}`");
            self.diagnostics
                .error(name.span, what)
                .also(host.subsystems[first].name.span, "the first one")
                .help("write all of its lines into one block");
        } else {
            let (kind, span_head) = (name.clone(), self.head(node));
            let own = Node { domain, kind: kind.clone(), name: kind, params, ..Node::default() };
            host.subsystems.push(Subsystem { name, node: host.nodes.len(), span });
            host.nodes.push(Node { span: span_head, ..own });
        }
        let at = at.unwrap_or(host.subsystems.len() - 1);
        let mut is_empty = true;
        for child in node.iter_children() {
            self.count(child)?;
            is_empty = false;
            match child.name().value() {
                "domain" => {
                    self.diagnostics
                        .error(self.head(child), "a domain does not lie in a subsystem")
                        .help("write the subsystem into the domain, or beside it in the host");
                }
                "subsystem" => {
                    self.diagnostics
                        .error(self.head(child), "a subsystem does not lie in another")
                        .help(
                            "write it beside the other one; lines stand on lines of any subsystem",
                        );
                }
                _ => {
                    let place = Node { domain, subsystem: Some(at), ..Node::default() };
                    host.nodes.extend(self.node(child, place));
                }
            }
        }
        if is_empty {
            self.diagnostics
                .error(self.head(node), "this subsystem has no protocol")
                .help("leave it out, or move lines into it");
        }
        Some(())
    }

    fn link(&mut self, node: &KdlNode) {
        let name = self.own_name(node, "link");
        let params = self.params(node);
        let children = node.iter_children().filter_map(|child| self.block(child)).collect();
        let span = self.whole(node);
        if let Some(name) = name {
            self.graph.links.push(Link { name, params, children, span });
        }
    }

    /// The one argument of a host or a link.
    fn own_name(&mut self, node: &KdlNode, what: &str) -> Option<Spanned<String>> {
        let args = self.args(node);
        let mut args = args.iter();
        let Some(first) = args.next() else {
            let span = self.span(node.name().span());
            self.diagnostics
                .error(span, format!("this {what} has no name"))
                .expected(format!("`{what} NAME ...`"));
            return None;
        };
        for more in args {
            self.diagnostics
                .error(more.span, format!("a {what} has one name"))
                .expected(format!("properties like `name=value` behind the {what}'s name"));
        }
        let text = first.text(&mut self.diagnostics)?;
        if text.is_empty() {
            self.diagnostics.error(first.span, format!("the name of this {what} is empty"));
            return None;
        }
        Some(Spanned::new(text.to_string(), first.span))
    }

    /// A line of a host, of the domain and the subsystem that `place` has.
    fn node(&mut self, node: &KdlNode, place: Node) -> Option<Node> {
        let kind = self.identifier(node.name())?;
        let mut lowers = Vec::new();
        for arg in self.args(node) {
            match &arg.value {
                Value::Text(text) => lowers.push(Spanned::new(text.clone(), arg.span)),
                Value::Bad => {}
                other => {
                    let what =
                        format!("a node stands on other nodes, but this is {}", other.described());
                    self.diagnostics.error(arg.span, what).expected(
                        "the name of a node of this host, or a parameter like `name=value`",
                    );
                }
            }
        }
        let mut params = self.params(node);
        let given =
            params.iter().position(|param| *param.name == "name").map(|at| params.remove(at));
        let name = given
            .and_then(|param| {
                let text = param.value.text(&mut self.diagnostics)?;
                Some(Spanned::new(text.to_string(), param.value.span))
            })
            .unwrap_or_else(|| kind.clone());
        let children = node.iter_children().filter_map(|child| self.block(child)).collect();
        let span = self.whole(node);
        Some(Node { kind, name, lowers, params, children, span, ..place })
    }

    /// As deep as the scan allows, [`crate::DEPTH_MAX`].
    fn block(&mut self, node: &KdlNode) -> Option<ParamBlock> {
        let name = self.identifier(node.name())?;
        let (args, params) = (self.args(node), self.params(node));
        let children = node.iter_children().filter_map(|child| self.block(child)).collect();
        Some(ParamBlock { name, args, params, children, span: self.whole(node) })
    }

    fn args(&self, node: &KdlNode) -> Vec<Spanned<Value>> {
        let args = node.entries().iter().filter(|entry| entry.name().is_none());
        args.map(|entry| self.value(entry)).collect()
    }

    fn params(&mut self, node: &KdlNode) -> Vec<Param> {
        let mut params: Vec<Param> = Vec::new();
        let mut seen: HashMap<String, Span> = HashMap::new();
        for entry in node.entries() {
            let Some(name) = entry.name().and_then(|name| self.identifier(name)) else {
                continue;
            };
            if let Some(first) = seen.get(&name.value) {
                self.diagnostics
                    .error(name.span, format!("`{name}` is given twice"))
                    .also(*first, "the first time");
                continue;
            }
            seen.insert(name.value.clone(), name.span);
            params.push(Param { name, value: self.value(entry) });
        }
        params
    }

    fn value(&self, entry: &KdlEntry) -> Spanned<Value> {
        let written = self.span(entry.span());
        let len = entry.format().map_or(written.len, |format| format.value_repr.len());
        let span = Span::new(written.end().saturating_sub(len), len);
        let value = match self.scan.literal(span.offset) {
            Some(Literal::Text(text)) => Value::Text(text.clone()),
            Some(Literal::Bad) => Value::Bad,
            None => match entry.value() {
                KdlValue::String(text) => Value::Text(text.clone()),
                KdlValue::Integer(number) => Value::Integer(*number),
                KdlValue::Float(number) => Value::Float(*number),
                KdlValue::Bool(value) => Value::Bool(*value),
                KdlValue::Null => Value::Null,
            },
        };
        Spanned::new(value, span)
    }

    /// A name; `None` if it was already reported.
    fn identifier(&self, name: &KdlIdentifier) -> Option<Spanned<String>> {
        let span = self.span(name.span());
        match self.scan.literal(span.offset) {
            Some(Literal::Text(text)) => Some(Spanned::new(text.clone(), span)),
            Some(Literal::Bad) => None,
            None => Some(Spanned::new(name.value().to_string(), span)),
        }
    }

    fn span(&self, span: miette::SourceSpan) -> Span {
        Span::new(self.base + span.offset(), span.len())
    }

    /// A node without the space behind it.
    fn whole(&self, node: &KdlNode) -> Span {
        let span = self.span(node.span());
        let text = span.of(&self.scan.clean).trim_end();
        let len = text.strip_suffix(';').unwrap_or(text).trim_end().len();
        Span::new(span.offset, len.min(self.source.len().saturating_sub(span.offset)))
    }

    /// A node's name and entries.
    fn head(&self, node: &KdlNode) -> Span {
        let name = self.span(node.name().span());
        node.entries().last().map_or(name, |last| name.to(self.span(last.span())))
    }
}
