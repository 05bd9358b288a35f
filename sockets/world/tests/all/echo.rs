//! An echo of streams on a bad link, as asynchronous and as blocking code, and both at once.

use std::io::{Read, Write};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use xk_world::{Outcome, Result, Stack, TcpListener, TcpStream, World, blocking};

const LINK: &str = r#"delay="5ms" jitter="2ms" loss="5%""#;
const ROUNDS: u8 = 100;
const OCTETS: usize = 1000;

/// Echoes for all that come, each in a task of its own.
pub(crate) async fn serve(stack: Stack) -> Result {
    let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut read, mut write) = split(stream);
            copy(&mut read, &mut write).await
        });
    }
}

async fn ask(stack: Stack) -> Result {
    let mut stream = TcpStream::connect(&stack, "server:7").await?;
    for n in 0..ROUNDS {
        let (sent, mut back) = ([n; OCTETS], [0; OCTETS]);
        stream.write_all(&sent).await?;
        stream.read_exact(&mut back).await?;
        assert_eq!(sent, back);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Echoes for one peer after the other.
fn serve_blocking(stack: Stack) -> Result {
    let listener = blocking::TcpListener::bind(&stack, "0.0.0.0:7")?;
    let mut buffer = [0; 4096];
    loop {
        let (mut stream, _) = listener.accept()?;
        loop {
            match stream.read(&mut buffer)? {
                0 => break,
                octets => stream.write_all(&buffer[..octets])?,
            }
        }
    }
}

fn ask_blocking(stack: Stack) -> Result {
    let mut stream = blocking::TcpStream::connect(&stack, "server:7")?;
    for n in 0..ROUNDS {
        let (sent, mut back) = ([n; OCTETS], [0; OCTETS]);
        stream.write_all(&sent)?;
        stream.read_exact(&mut back)?;
        assert_eq!(sent, back);
        stack.sleep(Duration::from_millis(5))?;
    }
    Ok(())
}

fn echo(seed: u64) -> Result<Outcome> {
    let mut world = World::lan(seed, &["server", "client"], LINK)?;
    world.host("server", serve)?;
    world.client("client", ask)?;
    world.run(Duration::from_secs(600))
}

fn blocking_echo(seed: u64) -> Result<Outcome> {
    let mut world = World::lan(seed, &["server", "client"], LINK)?;
    world.blocking_host("server", serve_blocking)?;
    world.blocking_client("client", ask_blocking)?;
    world.run(Duration::from_secs(600))
}

#[test]
fn asynchronous_programs_echo() {
    xk_world::seeds(0..20, echo);
}

#[test]
fn blocking_programs_echo() {
    xk_world::seeds(0..20, blocking_echo);
}

#[test]
fn both_kinds_share_a_world_and_a_host() {
    xk_world::seeds(0..5, |seed| {
        let mut world = World::lan(seed, &["server", "client", "third"], LINK)?;
        world.host("server", serve)?;
        world.client("client", ask)?;
        world.blocking_client("client", ask_blocking)?;
        world.blocking_client("third", ask_blocking)?;
        world.run(Duration::from_secs(600))
    });
}

/// Loss and retransmission are there, and are the seed's.
#[test]
fn seeds_differ() {
    let [one, other] = [1, 2].map(|seed| echo(seed).unwrap());
    assert_ne!((one.now, one.shape, one.octets), (other.now, other.shape, other.octets));
    let lossless = || -> Result<Outcome> {
        let mut world = World::lan(1, &["server", "client"], r#"delay="5ms""#)?;
        world.host("server", serve)?;
        world.client("client", ask)?;
        world.run(Duration::from_secs(600))
    };
    // 100 rounds of 10 ms there and back and at least 5 ms of rest; every loss comes on top.
    let least = Duration::from_millis(1500);
    let time = lossless().unwrap().now.since(xk_world::Time::ZERO);
    assert!(time >= least && time < least * 2, "{time:?}");
    assert!(one.now.since(xk_world::Time::ZERO) > least * 2, "{}", one.now);
}
