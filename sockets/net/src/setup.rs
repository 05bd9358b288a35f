//! Makes the stack of one host of a graph, given as text.

use crate::driver::{Here, Thread};
#[cfg(feature = "attach")]
use crate::layer::Loss;
use crate::layer::{Layer, Limits, ORDERED, PARTIAL, Places, Sockets};
use crate::stack::Stack;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use xk_compose::{HostSetup, OpenHost};
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_lang::HostInstance;
#[cfg(feature = "attach")]
use xk_registry::Program;
use xk_run::{Idle, Runner};

/// Description of a stack: a graph, the protocols that it may name, one of its hosts, and how its
/// loop idles.
#[derive(Clone)]
pub struct Setup {
    host: HostSetup,
    /// Path of an open domain, if sockets stand on its nodes, and whether a library of the program
    /// carries on the connections that it sets up.
    #[cfg(feature = "attach")]
    at: Option<(std::path::PathBuf, bool)>,
    tcp: Option<String>,
    udp: Option<String>,
    limits: Limits,
    once_open: Arc<Work>,
}

type Work = dyn Fn(&Rc<Runner>, &HostInstance<'_>) -> io::Result<()> + Send + Sync;

fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Setup {
    /// Takes the graph from a file. `entries` are the protocols that it may name: those that the
    /// program links, or the whole list, `xk_catalog::PROTOCOLS`.
    ///
    /// # Errors
    /// If it cannot be read or is no UTF-8 text.
    pub fn from_file(path: impl AsRef<Path>, entries: &[&'static Entry]) -> io::Result<Self> {
        HostSetup::from_file(path, entries).map(Self::new)
    }

    /// Takes the graph from a text. `entries` are the protocols that it may name.
    pub fn from_text(text: impl Into<String>, entries: &[&'static Entry]) -> Self {
        Self::new(HostSetup::from_text(text, entries))
    }

    /// Makes sockets on a graph that another process runs, whose domain is open at `path`: on the
    /// `tcp` and `udp` that it grants to this user. The program knows the questions and reasons of
    /// the protocols in `entries`. [`host`](Self::host) and [`once_open`](Self::once_open) have no
    /// effect.
    #[cfg(feature = "attach")]
    pub fn attached(path: impl AsRef<Path>, entries: &[&'static Entry]) -> Self {
        Self::at((path.as_ref().to_owned(), false), entries)
    }

    /// Makes sockets on a protocol library. The registry whose domain is open at `path` sets up
    /// connections of the transports that it grants to this user; a stack of the program's own, of
    /// the protocols in `entries`, carries them on. Their frames use a channel of the network I/O
    /// module and pass no other process. A connection for which the registry has no right to give
    /// goes on through the registry.
    ///
    /// Datagrams use the channel too, if the domain grants a `udp` and the program links one: those
    /// between this host and another that fit a frame. Longer ones, and those for many hosts, go
    /// through the registry.
    ///
    /// [`host`](Self::host) and [`once_open`](Self::once_open) have no effect.
    #[cfg(feature = "attach")]
    pub fn library(path: impl AsRef<Path>, entries: &[&'static Entry]) -> Self {
        Self::at((path.as_ref().to_owned(), true), entries)
    }

    #[cfg(feature = "attach")]
    fn at(at: (std::path::PathBuf, bool), entries: &[&'static Entry]) -> Self {
        Self { at: Some(at), ..Self::new(HostSetup::from_text("", entries)) }
    }

    fn new(host: HostSetup) -> Self {
        Self {
            host,
            #[cfg(feature = "attach")]
            at: None,
            tcp: None,
            udp: None,
            limits: Limits::default(),
            once_open: Arc::new(|_, _| Ok(())),
        }
    }

    /// Selects a host of the graph; not needed if it has only one.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host.host = Some(name.into());
        self
    }

    /// Selects the node for streams; not needed if the host has one `tcp`.
    #[must_use]
    pub fn tcp(mut self, node: impl Into<String>) -> Self {
        self.tcp = Some(node.into());
        self
    }

    /// Selects the node for datagrams; not needed if the host has one `udp`.
    #[must_use]
    pub fn udp(mut self, node: impl Into<String>) -> Self {
        self.udp = Some(node.into());
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

    /// Sets the largest number of sockets.
    #[must_use]
    pub fn sockets_max(mut self, count: u32) -> Self {
        self.limits.sockets_max = count;
        self
    }

    /// Sets a function that the stack's thread runs once its devices are open, before its loop
    /// starts: for example to give up the privileges that opening them needed, or to watch the loop
    /// of this host. If it fails, there is no stack.
    #[must_use]
    pub fn once_open<F>(mut self, work: F) -> Self
    where
        F: Fn(&Rc<Runner>, &HostInstance<'_>) -> io::Result<()> + Send + Sync + 'static,
    {
        self.once_open = Arc::new(work);
        self
    }

    /// Makes a stack that the calling thread drives; no other thread takes part.
    ///
    /// # Errors
    /// The mistakes of the graph, or what this machine lacks for it.
    pub fn here(&self) -> io::Result<Stack<Here>> {
        let made = self.make(Sockets::new(self.limits))?;
        Ok(Stack::new(Here::new(made)))
    }

    /// Makes a stack with a thread of its own.
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
    pub(crate) fn make(&self, sockets: Sockets) -> io::Result<OpenHost<Rc<Layer>>> {
        let stand = |kernel: &Kernel, places| stand(kernel, sockets, places);
        #[cfg(feature = "attach")]
        if let Some((path, is_library)) = &self.at {
            return self.attach(path, *is_library, stand);
        }
        let on_top = |kernel: &Kernel, _: &HostInstance<'_>, _: &_| {
            let places = self.places(kernel)?;
            stand(kernel, places)
        };
        self.host.open(on_top, &*self.once_open)
    }

    fn places(&self, kernel: &Kernel) -> io::Result<Places> {
        places(kernel, self.tcp.as_deref(), self.udp.as_deref())
    }

    /// The kernel of an attached program, and its loop.
    #[cfg(feature = "attach")]
    fn attach(
        &self,
        path: &Path,
        is_library: bool,
        stand: impl FnOnce(&Kernel, Places) -> io::Result<Rc<Layer>>,
    ) -> io::Result<OpenHost<Rc<Layer>>> {
        let refused = |error| io::Error::new(io::ErrorKind::PermissionDenied, error);
        let here = xk_attach::Attached::at(path, self.host.entries()).map_err(refused)?;
        let kernel = Rc::clone(here.kernel());
        let mut places = self.places(&kernel)?;
        let program = match is_library {
            true => Some(Rc::new(self.member(&kernel, &mut places)?)),
            false => None,
        };
        let top = stand(&kernel, places)?;
        here.join().map_err(refused)?;
        if let Some(program) = &program {
            self.build(&kernel, program)?;
            let program = Rc::clone(program);
            top.leave_by(move |cx| program.leave(cx));
        }
        top.watch_losses(move || match (&program, here.is_lost()) {
            (Some(program), _) if program.is_cut_off() => Loss::All,
            (Some(_), true) => Loss::Beginning,
            (None, true) => Loss::All,
            (_, false) => Loss::None,
        });
        let runner = Rc::new(Runner::new(Rc::clone(&kernel), self.host.idle)?);
        runner.start().map_err(|(protocol, error)| {
            io::Error::other(format!("`{}` cannot start: {error}", protocol.name()))
        })?;
        Ok(OpenHost { kernel, runner, top })
    }

    /// Puts a library on what stands for the registry's transports.
    #[cfg(feature = "attach")]
    fn member(&self, kernel: &Kernel, places: &mut Places) -> io::Result<Program> {
        let registry = node(kernel, "registry", None)?;
        let (Some(registry), Some(tcp)) = (registry, places.tcp.take()) else {
            return Err(refused(
                "the domain grants no `registry` to this user, or no `tcp`; grant both where it \
                 is opened"
                    .into(),
            ));
        };
        let program = Program::add(kernel, "library", tcp, registry);
        places.tcp = Some(program.library().clone());
        let is_linked = |udp: &ProtocolRef| {
            self.host.entries().iter().any(|entry| entry.kind == udp.head().kind())
        };
        if let Some(udp) = places.udp.take_if(|udp| is_linked(udp)) {
            places.udp = Some(program.add_datagrams(kernel, "datagrams", udp));
        }
        Ok(program)
    }

    /// Builds the stack of a library.
    #[cfg(feature = "attach")]
    fn build(&self, kernel: &Kernel, program: &Program) -> io::Result<()> {
        let mut why = None;
        let fetch = |_: &Kernel, ticket: &_, door: &str| {
            let fetched = xk_netio::node::connect(door, ticket);
            let fetched = fetched.map_err(|error| why = Some(format!("{door}: {error}")));
            fetched.ok().map(|carrier| carrier as Box<_>)
        };
        let built = program.build(kernel, self.host.entries(), fetch);
        built.map_err(|error| {
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            io::Error::new(io::ErrorKind::PermissionDenied, format!("{error}{why}"))
        })
    }
}

/// Sockets on a kernel whose graph is built, on its only `tcp` and `udp`.
pub(crate) fn stand_on(kernel: &Kernel) -> io::Result<Rc<Layer>> {
    stand(kernel, Sockets::new(Limits::default()), places(kernel, None, None)?)
}

fn stand(kernel: &Kernel, sockets: Sockets, places: Places) -> io::Result<Rc<Layer>> {
    if places.tcp.is_none() && places.udp.is_none() && places.partial.is_none() {
        return Err(refused("the host has neither `tcp` nor `udp` for sockets to stand on".into()));
    }
    let layer = sockets.layer();
    layer.stand(kernel, sockets, places);
    Ok(layer)
}

fn places(kernel: &Kernel, tcp: Option<&str>, udp: Option<&str>) -> io::Result<Places> {
    let partial = PARTIAL.iter().map(|kind| node(kernel, kind, None).unwrap_or_default());
    Ok(Places {
        tcp: node(kernel, "tcp", tcp)?,
        udp: node(kernel, "udp", udp)?,
        ordered: node(kernel, ORDERED, None).unwrap_or_default(),
        partial: partial.flatten().next(),
    })
}

/// The node of this name, or the only one of this kind; none if there is none and none was named.
fn node(kernel: &Kernel, kind: &str, name: Option<&str>) -> io::Result<Option<ProtocolRef>> {
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
