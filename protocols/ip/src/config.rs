//! Makes the protocol's parts from the graph's parameters.

use crate::groups::Memberships;
use crate::interface::{Interface, Interfaces};
use crate::reassembly::Limits;
use crate::route::{Route, Routes};
use crate::wire::{DATAGRAM_LEN_MAX, MTU_MIN};
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError, ParamKind, Params, optional};
use xk_kit::Cidr;
use xk_kit::net::addr::Ipv4;
use xk_kit::net::drop_sources::{PARAMETER, SOURCES_MAX};

pub(crate) const ADDRESS_EXPECTED: &str =
    "an IPv4 address of one host and its prefix, such as 10.0.0.1/24";
pub(crate) const NETWORK_EXPECTED: &str =
    "an IPv4 network and prefix, such as 10.0.0.0/8, or default";
pub(crate) const VIA_EXPECTED: &str =
    "the IPv4 address of a router in the network of one of our addresses, such as 10.0.0.254";
pub(crate) const GROUP_EXPECTED: &str = "an IPv4 group, such as 224.0.0.251";
const ON_EXPECTED: &str = "the name of one of the protocols below";

/// All hosts of a link (RFC 1112, section 4): everybody is a member.
const ALL_HOSTS: Ipv4 = Ipv4::new(224, 0, 0, 1);

xk_core::settings! {
    /// The scalar parameters.
    pub(crate) struct Config {
        forward: bool = flag(false, "whether it is a router"),
        ttl: u8 = int(1..=255, 64, "time to live of what is sent, in hops"),
        dont_fragment: bool = flag(false,
            "whether routers may not fragment what fits the path, so that its maximum is found \
             out"),
        sessions_max: usize = int(1..=16_777_216, 262_144,
            "how many sessions it holds; idle ones are evicted for new ones"),
        idle_max: usize = int(1..=16_777_216, 4096,
            "from how many sessions on each that a message makes takes the place of an idle one; \
             those that layers above hold are bounded by the tables of these"),
        passive_max: usize = int(0..=16_777_216, 0,
            "how many sessions messages may make for one protocol above; 0: as many as it holds"),
        loop_max: usize = int(1..=65_536, 2048,
            "how many packets to ourselves may wait; of a user an eighth"),
        paths_max: usize = int(1..=1_048_576, 1024,
            "of how many paths a reported maximum is remembered; the one reported longest ago \
             goes"),
        next_hops_max: usize = int(1..=1_048_576, 1024,
            "how many next hops a router keeps open; the one used longest ago goes"),
        memberships_max: usize = int(0..=1_048_576, 1024,
            "how many joins of groups there are at run time; of a user an eighth"),
        reassembly_octets_max: usize = octets(1 << 20,
            "octets held in fragments, each counting 256 more than it has"),
        reassembly_datagrams_max: usize = int(1..=65_536, 1024,
            "how many datagrams may be incomplete; of one source, a quarter of them"),
        reassembly_timeout: Duration = duration(Duration::from_secs(60),
            "how long a datagram may stay incomplete"),
        fragments_max: usize = int(2..=8192, 128, "how many fragments a datagram may come in"),
        ..
        mtu: Option<u16> = None,
        reassembly_source_max: Option<usize> = None,
        sources_max: usize = SOURCES_MAX,
    }
    [
        optional("mtu", ParamKind::integer(MTU_MIN as i64..=DATAGRAM_LEN_MAX as i64),
            "octets of the largest packet on every interface, if less than the layer below takes"),
        optional("reassembly_source_max", ParamKind::Octets,
            "octets of one source held in fragments; a quarter of all, if not given"),
        PARAMETER,
    ]
}

impl Config {
    /// Reads the parameters of a graph.
    pub(crate) fn of(build: &Build<'_>) -> Result<Self, BuildError> {
        let params = build.params;
        let octets = |name| params.get(name).map(|_| params.octets(name, usize::MAX));
        Ok(Self {
            mtu: params.get("mtu").map(|_| params.number("mtu", DATAGRAM_LEN_MAX as u16)),
            reassembly_source_max: octets("reassembly_source_max"),
            sources_max: params.number(PARAMETER.name, SOURCES_MAX),
            ..Self::read(build)?
        })
    }

