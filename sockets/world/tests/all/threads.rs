//! Threads that programs start: what comes of them is there at one time for each seed.

use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use xk_world::{Outcome, Result, TcpListener, TcpStream, UdpSocket, World};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Runs a program whose answer goes where a digest sees it.
fn tells(
    seed: u64,
    program: impl AsyncFn() -> Result<Vec<u8>> + Copy + 'static,
) -> Result<Outcome> {
    let mut world = World::lan(seed, &["one", "other"], "")?;
    world.client("one", move |stack| async move {
        let socket = UdpSocket::bind(&stack, "0.0.0.0:0")?;
        socket.send_to(&program().await?, "10.0.0.2:9".parse()?).await?;
        sleep(MS(100)).await;
        Ok(())
    })?;
    world.run(Duration::from_secs(60))
}

fn each(program: impl AsyncFn() -> Result<Vec<u8>> + Copy + Sync + 'static) {
    xk_world::seeds(0..3, |seed| tells(seed, program));
}

fn ms(since: Instant) -> Vec<u8> {
    since.elapsed().as_nanos().to_be_bytes().to_vec()
}

#[test]
fn a_thread_that_sleeps_is_awaited_in_virtual_time() {
    each(async || {
        let begun = Instant::now();
        spawn_blocking(|| thread::sleep(MS(5))).await?;
        assert_eq!(begun.elapsed(), MS(5));
        spawn_blocking(|| thread::sleep(Duration::from_secs(30))).await?;
        assert_eq!(begun.elapsed(), MS(30_005));
        Ok(ms(begun))
    });
}

#[test]
fn files_and_names_come_at_once() {
    each(async || {
        let begun = Instant::now();
        assert!(!tokio::fs::read("/proc/self/comm").await?.is_empty());
        let found: Vec<_> = tokio::net::lookup_host("other:7").await?.collect();
        assert_eq!(found, ["10.0.0.2:7".parse()?]);
        Ok(ms(begun))
    });
}

/// Work takes no virtual time, whatever else goes on.
#[test]
fn work_beside_a_timer_ends_at_one_time() {
    each(async || {
        let ticks = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&ticks);
        tokio::spawn(async move {
            loop {
                sleep(MS(1)).await;
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        sleep(MS(10)).await;
        let work = || (0..200_000_u64).fold(1_u64, |sum, n| sum.wrapping_mul(31) ^ n);
        let mut answer = spawn_blocking(work).await?.to_be_bytes().to_vec();
        answer.extend(ticks.load(Ordering::Relaxed).to_be_bytes());
        Ok(answer)
    });
}

#[test]
fn channels_bring_what_threads_of_std_send() {
    each(async || {
        let begun = Instant::now();
        let (send, mut receive) = mpsc::channel(1);
        let sender = thread::spawn(move || {
            for number in 0..4_u8 {
                thread::sleep(MS(10));
                send.blocking_send(number).unwrap();
            }
        });
        let mut seen = Vec::new();
        while let Some(number) = receive.recv().await {
            seen.push((begun.elapsed(), number));
        }
        assert_eq!(seen, [10, 20, 30, 40].map(|at| (MS(at), (at / 10 - 1) as u8)));
        sender.join().unwrap();
        let (send, receive) = oneshot::channel();
        let (wakes, waits) = std::sync::mpsc::channel::<u8>();
        thread::spawn(move || send.send(waits.recv().unwrap()).unwrap());
        sleep(MS(7)).await;
        wakes.send(9)?;
        assert_eq!(receive.await?, 9);
        Ok(ms(begun))
    });
}

/// Locks, conditions, scopes and turns given away are in the order of the seed.
#[test]
fn many_threads_take_turns_as_the_seed_says() {
    each(async || {
        let said = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let talk = Arc::clone(&said);
        spawn_blocking(move || {
            thread::scope(|scope| {
                for number in 0..8_u8 {
                    let talk = Arc::clone(&talk);
                    scope.spawn(move || {
                        for round in 0..4 {
                            let mut list = talk.0.lock().unwrap();
                            list.push(number);
                            talk.1.notify_one();
                            match (number + round) % 3 {
                                0 => drop(talk.1.wait_timeout(list, MS(3)).unwrap()),
                                1 => {
                                    drop(list);
                                    thread::yield_now();
                                }
                                _ => {
                                    drop(list);
                                    thread::sleep(MS(u64::from(number)));
                                }
                            }
                        }
                    });
                }
            });
        })
        .await?;
        let list = said.0.lock().unwrap().clone();
        assert_eq!(list.len(), 32);
        Ok(list)
    });
}

/// A runtime of a program's own, with threads of its own.
#[test]
fn a_runtime_within_a_thread_has_virtual_time() {
    each(async || {
        let begun = Instant::now();
        let slept = spawn_blocking(|| {
            let own = tokio::runtime::Builder::new_multi_thread();
            let own = { own }.worker_threads(2).enable_time().build().unwrap();
            own.block_on(async {
                let other = tokio::spawn(async { sleep(MS(200)).await });
                sleep(MS(50)).await;
                other.await.unwrap();
            });
        });
        slept.await?;
        assert_eq!(begun.elapsed(), MS(200));
        Ok(ms(begun))
    });
}

/// Keys of hash maps and what generators draw on a thread are the seed's.
#[test]
fn chance_on_threads_is_the_seeds() {
    let order = async || {
        let drawn = spawn_blocking(|| {
            let map: std::collections::HashMap<u8, ()> = (0..64).map(|n| (n, ())).collect();
            map.into_keys().collect::<Vec<u8>>()
        });
        Ok(drawn.await?)
    };
    each(order);
    let fresh = |seed| thread::spawn(move || tells(seed, order).unwrap().octets).join().unwrap();
    assert_ne!(fresh(1), fresh(2));
}

/// The time of what a thread answers is that of the next frame, too.
#[test]
fn a_server_that_works_on_threads_answers_in_virtual_time() {
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &["server", "client"], r#"delay="5ms""#)?;
        world.host("server", |stack| async move {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
            loop {
                let (mut stream, _) = listener.accept().await?;
                tokio::spawn(async move {
                    use tokio::io::{AsyncReadExt, AsyncWriteExt};
                    let octet = stream.read_u8().await.unwrap();
                    let answer = spawn_blocking(move || {
                        thread::sleep(MS(100));
                        octet + 1
                    });
                    stream.write_u8(answer.await.unwrap()).await.unwrap();
                });
            }
        })?;
        world.client("client", |stack| async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = TcpStream::connect(&stack, "server:7").await?;
            let begun = Instant::now();
            stream.write_u8(1).await?;
            assert_eq!(stream.read_u8().await?, 2);
            assert_eq!(begun.elapsed(), MS(110));
            Result::Ok(())
        })?;
        world.run(Duration::from_secs(60))
    });
}

