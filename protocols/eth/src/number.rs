//! Type numbers: how one number of 32 bits names an Ethernet type, an LLC service access point or a SNAP protocol.

use crate::wire::{EtherType, Snap};

/// The organisations whose SNAP protocols have numbers. The place in the list is part of the number, so new ones go to
/// the end.
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

/// The service access point that says SNAP follows; no protocol can have it.
const SAP_SNAP: u8 = 0xaa;

/// What a type number stands for on this layer.
///
/// | number | meaning |
/// | --- | --- |
/// | 0 to 0xff, without 0xaa | IEEE 802.3 with LLC: service access point, the same at both ends |
/// | 0x600 to 0xffff | Ethernet II: type |
/// | 0x1_0000 × (n + 1) + protocol | IEEE 802.3 with LLC and SNAP: organisation n of [`ORGANISATIONS`] |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Ethernet II.
    Type(EtherType),
    /// IEEE 802.3 with LLC.
    Sap(u8),
    /// IEEE 802.3 with LLC and SNAP.
    Snap(Snap),
}

impl Selector {
    /// What `number` stands for; `None` if nothing.
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

impl core::fmt::Display for Selector {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Type(ether_type) => write!(f, "{ether_type}"),
            Self::Sap(sap) => write!(f, "LLC 0x{sap:02x}"),
            Self::Snap(Snap { oui, protocol }) => {
                let [a, b, c] = oui;
                write!(f, "SNAP {a:02x}:{b:02x}:{c:02x} 0x{protocol:04x}")
            }
        }
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
        let apple = Snap {
            oui: [8, 0, 7],
            protocol: 0x809b,
        };
        let number = Some(0x2_809b);
        assert_eq!(Selector::Snap(apple).number(), number);
        let plain = Snap::new(EtherType::IPV4);
        assert_eq!(Selector::from_number(0x1_0800), Some(Selector::Snap(plain)));
        for nothing in [0xaa, 0x100, 0x5ff, 0x5_0000, u32::MAX] {
            assert_eq!(Selector::from_number(nothing), None, "0x{nothing:x}");
        }
        assert_eq!(Selector::Sap(0xaa).number(), None);
    }

    proptest! {
        #[test]
        fn numbers_round_trip(number in 0u32..0x8_0000) {
            if let Some(selector) = Selector::from_number(number) {
                prop_assert_eq!(selector.number(), Some(number));
            }
        }
    }
}
