//! Frames without a graph: one socket on one queue, with memory of its own.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketType};
use xk_linux::Interface;

use crate::driver_unsafe::is_in_memory;
use crate::error::XdpError;
use crate::frames_unsafe::Frames;
use crate::program::Share;
use crate::queue::{
    self, CHUNK_OCTETS, FRAME_OCTETS_MAX, HEADER_OCTETS, HEADER_OCTETS_MAX, Losses, Queue,
    RING_MAX, Redirect, descriptor,
};

/// Mode in which frames pass between driver and socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The first of the following that the driver does. It is never given up for another once the
    /// socket is open.
    #[default]
    Auto,
    /// The driver puts frames into our memory and sends them from there.
    ZeroCopy,
    /// The driver runs the program; the system copies each frame once.
    Native,
    /// The system runs the program behind the driver, whatever it is, and copies each frame once.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zero-copy",
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// Options for opening a bare socket.
#[derive(Debug, Clone)]
pub struct Options {
    /// Mode in which frames pass.
    pub mode: Mode,
    /// The queue of the interface, from 0. Frames of other queues go to the host.
    pub queue: u32,
    /// Entries of each ring, and chunks of 2048 octets for each direction: 1 to 16,384, rounded up
    /// to a power of two.
    pub frames: u32,
    /// Arriving frames that are for the graph.
    pub share: Share,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::Auto, queue: 0, frames: 1024, share: Share::default() }
    }
}

/// Fate of an arrival that has been looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fate {
    /// The memory goes back to the system.
    Done,
    /// This many of its first octets are sent from where they lie, with the next
    /// [`XdpSocket::flush`]. If there is no room, or they are no frame, it is as if done, and
    /// counted.
    Return(usize),
}

/// Counts since the socket was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Frames handed out.
    pub received: u64,
    /// Frames put into the sending ring.
    pub queued: u64,
    /// Frames to be returned that could not be.
    pub not_returned: u64,
    /// Descriptors of the system's that made no sense.
    pub inconsistent: u64,
    /// Losses of the system.
    pub losses: Losses,
}

/// One queue of an interface, as close to it as a program can get: bursts from and to rings in
/// shared memory, and a system call only when the system asks for one.
///
/// None of its methods blocks. For the wire of a graph see the crate's first page.
///
/// ```no_run
/// use xk_xdp::{Fate, Options, XdpSocket};
///
/// let mut socket = XdpSocket::open("veth0", &Options::default())?;
/// let mut frame = [0xff; 64];
/// frame[12..14].copy_from_slice(&[0x88, 0xb5]);
/// assert!(socket.transmit(&frame));
/// socket.flush()?;
/// // Answers each arrival from its own memory, one system call a burst.
/// loop {
///     let count = socket.receive(64, |frame| Fate::Return(frame.len()));
///     if count > 0 {
///         socket.flush()?;
///     }
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct XdpSocket {
    // The program is taken off first, then the socket ends the system's use of the memory.
    /// None if another process has it.
    redirect: Option<Redirect>,
    queue: Queue,
    frames: Frames,
    /// Chunks for frames to be sent. Those for arrivals are with the system.
    free: Vec<usize>,
    /// None if the process that has the program knows.
    mode: Option<Mode>,
    mtu: usize,
    hardware_address: [u8; 6],
    statistics: Statistics,
}

/// A socket on one queue of an interface for [`XdpSocket::of`], in another process perhaps: its
/// descriptors may be sent there.
#[derive(Debug)]
pub struct Granted {
    /// The socket, bound.
    pub socket: OwnedFd,
    /// The memory of the frames: a file in memory that keeps its size.
    pub memory: OwnedFd,
    /// Entries of each ring, and chunks for each direction.
    pub frames: u32,
    /// The interface's MTU in octets without the Ethernet header.
    pub mtu: usize,
    /// The interface's hardware address.
    pub hardware_address: [u8; 6],
    /// A sender on this machine may leave transport checksums of arrivals open
    /// (`xk_kit::wire::frames::finish_begun`).
    pub finishes: bool,
}

/// Opens queue [`Options::queue`] of the interface `name` for another process. Arrivals come to the
/// socket for as long as the second value lives.
///
/// # Errors
/// As [`XdpSocket::open`].
pub fn grant(name: &str, options: &Options) -> Result<(Granted, Redirect), XdpError> {
    let interface = find(name)?;
    let entries = ring_entries(name, options.frames)?;
    let failed = |source| XdpError::system(name, "get memory for frames", source);
    let memory = memory(entries as usize).map_err(|errno| failed(errno.into()))?;
    let mapped = Frames::of(memory.as_fd(), 2 * entries as usize).map_err(failed)?;
    let queues = options.queue.saturating_add(1);
    let redirect = Redirect::attach(&interface, queues, options.mode, &options.share)?;
    let mode = effective(options.mode, &redirect);
    let socket = queue::make(name, mapped.region(), entries)?;
    queue::bind(&socket, &interface, options.queue, mode, true)?;
    redirect.enter(&interface, options.queue, &socket)?;
    let finishes = is_in_memory(name);
    let Interface { mtu, hardware_address, .. } = interface;
    Ok((Granted { socket, memory, frames: entries, mtu, hardware_address, finishes }, redirect))
}

