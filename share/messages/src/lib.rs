//! What takes frames across a cut between two processes: messages of a socket of unix(7), one for
//! each frame, as a microkernel's messages do.
//!
//! Each frame is a system call on either side, and is copied into the system and out of it; with
//! [`Data::Mapped`] a message's own octets go beside, in memory that the receiver maps. Rings in
//! shared memory (`xk-share-ring`) are quicker: this is there to measure and to show what messages
//! cost ("Networking Performance for Microkernels", Maeda and Bershad 1992, section 2.1), and for
//! two processes that share no memory.
//!
//! The system bounds what is under way (`SO_SNDBUF`, socket(7)); a frame beyond that is refused. A
//! peer that goes is seen once what it sent before is taken.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, socketpair,
};
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message};
use xk_run::memfd_unsafe::MemfdView;
use xk_share::{Arrival, Carrier, FRAME_OCTETS_MAX, HEADROOM, SendError};

/// How long a caller that cannot be suspended waits for a frame before it looks after the rest.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Where the octets of a message are while it crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// In the socket's message.
    InBand,
    /// In a file in memory, one for each message, which goes with the socket's message and which
    /// the receiver maps.
    Mapped,
}

/// One end of a socket that takes frames across.
pub struct Messages {
    socket: OwnedFd,
    data: Data,
    /// What has been received last; beyond its end room for the rest.
    buffer: RefCell<Vec<u8>>,
    /// How many octets of it wait for a buffer of the pool.
    held: Cell<Option<usize>>,
    is_over: Cell<bool>,
    /// The executor sleeps on the socket.
    is_registered: Cell<bool>,
}

/// Both ends, for two processes of which one starts the other, and for tests.
///
/// # Errors
/// The system has no descriptors left.
pub fn pair(data: Data) -> io::Result<(Messages, Messages)> {
    let flags = SocketFlags::CLOEXEC;
    let (one, two) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Messages::new(one, data), Messages::new(two, data)))
}

/// What came of a look at the socket.
enum Received {
    /// A frame of so many octets.
    Frame(usize),
    Nothing,
    /// The peer has gone, or has sent what is no frame.
    Over,
}

impl Messages {
    /// An end on a connected socket of unix(7) that keeps messages apart (`SOCK_SEQPACKET`). Both
    /// ends are to have the same `data`.
    pub fn new(socket: OwnedFd, data: Data) -> Self {
        Self {
            socket,
            data,
            buffer: RefCell::new(vec![0; FRAME_OCTETS_MAX]),
            held: Cell::new(None),
            is_over: Cell::new(false),
            is_registered: Cell::new(false),
        }
    }

    fn say(&self, parts: &[IoSlice<'_>], file: Option<&OwnedFd>) -> Result<(), SendError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file.as_fd()]);
        if let Some(files) = &files
            && !control.push(SendAncillaryMessage::ScmRights(files))
        {
            return Err(SendError::Full);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.socket, parts, &mut control, flags) {
            Ok(_) => Ok(()),
            // Too many descriptors are under way, in the last case.
            Err(Errno::AGAIN | Errno::INTR | Errno::TOOMANYREFS) => Err(SendError::Full),
            Err(Errno::NOBUFS | Errno::NOMEM) => Err(SendError::NoBuffers),
            Err(Errno::MSGSIZE) => Err(SendError::TooLong),
            Err(_) => Err(SendError::Lost),
        }
    }

    /// Takes the next frame into the buffer.
    fn hear(&self) -> Received {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = self.buffer.borrow_mut();
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
                // A peer that has gone without reading all: what it sent before comes next.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other,
            }
        };
        let octets = match received {
            // Beyond the buffer's end nothing was written. An empty message is the end.
            Ok(message) if (1..=buffer.len()).contains(&message.bytes) => message.bytes,
            Err(Errno::AGAIN) => return Received::Nothing,
            Ok(_) | Err(_) => return Received::Over,
        };
        let files = control.drain().filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let Some(file) = files.flatten().next() else {
            return Received::Frame(octets);
        };
        let end = match MemfdView::map(&file) {
            Ok(view) if self.data == Data::Mapped => {
                let place = buffer.get_mut(octets..octets + view.len());
                place.is_some_and(|place| view.copy_to(0, place)).then_some(octets + view.len())
            }
            _ => None,
        };
        end.map_or(Received::Over, Received::Frame)
    }
}

/// A file in memory with these octets, which can change no more.
fn file_of(body: &Message) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("xk-message", flags)?;
    for mut octets in body.octet_slices() {
        while !octets.is_empty() {
            let written = rustix::io::write(&file, octets)?;
            octets = &octets[written..];
        }
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

impl Carrier for Messages {
    /// The system does not tell: what does not go is refused when it is sent.
    fn room(&self) -> usize {
        usize::MAX
    }

    fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    fn send(&self, _: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        if self.is_over.get() {
            return Err(SendError::Lost);
        }
        if head.len() + body.len() > FRAME_OCTETS_MAX {
            return Err(SendError::TooLong);
        }
        let head = IoSlice::new(head);
        if self.data == Data::Mapped && !head.is_empty() && !body.is_empty() {
            let file = file_of(body).map_err(|_| SendError::NoBuffers)?;
            return self.say(&[head], Some(&file));
        }
        if let Some(octets) = body.single_slice() {
            return self.say(&[head, IoSlice::new(octets)], None);
        }
        // There may be more of them than one call takes.
        let octets: Vec<u8> = body.octets().collect();
        self.say(&[head, IoSlice::new(&octets)], None)
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        if self.is_over.get() {
            return Arrival::Lost;
        }
        let held = self.held.take().map(Received::Frame);
        match held.unwrap_or_else(|| self.hear()) {
            Received::Frame(octets) => {
                let buffer = self.buffer.borrow();
                cx.pool().copy_from(HEADROOM, &buffer[..octets]).map_or_else(
                    |_| {
                        self.held.set(Some(octets));
                        Arrival::NoBuffers
                    },
                    Arrival::Frame,
                )
            }
            Received::Nothing => Arrival::Nothing,
            Received::Over => {
                self.is_over.set(true);
                Arrival::Lost
            }
        }
    }

    fn is_lost(&self, _: &Kernel) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::empty())];
        let _ = poll(&mut socket, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        self.is_over.get() || socket[0].revents().contains(PollFlags::HUP)
    }

    fn close(&self) {
        self.is_over.set(true);
        // The other side may still have a descriptor of the same socket.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    fn turn(&self, _: &Kernel) {
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&TURN));
    }

    fn rest(&self, _: &Kernel, sleeper: &dyn Sleeper) -> bool {
        if self.is_over.get() {
            if self.is_registered.replace(false) {
                sleeper.remove(&self.socket);
            }
        } else if !self.is_registered.get() {
            // If it fails, sleeps are short all the same, and the next one tries again.
            self.is_registered.set(sleeper.add(&self.socket));
        }
        self.held.get().is_none()
    }
}
