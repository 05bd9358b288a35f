//! gRPC by tonic: HTTP/2 on a TCP connection without TLS, one unary call after the other.

use bytes::Bytes;
use rpc_peer_common::{Calls, Trips, Wrong};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

tonic::include_proto!("xk.bench.Null");

/// The request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Octets {
    #[prost(bytes = "bytes", tag = "1")]
    octets: Bytes,
}

/// The reply.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nothing {}

struct Answerer;

#[tonic::async_trait]
impl null_server::Null for Answerer {
    async fn take(&self, request: Request<Octets>) -> Result<Response<Nothing>, Status> {
        std::hint::black_box(request.into_inner());
        Ok(Response::new(Nothing {}))
    }
}

fn main() -> Result<(), Wrong> {
    rpc_peer_common::run(serve, call)
}

async fn serve(listener: TcpListener) -> Result<(), Wrong> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().add_service(null_server::NullServer::new(Answerer));
    Ok(server.serve_with_incoming(incoming).await?)
}

async fn call(calls: Calls) -> Result<(), Wrong> {
    let server = format!("http://{}", calls.server);
    let channel = Endpoint::from_shared(server)?.connect().await?;
    let mut client = null_client::NullClient::new(channel);
    let octets = Bytes::from(vec![0x5a; calls.octets]);
    let mut trips = Trips::new(calls.time);
    loop {
        let octets = octets.clone();
        client.take(Octets { octets }).await?;
        if !trips.note() {
            trips.tell();
            return Ok(());
        }
    }
}