/// A host that crashes has its threads no more.
#[test]
fn threads_go_with_their_host() {
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &["one", "other"], "")?;
        let ticks = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&ticks);
        world.host("one", move |_| {
            let counts = Arc::clone(&counts);
            async move {
                thread::spawn(move || {
                    loop {
                        thread::sleep(MS(10));
                        counts.fetch_add(1, Ordering::Relaxed);
                    }
                });
                std::future::pending().await
            }
        })?;
        world.run_for(MS(105))?;
        assert_eq!(ticks.load(Ordering::Relaxed), 10);
        world.crash("one")?;
        world.run_for(MS(1000))?;
        assert_eq!(ticks.load(Ordering::Relaxed), 10);
        world.restart("one")?;
        world.run_for(MS(55))?;
        assert_eq!(ticks.load(Ordering::Relaxed), 15);
        Ok(world.outcome())
    });
}

/// Returns the error of a program that does what no world can.
fn fails(program: impl AsyncFn() -> Result + Copy + 'static) -> String {
    let mut world = World::lan(7, &["one", "other"], "").unwrap();
    world.client("one", move |_| async move { program().await }).unwrap();
    world.run(Duration::from_secs(60)).unwrap_err().to_string()
}

#[test]
fn sockets_of_the_system_end_with_the_cause() {
    let programs: [fn() -> String; 4] = [
        || fails(async || Ok(std::net::UdpSocket::bind("127.0.0.1:0").map(drop)?)),
        || fails(async || Ok(tokio::net::TcpStream::connect("10.0.0.2:9").await.map(drop)?)),
        || {
            fails(async || {
                let (one, mut other) = tokio::net::UnixStream::pair()?;
                tokio::io::AsyncReadExt::read_u8(&mut other).await?;
                drop(one);
                Ok(())
            })
        },
        || {
            fails(async || {
                let asked = || std::net::TcpStream::connect("127.0.0.1:9").map(drop);
                Ok(spawn_blocking(asked).await??)
            })
        },
    ];
    for program in programs {
        let why = program();
        assert!(why.starts_with("seed 7, at 0.0"), "{why}");
        assert!(why.contains("host `one` asked for a socket of the system"), "{why}");
    }
}

#[test]
fn a_program_that_blocks_its_runtime_ends_with_the_cause() {
    let sleeps = fails(async || {
        thread::sleep(MS(3));
        Ok(())
    });
    let joins = fails(async || {
        thread::spawn(|| thread::sleep(MS(3))).join().unwrap();
        Ok(())
    });
    for why in [sleeps, joins] {
        assert!(why.contains("host `one` waits in asynchronous code"), "{why}");
    }
    // Where no time is needed, it is none.
    each(async || {
        let begun = Instant::now();
        let sum = thread::spawn(|| (0..1000_u32).sum::<u32>()).join().unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        Ok(sum.to_be_bytes().to_vec())
    });
}

#[test]
fn localhost_is_the_host_itself() {
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &["one", "other"], "")?;
        for host in ["one", "other"] {
            world.client(host, |stack| async move {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let listener = TcpListener::bind(&stack, "localhost:7")?;
                assert!("localhost:7".to_socket_addrs()?.all(|at| at.ip().is_loopback()));
                let mut stream = TcpStream::connect(&stack, "localhost:7").await?;
                let (mut accepted, peer) = listener.accept().await?;
                assert!(peer.ip().is_loopback(), "{peer}");
                stream.write_u8(7).await?;
                assert_eq!(accepted.read_u8().await?, 7);
                Result::Ok(())
            })?;
        }
        let outcome = world.run(Duration::from_secs(60))?;
        assert_eq!(outcome.frames, 0, "none leaves its host");
        Ok(outcome)
    });
}
