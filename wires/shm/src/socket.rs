//! The Unix socket: messages with descriptors, sent and received without ever waiting.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::foreign_unsafe::{Foreign, close};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors that go with one message at most.
const DESCRIPTORS_MAX: usize = 2;
/// Descriptors that may come with one message (`SCM_MAX_FD`, unix(7)): what is not taken the system
/// closes while we wait.
const DESCRIPTORS_CAME_MAX: usize = 253;

/// A new socket that keeps messages apart and never waits.
pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Result of a look at a socket.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message, whole, and its descriptors.
    Message(Vec<u8>, Vec<Foreign>),
    /// A message that is longer than `octets_max`, or has more descriptors than any may have.
    TooMuch,
    /// Nothing yet.
    Nothing,
    /// The other side is gone.
    Gone,
}

/// Sends one message and lends it descriptors.
pub(crate) fn send(
    socket: impl AsFd,
    octets: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(octets)], &mut control, flags)?;
    if sent == octets.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Takes the next message, if there is one.
pub(crate) fn receive(socket: &Foreign, octets_max: usize) -> Received {
    let mut octets = vec![0; octets_max];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_CAME_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut octets)];
    let message = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(message) => message,
        // A peer that closed without reading what we sent: what it said before is still there, and
        // comes with the next look (unix(7); the error is told once).
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNRESET) => return Received::Nothing,
        Err(_) => return Received::Gone,
    };
    let mut descriptors = Vec::new();
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = ancillary {
            descriptors.extend(files);
        }
    }
    if descriptors.len() > DESCRIPTORS_MAX {
        // To look at each would cost us more than the message has cost its sender.
        close(descriptors, socket.uid());
        return Received::TooMuch;
    }
    let foreign = |file| Foreign::of(file, socket.uid());
    let descriptors: Vec<Foreign> = descriptors.into_iter().map(foreign).collect();
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Received::TooMuch;
    }
    // No side ever sends an empty message: this is the end.
    if message.bytes == 0 {
        return Received::Gone;
    }
    octets.truncate(message.bytes);
    Received::Message(octets, descriptors)
}
