//! Address resolution for IPv4 on Ethernet (RFC 826), with the probes and
//! announcements of address conflict detection (RFC 5227).

pub use xk_kit::net::addr::{EthAddr, Ipv4};

/// Octets of a packet for IPv4 on Ethernet.
pub const PACKET_LEN: usize = 28;
/// Hardware type of Ethernet.
pub const HARDWARE_ETHERNET: u16 = 1;
/// Protocol type of IPv4: its Ethernet type.
pub const PROTOCOL_IPV4: u16 = 0x0800;

// Constants of RFC 5227, section 1.1.
/// Longest random wait before the first probe, milliseconds.
pub const PROBE_WAIT_MS: u32 = 1_000;
/// Number of probes.
pub const PROBE_COUNT: u32 = 3;
/// Shortest wait between two probes, milliseconds.
pub const PROBE_INTERVAL_MS_MIN: u32 = 1_000;
/// Longest wait between two probes, milliseconds.
pub const PROBE_INTERVAL_MS_MAX: u32 = 2_000;
/// Wait from the last probe to the first announcement, milliseconds.
pub const ANNOUNCE_WAIT_MS: u32 = 2_000;
/// Number of announcements.
pub const ANNOUNCE_COUNT: u32 = 2;
/// Time between two announcements, milliseconds.
pub const ANNOUNCE_INTERVAL_MS: u32 = 2_000;
/// Time between attempts once slowed down, milliseconds.
pub const RATE_LIMIT_INTERVAL_MS: u32 = 60_000;
/// Least time between two defences of an address, milliseconds.
pub const DEFEND_INTERVAL_MS: u32 = 10_000;

/// Operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Operation {
    /// Asks for the station with the target protocol address.
    Request = 1,
    /// The sender has the sender protocol address.
    Reply = 2,
}

/// A packet for IPv4 on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_eth: EthAddr,
    /// Protocol address of the sender; unspecified in a probe.
    pub sender_ip: Ipv4,
    /// Hardware address of the target; means nothing in a request.
    pub target_eth: EthAddr,
    /// Protocol address of the target.
    pub target_ip: Ipv4,
}

/// Why octets are no packet for IPv4 on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer than 28 octets.
    #[error("fewer than {PACKET_LEN} octets")]
    Truncated,
    /// Another hardware type.
    #[error("hardware type {0} is not Ethernet")]
    Hardware(u16),
    /// Another protocol type.
    #[error("protocol type 0x{0:04x} is not IPv4")]
    Protocol(u16),
    /// Address lengths, hardware and protocol, other than 6 and 4 octets.
    #[error("addresses of {0} and {1} octets, not 6 and 4")]
    AddressLength(u8, u8),
    /// Neither request nor reply.
    #[error("operation {0} is neither request nor reply")]
    Operation(u16),
}

impl Packet {
    /// Asks which station has `target_ip`.
    #[must_use]
    pub const fn request(sender_eth: EthAddr, sender_ip: Ipv4, target_ip: Ipv4) -> Self {
        let operation = Operation::Request;
        Self { operation, sender_eth, sender_ip, target_eth: EthAddr::ZERO, target_ip }
    }

    /// Asks whether a station uses `ip`, without claiming it (RFC 5227, section 2.1.1).
    #[must_use]
    pub const fn probe(eth: EthAddr, ip: Ipv4) -> Self {
        Self::request(eth, Ipv4::UNSPECIFIED, ip)
    }

    /// Says that `ip` is now in use here (RFC 5227, section 2.3).
    #[must_use]
    pub const fn announcement(eth: EthAddr, ip: Ipv4) -> Self {
        Self::request(eth, ip, ip)
    }

    /// The answer to this request from the station `eth`, which has the
    /// target protocol address (RFC 826, packet reception).
    #[must_use]
    pub const fn reply(&self, eth: EthAddr) -> Self {
        Self {
            operation: Operation::Reply,
            sender_eth: eth,
            sender_ip: self.target_ip,
            target_eth: self.sender_eth,
            target_ip: self.sender_ip,
        }
    }

