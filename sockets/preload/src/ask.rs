//! Asking the relay.

use crate::socket_unsafe::option_octets;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;
use xk_request::{Reply, Request, TEXT_OCTETS_MAX, Ticket, VARIABLE, read, write};

/// Times that an asker which was not let in in time tries again.
const TRIES: usize = 3;

static TICKET: OnceLock<Option<Ticket>> = OnceLock::new();

/// The ticket to the stack, if this process belongs to one. It is read when the library is loaded:
/// later a program may have changed its environment, or be in a signal's handler.
pub(crate) fn ticket() -> Option<&'static Ticket> {
    TICKET.get_or_init(|| read(std::env::var(VARIABLE).ok()?.as_bytes()).ok()).as_ref()
}

/// True under `xk exec`.
pub(crate) fn is_under_exec() -> bool {
    ticket().is_some()
}

/// The user of the process at the other end of a socket (`SO_PEERCRED`, unix(7)).
fn user_of_peer(socket: &OwnedFd) -> Option<u32> {
    let octets = option_octets(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    // Behind the number of the process.
    octets.get(4..8)?.try_into().ok().map(u32::from_ne_bytes)
}

/// One request and its answers.
pub(crate) struct Conversation(OwnedFd);

impl Conversation {
    /// Asks. What was asked is not asked again, whatever happens behind it.
    ///
    /// # Errors
    /// If there is no relay, or another user's process in its place.
    pub(crate) fn begin(request: &Request) -> io::Result<Self> {
        let ticket = ticket().ok_or(Errno::NETDOWN)?;
        let door = SocketAddrUnix::new(ticket.door())?;
        let text = write(request);
        let mut tries = 0;
        loop {
            let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
            let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
            retry_on_intr(|| rustix::net::connect(&socket, &door))?;
            if user_of_peer(&socket) != Some(ticket.user) {
                return Err(Errno::PERM.into());
            }
            let send = || rustix::net::send(&socket, text.as_bytes(), SendFlags::NOSIGNAL);
            match retry_on_intr(send) {
                Ok(_) => return Ok(Self(socket)),
                // It was closed before it heard anything.
                Err(Errno::PIPE | Errno::CONNRESET) if tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next answer, and the descriptor that comes along, whatever signals come meanwhile.
    ///
    /// # Errors
    /// If the relay has ended.
    pub(crate) fn hear(&self) -> io::Result<(Reply, Option<OwnedFd>)> {
        retry(|| self.answer())
    }

    /// The next answer, which may take its time.
    ///
    /// # Errors
    /// `EINTR` if a signal comes, `EAGAIN` behind the limit.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> io::Result<Reply> {
        if limit.is_some() {
            sockopt::set_socket_timeout(&self.0, Timeout::Recv, limit)?;
        }
        self.answer().map(|(reply, _)| reply)
    }

    fn answer(&self) -> io::Result<(Reply, Option<OwnedFd>)> {
        let mut text = [0; TEXT_OCTETS_MAX];
        let (octets, socket) = receive(self.0.as_fd(), &mut text)?;
        let reply = read(text.get(..octets).unwrap_or_default());
        Ok((reply.map_err(io::Error::other)?, socket))
    }
}

/// A message and the descriptor that comes along.
fn receive(from: BorrowedFd<'_>, text: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(text)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(from, &mut parts, &mut control, flags)?;
    let mut socket = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = part {
            socket = files.last().or(socket);
        }
    }
    Ok((message.bytes, socket))
}

/// The descriptor that comes along with the first message of a stream.
///
/// # Errors
/// If the relay has ended.
pub(crate) fn received(from: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    // The relay sends it as soon as the stream can be accepted.
    rustix::io::ioctl_fionbio(from, false)?;
    let mut text = [0; TEXT_OCTETS_MAX];
    Ok(retry(|| receive(from, &mut text))?.1)
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Asks the relay. Without one everything fails with `ENETDOWN`.
pub(crate) fn ask(request: &Request) -> Reply {
    ask_for_socket(request).0
}

/// Asks, and takes what [`Reply::Made`] brings along.
pub(crate) fn ask_for_socket(request: &Request) -> (Reply, Option<OwnedFd>) {
    let heard = Conversation::begin(request).and_then(|conversation| conversation.hear());
    heard.unwrap_or((Reply::Errno(Errno::NETDOWN.raw_os_error()), None))
}
