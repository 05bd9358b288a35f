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

    #[test]
    fn real_octets() {
        let header = Header { number: 0x0102_0304 };
        assert_eq!(header.emit(), [1, 2, 3, 4]);
        assert_eq!(Header::parse(&[1, 2, 3, 4]), header);
    }
}
