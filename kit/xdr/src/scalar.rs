//! Numbers, booleans, nothing at all, and several values side by side.

use crate::Xdr;
use crate::decode::Decoder;
use crate::encode::Sink;
use crate::error::{DecodeError, EncodeError};

/// Numbers whose octets, the most significant first, are their representation (RFC 4506, sections
/// 4.1, 4.2, 4.5 to 4.7).
macro_rules! number {
    ($($number:ty)*) => {$(
        impl Xdr for $number {
            const OCTETS_MIN: usize = size_of::<Self>();

            #[inline]
            fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
                sink.put(&self.to_be_bytes())
            }

            #[inline]
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_be_bytes(decoder.take()?))
            }
        }
    )*};
}

number!(i32 u32 i64 u64 f32 f64);

/// A floating-point number of 128 bits (RFC 4506, section 4.8): its octets, with which nothing here
/// calculates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quadruple(pub [u8; 16]);

impl Xdr for Quadruple {
    const OCTETS_MIN: usize = 16;

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put(&self.0)
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.take().map(Self)
    }
}

/// RFC 4506, section 4.4.
impl Xdr for bool {
    const OCTETS_MIN: usize = 4;

    #[inline]
    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put(&u32::from(*self).to_be_bytes())
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match u32::decode(decoder)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::BadBool(other)),
        }
    }
}

/// RFC 4506, section 4.16.
impl Xdr for () {
    const OCTETS_MIN: usize = 0;

    #[inline]
    fn encode<S: Sink>(&self, _: &mut S) -> Result<(), EncodeError> {
        Ok(())
    }

    #[inline]
    fn decode(_: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Several values one behind the other, as the components of a structure (RFC 4506, section 4.14):
/// the arguments of a procedure.
macro_rules! tuple {
    ($($kind:ident $at:tt),*) => {
        impl<$($kind: Xdr),*> Xdr for ($($kind,)*) {
            const OCTETS_MIN: usize = 0 $(+ $kind::OCTETS_MIN)*;

            #[inline]
            fn encode<Z: Sink>(&self, sink: &mut Z) -> Result<(), EncodeError> {
                $(self.$at.encode(sink)?;)*
                Ok(())
            }

            #[inline]
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(($($kind::decode(decoder)?,)*))
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
