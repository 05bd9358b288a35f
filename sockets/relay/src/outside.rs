//! Linux's side of what a program has bound for any host: its loopback addresses, and for datagrams all that the graph has no way to.

use rustix::io::Errno;
use std::io;
use std::net::{
    Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket,
};
use xk_request::Family;

/// Linux's listeners at the loopback addresses that a program of this family expects to serve. A port that is somebody
/// else's there, or not for the relay's user, is left out.
pub(crate) fn listeners(family: Family, port: u16) -> Vec<TcpListener> {
    let hosts: &[SocketAddr] = match family {
        Family::V4 => &[SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))],
        Family::V6 => &[
            SocketAddr::V6(SocketAddrV6::new(
                Ipv4Addr::LOCALHOST.to_ipv6_mapped(),
                0,
                0,
                0,
            )),
            SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0)),
        ],
    };
    let listen = |host: &SocketAddr| {
        let listener = TcpListener::bind(SocketAddr::new(host.ip(), port))?;
        listener.set_nonblocking(true)?;
        io::Result::Ok(listener)
    };
    hosts.iter().filter_map(|host| listen(host).ok()).collect()
}

/// Linux's socket for datagrams beside one of the graph.
pub(crate) struct Outside {
    socket: UdpSocket,
    /// It is bound for any host of Linux's, and not for its loopback alone.
    is_wide: bool,
}

impl Outside {
    /// One at a loopback address, or for any host.
    ///
    /// # Errors
    /// If the port is somebody else's there.
    pub(crate) fn bind(port: u16, is_wide: bool) -> io::Result<Self> {
        let host = match is_wide {
            true => Ipv4Addr::UNSPECIFIED,
            false => Ipv4Addr::LOCALHOST,
        };
        let socket = UdpSocket::bind(SocketAddrV4::new(host, port))?;
        socket.set_nonblocking(true)?;
        socket.set_broadcast(true)?;
        Ok(Self { socket, is_wide })
    }

    /// Whether it can send there.
    pub(crate) fn reaches(&self, peer: SocketAddrV4) -> bool {
        self.is_wide || peer.ip().is_loopback()
    }

    /// Whether it is for all hosts of Linux's.
    pub(crate) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// The descriptor, to be watched.
    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Linux's.
    pub(crate) fn send(&self, datagram: &[u8], to: SocketAddrV4) -> io::Result<usize> {
        self.socket.send_to(datagram, to)
    }

    /// What has arrived next.
    ///
    /// # Errors
    /// `EAGAIN` if there is nothing; Linux's.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<(SocketAddrV4, usize)> {
        match self.socket.recv_from(into)? {
            (octets, SocketAddr::V4(from)) => Ok((from, octets)),
            _ => Err(Errno::AFNOSUPPORT.into()),
        }
    }
}
