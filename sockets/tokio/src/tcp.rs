//! Streams.

use crate::Stack;
use crate::task::{Awaited, Direction};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use xk_net::{Driver, Ready, Source, Thread};

/// One end of a stream, like `tokio::net::TcpStream`.
pub struct TcpStream<D: Driver = Thread>(Awaited<xk_net::TcpStream<D>>);

impl<D: Driver> TcpStream<D> {
    pub(crate) fn new(stream: xk_net::TcpStream<D>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(Awaited::new(stream)))
    }

    /// Connects to the first of these addresses that answers.
    pub async fn connect(stack: &Stack<D>, peer: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = None;
        for peer in peer.to_socket_addrs()? {
            match Self::connect_to(stack, peer).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        let none =
            || io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses");
        Err(last.unwrap_or_else(none))
    }

    async fn connect_to(stack: &Stack<D>, peer: SocketAddr) -> io::Result<Self> {
        let stream = Self::new(xk_net::TcpStream::begin_connect(stack, None, peer, &[])?)?;
        stream
            .0
            .wait(Direction::Write, |socket| match socket.take_error()? {
                Some(error) => Err(error),
                None if socket.ready().is_writable() => Ok(()),
                None => Err(io::ErrorKind::WouldBlock.into()),
            })
            .await?;
        Ok(stream)
    }

    /// The underlying socket, for its options and addresses. It does not block.
    pub fn get_ref(&self) -> &xk_net::TcpStream<D> {
        &self.0.socket
    }

    /// The local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.get_ref().local_addr()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `ENOTCONN` if the stream does not stand.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.get_ref().peer_addr()
    }

    /// Sets whether small segments are sent at once.
    ///
    /// # Errors
    /// If the layer below does not know of it.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.get_ref().set_nodelay(on)
    }

    /// Reads octets without removing them.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| socket.peek(buffer)).await
    }

    /// Operations for which the stream is ready now.
    pub fn ready(&self) -> Ready {
        self.get_ref().ready()
    }
}

impl<D: Driver> AsyncRead for TcpStream<D> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let read = self.0.poll(cx, Direction::Read, |mut socket| socket.read(room));
        read.map_ok(|octets| buffer.advance(octets))
    }
}

impl<D: Driver> AsyncWrite for TcpStream<D> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(cx, Direction::Write, |mut socket| socket.write(octets))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(cx, Direction::Write, |mut socket| socket.write_vectored(octets))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match self.get_ref().shutdown(Shutdown::Write) {
            // Broken, and so ended.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        })
    }
}

/// A listening socket, like `tokio::net::TcpListener`.
pub struct TcpListener<D: Driver = Thread>(Awaited<xk_net::TcpListener<D>>);

impl<D: Driver> TcpListener<D> {
    /// Listens at the first of these addresses that is available; port 0 is any free one.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn bind(stack: &Stack<D>, local: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = xk_net::TcpListener::bind(stack, local)?;
        listener.set_nonblocking(true)?;
        Ok(Self(Awaited::new(listener)))
    }

    /// Waits for the next peer.
    ///
    /// # Errors
    /// `ENETDOWN` if the stack has ended.
    pub async fn accept(&self) -> io::Result<(TcpStream<D>, SocketAddr)> {
        let (stream, peer) = self.0.wait(Direction::Read, |socket| socket.accept()).await?;
        Ok((TcpStream::new(stream)?, peer))
    }

    #[cfg(feature = "tonic")]
    pub(crate) fn awaited(&self) -> &Awaited<xk_net::TcpListener<D>> {
        &self.0
    }

    /// The underlying socket. It does not block.
    pub fn get_ref(&self) -> &xk_net::TcpListener<D> {
        &self.0.socket
    }

    /// The address, with the actual port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.get_ref().local_addr()
    }
}
