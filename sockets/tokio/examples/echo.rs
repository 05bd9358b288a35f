//! A tokio echo over a graph: server and client in one process, on a host that talks to itself.
//!
//! `cargo run -p xk-tokio --example echo`

use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use xk_tokio::{TcpListener, TcpStream};

const GRAPH: &str = r#"
host alone {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    icmp ip
    tcp ip
}
"#;

#[tokio::main]
async fn main() -> io::Result<()> {
    let stack = xk_net::Setup::from_text(GRAPH, xk_catalog::PROTOCOLS).thread()?;
    let listener = TcpListener::bind(&stack, "10.0.0.1:7")?;
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            println!("server: {peer} has come");
            tokio::spawn(async move {
                let (mut from, mut to) = split(stream);
                let octets = copy(&mut from, &mut to).await?;
                println!("server: {octets} octets echoed to {peer}");
                to.shutdown().await
            });
        }
    });
    let mut stream = TcpStream::connect(&stack, "10.0.0.1:7").await?;
    stream.write_all(b"Hello, x-kernel!").await?;
    stream.shutdown().await?;
    let mut echo = String::new();
    stream.read_to_string(&mut echo).await?;
    println!("client: {echo}");
    Ok(())
}
