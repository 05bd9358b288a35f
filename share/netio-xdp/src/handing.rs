//! How a socket goes from the module to a program: beside the rings of the channel that the program
//! has fetched.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use xk_shm::{Link, ShmError};
use xk_xdp::Granted;

/// Octets of the message: how many frames, the MTU, the hardware address.
const OCTETS: usize = 4 + 4 + 6;

/// Sends what a program needs, without waiting.
///
/// # Errors
/// The other side is gone, or takes nothing.
pub fn hand_over(to: &Link, granted: &Granted) -> Result<(), ShmError> {
    let mtu = u32::try_from(granted.mtu).unwrap_or(u32::MAX);
    let numbers = [granted.frames.to_ne_bytes(), mtu.to_ne_bytes()].concat();
    let octets = [&numbers[..], &granted.hardware_address].concat();
    to.send_beside(&octets, &[granted.socket.as_fd(), granted.memory.as_fd()])
}

/// Receives what [`hand_over`] sends, within `limit`.
///
/// # Errors
/// [`ShmError`]: the other side is gone, says nothing in time, or something else.
pub fn take_over(from: &Link, limit: Duration) -> Result<Granted, ShmError> {
    let (octets, files) = from.receive_beside(OCTETS, limit)?;
    granted(&octets, files).ok_or(ShmError::Hello("it has sent no channel"))
}

fn granted(octets: &[u8], files: Vec<OwnedFd>) -> Option<Granted> {
    let [socket, memory] = files.try_into().ok()?;
    let (frames, rest) = octets.split_first_chunk()?;
    let (mtu, rest) = rest.split_first_chunk()?;
    let hardware_address = rest.try_into().ok()?;
    let mtu = u32::from_ne_bytes(*mtu) as usize;
    Some(Granted { socket, memory, frames: u32::from_ne_bytes(*frames), mtu, hardware_address })
}

/// The error of a socket that cannot be used.
pub(crate) fn unusable(error: &io::Error) -> ShmError {
    match error.kind() {
        io::ErrorKind::InvalidData => ShmError::Hello("it has sent no channel"),
        _ => ShmError::Hello("its channel cannot be mapped"),
    }
}
