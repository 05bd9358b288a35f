//! hyper, unchanged: five requests while the link loses a tenth of all frames and the server
//! crashes.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use xk_world::{Result, Stack, TcpListener, TcpStream, World};

const REPEATED: usize = 2000;

async fn serve(stack: Stack) -> Result {
    let listener = TcpListener::bind(&stack, "0.0.0.0:80")?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let answer = async |request: Request<Incoming>| {
                sleep(Duration::from_millis(20)).await;
                let body = Bytes::from(request.uri().path().repeat(REPEATED));
                Ok::<_, Infallible>(Response::new(Full::new(body)))
            };
            // A client that gives up is no matter of the server's.
            let http = server::conn::http1::Builder::new();
            drop(http.serve_connection(TokioIo::new(stream), service_fn(answer)).await);
        });
    }
}

async fn ask(stack: &Stack, path: &str) -> Result<Bytes> {
    let stream = TcpStream::connect(stack, "server:80").await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header("host", "server").body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

#[test]
fn requests_are_answered_in_spite_of_loss_and_a_crash() {
    xk_world::seeds(0..20, |seed| {
        let mut world = World::lan(seed, &["server", "client"], r#"delay="5ms" loss="10%""#)?;
        world.host("server", serve)?;
        world.client("client", |stack| async move {
            for number in 0..5 {
                let path = format!("/{number}");
                loop {
                    match timeout(Duration::from_secs(5), ask(&stack, &path)).await {
                        Ok(Ok(body)) => break assert_eq!(body, path.repeat(REPEATED)),
                        _ => sleep(Duration::from_millis(100)).await,
                    }
                }
            }
            Ok(())
        })?;
        world.run_for(Duration::from_millis(100))?;
        world.crash("server")?;
        world.run_for(Duration::from_millis(500))?;
        world.restart("server")?;
        world.run(Duration::from_secs(600))
    });
}
