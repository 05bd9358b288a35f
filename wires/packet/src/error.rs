//! Why an interface could not be opened, or a frame not be sent, and what to do about it.

use std::io;

use xk_linux::InterfaceError;

/// Why [`crate::PacketDevice::open`] failed. The text of each names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// This process may not open packet sockets.
    #[error(
        "not permitted to open {name} for raw frames; grant it once: sudo setcap cap_net_raw+ep $(which xk); \
         or run the command by sudo; the wires `sim` and `loopback` need no privilege"
    )]
    NotPermitted {
        /// The interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such interface, or it carries something else than Ethernet frames.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The rings asked for cannot be.
    #[error("{name}: rings of {rx_slots} and {tx_slots} slots: {what}")]
    Rings {
        /// The interface.
        name: String,
        /// Slots of the receiving ring asked for.
        rx_slots: usize,
        /// Slots of the sending ring asked for.
        tx_slots: usize,
        /// The fault, with the range allowed.
        what: String,
    },
    /// Anything else.
    #[error("{name}: cannot {action}: {source}")]
    System {
        /// The interface.
        name: String,
        /// The request to the system.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a frame cannot be sent on this interface, now or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransmitError {
    /// The frame's checksum is open, and nothing of that kind was agreed on.
    #[error("a frame with an open checksum, on an interface opened without offload")]
    Open,
    /// The frame is shorter than an Ethernet header of 14 octets.
    #[error("a frame of {octets} octets has no whole Ethernet header of 14")]
    TooShort {
        /// Length of the frame.
        octets: usize,
    },
    /// The frame is longer than the interface's MTU allows.
    #[error("a frame of {octets} octets is longer than the interface's {octets_max}")]
    TooLong {
        /// Length of the frame.
        octets: usize,
        /// The most allowed.
        octets_max: usize,
    },
    /// The system refuses it.
    #[error("the system does not take the frame: {}", io::Error::from_raw_os_error(*.errno))]
    System {
        /// The number of the error that it gave.
        errno: i32,
    },
}
