//! Opaque data and strings (RFC 4506, sections 4.9 to 4.11).

use crate::Xdr;
use crate::decode::Decoder;
use crate::encode::Sink;
use crate::error::{DecodeError, EncodeError};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// Octets of any number up to `MAX` (RFC 4506, section 4.10). Longer ones can be held, but neither
/// written nor read.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opaque<const MAX: u32 = { u32::MAX }>(pub Vec<u8>);

/// Characters of any number of octets up to `MAX` (RFC 4506, section 4.11). The standard's are
/// ASCII, the world's are not always: it holds the octets as they came. Longer ones can be held,
/// but neither written nor read.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<const MAX: u32 = { u32::MAX }>(pub Vec<u8>);

impl<const MAX: u32> Text<MAX> {
    /// The characters, if they are UTF-8.
    ///
    /// # Errors
    /// Where they are not.
    pub fn as_str(&self) -> Result<&str, core::str::Utf8Error> {
        core::str::from_utf8(&self.0)
    }

    /// The characters, with a replacement for what is no UTF-8.
    pub fn to_str_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

/// Shared parts of both.
macro_rules! octets {
    ($name:ident) => {
        impl<const MAX: u32> Xdr for $name<MAX> {
            const OCTETS_MIN: usize = 4;

            #[inline]
            fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
                sink.put_len(self.0.len(), MAX)?;
                sink.put_padded(&self.0)
            }

            #[inline]
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let len = decoder.take_len(MAX, 1)?;
                let mut octets = Vec::new();
                decoder.append_padded(len, &mut octets)?;
                Ok(Self(octets))
            }
        }

        impl<const MAX: u32> Deref for $name<MAX> {
            type Target = Vec<u8>;

            fn deref(&self) -> &Vec<u8> {
                &self.0
            }
        }

        impl<const MAX: u32> DerefMut for $name<MAX> {
            fn deref_mut(&mut self) -> &mut Vec<u8> {
                &mut self.0
            }
        }

        impl<const MAX: u32> AsRef<[u8]> for $name<MAX> {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl<const MAX: u32> From<Vec<u8>> for $name<MAX> {
            fn from(octets: Vec<u8>) -> Self {
                Self(octets)
            }
        }

        impl<const MAX: u32> From<&[u8]> for $name<MAX> {
            fn from(octets: &[u8]) -> Self {
                Self(octets.into())
            }
        }

        impl<const MAX: u32, const N: usize> From<&[u8; N]> for $name<MAX> {
            fn from(octets: &[u8; N]) -> Self {
                Self(octets.into())
            }
        }
    };
}

octets!(Opaque);
octets!(Text);

impl<const MAX: u32> fmt::Debug for Opaque<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for octet in &self.0 {
            write!(f, "{octet:02x}")?;
        }
        write!(f, " ({} octets)", self.0.len())
    }
}

impl<const MAX: u32> fmt::Debug for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str_lossy(), f)
    }
}

impl<const MAX: u32> fmt::Display for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_str_lossy())
    }
}

impl<const MAX: u32> From<&str> for Text<MAX> {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl<const MAX: u32> From<String> for Text<MAX> {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl<const MAX: u32> PartialEq<str> for Text<MAX> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl<const MAX: u32> PartialEq<&str> for Text<MAX> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// Opaque data of a fixed length (RFC 4506, section 4.9).
impl<const N: usize> Xdr for [u8; N] {
    const OCTETS_MIN: usize = N.next_multiple_of(4);

    #[inline]
    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put_padded(self)
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut octets = [0; N];
        decoder.fill_padded(&mut octets)?;
        Ok(octets)
    }
}

/// On the heap, for lengths that do not fit a shepherd's stack.
impl<const N: usize> Xdr for Box<[u8; N]> {
    const OCTETS_MIN: usize = N.next_multiple_of(4);

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put_padded(self.as_slice())
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut octets = Vec::new();
        decoder.append_padded(N, &mut octets)?;
        octets.into_boxed_slice().try_into().map_err(|_| DecodeError::Truncated)
    }
}
