//! A tonic service and its client, unchanged, on streams of the simulated stack: the link loses
//! frames, and the server crashes.

use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::service_fn;
use xk_net::Driver;
use xk_tokio::{Incoming, Stack, TcpListener, TcpStream};
use xk_world::{Result, World};

/// Serves the health of services: on any stack, in the simulator or not.
async fn serve<D: Driver + Send + Sync>(stack: Stack<D>) -> Result
where
    TcpStream<D>: Send,
{
    let listener = TcpListener::bind(&stack, "0.0.0.0:50051")?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().add_service(health);
    Ok(server.serve_with_incoming(Incoming::from(listener)).await?)
}

/// A channel whose connections are the streams that `connect` makes.
async fn channel<D: Driver, F>(connect: impl Fn() -> F + Send + 'static) -> Result<Channel>
where
    TcpStream<D>: Send,
    F: Future<Output = io::Result<TcpStream<D>>> + Send + 'static,
{
    let connect = service_fn(move |_| {
        let stream = connect();
        async move { stream.await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://server:50051");
    Ok(endpoint.connect_with_connector(connect).await?)
}

/// A stream to the server, from a stack in the simulator.
async fn simulated(stack: xk_world::Stack) -> Result<Channel> {
    channel(move || {
        let stack = stack.clone();
        async move { TcpStream::connect(&stack, "server:50051").await }
    })
    .await
}

/// A stream to the server, from a stack with a thread of its own.
async fn real(stack: Stack) -> Result<Channel> {
    channel(move || {
        let stack = stack.clone();
        async move { TcpStream::connect(&stack, "10.0.0.1:50051").await }
    })
    .await
}

async fn ask(channel: Channel) -> Result<ServingStatus> {
    let request = HealthCheckRequest { service: String::new() };
    let reply = HealthClient::new(channel).check(request).await?;
    Ok(reply.into_inner().status())
}

#[test]
fn a_service_of_tonic_s_is_called_in_spite_of_loss_and_a_crash() {
    xk_world::seeds(0..10, |seed| {
        let mut world = World::lan(seed, &["server", "client"], r#"delay="5ms" loss="5%""#)?;
        world.host("server", serve)?;
        world.client("client", |stack| async move {
            let mut answered = 0;
            while answered < 20 {
                let call = async { ask(simulated(stack.clone()).await?).await };
                match timeout(Duration::from_secs(2), call).await {
                    Ok(Ok(status)) => {
                        assert_eq!(status, ServingStatus::Serving);
                        answered += 1;
                    }
                    _ => sleep(Duration::from_millis(50)).await,
                }
            }
            Result::Ok(())
        })?;
        world.run_for(Duration::from_millis(100))?;
        world.crash("server")?;
        world.run_for(Duration::from_millis(300))?;
        world.restart("server")?;
        world.run(Duration::from_secs(600))
    });
}

/// The functions above over a wire of the system's: datagrams on the loopback interface.
#[test]
fn and_over_a_real_wire() {
    let free = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ends = [free(), free()];
    let stack = |own: usize| -> std::io::Result<Stack> {
        let (local, peer, number) = (ends[own], ends[1 - own], own + 1);
        let graph = format!(
            "host one {{ host-eth local=\"{local}\" peer=\"{peer}\"; eth host-eth; arp eth
                ip arp {{ address \"10.0.0.{number}/24\"; }}; icmp ip; tcp ip }}"
        );
        let entries = [xk_world::PROTOCOLS, &[&xk_host::ENTRY]].concat();
        xk_net::Setup::from_text(graph, &entries).thread()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, client) = (stack(0).unwrap(), stack(1).unwrap());
    let local = tokio::task::LocalSet::new();
    let calls = async {
        tokio::task::spawn_local(serve(server));
        let channel = loop {
            match real(client.clone()).await {
                Ok(channel) => break channel,
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        for _ in 0..20 {
            assert_eq!(ask(channel.clone()).await?, ServingStatus::Serving);
        }
        Result::Ok(())
    };
    let within = async { timeout(Duration::from_secs(60), calls).await };
    let done = runtime.block_on(local.run_until(within));
    done.expect("it ends").expect("it is answered");
}
