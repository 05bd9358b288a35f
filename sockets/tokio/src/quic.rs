//! A socket for endpoints of quinn.

use crate::task::{Awaited, Direction};
use crate::udp::UdpSocket;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use xk_net::{Driver, Source, Thread};

/// A socket for datagrams, for quinn's `Endpoint::new_with_abstract_socket` with its
/// `TokioRuntime`. Datagrams are sent one by one, and without marks of congestion.
pub struct QuicSocket<D: Driver = Thread>(UdpSocket<D>);

impl<D: Driver> From<UdpSocket<D>> for QuicSocket<D> {
    fn from(socket: UdpSocket<D>) -> Self {
        Self(socket)
    }
}

impl<D: Driver> fmt::Debug for QuicSocket<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuicSocket").field(&self.0.local_addr()).finish()
    }
}

impl<D: Driver> QuicSocket<D> {
    fn awaited(&self) -> &Awaited<xk_net::UdpSocket<D>> {
        self.0.awaited()
    }
}

/// Waits for room to send.
struct Room<D: Driver>(Arc<QuicSocket<D>>);

impl<D: Driver> fmt::Debug for Room<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Room").field(&self.0).finish()
    }
}

impl<D: Driver> UdpPoller for Room<D>
where
    xk_net::UdpSocket<D>: Send + Sync,
{
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.awaited().poll(cx, Direction::Write, |socket| match socket.ready().is_writable() {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })
    }
}

impl<D: Driver> AsyncUdpSocket for QuicSocket<D>
where
    xk_net::UdpSocket<D>: Send + Sync,
{
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Room(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.get_ref().send_to(transmit.contents, transmit.destination).map(drop)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (Some(buffer), Some(meta)) = (buffers.first_mut(), meta.first_mut()) else {
            return Poll::Ready(Ok(0));
        };
        let received = self.awaited().poll(cx, Direction::Read, |socket| socket.recv_from(buffer));
        received.map_ok(|(len, addr)| {
            *meta = RecvMeta { addr, len, stride: len, ..RecvMeta::default() };
            1
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
