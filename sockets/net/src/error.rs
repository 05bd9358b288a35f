//! Errors of the layers, as the numbers that a Linux programmer expects.

use rustix::io::Errno;
use std::io;
use xk_core::object::{OpenError, PushError};
use xk_core::participant::AddressError;
use xk_kit::control::NetworkErrorKind;
use xk_kit::net::stream::StreamError;

/// Why a stream broke.
pub(crate) fn of_stream(error: StreamError) -> Errno {
    match error {
        StreamError::Refused => Errno::CONNREFUSED,
        StreamError::Reset => Errno::CONNRESET,
        StreamError::TimedOut => Errno::TIMEDOUT,
        StreamError::Network(kind) => of_network(kind),
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
        OpenError::NotPermitted => Errno::ACCESS,
        OpenError::NoAnswer => Errno::AGAIN,
        OpenError::Full if passive => Errno::ADDRINUSE,
        // As for a connect that finds no free port (connect(2)).
        OpenError::Full => Errno::ADDRNOTAVAIL,
        OpenError::Address(AddressError::OutOfRange) => Errno::ADDRNOTAVAIL,
        OpenError::Address(AddressError::WrongFamily) => Errno::AFNOSUPPORT,
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
        PushError::TooBig => Errno::MSGSIZE,
        PushError::NoBuffers => Errno::NOBUFS,
        PushError::QueueFull => Errno::AGAIN,
        PushError::NoRoute => Errno::NETUNREACH,
        PushError::Unreachable => Errno::HOSTUNREACH,
        PushError::NotSupported => Errno::DESTADDRREQ,
    }
}

/// Error that the network reports, as the number that Linux has for each of ICMP's.
pub(crate) fn of_network(kind: NetworkErrorKind) -> Errno {
    match kind {
        NetworkErrorKind::NetUnreachable
        | NetworkErrorKind::NetUnknown
        | NetworkErrorKind::NetProhibited => Errno::NETUNREACH,
        NetworkErrorKind::HostUnreachable
        | NetworkErrorKind::Prohibited
        | NetworkErrorKind::TimeExceeded
        | NetworkErrorKind::ReassemblyTimeExceeded => Errno::HOSTUNREACH,
        NetworkErrorKind::ProtocolUnreachable => Errno::NOPROTOOPT,
        NetworkErrorKind::PortUnreachable => Errno::CONNREFUSED,
        NetworkErrorKind::PacketTooBig { .. } => Errno::MSGSIZE,
        NetworkErrorKind::SourceRouteFailed => Errno::OPNOTSUPP,
        NetworkErrorKind::HostUnknown => Errno::HOSTDOWN,
        NetworkErrorKind::SourceIsolated => Errno::NONET,
        NetworkErrorKind::ParameterProblem => Errno::PROTO,
    }
}

/// An error of a program's own making.
pub(crate) fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's numbers for the codes of ICMP's "destination unreachable", and whether they are
    /// fatal (`icmp_err_convert`).
    const ON_LINUX: [(Errno, bool); 16] = [
        (Errno::NETUNREACH, false),
        (Errno::HOSTUNREACH, false),
        (Errno::NOPROTOOPT, true),
        (Errno::CONNREFUSED, true),
        (Errno::MSGSIZE, true),
        (Errno::OPNOTSUPP, false),
        (Errno::NETUNREACH, true),
        (Errno::HOSTDOWN, true),
        (Errno::NONET, true),
        (Errno::NETUNREACH, true),
        (Errno::HOSTUNREACH, true),
        (Errno::NETUNREACH, false),
        (Errno::HOSTUNREACH, false),
        (Errno::HOSTUNREACH, true),
        (Errno::HOSTUNREACH, true),
        (Errno::HOSTUNREACH, true),
    ];

    #[test]
    fn what_icmp_says_is_the_number_of_linux() {
        for (code, expected) in (0..).zip(ON_LINUX) {
            let kind = NetworkErrorKind::of_unreachable(code, 1280).expect("it is known");
            let number = of_network(kind);
            assert_eq!((number, kind.is_hard()), expected, "code {code}");
            assert_eq!(of_stream(StreamError::Network(kind)), number);
        }
        assert_eq!(NetworkErrorKind::of_unreachable(16, 0), None);
    }
}
