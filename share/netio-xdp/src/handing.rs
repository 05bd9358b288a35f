//! How a socket goes from the module to a program: one message with two descriptors, over a socket
//! of unix(7) that keeps messages apart (`SOCK_SEQPACKET`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use xk_xdp::Granted;

/// Octets of the message: how many frames, the MTU, the hardware address.
const OCTETS: usize = 4 + 4 + 6;

/// Sends what a program needs, without waiting.
///
/// # Errors
/// The other side is gone, or takes nothing.
pub fn hand_over(to: impl AsFd, granted: &Granted) -> io::Result<()> {
    let mtu = u32::try_from(granted.mtu).unwrap_or(u32::MAX);
    let octets =
        [&granted.frames.to_ne_bytes()[..], &mtu.to_ne_bytes(), &granted.hardware_address].concat();
    let files = [granted.socket.as_fd(), granted.memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(to, &[IoSlice::new(&octets)], &mut control, flags)?;
    Ok(())
}

/// Receives what [`hand_over`] sends, within `limit`.
///
/// # Errors
/// The other side is gone, says nothing (`TimedOut`), or something else (`InvalidData`).
pub fn take_over(from: impl AsFd, limit: Duration) -> io::Result<Granted> {
    let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
    if poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&limit))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut octets = [0; OCTETS + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut octets)];
    let received = rustix::net::recvmsg(from, &mut parts, &mut control, flags)?.bytes;
    let files = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<OwnedFd> = files.flatten().collect();
    if received == 0 {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let Ok([socket, memory]) = <[OwnedFd; 2]>::try_from(files) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let number = |at: usize| {
        let octets = octets.get(at..).and_then(|octets| octets.first_chunk());
        octets.map(|octets| u32::from_ne_bytes(*octets))
    };
    match (received, number(0), number(4), octets.get(8..).and_then(|o| o.first_chunk())) {
        (OCTETS, Some(frames), Some(mtu), Some(address)) => {
            let (mtu, hardware_address) = (mtu as usize, *address);
            Ok(Granted { socket, memory, frames, mtu, hardware_address })
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
