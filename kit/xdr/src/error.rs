//! Errors of octets, and of values.

/// Why octets are no value of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The octets end within the value.
    #[error("the octets end within the value")]
    Truncated,
    /// A length is beyond the limit of its type.
    #[error("a length of {len} where at most {max} fit")]
    TooLong {
        /// The length, in elements or octets.
        len: u32,
        /// The most there may be.
        max: u32,
    },
    /// A boolean that is neither 0 nor 1 (RFC 4506, section 4.4).
    #[error("a boolean of {0}, neither 0 nor 1")]
    BadBool(u32),
    /// A number that the enumeration does not have (section 4.3).
    #[error("the enumeration has no value {0}")]
    BadEnum(i32),
    /// A discriminant for which the union has no arm (section 4.15); an unsigned one, by its 32
    /// bits.
    #[error("the union has no arm for {0}")]
    BadDiscriminant(i32),
    /// An octet of padding is not zero; only a strict decoder looks.
    #[error("an octet of padding is not zero")]
    BadPadding,
    /// Values within values beyond the decoder's depth.
    #[error("values within values are too deep")]
    TooDeep,
    /// Octets follow the value.
    #[error("{octets} octets follow the value")]
    Trailing {
        /// Number of octets.
        octets: usize,
    },
}

/// Why a value was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The value is longer than its type allows.
    #[error("a length of {len} where at most {max} fit")]
    TooLong {
        /// The length, in elements or octets.
        len: usize,
        /// The most there may be.
        max: u32,
    },
    /// The default arm of a union with a discriminant that has an arm of its own.
    #[error("{0} in the default arm of a union that has an arm for it")]
    BadDiscriminant(i32),
    /// There is no room left where it goes.
    #[error("no room left to write to")]
    NoRoom,
    /// The pool has no buffer left.
    #[error("no buffers left")]
    NoBuffers,
}
