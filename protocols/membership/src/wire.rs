//! The header: two octets. A vote has a number of eight octets for each member behind it. What is
//! sent for its place alone has no header.

use crate::agreement::Roll;
use alloc::vec::Vec;
use xk_core::Message;

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// [`DATA`], [`VOTE`], [`ALIVE`] or [`DECIDED`].
        pub kind: u8,
        /// Number of members of a roll; 0 of data.
        pub members: u8,
    }
}

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;

/// A message of the layer above.
pub const DATA: u8 = 0;
/// A vote.
pub const VOTE: u8 = 1;
/// A sign of life beside the conversation, of a member that has no room for a null, or comes back.
pub const ALIVE: u8 = 2;
/// The roll that was decided last, beside the conversation, to a member that is out by it.
pub const DECIDED: u8 = 3;

/// Writes a roll.
#[must_use]
pub fn emit(kind: u8, roll: &[u64]) -> Vec<u8> {
    let header = Header { kind, members: roll.len() as u8 };
    let numbers = roll.iter().flat_map(|number| number.to_be_bytes());
    header.emit().into_iter().chain(numbers).collect()
}

/// Reads what is behind the header of a roll; `None` if it is none.
#[must_use]
pub fn read(header: Header, message: &Message) -> Option<Roll> {
    let mut octets = [0; 8 * 64];
    let length = message.copy_to(0, &mut octets);
    let is_sound = matches!(header.kind, VOTE | DECIDED) && length == message.len();
    let octets =
        octets.get(..length).filter(|_| is_sound && length == 8 * usize::from(header.members));
    octets.map(|octets| {
        octets.as_chunks().0.iter().map(|number| u64::from_be_bytes(*number)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::message::{Pool, PoolConfig};

    #[test]
    fn real_octets() {
        let roll = [1, 0x102_0304_0506_0708];
        let octets = [1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(emit(VOTE, &roll), octets);
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let read = |octets: &[u8]| {
            let mut message = pool.copy_from(0, octets).unwrap();
            let header = Header::parse(message.pop_array()?);
            read(header, &message)
        };
        assert_eq!(read(&octets).as_deref(), Some(&roll[..]));
        for end in 0..octets.len() {
            assert_eq!(read(&octets[..end]), None, "cut at {end}");
        }
        for (at, octet) in [(0, 0), (0, 2), (1, 1), (1, 3), (1, 255)] {
            let mut other = octets;
            other[at] = octet;
            assert_eq!(read(&other), None, "octet {at}");
        }
        assert_eq!(read(&[&octets[..], &[0; 600]].concat()), None, "longer");
    }
}
