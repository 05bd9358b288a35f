//! Datagrams as a `Stream` and a `Sink`.

use crate::UdpSocket;
use crate::task::Direction;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use xk_net::{Driver, Thread};

/// Octets of the longest datagram of UDP over IPv4.
const DATAGRAM_MAX: usize = 65_507;

/// A socket's datagrams, each with its peer's address.
pub struct Datagrams<D: Driver = Thread> {
    socket: UdpSocket<D>,
    room: BytesMut,
    /// The datagram that found no room when it was given.
    waits: Option<(Bytes, SocketAddr)>,
}

impl<D: Driver> From<UdpSocket<D>> for Datagrams<D> {
    fn from(socket: UdpSocket<D>) -> Self {
        Self { socket, room: BytesMut::new(), waits: None }
    }
}

impl<D: Driver> Datagrams<D> {
    /// The socket.
    pub fn get_ref(&self) -> &UdpSocket<D> {
        &self.socket
    }
}

impl<D: Driver> Stream for Datagrams<D> {
    type Item = io::Result<(Bytes, SocketAddr)>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = Pin::into_inner(self);
        this.room.resize(DATAGRAM_MAX, 0);
        let room = &mut this.room;
        let received =
            this.socket.awaited().poll(cx, Direction::Read, |socket| socket.recv_from(room));
        Poll::Ready(Some(ready!(received).map(|(octets, peer)| {
            // A copy of its length: the room serves the next.
            (Bytes::copy_from_slice(&this.room[..octets]), peer)
        })))
    }
}

impl<D: Driver> Sink<(Bytes, SocketAddr)> for Datagrams<D> {
    type Error = io::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    fn start_send(self: Pin<&mut Self>, datagram: (Bytes, SocketAddr)) -> io::Result<()> {
        Pin::into_inner(self).waits = Some(datagram);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = Pin::into_inner(self);
        let Some((octets, peer)) = &this.waits else {
            return Poll::Ready(Ok(()));
        };
        let send = |socket: &xk_net::UdpSocket<D>| socket.send_to(octets, *peer);
        let sent = ready!(this.socket.awaited().poll(cx, Direction::Write, send));
        this.waits = None;
        Poll::Ready(sent.map(drop))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
