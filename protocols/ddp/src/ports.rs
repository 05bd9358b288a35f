//! The ports: the links that it stands on, what is known of each, and the address it has there.

use alloc::format;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::addr::{BROADCAST, NET_ANY, NODES, NetRange, Node, START_UP};
use xk_appletalk::ddp::{Cable, NextHop};
use xk_appletalk::name::Name;
use xk_core::graph::{Build, BuildError, Params};
use xk_core::object::ProtocolId;
use xk_core::{Kernel, ProtocolRef, SessionRef};
use xk_kit::control::MyEther;
use xk_kit::net::appletalk::{ClaimNode, NetRoute};

/// One link.
pub(crate) struct Port {
    pub(crate) lower: ProtocolRef,
    pub(crate) cable: Cell<Cable>,
    /// Whether the networks are known, from the graph or by a router.
    pub(crate) is_known: Cell<bool>,
    /// Whether the address in `cable` is one's own.
    pub(crate) is_ready: Cell<bool>,
    pub(crate) zone: RefCell<Name>,
    /// The node number that the graph gives; 0: any.
    node: u8,
}

/// Form of a zone.
const ZONE: &str = "a zone, of at most 32 characters that AppleTalk has";

impl Port {
    fn read(lower: ProtocolRef, params: &Params) -> Result<Self, BuildError> {
        let range = params.parse::<NetRange>("net", crate::NETWORKS)?;
        let zone = params.text("zone").unwrap_or_default();
        let zone = Name::from_text(zone).map_err(|_| BuildError::param("zone", ZONE))?;
        let node = params.number("node", 0u8);
        let in_range = range.unwrap_or(START_UP);
        let me = Node::new(in_range.first(), node.max(*NODES.start()));
        Ok(Self {
            lower,
            cable: Cell::new(Cable { range: in_range, ..Cable::new(me) }),
            is_known: Cell::new(range.is_some()),
            is_ready: Cell::new(false),
            zone: RefCell::new(zone),
            node,
        })
    }

    /// All ports, in the order of the graph.
    pub(crate) fn all(build: &Build<'_>) -> Result<Vec<Self>, BuildError> {
        let blocks: Vec<&Params> = build.params.blocks("port").collect();
        let (below, named) = (build.lowers.len(), blocks.len());
        if below == 1 && named == 0 {
            return Ok([Self::read(build.lower(0)?, build.params)?].into());
        }
        if below > named {
            let expected = format!("a `port` block for each of the {below}; it has {named}");
            return Err(BuildError::param("layers below", expected));
        }
        let wrong = |index, expected| BuildError::Param { name: "port", index, expected };
        let mut ports: Vec<Self> = Vec::new();
        for (at, params) in blocks.into_iter().enumerate() {
            let Some(lower) = build.lowers.get(at) else {
                return Err(wrong(at, format!("no more of them than layers below, {below}")));
            };
            let port = Self::read(lower.clone(), params)?;
            let range = port.cable.get().range;
            let others = ports.iter().filter(|other| other.is_known.get() && port.is_known.get());
            let mut others = others.map(|other| other.cable.get().range);
            if let Some(other) = others.find(|other| other.overlaps(range)) {
                let expected =
                    format!("networks that no other port has, unlike {range} and {other}");
                return Err(wrong(at, expected));
            }
            ports.push(port);
        }
        Ok(ports)
    }

    /// Claims an address of the cable's networks: the given node, if there is one. The address at
    /// hand is kept until there is another.
    pub(crate) fn claim(&self, cx: &Kernel, at: usize) {
        let Cable { me, range, .. } = self.cable.get();
        let net = if range.contains(me.net) { me.net } else { range.first() };
        // One that was chosen by chance is tried again in other networks.
        let node = if self.node == 0 && !self.is_ready.get() { 0 } else { me.node };
        let (first, last) = (range.first(), range.last());
        let claim = ClaimNode { claim: at as u8, first, last, net, node, is_only: self.node != 0 };
        if self.lower.ask(cx, claim).is_none() {
            self.cable.set(Cable { me: Node::new(net, me.node), ..self.cable.get() });
            self.is_ready.set(true);
        }
    }

    /// True if this network is one of the cable's.
    pub(crate) fn has(&self, net: u16) -> bool {
        self.cable.get().range.contains(net)
    }
}

/// All ports, and the ways to networks behind others.
pub(crate) struct Ports {
    pub(crate) list: Vec<Port>,
    pub(crate) routes: RefCell<Vec<NetRoute>>,
    /// Protocols whose sessions are over a port.
    known: RefCell<Vec<(ProtocolId, usize)>>,
}

