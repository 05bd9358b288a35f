//! Frames that an attacker might send: the same seed gives the same ones.

mod apple;
mod internet;
mod link;
mod octets;
mod replay;
mod transport;

pub use octets::FRAME_OCTETS_MAX;

use alloc::vec::Vec;
use core::net::Ipv4Addr;
use octets::Octets;
use xk_appletalk::addr::Node;
use xk_core::random::Random;
use xk_kit::{Cidr, EthAddr};

/// Number of IPv4 on an Ethernet (RFC 894).
const TYPE_IP: u16 = 0x0800;
/// Number of ARP on an Ethernet (RFC 826).
const TYPE_ARP: u16 = 0x0806;

/// Kind of frames that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ARP requests, replies, announcements and conflicts from forged hosts.
    Arp,
    /// Fragments: tiny, overlapping, never complete, beyond the longest datagram, twice.
    Fragments,
    /// Datagrams from ever new peers: right ones and wrong ones, for the port and for others.
    Udp,
    /// Echo and time stamp requests, errors with forged quotes, redirects, unknown types.
    Icmp,
    /// IPv4 headers with any version, length, option, protocol and checksum.
    Ip,
    /// Ethernet headers of any kind and octets of no kind.
    Ethernet,
    /// Datagrams to the port that are all right, each from a new peer.
    Sessions,
    /// Echo requests that are all right, each from a new host.
    Pings,
    /// TCP segments: SYNs and any others, with any options, right ones and wrong ones.
    Segments,
    /// SYNs to the port that are all right, each from a new peer that never answers.
    Syns,
    /// Calls of ONC RPC (RFC 5531) by datagrams to the port, of a procedure that does nothing, each
    /// from a new peer.
    Calls,
    /// Connections to the port, each from a new peer that completes the handshake and says nothing
    /// more.
    Connects,
    /// Frames that others on the link have sent to the target, each time in the name of another
    /// host.
    Replays,
    /// Attacks on a node of AppleTalk: AARP, and datagrams of all protocols from ever new nodes.
    AppleTalk,
    /// Any of these but the last four.
    Mixed,
}

/// Number of kinds of [`Kind::ALL`] that are mixed.
const MIXED: usize = 10;

impl Kind {
    /// The words of a graph file.
    pub const WORDS: &'static [&'static str] = &[
        "mixed",
        "arp",
        "fragments",
        "udp",
        "icmp",
        "ip",
        "ethernet",
        "sessions",
        "pings",
        "segments",
        "syns",
        "calls",
        "connects",
        "replays",
        "appletalk",
    ];
    const ALL: [Self; MIXED + 4] = [
        Self::Arp,
        Self::Fragments,
        Self::Udp,
        Self::Icmp,
        Self::Ip,
        Self::Ethernet,
        Self::Sessions,
        Self::Pings,
        Self::Segments,
        Self::Syns,
        Self::Calls,
        Self::Connects,
        Self::Replays,
        Self::AppleTalk,
    ];

    /// The kind that a graph file's word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let at = Self::WORDS.iter().position(|known| *known == word)?;
        match at.checked_sub(1) {
            None => Some(Self::Mixed),
            Some(at) => Self::ALL.get(at).copied(),
        }
    }
}

/// The host attacked, and the names used.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The station.
    pub ether: EthAddr,
    /// The host.
    pub host: Ipv4Addr,
    /// The target's node, if it has AppleTalk.
    pub node: Node,
    /// A port that may be bound.
    pub port: u16,
    /// The network that forged sources lie in.
    pub sources: Cidr,
}

/// Makes frames.
pub struct Generator {
    target: Target,
    kind: Kind,
    random: Random,
    /// Number of frames so far.
    count: u64,
    /// A fragment to send next that overlaps or repeats the last one: identification, source,
    /// protocol.
    second: Option<(u16, Ipv4Addr, u8)>,
    /// Frames that others have sent to the target, one of each kind.
    heard: Vec<(replay::Sort, Vec<u8>)>,
}

impl Generator {
    /// A generator that starts afresh for each seed.
    #[must_use]
    pub fn new(target: Target, kind: Kind, seed: u64) -> Self {
        Self { target, kind, random: Random::new(seed), count: 0, second: None, heard: Vec::new() }
    }

    /// Writes the next frame; answers how many octets it has, up to [`FRAME_OCTETS_MAX`].
    pub fn next(&mut self, frame: &mut [u8; FRAME_OCTETS_MAX]) -> usize {
        self.count += 1;
        let mut out = Octets::new(frame);
        let kind = match self.kind {
            Kind::Mixed => *self.pick(&Kind::ALL[..MIXED]),
            kind => kind,
        };
        match kind {
            Kind::Arp => self.arp(&mut out),
            Kind::Fragments => self.fragment(&mut out),
            Kind::Udp => self.udp(&mut out),
            Kind::Icmp => self.icmp(&mut out),
            Kind::Ip => self.ip(&mut out),
            Kind::Sessions => self.session(&mut out),
            Kind::Pings => self.ping(&mut out),
            Kind::Segments => self.segment(&mut out),
            Kind::Syns | Kind::Connects => self.syn(&mut out),
            Kind::Calls => self.call(&mut out),
            Kind::Replays => self.replay(&mut out),
            Kind::AppleTalk => self.apple(&mut out),
            Kind::Ethernet | Kind::Mixed => self.ethernet(&mut out),
        }
        out.len()
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.below(bound.max(1))
    }

    /// True once in `n` times.
    fn once_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&self, list: &'a [T]) -> &'a T {
        let at = self.below(list.len() as u64) as usize;
        &list[at.min(list.len() - 1)]
    }

    fn word(&self) -> u16 {
        self.random.next_u16()
    }

    /// A forged host: one of the network of sources, but not the one that is attacked.
    fn source(&self) -> Ipv4Addr {
        let net = self.target.sources;
        let bits = 32 - u32::from(net.prefix());
        let base = u64::from(net.network().to_bits());
        let hosts = 1u64 << bits;
        let host = base | (1 + self.below(hosts.saturating_sub(2)));
        let host = Ipv4Addr::from(host as u32);
        match host == self.target.host {
            true => Ipv4Addr::from(host.to_bits() ^ 1),
            false => host,
        }
    }

    /// The station that a forged host pretends to be.
    #[must_use]
    pub fn station_of(host: Ipv4Addr) -> EthAddr {
        let [a, b, c, d] = host.octets();
        EthAddr([0x0a, 0x66, a, b, c, d])
    }

    /// An Ethernet header to the target.
    fn header(&self, out: &mut Octets<'_>, from: Ipv4Addr, number: u16) {
        out.put(&self.target.ether.0);
        out.put(&Self::station_of(from).0);
        out.put(&number.to_be_bytes());
    }

    /// Octets of no meaning.
    fn garbage(&self, out: &mut Octets<'_>, count: usize) {
        let mut left = count;
        let mut piece = [0; 64];
        while left > 0 && !out.is_full() {
            self.random.fill(&mut piece);
            out.put(&piece[..left.min(piece.len())]);
            left = left.saturating_sub(piece.len());
        }
    }
}

#[cfg(test)]
mod tests;
