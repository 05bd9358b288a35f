//! One queue of an interface: a socket with its four rings, over memory that its user provides; and
//! the program that sends frames to the sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    self, SocketAddrXdp, SocketAddrXdpFlags, XdpDesc, XdpDescOptions, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use xk_linux::Interface;

use crate::assembler::REDIRECT;
use crate::bare::Mode;
use crate::bpf_unsafe::{Attachment, Map, MapKind, Program};
use crate::driver_unsafe::driver;
use crate::error::XdpError;
use crate::program::{MATCHES_MAX, Share, assemble};
use crate::ring_unsafe::{Consumer, Producer, Ring};

/// Octets of a chunk: what one frame is put into, with the room that the system leaves in front of
/// it.
pub(crate) const CHUNK_OCTETS: usize = 2048;
/// Room that the system leaves in front of a frame (`XDP_PACKET_HEADROOM`).
pub(crate) const HEADROOM_OCTETS: usize = 256;
/// Octets of the longest frame.
pub(crate) const FRAME_OCTETS_MAX: usize = CHUNK_OCTETS - HEADROOM_OCTETS;
/// Octets of an Ethernet header with one VLAN tag (IEEE 802.3, 802.1Q).
pub(crate) const HEADER_OCTETS_MAX: usize = 18;
/// Octets of an Ethernet header.
pub(crate) const HEADER_OCTETS: usize = 14;
/// Most entries of a ring.
pub(crate) const RING_MAX: u32 = 1 << 14;

/// Time that opening waits for an earlier user of the interface, whose end the system works off in
/// the background.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(1);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(64);
/// Frames that one call sends in copy mode (`TX_BATCH_SIZE` of the system).
const FRAMES_A_CALL: u32 = 32;

/// Losses on one queue that the system has counted since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Arrivals for which there was no buffer, or that did not fit one.
    pub no_buffer: u64,
    /// Arrivals for which the receiving ring had no room.
    pub ring_full: u64,
    /// Descriptors that made no sense to the system.
    pub invalid: u64,
}

/// Memory that frames lie in, as the system is told: whole pages, first to last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) address: usize,
    pub(crate) octets: usize,
}

/// A bound socket. Dropping it ends the system's use of the memory, in copy mode at once.
pub(crate) struct Queue {
    pub(crate) arrivals: Consumer<XdpDesc>,
    pub(crate) departures: Producer<XdpDesc>,
    pub(crate) fill: Producer<u64>,
    pub(crate) done: Consumer<u64>,
    socket: OwnedFd,
    pub(crate) is_zero_copy: bool,
}

/// Descriptor of `octets` octets at `address`.
#[inline]
pub(crate) fn descriptor(address: u64, octets: usize) -> XdpDesc {
    XdpDesc { addr: address, len: octets as u32, options: XdpDescOptions::empty() }
}

impl Queue {
    /// Opens a socket on a queue of an interface, with rings of `frames` entries. The system writes
    /// nothing before chunks are put into `fill`; from then on it writes into those, until they
    /// come back as arrivals or this value is dropped. The generic way puts a longer frame into
    /// several chunks, if the system can.
    pub(crate) fn open(
        interface: &Interface,
        queue: u32,
        mode: Mode,
        region: Region,
        frames: u32,
    ) -> Result<Self, XdpError> {
        let name = &interface.name;
        let socket = make(name, region, frames)?;
        bind(&socket, interface, queue, mode, false)?;
        Self::of(socket, frames).map_err(|source| XdpError::system(name, "map the rings", source))
    }

