//! Keys of maps: values of fixed size, as octets.

use crate::participant::{HostAddr, PeerName};
use core::hash::Hasher;
use core::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64};

/// A demultiplexing key: a small value that can say itself in octets, always
/// in the same number of them.
///
/// Equal keys must give equal octets, and keys that differ should differ in
/// them, for the octets are all that is hashed. An address type of a protocol
/// family implements it in one line:
///
/// ```
/// use core::hash::Hasher;
/// use xk_core::Secret;
/// use xk_core::map::{Key, Map};
///
/// #[derive(Clone, Copy, PartialEq, Eq)]
/// struct Station([u8; 6]);
///
/// impl Key for Station {
///     fn put(&self, octets: &mut impl Hasher) {
///         self.0.put(octets);
///     }
/// }
///
/// let types: Map<(Station, u16), &str> = Map::new(Secret::known([1, 2]), 16);
/// types.bind((Station([2, 0, 0, 0, 0, 1]), 0x0800), "ip").unwrap();
/// ```
pub trait Key: Copy + Eq {
    /// Appends the octets of this key to what is hashed.
    fn put(&self, octets: &mut impl Hasher);

    /// The key that a number is; `None` if keys of this type are no numbers, or too small for it.
    fn from_number(number: u32) -> Option<Self> {
        let _ = number;
        None
    }
}

macro_rules! integer_keys {
    ($($integer:ty, $write:ident);*) => {$(
        impl Key for $integer {
            #[inline]
            fn put(&self, octets: &mut impl Hasher) {
                // As little-endian octets on every machine.
                octets.$write(self.to_le());
            }

            fn from_number(number: u32) -> Option<Self> {
                number.try_into().ok()
            }
        }
    )*};
}
integer_keys!(u8, write_u8; u16, write_u16; u32, write_u32; u64, write_u64);

impl Key for u128 {
    #[inline]
    fn put(&self, octets: &mut impl Hasher) {
        (*self as u64).put(octets);
        ((*self >> 64) as u64).put(octets);
    }
}

macro_rules! nonzero_keys {
    ($($nonzero:ty),*) => {$(
        impl Key for $nonzero {
            #[inline]
            fn put(&self, octets: &mut impl Hasher) {
                self.get().put(octets);
            }
        }
    )*};
}
nonzero_keys!(NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64);

impl<const N: usize> Key for [u8; N] {
    #[inline]
    fn put(&self, octets: &mut impl Hasher) {
        // In words as wide as possible: N is constant, so this unrolls.
        let (eights, rest) = self.as_chunks::<8>();
        for eight in eights {
            u64::from_le_bytes(*eight).put(octets);
        }
        let (fours, rest) = rest.as_chunks::<4>();
        for four in fours {
            u32::from_le_bytes(*four).put(octets);
        }
        let (twos, rest) = rest.as_chunks::<2>();
        for two in twos {
            u16::from_le_bytes(*two).put(octets);
        }
        for one in rest {
            one.put(octets);
        }
    }
}

impl Key for HostAddr {
    #[inline]
    fn put(&self, octets: &mut impl Hasher) {
        self.to_parts().put(octets);
    }
}

impl Key for PeerName {
    #[inline]
    fn put(&self, octets: &mut impl Hasher) {
        self.key().put(octets);
    }
}

/// For a map with a single entry.
impl Key for () {
    #[inline]
    fn put(&self, _octets: &mut impl Hasher) {}
}

macro_rules! tuple_key {
    ($($part:ident . $index:tt),*) => {
        impl<$($part: Key),*> Key for ($($part,)*) {
            #[inline]
            fn put(&self, octets: &mut impl Hasher) {
                $( self.$index.put(octets); )*
            }
        }
    };
}
tuple_key!(A.0);
tuple_key!(A.0, B.1);
tuple_key!(A.0, B.1, C.2);
tuple_key!(A.0, B.1, C.2, D.3);