/// A file in memory with chunks for both directions.
fn memory(entries: usize) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("xk-frames", flags)?;
    rustix::fs::ftruncate(&file, (2 * entries * CHUNK_OCTETS) as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

impl XdpSocket {
    /// Opens queue [`Options::queue`] of the interface `name`, which must carry Ethernet frames and
    /// be up.
    ///
    /// # Errors
    /// [`XdpError`], each with a remedy in its text.
    pub fn open(name: &str, options: &Options) -> Result<Self, XdpError> {
        let (granted, redirect) = grant(name, options)?;
        let opened = Self::of(granted)
            .map_err(|source| XdpError::system(name, "map rings and frames", source))?;
        let mode = working(&opened.queue, &redirect);
        Ok(Self { redirect: Some(redirect), mode: Some(mode), ..opened })
    }

    /// Goes on with a socket that another process has opened: no right is needed for it.
    ///
    /// # Errors
    /// The descriptors are of something else, or there are no memory mappings left.
    pub fn of(granted: Granted) -> std::io::Result<Self> {
        let Granted { socket, memory, frames, mtu, hardware_address, finishes: _ } = granted;
        let entries = frames as usize;
        let seals = rustix::fs::fcntl_get_seals(&memory)?;
        let kept = SealFlags::SHRINK | SealFlags::GROW;
        if !frames.is_power_of_two()
            || frames > RING_MAX
            || !seals.contains(kept)
            || rustix::fs::fstat(&memory)?.st_size != (2 * entries * CHUNK_OCTETS) as i64
        {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let mut queue = Queue::of(socket, frames)?;
        let mut frames = Frames::of(memory.as_fd(), 2 * entries)?;
        for chunk in 0..entries {
            if let Some(position) = frames.lend(chunk) {
                queue.fill.push(position);
            }
        }
        queue.fill.publish();
        queue.wake_for_fill();
        Ok(Self {
            redirect: None,
            queue,
            frames,
            free: (entries..2 * entries).collect(),
            mode: None,
            mtu,
            hardware_address,
            statistics: Statistics::default(),
        })
    }

    /// Mode in which frames pass, never [`Mode::Auto`]; `None` if another process has opened it.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// The interface's MTU at the time of opening, in octets without the Ethernet header.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// The interface's hardware address.
    pub fn hardware_address(&self) -> [u8; 6] {
        self.hardware_address
    }

    /// Shows `each` at most `budget` frames that have arrived, where the system put them, and gives
    /// their number. With nothing there it costs one load.
    #[inline]
    pub fn receive(&mut self, budget: usize, mut each: impl FnMut(&mut [u8]) -> Fate) -> usize {
        let mut count = 0;
        while count < budget {
            let Some(arrived) = self.queue.arrivals.next() else {
                break;
            };
            count += 1;
            let Some(chunk) = self.frames.take_back(arrived.addr) else {
                self.statistics.inconsistent += 1;
                continue;
            };
            let offset = arrived.addr as usize % CHUNK_OCTETS;
            let fate = match self.frames.octets(chunk, offset, arrived.len as usize) {
                Some(frame) => {
                    self.statistics.received += 1;
                    each(frame)
                }
                None => {
                    self.statistics.inconsistent += 1;
                    Fate::Done
                }
            };
            self.give_back(chunk, arrived.addr, fate);
        }
        if count > 0 {
            self.queue.arrivals.release();
            self.queue.fill.publish();
            self.queue.wake_for_fill();
        }
        count
    }

    /// Gives an arrival's chunk back, or sends it and gives another in its place.
    #[inline]
    fn give_back(&mut self, chunk: usize, position: u64, fate: Fate) {
        let mut back = chunk;
        if let Fate::Return(octets) = fate {
            match self.spare_for(octets) {
                Some(spare) => {
                    if self.frames.lend(chunk).is_some() {
                        self.queue.departures.push(descriptor(position, octets));
                        self.statistics.queued += 1;
                    }
                    back = spare;
                }
                None => self.statistics.not_returned += 1,
            }
        }
        // As many chunks are with the system as the ring has entries, so there is room.
        if let Some(position) = self.frames.lend(back) {
            self.queue.fill.push(position);
        }
    }

    /// A free chunk, if a frame of so many octets can be sent now.
    #[inline]
    fn spare_for(&mut self, octets: usize) -> Option<usize> {
        if !(HEADER_OCTETS..=FRAME_OCTETS_MAX).contains(&octets) {
            return None;
        }
        if self.free.is_empty() {
            self.collect();
        }
        if self.queue.departures.has_room() { self.free.pop() } else { None }
    }

    /// Number of frames that can be sent now.
    pub fn room(&mut self) -> usize {
        if self.free.is_empty() {
            self.collect();
        }
        self.free.len()
    }

    /// Puts a copy of a frame into the ring, to go out with the next [`Self::flush`]. False, and
    /// nothing done, if there is no room, or it is shorter than 14 or longer than 1792 octets.
    #[inline]
    #[must_use]
    pub fn transmit(&mut self, frame: &[u8]) -> bool {
        self.transmit_with(frame.len(), |room| room.copy_from_slice(frame))
    }

    /// Sends a frame of `octets` octets that `write` puts there.
    #[inline]
    #[must_use]
    pub fn transmit_with(&mut self, octets: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(chunk) = self.spare_for(octets) else {
            return false;
        };
        if let Some(room) = self.frames.octets(chunk, 0, octets) {
            write(room);
        }
        let Some(position) = self.frames.lend(chunk) else {
            return false;
        };
        self.statistics.queued += 1;
        self.queue.departures.push(descriptor(position, octets))
    }

    /// Has the system send all that is in the ring. True if it has taken all.
    ///
    /// # Errors
    /// The interface is down (`ENETDOWN`) or gone (`ENXIO`); the frames stay in the ring.
    #[inline]
    pub fn flush(&mut self) -> std::io::Result<bool> {
        let all = self.queue.kick();
        self.collect();
        all
    }

    /// Takes back the memory of frames that have gone out.
    #[inline]
    fn collect(&mut self) {
        while let Some(position) = self.queue.done.next() {
            match self.frames.take_back(position) {
                Some(chunk) => self.free.push(chunk),
                None => self.statistics.inconsistent += 1,
            }
        }
        self.queue.done.release();
    }

    /// Whether the program in the system takes a frame of at least 14 octets for ours that arrives
    /// at queue 0, if that is this socket's: runs it on the frame, without any effect.
    ///
    /// # Errors
    /// What the system gives, as for a frame that is too short; another process has the program.
    pub fn would_take(&self, frame: &[u8]) -> std::io::Result<bool> {
        let redirect = self.redirect.as_ref().ok_or(std::io::ErrorKind::Unsupported)?;
        redirect.would_take(frame)
    }

    /// Counts since the socket was opened.
    ///
    /// # Errors
    /// What the system gives; the socket is then unusable.
    pub fn statistics(&mut self) -> std::io::Result<Statistics> {
        self.statistics.losses = self.queue.losses()?;
        Ok(self.statistics)
    }

    /// Whether an arrival waits.
    pub fn has_arrivals(&mut self) -> bool {
        self.queue.arrivals.has_next()
    }

    /// The descriptor, to wait for readiness on: readable while an arrival waits.
    pub fn fd(&self) -> &OwnedFd {
        self.queue.fd()
    }
}

impl fmt::Debug for XdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpSocket")
            .field("hardware_address", &self.hardware_address)
            .field("mode", &self.mode)
            .field("statistics", &self.statistics)
            .finish()
    }
}

