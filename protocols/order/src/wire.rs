//! The header: two octets. What is sent for its place alone has none.

use xk_core::Message;

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

impl Header {
    /// Takes the header off a message, in whichever slices it lies; `None` if it is not there.
    pub(crate) fn take(message: &mut Message) -> Option<Self> {
        if let Some(header) = message.pop_array().map(Self::parse) {
            return Some(header);
        }
        let mut octets = [0; HEADER_OCTETS];
        let is_there = message.copy_to(0, &mut octets) == HEADER_OCTETS;
        (is_there && message.strip(HEADER_OCTETS)).then(|| Self::parse(&octets))
    }
}

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
