//! Headers of fixed length, made from the list of their fields.

/// Makes the type of a header from its fields, unsigned integers of 8 to 128 bits in network order
/// one behind the other: `OCTETS`, how many they are; `parse`, which takes every value; `emit`.
///
/// ```
/// xk_kit::header! {
///     /// What the layer puts in front of a message.
///     pub struct Header {
///         /// The type number of the protocol above.
///         pub number: u16,
///         /// Octets of the message.
///         pub length: u16,
///     }
/// }
/// let header = Header { number: 7, length: 2 };
/// assert_eq!(header.emit(), [0, 7, 0, 2]);
/// assert_eq!(Header::parse(&[0, 7, 0, 2]), header);
/// ```
#[macro_export]
macro_rules! header {
    (
        $(#[$about:meta])*
        $vis:vis struct $Header:ident {
            $($(#[$field_about:meta])* $field_vis:vis $field:ident: $Type:ty),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $Header {
            $($(#[$field_about])* $field_vis $field: $Type,)+
        }

        impl $Header {
            /// Octets of the header.
            pub const OCTETS: usize = 0 $(+ size_of::<$Type>())+;

            /// Reads a header; every value is valid.
            #[inline]
            #[must_use]
            pub fn parse(octets: &[u8; Self::OCTETS]) -> Self {
                let rest = octets.as_slice();
                $(let ($field, rest) = match rest.split_first_chunk() {
                    Some((octets, rest)) => (<$Type>::from_be_bytes(*octets), rest),
                    None => (0, rest),
                };)+
                let _ = rest;
                Self { $($field,)+ }
            }

            /// Writes the header.
            #[inline]
            #[must_use]
            pub fn emit(self) -> [u8; Self::OCTETS] {
                let mut octets = [0; Self::OCTETS];
                let mut rest = octets.as_mut_slice();
                $(if let Some((field, after)) = core::mem::take(&mut rest).split_first_chunk_mut() {
                    *field = self.$field.to_be_bytes();
                    rest = after;
                })+
                let _ = rest;
                octets
            }
        }
    };
}
