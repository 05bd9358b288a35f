//! What is wrong with octets, or with a value.

use core::fmt;

/// Why octets are no value of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The octets end within the value.
    Truncated,
    /// A length is beyond the limit of its type.
    TooLong {
        /// The length, in elements or octets.
        len: u32,
        /// The most there may be.
        max: u32,
    },
    /// A boolean that is neither 0 nor 1 (RFC 4506, section 4.4).
    BadBool(u32),
    /// A number that the enumeration does not have (section 4.3).
    BadEnum(i32),
    /// A discriminant for which the union has no arm (section 4.15); an unsigned one, by its 32
    /// bits.
    BadDiscriminant(i32),
    /// An octet of padding is not zero; only a strict decoder looks.
    BadPadding,
    /// Values within values beyond the decoder's depth.
    TooDeep,
    /// Octets follow the value.
    Trailing {
        /// How many.
        octets: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the octets end within the value"),
            Self::TooLong { len, max } => write!(f, "a length of {len} where at most {max} fit"),
            Self::BadBool(value) => write!(f, "a boolean of {value}, neither 0 nor 1"),
            Self::BadEnum(value) => write!(f, "the enumeration has no value {value}"),
            Self::BadDiscriminant(value) => write!(f, "the union has no arm for {value}"),
            Self::BadPadding => f.write_str("an octet of padding is not zero"),
            Self::TooDeep => f.write_str("values within values are too deep"),
            Self::Trailing { octets } => write!(f, "{octets} octets follow the value"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Why a value was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// It is longer than its type allows.
    TooLong {
        /// The length, in elements or octets.
        len: usize,
        /// The most there may be.
        max: u32,
    },
    /// The default arm of a union with a discriminant that has an arm of its own.
    BadDiscriminant(i32),
    /// There is no room left where it goes.
    NoRoom,
    /// The pool has no buffer left.
    NoBuffers,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len, max } => write!(f, "a length of {len} where at most {max} fit"),
            Self::BadDiscriminant(value) => {
                write!(f, "{value} in the default arm of a union that has an arm for it")
            }
            Self::NoRoom => f.write_str("no room left to write to"),
            Self::NoBuffers => f.write_str("no buffers left"),
        }
    }
}

impl core::error::Error for EncodeError {}