/// The interface `name`, if it can be used.
///
/// # Errors
/// As [`XdpSocket::open`].
pub fn find(name: &str) -> Result<Interface, XdpError> {
    let found = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(std::io::Error::from)
        .and_then(|socket| Interface::ethernet(&socket, name))
        .map_err(|source| XdpError::system(name, "ask about it", source));
    let interface = found??;
    let Interface { mtu, hardware_type, .. } = interface;
    let mtu_max = FRAME_OCTETS_MAX - HEADER_OCTETS_MAX;
    if mtu > mtu_max && hardware_type != libc::ARPHRD_LOOPBACK {
        return Err(XdpError::Mtu { name: name.to_owned(), mtu, mtu_max });
    }
    if !interface.is_up {
        return Err(XdpError::Down { name: name.to_owned() });
    }
    Ok(Interface { mtu: mtu.min(mtu_max), ..interface })
}

/// The size of a ring for so many frames.
pub(crate) fn ring_entries(name: &str, frames: u32) -> Result<u32, XdpError> {
    if (1..=RING_MAX).contains(&frames) {
        Ok(frames.next_power_of_two())
    } else {
        Err(XdpError::Setting {
            name: name.to_owned(),
            what: format!("a ring of {frames} frames"),
            remedy: format!("a ring holds 1 to {RING_MAX}"),
        })
    }
}

/// The mode for a socket, once the program is attached: the generic way leaves nothing to choose.
pub(crate) fn effective(mode: Mode, redirect: &Redirect) -> Mode {
    if redirect.is_native { mode } else { Mode::Generic }
}

/// Mode in which frames pass.
pub(crate) fn working(queue: &Queue, redirect: &Redirect) -> Mode {
    match (redirect.is_native, queue.is_zero_copy) {
        (false, _) => Mode::Generic,
        (true, false) => Mode::Native,
        (true, true) => Mode::ZeroCopy,
    }
}
