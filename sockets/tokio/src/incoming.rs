//! Traits that tonic's server needs of streams and listeners.

use crate::task::Direction;
use crate::{TcpListener, TcpStream};
use futures_core::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::transport::server::{Connected, TcpConnectInfo};
use xk_net::{Driver, Thread};

impl<D: Driver> Connected for TcpStream<D> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo { local_addr: self.local_addr().ok(), remote_addr: self.peer_addr().ok() }
    }
}

/// The peers of a listener, one after the other, for `serve_with_incoming`.
pub struct Incoming<D: Driver = Thread>(TcpListener<D>);

impl<D: Driver> From<TcpListener<D>> for Incoming<D> {
    fn from(listener: TcpListener<D>) -> Self {
        Self(listener)
    }
}

impl<D: Driver> Stream for Incoming<D> {
    type Item = io::Result<TcpStream<D>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = self.0.awaited().poll(cx, Direction::Read, xk_net::TcpListener::accept);
        let accepted = ready!(accepted).and_then(|(stream, _)| TcpStream::new(stream));
        Poll::Ready(Some(accepted))
    }
}
