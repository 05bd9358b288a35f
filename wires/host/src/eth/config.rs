//! The wire's parameters.

use std::net::{IpAddr, SocketAddr};

use xk_core::graph::{BuildError, Look, Params};
use xk_kit::EthAddr;
use xk_kit::wire::entry::{HEADER_OCTETS, station};

use super::peers::PEERS_MAX;
use super::vxlan;
use crate::error::environment;
use crate::socket::{Setup, Socket, way_to};

/// The MTU of the way between peers that is taken for granted: Ethernet's.
const OUTER_MTU: usize = 1500;
/// Octets of a UDP header (RFC 768).
const UDP_OCTETS: usize = 8;
/// The smallest MTU that IPv4 can live with (RFC 791, section 3.2).
const MTU_MIN: usize = 68;

/// The parameters, checked.
pub(super) struct Config {
    pub(super) local: SocketAddr,
    pub(super) peers: Vec<SocketAddr>,
    pub(super) vni: Option<u32>,
    pub(super) learn: bool,
    /// Octets behind the Ethernet header.
    pub(super) mtu: usize,
    pub(super) stations_max: usize,
    pub(super) address: EthAddr,
    pub(super) setup: Setup,
}

/// Octets of the headers around a frame.
fn overhead(local: SocketAddr, vni: Option<u32>) -> usize {
    let ip = if local.is_ipv4() { 20 } else { 40 };
    let vxlan = vni.map_or(0, |_| vxlan::HEADER_LEN);
    ip + UDP_OCTETS + vxlan + HEADER_OCTETS
}

impl Config {
    pub(super) fn read(params: &Params) -> Result<Self, BuildError> {
        let local: SocketAddr =
            params.parse("local", LOCAL)?.ok_or_else(|| BuildError::param("local", LOCAL))?;
        let vni = params.get("vni").map(|_| params.number("vni", 0_u32));
        let learn = params.flag("learn");
        let peers = peers(params, local)?;
        if peers.is_empty() && !learn {
            return Err(BuildError::param("peer", "a peer's address and port, or learn=#true"));
        }
        let overhead = overhead(local, vni);
        let most = usize::from(u16::MAX) - overhead;
        let mtu = params.octets("mtu", OUTER_MTU - overhead);
        if !(MTU_MIN..=most).contains(&mtu) {
            return Err(BuildError::param("mtu", format!("{MTU_MIN} to {most} octets")));
        }
        Ok(Self {
            address: station(params)?.unwrap_or_else(|| derived(local, &peers)),
            local,
            peers,
            vni,
            learn,
            mtu,
            stations_max: params.number("stations_max", 1024),
            setup: Setup {
                fragment: params.flag("fragment"),
                buffer_octets: params.octets("buffer", 0),
                join: true,
                tunnel: vni.is_some(),
            },
        })
    }

    /// The socket.
    pub(super) fn open(&self) -> Result<Socket, BuildError> {
        Socket::bind(self.local, self.setup)
            .map_err(|error| environment("local", &self.local.to_string(), &error))
    }
}

const LOCAL: &str = "an address and a port of this machine, such as 0.0.0.0:4789";

fn peers(params: &Params, local: SocketAddr) -> Result<Vec<SocketAddr>, BuildError> {
    let family = if local.is_ipv4() { "IPv4" } else { "IPv6" };
    let expected = || {
        let what = format!("{family} addresses and ports between commas, such as 192.0.2.7:4789");
        BuildError::param("peer", format!("{what}, at most {PEERS_MAX}"))
    };
    let mut peers = Vec::new();
    for text in params.text("peer").unwrap_or_default().split(',') {
        if text.trim().is_empty() {
            continue;
        }
        let peer: SocketAddr = text.trim().parse().map_err(|_| expected())?;
        if peer.is_ipv4() != local.is_ipv4() || peer.port() == 0 || peers.len() >= PEERS_MAX {
            return Err(expected());
        }
        if !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    Ok(peers)
}

/// A hardware address for this end: locally administered, one station (IEEE 802, section 8.2), the
/// same after a restart and another one for every end of a network: it follows from the host and
/// port that peers see.
fn derived(local: SocketAddr, peers: &[SocketAddr]) -> EthAddr {
    let seen = peers
        .first()
        .and_then(|peer| way_to(local.ip(), *peer).ok())
        .map_or(local.ip(), |way| way.local);
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |octets: &[u8]| {
        for octet in octets {
            hash = (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    match seen {
        IpAddr::V4(host) => mix(&host.octets()),
        IpAddr::V6(host) => mix(&host.octets()),
    }
    mix(&local.port().to_be_bytes());
    mix(rustix::system::uname().nodename().to_bytes());
    let [_, _, a, b, c, d, e, _] = hash.to_be_bytes();
    EthAddr([2, a, b, c, d, e])
}

/// Looks whether the socket can be opened.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    let config = Config::read(params)?;
    match look {
        Look::Parameters => Ok(()),
        Look::Machine => config.open().map(drop),
    }
}
