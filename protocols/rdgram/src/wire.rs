//! The header: one number of four octets in network order, which names the protocol above.

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// The type number of the protocol above.
        pub number: u32,
    }
}

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_octets_are_in_network_order() {
        let header = Header::parse(&[0, 0, 1, 7]);
        assert_eq!(header.number, 263);
        assert_eq!(header.emit(), [0, 0, 1, 7]);
    }

    proptest! {
        #[test]
        fn round_trip(octets: [u8; HEADER_OCTETS]) {
            prop_assert_eq!(Header::parse(&octets).emit(), octets);
        }
    }
}
