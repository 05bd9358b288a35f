//! Sinks of octets.

use crate::error::EncodeError;
use alloc::vec::Vec;
use xk_core::Message;

/// Octets of padding behind `len` octets (RFC 4506, section 3).
#[inline]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Takes the octets of a value, one piece behind the other.
pub trait Sink {
    /// Takes the next octets.
    ///
    /// # Errors
    /// [`EncodeError::NoRoom`].
    fn put(&mut self, octets: &[u8]) -> Result<(), EncodeError>;

    /// Takes octets and the zeros that pad them (RFC 4506, section 4.9).
    ///
    /// # Errors
    /// As for [`Sink::put`].
    #[inline]
    fn put_padded(&mut self, octets: &[u8]) -> Result<(), EncodeError> {
        self.put(octets)?;
        self.put([0; 3].get(..padding(octets.len())).unwrap_or_default())
    }

    /// Takes a length, if it is one (RFC 4506, section 4.10).
    ///
    /// # Errors
    /// [`EncodeError::TooLong`], or as for [`Sink::put`].
    #[inline]
    fn put_len(&mut self, len: usize, max: u32) -> Result<(), EncodeError> {
        match u32::try_from(len) {
            Ok(len) if len <= max => self.put(&len.to_be_bytes()),
            _ => Err(EncodeError::TooLong { len, max }),
        }
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, octets: &[u8]) -> Result<(), EncodeError> {
        self.extend_from_slice(octets);
        Ok(())
    }
}

/// Counts octets and keeps none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Length(usize);

impl Length {
    /// Number of octets.
    pub fn octets(self) -> usize {
        self.0
    }
}

impl Sink for Length {
    #[inline]
    fn put(&mut self, octets: &[u8]) -> Result<(), EncodeError> {
        self.0 += octets.len();
        Ok(())
    }
}

/// Fills a slice from its front.
#[derive(Debug)]
pub struct Filler<'a> {
    left: &'a mut [u8],
}

impl<'a> Filler<'a> {
    /// Fills this one.
    pub fn new(slice: &'a mut [u8]) -> Self {
        Self { left: slice }
    }

    /// Octets that it still takes.
    pub fn room(&self) -> usize {
        self.left.len()
    }
}

impl Sink for Filler<'_> {
    #[inline]
    fn put(&mut self, octets: &[u8]) -> Result<(), EncodeError> {
        let left = core::mem::take(&mut self.left);
        let Some((to, left)) = left.split_at_mut_checked(octets.len()) else {
            return Err(EncodeError::NoRoom);
        };
        to.copy_from_slice(octets);
        self.left = left;
        Ok(())
    }
}

/// Overwrites a message that lies in several slices.
pub(crate) struct Across<'a> {
    message: &'a mut Message,
    at: usize,
}

impl<'a> Across<'a> {
    pub(crate) fn new(message: &'a mut Message) -> Self {
        Self { message, at: 0 }
    }
}

impl Sink for Across<'_> {
    fn put(&mut self, octets: &[u8]) -> Result<(), EncodeError> {
        if self.message.copy_in(self.at, octets) < octets.len() {
            return Err(EncodeError::NoRoom);
        }
        self.at += octets.len();
        Ok(())
    }
}
