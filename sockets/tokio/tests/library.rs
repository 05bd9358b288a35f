//! Tasks on a protocol library: a registry begins their connections, and they wait for what comes
//! by the program's own channel.

#[allow(dead_code, reason = "the tests of the library itself look at the registry")]
#[path = "../../net/tests/rig/trusted.rs"]
mod trusted;

use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trusted::{HERE, THERE, Trusted};
use xk_tokio::{Stack, TcpListener, TcpStream, UdpSocket};

/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(20);

/// A program on a library, and an ordinary peer.
fn stacks(name: &str) -> (Trusted, Stack, Stack) {
    let trusted = Trusted::new(name);
    let (program, peer) = (trusted.setup().thread().expect("a member"), trusted.peer());
    (trusted, program, peer)
}

fn run<F: Future<Output = io::Result<()>>>(work: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(STEP_TIME_MAX, work).await });
    done.expect("it ends").expect("it does");
}

/// All that a peer says goes back, up to its end.
async fn echo(listener: TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    let mut buffer = vec![0; 1 << 14];
    while let octets @ 1.. = stream.read(&mut buffer).await? {
        stream.write_all(&buffer[..octets]).await?;
    }
    stream.shutdown().await
}

async fn ask(stack: &Stack, to: &str) -> io::Result<()> {
    let sent: Vec<u8> = (0..300_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    let stream = TcpStream::connect(stack, format!("{to}:700")).await?;
    let (mut from, mut into) = tokio::io::split(stream);
    let mut back = vec![0; sent.len()];
    let writes = async {
        into.write_all(&sent).await?;
        into.shutdown().await
    };
    tokio::try_join!(writes, from.read_exact(&mut back))?;
    assert!(back == sent, "every octet, in order");
    assert_eq!(from.read(&mut [0; 8]).await?, 0, "and the end");
    Ok(())
}

#[test]
fn streams_that_either_side_opens() {
    let (trusted, program, peer) = stacks("tokio-streams");
    run(async {
        let listener = TcpListener::bind(&program, format!("{HERE}:700"))?;
        tokio::try_join!(echo(listener), ask(&peer, HERE))?;
        let listener = TcpListener::bind(&peer, format!("{THERE}:700"))?;
        tokio::try_join!(echo(listener), ask(&program, THERE))?;
        Ok(())
    });
    let begun = Instant::now();
    while trusted.counts().0 > 0 {
        assert!(begun.elapsed() < STEP_TIME_MAX, "the registry carries none");
    }
}

#[test]
fn datagrams_there_and_back() {
    let (_trusted, program, peer) = stacks("tokio-datagrams");
    run(async {
        let ours = UdpSocket::bind(&program, format!("{HERE}:0"))?;
        let theirs = UdpSocket::bind(&peer, format!("{THERE}:530"))?;
        let (to, mut buffer) = (theirs.local_addr()?, [0; 64]);
        for turn in 0..100_u8 {
            ours.send_to(&[turn; 9], to).await?;
            let (octets, from) = theirs.recv_from(&mut buffer).await?;
            theirs.send_to(&buffer[..octets], from).await?;
            let (octets, from) = ours.recv_from(&mut buffer).await?;
            assert_eq!((&buffer[..octets], from), (&[turn; 9][..], to));
        }
        Ok(())
    });
}