    /// A socket that is bound, with rings of so many entries.
    pub(crate) fn of(socket: OwnedFd, frames: u32) -> io::Result<Self> {
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        let options = sockopt::xdp_options(&socket)?;
        let fd = socket.as_fd();
        Ok(Self {
            arrivals: Consumer::of(Ring::map(fd, xdp::XDP_PGOFF_RX_RING, &at.rx, frames)?),
            departures: Producer::of(Ring::map(fd, xdp::XDP_PGOFF_TX_RING, &at.tx, frames)?),
            fill: Producer::of(Ring::map(fd, xdp::XDP_UMEM_PGOFF_FILL_RING, &at.fr, frames)?),
            done: Consumer::of(Ring::map(fd, xdp::XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, frames)?),
            is_zero_copy: options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY),
            socket,
        })
    }

    /// Has the system send what was put into `departures`, if it waits for being told. True if it
    /// has taken all.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub(crate) fn kick(&mut self) -> io::Result<bool> {
        self.departures.publish();
        if !self.departures.needs_wakeup() {
            return Ok(true);
        }
        let mut waiting = self.departures.waiting();
        // A call takes so many; one that takes none is answered by trying again later.
        while waiting > 0 {
            let sent = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
            if self.is_zero_copy {
                return taken_or_later(sent).map(|()| true);
            }
            let left = self.departures.waiting();
            taken_or_later(sent)?;
            if left == waiting || (left > 0 && waiting - left < FRAMES_A_CALL) {
                return Ok(left == 0);
            }
            waiting = left;
        }
        Ok(true)
    }

    /// Tells a driver that waits for it of fresh chunks.
    pub(crate) fn wake_for_fill(&mut self) {
        if self.is_zero_copy && self.fill.needs_wakeup() {
            // Nothing is read: the call itself wakes. A failure shows at the next frame.
            let none = &mut [0u8; 0][..];
            let _nothing = rustix::net::recv(&self.socket, none, rustix::net::RecvFlags::DONTWAIT);
        }
    }

    /// Losses of the system.
    pub(crate) fn losses(&self) -> io::Result<Losses> {
        let counted = sockopt::xdp_statistics(&self.socket)?;
        Ok(Losses {
            no_buffer: counted.rx_dropped,
            ring_full: counted.rx_ring_full.unwrap_or(0),
            invalid: counted.rx_invalid_descs + counted.tx_invalid_descs,
        })
    }

    /// Takes the error that the socket holds, if any: `ENETDOWN` once the interface is gone.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        sockopt::socket_error(&self.socket)?.map_err(io::Error::from)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.socket
    }
}

/// A socket with memory for frames, and rings of so many entries, a power of two.
pub(crate) fn make(name: &str, region: Region, frames: u32) -> Result<OwnedFd, XdpError> {
    let fails = |action| move |errno: Errno| XdpError::system(name, action, io::Error::from(errno));
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
        .map_err(fails("open an XDP socket"))?;
    let fd = socket.as_fd();
    register(fd, name, region)?;
    let fails_rings = fails("get rings for the socket");
    sockopt::set_xdp_umem_fill_ring_size(fd, frames).map_err(fails_rings)?;
    sockopt::set_xdp_umem_completion_ring_size(fd, frames).map_err(fails_rings)?;
    sockopt::set_xdp_rx_ring_size(fd, frames).map_err(fails_rings)?;
    sockopt::set_xdp_tx_ring_size(fd, frames).map_err(fails_rings)?;
    Ok(socket)
}

/// Binds a socket to a queue of an interface. Unless frames come `whole`, the generic way puts a
/// longer one into several chunks.
pub(crate) fn bind(
    socket: &OwnedFd,
    interface: &Interface,
    queue: u32,
    mode: Mode,
    whole: bool,
) -> Result<(), XdpError> {
    let copying = match mode {
        // The system tries without copying first.
        Mode::Auto => SocketAddrXdpFlags::empty(),
        Mode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        Mode::Native | Mode::Generic => SocketAddrXdpFlags::XDP_COPY,
    };
    let flags = copying | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    let bind = |flags| {
        let address = SocketAddrXdp::new(flags, interface.index as u32, queue);
        while_busy(|| rustix::net::bind(socket, &address).map_err(io::Error::from))
    };
    let mut bound = match whole || mode != Mode::Generic {
        true => bind(flags),
        false => bind(flags | SocketAddrXdpFlags::XDP_USE_SG),
    };
    if !whole && matches!(&bound, Err(error) if error.raw_os_error() == Some(libc::EINVAL)) {
        // A system older than that (Linux before 6.6).
        bound = bind(flags);
    }
    let name = interface.name.clone();
    bound.map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => XdpError::Busy { name, what: format!("queue {queue}"), source },
        Some(libc::EOPNOTSUPP) if mode == Mode::ZeroCopy => refused(interface, mode, source),
        Some(libc::EINVAL | libc::ERANGE) => XdpError::NoQueue { name, queue, source },
        _ => XdpError::system(&name, "bind the socket to a queue", source),
    })
}

