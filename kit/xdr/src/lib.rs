//! External data representation (XDR, RFC 4506): values to octets and back, over messages and
//! slices.
//!
//! A type that has a representation is [`Xdr`]. Those of the language are:
//!
//! | in the language | here | octets |
//! | --- | --- | --- |
//! | `int`, `unsigned int`, `hyper`, `unsigned hyper` | `i32`, `u32`, `i64`, `u64` | 4, 4, 8, 8 |
//! | `bool` | `bool` | 4 |
//! | `float`, `double`, `quadruple` | `f32`, `f64`, [`Quadruple`] | 4, 8, 16 |
//! | `opaque x[N]`, `opaque x<MAX>`, `string x<MAX>` | `[u8; N]`, [`Opaque<MAX>`](Opaque),
//! [`Text<MAX>`](Text) | with padding to 4 |
//! | `T x[N]`, `T x<MAX>` | `[T; N]`, [`Array<T, MAX>`](Array) | |
//! | `T *x` | `Option<Box<T>>`; a linked list [`List<T>`](List) | |
//! | `void` | `()` | 0 |
//!
//! Structures, enumerations and unions are made by the compiler of the language (crate
//! `xk-rpcgen`), or by hand:
//!
//! ```
//! use xk_xdr::{DecodeError, Decoder, EncodeError, Sink, Text, Xdr};
//!
//! #[derive(Debug, PartialEq)]
//! struct Greeting {
//!     to: Text<255>,
//!     times: u32,
//! }
//!
//! impl Xdr for Greeting {
//!     const OCTETS_MIN: usize = Text::<255>::OCTETS_MIN + u32::OCTETS_MIN;
//!
//!     fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError> {
//!         self.to.encode(sink)?;
//!         self.times.encode(sink)
//!     }
//!
//!     fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
//!         Ok(Self {
//!             to: Xdr::decode(decoder)?,
//!             times: Xdr::decode(decoder)?,
//!         })
//!     }
//! }
//!
//! let greeting = Greeting { to: "world".into(), times: 2 };
//! let octets = xk_xdr::to_vec(&greeting)?;
//! assert_eq!(octets, *b"\0\0\0\x05world\0\0\0\0\0\0\x02");
//! assert_eq!(xk_xdr::from_slice::<Greeting>(&octets)?, greeting);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Bounds
//! A [`Decoder`] asks for nothing that the octets do not hold: a length is compared with the limit
//! in the type and with the octets that are left before anything is allocated, and memory grows
//! with what is decoded. A value of few octets may take more in memory: at most the size of the
//! element's type for each [`OCTETS_MIN`](Xdr::OCTETS_MIN) octets. Types that contain themselves do
//! so through `Option<Box<T>>` and [`Array`], which count how deep they are (RFC 4506, section 8):
//! [`Decoder::depth_max`]. They also see how much of the stack was taken, which a build without
//! optimisation does by kilobytes: what would take more than [`STACK_OCTETS_MAX`] is refused as too
//! deep. A [`List`] is not recursive at all.
//!
//! # Strictness
//! A boolean is 0 or 1, an enumeration one of its values, always. Octets of padding are zero in
//! everything that is written; those that are read are compared only by a [`Decoder::strict`] one.
//! What follows a value is left to the caller: [`Decoder::finish`] refuses it.
#![no_std]

extern crate alloc;

mod compound;
mod decode;
mod encode;
mod error;
mod octets;
mod scalar;

pub use compound::{Array, List};
pub use decode::{DEPTH_MAX, DEPTH_OCTETS, Decoder, EMPTY_ELEMENTS_MAX, STACK_OCTETS_MAX};
pub use encode::{Filler, Length, Sink, padding};
pub use error::{DecodeError, EncodeError};
pub use octets::{Opaque, Text};
pub use scalar::Quadruple;

use alloc::vec::Vec;
use xk_core::Message;
use xk_core::message::Pool;

/// A type with an external representation.
pub trait Xdr: Sized {
    /// The least octets that a value takes, padding included; a multiple of 4.
    const OCTETS_MIN: usize;

    /// Writes the value.
    ///
    /// # Errors
    /// [`EncodeError`]; some of it may have been written.
    fn encode<S: Sink>(&self, sink: &mut S) -> Result<(), EncodeError>;

    /// Reads a value.
    ///
    /// # Errors
    /// [`DecodeError`]; the decoder is somewhere in the value.
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError>;
}

/// Number of octets that the value takes.
///
/// # Errors
/// [`EncodeError`] if it has no representation.
pub fn encoded_len<T: Xdr>(value: &T) -> Result<usize, EncodeError> {
    let mut length = Length::default();
    value.encode(&mut length)?;
    Ok(length.octets())
}

/// The value's octets.
///
/// # Errors
/// [`EncodeError`] if it has no representation.
pub fn to_vec<T: Xdr>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let mut octets = Vec::new();
    value.encode(&mut octets)?;
    Ok(octets)
}

/// A message of the value's octets, with `headroom` octets free in front. Takes buffers of the pool
/// and nothing else.
///
/// # Errors
/// [`EncodeError`] if it has no representation, or the pool no buffers.
pub fn to_message<T: Xdr>(value: &T, pool: &Pool, headroom: usize) -> Result<Message, EncodeError> {
    let octets = encoded_len(value)?;
    let mut message = pool.alloc(headroom, octets).map_err(|_| EncodeError::NoBuffers)?;
    match message.front_mut() {
        Some(front) if front.len() == octets => value.encode(&mut Filler::new(front))?,
        _ => value.encode(&mut encode::Across::new(&mut message))?,
    }
    Ok(message)
}

/// The value at the front of these octets; what follows it is not looked at.
///
/// # Errors
/// [`DecodeError`] if there is none.
pub fn from_slice<T: Xdr>(octets: &[u8]) -> Result<T, DecodeError> {
    T::decode(&mut Decoder::new(octets))
}

/// The value at the front of this message, in however many slices it lies; what follows it is not
/// looked at.
///
/// # Errors
/// [`DecodeError`] if there is none.
pub fn from_message<T: Xdr>(message: &Message) -> Result<T, DecodeError> {
    T::decode(&mut Decoder::of_message(message))
}