/// Protocols below that are remembered.
const KNOWN_MAX: usize = 64;

/// The next station of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This node itself.
    Here,
    /// A node, or all of them, over this port.
    Over(usize, Node),
}

impl Ports {
    pub(crate) fn new(list: Vec<Port>) -> Self {
        Self { list, routes: RefCell::default(), known: RefCell::default() }
    }

    pub(crate) fn is_router(&self) -> bool {
        self.list.len() > 1
    }

    /// The port with this address of one's own.
    pub(crate) fn own(&self, node: Node) -> Option<usize> {
        self.list.iter().position(|port| port.is_ready.get() && port.cable.get().me == node)
    }

    /// The port through whose link a session leads: it is a session of that link, or of what lies
    /// below it and has the same hardware address.
    pub(crate) fn over(&self, cx: &Kernel, lower: &SessionRef) -> Option<usize> {
        if !self.is_router() {
            return Some(0);
        }
        let protocol = lower.head().protocol();
        let known = self.known.borrow().iter().find(|(id, _)| *id == protocol).map(|known| known.1);
        known.or_else(|| self.find(cx, lower))
    }

    #[cold]
    fn find(&self, cx: &Kernel, lower: &SessionRef) -> Option<usize> {
        let protocol = lower.head().protocol();
        let hardware = |mine: MyEther| mine.address;
        let own = lower.ask(cx, MyEther::default()).map(hardware);
        let is_it = |port: &Port| {
            let of_port = || port.lower.ask(cx, MyEther::default()).map(hardware);
            port.lower.id() == protocol || own.is_some() && of_port() == own
        };
        let at = self.list.iter().position(is_it)?;
        let mut known = self.known.borrow_mut();
        // There are as many as protocols below.
        if known.len() < KNOWN_MAX && !known.iter().any(|(id, _)| *id == protocol) {
            known.push((protocol, at));
        }
        Some(at)
    }

    /// Whether a datagram that came over a port is for this node, and for which port's address.
    pub(crate) fn is_for_me(&self, at: usize, to: Node) -> Option<usize> {
        let port = self.list.get(at)?;
        let cable = port.cable.get();
        if port.is_ready.get() && cable.is_for_me(to) || to == Node::ALL {
            return Some(at);
        }
        if !self.is_router() {
            return None;
        }
        if to.node == 0 {
            // Any router of a cable: this one, if it is on that.
            let of_net = || self.list.iter().position(|port| port.has(to.net));
            return if to.net == NET_ANY { Some(at) } else { of_net() };
        }
        // A router is of all networks of its cables.
        let is_all = to.node == BROADCAST && port.has(to.net);
        if is_all { Some(at) } else { self.own(to) }
    }

    /// The next hop of a datagram; `over` is the port that it must leave by, if that is said. A
    /// router answers a request to its address on one cable over another cable, if that leads to
    /// the asker.
    pub(crate) fn next(&self, over: Option<usize>, to: Node) -> Option<Next> {
        let leads =
            |at: &usize| self.list.get(*at).is_some_and(|port| port.cable.get().is_local(to.net));
        let over = over.filter(|at| !self.is_router() || leads(at));
        if let Some(at) = over.or((!self.is_router()).then_some(0)) {
            let port = self.list.get(at)?;
            let cable = port.cable.get();
            return match cable.way(to, None)? {
                NextHop::Here => Some(Next::Here),
                NextHop::Node(node) => Some(Next::Over(at, node)),
                NextHop::All => Some(Next::Over(at, Node::ALL)),
            };
        }
        if self.own(to).is_some() {
            return Some(Next::Here);
        }
        if to.net == NET_ANY {
            return self.next(Some(0), to);
        }
        self.route(to)
    }

    /// Next hop of a router for datagrams to another node.
    pub(crate) fn route(&self, to: Node) -> Option<Next> {
        if let Some(at) = self.list.iter().position(|port| port.has(to.net)) {
            let node = if to.node == BROADCAST { Node::ALL } else { to };
            return (to.node != 0).then_some(Next::Over(at, node));
        }
        let routes = self.routes.borrow();
        let leads = |route: &&NetRoute| (route.first..=route.last).contains(&to.net);
        let route = routes.iter().find(leads)?;
        Some(Next::Over(route.port.into(), Node::new(route.net, route.node)))
    }
}
