//! A UDP socket of the operating system, set up for batches.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use xk_core::Reason;
use xk_core::reason::Class;
use xk_kit::control::{NetworkErrorKind, Start};
use xk_kit::net::ports::UNREACHABLE;
use xk_kit::wire::device::{DEVICE_ERROR, DEVICE_FULL};

use crate::address::{Notes, Reported};
use crate::batch_unsafe;

/// The socket had no room for it on the way in.
pub static OVERFLOW: Reason = Reason::new("socket buffer full", Class::Exhausted);

/// Settings of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Let the system fragment what is longer than the path takes; else such a datagram is refused.
    pub(crate) fragment: bool,
    /// Octets of the receive and send buffers; 0 leaves the system's own.
    pub(crate) buffer_octets: usize,
    /// Receive runs of datagrams joined.
    pub(crate) join: bool,
    /// Frames of the system's own tunnels arrive, with segments of its TCP: up to 64 KiB at once.
    /// Then the buffer is larger unless its size is given, and losses are asked for: in the control
    /// data of such an arrival the count of losses is what a hardened kernel (up to 6.18 at least)
    /// takes for an exposure of its own memory, and ends the thread.
    pub(crate) tunnel: bool,
}

/// Octets of the receive buffer for a tunnel; less if the system allows this process no more.
const TUNNEL_OCTETS: usize = 4 << 20;

/// The shortest wait that is left to the system's call, in milliseconds: a few of its ticks.
const WAIT_MS_MIN: u64 = 16;
/// Losses that one look tells of; the rest is for the next.
const LOST_AT_ONCE: u32 = 1 << 16;

/// An open socket.
pub(crate) struct Socket {
    socket: Rc<OwnedFd>,
    /// Longest time that a call waits for an arrival (`SO_RCVTIMEO`); zero: without end.
    patience: Cell<Duration>,
    /// Overflows that have been told of.
    overflows: Cell<u32>,
    /// The system does not tell of them by itself.
    asks: bool,
}

/// A complaint about a datagram sent before.
pub(crate) struct Complaint {
    pub(crate) reported: Reported,
    /// Address that it was sent to.
    pub(crate) to: Option<SocketAddr>,
    /// Our host.
    pub(crate) local: Option<Ipv4Addr>,
    /// First octets of the datagram.
    pub(crate) start: Start,
}

impl Complaint {
    /// True if a host on the way or the peer makes it, false if our own system does.
    pub(crate) fn is_from_network(&self) -> bool {
        self.reported.origin != libc::SO_EE_ORIGIN_LOCAL
    }
}

impl Socket {
    /// Binds one to `local` and sets it up.
    ///
    /// # Errors
    /// What the system says; `AddrInUse` and `AddrNotAvailable` are the usual ones.
    pub(crate) fn bind(local: SocketAddr, setup: Setup) -> io::Result<Self> {
        let socket = UdpSocket::bind(local)?;
        socket.set_broadcast(true)?;
        let fd = socket.as_fd();
        let set = |level, option, value| xk_linux::set_number(fd, level, option, value);
        let discovery = |never: i32, always: i32| if setup.fragment { never } else { always };
        if local.is_ipv4() {
            set(libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
            if local.ip().is_unspecified() {
                set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            }
            let how = discovery(libc::IP_PMTUDISC_WANT, libc::IP_PMTUDISC_DO);
            set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, how)?;
        } else {
            set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
            let how = discovery(libc::IPV6_PMTUDISC_WANT, libc::IPV6_PMTUDISC_DO);
            set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, how)?;
        }
        if !setup.tunnel {
            set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        } else if setup.buffer_octets == 0 {
            xk_linux::set_receive_room(fd, TUNNEL_OCTETS)?;
        }
        if setup.join {
            // Systems before Linux 5.0 do not know it: datagrams then come one by one.
            let _ = set(libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        if let Some(octets) = i32::try_from(setup.buffer_octets).ok().filter(|n| *n > 0) {
            set(libc::SOL_SOCKET, libc::SO_RCVBUF, octets)?;
            set(libc::SOL_SOCKET, libc::SO_SNDBUF, octets)?;
        }
        Ok(Self {
            socket: Rc::new(socket.into()),
            patience: Cell::default(),
            overflows: Cell::new(0),
            asks: setup.tunnel,
        })
    }

    /// Address to which it is bound.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        let local = rustix::net::getsockname(&self.socket)?;
        Ok(local.try_into()?)
    }

