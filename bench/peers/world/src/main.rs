//! An echo, in xk-world, in turmoil, or on turmoil-net:
//! `world-peer xk|turmoil|turmoil-net CLIENTS LOSS MESSAGES SEED LIMIT_S`.
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
    let link = xk_world::Link::new().delay(DELAY).loss(plan.loss);
    let mut world = World::lan(plan.seed, &hosts, link)?;
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

/// The time between two turns of a host of turmoil-net, as in its own fixtures.
const TICK: Duration = Duration::from_millis(1);
/// Turns until it sends again what is not acknowledged: four round trips.
const TICKS_BEFORE_RETRANSMISSION: u32 = 40;
/// The most retransmissions, as on Linux.
const RETRANSMISSIONS_MAX: u32 = 15;

/// A program of a host of turmoil-net: each of its turns begins by saying whose it is.
struct On<F>(turmoil_net::HostId, std::pin::Pin<Box<F>>);

impl<F: Future> Future for On<F> {
    type Output = F::Output;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        turmoil_net::set_current(self.0);
        self.1.as_mut().poll(cx)
    }
}

/// turmoil-net comes with a fixture of one client; this is that of many, made alike.
fn turmoil_net(plan: Plan) -> Result<(bool, Duration)> {
    use std::collections::VecDeque;
    use tokio::task::{LocalSet, spawn_local};
    use turmoil_net::shim::tokio::net::{TcpListener, TcpStream};
    use turmoil_net::{KernelConfig, Net, Packet, Verdict};
    let config = KernelConfig::default()
        .retx_threshold(TICKS_BEFORE_RETRANSMISSION)
        .retx_max(RETRANSMISSIONS_MAX);
    let mut net = Net::with_config(config);
    let server = net.add_host("server");
    let clients: Vec<_> =
        (0..plan.clients).map(|number| net.add_host(&*format!("client{number}"))).collect();
    let mut state = plan.seed;
    net.rule(move |_: &Packet| {
        // splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        if share < plan.loss { Verdict::Drop } else { Verdict::Deliver(DELAY) }
    });
    let guard = net.enter();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let set = LocalSet::new();
        let serves = async move {
            let listener = TcpListener::bind("0.0.0.0:7").await.expect("the port is free");
            while let Ok((stream, _)) = listener.accept().await {
                spawn_local(On(server, Box::pin(serve(stream))));
            }
        };
        set.spawn_local(On(server, Box::pin(serves)));
        let mut running: Vec<_> = clients
            .into_iter()
            .map(|host| {
                let talks = async move {
                    talk(TcpStream::connect("server:7").await?, plan.messages).await
                };
                set.spawn_local(On(host, Box::pin(talks)))
            })
            .collect();
        let (mut now, mut sent) = (Duration::ZERO, Vec::new());
        // All take as long, so they arrive as they were sent.
        let mut crossing: VecDeque<(Duration, Packet)> = VecDeque::new();
        while now < plan.limit && !running.is_empty() {
            set.run_until(tokio::time::sleep(TICK)).await;
            now += TICK;
            while crossing.front().is_some_and(|(at, _)| *at <= now) {
                crossing.pop_front().into_iter().for_each(|(_, packet)| guard.deliver(packet));
            }
            guard.egress_all(&mut sent);
            for packet in sent.drain(..) {
                match guard.evaluate(&packet) {
                    Verdict::Drop => {}
                    Verdict::Pass => guard.deliver(packet),
                    Verdict::Deliver(delay) => crossing.push_back((now + delay, packet)),
                }
            }
            let mut at = 0;
            while at < running.len() {
                match running[at].is_finished() {
                    true => running.swap_remove(at).await.map_err(|_| "it panicked")??,
                    false => at += 1,
                }
            }
        }
        Ok((running.is_empty(), now))
    })
}

fn main() -> Result {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [system, clients, loss, messages, seed, limit] = &words[..] else {
        return Err(
            "usage: world-peer xk|turmoil|turmoil-net CLIENTS LOSS MESSAGES SEED LIMIT_S".into()
        );
    };
    let plan = Plan {
        clients: clients.parse()?,
        loss: loss.parse()?,
        messages: messages.parse()?,
        seed: seed.parse()?,
        limit: Duration::from_secs(limit.parse()?),
    };
    let run = match system.as_str() {
        "xk" => xk,
        "turmoil" => turmoil,
        "turmoil-net" => turmoil_net,
        other => return Err(format!("there is no system `{other}`").into()),
    };
    // On this thread the clock is the system's.
    let begun = Instant::now();
    let ran = std::thread::spawn(move || run(plan).map_err(|error| error.to_string())).join();
    let took = begun.elapsed();
    let (finished, simulated) = ran.map_err(|_| "it panicked")??;
    println!("{} {} {}", u8::from(finished), simulated.as_secs_f64(), took.as_secs_f64());
    Ok(())
}
