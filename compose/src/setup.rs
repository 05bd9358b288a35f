//! Runs one host of a graph, given as text, on this machine.

use crate::{CheckedGraph, build, check, check_environment, started};
use std::fmt::Display;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xk_core::graph::Catalog;
use xk_core::{Entry, Kernel};
use xk_kit::passthrough::EpochOffset;
use xk_lang::{HostInstance, SOURCE_OCTETS_MAX, Severity};
use xk_run::{Idle, Runner, real_kernel};

/// The bound of all messages together, in octets, unless the program says another.
const POOL_OCTETS_MAX: usize = 256 << 20;

/// Description of a stack, whatever a program puts on top of it: a graph, the protocols that it may
/// name, one of its hosts, and how its loop idles.
#[derive(Clone)]
pub struct HostSetup {
    text: String,
    name: String,
    entries: Vec<&'static Entry>,
    /// Host of the graph; not needed if it has only one.
    pub host: Option<String>,
    /// Behaviour of the loop when nothing comes.
    pub idle: Idle,
    /// The bound of all messages together, in octets.
    pub pool_octets_max: usize,
}

/// One host of a graph, started.
pub struct OpenHost<T> {
    /// Kernel of the host.
    pub kernel: Rc<Kernel>,
    /// The kernel's loop.
    pub runner: Rc<Runner>,
    /// The program's own top.
    pub top: T,
}

fn invalid(error: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

fn other(error: impl Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl HostSetup {
    /// The graph in a file, of protocols of these entries.
    ///
    /// # Errors
    /// If it cannot be read or is no UTF-8 text.
    pub fn from_file(path: impl AsRef<Path>, entries: &[&'static Entry]) -> io::Result<Self> {
        let path = path.as_ref();
        let mut text = String::new();
        // One octet more than allowed, so that the parser says that it is too long.
        let limit = SOURCE_OCTETS_MAX as u64 + 1;
        std::fs::File::open(path)?.take(limit).read_to_string(&mut text)?;
        Ok(Self { name: path.display().to_string(), ..Self::from_text(text, entries) })
    }

    /// The graph in a text, of protocols of these entries.
    pub fn from_text(text: impl Into<String>, entries: &[&'static Entry]) -> Self {
        Self {
            text: text.into(),
            name: "graph".into(),
            entries: entries.to_vec(),
            host: None,
            idle: Idle::default(),
            pool_octets_max: POOL_OCTETS_MAX,
        }
    }

    /// The protocols that the graph may name.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// The host, built in a kernel of its own with what `stand` puts on top, and started.
    /// `once_open` is called then, before the loop turns: its devices are open.
    ///
    /// # Errors
    /// The mistakes of the graph, as [`io::ErrorKind::InvalidInput`]; what this machine lacks for
    /// it, as [`io::ErrorKind::Unsupported`]; what `stand` and `once_open` answer.
    pub fn open<T>(
        &self,
        stand: impl FnOnce(&Kernel, &HostInstance<'_>, &Catalog) -> io::Result<T>,
        once_open: impl FnOnce(&Rc<Runner>, &HostInstance<'_>) -> io::Result<()>,
    ) -> io::Result<OpenHost<T>> {
        let catalog = Catalog::new(&self.entries).map_err(invalid)?;
        let graph = check(&self.text, &self.name, &catalog).map_err(invalid)?;
        let host = self.pick(&graph)?;
        let kernel = Rc::new(real_kernel(self.pool_octets_max)?);
        // The kernel's clock begins when it is run, a moment from now.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        kernel.surround(Rc::new(EpochOffset(since_1970.unwrap_or(Duration::ZERO))));
        if let Err(error) = build(&graph, &host, &kernel) {
            // Only now: what a probe opens, a process that this program forks at that moment holds
            // until it runs another one, and the build would find it taken.
            drop(kernel);
            let missing = check_environment(&graph, Some(&host.name), Severity::Error);
            return Err(if missing.has_errors() {
                io::Error::new(io::ErrorKind::Unsupported, missing.to_string())
            } else {
                other(error)
            });
        }
        let top = stand(&kernel, &host, &catalog)?;
        let runner = Rc::new(Runner::new(Rc::clone(&kernel), self.idle)?);
        started(&graph, &host, runner.start()).map_err(other)?;
        once_open(&runner, &host)?;
        Ok(OpenHost { kernel, runner, top })
    }

    fn pick<'g>(&self, graph: &'g CheckedGraph) -> io::Result<HostInstance<'g>> {
        if let Some(name) = &self.host {
            let none = || invalid(format!("the graph has no host `{name}`"));
            return graph.host(name).ok_or_else(none);
        }
        let mut all = graph.graph().expand();
        match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(invalid("the graph has no host")),
            (Some(_), more) => {
                Err(invalid(format!("the graph has {} hosts: choose one by its name", more + 1)))
            }
        }
    }
}
