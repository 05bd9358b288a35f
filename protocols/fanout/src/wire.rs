//! The header: six octets in network order.

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// The type number of the protocol above.
        pub number: u16,
        /// The room.
        pub room: u16,
        /// Octets of the message behind the header.
        pub length: u16,
    }
}

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_octets() {
        let header = Header { number: 7, room: 0x0102, length: 9 };
        assert_eq!(header.emit(), [0, 7, 1, 2, 0, 9]);
        assert_eq!(Header::parse(&[0, 7, 1, 2, 0, 9]), header);
    }
}
