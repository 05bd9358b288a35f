//! Frames whose headers and checksums are right, built without the protocols that will read them.

use core::net::Ipv4Addr;

/// A hardware address.
pub type Ether = [u8; 6];

/// Number of IPv4 on an Ethernet (RFC 894).
pub const TYPE_IP: u16 = 0x0800;
/// Number of ARP on an Ethernet (RFC 826).
pub const TYPE_ARP: u16 = 0x0806;
/// Protocol number of ICMP (RFC 792).
pub const ICMP: u8 = 1;
/// Protocol number of UDP (RFC 768).
pub const UDP: u8 = 17;
/// Octets of an Ethernet header.
pub const ETH_OCTETS: usize = 14;
/// Octets of an IPv4 header without options.
pub const IP_OCTETS: usize = 20;

/// The Internet checksum of octets, after `sum` (RFC 1071).
#[must_use]
pub fn checksum(sum: u32, octets: &[u8]) -> u16 {
    let mut sum = u64::from(sum);
    for pair in octets.chunks(2) {
        let low = pair.get(1).copied().unwrap_or_default();
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// An Ethernet frame.
#[must_use]
pub fn ethernet(dst: Ether, src: Ether, number: u16, payload: &[u8]) -> Vec<u8> {
    [&dst[..], &src, &number.to_be_bytes(), payload].concat()
}

/// An ARP packet (RFC 826): operation 1 asks, 2 replies.
#[must_use]
pub fn arp(operation: u16, sender: (Ether, Ipv4Addr), target: (Ether, Ipv4Addr)) -> Vec<u8> {
    let mut octets = vec![0, 1, 8, 0, 6, 4];
    octets.extend(operation.to_be_bytes());
    for (ether, host) in [sender, target] {
        octets.extend(ether);
        octets.extend(host.octets());
    }
    octets
}

/// Variable fields of an IPv4 header (RFC 791, section 3.1).
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// The source.
    pub src: Ipv4Addr,
    /// The destination.
    pub dst: Ipv4Addr,
    /// The protocol above.
    pub protocol: u8,
    /// The identification.
    pub id: u16,
    /// Flags and fragment offset, as on the wire.
    pub fragment: u16,
    /// The time to live, in hops.
    pub ttl: u8,
    /// Options; padded to whole words, cut at 40 octets.
    pub options: &'a [u8],
}

impl Ip<'_> {
    /// The datagram with this payload; length and checksum are right.
    #[must_use]
    pub fn datagram(&self, payload: &[u8]) -> Vec<u8> {
        let options = &self.options[..self.options.len().min(40)];
        let words = options.len().div_ceil(4);
        let header_len = IP_OCTETS + 4 * words;
        let total = (header_len + payload.len()) as u16;
        let mut octets = vec![0x45 + words as u8, 0];
        octets.extend(total.to_be_bytes());
        octets.extend(self.id.to_be_bytes());
        octets.extend(self.fragment.to_be_bytes());
        octets.extend([self.ttl, self.protocol, 0, 0]);
        octets.extend(self.src.octets());
        octets.extend(self.dst.octets());
        octets.extend(options);
        octets.resize(header_len, 0);
        let sum = checksum(0, &octets);
        octets[10..12].copy_from_slice(&sum.to_be_bytes());
        octets.extend(payload);
        octets
    }
}

/// An ICMP message (RFC 792) of this type and code; `rest` begins with the second word of the
/// header.
#[must_use]
pub fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut octets = vec![kind, code, 0, 0];
    octets.extend(rest);
    let sum = checksum(0, &octets);
    octets[2..4].copy_from_slice(&sum.to_be_bytes());
    octets
}

/// A UDP datagram (RFC 768) between these hosts and ports.
#[must_use]
pub fn udp(hosts: (Ipv4Addr, Ipv4Addr), ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut octets = Vec::new();
    for word in [ports.0, ports.1, length, 0] {
        octets.extend(word.to_be_bytes());
    }
    octets.extend(payload);
    let halves = |host: Ipv4Addr| (host.to_bits() >> 16) + (host.to_bits() & 0xffff);
    let pseudo = halves(hosts.0) + halves(hosts.1) + u32::from(UDP) + u32::from(length);
    let sum = match checksum(pseudo, &octets) {
        0 => 0xffff,
        sum => sum,
    };
    octets[6..8].copy_from_slice(&sum.to_be_bytes());
    octets
}

/// The payload of a UDP datagram between these hosts, if its length and checksum are right.
#[must_use]
pub fn udp_payload(octets: &[u8], hosts: (Ipv4Addr, Ipv4Addr)) -> Option<&[u8]> {
    let word = |at: usize| Some(u16::from_be_bytes(*octets.get(at..)?.first_chunk()?));
    let (ports, length) = ((word(0)?, word(2)?), usize::from(word(4)?));
    let payload = octets.get(8..length)?;
    let is_intact = word(6)? == 0 || udp(hosts, ports, payload) == octets[..length];
    is_intact.then_some(payload)
}