/// Judges the result of a call to send; the ring shows whether it should be tried again.
fn taken_or_later<T>(sent: Result<T, Errno>) -> io::Result<()> {
    match sent {
        Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether this process may do what opening takes, as far as that shows without touching the
/// interface.
pub(crate) fn may_open(interface: &Interface, queues: u32, share: &Share) -> Result<(), XdpError> {
    let name = &interface.name;
    let _sockets = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None)
        .map_err(|errno| XdpError::system(name, "open an XDP socket", errno.into()))?;
    let _program = load(name, queues, share)?;
    Ok(())
}

/// Makes memory known to a socket, to put frames into and take them from.
fn register(socket: BorrowedFd<'_>, name: &str, region: Region) -> Result<(), XdpError> {
    let known = sockopt::set_xdp_umem_reg(
        socket,
        XdpUmemReg {
            addr: region.address as u64,
            len: region.octets as u64,
            chunk_size: CHUNK_OCTETS as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        },
    );
    known.map_err(|errno| match errno {
        Errno::NOBUFS | Errno::NOMEM => {
            XdpError::Memory { name: name.to_owned(), octets: region.octets, source: errno.into() }
        }
        _ => XdpError::system(name, "make message memory known to the socket", errno.into()),
    })
}

/// Tries again while the interface is being given up by its last user, for a bounded time.
fn while_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    let mut pause = BUSY_PAUSE_MIN;
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < BUSY_MAX =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(BUSY_PAUSE_MAX);
            }
            outcome => return outcome,
        }
    }
}

/// The loaded program, attached to an interface for as long as this value lives. Nothing of it
/// outlasts the process.
pub struct Redirect {
    _attached: Attachment,
    program: Program,
    sockets: Map,
    /// True if it is attached in mode `native`.
    pub(crate) is_native: bool,
}

impl Redirect {
    /// Loads the program for `share` and attaches it.
    pub(crate) fn attach(
        interface: &Interface,
        queues: u32,
        mode: Mode,
        share: &Share,
    ) -> Result<Self, XdpError> {
        let name = &interface.name;
        let (sockets, program) = load(name, queues, share)?;
        let attach = |native| while_busy(|| program.attach(interface.index as u32, native));
        let (attached, is_native) = match mode {
            Mode::Generic => (attach(false), false),
            Mode::Native | Mode::ZeroCopy => (attach(true), true),
            Mode::Auto => match attach(true) {
                Err(error) if is_refusal(&error) => (attach(false), false),
                attached => (attached, true),
            },
        };
        let attached = attached.map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => {
                XdpError::Busy { name: name.clone(), what: "its entrance (XDP)".to_owned(), source }
            }
            _ if is_refusal(&source) => refused(interface, mode, source),
            _ => XdpError::system(name, "attach the redirect program", source),
        })?;
        Ok(Self { _attached: attached, program, sockets, is_native })
    }

    /// Whether the program, run on a frame as if it had arrived at queue 0, gives it to the socket
    /// of that queue.
    pub(crate) fn would_take(&self, frame: &[u8]) -> io::Result<bool> {
        Ok(self.program.run(frame)? == REDIRECT)
    }

    /// Lets frames of a queue come to its socket.
    pub(crate) fn enter(
        &self,
        interface: &Interface,
        queue: u32,
        socket: &OwnedFd,
    ) -> Result<(), XdpError> {
        let socket = socket.as_raw_fd().to_ne_bytes();
        self.sockets.set(&queue.to_ne_bytes(), &socket).map_err(|source| {
            XdpError::system(&interface.name, "enter the socket for its queue", source)
        })
    }
}

/// The map for sockets and the program.
fn load(name: &str, queues: u32, share: &Share) -> Result<(Map, Program), XdpError> {
    if share.ether_types.len() > MATCHES_MAX || share.hosts.len() > MATCHES_MAX {
        return Err(XdpError::Setting {
            name: name.to_owned(),
            what: "too many EtherTypes or hosts to share by".to_owned(),
            remedy: format!("there may be {MATCHES_MAX} of each"),
        });
    }
    let sockets = Map::new(MapKind::Sockets, 4, 4, queues)
        .map_err(|source| XdpError::system(name, "make a map of sockets", source))?;
    let program = Program::load(&assemble(share, sockets.fd()))
        .map_err(|source| XdpError::system(name, "load the redirect program", source))?;
    Ok((sockets, program))
}

/// Whether a driver refuses a program as such: it takes none, none for this MTU, or none with these
/// queues.
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [libc::EOPNOTSUPP, libc::ERANGE, libc::ENOSPC, libc::EINVAL, libc::E2BIG];
    error.raw_os_error().is_some_and(|number| refusals.contains(&number))
}

fn refused(interface: &Interface, mode: Mode, source: io::Error) -> XdpError {
    let name = &interface.name;
    let remedy = match source.raw_os_error() {
        Some(libc::ERANGE | libc::E2BIG) => {
            format!("its MTU, or its peer's, is too large for it: sudo ip link set {name} mtu 1500")
        }
        Some(libc::ENOSPC) => {
            "it has too few receiving queues for its peer's sending ones, or none to spare"
                .to_owned()
        }
        _ => "take mode=auto, which takes the best that there is".to_owned(),
    };
    XdpError::Mode { name: name.clone(), driver: driver(name), mode, remedy, source }
}
