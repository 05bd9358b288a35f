//! Linux's side of what a program has bound for any host: its loopback addresses, and for datagrams
//! all that the graph has no way to.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use xk_net::Sharing;
use xk_request::{Family, LOOPBACK_6, is_of_linux};

/// Peers that wait at one of Linux's listeners before Linux has them try again.
const BACKLOG: i32 = 128;

/// The loopback addresses that a program of this family expects to serve.
fn loopbacks(family: Family) -> &'static [IpAddr] {
    const BOTH: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    match family {
        Family::V4 => &BOTH[..1],
        Family::V6 => &BOTH,
    }
}

/// A socket of Linux's at this address, which shares its port as the program's does.
fn bound(kind: SocketType, at: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !at.ip().is_unspecified())?;
    }
    // Connections of an earlier listener that are about to end are not in the way.
    let address = sharing.address || kind == SocketType::STREAM;
    sockopt::set_socket_reuseaddr(&socket, address)?;
    sockopt::set_socket_reuseport(&socket, sharing.port)?;
    rustix::net::bind(&socket, &at)?;
    Ok(socket)
}

/// Linux's listeners at its loopback addresses. A port that another process has there, or that the
/// relay's user may not have, is left out.
pub(crate) fn listeners(family: Family, port: u16, sharing: Sharing) -> Vec<TcpListener> {
    let listen = |host: &IpAddr| {
        let socket = bound(SocketType::STREAM, SocketAddr::new(*host, port), sharing)?;
        rustix::net::listen(&socket, BACKLOG)?;
        io::Result::Ok(TcpListener::from(socket))
    };
    let hosts = loopbacks(family).iter();
    hosts.filter_map(|host| listen(host).ok()).collect()
}

/// Linux's sockets for datagrams beside one of the graph.
pub(crate) struct Outside {
    sockets: Vec<UdpSocket>,
    family: Family,
    /// True if it is bound for any host of Linux's, and not for its loopback alone.
    is_wide: bool,
}

impl Outside {
    /// Binds sockets at the loopback addresses, or one for any host.
    ///
    /// # Errors
    /// If another process has the port there.
    pub(crate) fn bind(
        family: Family,
        port: u16,
        sharing: Sharing,
        is_wide: bool,
    ) -> io::Result<Self> {
        let any = match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let hosts = match is_wide {
            true => std::slice::from_ref(&any),
            false => loopbacks(family),
        };
        let bind = |host: &IpAddr| {
            let socket = bound(SocketType::DGRAM, SocketAddr::new(*host, port), sharing)?;
            let socket = UdpSocket::from(socket);
            socket.set_broadcast(true)?;
            io::Result::Ok(socket)
        };
        let mut sockets = Vec::new();
        for host in hosts {
            match bind(host) {
                Ok(socket) => sockets.push(socket),
                // A system without version 6.
                Err(_) if !sockets.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { sockets, family, is_wide })
    }

    /// Whether it can send there.
    pub(crate) fn reaches(&self, peer: SocketAddrV4) -> bool {
        self.is_wide || is_of_linux(*peer.ip())
    }

    /// Whether it is for all hosts of Linux's.
    pub(crate) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// The descriptors, to be watched.
    pub(crate) fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    /// Sends a datagram.
    pub(crate) fn send(&self, datagram: &[u8], to: SocketAddrV4) -> io::Result<usize> {
        let is_6 = self.family == Family::V6 && *to.ip() == LOOPBACK_6;
        let host = match is_6 {
            true => Ipv6Addr::LOCALHOST,
            false => to.ip().to_ipv6_mapped(),
        };
        let socket = match (&self.sockets[..], is_6) {
            ([_, second, ..], true) => second,
            ([first, ..], _) => first,
            ([], _) => return Err(Errno::NETUNREACH.into()),
        };
        match socket.local_addr()? {
            SocketAddr::V4(_) => socket.send_to(datagram, to),
            SocketAddr::V6(_) => socket.send_to(datagram, (host, to.port())),
        }
    }

    /// Receives the next datagram.
    ///
    /// # Errors
    /// `EAGAIN` if there is nothing; Linux's.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<(SocketAddrV4, usize)> {
        let mut last = Err(Errno::AGAIN.into());
        for socket in &self.sockets {
            last = socket.recv_from(into);
            let is_empty = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
            if !last.as_ref().is_err_and(is_empty) {
                break;
            }
        }
        let (octets, from) = last?;
        let host = match from.ip() {
            IpAddr::V4(host) => host,
            IpAddr::V6(Ipv6Addr::LOCALHOST) => LOOPBACK_6,
            IpAddr::V6(host) => host.to_ipv4_mapped().ok_or(Errno::AFNOSUPPORT)?,
        };
        Ok((SocketAddrV4::new(host, from.port()), octets))
    }
}
