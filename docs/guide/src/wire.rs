//! The header: type number, length, sequence number.

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// The type number of the protocol above.
        pub number: u16,
        /// Octets of the message behind the header.
        pub length: u16,
        /// The number of the message: one more than that of the message before.
        pub sequence: u64,
    }
}

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_octets() {
        let octets = [0, 7, 0x01, 0x02, 0, 0, 0, 0, 0, 0, 0, 9];
        let header = Header { number: 7, length: 0x0102, sequence: 9 };
        assert_eq!(header.emit(), octets);
        assert_eq!(Header::parse(&octets), header);
    }
}
