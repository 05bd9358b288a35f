//! rustls over xk's TCP without any runtime: two threads on one stack, blocking.
//!
//! `cargo run -p xk-tokio --example tls`

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use xk_net::{Setup, TcpListener, TcpStream};

const GRAPH: &str = r#"
host alone {
    loopback
    ip loopback { address "10.0.0.1/24"; }
    icmp ip
    tcp ip
}
"#;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let stack = Setup::from_text(GRAPH, xk_catalog::PROTOCOLS).thread()?;
    let own = rcgen::generate_simple_self_signed(["xk.test".to_string()])?;
    let certificate = own.cert.der().clone();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der())?;

    let listener = TcpListener::bind(&stack, "10.0.0.1:443")?;
    let shown = vec![certificate.clone()];
    let server = std::thread::spawn(move || -> Outcome {
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(shown, key)?;
        let (mut stream, peer) = listener.accept()?;
        let mut session = ServerConnection::new(Arc::new(config))?;
        let mut tls = BufReader::new(rustls::Stream::new(&mut session, &mut stream));
        let mut line = String::new();
        tls.read_line(&mut line)?;
        println!("server: {peer} says {}", line.trim_end());
        tls.get_mut().write_all(b"Hello from xk\n")?;
        Ok(())
    });

    client(&TcpStream::connect(&stack, "10.0.0.1:443")?, certificate)?;
    server.join().map_err(|_| "the server failed")?
}

fn client(mut stream: &TcpStream<xk_net::Thread>, certificate: CertificateDer<'static>) -> Outcome {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("xk.test")?;
    let mut session = ClientConnection::new(Arc::new(config), name)?;
    let mut tls = BufReader::new(rustls::Stream::new(&mut session, &mut stream));
    tls.get_mut().write_all(b"Hello from the client\n")?;
    let mut line = String::new();
    tls.read_line(&mut line)?;
    println!("client: the server says {}", line.trim_end());
    let version = tls.get_ref().conn.protocol_version();
    println!("client: {version:?}");
    Ok(())
}
