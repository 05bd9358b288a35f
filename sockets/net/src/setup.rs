//! From the text of a graph to the stack of one of its hosts.

use crate::driver::{Here, Thread};
use crate::layer::{Layer, Limits, Places, Sockets};
use crate::stack::Stack;
use std::fmt::{self, Display};
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xk_catalog::Catalog;
use xk_compose::CheckedGraph;
use xk_core::{Kernel, ProtocolRef};
use xk_kit::passthrough::EpochOffset;
use xk_lang::{HostInstance, SOURCE_OCTETS_MAX, Severity};
use xk_run::{Idle, Runner, real_kernel};

/// The bound of all messages together, in octets.
const POOL_OCTETS_MAX: usize = 256 << 20;

/// What a stack is made of: a graph, one of its hosts, and how its loop rests.
#[derive(Clone, Debug)]
pub struct Setup {
    text: String,
    name: String,
    host: Option<String>,
    tcp: Option<String>,
    udp: Option<String>,
    idle: Idle,
    pool_octets_max: usize,
    limits: Limits,
    once_open: OnceOpen,
}

type Work = dyn Fn(&Rc<Runner>, &HostInstance<'_>) -> io::Result<()> + Send + Sync;

#[derive(Clone)]
struct OnceOpen(Arc<Work>);

impl fmt::Debug for OnceOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnceOpen")
    }
}

fn other(error: impl Display) -> io::Error {
    io::Error::other(error.to_string())
}

fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Setup {
    /// The graph in a file.
    ///
    /// # Errors
    /// If it cannot be read or is no UTF-8 text.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let mut text = String::new();
        // One octet more than allowed, so that the parser says that it is too long.
        let limit = SOURCE_OCTETS_MAX as u64 + 1;
        std::fs::File::open(path)?.take(limit).read_to_string(&mut text)?;
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
            tcp: None,
            udp: None,
            idle: Idle::default(),
            pool_octets_max: POOL_OCTETS_MAX,
            limits: Limits::default(),
            once_open: OnceOpen(Arc::new(|_, _| Ok(()))),
        }
    }

    /// Which host of the graph; not needed if it has only one.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// On which node streams stand; not needed if the host has one `tcp`.
    #[must_use]
    pub fn tcp(mut self, node: impl Into<String>) -> Self {
        self.tcp = Some(node.into());
        self
    }

    /// On which node datagrams stand; not needed if the host has one `udp`.
    #[must_use]
    pub fn udp(mut self, node: impl Into<String>) -> Self {
        self.udp = Some(node.into());
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

    /// How many sockets there may be.
    #[must_use]
    pub fn sockets_max(mut self, count: u32) -> Self {
        self.limits.sockets_max = count;
        self
    }

    /// What the stack's thread does once its devices are open and before its loop turns, such as to
    /// give up what it took to open them, or to watch the loop of this host; if that fails, there
    /// is no stack.
    #[must_use]
    pub fn once_open<F>(mut self, work: F) -> Self
    where
        F: Fn(&Rc<Runner>, &HostInstance<'_>) -> io::Result<()> + Send + Sync + 'static,
    {
        self.once_open = OnceOpen(Arc::new(work));
        self
    }

    /// A stack that whoever calls it drives: no other thread takes part.
    ///
    /// # Errors
    /// The mistakes of the graph, or what this machine lacks for it.
    pub fn here(&self) -> io::Result<Stack<Here>> {
        let made = self.make(Sockets::new(self.limits))?;
        Ok(Stack::new(Here::new(made)))
    }

    /// A stack with a thread of its own.
    ///
    /// # Errors
    /// As for [`Setup::here`], or if there can be no thread.
    pub fn thread(&self) -> io::Result<Stack<Thread>> {
        Thread::spawn(self.clone()).map(Stack::new)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The kernel with `sockets` on top, started, and its loop.
    pub(crate) fn make(&self, sockets: Sockets) -> io::Result<Made> {
        let graph = xk_compose::check(&self.text, &self.name, &Catalog::standard())
            .map_err(|mistakes| refused(mistakes.to_text()))?;
        let host = self.pick(&graph)?;
        let missing = xk_compose::check_environment(&graph, Some(&host.name), Severity::Error);
        if missing.has_errors() {
            return Err(other(missing.to_text()));
        }
        let kernel = Rc::new(real_kernel(self.pool_octets_max)?);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        kernel.surround(Rc::new(EpochOffset(since_1970.unwrap_or(Duration::ZERO))));
        xk_compose::build(&graph, &host, &kernel).map_err(|found| other(found.to_text()))?;
        let places = Places {
            tcp: self.node(&kernel, "tcp", self.tcp.as_deref())?,
            udp: self.node(&kernel, "udp", self.udp.as_deref())?,
        };
        if places.tcp.is_none() && places.udp.is_none() {
            return Err(refused(
                "the host has neither `tcp` nor `udp` for sockets to stand on".into(),
            ));
        }
        let layer = sockets.layer();
        layer.stand(&kernel, sockets, places);
        xk_compose::start(&graph, &host, &kernel).map_err(|found| other(found.to_text()))?;
        let runner = Rc::new(Runner::new(Rc::clone(&kernel), self.idle)?);
        (self.once_open.0)(&runner, &host)?;
        Ok(Made { kernel, layer, runner })
    }

    /// The host that is meant.
    fn pick<'g>(&self, graph: &'g CheckedGraph) -> io::Result<HostInstance<'g>> {
        if let Some(name) = &self.host {
            let none = || refused(format!("the graph has no host `{name}`"));
            return graph.host(name).ok_or_else(none);
        }
        let mut all = graph.graph().expand();
        match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(refused("the graph has no host".into())),
            (Some(_), more) => {
                Err(refused(format!("the graph has {} hosts: choose one by its name", more + 1)))
            }
        }
    }

    /// The node of this name, or the only one of this kind; none if there is none and none was
    /// named.
    fn node(
        &self,
        kernel: &Kernel,
        kind: &str,
        name: Option<&str>,
    ) -> io::Result<Option<ProtocolRef>> {
        if let Some(name) = name {
            let found = kernel.find_protocol(name);
            return match found {
                Some(node) => Ok(Some(node)),
                None => Err(refused(format!("the host has no node `{name}`"))),
            };
        }
        let mut all = kernel.protocols();
        all.retain(|protocol| protocol.head().kind() == kind);
        match all.len() {
            0 | 1 => Ok(all.pop()),
            count => Err(refused(format!(
                "the host has {count} nodes of the kind `{kind}`: choose one by its name"
            ))),
        }
    }
}

/// A kernel with sockets on top, and its loop.
pub(crate) struct Made {
    pub(crate) kernel: Rc<Kernel>,
    pub(crate) layer: Rc<Layer>,
    pub(crate) runner: Rc<Runner>,
}
