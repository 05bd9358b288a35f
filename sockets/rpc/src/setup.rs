//! Makes the stack of one host of a graph, given as text.

use crate::error::{Error, ErrorKind};
use crate::reactor::{CommandQueue, Naming, Reactor};
use crate::stack::{Here, Stack};
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use xk_compose::{HostSetup, OpenHost};
use xk_core::graph::{Catalog, Family};
use xk_core::{Entry, Kernel};
use xk_lang::{HostInstance, Node};
use xk_run::Idle;

/// Description of a stack: a graph, the protocols that it may name, one of its hosts, the node that
/// is called, and how its loop idles.
#[derive(Clone)]
pub struct Setup {
    host: HostSetup,
    node: Option<String>,
}

fn refused(error: impl Display) -> Error {
    ErrorKind::Graph(error.to_string()).into()
}

impl Setup {
    /// Takes the graph from a file. `entries` are the protocols that it may name: those that the
    /// program links, or the whole list, `xk_catalog::PROTOCOLS`.
    ///
    /// # Errors
    /// If it cannot be read or is no UTF-8 text.
    pub fn from_file(path: impl AsRef<Path>, entries: &[&'static Entry]) -> Result<Self, Error> {
        let path = path.as_ref();
        let fail = |error| refused(format!("{}: {error}", path.display()));
        let host = HostSetup::from_file(path, entries).map_err(fail)?;
        Ok(Self { host, node: None })
    }

    /// Takes the graph from a text. `entries` are the protocols that it may name.
    pub fn from_text(text: impl Into<String>, entries: &[&'static Entry]) -> Self {
        Self { host: HostSetup::from_text(text, entries), node: None }
    }

    /// Selects a host of the graph; not needed if it has only one.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host.host = Some(name.into());
        self
    }

    /// Selects the node that calls and serves; not needed if the host has one at the top of its RPC
    /// layers.
    #[must_use]
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// Sets the behaviour of the loop when there is nothing to do.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.host.idle = idle;
        self
    }

    /// Sets the bound of all messages together, in octets.
    #[must_use]
    pub fn pool_octets_max(mut self, octets: usize) -> Self {
        self.host.pool_octets_max = octets;
        self
    }

    /// Makes a stack that the calling thread drives; no other thread takes part.
    ///
    /// # Errors
    /// The mistakes of the graph, or what this machine lacks for it.
    pub fn here(&self) -> Result<Here, Error> {
        let commands = Arc::new(CommandQueue::new().map_err(refused)?);
        let made = self.make(&commands)?;
        Ok(Here::new(commands, made))
    }

    /// Makes a stack with a thread of its own.
    ///
    /// # Errors
    /// As for [`Setup::here`], or if there can be no thread.
    pub fn thread(&self) -> Result<Stack, Error> {
        Stack::spawn(self.clone())
    }

    /// The kernel with the calls on top, started, and its loop.
    pub(crate) fn make(
        &self,
        commands: &Arc<CommandQueue>,
    ) -> Result<OpenHost<Rc<Reactor>>, Error> {
        let stand = |kernel: &Kernel, host: &HostInstance<'_>, catalog: &Catalog| {
            let reactor = Rc::new(Reactor::default());
            self.stand((host, catalog), kernel, &reactor, commands).map_err(io::Error::other)?;
            Ok(reactor)
        };
        self.host.open(stand, |_, _| Ok(())).map_err(refused)
    }

    /// Puts the calls onto the node that is meant.
    fn stand(
        &self,
        (host, catalog): (&HostInstance<'_>, &Catalog),
        kernel: &Kernel,
        reactor: &Rc<Reactor>,
        commands: &Arc<CommandQueue>,
    ) -> Result<(), Error> {
        let name = match &self.node {
            Some(name) => name.clone(),
            None => top(host, catalog)?,
        };
        let none = || refused(format!("the host has no node `{name}`"));
        let node = kernel.find_protocol(&name).ok_or_else(none)?;
        let Some(naming) = naming(&host.nodes(), &name, catalog) else {
            let what = format!("`{name}` takes no calls by procedures or programs");
            return Err(refused(what));
        };
        reactor.stand(kernel, commands, node, naming);
        Ok(())
    }
}

/// Way in which this node names procedures; a node that passes addresses through names them as the
/// node below it does.
fn naming(nodes: &[Node], name: &str, catalog: &Catalog) -> Option<Naming> {
    let mut name = name;
    // As many steps as there are nodes: an end in any circle.
    for _ in nodes {
        let node = nodes.iter().find(|node| *node.name == *name)?;
        match catalog.find(&node.kind)?.above {
            Family::Other("procedures" | "entities") => return Some(Naming::Procedures),
            Family::Other("programs") => return Some(Naming::Programs),
            Family::Inherit => name = node.lowers.first()?.as_str(),
            _ => return None,
        }
    }
    None
}

/// The RPC layer of the host on which no other one stands.
fn top(host: &HostInstance<'_>, catalog: &Catalog) -> Result<String, Error> {
    let nodes = host.nodes();
    let takes_calls = |node: &&Node| naming(&nodes, &node.name, catalog).is_some();
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
