//! The header: type number, length.

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// The type number of the protocol above.
        pub number: u16,
        /// Octets of the message behind the header.
        pub length: u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_octets() {
        let header = Header { number: 7, length: 0x0102 };
        assert_eq!(header.emit(), [0, 7, 1, 2]);
        assert_eq!(Header::parse(&[0, 7, 1, 2]), header);
    }
}