    /// Whether this is a probe: a request without sender protocol address.
    #[inline]
    pub fn is_probe(&self) -> bool {
        self.operation == Operation::Request && self.sender_ip.is_unspecified()
    }

    /// Whether sender and target protocol address agree, as in announcements
    /// and in the gratuitous packets of RFC 5944, section 4.6.
    #[inline]
    pub fn is_announcement(&self) -> bool {
        self.sender_ip == self.target_ip && !self.sender_ip.is_unspecified()
    }

    /// Whether this packet, sent by another station, shows that `ip` of the station `eth` is in use
    /// twice (RFC 5227, sections 2.1.1 and 2.4); `probing` while the address is not yet taken.
    #[must_use]
    pub fn conflicts_with(&self, eth: EthAddr, ip: Ipv4, probing: bool) -> bool {
        let claimed = self.sender_ip == ip;
        let probed = probing && self.is_probe() && self.target_ip == ip;
        self.sender_eth != eth && (claimed || probed)
    }

    /// Reads a packet from the start of `octets`; padding may follow.
    #[inline]
    pub fn parse_slice(octets: &[u8]) -> Result<Self, Error> {
        Self::parse(octets.first_chunk().ok_or(Error::Truncated)?)
    }

    /// Reads a packet.
    #[inline]
    pub fn parse(octets: &[u8; PACKET_LEN]) -> Result<Self, Error> {
        Self::parse_as(octets, PROTOCOL_IPV4)
    }

    /// The protocol type that a packet bears.
    #[must_use]
    pub const fn protocol_type(front: &[u8; 4]) -> u16 {
        let [_, _, high, low] = *front;
        u16::from_be_bytes([high, low])
    }

    /// Reads a packet whose protocol addresses are IPv4's, but whose protocol type is another.
    pub fn parse_as(octets: &[u8; PACKET_LEN], protocol_type: u16) -> Result<Self, Error> {
        let [h0, h1, p0, p1, hardware_len, protocol_len, o0, o1, addresses @ ..] = *octets;
        let hardware = u16::from_be_bytes([h0, h1]);
        if hardware != HARDWARE_ETHERNET {
            return Err(Error::Hardware(hardware));
        }
        let protocol = u16::from_be_bytes([p0, p1]);
        if protocol != protocol_type {
            return Err(Error::Protocol(protocol));
        }
        if (hardware_len, protocol_len) != (6, 4) {
            return Err(Error::AddressLength(hardware_len, protocol_len));
        }
        let operation = match u16::from_be_bytes([o0, o1]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => return Err(Error::Operation(other)),
        };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = addresses;
        Ok(Self {
            operation,
            sender_eth: EthAddr([a, b, c, d, e, f]),
            sender_ip: Ipv4::new(g, h, i, j),
            target_eth: EthAddr([k, l, m, n, o, p]),
            target_ip: Ipv4::new(q, r, s, t),
        })
    }

    /// Writes the packet.
    #[inline]
    pub fn emit(&self, octets: &mut [u8; PACKET_LEN]) {
        self.emit_as(PROTOCOL_IPV4, octets);
    }

    /// Writes the packet with another protocol type.
    pub fn emit_as(&self, protocol_type: u16, octets: &mut [u8; PACKET_LEN]) {
        let [p0, p1] = protocol_type.to_be_bytes();
        octets[..8].copy_from_slice(&[0, 1, p0, p1, 6, 4, 0, self.operation as u8]);
        octets[8..14].copy_from_slice(&self.sender_eth.0);
        octets[14..18].copy_from_slice(&self.sender_ip.octets());
        octets[18..24].copy_from_slice(&self.target_eth.0);
        octets[24..].copy_from_slice(&self.target_ip.octets());
    }
}

#[cfg(test)]
mod tests;
