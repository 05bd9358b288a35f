//! Why a socket could not be opened, and what to do about it.

use std::io;

use xk_core::graph::BuildError;

/// Why a socket could not be opened. The text of each names a remedy.
#[derive(Debug, thiserror::Error)]
enum HostError {
    #[error("{local} is taken by another program; see which: ss -ulnp; or give another port")]
    Taken { local: String },
    #[error(
        "{local} is not an address of this machine; see which there are: ip addr; or give 0.0.0.0"
    )]
    NotOurs { local: String },
    #[error(
        "not permitted to take {local}; ports below 1024 need the right: \
         sudo setcap cap_net_bind_service+ep $(which xk); or give a port from 1024 on"
    )]
    NotPermitted { local: String },
    #[error(
        "cannot open a UDP socket on {local}: {what}; the wires `sim` and `loopback` need none"
    )]
    Other { local: String, what: String },
}

/// The error as the composer shows it: what is missing, and what to do about it. `param` names the
/// address.
pub(crate) fn environment(param: &'static str, local: &str, error: &io::Error) -> BuildError {
    let local = local.to_owned();
    let error = match error.kind() {
        io::ErrorKind::AddrInUse => HostError::Taken { local },
        io::ErrorKind::AddrNotAvailable => HostError::NotOurs { local },
        io::ErrorKind::PermissionDenied => HostError::NotPermitted { local },
        _ => HostError::Other { local, what: error.to_string() },
    };
    xk_kit::wire::entry::environment(param, &error)
}
