//! The header: two octets. What is sent for its place alone has none.

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// The way of ordering: [`WAVES`] or [`CLASSES`], as at all members.
        pub by: u8,
        /// Class of messages that it commutes with; 0 for none.
        pub class: u8,
    }
}

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;

/// All messages are ordered, by waves.
pub const WAVES: u8 = 0;
/// Messages of one class are not ordered among each other.
pub const CLASSES: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_octets() {
        let header = Header { by: CLASSES, class: 3 };
        assert_eq!(header.emit(), [1, 3]);
        assert_eq!(Header::parse(&[1, 3]), header);
    }
}
