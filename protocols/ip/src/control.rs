//! Questions: those of its own, and the answers to all that are put to the protocol.

use crate::config;
use crate::interface::Kind;
use crate::path::NextHop;
use crate::protocol::Ip;
use crate::route::Route;
use crate::session::PAYLOAD_MAX;
use crate::wire::HEADER_LEN;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use xk_core::{Answer, Ask, Kernel, ProtocolRef, fields, question};
use xk_kit::Cidr;
use xk_kit::control::{
    DeliverError, HostConflict, IsGroup, IsLocalHost, MaxPacket, MyHost, NetworkError, OptPacket,
    RegisterErrorProtocol, SendError, TellArrivals,
};
pub use xk_kit::net::attribute::DontFragment;
use xk_kit::net::groups::{JoinHost, LeaveHost, WatchGroups};
use xk_kit::net::neighbour::HostRoute;

/// A way to a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// Destination; 0.0.0.0/0 is the default route.
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

/// Counts of events besides arrivals and sent packets.
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

fn answered(is_so: bool) -> Answer {
    if is_so { Answer::Answered } else { Answer::Unknown }
}

impl Ip {
    /// Answers a question that is put to the protocol.
    pub(crate) fn answer(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if shared.drop_sources.answer(this, ask) {
            return Answer::Answered;
        }
        if let Some(q) = ask.get::<DeliverError>() {
            self.deliver_error(cx, this, q);
        } else if let Some(q) = ask.get::<RegisterErrorProtocol>() {
            *shared.error_protocol.borrow_mut() = Some(q.protocol.clone());
        } else if let Some(q) = ask.get::<NetworkError>() {
            self.next_hop_failed(cx, q);
        } else if let Some(q) = ask.get::<SendError>() {
            self.send_failed(cx, this, q);
        } else if ask.get::<HostConflict>().is_some() {
            shared.figure(|f| f.conflicts += 1);
        } else if let Some(q) = ask.get::<IsLocalHost>() {
            q.local = q.host.to_v4().is_some_and(|host| match shared.interfaces.kind(host) {
                Kind::Own | Kind::Loopback | Kind::Broadcast => true,
                Kind::Group => shared.interfaces.is_joined(host),
                Kind::Nobody | Kind::Other => false,
            });
        } else if let Some(q) = ask.get::<TellArrivals>() {
            shared.tell_arrivals(q.number);
        } else if let Some(q) = ask.get::<IsGroup>() {
            q.many = q.host.to_v4().is_some_and(|host| shared.interfaces.is_many(host));
        } else if let Some(q) = ask.get::<JoinHost>() {
            return answered(shared.join(cx, &q.membership));
        } else if let Some(q) = ask.get::<LeaveHost>() {
            return answered(shared.leave(cx, &q.membership));
        } else if let Some(q) = ask.get::<WatchGroups>() {
            shared.watch(cx, q);
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = PAYLOAD_MAX as u32;
        } else if let Some(q) = ask.get::<OptPacket>() {
            let least = shared.interfaces.list.iter().map(|i| i.mtu.get()).min();
            q.octets = u32::from(least.unwrap_or(0)).saturating_sub(HEADER_LEN as u32);
        } else if let Some(q) = ask.get::<IpFigures>() {
            *q = shared.figures();
        } else {
            return self.answer_about_hosts(cx, ask);
        }
        Answer::Answered
    }

    /// Answers a question about hosts, routes and interfaces, or forwards it.
    fn answer_about_hosts(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(q) = ask.get::<MyHost>() {
            match shared.interfaces.first() {
                Some(host) => q.host = host.into(),
                None => return Answer::Unknown,
            }
        } else if let Some(q) = ask.get::<HostRoute>() {
            (q.over, q.direct) = match q.host.to_v4().and_then(|host| shared.next_hop(None, host)) {
                Some(NextHop::Out { interface, next_hop }) => {
                    let over = shared.interfaces.list.get(interface);
                    (over.map(|i| i.lower.clone()), q.host == next_hop)
                }
                Some(NextHop::Loop) | None => (None, false),
            };
        } else if let Some(q) = ask.get::<AddRoute>() {
            q.added = self.add_route(cx, &q.route);
        } else if let Some(q) = ask.get::<RemoveRoute>() {
            q.removed = shared.routes.borrow_mut().remove(q.network, q.via);
            if q.removed > 0 {
                shared.invalidate(cx);
            }
        } else if let Some(q) = ask.get::<ListRoutes>() {
            let routes = shared.routes.borrow();
            q.routes = routes.iter().map(|route| self.describe(route)).collect();
        } else if let Some(q) = ask.get::<ListInterfaces>() {
            let list = shared.interfaces.list.iter().map(|i| InterfaceInfo {
                name: String::from(i.lower.name()),
                addresses: i.addresses.clone(),
                mtu: i.mtu.get(),
            });
            q.interfaces = list.collect();
        } else {
            let first = shared.interfaces.list.first();
            return first.map_or(Answer::Unknown, |i| i.lower.control(cx, ask));
        }
        Answer::Answered
    }

    fn add_route(&self, cx: &Kernel, info: &RouteInfo) -> bool {
        let interfaces = &self.shared.interfaces;
        let named = interfaces.list.iter().position(|i| i.lower.name() == info.on);
        if named.is_none() && !info.on.is_empty() {
            return false;
        }
        let Some(interface) = config::gateway(interfaces, named, info.via) else {
            return false;
        };
        let added = self.shared.routes.borrow_mut().add(Route {
            network: info.network,
            via: info.via,
            interface,
            metric: info.metric,
        });
        if added {
            self.shared.invalidate(cx);
        }
        added
    }

    fn describe(&self, route: &Route) -> RouteInfo {
        let on = self.shared.interfaces.list.get(route.interface);
        RouteInfo {
            network: route.network,
            via: route.via,
            on: on.map_or_else(String::new, |i| String::from(i.lower.name())),
            metric: route.metric,
        }
    }
}
