//! The header of CHANNEL ("RPC in the x-Kernel", appendix): 18 octets in network order.
//!
//! ```text
//!  0       2         4              8              12      14        18
//!  | flags | channel | protocol_num | sequence_num | error | boot_id |
//! ```
//!
//! The flags are those of Sprite RPC. The five highest bits, which that leaves free, hold the
//! length of a short payload and one, where the layer below may add octets to a short packet
//! (Ethernet does); 0 says that the payload is what came.

/// Octets of the header.
pub const HEADER_OCTETS: usize = 18;
/// Octets of the longest payload whose length can be marked.
pub const MARKED_MAX: usize = 30;

/// An acknowledgement is asked for.
pub const PLSACK: u16 = 0x001;
/// With [`REPLY`]: the call was refused. With [`ACK`]: what the sequence number names is missing.
pub const ERROR: u16 = 0x008;
/// For the server's side of a host.
pub const SERVER: u16 = 0x010;
/// A request.
pub const REQUEST: u16 = 0x100;
/// An acknowledgement.
pub const ACK: u16 = 0x200;
/// A reply.
pub const REPLY: u16 = 0x400;
/// All of them.
const FLAGS: u16 = 0x7ff;
/// Lowest bit of the mark of a short payload.
const MARK_SHIFT: u32 = 11;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request, for the server.
    Request,
    /// For the server: do you work on it? For the client: did you get the reply?
    Probe,
    /// For the client: it is executed. For the server: replies up to the one before are here.
    Ack,
    /// For the client: the request is not here; with a ticket, it is to be sent with that. For the
    /// server: the reply is not here.
    Nack,
    /// A reply.
    Reply,
    /// The call was refused, for the reason in `error`.
    Refusal,
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the packet.
    pub kind: Kind,
    /// Whether it is for the server's side.
    pub for_server: bool,
    /// Whether it asks for an acknowledgement.
    pub please_ack: bool,
    /// The length of a short payload, if it is said.
    pub payload: Option<u8>,
    /// The channel.
    pub channel: u16,
    /// The type number of the protocol above.
    pub number: u32,
    /// The call's.
    pub sequence: u32,
    /// From the client: its ticket. From the server: why the call was refused, or the ticket to
    /// take.
    pub error: u16,
    /// The boot id of the sender.
    pub boot: u32,
}

/// The octets are no packet: flags that do not go together, or no boot id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The mark of a payload of `len` octets, where lengths are marked; 0 for a long one.
#[inline(always)]
pub(crate) fn mark(len: usize) -> u16 {
    if len <= MARKED_MAX { (len as u16 + 1) << MARK_SHIFT } else { 0 }
}

/// The flags proper of a header.
#[inline(always)]
pub(crate) fn flags_of(octets: &[u8; HEADER_OCTETS]) -> u16 {
    u16::from_be_bytes([octets[0], octets[1]]) & FLAGS
}

/// The length of a short payload, if it is said.
#[inline(always)]
pub(crate) fn payload_of(octets: &[u8; HEADER_OCTETS]) -> Option<usize> {
    usize::from(octets[0] >> (MARK_SHIFT - 8)).checked_sub(1)
}

/// Channel, number and sequence number of a header.
#[inline(always)]
pub(crate) fn names_of(octets: &[u8; HEADER_OCTETS]) -> (u16, u32, u32) {
    let [_, _, a, b, c, d, e, f, g, h, i, j, ..] = *octets;
    (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]), u32::from_be_bytes([g, h, i, j]))
}

/// Error and boot id of a header.
#[inline(always)]
pub(crate) fn end_of(octets: &[u8; HEADER_OCTETS]) -> (u16, u32) {
    let [.., a, b, c, d, e, f] = *octets;
    (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
}

impl Header {
    /// Reads a header; says nothing of the payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(octets: &[u8; HEADER_OCTETS]) -> Result<Self, Malformed> {
        let flags = flags_of(octets);
        let (for_server, please_ack) = (flags & SERVER != 0, flags & PLSACK != 0);
        let kind = match (flags & !(SERVER | PLSACK), for_server, please_ack) {
            (REQUEST, true, _) => Kind::Request,
            (REPLY, false, _) => Kind::Reply,
            (0, _, true) => Kind::Probe,
            (ACK, _, false) => Kind::Ack,
            (flags, _, false) if flags == ACK | ERROR => Kind::Nack,
            (flags, false, _) if flags == REPLY | ERROR => Kind::Refusal,
            _ => return Err(Malformed),
        };
        let ((channel, number, sequence), (error, boot)) = (names_of(octets), end_of(octets));
        if boot == 0 {
            return Err(Malformed);
        }
        Ok(Self {
            kind,
            for_server,
            please_ack,
            payload: payload_of(octets).map(|len| len as u8),
            channel,
            number,
            sequence,
            error,
            boot,
        })
    }

    /// Writes the header.
    pub fn emit(&self) -> [u8; HEADER_OCTETS] {
        let kind = match self.kind {
            Kind::Request => REQUEST,
            Kind::Probe => 0,
            Kind::Ack => ACK,
            Kind::Nack => ACK | ERROR,
            Kind::Reply => REPLY,
            Kind::Refusal => REPLY | ERROR,
        };
        let flag = |is: bool, flag: u16| if is { flag } else { 0 };
        let flags = kind
            | flag(self.for_server, SERVER)
            | flag(self.please_ack, PLSACK)
            | self.payload.map_or(0, |len| mark(usize::from(len)));
        let mut octets = [0; HEADER_OCTETS];
        octets[..2].copy_from_slice(&flags.to_be_bytes());
        octets[2..4].copy_from_slice(&self.channel.to_be_bytes());
        octets[4..8].copy_from_slice(&self.number.to_be_bytes());
        octets[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        octets[12..14].copy_from_slice(&self.error.to_be_bytes());
        octets[14..].copy_from_slice(&self.boot.to_be_bytes());
        octets
    }
}

/// Whether a sequence number comes after another (serial arithmetic, RFC 1982, section 3.2).
#[inline(always)]
pub(crate) fn is_newer(sequence: u32, than: u32) -> bool {
    sequence.wrapping_sub(than) as i32 > 0
}

#[cfg(test)]
mod tests;
