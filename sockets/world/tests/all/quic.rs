//! quinn, unchanged: streams of QUIC there and back over a link that loses, doubles and reorders.

use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;
use xk_tokio::QuicSocket;
use xk_world::{Link, Outcome, Result, Sim, Stack, UdpSocket, World};

const OCTETS: usize = 200_000;

fn endpoint(stack: &Stack, at: &str, config: Option<ServerConfig>) -> Result<Endpoint> {
    let socket: QuicSocket<Sim> = UdpSocket::bind(stack, at)?.into();
    let (socket, runtime) = (Arc::new(socket), Arc::new(TokioRuntime));
    let own = EndpointConfig::default();
    Ok(Endpoint::new_with_abstract_socket(own, config, socket, runtime)?)
}

async fn serve(stack: Stack, certificate: CertificateDer<'static>, key: Vec<u8>) -> Result {
    let key = PrivateKeyDer::try_from(key)?;
    let config = ServerConfig::with_single_cert(vec![certificate], key)?;
    let endpoint = endpoint(&stack, "0.0.0.0:443", Some(config))?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await.unwrap();
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let all = receive.read_to_end(OCTETS).await.unwrap();
                send.write_all(&all).await.unwrap();
                send.finish().unwrap();
            }
        });
    }
    Ok(())
}

async fn ask(stack: Stack, certificate: CertificateDer<'static>) -> Result {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut endpoint = endpoint(&stack, "0.0.0.0:0", None)?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let server = "server:443".to_socket_addrs()?.next().ok_or("it has no address")?;
    let connection = endpoint.connect(server, "xk.test")?.await?;
    for number in 0..4_u8 {
        let (mut send, mut receive) = connection.open_bi().await?;
        let sent = vec![number; OCTETS];
        send.write_all(&sent).await?;
        send.finish()?;
        assert!(receive.read_to_end(OCTETS).await? == sent);
    }
    connection.close(0_u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}

fn run(seed: u64) -> Result<Outcome> {
    let ms = Duration::from_millis;
    let link = Link::new().delay(ms(5)).loss(0.05).duplicate(0.02).reorder(0.05, ms(3));
    let mut world = World::lan(seed, &["server", "client"], link)?;
    let key = rcgen::KeyPair::generate()?;
    let named = rcgen::CertificateParams::new(["xk.test".to_string()])?;
    let certificate = named.self_signed(&key)?.der().clone();
    let (shown, key) = (certificate.clone(), key.serialize_der());
    world.host("server", move |stack| serve(stack, shown.clone(), key.clone()))?;
    world.client("client", move |stack| ask(stack, certificate.clone()))?;
    world.run(Duration::from_secs(120))
}

#[test]
fn streams_of_quic_come_back() {
    xk_world::seeds(0..5, run);
}
