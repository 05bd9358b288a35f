//! Why an interface could not be opened, and what to do about it.

use std::io;

use xk_linux::InterfaceError;

use crate::bare::Mode;

/// Why opening failed. The text of each names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// This process may not open XDP sockets or load their program.
    #[error(
        "not permitted to {action} on {name}; grant it once: sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep $(which xk); \
         or run the command by sudo; the wires `sim` and `loopback` need no privilege"
    )]
    NotPermitted {
        /// The interface.
        name: String,
        /// The request.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such interface, or it carries something else than Ethernet frames.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface is down.
    #[error("{name} is down; bring it up: sudo ip link set {name} up")]
    Down {
        /// The interface.
        name: String,
    },
    /// Another program is attached to the interface, or another socket to the queue.
    #[error(
        "{name}: {what} is taken by another program; find it: ip -d link show {name}; end it, or take it off: \
         sudo ip link set {name} xdp off"
    )]
    Busy {
        /// The interface.
        name: String,
        /// The thing in use.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel was built without XDP sockets.
    #[error(
        "this kernel has no XDP sockets; take a kernel of 5.9 or later built with CONFIG_XDP_SOCKETS, or the wire `packet`"
    )]
    NoXdp {
        /// The system's error.
        source: io::Error,
    },
    /// The driver does not do what the mode asks for.
    #[error("{name}: its driver ({driver}) refuses mode={mode} ({source}); {remedy}")]
    Mode {
        /// The interface.
        name: String,
        /// Driver of the interface.
        driver: String,
        /// The mode asked for.
        mode: Mode,
        /// Remedy that may help.
        remedy: String,
        /// The system's error.
        source: io::Error,
    },
    /// The interface's frames are longer than a buffer of the system's choice for them.
    #[error(
        "{name}: an MTU of {mtu} octets exceeds the {mtu_max} that fit a buffer; lower it: sudo ip link set {name} mtu \
         {mtu_max}; or take the wire `packet`"
    )]
    Mtu {
        /// The interface.
        name: String,
        /// MTU of the interface, in octets.
        mtu: usize,
        /// The greatest that fits, in octets.
        mtu_max: usize,
    },
    /// There is no such queue.
    #[error(
        "{name} has no queue {queue}; see how many it has: ls /sys/class/net/{name}/queues; make more: sudo ethtool -L \
         {name} combined N"
    )]
    NoQueue {
        /// The interface.
        name: String,
        /// The queue's number, from 0.
        queue: u32,
        /// The system's error.
        source: io::Error,
    },
    /// A number or list is outside what is possible.
    #[error("{name}: {what}; {remedy}")]
    Setting {
        /// The interface.
        name: String,
        /// The fault.
        what: String,
        /// The possible values.
        remedy: String,
    },
    /// The memory may not be pinned for the interface.
    #[error(
        "{name}: the system pins no {octets} octets of message memory for it; raise the bound (ulimit -l), or grant \
         cap_ipc_lock: sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep $(which xk)"
    )]
    Memory {
        /// The interface.
        name: String,
        /// Memory in octets.
        octets: usize,
        /// The system's error.
        source: io::Error,
    },
    /// Anything else.
    #[error("{name}: cannot {action}: {source}; `dmesg` may know more")]
    System {
        /// The interface.
        name: String,
        /// The request.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl XdpError {
    /// Sorts a failure of `action` on `name`.
    pub(crate) fn system(name: &str, action: &'static str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { name, action, source },
            Some(libc::EAFNOSUPPORT) => Self::NoXdp { source },
            Some(libc::ENETDOWN) => Self::Down { name },
            _ => Self::System { name, action, source },
        }
    }
}
