//! Datagrams.

use crate::Stack;
use crate::task::{Awaited, Direction};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use xk_net::{Driver, Thread};

/// A socket for datagrams, like `tokio::net::UdpSocket`.
pub struct UdpSocket<D: Driver = Thread>(Awaited<xk_net::UdpSocket<D>>);

impl<D: Driver> UdpSocket<D> {
    /// Binds the first of these addresses that is available; port 0 is any free one.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn bind(stack: &Stack<D>, local: impl ToSocketAddrs) -> io::Result<Self> {
        let socket = xk_net::UdpSocket::bind(stack, local)?;
        socket.set_nonblocking(true)?;
        Ok(Self(Awaited::new(socket)))
    }

    /// Receives from one peer only from now on.
    ///
    /// # Errors
    /// `ENETUNREACH` if there is no way.
    pub fn connect(&self, peer: impl ToSocketAddrs) -> io::Result<()> {
        self.get_ref().connect(peer)
    }

    #[cfg(any(feature = "frames", feature = "quinn"))]
    pub(crate) fn awaited(&self) -> &Awaited<xk_net::UdpSocket<D>> {
        &self.0
    }

    /// The underlying socket, for its options. It does not block.
    pub fn get_ref(&self) -> &xk_net::UdpSocket<D> {
        &self.0.socket
    }

    /// The local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.get_ref().local_addr()
    }

    /// Receives a datagram; octets that do not fit into the buffer are lost.
    ///
    /// # Errors
    /// What the network has reported.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.wait(Direction::Read, |socket| socket.recv_from(buffer)).await
    }

    /// Receives a datagram of the connected peer, or of any.
    ///
    /// # Errors
    /// What the network has reported.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| socket.recv(buffer)).await
    }

    /// Sends a datagram.
    pub async fn send_to(&self, octets: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.0.wait(Direction::Write, |socket| socket.send_to(octets, peer)).await
    }

    /// Sends a datagram to the connected peer.
    pub async fn send(&self, octets: &[u8]) -> io::Result<usize> {
        self.0.wait(Direction::Write, |socket| socket.send(octets)).await
    }
}
