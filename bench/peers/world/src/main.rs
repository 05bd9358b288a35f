//! An echo, in xk-world or in turmoil: `world-peer xk|turmoil CLIENTS LOSS MESSAGES SEED LIMIT_S`.
//!
//! Each of so many clients of one server sends so many messages of 1000 octets, the next one once
//! the one before is back. Prints whether all finished (1 or 0), how much time they took in the
//! simulation, and how much here, in seconds.

use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};

const OCTETS: usize = 1000;
const DELAY: Duration = Duration::from_millis(5);

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Copy)]
struct Plan {
    clients: usize,
    loss: f64,
    messages: usize,
    seed: u64,
    limit: Duration,
}

async fn serve(stream: impl AsyncRead + AsyncWrite) {
    let (mut from, mut into) = split(stream);
    // A client that gives up is no matter of the server's.
    let _ = copy(&mut from, &mut into).await;
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, messages: usize) -> Result {
    for turn in 0..messages {
        let message = [turn as u8; OCTETS];
        stream.write_all(&message).await?;
        let mut back = [0; OCTETS];
        stream.read_exact(&mut back).await?;
        assert_eq!(back, message);
    }
    Ok(())
}

/// Whether all finished, and when.
fn xk(plan: Plan) -> Result<(bool, Duration)> {
    use xk_world::{TcpListener, TcpStream, World};
    let mut names = vec!["server".to_owned()];
    names.extend((0..plan.clients).map(|number| format!("client{number}")));
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    let link = format!("delay=\"5ms\" loss=\"{}%\"", plan.loss * 100.0);
    let mut world = World::lan(plan.seed, &hosts, &link)?;
    world.host("server", |stack| async move {
        let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(stream));
        }
    })?;
    for name in &hosts[1..] {
        world.client(name, move |stack| async move {
            talk(TcpStream::connect(&stack, "server:7").await?, plan.messages).await
        })?;
    }
    let finished = world.run(plan.limit).is_ok();
    Ok((finished, Duration::from_nanos(world.now().as_ns())))
}

fn turmoil(plan: Plan) -> Result<(bool, Duration)> {
    use turmoil::net::{TcpListener, TcpStream};
    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(plan.seed)
        .simulation_duration(plan.limit)
        .min_message_latency(DELAY)
        .max_message_latency(DELAY)
        .tcp_capacity(4096);
    if plan.loss > 0.0 {
        // What is lost breaks the link until the next message.
        builder.fail_rate(plan.loss).repair_rate(1.0);
    }
    let mut sim = builder.build();
    sim.host("server", || async {
        let listener = TcpListener::bind(("0.0.0.0", 7)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(stream));
        }
    });
    for number in 0..plan.clients {
        sim.client(format!("client{number}"), async move {
            talk(TcpStream::connect(("server", 7)).await?, plan.messages).await
        });
    }
    let finished = sim.run().is_ok();
    Ok((finished, sim.elapsed()))
}

fn main() -> Result {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [system, clients, loss, messages, seed, limit] = &words[..] else {
        return Err("usage: world-peer xk|turmoil CLIENTS LOSS MESSAGES SEED LIMIT_S".into());
    };
    let plan = Plan {
        clients: clients.parse()?,
        loss: loss.parse()?,
        messages: messages.parse()?,
        seed: seed.parse()?,
        limit: Duration::from_secs(limit.parse()?),
    };
    let run = if system == "xk" { xk } else { turmoil };
    // On this thread the clock is the system's.
    let begun = Instant::now();
    let ran = std::thread::spawn(move || run(plan).map_err(|error| error.to_string())).join();
    let took = begun.elapsed();
    let (finished, simulated) = ran.map_err(|_| "it panicked")??;
    println!("{} {} {}", u8::from(finished), simulated.as_secs_f64(), took.as_secs_f64());
    Ok(())
}