    /// The bounds of what is put together.
    pub(crate) fn limits(&self) -> Limits {
        let octets_max = self.reassembly_octets_max;
        Limits {
            octets_max,
            source_octets_max: self.reassembly_source_max.unwrap_or(octets_max / 4).min(octets_max),
            datagrams_max: self.reassembly_datagrams_max,
            fragments_max: self.fragments_max,
            timeout: self.reassembly_timeout,
        }
    }
}

fn wrong(name: &'static str, index: usize, expected: &str) -> BuildError {
    BuildError::Param { name, index, expected: String::from(expected) }
}

/// The interface that a block names; `None` if it names none.
fn on(
    build: &Build<'_>,
    block: &Params,
    name: &'static str,
    index: usize,
) -> Result<Option<usize>, BuildError> {
    let Some(text) = block.text("on") else {
        return Ok(None);
    };
    let at = build.lowers.iter().position(|lower| lower.name() == text);
    at.map(Some).ok_or_else(|| wrong(name, index, ON_EXPECTED))
}

/// Reads interfaces, addresses and groups.
pub(crate) fn interfaces(build: &Build<'_>) -> Result<Interfaces, BuildError> {
    build.lower(0)?;
    let list = build.lowers.iter().map(|lower| Interface {
        lower: lower.clone(),
        addresses: Vec::new(),
        mtu: Cell::new(DATAGRAM_LEN_MAX as u16),
    });
    let memberships = Memberships::new(build.int("memberships_max")?);
    let mut interfaces = Interfaces { list: list.collect(), memberships };
    for (index, block) in build.params.blocks("address").enumerate() {
        let cidr = block.text("address").and_then(|t| t.parse::<Cidr>().ok());
        let cidr = cidr
            .filter(|cidr| is_host(*cidr) && !interfaces.is_own(cidr.addr()))
            .ok_or_else(|| wrong("address", index, ADDRESS_EXPECTED))?;
        let at = on(build, block, "address", index)?.unwrap_or(0);
        if let Some(interface) = interfaces.list.get_mut(at) {
            interface.addresses.push(cidr);
        }
    }
    let keep =
        |group| (0..interfaces.list.len()).for_each(|at| interfaces.memberships.keep(at, group));
    keep(ALL_HOSTS);
    for (index, block) in build.params.blocks("group").enumerate() {
        let group = block.text("group").and_then(|t| t.parse::<Ipv4>().ok());
        let group = group.filter(|group| group.is_multicast());
        keep(group.ok_or_else(|| wrong("group", index, GROUP_EXPECTED))?);
    }
    Ok(interfaces)
}

/// Whether an address may be a host's own.
fn is_host(cidr: Cidr) -> bool {
    let ends = cidr.prefix() <= 30
        && (cidr.addr() == cidr.network() || Some(cidr.addr()) == cidr.broadcast());
    !ends && matches!(cidr.addr().octets()[0], 1..=126 | 128..=223)
}

/// Reads the routes, and adds those to the networks of our addresses.
pub(crate) fn routes(build: &Build<'_>, interfaces: &Interfaces) -> Result<Routes, BuildError> {
    let mut routes = Routes::default();
    for (interface, own) in interfaces.list.iter().enumerate() {
        for network in &own.addresses {
            routes.add(Route { network: *network, via: None, interface, metric: 0 });
        }
    }
    for (index, block) in build.params.blocks("route").enumerate() {
        let network = block.text("network").and_then(network);
        let network = network.ok_or_else(|| wrong("route", index, NETWORK_EXPECTED))?;
        let via = match block.text("via") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| wrong("route", index, VIA_EXPECTED))?),
        };
        let named = on(build, block, "route", index)?;
        let interface =
            gateway(interfaces, named, via).ok_or_else(|| wrong("route", index, VIA_EXPECTED))?;
        routes.add(Route { network, via, interface, metric: block.number("metric", 1) });
    }
    Ok(routes)
}

fn network(text: &str) -> Option<Cidr> {
    match text {
        "default" => Cidr::new(Ipv4::UNSPECIFIED, 0).ok(),
        text => text.parse().ok(),
    }
}

/// The interface of a route: the one named, or the one on whose link the router is.
pub(crate) fn gateway(
    interfaces: &Interfaces,
    named: Option<usize>,
    via: Option<Ipv4>,
) -> Option<usize> {
    if via.is_some_and(|via| interfaces.is_own(via)) {
        return None;
    }
    match (named, via) {
        (Some(at), _) => Some(at),
        (None, Some(via)) => interfaces.of_network(via),
        (None, None) => Some(0),
    }
}
