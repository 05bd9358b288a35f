//! rustls, unchanged, in blocking programs: 100 kB there and back over a link that loses a
//! twentieth. ring's random bits are the seed's, and so is each octet.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use xk_world::blocking::{TcpListener, TcpStream};
use xk_world::{Outcome, Result, World};

const OCTETS: usize = 100_000;

/// A certificate, and its key, which are the seed's as well.
fn make() -> Result<(CertificateDer<'static>, Vec<u8>)> {
    let key = rcgen::KeyPair::generate()?;
    let named = rcgen::CertificateParams::new(["xk.test".to_string()])?;
    Ok((named.self_signed(&key)?.der().clone(), key.serialize_der()))
}

fn run(seed: u64) -> Result<Outcome> {
    let mut world = World::lan(seed, &["server", "client"], r#"delay="5ms" loss="5%""#)?;
    let (certificate, key) = make()?;
    let shown = certificate.clone();
    world.blocking_host("server", move |stack| {
        let key = PrivateKeyDer::try_from(key.clone())?;
        let config = ServerConfig::builder().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![shown.clone()], key)?);
        let listener = TcpListener::bind(&stack, "0.0.0.0:443")?;
        loop {
            let (stream, _) = listener.accept()?;
            let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(&config))?, stream);
            let mut asked = vec![0; OCTETS];
            tls.read_exact(&mut asked)?;
            tls.write_all(&asked)?;
        }
    })?;
    let trusted = certificate.clone();
    world.blocking_client("client", move |stack| {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone())?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("xk.test")?;
        let session = ClientConnection::new(Arc::new(config), name)?;
        let mut tls = StreamOwned::new(session, TcpStream::connect(&stack, "server:443")?);
        let sent: Vec<u8> = (0..OCTETS).map(|n| n as u8).collect();
        tls.write_all(&sent)?;
        let mut back = vec![0; sent.len()];
        tls.read_exact(&mut back)?;
        assert!(sent == back);
        Result::Ok(())
    })?;
    world.run(Duration::from_secs(60))
}

#[test]
fn octets_come_back_over_tls() {
    xk_world::seeds(0..20, run);
}