    /// The descriptor. Each call on it says by itself whether it waits.
    pub(crate) fn fd(&self) -> &Rc<OwnedFd> {
        &self.socket
    }

    /// Has calls that wait for an arrival wait for at most `limit`, and more than a fourth of it.
    /// False if `limit` is too short, or the system refuses.
    ///
    /// Waits of conversations have limits like those before, so the system is told rarely.
    pub(crate) fn wait_at_most(&self, limit: Duration) -> bool {
        let patience = self.patience.get();
        if patience <= limit && limit / 4 < patience {
            return true;
        }
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let Some(power) = ms.checked_ilog2().filter(|_| ms >= WAIT_MS_MIN) else {
            return false;
        };
        let patience = Duration::from_millis(1 << power);
        let how = rustix::net::sockopt::Timeout::Recv;
        let set = rustix::net::sockopt::set_socket_timeout(&self.socket, how, Some(patience));
        if set.is_ok() {
            self.patience.set(patience);
        }
        set.is_ok()
    }

    /// Arrivals that it lost since the last look, as an arrival's notes tell; of very many a part
    /// at a time.
    pub(crate) fn lost(&self, notes: &Notes) -> u32 {
        notes.overflows.map_or(0, |overflows| self.news(overflows))
    }

    /// Arrivals that were lost, where notes do not tell.
    pub(crate) fn lost_untold(&self) -> u32 {
        if !self.asks {
            return 0;
        }
        batch_unsafe::losses(self.socket.as_fd()).map_or(0, |overflows| self.news(overflows))
    }

    /// Overflows that have not been told of.
    fn news(&self, overflows: u32) -> u32 {
        let told = self.overflows.get();
        // The system's count goes round.
        let lost = overflows.wrapping_sub(told).min(LOST_AT_ONCE);
        self.overflows.set(told.wrapping_add(lost));
        lost
    }

    /// Takes the next complaint about a datagram sent before.
    pub(crate) fn complaint(&self) -> io::Result<Option<Complaint>> {
        let taken = batch_unsafe::take_report(self.socket.as_fd())?;
        Ok(taken.map(|(reported, to, start, notes)| Complaint {
            reported,
            to,
            local: notes.destination,
            start,
        }))
    }
}

/// The way to a peer, as the system's routes have it.
pub(crate) struct PeerPath {
    /// Our host.
    pub(crate) local: IpAddr,
    /// The MTU, in octets.
    pub(crate) mtu: usize,
    /// The peer is a broadcast or a group.
    pub(crate) is_to_many: bool,
}

/// The way to a peer.
pub(crate) fn way_to(local: IpAddr, peer: SocketAddr) -> io::Result<PeerPath> {
    // Connecting sends nothing; without the option to a broadcast it is refused, so that one is
    // known.
    let socket = UdpSocket::bind((local, 0))?;
    let is_broadcast = match socket.connect(peer) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            socket.set_broadcast(true)?;
            socket.connect(peer)?;
            true
        }
        connected => connected.map(|()| false)?,
    };
    let (level, option) = if peer.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    };
    let mtu = xk_linux::number(&socket, level, option)?;
    Ok(PeerPath {
        local: socket.local_addr()?.ip(),
        mtu: usize::try_from(mtu).unwrap_or(0),
        is_to_many: is_broadcast || peer.ip().is_multicast(),
    })
}

/// Meaning of a complaint to the layers above; `None` for one that they need not hear of.
pub(crate) fn meaning(reported: &Reported) -> Option<NetworkErrorKind> {
    use NetworkErrorKind as Kind;
    if reported.origin != libc::SO_EE_ORIGIN_ICMP {
        return None;
    }
    // RFC 792.
    Some(match (reported.kind, reported.code) {
        (3, code) => return Kind::of_unreachable(code, reported.info),
        (11, 0) => Kind::TimeExceeded,
        (11, _) => Kind::ReassemblyTimeExceeded,
        (12, _) => Kind::ParameterProblem,
        _ => return None,
    })
}

/// The reason under which a datagram counts that the system refused with this error.
pub(crate) fn reason_of(error: &io::Error) -> &'static Reason {
    match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::EAGAIN | libc::ENOMEM) => &DEVICE_FULL,
        Some(libc::EPERM | libc::EACCES) => &xk_core::reason::PROHIBITED,
        Some(libc::EMSGSIZE) => &xk_core::reason::TOO_BIG,
        Some(
            libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN,
        ) => &UNREACHABLE,
        _ => &DEVICE_ERROR,
    }
}
