//! Descriptors that go from one process to another over a socket of unix(7).

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Sends one, with an octet that says what it is for.
pub(crate) fn send(socket: impl AsFd, tag: u8, file: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&[tag])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes one, and its octet; waits for it.
pub(crate) fn take(socket: impl AsFd) -> io::Result<(u8, OwnedFd)> {
    take_by(socket, RecvFlags::empty())
}

/// As [`take`], of what is there.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if nothing is.
pub(crate) fn take_now(socket: impl AsFd) -> io::Result<(u8, OwnedFd)> {
    take_by(socket, RecvFlags::DONTWAIT)
}

fn take_by(socket: impl AsFd, flags: RecvFlags) -> io::Result<(u8, OwnedFd)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octet = [0];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut octet)], &mut control, flags)?;
    let files = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((octet[0], file))
}
