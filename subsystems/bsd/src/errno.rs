//! Errors, as the system calls of BSD name them.

use xk_core::Reason;
use xk_core::object::PushError;
use xk_core::reason;

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// An error number (4.3BSD, intro(2)).
        #[allow(clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Errno {
            $(#[doc = $text] $name = $number,)*
        }

        impl Errno {
            /// Name, as programs spell it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Text of perror(3).
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The error with this number.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

errnos! {
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "Device not configured";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EINVAL = 22, "Invalid argument";
    EPIPE = 32, "Broken pipe";
    EWOULDBLOCK = 35, "Operation would block";
    EINPROGRESS = 36, "Operation now in progress";
    EALREADY = 37, "Operation already in progress";
    EDESTADDRREQ = 39, "Destination address required";
    EMSGSIZE = 40, "Message too long";
    EPROTOTYPE = 41, "Protocol wrong type for socket";
    ENOPROTOOPT = 42, "Protocol not available";
    EPROTONOSUPPORT = 43, "Protocol not supported";
    ESOCKTNOSUPPORT = 44, "Socket type not supported";
    EOPNOTSUPP = 45, "Operation not supported";
    EAFNOSUPPORT = 47, "Address family not supported by protocol family";
    EADDRINUSE = 48, "Address already in use";
    EADDRNOTAVAIL = 49, "Can't assign requested address";
    ENETDOWN = 50, "Network is down";
    ENETUNREACH = 51, "Network is unreachable";
    ECONNABORTED = 53, "Software caused connection abort";
    ECONNRESET = 54, "Connection reset by peer";
    ENOBUFS = 55, "No buffer space available";
    EISCONN = 56, "Socket is already connected";
    ENOTCONN = 57, "Socket is not connected";
    ESHUTDOWN = 58, "Can't send after socket shutdown";
    ETIMEDOUT = 60, "Operation timed out";
    ECONNREFUSED = 61, "Connection refused";
    EHOSTDOWN = 64, "Host is down";
    EHOSTUNREACH = 65, "No route to host";
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({})", self.text(), self.name())
    }
}

impl core::error::Error for Errno {}

/// Result of a call of BSD: 0 or an error number.
pub type Result<T = ()> = core::result::Result<T, Errno>;

impl From<PushError> for Errno {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Closed => Self::EPIPE,
            PushError::TooBig => Self::EMSGSIZE,
            PushError::NoBuffers | PushError::QueueFull => Self::ENOBUFS,
            PushError::NoRoute => Self::ENETUNREACH,
            PushError::Unreachable => Self::EHOSTUNREACH,
            PushError::NotSupported => Self::EOPNOTSUPP,
        }
    }
}

impl From<Errno> for &'static Reason {
    /// The reason under which a packet is dropped for this error.
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOBUFS | Errno::ENOMEM => &reason::NO_BUFFERS,
            Errno::EMSGSIZE => &reason::TOO_BIG,
            Errno::ECONNREFUSED => &reason::NO_PORT,
            Errno::EPROTONOSUPPORT => &reason::NO_PROTOCOL,
            Errno::EPIPE | Errno::ENOTCONN => &reason::CLOSED,
            Errno::EWOULDBLOCK => &reason::QUEUE_FULL,
            _ => &reason::NOT_SUPPORTED,
        }
    }
}
