//! Contents of a graph file, with the place of every word.

use std::borrow::Cow;

use crate::diagnostics::Diagnostics;
use crate::span::{Span, Spanned};
use crate::value::Value;

/// A graph file's content: what is written, in the order in which it is written.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// The optional title.
    pub title: Option<Spanned<String>>,
    /// The hosts, counted ones once ([`Graph::expand`] makes them many).
    pub hosts: Vec<Host>,
    /// The links between the hosts' wires.
    pub links: Vec<Link>,
    /// The blocks `faults`: what goes wrong while the graph is simulated.
    pub faults: Vec<ParamBlock>,
    /// The blocks `sweep`: what is run many times.
    pub sweep: Vec<ParamBlock>,
}

impl Graph {
    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| *host.name == name)
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| *link.name == name)
    }
}

/// One host, or many alike.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The host's name; of a host with `count` its template.
    pub name: Spanned<String>,
    /// Number of equal hosts, 1 to [`HOSTS_MAX`](crate::HOSTS_MAX); `None` if no `count` was
    /// written.
    pub count: Option<Spanned<u32>>,
    /// Properties other than `count`.
    pub params: Vec<Param>,
    /// The domains besides the first, in which all nodes lie that are in none of these.
    pub domains: Vec<Domain>,
    /// The subsystems besides the x-kernel, of which all nodes are that are in none of these.
    pub subsystems: Vec<Subsystem>,
    /// The protocols of the host, those of its domains and subsystems too.
    pub nodes: Vec<Node>,
    /// The whole host, closing brace included.
    pub span: Span,
}

impl Host {
    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| *node.name == name)
    }

    /// The subsystem that a node is of, by its name; `None` for the x-kernel, of which the node
    /// that stands for a subsystem is as well.
    pub fn subsystem(&self, node: &Node) -> Option<&str> {
        let subsystem = self.subsystems.get(node.subsystem?)?;
        Some(subsystem.name.as_str())
    }

    /// Name of a node in a catalog: `SUBSYSTEM/KIND` in a subsystem, or else the kind.
    pub fn qualified<'a>(&self, node: &'a Node) -> Cow<'a, str> {
        match self.subsystem(node) {
            Some(subsystem) => Cow::Owned(format!("{subsystem}/{}", node.kind)),
            None => Cow::Borrowed(node.kind.as_str()),
        }
    }
}

/// A part of a host that is written for another protocol framework than the x-kernel.
#[derive(Debug, Clone, Default)]
pub struct Subsystem {
    /// The framework's name.
    pub name: Spanned<String>,
    /// The place of the node that stands for it among [`Host::nodes`]: its kind is the framework's
    /// name, its parameters are what is said of the framework.
    pub node: usize,
    /// The whole block, closing brace included.
    pub span: Span,
}

/// Kind of a domain of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DomainKind {
    /// A thread of the process that has the host's first domain.
    Thread,
    /// A process of its own.
    #[default]
    Process,
    /// A place where programs attach, with protocols of their own.
    Open,
}

impl DomainKind {
    /// All of them, with the words for them.
    pub const ALL: [(&'static str, Self); 3] =
        [("thread", Self::Thread), ("process", Self::Process), ("open", Self::Open)];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }
}

/// A part of a host that runs apart from the others: it has a kernel of its own.
#[derive(Debug, Clone, Default)]
pub struct Domain {
    /// The domain's name.
    pub name: Spanned<String>,
    /// Kind of the domain.
    pub kind: DomainKind,
    /// The properties.
    pub params: Vec<Param>,
    /// The children `grant`: what programs may attach to.
    pub grants: Vec<ParamBlock>,
    /// The whole domain, closing brace included.
    pub span: Span,
}

impl Domain {
    /// The property of this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        find(&self.params, name)
    }
}

/// One protocol of a host.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The place of its domain among [`Host::domains`]; `None` for the host's first.
    pub domain: Option<usize>,
    /// The place of its subsystem among [`Host::subsystems`]; `None` for a node of the x-kernel,
    /// and for one that stands for a subsystem.
    pub subsystem: Option<usize>,
    /// The protocol's kind.
    pub kind: Spanned<String>,
    /// The instance's name: the property `name`, or else the kind.
    pub name: Spanned<String>,
    /// The names of the nodes it stands on, in order.
    pub lowers: Vec<Spanned<String>>,
    /// The parameters written as properties, `name` excepted.
    pub params: Vec<Param>,
    /// The parameters written as children.
    pub children: Vec<ParamBlock>,
    /// The whole node, closing brace included.
    pub span: Span,
}

impl Node {
    /// The property of this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        find(&self.params, name)
    }

    /// The children of this name, in order.
    pub fn blocks<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ParamBlock> {
        self.children.iter().filter(move |block| *block.name == name)
    }

    /// The type numbers that `number LOWER=N` children give this node, with the lower's name. A
    /// number that is none is reported; whether the lower is right, and the range on it, is the
    /// caller's to check.
    pub fn numbers(&self, diagnostics: &mut Diagnostics) -> Vec<(Spanned<String>, Spanned<u64>)> {
        let mut numbers = Vec::new();
        for block in self.blocks("number") {
            if block.params.is_empty() || !block.args.is_empty() || !block.children.is_empty() {
                diagnostics
                    .error(block.span, "this type number cannot be read")
                    .expected("`number LOWER=N`");
            }
            for param in &block.params {
                let value = &param.value;
                if let Some(number) = value.integer(diagnostics, 0..=u64::MAX) {
                    numbers.push((param.name.clone(), Spanned::new(number, value.span)));
                }
            }
        }
        numbers
    }
}

/// A property: `name=value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// The parameter's name.
    pub name: Spanned<String>,
    /// Value of the parameter.
    pub value: Spanned<Value>,
}

impl Param {
    /// The place of the whole property.
    pub fn span(&self) -> Span {
        self.name.span.to(self.value.span)
    }
}

/// A parameter written as a child: a name, then values, properties and children of its own.
#[derive(Debug, Clone, Default)]
pub struct ParamBlock {
    /// The parameter's name.
    pub name: Spanned<String>,
    /// The values behind the name.
    pub args: Vec<Spanned<Value>>,
    /// The properties.
    pub params: Vec<Param>,
    /// The children.
    pub children: Vec<ParamBlock>,
    /// The whole block, closing brace included.
    pub span: Span,
}

impl ParamBlock {
    /// The property of this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        find(&self.params, name)
    }

    /// The children of this name, in order.
    pub fn blocks<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ParamBlock> {
        self.children.iter().filter(move |block| *block.name == name)
    }
}

/// A link that simulated wires hang on.
#[derive(Debug, Clone, Default)]
pub struct Link {
    /// The link's name.
    pub name: Spanned<String>,
    /// The properties: kind, delay, rate, loss and so on.
    pub params: Vec<Param>,
    /// The children, partitions for example.
    pub children: Vec<ParamBlock>,
    /// The whole link, closing brace included.
    pub span: Span,
}

impl Link {
    /// The property of this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        find(&self.params, name)
    }

    /// The children of this name, in order.
    pub fn blocks<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ParamBlock> {
        self.children.iter().filter(move |block| *block.name == name)
    }
}

fn find<'a>(params: &'a [Param], name: &str) -> Option<&'a Param> {
    params.iter().find(|param| *param.name == name)
}
