//! Arrays, optional data and lists (RFC 4506, sections 4.12, 4.13 and 4.19).

use crate::Xdr;
use crate::decode::Decoder;
use crate::encode::Sink;
use crate::error::{DecodeError, EncodeError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// Elements of any number up to `MAX` (RFC 4506, section 4.13). More can be held, but neither
/// written nor read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Array<T, const MAX: u32 = { u32::MAX }>(pub Vec<T>);

/// A linked list: optional data which end in the next optional data (RFC 4506, section 4.19), as
/// the items in their order. On the wire each is preceded by true, and false ends them. Neither
/// written nor read by recursion, so it may be as long as its octets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List<T>(pub Vec<T>);

impl<T: Xdr, const MAX: u32> Xdr for Array<T, MAX> {
    const OCTETS_MIN: usize = 4;

    #[inline]
    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        sink.put_len(self.0.len(), MAX)?;
        self.0.iter().try_for_each(|item| item.encode(sink))
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let len = decoder.take_len(MAX, T::OCTETS_MIN)?;
        decoder.deeper::<T, _>(|decoder| elements(decoder, len)).map(Self)
    }
}

/// Reads `len` elements, one behind the other.
fn elements<T: Xdr>(decoder: &mut Decoder<'_>, len: usize) -> Result<Vec<T>, DecodeError> {
    // An element may be much larger in memory than in octets: only what is there gets room.
    let mut items = Vec::with_capacity(len.min(64));
    for _ in 0..len {
        items.push(T::decode(decoder)?);
    }
    Ok(items)
}

impl<T: Xdr> Xdr for List<T> {
    const OCTETS_MIN: usize = 4;

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        for item in &self.0 {
            true.encode(sink)?;
            item.encode(sink)?;
        }
        false.encode(sink)
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.deeper::<T, _>(|decoder| {
            let mut items = Vec::new();
            while bool::decode(decoder)? {
                items.push(T::decode(decoder)?);
            }
            Ok(Self(items))
        })
    }
}

/// Optional data (RFC 4506, section 4.19).
impl<T: Xdr> Xdr for Option<Box<T>> {
    const OCTETS_MIN: usize = 4;

    #[inline]
    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.is_some().encode(sink)?;
        match self {
            Some(value) => value.encode(sink),
            None => Ok(()),
        }
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if !bool::decode(decoder)? {
            return Ok(None);
        }
        let value = decoder.deeper::<T, _>(|decoder| T::decode(decoder))?;
        Ok(Some(Box::new(value)))
    }
}

/// Elements of a fixed number (RFC 4506, section 4.12).
impl<T: Xdr, const N: usize> Xdr for [T; N] {
    const OCTETS_MIN: usize = N * T::OCTETS_MIN;

    #[inline]
    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.iter().try_for_each(|item| item.encode(sink))
    }

    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut items = ArrayVec::<T, N>::new();
        for _ in 0..N {
            items.push(T::decode(decoder)?);
        }
        items.into_inner().map_err(|_| DecodeError::Truncated)
    }
}

/// On the heap, for numbers that do not fit a shepherd's stack.
impl<T: Xdr, const N: usize> Xdr for Box<[T; N]> {
    const OCTETS_MIN: usize = N * T::OCTETS_MIN;

    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.iter().try_for_each(|item| item.encode(sink))
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if Self::OCTETS_MIN > decoder.left() {
            return Err(DecodeError::Truncated);
        }
        let items: Vec<T> = elements(decoder, N)?;
        items.into_boxed_slice().try_into().map_err(|_| DecodeError::Truncated)
    }
}

/// Shared parts of both vectors.
macro_rules! vector {
    ($name:ident $(, const $max:ident)?) => {
        impl<T $(, const $max: u32)?> Deref for $name<T $(, $max)?> {
            type Target = Vec<T>;

            fn deref(&self) -> &Vec<T> {
                &self.0
            }
        }

        impl<T $(, const $max: u32)?> DerefMut for $name<T $(, $max)?> {
            fn deref_mut(&mut self) -> &mut Vec<T> {
                &mut self.0
            }
        }

        impl<T $(, const $max: u32)?> From<Vec<T>> for $name<T $(, $max)?> {
            fn from(items: Vec<T>) -> Self {
                Self(items)
            }
        }

        impl<T $(, const $max: u32)?> FromIterator<T> for $name<T $(, $max)?> {
            fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
                Self(items.into_iter().collect())
            }
        }

        impl<T $(, const $max: u32)?> IntoIterator for $name<T $(, $max)?> {
            type Item = T;
            type IntoIter = alloc::vec::IntoIter<T>;

            fn into_iter(self) -> Self::IntoIter {
                self.0.into_iter()
            }
        }

        impl<T $(, const $max: u32)?> Default for $name<T $(, $max)?> {
            fn default() -> Self {
                Self(Vec::new())
            }
        }

        impl<T: fmt::Debug $(, const $max: u32)?> fmt::Debug for $name<T $(, $max)?> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

vector!(Array, const MAX);
vector!(List);
