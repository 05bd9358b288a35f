//! The transport provider interface: primitives between a transport user and a provider, their
//! octets, the provider's states, and the part that all providers of datagrams share.
//!
//! # Addresses and options
//! An address is sixteen octets. The Internet's: family 2 in host order, port and host in network
//! order, zeros. AppleTalk's: `xk_appletalk::addr::AtAddr::to_sockaddr`. A link's: [`Link`].
//!
//! A stream that is bound to no address in particular (T_BIND_REQ with an address of zeros, or
//! none, on a stream opened for another protocol, [`Opening::upper`](crate::Opening::upper)) has
//! all that comes for the number of that protocol. There the options begin with the address of this
//! end ([`own_end`]): where a datagram came to, and in a request where it comes from. What the
//! protocol has of options follows.
//!
//! Source: The Open Group, "Transport Provider Interface" (1997; the draft of version 2, 1999),
//! chapters 2 and 3 and the message formats.

mod address;
mod below;
mod codec;
mod datagrams;
mod emit;
mod info;
mod mux;
mod state;
#[cfg(test)]
mod tests;

pub use address::{ADDRESS_OCTETS, Link, inet, inet_parts, own_end, with_own_end};
pub use below::Below;
pub use codec::{FormatError, Primitive};
pub use datagrams::{Datagrams, Endpoint, SendError};
pub use emit::{discon_ind, error_ack, ok_ack, uderror_ind, unitdata_ind, unitdata_req, with_data};
pub use info::{Info, NO_SIZE, Service, UNLIMITED};
pub use mux::{Driver, Multiplexor, Mux, Users};
pub use state::{Event, State, TABLE_TEXT};

use crate::errno::Errno;
use core::fmt;

/// A provider's number of an error (`t_errno`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TliError(pub u32);

macro_rules! tli_errors {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        impl TliError {
            $($(#[$doc])* pub const $name: TliError = TliError($number);)+

            /// The symbol, `TBADADDR`; `?` for a number without one.
            pub fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)+
                    _ => "?",
                }
            }
        }
    };
}

tli_errors! {
    /// The address has not the form that the provider takes.
    TBADADDR = 1,
    /// The options have not the form that the provider takes.
    TBADOPT = 2,
    /// The user may not.
    TACCES = 3,
    /// Not an endpoint.
    TBADF = 4,
    /// No address could be allocated.
    TNOADDR = 5,
    /// The call does not fit the state.
    TOUTSTATE = 6,
    /// No connection indication has this number.
    TBADSEQ = 7,
    /// A system error: its number is beside this one.
    TSYSERR = 8,
    /// An event waits, for which `look` asks.
    TLOOK = 9,
    /// The amount of data is not what the provider takes.
    TBADDATA = 10,
    /// The result does not fit.
    TBUFOVFLW = 11,
    /// Flow control stands against it.
    TFLOW = 12,
    /// Nothing is there.
    TNODATA = 13,
    /// No disconnect is there.
    TNODIS = 14,
    /// No error of a datagram is there.
    TNOUDERR = 15,
    /// The flags do not do.
    TBADFLAG = 16,
    /// No orderly release is there.
    TNOREL = 17,
    /// The provider does not do that.
    TNOTSUPPORT = 18,
    /// The state is about to change.
    TSTATECHNG = 19,
}

impl fmt::Debug for TliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "?" => write!(f, "t_errno {}", self.0),
            name => f.write_str(name),
        }
    }
}

/// Why a provider refuses a request: the number of T_ERROR_ACK and, with TSYSERR, the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The transport interface's number.
    pub tli: TliError,
    /// The system's number, 0 but with TSYSERR.
    pub unix: Errno,
}

impl From<TliError> for Refusal {
    fn from(tli: TliError) -> Self {
        Self { tli, unix: Errno(0) }
    }
}

impl From<Errno> for Refusal {
    fn from(unix: Errno) -> Self {
        Self { tli: TliError::TSYSERR, unix }
    }
}
