//! tarpc: bincode in frames with a length on a TCP connection, one call after the other.

use futures::StreamExt as _;
use rpc_peer_common::{Calls, Trips, Wrong};
use serde_bytes::ByteBuf;
use tarpc::client;
use tarpc::context;
use tarpc::serde_transport::Transport;
use tarpc::server::{BaseChannel, Channel as _};
use tarpc::tokio_serde::formats::Bincode;
use tokio::net::{TcpListener, TcpStream};

#[tarpc::service]
pub trait Null {
    /// Takes octets and answers nothing.
    async fn take(octets: ByteBuf);
}

#[derive(Clone)]
struct Answerer;

impl Null for Answerer {
    async fn take(self, _: context::Context, octets: ByteBuf) {
        std::hint::black_box(octets);
    }
}

fn main() -> Result<(), Wrong> {
    rpc_peer_common::run(serve, call)
}

async fn serve(listener: TcpListener) -> Result<(), Wrong> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let channel = BaseChannel::with_defaults(Transport::from((stream, Bincode::default())));
        // One call at a time comes: each is answered where it is read.
        tokio::spawn(channel.execute(Answerer.serve()).for_each(|answer| answer));
    }
}

async fn call(calls: Calls) -> Result<(), Wrong> {
    let stream = TcpStream::connect(calls.server).await?;
    stream.set_nodelay(true)?;
    let transport = Transport::from((stream, Bincode::default()));
    let client = NullClient::new(client::Config::default(), transport).spawn();
    let octets = ByteBuf::from(vec![0x5a; calls.octets]);
    let mut trips = Trips::new(calls.time);
    loop {
        client.take(context::current(), octets.clone()).await?;
        if !trips.note() {
            trips.tell();
            return Ok(());
        }
    }
}
