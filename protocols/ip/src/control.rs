//! Questions and attributes of its own.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use xk_core::control::Question;
use xk_kit::Cidr;
pub use xk_kit::net::attribute::DontFragment;

/// A way to a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// Where to; 0.0.0.0/0 is the default.
    pub network: Cidr,
    /// The router on the way; `None` if the network is on the link.
    pub via: Option<Ipv4Addr>,
    /// The name of the interface's protocol in the graph; empty for the one whose network `via`
    /// lies in.
    pub on: String,
    /// The least one wins among equal prefixes.
    pub metric: u32,
}

/// Adds a route. What goes from now on, goes by it.
#[derive(Clone, Debug)]
pub struct AddRoute {
    /// In: the route.
    pub route: RouteInfo,
    /// Out: false if there is no such interface, `via` is not on its link, or the table is full.
    pub added: bool,
}

impl Question for AddRoute {
    const NAME: &'static str = "add-route";
}

/// Removes the routes to a network.
#[derive(Clone, Debug)]
pub struct RemoveRoute {
    /// In: the network.
    pub network: Cidr,
    /// In: only the one over this router, if given.
    pub via: Option<Ipv4Addr>,
    /// Out: how many there were.
    pub removed: usize,
}

impl Question for RemoveRoute {
    const NAME: &'static str = "remove-route";
}

/// All routes, longest prefix first.
#[derive(Clone, Debug, Default)]
pub struct ListRoutes {
    /// The routes.
    pub routes: Vec<RouteInfo>,
}

impl Question for ListRoutes {
    const NAME: &'static str = "list-routes";
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// The name of its protocol in the graph.
    pub name: String,
    /// Our hosts there, with their networks.
    pub addresses: Vec<Cidr>,
    /// Octets of its largest packet.
    pub mtu: u16,
}

/// All interfaces, in the graph's order.
#[derive(Clone, Debug, Default)]
pub struct ListInterfaces {
    /// The interfaces.
    pub interfaces: Vec<InterfaceInfo>,
}

impl Question for ListInterfaces {
    const NAME: &'static str = "list-interfaces";
}

/// What it has done besides taking and sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpFigures {
    /// Packets forwarded, before they were cut.
    pub forwarded: u64,
    /// Fragments sent.
    pub fragments_sent: u64,
    /// Datagrams put together.
    pub reassembled: u64,
    /// Fragments taken in for those.
    pub fragments_joined: u64,
    /// Fragments held now.
    pub fragments_held: usize,
    /// Packets to ourselves.
    pub looped: u64,
    /// Errors passed on to the error protocol.
    pub errors_told: u64,
    /// Packets refused above (and counted there) whose sender was not told, for want of an error
    /// protocol.
    pub errors_untold: u64,
    /// Errors reported to us and passed up.
    pub errors_delivered: u64,
    /// Stations seen that use a host of ours.
    pub conflicts: u64,
}

impl Question for IpFigures {
    const NAME: &'static str = "ip-figures";
}
