//! Type numbers: how one number of 32 bits names an Ethernet type, an LLC service access point or a
//! SNAP protocol; and the keys of conversations, which are made of them.

use crate::wire::{EthAddr, EtherType, SAP_SNAP, Selector, Snap, TYPE_MIN};

/// The organisations whose SNAP protocols have numbers. The place in the list is part of the
/// number, so new ones go to the end.
pub const ORGANISATIONS: [[u8; 3]; 4] = [
    // Ethernet types (RFC 1042).
    [0x00, 0x00, 0x00],
    // Apple: AppleTalk.
    [0x08, 0x00, 0x07],
    // IEEE 802.1: bridges.
    [0x00, 0x80, 0xc2],
    // Cisco.
    [0x00, 0x00, 0x0c],
];

/// The type numbers of this layer.
///
/// | number | meaning |
/// | --- | --- |
/// | 0 to 0xff, without 0xaa | IEEE 802.3 with LLC: service access point, the same at both ends |
/// | 0x600 to 0xffff | Ethernet II: type |
/// | 0x1_0000 × (n + 1) + protocol | IEEE 802.3 with LLC and SNAP: organisation n of [`ORGANISATIONS`] |
impl Selector {
    /// The selector that `number` stands for; `None` if there is none.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let low = number as u16;
        match number >> 16 {
            0 => match u8::try_from(low) {
                Ok(SAP_SNAP) => None,
                Ok(sap) => Some(Self::Sap(sap)),
                Err(_) => EtherType::new(low).map(Self::Type),
            },
            place => {
                let oui = *ORGANISATIONS.get(place as usize - 1)?;
                let protocol = low;
                Some(Self::Snap(Snap { oui, protocol }))
            }
        }
    }

    /// The number; `None` for a service access point or an organisation without one.
    #[must_use]
    pub fn number(self) -> Option<u32> {
        match self {
            Self::Type(ether_type) => Some(u32::from(ether_type.get())),
            Self::Sap(SAP_SNAP) => None,
            Self::Sap(sap) => Some(u32::from(sap)),
            Self::Snap(snap) => {
                let place = ORGANISATIONS.iter().position(|oui| *oui == snap.oui)?;
                Some(((place as u32 + 1) << 16) | u32::from(snap.protocol))
            }
        }
    }
}

/// Key of a conversation: the peer's address and the low half of the type number, in Ethernet II as
/// they lie in a header; then what is left of the number, 0 in Ethernet II.
pub(crate) type Key = ([u8; 8], u16);

/// Upper half of the key of a service access point: the lower half could be a length.
const SAP_KEY: u16 = u16::MAX;

/// The key of frames with this number from and to `peer`.
pub(crate) fn key(peer: EthAddr, number: u32) -> Key {
    let EthAddr([a, b, c, d, e, f]) = peer;
    let [.., low, lowest] = number.to_be_bytes();
    let rest = match number < TYPE_MIN.into() {
        true => SAP_KEY,
        false => (number >> 16) as u16,
    };
    ([a, b, c, d, e, f, low, lowest], rest)
}

/// The peer of a key.
pub(crate) fn station_in(([a, b, c, d, e, f, _, _], _): Key) -> EthAddr {
    EthAddr([a, b, c, d, e, f])
}

/// The type number of a key.
pub(crate) fn number_in(([.., low, lowest], rest): Key) -> u32 {
    let low = u32::from(u16::from_be_bytes([low, lowest]));
    match rest {
        SAP_KEY => low,
        rest => u32::from(rest) << 16 | low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_three_kinds() {
        let arp = Selector::Type(EtherType::ARP);
        assert_eq!(Selector::from_number(0x0806), Some(arp));
        assert_eq!(Selector::from_number(0x42), Some(Selector::Sap(0x42)));
        let apple = Snap { oui: [8, 0, 7], protocol: 0x809b };
        let number = Some(0x2_809b);
        assert_eq!(Selector::Snap(apple).number(), number);
        let plain = Snap { oui: [0; 3], protocol: 0x0800 };
        assert_eq!(Selector::from_number(0x1_0800), Some(Selector::Snap(plain)));
        for nothing in [0xaa, 0x100, 0x5ff, 0x5_0000, u32::MAX] {
            assert_eq!(Selector::from_number(nothing), None, "0x{nothing:x}");
        }
        assert_eq!(Selector::Sap(0xaa).number(), None);
    }

    const PEER: EthAddr = EthAddr([2, 0, 0, 0, 0, 7]);

    #[test]
    fn a_length_is_no_key() {
        // In Ethernet II the key is what lies in the header; a service access point's is not what
        // lies in that of a frame as long as its number.
        assert_eq!(key(PEER, 0x0800), ([2, 0, 0, 0, 0, 7, 8, 0], 0));
        for number in [0x42, 0x1_0042, 0x2_0800] {
            assert_ne!(key(PEER, number).1, 0, "0x{number:x}");
        }
    }

    proptest! {
        #[test]
        fn numbers_round_trip(number in 0u32..0x8_0000) {
            if let Some(selector) = Selector::from_number(number) {
                prop_assert_eq!(selector.number(), Some(number));
                let key = key(PEER, number);
                prop_assert_eq!((station_in(key), number_in(key)), (PEER, number));
            }
        }
    }
}
