//! hyper over a graph, server and client in one process: two hosts on shared memory, each a stack
//! of its own.
//!
//! `cargo run -p xk-tokio --example http`

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use xk_net::Setup;
use xk_tokio::{Stack, TcpListener, TcpStream};

/// A host on an Ethernet of shared memory; both ends name the same path.
fn host(path: &str, address: &str) -> std::io::Result<Stack> {
    let graph = format!(
        r#"
        host one {{
            shm path="{path}"
            eth shm
            arp eth
            ip arp {{ address "{address}/24"; }}
            icmp ip
            tcp ip
        }}
        "#
    );
    Setup::from_text(graph, xk_catalog::PROTOCOLS).thread()
}

async fn answer(
    request: Request<hyper::body::Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    println!("server: {} {}", request.method(), request.uri());
    Ok(Response::new(Full::new(Bytes::from("Hello from xk\n"))))
}

async fn serve(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            let server = hyper::server::conn::http1::Builder::new();
            let served = server.serve_connection(TokioIo::new(stream), service_fn(answer));
            if let Err(error) = served.await {
                println!("server: {peer}: {error}");
            }
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("xk-http-{}.sock", std::process::id()));
    let path = path.display().to_string();
    let (server, client) = (host(&path, "10.0.0.1")?, host(&path, "10.0.0.2")?);
    tokio::spawn(serve(TcpListener::bind(&server, "10.0.0.1:80")?));

    let stream = TcpStream::connect(&client, "10.0.0.1:80").await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/hello").header("host", "10.0.0.1").body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    println!("client: {}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    print!("client: {}", String::from_utf8_lossy(&body));
    Ok(())
}
