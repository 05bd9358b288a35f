//! The way of a channel from the module to a program: its rings, and a socket beside them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::Noted;
use xk_domains::Carrier;
use xk_domains::ring::Ring;
use xk_shm::{Link, ShmError};
use xk_xdp::{Granted, XdpSocket};

use super::carrier::XdpCarrier;

/// Octets of the message with a socket: how many frames, the MTU, the hardware address, whether
/// checksums may be open.
const OCTETS: usize = 4 + 4 + 6 + 1;
/// The message without one: octets alone cross the rings, or each frame with a note.
const NONE: [u8; 1] = [0];
const NOTED: [u8; 1] = [1];

/// Tells the program that a channel is its, and sends its socket, if the system checks its frames;
/// without waiting. True if frames cross the rings with notes ([`Noted`]): never beside a socket.
///
/// # Errors
/// The other side is gone, or takes nothing.
pub fn hand_over(
    to: &Ring,
    granted: Option<&Granted>,
    wants_notes: bool,
) -> Result<bool, ShmError> {
    let Some(granted) = granted else {
        let told = if wants_notes { NOTED } else { NONE };
        return to.send_beside(&told, &[]).map(|()| wants_notes);
    };
    let mtu = u32::try_from(granted.mtu).unwrap_or(u32::MAX);
    let numbers = [granted.frames.to_ne_bytes(), mtu.to_ne_bytes()].concat();
    let finishes = [granted.finishes.into()];
    let octets = [&numbers[..], &granted.hardware_address, &finishes].concat();
    to.send_beside(&octets, &[granted.socket.as_fd(), granted.memory.as_fd()]).map(|()| false)
}

/// The channel that [`hand_over`] tells of, within `limit`.
///
/// # Errors
/// [`ShmError`]: the ticket fetches nothing, or the module does not answer in time.
pub fn take_over(link: Link, limit: Duration) -> Result<Box<dyn Carrier + Send>, ShmError> {
    let (octets, files) = link.receive_beside(OCTETS, limit)?;
    match <[u8; 1]>::try_from(&octets[..]) {
        Ok(NONE) => return Ok(Box::new(Ring::new(link))),
        Ok(NOTED) => return Ok(Box::new(Noted(Ring::new(link)))),
        _ => {}
    }
    let granted = granted(&octets, files).ok_or(ShmError::Hello("it has sent no channel"))?;
    let finishes = granted.finishes;
    let socket =
        XdpSocket::of(granted).map_err(|_| ShmError::Hello("its channel has no memory"))?;
    Ok(Box::new(XdpCarrier::new(socket, finishes, Ring::new(link))))
}

fn granted(octets: &[u8], files: Vec<OwnedFd>) -> Option<Granted> {
    let [socket, memory] = files.try_into().ok()?;
    let (frames, rest) = octets.split_first_chunk()?;
    let (mtu, rest) = rest.split_first_chunk()?;
    let (hardware_address, rest) = rest.split_first_chunk()?;
    let (frames, mtu) = (u32::from_ne_bytes(*frames), u32::from_ne_bytes(*mtu) as usize);
    let (hardware_address, finishes) = (*hardware_address, *rest.first()? != 0);
    Some(Granted { socket, memory, frames, mtu, hardware_address, finishes })
}
