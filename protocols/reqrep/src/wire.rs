//! The header: a number that the client chose, and whether this is a call or a reply (RFC 5531,
//! section 9).

/// Octets of the header.
pub const HEADER_OCTETS: usize = 8;

/// Kind of a message: `msg_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CALL.
    Call,
    /// REPLY.
    Reply,
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client's number for the call: compared, never computed with.
    pub xid: u32,
    /// Kind of the message.
    pub kind: Kind,
}

/// A `msg_type` that is neither call nor reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message type {0} is neither call nor reply")]
pub struct UnknownKind(pub u32);

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`UnknownKind`].
    #[inline]
    pub fn parse(octets: &[u8; HEADER_OCTETS]) -> Result<Self, UnknownKind> {
        let word = u64::from_be_bytes(*octets);
        let kind = match word as u32 {
            0 => Kind::Call,
            1 => Kind::Reply,
            other => return Err(UnknownKind(other)),
        };
        let xid = (word >> 32) as u32;
        Ok(Self { xid, kind })
    }

    /// Reads a header for a layer below that may add octets: the upper bits of the kind, which RFC
    /// 5531 has no use for, say how many octets of message follow. Answers them.
    ///
    /// # Errors
    /// [`UnknownKind`] if there is no such length.
    pub fn parse_marked(octets: &[u8; HEADER_OCTETS]) -> Result<(Self, usize), UnknownKind> {
        let word = u64::from_be_bytes(*octets);
        let (xid, mark) = ((word >> 32) as u32, word as u32);
        let kind = match mark & 1 {
            0 => Kind::Call,
            _ => Kind::Reply,
        };
        match (mark >> 1).checked_sub(1) {
            Some(octets) => Ok((Self { xid, kind }, octets as usize)),
            None => Err(UnknownKind(mark)),
        }
    }

    /// Writes the header of a message of so many octets for such a layer.
    #[must_use]
    pub fn emit_marked(self, message_octets: usize) -> [u8; HEADER_OCTETS] {
        let mark = (message_octets as u32 + 1) << 1;
        (u64::from_be_bytes(self.emit()) | u64::from(mark)).to_be_bytes()
    }

    /// Writes the header.
    #[inline]
    #[must_use]
    pub fn emit(self) -> [u8; HEADER_OCTETS] {
        (u64::from(self.xid) << 32 | u64::from(self.kind == Kind::Reply)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_of_a_real_call_and_its_reply() {
        // The first words of an NFS call and its reply in Wireshark's test capture nfs.pcap.
        let call = [0x7b, 0x55, 0x8a, 0xeb, 0, 0, 0, 0];
        let reply = [0x7b, 0x55, 0x8a, 0xeb, 0, 0, 0, 1];
        let header = |kind| Header { xid: 0x7b55_8aeb, kind };
        assert_eq!(Header::parse(&call), Ok(header(Kind::Call)));
        assert_eq!(Header::parse(&reply), Ok(header(Kind::Reply)));
        assert_eq!(header(Kind::Call).emit(), call);
        assert_eq!(header(Kind::Reply).emit(), reply);
    }

    #[test]
    fn other_types_are_none() {
        for kind in [2, 0x0100_0000, u32::MAX] {
            let octets = (7 << 32 | u64::from(kind)).to_be_bytes();
            assert_eq!(Header::parse(&octets), Err(UnknownKind(kind)));
        }
    }
}