/// The answer of a peer to this frame: the ARP reply, the echo reply, or the datagram sent back.
/// `None` if the frame gets no answer.
#[must_use]
pub fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let (src, payload) = (frame.get(6..12)?.try_into().ok()?, frame.get(ETH_OCTETS..)?);
    let host =
        |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(payload.get(at..at + 4)?).ok()?));
    match frame.get(12..ETH_OCTETS)? {
        [0x08, 0x06] => {
            let asked = (PEER, host(24)?);
            let reply = arp(2, asked, (src, host(14)?));
            Some(ethernet(src, PEER, TYPE_ARP, &reply))
        }
        [0x08, 0x00] => {
            let header_len = usize::from(payload.first()? & 15) * 4;
            let total = usize::from(u16::from_be_bytes([*payload.get(2)?, *payload.get(3)?]));
            let fragment = u16::from_be_bytes([*payload.get(6)?, *payload.get(7)?]);
            let mut body = payload.get(header_len..total)?.to_vec();
            let protocol = *payload.get(9)?;
            match protocol {
                ICMP if fragment & 0x1fff == 0 => match body.get(..8)? {
                    [8, 0, ..] if fragment == 0 => body = icmp(0, 0, body.get(4..)?),
                    // A change of type by eight in a fragment: the sum of the whole changes by as
                    // much.
                    [8, 0, high, low, ..] => {
                        let sum = u32::from(u16::from_be_bytes([*high, *low])) + 0x0800;
                        let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
                        body[0] = 0;
                        body[2..4].copy_from_slice(&sum.to_be_bytes());
                    }
                    _ => return None,
                },
                UDP if fragment & 0x1fff == 0 => {
                    let ports: [u8; 4] = body.get(..4)?.try_into().ok()?;
                    body[..2].copy_from_slice(&ports[2..]);
                    body[2..4].copy_from_slice(&ports[..2]);
                }
                _ => {}
            }
            let reply = Ip {
                src: host(16)?,
                dst: host(12)?,
                protocol,
                id: u16::from_be_bytes([payload[4], payload[5]]),
                fragment,
                ttl: 64,
                options: &[],
            };
            Some(ethernet(src, PEER, TYPE_IP, &reply.datagram(&body)))
        }
        _ => None,
    }
}

/// The other station.
pub const PEER: Ether = [2, 0, 0, 0, 0, 9];

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    #[test]
    fn what_is_built_is_valid() {
        let ip = Ip {
            src: ONE,
            dst: TWO,
            protocol: UDP,
            id: 5,
            fragment: 0,
            ttl: 3,
            options: &[7, 7, 4, 0, 0, 0, 0],
        };
        let octets = ip.datagram(&udp((ONE, TWO), (1, 7), b"odd"));
        let packet = xk_ip::wire::Packet::parse(&octets).expect("a valid datagram");
        assert_eq!(packet.header.header_len(), 28);
        assert_eq!(udp_payload(packet.payload, (ONE, TWO)), Some(&b"odd"[..]));
        let echo = icmp(8, 0, b"\0\x01\0\x02ping");
        assert!(xk_icmp::wire::Message::parse(&echo).is_ok());
        let asked = arp(1, (PEER, TWO), ([0; 6], ONE));
        assert!(xk_arp::wire::Packet::parse_slice(&asked).is_ok());
    }

    #[test]
    fn answers_are_valid() {
        let ip =
            Ip { src: ONE, dst: TWO, protocol: ICMP, id: 5, fragment: 0, ttl: 3, options: &[] };
        let own = [2, 0, 0, 0, 0, 1];
        let ping = ip.datagram(&icmp(8, 0, b"\0\x01\0\x02ping"));
        let pong = answer(&ethernet(PEER, own, TYPE_IP, &ping)).expect("a ping is answered");
        let packet = xk_ip::wire::Packet::parse(&pong[ETH_OCTETS..]).expect("valid");
        let reply = xk_icmp::wire::Message::parse(packet.payload).expect("valid");
        assert!(!reply.header.is_error());
        assert_eq!(packet.payload, icmp(0, 0, b"\0\x01\0\x02ping"));
        let mut rest = ip;
        rest.fragment = 0x2000;
        let part = rest.datagram(&icmp(8, 0, b"\0\x01\0\x02ping"));
        let pong = answer(&ethernet(PEER, own, TYPE_IP, &part)).expect("a ping is answered");
        assert_eq!(pong[ETH_OCTETS + IP_OCTETS..], icmp(0, 0, b"\0\x01\0\x02ping"));
    }
}
