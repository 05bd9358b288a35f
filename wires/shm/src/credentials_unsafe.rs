//! The process at the other end of a socket.
//!
//! Source: unix(7), `SO_PEERCRED`.

use std::io;
use std::os::fd::AsFd;

/// The process at the other end, as it was when it connected or began to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Effective user of the process.
    pub uid: u32,
    /// Effective group of the process.
    pub gid: u32,
    /// Number of the process in our namespace; 0 if it has none there.
    pub pid: i32,
}

/// Asks the system for the process at the other end.
///
/// # Errors
/// If the descriptor is no connected socket of unix(7).
pub fn peer_of(socket: impl AsFd) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    // SAFETY: the option gives one `ucred`, in which any octets are valid.
    unsafe { xk_linux::get(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut peer) }?;
    Ok(Peer { uid: peer.uid, gid: peer.gid, pid: peer.pid })
}
