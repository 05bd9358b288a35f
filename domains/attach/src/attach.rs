//! The program's side of a domain `open`: connects, and joins with protocols of its own.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;

use xk_core::object::ProtocolId;
use xk_core::{Entry, Kernel, Node, ProtocolRef};
use xk_domains::ring::Ring;
use xk_domains::{Carrier, Known, Port, add_port, lower_proxy};
use xk_run::real_kernel;
use xk_shm::{Link, Options, Peers, ShmError};

use crate::questions::{DESK, Join, ListGrants, Own, PROTOCOLS_MAX, QUESTIONS, VERSION};

/// The bound of all messages of a program together, in octets.
const POOL_OCTETS_MAX: usize = 256 << 20;
/// Largest number of granted nodes that a program believes.
const NODES_MAX: u32 = 1 << 16;
/// Largest number of kinds of protocols that a process learns from others.
const KINDS_MAX: usize = 1024;

/// Why a program is not attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The program cannot connect to the domain.
    #[error("cannot attach: {0}")]
    Link(#[from] ShmError),
    /// The operating system refuses the program something.
    #[error("cannot attach: {0}")]
    System(#[from] io::Error),
    /// The domain does not answer, or has sent the program away.
    #[error(
        "cannot attach: the domain has sent this program away; it grants nothing to this user, or has as many programs as \
         it takes"
    )]
    SentAway,
    /// The domain speaks another version.
    #[error(
        "cannot attach: the domain speaks version {0}, this program {VERSION}; use the same xk"
    )]
    Version(u32),
    /// The domain's answer is malformed.
    #[error("cannot attach: the domain says what cannot be")]
    Malformed,
    /// The domain refuses a protocol.
    #[error("cannot attach: {0}; grant it where the domain is opened")]
    Refused(String),
}

/// A program that is attached to a graph of another process: a kernel with a stand-in for each node
/// that the program is granted, and with protocols of the program's own above them.
pub struct Attached {
    kernel: Rc<Kernel>,
    port: Rc<Port>,
    nodes: Vec<ProtocolRef>,
}

/// A name that lives as long as the process, as the names of kinds must.
fn kind(name: &str) -> Option<&'static str> {
    static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kinds = xk_run::lock(&KINDS);
    if let Some(kind) = kinds.get(name) {
        return Some(kind);
    }
    let is_kind = !name.is_empty() && name.len() <= 64 && name.is_ascii();
    if !is_kind || kinds.len() == KINDS_MAX {
        return None;
    }
    let kind: &'static str = String::leak(name.into());
    kinds.insert(kind);
    Some(kind)
}

/// Attaches this program to the graph whose domain is open at `path`.
///
/// # Errors
/// [`AttachError`].
pub fn attach(path: impl AsRef<Path>) -> Result<Attached, AttachError> {
    Attached::at(path.as_ref(), &[])
}

impl Attached {
    /// As [`attach`], for a program that knows the questions and reasons of protocols of these
    /// entries. What listens there has to be root's, this user's, or, in a folder in which no other
    /// user may write, the folder owner's or the socket owner's ([`Peers::at`]).
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn at(path: &Path, entries: &[&'static Entry]) -> Result<Self, AttachError> {
        let options = Options { peers: Peers::at(path), geometry: xk_domains::ring::geometry() };
        let link = Link::connect(path, &options)?;
        let kernel = Rc::new(real_kernel(POOL_OCTETS_MAX)?);
        Self::through(Box::new(Ring::new(link)), kernel, entries)
    }

    /// As [`at`](Self::at), through this carrier and in a kernel without protocols.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn through(
        carrier: Box<dyn Carrier>,
        kernel: Rc<Kernel>,
        entries: &[&'static Entry],
    ) -> Result<Self, AttachError> {
        let port =
            Port::new(carrier, Known::of(entries).with(&QUESTIONS).with(&xk_registry::QUESTIONS));
        let granted = port.ask_of(&kernel, DESK, ListGrants::default());
        let granted = granted.ok_or(AttachError::SentAway)?;
        if granted.version != VERSION {
            return Err(AttachError::Version(granted.version));
        }
        let highest = granted.nodes.iter().map(|node| node.number).max().unwrap_or(0);
        if highest >= NODES_MAX || granted.first <= highest {
            return Err(AttachError::Malformed);
        }
        let nothing = || Node { kind: "", name: "".into(), numbers_below: None };
        let mut nodes: Vec<Node> = (0..=highest).map(|_| nothing()).collect();
        for node in &granted.nodes {
            let kind = kind(&node.kind).ok_or(AttachError::Malformed)?;
            let is_new = nodes.iter().all(|other| *other.name != *node.name);
            match nodes.get_mut(node.number as usize) {
                Some(place) if is_new && !node.name.is_empty() => {
                    let name = node.name.as_str().into();
                    *place = Node { kind, name, numbers_below: None };
                }
                _ => return Err(AttachError::Malformed),
            }
        }
        kernel.join_host(nodes.clone(), granted.first);
        let stand_in = |(number, node): (usize, &Node)| {
            let of = ProtocolId(number as u32);
            lower_proxy(&kernel, &port, of, node.kind, &node.name)
        };
        let known = nodes.iter().enumerate().filter(|(_, node)| !node.name.is_empty());
        let nodes = known.map(stand_in).collect();
        add_port(&kernel, &port, "port");
        Ok(Self { kernel, port, nodes })
    }

    /// The kernel: protocols of the program's own are added to it ([`Kernel::add_protocol`]), above
    /// what [`find`](Self::find) gives.
    pub fn kernel(&self) -> &Rc<Kernel> {
        &self.kernel
    }

    /// Returns the stand-ins of the nodes that the program is granted.
    pub fn nodes(&self) -> &[ProtocolRef] {
        &self.nodes
    }

    /// Returns the stand-in of the node of this name.
    pub fn find(&self, name: &str) -> Option<&ProtocolRef> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// Announces the program's protocols to the domain: call this when all of them are in the
    /// kernel, and before they are started.
    ///
    /// # Errors
    /// [`AttachError::Refused`] if one is not granted what it needs, [`AttachError::SentAway`] if
    /// the domain is gone.
    pub fn join(&self) -> Result<(), AttachError> {
        let own = self.kernel.protocols().into_iter().filter(|protocol| {
            let is_node = self.nodes.contains(protocol);
            !is_node && protocol.head().kind() != "port"
        });
        let own = own.map(|protocol| {
            let id = protocol.id();
            let types = self
                .nodes
                .iter()
                .filter_map(|node| Some((node.id().0, self.kernel.type_number(id, node.id())?)));
            Own { number: id.0, name: protocol.name().into(), types: types.collect() }
        });
        let protocols: Vec<Own> = own.collect();
        if protocols.len() > PROTOCOLS_MAX {
            let what = format!("a program has {PROTOCOLS_MAX} protocols at most");
            return Err(AttachError::Refused(what));
        }
        let join = Join { protocols, refusal: String::new() };
        let joined = self.port.ask_of(&self.kernel, DESK, join).ok_or(AttachError::SentAway)?;
        match joined.refusal {
            refusal if refusal.is_empty() => Ok(()),
            refusal => Err(AttachError::Refused(refusal)),
        }
    }

    /// True once the domain is gone.
    pub fn is_lost(&self) -> bool {
        self.port.is_lost()
    }
}
