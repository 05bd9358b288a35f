//! From the text of a graph to the stack of one of its hosts.

use crate::entrance::Entrance;
use crate::error::{Error, ErrorKind};
use crate::inside::{Inside, Naming};
use crate::stack::{Here, Stack};
use std::fmt::Display;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xk_catalog::Catalog;
use xk_compose::CheckedGraph;
use xk_core::Kernel;
use xk_core::graph::Family;
use xk_kit::passthrough::EpochOffset;
use xk_lang::{HostInstance, Node, SOURCE_OCTETS_MAX, Severity};
use xk_run::{Idle, Runner, real_kernel};

/// The bound of all messages together, in octets.
const POOL_OCTETS_MAX: usize = 256 << 20;

/// What a stack is made of: a graph, one of its hosts, the node that is called, and how its loop
/// rests.
#[derive(Clone, Debug)]
pub struct Setup {
    text: String,
    name: String,
    host: Option<String>,
    node: Option<String>,
    idle: Idle,
    pool_octets_max: usize,
}

fn refused(text: impl Display) -> Error {
    ErrorKind::Graph(text.to_string()).into()
}

impl Setup {
    /// The graph in a file.
    ///
    /// # Errors
    /// If it cannot be read or is no UTF-8 text.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let fail = |error: std::io::Error| refused(format!("{}: {error}", path.display()));
        let mut text = String::new();
        // One octet more than allowed, so that the parser says that it is too long.
        let limit = SOURCE_OCTETS_MAX as u64 + 1;
        std::fs::File::open(path)
            .map_err(fail)?
            .take(limit)
            .read_to_string(&mut text)
            .map_err(fail)?;
        Ok(Self::new(text, path.display().to_string()))
    }

    /// The graph in a text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::new(text.into(), "graph".into())
    }

    fn new(text: String, name: String) -> Self {
        Self {
            text,
            name,
            host: None,
            node: None,
            idle: Idle::default(),
            pool_octets_max: POOL_OCTETS_MAX,
        }
    }

    /// Which host of the graph; not needed if it has only one.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Which node is called and serves; not needed if the host has one at the top of its RPC
    /// layers.
    #[must_use]
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// What the stack does when nothing comes.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// The bound of all messages together, in octets.
    #[must_use]
    pub fn pool_octets_max(mut self, octets: usize) -> Self {
        self.pool_octets_max = octets;
        self
    }

    /// A stack that whoever makes it drives: no other thread takes part.
    ///
    /// # Errors
    /// The mistakes of the graph, or what this machine lacks for it.
    pub fn here(&self) -> Result<Here, Error> {
        let entrance = Arc::new(Entrance::new().map_err(refused)?);
        let made = self.make(&entrance)?;
        Ok(Here::new(entrance, made))
    }

    /// A stack with a thread of its own.
    ///
    /// # Errors
    /// As for [`Setup::here`], or if there can be no thread.
    pub fn thread(&self) -> Result<Stack, Error> {
        Stack::spawn(self.clone())
    }

    /// The kernel with the calls on top, started, and its loop.
    pub(crate) fn make(&self, entrance: &Arc<Entrance>) -> Result<Made, Error> {
        let graph = xk_compose::check(&self.text, &self.name, &Catalog::standard())
            .map_err(|mistakes| refused(mistakes.to_text()))?;
        let host = self.pick(&graph)?;
        let missing = xk_compose::check_environment(&graph, Some(&host.name), Severity::Error);
        if missing.has_errors() {
            return Err(refused(missing.to_text()));
        }
        let kernel = Rc::new(real_kernel(self.pool_octets_max).map_err(refused)?);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        kernel.surround(Rc::new(EpochOffset(since_1970.unwrap_or(Duration::ZERO))));
        xk_compose::build(&graph, &host, &kernel).map_err(|found| refused(found.to_text()))?;
        let inside = Rc::new(Inside::default());
        self.stand(&host, &kernel, &inside, entrance)?;
        xk_compose::start(&graph, &host, &kernel).map_err(|found| refused(found.to_text()))?;
        let runner = Runner::new(Rc::clone(&kernel), self.idle).map_err(refused)?;
        Ok(Made { kernel, inside, runner })
    }

    /// The host that is meant.
    fn pick<'g>(&self, graph: &'g CheckedGraph) -> Result<HostInstance<'g>, Error> {
        if let Some(name) = &self.host {
            let none = || refused(format!("the graph has no host `{name}`"));
            return graph.host(name).ok_or_else(none);
        }
        let mut all = graph.graph().expand();
        match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(refused("the graph has no host")),
            (Some(_), more) => {
                Err(refused(format!("the graph has {} hosts: choose one by its name", more + 1)))
            }
        }
    }

    /// Puts the calls onto the node that is meant.
    fn stand(
        &self,
        host: &HostInstance<'_>,
        kernel: &Kernel,
        inside: &Rc<Inside>,
        entrance: &Arc<Entrance>,
    ) -> Result<(), Error> {
        let name = match &self.node {
            Some(name) => name.clone(),
            None => top(host)?,
        };
        let none = || refused(format!("the host has no node `{name}`"));
        let node = kernel.find_protocol(&name).ok_or_else(none)?;
        let Some(naming) = naming(&host.nodes(), &name) else {
            let what = format!("`{name}` takes no calls by procedures or programs");
            return Err(refused(what));
        };
        inside.stand(kernel, entrance, node, naming);
        Ok(())
    }
}

/// How this node names procedures; one that passes addresses through, as the node below it does.
fn naming(nodes: &[Node], name: &str) -> Option<Naming> {
    let mut name = name;
    // As many steps as there are nodes: an end in any circle.
    for _ in nodes {
        let node = nodes.iter().find(|node| *node.name == *name)?;
        match xk_catalog::find(&node.kind)?.above {
            Family::Other("procedures") => return Some(Naming::Procedures),
            Family::Other("programs") => return Some(Naming::Programs),
            Family::Inherit => name = node.lowers.first()?.as_str(),
            _ => return None,
        }
    }
    None
}

/// The RPC layer of the host on which no other one stands.
fn top(host: &HostInstance<'_>) -> Result<String, Error> {
    let nodes = host.nodes();
    let takes_calls = |node: &&Node| naming(&nodes, &node.name).is_some();
    let layers: Vec<_> = nodes.iter().filter(takes_calls).collect();
    let is_below = |name: &str| {
        let mut lowers = layers.iter().flat_map(|node| &node.lowers);
        lowers.any(|lower| lower.as_str() == name)
    };
    let mut tops =
        layers.iter().map(|node| node.name.value.to_string()).filter(|name| !is_below(name));
    let first = tops.next();
    match (first, tops.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(refused(
            "the host has no layer that takes calls, such as `select`, `mrpc` or `sunprog`",
        )),
        (Some(first), Some(second)) => Err(refused(format!(
            "the host takes calls at `{first}` and at `{second}`: choose one by its name"
        ))),
    }
}

/// A kernel with the calls on top, and its loop.
pub(crate) struct Made {
    pub(crate) kernel: Rc<Kernel>,
    pub(crate) inside: Rc<Inside>,
    pub(crate) runner: Runner,
}
