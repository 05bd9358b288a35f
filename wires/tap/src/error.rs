//! Why a TAP device could not be opened, and what to do about it.

use std::io;
use std::os::fd::RawFd;

/// Why [`crate::TapDevice::open`] failed. The text of each names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// No interface can have this name.
    #[error(
        "{name:?} cannot name an interface: 1 to 15 octets without '/', ':', '%' and spaces, and neither \".\" nor \"..\""
    )]
    Name {
        /// The name given.
        name: String,
    },
    /// The system has no TAP driver.
    #[error(
        "the system offers no TAP devices (/dev/net/tun: {source}); load the driver: sudo modprobe tun; \
         in a container, pass the device in: --device /dev/net/tun; \
         the wires `sim`, `loopback` and `host` need no device"
    )]
    NoDriver {
        /// The system's error on opening the driver.
        source: io::Error,
    },
    /// This process may not do what was asked.
    #[error(
        "not permitted to {action}; grant it once: {remedy}; or let the program do so: \
         sudo setcap cap_net_admin+ep $(which xk); the wires `sim` and `loopback` need no privilege"
    )]
    NotPermitted {
        /// The request, as `make the TAP device xk0`.
        action: String,
        /// The command that does it, or makes it unneeded.
        remedy: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such interface, and none is to be made.
    #[error(
        "no interface {name}; there are: {}; make it: sudo ip tuntap add dev {name} mode tap user $USER",
        .existing.join(", ")
    )]
    NoDevice {
        /// The name given.
        name: String,
        /// The interfaces there are.
        existing: Vec<String>,
    },
    /// The program that started this one has left no such descriptor, or of another kind.
    #[error(
        "descriptor {number} {what}; have the program that starts this one open a TAP device \
         (`TUNSETIFF` with `IFF_TAP | IFF_NO_PI`), or a Unix socket of datagrams, and leave it open \
         under that number, without `FD_CLOEXEC`; `device=NAME` opens a device by its name"
    )]
    Descriptor {
        /// The number given.
        number: RawFd,
        /// The fault.
        what: String,
    },
    /// The interface is of another kind.
    #[error(
        "{name} is no TAP device; an existing interface of another kind is served by the wire `packet`"
    )]
    NotTap {
        /// The interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another program has the device open.
    #[error("{name} is in use by another program; end it, or take another name")]
    Busy {
        /// The interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A setting makes no sense.
    #[error("{name}: {what}")]
    Setting {
        /// The interface.
        name: String,
        /// The fault, with the range allowed.
        what: String,
    },
    /// Anything else.
    #[error("{name}: cannot {action}: {source}")]
    System {
        /// The interface.
        name: String,
        /// The request.
        action: String,
        /// The system's error.
        source: io::Error,
    },
}

impl TapError {
    /// Sorts a failure of `action` on `name` by what the system gave.
    pub(crate) fn from_system(
        name: &str,
        action: String,
        remedy: String,
        source: io::Error,
    ) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { action, remedy, source },
            _ => Self::System { name: name.to_owned(), action, source },
        }
    }
}
