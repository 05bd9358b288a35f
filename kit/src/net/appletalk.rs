//! Questions of the layers of AppleTalk to one another: to a link, to the datagram layer, to its
//! sessions.

use alloc::vec::Vec;
use core::time::Duration;
use xk_core::participant::Label;
use xk_core::{Kernel, Part, Participant, ProtocolRef, fields, question};

/// The label of a socket, above node and network.
pub const SOCKET: Label = Label::new("socket");
/// The label of a node number, above the network's.
pub const NODE: Label = Label::new("node");
/// The label of a network number.
pub const NET: Label = Label::new("net");
/// The label of a protocol type, above the socket, in place of the number that a protocol has.
pub const TYPE: Label = Label::new("type");

/// A node, as a participant.
#[must_use]
pub fn node(net: u16, node: u8) -> Participant {
    Participant::of(Part::Number(NET, net.into())).with(Part::Number(NODE, node.into()))
}

/// A socket of a node, as a participant.
#[must_use]
pub fn socket(net: u16, of: u8, socket: u8) -> Participant {
    node(net, of).with(Part::Number(SOCKET, socket.into()))
}

/// A socket of ours, on the port whose cable has the network `net`; 0: on any.
#[must_use]
pub fn local_socket(net: u16, socket: u8) -> Participant {
    let local = match net {
        0 => Participant::new(),
        net => Participant::of(Part::Number(NET, net.into())).with(Part::Any),
    };
    local.with(Part::Number(SOCKET, socket.into()))
}

/// The time since the kernel's began, as the state machines of AppleTalk count it.
#[must_use]
pub fn now(cx: &Kernel) -> Duration {
    Duration::from_nanos(cx.now().as_ns())
}

/// Asked of a link: begin to be a node there. [`NodeClaimed`] tells those that stand on it what
/// came of it, once or, where another node disputes the address, several times.
#[derive(Clone, Copy, Debug)]
pub struct ClaimNode {
    /// A number of the protocol's own, which it is told again.
    pub claim: u8,
    /// The first network that it may be of.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// The network and the node that are tried first; node 0: any.
    pub net: u16,
    /// The node.
    pub node: u8,
    /// Whether it is that node or none.
    pub is_only: bool,
}

question!(ClaimNode { claim, first, last, net, node, is_only }, "claim-node", Tell, standing);

/// Asked upwards: what came of a [`ClaimNode`].
#[derive(Clone, Copy, Debug)]
pub struct NodeClaimed {
    /// The number that the claim has.
    pub claim: u8,
    /// The network.
    pub net: u16,
    /// The node.
    pub node: u8,
    /// Whether it is another's: a node before it was this one's, or this one's own in spite of its
    /// defence.
    pub is_disputed: bool,
}

question!(NodeClaimed { claim, net, node, is_disputed }, "node-claimed", Tell, upward);

/// One cable, as the datagram layer knows it.
#[derive(Clone, Debug, Default)]
pub struct DdpCable {
    /// In: the port, from 0 on.
    pub port: u8,
    /// Out: how many ports there are.
    pub ports: u8,
    /// Out: whether the node has its address there by now.
    pub is_ready: bool,
    /// Out: the network that it is of.
    pub net: u16,
    /// Out: its node number.
    pub node: u8,
    /// Out: the first network of the cable.
    pub first: u16,
    /// Out: the last one.
    pub last: u16,
    /// Out: whether these networks are known, from the graph or from a router.
    pub is_known: bool,
    /// Out: the router heard last, network and node; node 0: none.
    pub router: (u16, u8),
    /// Out: the zone that the node is in; no octets if that is not known.
    pub zone: Vec<u8>,
}

question!(
    DdpCable { port, ports, is_ready, net, node, first, last, is_known, router, zone },
    "ddp-cable",
    Ask
);

/// Tells the datagram layer which networks a cable has, and in which zone the node is; it takes an
/// address of one of them if it has none.
#[derive(Clone, Debug, Default)]
pub struct SetCable {
    /// The port.
    pub port: u8,
    /// The first network of the cable.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// The zone; no octets leave it as it is.
    pub zone: Vec<u8>,
    /// The hardware group of the zone.
    pub group: Option<[u8; 6]>,
}

question!(SetCable { port, first, last, zone, group }, "set-ddp-cable", Tell);

/// Tells the datagram layer of a node that routes nothing which router was heard last.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetRouter {
    /// The port.
    pub port: u8,
    /// The router's network.
    pub net: u16,
    /// The router's node; 0: there is none any more.
    pub node: u8,
}

question!(SetRouter { port, net, node }, "set-ddp-router", Tell);

/// A way to networks behind other routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetRoute {
    /// The first network.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// The port that leads there.
    pub port: u8,
    /// The next router's network.
    pub net: u16,
    /// The next router's node.
    pub node: u8,
}

fields!(NetRoute { first, last, port, net, node });

/// The ways that [`SetRoutes`] has told.
#[derive(Clone, Debug, Default)]
pub struct DdpRoutes {
    /// Out: the ways.
    pub routes: Vec<NetRoute>,
}

question!(DdpRoutes { routes }, "ddp-routes", Ask);

/// Asked of what knows the zones of a router: which cables have nodes of a zone.
#[derive(Clone, Debug, Default)]
pub struct ZoneNets {
    /// In: the zone.
    pub zone: Vec<u8>,
    /// Out: the first network of each.
    pub nets: Vec<u16>,
}

question!(ZoneNets { zone, nets }, "zone-nets", Ask);

/// Tells the datagram layer of a router all ways to networks behind other routers.
#[derive(Clone, Debug, Default)]
pub struct SetRoutes {
    /// The ways, in place of those before.
    pub routes: Vec<NetRoute>,
}

question!(SetRoutes { routes }, "set-ddp-routes", Tell);

/// Asked upwards of all that are enabled on the datagram layer: a cable's address, networks, zone
/// or router has changed. What holds now is to be asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct CableChanged {
    /// The port.
    pub port: u8,
}

question!(CableChanged { port }, "ddp-cable-changed", Tell, upward);

/// The ends of a session of the datagram layer.
#[derive(Clone, Copy, Debug, Default)]
pub struct DdpEnds {
    /// The peer: network, node, socket.
    pub peer: (u16, u8, u8),
    /// This end; its network and node are 0 as long as there is no way to the peer.
    pub local: (u16, u8, u8),
    /// The protocol type.
    pub kind: u8,
    /// The port that this end's address is of.
    pub port: u8,
}

question!(DdpEnds { peer, local, kind, port }, "ddp-ends", Fact);

/// All cables, as the datagram layer knows them.
#[must_use]
pub fn cables(cx: &Kernel, ddp: &ProtocolRef) -> Vec<DdpCable> {
    let mut cables: Vec<DdpCable> = Vec::new();
    while let Some(cable) =
        ddp.ask(cx, DdpCable { port: cables.len() as u8, ..DdpCable::default() })
    {
        let is_last = cables.len() + 1 >= cable.ports.into();
        cables.push(cable);
        if is_last {
            break;
        }
    }
    cables
}
