//! UDP sockets of Linux: one system call a message, or one for as many as segmentation offload
//! takes. And its raw IP sockets: IP with no transport above it.

use super::endpoint::failed;
use super::endpoint::{Endpoint, System, Wire};
use super::exchange::{self, Line, OCTETS_MAX, WAIT};
use super::sockets_unsafe;
use super::space::LINUX;
use crate::case::Trouble;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType, socket_with};
use serde_json::Value;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// The number of the user on IP: the first for experiments (RFC 3692 section 2.1).
pub(super) const IP_PROTOCOL: u8 = 253;

/// The port of the end that answers or receives, or of the other.
pub(super) fn port(end: &Endpoint, answers: bool) -> u16 {
    end.port + u16::from(answers)
}

/// Octets that a receiving socket may keep, if the system allows so many.
const HELD_OCTETS: usize = 4 << 20;

/// Octets of the header that a raw socket shows in front of what comes: one without options
/// (raw(7)).
const IP_OCTETS: usize = 20;

struct Sockets {
    /// One of UDP, or a raw one, whose addresses have no port.
    socket: UdpSocket,
    /// Destination of messages: the last sender, at the end that answers.
    peer: SocketAddr,
    buffer: Vec<u8>,
    /// Octets in front of each message.
    header: usize,
}

/// The address and the peer's of an end.
fn addresses(end: &Endpoint) -> io::Result<(SocketAddr, SocketAddr)> {
    let address = |side: usize| match end.system {
        System::LinuxIp | System::LinuxVeth | System::LinuxVethJoined => {
            LINUX[side].parse().unwrap_or(Ipv4Addr::UNSPECIFIED)
        }
        System::LinuxLoopback | System::LinuxLoopbackJoined | System::Bare(Wire::Host) => {
            Ipv4Addr::LOCALHOST
        }
        // The peer of a graph learns its address from what arrives.
        _ => Ipv4Addr::UNSPECIFIED,
    };
    let answers = end.task.is_passive();
    let (mine, other) = (port(end, answers), port(end, !answers));
    Ok(((address(end.side), mine).into(), (address(1 - end.side), other).into()))
}

/// One for the protocol of the benchmark's user.
fn raw_socket() -> io::Result<OwnedFd> {
    let protocol = RawProtocol::new(u32::from(IP_PROTOCOL)).map(Protocol::from_raw);
    Ok(socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?)
}

impl Sockets {
    fn open(end: &Endpoint) -> io::Result<Self> {
        let (mine, mut peer) = addresses(end)?;
        let (socket, header) = if end.system == System::LinuxIp {
            peer.set_port(0);
            (UdpSocket::from(raw_socket()?), IP_OCTETS)
        } else {
            (UdpSocket::bind(mine)?, 0)
        };
        if end.spins {
            socket.set_nonblocking(true)?;
        } else {
            socket.set_read_timeout(Some(WAIT))?;
        }
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, HELD_OCTETS);
        Ok(Self { socket, peer, buffer: vec![0; OCTETS_MAX], header })
    }

    /// The next message's length, if there is one.
    fn next(&mut self) -> io::Result<Option<usize>> {
        match self.socket.recv_from(&mut self.buffer) {
            Ok((octets, from)) => {
                self.peer = from;
                Ok(Some(octets))
            }
            Err(error) if is_pause(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Nothing came in time, a signal did, or an earlier message found no socket.
fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
    )
}

impl Line for Sockets {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        match self.socket.send_to(message, self.peer) {
            Ok(_) => Ok(true),
            Err(error) if is_pause(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let Some(octets) = self.next()? else {
            return Ok(0);
        };
        each(self.buffer.get(self.header..octets).unwrap_or_default());
        Ok(1)
    }
}

/// Sockets with many messages of one length in each call: the system cuts and joins.
struct Joined {
    sockets: Sockets,
    octets: usize,
    held: Vec<u8>,
}

/// Messages that one call takes (`UDP_MAX_SEGMENTS` of Linux), and octets.
const SEGMENTS_MAX: usize = 64;
const SEGMENTS_OCTETS_MAX: usize = 65_000;

impl Line for Joined {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let fits = (SEGMENTS_OCTETS_MAX / self.octets).min(SEGMENTS_MAX);
        if self.held.len() >= fits * self.octets {
            self.flush()?;
        }
        self.held.extend_from_slice(message);
        Ok(true)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        // What the socket has no room for is lost, as the receiver will find.
        let _ = self.sockets.send(&self.held)?;
        self.held.clear();
        Ok(())
    }

    fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let Some(octets) = self.sockets.next()? else {
            return Ok(0);
        };
        let messages = self.sockets.buffer[..octets].chunks(self.octets);
        let count = messages.len();
        messages.for_each(&mut each);
        Ok(count)
    }
}

pub(super) fn run(end: &Endpoint) -> Result<Value, Trouble> {
    let sockets = Sockets::open(end).map_err(failed("cannot open a socket"))?;
    if !matches!(end.system, System::LinuxVethJoined | System::LinuxLoopbackJoined) {
        return exchange::run(end, sockets);
    }
    sockets_unsafe::set_segments(&sockets.socket, end.octets)
        .map_err(failed("no segmentation offload"))?;
    let joined = Joined { sockets, octets: end.octets, held: Vec::with_capacity(OCTETS_MAX) };
    exchange::run(end, joined)
}
