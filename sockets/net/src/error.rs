//! What the layers say, in the numbers that a Linux programmer expects.

use rustix::io::Errno;
use std::io;
use xk_core::object::{OpenError, PushError};
use xk_core::participant::AddressError;
use xk_kit::control::NetworkErrorKind;
use xk_kit::stream::StreamError;

/// Why a stream broke.
pub(crate) fn of_stream(error: StreamError) -> Errno {
    match error {
        StreamError::Refused => Errno::CONNREFUSED,
        StreamError::Reset => Errno::CONNRESET,
        StreamError::TimedOut => Errno::TIMEDOUT,
        StreamError::Unreachable => Errno::HOSTUNREACH,
        StreamError::Aborted => Errno::CONNABORTED,
        StreamError::NoBuffers => Errno::NOBUFS,
    }
}

/// Why a session or an offer was not made; `passive` if it was to wait for others.
pub(crate) fn of_open(error: OpenError, passive: bool) -> Errno {
    match error {
        OpenError::InUse => Errno::ADDRINUSE,
        OpenError::NoRoute => Errno::NETUNREACH,
        OpenError::NoBuffers => Errno::NOBUFS,
        OpenError::Full if passive => Errno::ADDRINUSE,
        // As for a connect that finds no free port (connect(2)).
        OpenError::Full => Errno::ADDRNOTAVAIL,
        OpenError::Address(AddressError::OutOfRange) => Errno::ADDRNOTAVAIL,
        OpenError::Address(_) => Errno::INVAL,
        OpenError::NotSupported | OpenError::NoTypeNumber | OpenError::NoLower => {
            Errno::PROTONOSUPPORT
        }
    }
}

/// Why a message was not taken.
pub(crate) fn of_push(error: PushError) -> Errno {
    match error {
        PushError::Closed => Errno::PIPE,
        PushError::TooBig { .. } => Errno::MSGSIZE,
        PushError::NoBuffers => Errno::NOBUFS,
        PushError::QueueFull => Errno::AGAIN,
        PushError::NoRoute => Errno::NETUNREACH,
        PushError::Unreachable => Errno::HOSTUNREACH,
        PushError::NotSupported => Errno::DESTADDRREQ,
    }
}

/// What the network reports about a datagram; `None` for what a socket does not hear of (RFC 1122, section 4.1.3.3).
pub(crate) fn of_network(kind: NetworkErrorKind) -> Option<Errno> {
    Some(match kind {
        NetworkErrorKind::PortUnreachable => Errno::CONNREFUSED,
        NetworkErrorKind::ProtocolUnreachable => Errno::NOPROTOOPT,
        NetworkErrorKind::HostUnreachable | NetworkErrorKind::Prohibited => Errno::HOSTUNREACH,
        NetworkErrorKind::PacketTooBig { .. } => Errno::MSGSIZE,
        NetworkErrorKind::ParameterProblem => Errno::PROTO,
        NetworkErrorKind::TimeExceeded | NetworkErrorKind::ReassemblyTimeExceeded => return None,
    })
}

/// An error of a program's own making.
pub(crate) fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
