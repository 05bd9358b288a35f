//! Error numbers of System V.

use core::fmt;
use xk_core::Reason;
use xk_core::reason;

/// An error of an operation of this subsystem, by its number in System V Release 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub u32);

macro_rules! errno {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Errno = Errno($number);)+

            /// The symbol, `EINVAL`; `?` for a number without one.
            pub fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)+
                    _ => "?",
                }
            }
        }
    };
}

errno! {
    /// Not allowed.
    EPERM = 1,
    /// No such device or module.
    ENOENT = 2,
    /// The wait was interrupted.
    EINTR = 4,
    /// The stream is gone, or its device.
    EIO = 5,
    /// No such device, or the stream is hung up.
    ENXIO = 6,
    /// The stream is closed.
    EBADF = 9,
    /// The call would wait.
    EAGAIN = 11,
    /// No room.
    ENOMEM = 12,
    /// The address is not of the user's memory.
    EFAULT = 14,
    /// In use.
    EBUSY = 16,
    /// The argument does not do.
    EINVAL = 22,
    /// The other end of the pipe is gone.
    EPIPE = 32,
    /// Outside of what the stream takes.
    ERANGE = 34,
    /// Not a stream.
    ENOSTR = 60,
    /// Nothing there.
    ENODATA = 61,
    /// The timer went off.
    ETIME = 62,
    /// Out of STREAMS resources.
    ENOSR = 63,
    /// A protocol error.
    EPROTO = 71,
    /// A message of another kind is in front.
    EBADMSG = 77,
    /// An address is needed.
    EDESTADDRREQ = 96,
    /// The message is too long.
    EMSGSIZE = 97,
    /// Not supported.
    EOPNOTSUPP = 122,
    /// The address is in use.
    EADDRINUSE = 125,
    /// The address cannot be assigned.
    EADDRNOTAVAIL = 126,
    /// The network is unreachable.
    ENETUNREACH = 128,
    /// The connection was broken off on this side.
    ECONNABORTED = 130,
    /// The peer broke the connection off.
    ECONNRESET = 131,
    /// No buffer space.
    ENOBUFS = 132,
    /// The peer is not connected.
    ENOTCONN = 134,
    /// The connection timed out.
    ETIMEDOUT = 145,
    /// The peer refuses.
    ECONNREFUSED = 146,
    /// The host is unreachable.
    EHOSTUNREACH = 148,
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "?" => write!(f, "errno {}", self.0),
            name => f.write_str(name),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl core::error::Error for Errno {}

impl From<Errno> for &'static Reason {
    /// The reason under which a message is dropped for this error.
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOSR | Errno::ENOBUFS | Errno::ENOMEM => &reason::NO_BUFFERS,
            Errno::EMSGSIZE | Errno::ERANGE => &reason::TOO_BIG,
            Errno::EAGAIN => &reason::QUEUE_FULL,
            Errno::ENXIO | Errno::EIO | Errno::EBADF | Errno::ENOTCONN => &reason::CLOSED,
            Errno::EINVAL | Errno::EDESTADDRREQ | Errno::EADDRNOTAVAIL => &reason::MALFORMED,
            _ => &reason::NOT_SUPPORTED,
        }
    }
}
