//! A carrier of frames across a cut between two processes: messages of a socket of unix(7), one for
//! each frame, as a microkernel's messages do.
//!
//! Each frame is a system call on either side, and is copied into the system and out of it; with
//! [`Data::Mapped`] a message's own octets go beside, in memory that the receiver maps. Rings in
//! shared memory (module `ring`) are quicker: this is there to measure and to show what messages
//! cost ("Networking Performance for Microkernels", Maeda and Bershad 1992, section 2.1), and for
//! two processes that share no memory.
//!
//! Of frames [`FRAMES_MAX`] are under way each way: each says how many its sender has taken, and
//! a side that has taken many and sent none says so alone. The system's own bound (`SO_SNDBUF`,
//! socket(7)) may be reached before; a frame beyond either is refused. A peer that goes is seen
//! once what it sent before is taken.
//!
//! | octet | size | field |
//! | --- | --- | --- |
//! | 0 | 4 | how many frames the sender has taken, little-endian |
//! | 4 | 4 | 1 more than the one processor that it may run on, 0 for several, little-endian |
//!
//! Behind that comes the frame, if there is one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use crate::{Arrival, Carrier, FRAME_OCTETS_MAX, HEADROOM, SendError};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, socketpair,
};
use rustix::thread::{CpuSet, sched_getaffinity};
use xk_core::wire::Sleeper;
use xk_core::{Kernel, Message};
use xk_run::memfd_unsafe::MemfdView;
use xk_shm::Foreign;

/// Time that a caller which cannot be suspended waits for a frame before it looks after other work.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The most frames under way each way.
pub const FRAMES_MAX: usize = 256;
/// After how many frames their sender is told that they were taken.
const TELLS_AFTER: u32 = FRAMES_MAX as u32 / 4;
/// With room for fewer frames it is worth a system call to look for word of more.
const LOOKS_BELOW: usize = FRAMES_MAX / 4;
/// Octets in front of each frame.
const FRONT: usize = 8;

/// The place of a message's octets while it crosses.
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
    /// The last message received, with room behind its end for longer ones.
    buffer: RefCell<Vec<u8>>,
    /// Frames that came and were not taken: for want of a buffer of the pool, or because word of
    /// room was looked for behind them.
    ahead: RefCell<VecDeque<Vec<u8>>>,
    /// Behind those nothing comes any more.
    is_ending: Cell<bool>,
    is_over: Cell<bool>,
    /// Number of frames sent, and number of them that the peer has taken.
    sent: Cell<u32>,
    acknowledged: Cell<u32>,
    /// Number of frames received, and number of them that the peer has been told of.
    taken: Cell<u32>,
    told: Cell<u32>,
    /// The one processor that this side may run on, and the peer: 1 more than its number.
    processor: Cell<u32>,
    peer_processor: Cell<u32>,
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

