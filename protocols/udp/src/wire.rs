//! User datagrams (RFC 768): header, length, checksum.

use xk_kit::Checksum;
use xk_kit::net::ports;

/// Octets of the header.
pub const HEADER_LEN: usize = 8;
/// Octets of the longest payload in IPv4 without options.
pub const PAYLOAD_LEN_MAX: usize = 65_535 - 20 - HEADER_LEN;
/// Offset of the checksum in a datagram.
pub const CHECKSUM_AT: u16 = 6;
/// The protocol's number in IP.
pub const IP_PROTOCOL: u8 = 17;

/// A header, as one number: the sender's port highest, then the receiver's, the length, the
/// checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(u64);

impl Header {
    /// A header with these ports and this checksum, for a payload of so many octets.
    #[inline(always)]
    #[must_use]
    pub const fn new((src, dst): (u16, u16), payload: usize, checksum: u16) -> Self {
        let length = (payload + HEADER_LEN) as u16;
        Self((src as u64) << 48 | (dst as u64) << 32 | (length as u64) << 16 | checksum as u64)
    }

    /// Reads a header; says nothing of payload and checksum.
    #[inline(always)]
    #[must_use]
    pub const fn parse(octets: &[u8; HEADER_LEN]) -> Self {
        Self(u64::from_be_bytes(*octets))
    }

    /// The header's octets.
    #[inline(always)]
    #[must_use]
    pub const fn octets(self) -> [u8; HEADER_LEN] {
        self.0.to_be_bytes()
    }

    /// Both ports, the sender's in the upper half.
    #[inline(always)]
    #[must_use]
    pub const fn ports(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Port of the sender; zero if no reply is wanted.
    #[must_use]
    pub const fn src(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Port of the receiver; zero is reserved (RFC 6335, section 6).
    #[must_use]
    pub const fn dst(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Octets of header and payload, as it says.
    #[inline(always)]
    #[must_use]
    pub const fn length(self) -> usize {
        (self.0 >> 16) as u16 as usize
    }

    /// The checksum; zero if there is none.
    #[inline(always)]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        self.0 as u16
    }

    /// Octets of the payload, if it lies within the `arrived` ones behind the header.
    #[must_use]
    pub fn payload(self, arrived: usize) -> Option<usize> {
        self.length().checked_sub(HEADER_LEN).filter(|octets| *octets <= arrived)
    }
}

/// The octets that all datagrams of a conversation have alike, and the sums over them.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// A header without length and checksum, for what is sent.
    header: u64,
    /// The sum over pseudo-header and ports of what is sent, folded; `None` if that goes without
    /// a checksum.
    sent: Option<u16>,
    /// The sum over them of what arrives, folded; `None` if nothing is known of the hosts.
    received: Option<u16>,
    /// Whether what arrives must have a checksum (RFC 8200, section 8.1).
    pub is_required: bool,
}

impl Template {
    /// The template for our port and the peer's, over sums of the addresses. Without `checksum`
    /// datagrams are sent without one where that is allowed, and checked all the same.
    #[must_use]
    pub fn new((local, peer): (u16, u16), pseudo: Option<ports::Pseudo>, checksum: bool) -> Self {
        let base = |mut sum: Checksum| {
            sum.add_u16(local);
            sum.add_u16(peer);
            sum.folded()
        };
        Self {
            header: u64::from(local) << 48 | u64::from(peer) << 32,
            sent: pseudo.filter(|p| checksum || p.is_required).map(|p| base(p.sent)),
            received: pseudo.map(|p| base(p.received)),
            is_required: pseudo.is_some_and(|p| p.is_required),
        }
    }

    /// Completes a template that was made for the peer's port 0 with the port of a peer.
    #[inline(always)]
    #[must_use]
    pub fn for_peer(mut self, peer: u16) -> Self {
        self.received = self.received.map(|base| {
            let mut sum = Checksum::resume(base);
            sum.add_u16(peer);
            sum.folded()
        });
        self
    }

    /// The sum over all of a datagram sent but its payload, of so many octets; `None` if it goes
    /// without a checksum.
    #[inline(always)]
    #[must_use]
    pub fn sum_sent(&self, payload: usize) -> Option<Checksum> {
        self.sent.map(|base| with_length(base, payload))
    }

    /// The header for a payload of so many octets, over a sum of all, as
    /// [`sum_sent`](Self::sum_sent) begins it.
    #[inline(always)]
    #[must_use]
    pub fn header(&self, payload: usize, sum: Option<Checksum>) -> Header {
        let checksum = match sum.map(Checksum::finish) {
            None => 0,
            // Zero says that there is none (RFC 768).
            Some(0) => 0xffff,
            Some(checksum) => checksum,
        };
        self.with(payload, checksum)
    }

    /// The header for a payload whose sum is completed below: its field holds the sum over the
    /// pseudo-header. `None` if datagrams are sent without a checksum.
    #[must_use]
    pub fn partial_header(&self, payload: usize) -> Option<Header> {
        let header = self.with(payload, 0);
        let mut sum = Checksum::resume(self.sent?);
        // The ports will be summed once more: out with them.
        sum.add_u32(!header.ports());
        sum.add_u16(header.length() as u16);
        Some(self.with(payload, !sum.finish()))
    }

    #[inline(always)]
    fn with(&self, payload: usize, checksum: u16) -> Header {
        Header(self.header | Header::new((0, 0), payload, checksum).0)
    }

    /// The sum over all of an arriving datagram but its payload, of as many octets as the header
    /// says: with that it is valid if the checksum is right. `None` if the datagram has no checksum
    /// (RFC 1122, section 4.1.3.4), or the addresses are not known.
    #[inline(always)]
    #[must_use]
    pub fn sum_received(&self, header: Header, payload: usize) -> Option<Checksum> {
        let checksum = header.checksum();
        let mut sum = with_length(self.received.filter(|_| checksum != 0)?, payload);
        sum.add_u16(checksum);
        Some(sum)
    }
}

/// The sum over pseudo-header and ports, and the length, which counts once in the pseudo-header and
/// once in the header.
#[inline(always)]
fn with_length(base: u16, payload: usize) -> Checksum {
    let mut sum = Checksum::resume(base);
    sum.add_u32(2 * (payload + HEADER_LEN) as u32);
    sum
}

#[cfg(test)]
mod tests;
