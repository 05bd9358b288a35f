//! Questions and attributes of its own.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use xk_core::{fields, question};
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

fields!(RouteInfo { network, via, on, metric });

/// Adds a route. What goes from now on, goes by it.
#[derive(Clone, Debug)]
pub struct AddRoute {
    /// In: the route.
    pub route: RouteInfo,
    /// Out: false if there is no such interface, `via` is not on its link, or the table is full.
    pub added: bool,
}

question!(AddRoute { route, added }, "add-route", Ask);

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

question!(RemoveRoute { network, via, removed }, "remove-route", Ask);

/// All routes, longest prefix first.
#[derive(Clone, Debug, Default)]
pub struct ListRoutes {
    /// The routes.
    pub routes: Vec<RouteInfo>,
}

question!(ListRoutes { routes }, "list-routes", Ask);

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

fields!(InterfaceInfo { name, addresses, mtu });

/// All interfaces, in the graph's order.
#[derive(Clone, Debug, Default)]
pub struct ListInterfaces {
    /// The interfaces.
    pub interfaces: Vec<InterfaceInfo>,
}

question!(ListInterfaces { interfaces }, "list-interfaces", Ask);

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

question!(
    IpFigures {
        forwarded,
        fragments_sent,
        reassembled,
        fragments_joined,
        fragments_held,
        looped,
        errors_told,
        errors_untold,
        errors_delivered,
        conflicts
    },
    "ip-figures",
    Ask
);