/// Result of a look at the socket.
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
            buffer: RefCell::new(vec![0; FRONT + FRAME_OCTETS_MAX]),
            ahead: RefCell::default(),
            is_ending: Cell::new(false),
            is_over: Cell::new(false),
            sent: Cell::new(0),
            acknowledged: Cell::new(0),
            taken: Cell::new(0),
            told: Cell::new(0),
            processor: Cell::new(own_processor()),
            peer_processor: Cell::new(0),
            is_registered: Cell::new(false),
        }
    }

    /// Says how many frames were taken, and a frame in these parts, if they have any.
    fn say(&self, frame: [&[u8]; 2], file: Option<&OwnedFd>) -> Result<(), SendError> {
        let mut front = [0; FRONT];
        front[..4].copy_from_slice(&self.taken.get().to_le_bytes());
        front[4..].copy_from_slice(&self.processor.get().to_le_bytes());
        let parts = [&front[..], frame[0], frame[1]].map(IoSlice::new);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file.as_fd()]);
        if let Some(files) = &files
            && !control.push(SendAncillaryMessage::ScmRights(files))
        {
            return Err(SendError::Full);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.socket, &parts, &mut control, flags) {
            Ok(_) => {
                self.told.set(self.taken.get());
                Ok(())
            }
            // Too many descriptors are under way, in the last case.
            Err(Errno::AGAIN | Errno::INTR | Errno::TOOMANYREFS) => Err(SendError::Full),
            Err(Errno::NOBUFS | Errno::NOMEM) => Err(SendError::NoBuffers),
            Err(Errno::MSGSIZE) => Err(SendError::TooLong),
            Err(_) => Err(SendError::Lost),
        }
    }

    /// Sends a frame, if the peer has taken enough of those before.
    fn say_frame(&self, frame: [&[u8]; 2], file: Option<&OwnedFd>) -> Result<(), SendError> {
        if self.room() == 0 {
            return Err(SendError::Full);
        }
        self.say(frame, file)?;
        self.sent.set(self.sent.get().wrapping_add(1));
        Ok(())
    }

    /// Notes what stands in front of a frame. False if no sound peer says so.
    fn note(&self, front: [u8; FRONT]) -> bool {
        let [a, b, c, d, e, f, g, h] = front;
        let acknowledged = u32::from_le_bytes([a, b, c, d]);
        let newly = acknowledged.wrapping_sub(self.acknowledged.get());
        let is_sound = newly <= self.sent.get().wrapping_sub(self.acknowledged.get());
        if is_sound {
            self.acknowledged.set(acknowledged);
            self.peer_processor.set(u32::from_le_bytes([e, f, g, h]));
        }
        is_sound
    }

    /// Takes the next frame into the buffer.
    fn hear(&self) -> Received {
        loop {
            let received = self.hear_one();
            if let Received::Frame(octets) = received {
                let front = self.buffer.borrow().first_chunk().copied();
                if octets < FRONT || !front.is_some_and(|front| self.note(front)) {
                    return Received::Over;
                }
                // One that says only what was taken.
                if octets == FRONT {
                    continue;
                }
            }
            return received;
        }
    }

    /// Takes a frame of these octets, if there is a buffer for it.
    fn take(&self, cx: &Kernel, octets: &[u8]) -> Arrival {
        let Ok(frame) = cx.pool().copy_from(HEADROOM, octets) else {
            return Arrival::NoBuffers;
        };
        self.taken.set(self.taken.get().wrapping_add(1));
        Arrival::Frame(frame)
    }

    fn hear_one(&self) -> Received {
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
        // What is none of the files that a sound peer sends is closed elsewhere: that may take
        // long.
        let mut files = files.flatten().map(Foreign::new);
        let Some(file) = files.next() else {
            return Received::Frame(octets);
        };
        let end = match MemfdView::map(file.as_fd()) {
            Ok(view) if self.data == Data::Mapped => {
                drop(file.into_own());
                let place = buffer.get_mut(octets..octets + view.len());
                place.is_some_and(|place| view.copy_to(0, place)).then_some(octets + view.len())
            }
            _ => None,
        };
        end.map_or(Received::Over, Received::Frame)
    }
}

/// 1 more than the number of the one processor that this thread may run on, 0 for several.
fn own_processor() -> u32 {
    let set = sched_getaffinity(None).unwrap_or_default();
    let one = (0..CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)).filter(|_| set.count() == 1);
    one.map_or(0, |cpu| cpu as u32 + 1)
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
    fn room(&self) -> usize {
        let under_way = self.sent.get().wrapping_sub(self.acknowledged.get());
        FRAMES_MAX.saturating_sub(under_way as usize)
    }

    fn look_for_room(&self) {
        // A sound peer has no more under way.
        while self.room() < LOOKS_BELOW && !self.is_ending.get() && !self.is_over.get() {
            let mut ahead = self.ahead.borrow_mut();
            match self.hear() {
                Received::Frame(octets) if ahead.len() < FRAMES_MAX => {
                    ahead.push_back(self.buffer.borrow()[FRONT..octets].to_vec());
                }
                Received::Nothing => break,
                Received::Frame(_) | Received::Over => self.is_ending.set(true),
            }
        }
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
        if self.data == Data::Mapped && !head.is_empty() && !body.is_empty() {
            let file = file_of(body).map_err(|_| SendError::NoBuffers)?;
            return self.say_frame([head, &[]], Some(&file));
        }
        if let Some(octets) = body.single_slice() {
            return self.say_frame([head, octets], None);
        }
        // There may be more of them than one call takes.
        let octets: Vec<u8> = body.octets().collect();
        self.say_frame([head, &octets], None)
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        if self.is_over.get() {
            return Arrival::Lost;
        }
        let mut ahead = self.ahead.borrow_mut();
        if let Some(octets) = ahead.front() {
            let arrival = self.take(cx, octets);
            if matches!(arrival, Arrival::Frame(_)) {
                ahead.pop_front();
            }
            return arrival;
        }
        let heard = if self.is_ending.get() { Received::Over } else { self.hear() };
        match heard {
            Received::Frame(octets) => {
                let octets = &self.buffer.borrow()[FRONT..octets];
                let arrival = self.take(cx, octets);
                if matches!(arrival, Arrival::NoBuffers) {
                    ahead.push_back(octets.to_vec());
                }
                arrival
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

    /// A peer that has no room waits for this.
    fn flush(&self) {
        if !self.is_over.get() && self.taken.get().wrapping_sub(self.told.get()) >= TELLS_AFTER {
            // If the socket is full, the next one tells.
            let _ = self.say([&[], &[]], None);
        }
    }

    fn turn(&self, _: &Kernel) {
        self.flush();
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
        self.processor.set(own_processor());
        self.ahead.borrow().is_empty()
    }

    fn may_spin(&self) -> bool {
        let own = self.processor.get();
        own == 0 || own != self.peer_processor.get()
    }
}
