//! Two stacks in one process, joined by shared memory: one driven by this thread, one by a thread
//! of its own.
//!
//! `cargo run -p xk-net --example pair`

use std::io::{self, Read, Write};
use std::net::Shutdown;
use xk_net::{Setup, TcpListener, TcpStream};

/// A host on an Ethernet of shared memory; both ends name the same path.
fn host(path: &str, address: &str) -> Setup {
    Setup::from_text(
        format!(
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
        ),
        xk_catalog::PROTOCOLS,
    )
}

fn main() -> io::Result<()> {
    let path = std::env::temp_dir().join(format!("xk-pair-{}.sock", std::process::id()));
    let path = path.display().to_string();

    let server = host(&path, "10.0.0.1").thread()?;
    let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
    let echo = std::thread::spawn(move || -> io::Result<u64> {
        let (stream, peer) = listener.accept()?;
        println!("server: {peer} has come");
        let octets = io::copy(&mut &stream, &mut &stream)?;
        stream.shutdown(Shutdown::Write)?;
        Ok(octets)
    });

    let client = host(&path, "10.0.0.2").here()?;
    let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
    stream.write_all(b"Hello, x-kernel!")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("client: {answer}");
    let octets = echo.join().map_err(|_| io::Error::other("the server failed"))??;
    println!("server: {octets} octets echoed");
    Ok(())
}
