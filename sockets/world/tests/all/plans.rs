//! Faults: typed links, pauses, partitions one way, clocks that differ, streams that are reset,
//! faults from inside of programs, and how often each has fired.

use crate::echo::serve;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use xk_world::{Link, Outcome, Result, Skew, Stack, TcpListener, TcpStream, UdpSocket, World};

const MS: fn(u64) -> Duration = Duration::from_millis;
const LINK: &str = r#"delay="5ms""#;
const HOSTS: [&str; 2] = ["server", "client"];

async fn ask(stack: Stack) -> Result {
    let mut stream = TcpStream::connect(&stack, "server:7").await?;
    for number in 0..100 {
        stream.write_u8(number).await?;
        assert_eq!(stream.read_u8().await?, number);
    }
    Ok(())
}

#[test]
fn a_link_of_methods_is_that_of_the_text() {
    let echo = |seed, link: Link| -> Result<Outcome> {
        let mut world = World::lan(seed, &HOSTS, link)?;
        world.host("server", serve)?;
        world.client("client", ask)?;
        world.run(Duration::from_secs(600))
    };
    xk_world::seeds(0..3, |seed| {
        let link = Link::new()
            .delay(MS(5))
            .jitter(MS(2))
            .rate_bit_s(10_000_000)
            .queue_frames(50)
            .mtu_octets(1400)
            .loss(0.05)
            .duplicate(0.1)
            .reorder(0.2, MS(3))
            .corrupt(0.025);
        let text = r#"delay="5ms" jitter="2ms" rate="10Mbit" queue=50 mtu=1400 loss="5%"
            duplicate="10%" reorder="20%" reorder_delay="3ms" corrupt="2.5%""#;
        let text = text.replace('\n', " ");
        let [one, other] = [link, text.into()].map(|link| echo(seed, link));
        let one = one?;
        assert_eq!(one, other?);
        Ok(one)
    });
    let wrong = World::lan(1, &HOSTS, Link::new().loss(2.0)).map(drop).unwrap_err().to_string();
    assert!(wrong.contains("loss"), "{wrong}");
}

/// Answers each datagram, and says when it was asked.
async fn answer(stack: Stack, asked: Rc<RefCell<Vec<u64>>>) -> Result {
    let socket = UdpSocket::bind(&stack, "0.0.0.0:53")?;
    loop {
        let (_, from) = socket.recv_from(&mut [0; 8]).await?;
        asked.borrow_mut().push(stack.now().as_ms());
        socket.send_to(b"yes", from).await?;
    }
}

/// Asks every 100 ms, and says when it was answered.
async fn ask_often(stack: Stack, answered: Rc<RefCell<Vec<u64>>>) -> Result {
    let socket = UdpSocket::bind(&stack, "0.0.0.0:0")?;
    for turn in 1..=40 {
        socket.send_to(b"ask", "10.0.0.1:53".parse()?).await?;
        while stack.now().as_ms() < turn * 100 {
            let rest = MS(turn * 100).saturating_sub(stack.now().since(xk_world::Time::ZERO));
            if timeout(rest, socket.recv_from(&mut [0; 8])).await.is_ok() {
                answered.borrow_mut().push(stack.now().as_ms());
            }
        }
    }
    Ok(())
}

type Times = Rc<RefCell<Vec<u64>>>;

/// A world in which one asks the other, and when it was asked and answered.
fn questions(seed: u64) -> Result<(World, Times, Times)> {
    let mut world = World::lan(seed, &HOSTS, LINK)?;
    let (asked, answered) = (Times::default(), Times::default());
    let (asks, answers) = (Rc::clone(&asked), Rc::clone(&answered));
    world.host("server", move |stack| answer(stack, Rc::clone(&asks)))?;
    world.client("client", move |stack| ask_often(stack, Rc::clone(&answers)))?;
    Ok((world, asked, answered))
}

#[test]
fn a_host_that_is_paused_does_later_what_came_meanwhile() {
    xk_world::seeds(0..3, |seed| {
        let (mut world, asked, answered) = questions(seed)?;
        let (ticks, naps) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (ticked, napped) = (Arc::clone(&ticks), Arc::clone(&naps));
        world.host("server", move |_| {
            let (ticked, napped) = (Arc::clone(&ticked), Arc::clone(&napped));
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(MS(10));
                    napped.fetch_add(1, Ordering::Relaxed);
                }
            });
            async move {
                loop {
                    sleep(MS(10)).await;
                    ticked.fetch_add(1, Ordering::Relaxed);
                }
            }
        })?;
        world.blocking_host("server", |stack| Ok(stack.sleep(MS(1500))?))?;
        world.run_for(MS(1050))?;
        world.pause("server")?;
        assert!(world.pause("server").is_err(), "it is paused");
        let before = [&ticks, &naps].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(before, [105, 105]);
        world.run_for(MS(2000))?;
        assert_eq!([&ticks, &naps].map(|count| count.load(Ordering::Relaxed)), before);
        assert_eq!(asked.borrow().len(), 11);
        world.resume("server")?;
        assert!(world.resume("server").is_err(), "it goes on");
        let outcome = world.run(Duration::from_secs(60))?;
        // Twenty came meanwhile, and none is lost.
        assert_eq!(asked.borrow().iter().filter(|at| **at == 3050).count(), 20, "{asked:?}");
        assert_eq!(answered.borrow().len(), 40);
        assert!(world.fired()["pause of `server`"] >= 20, "{:?}", world.fired());
        Ok(outcome)
    });
}

#[test]
fn a_partition_one_way_lets_the_other_through() {
    xk_world::seeds(0..3, |seed| {
        let (mut world, asked, answered) = questions(seed)?;
        world.run_for(MS(1050))?;
        world.deafen("server", "client")?;
        world.run_for(MS(1000))?;
        assert_eq!((asked.borrow().len(), answered.borrow().len()), (21, 11));
        world.repair("client", "server")?;
        world.deafen("client", "server")?;
        world.run_for(MS(1000))?;
        assert_eq!((asked.borrow().len(), answered.borrow().len()), (21, 11));
        world.repair("server", "client")?;
        let outcome = world.run(Duration::from_secs(60))?;
        assert_eq!((asked.borrow().len(), answered.borrow().len()), (30, 20));
        let fired = world.fired();
        // Ten questions or answers, and perhaps one by ARP.
        for pair in ["`server` and `client`", "`client` and `server`"] {
            let prevented = fired[&format!("partition of {pair}")];
            assert!((10..13).contains(&prevented), "{fired:?}");
        }
        Ok(outcome)
    });
}

#[test]
fn clocks_of_hosts_may_differ() {
    const HOUR: Duration = Duration::from_secs(3600);
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        let shown = Arc::new(std::sync::Mutex::new(Vec::new()));
        for (number, host) in HOSTS.iter().enumerate() {
            let tells = Arc::clone(&shown);
            world.client(host, move |_| {
                let tells = Arc::clone(&tells);
                async move {
                    let begun = Instant::now();
                    sleep(MS(100)).await;
                    assert_eq!(begun.elapsed(), MS(100), "time passes alike");
                    let on_thread = tokio::task::spawn_blocking(SystemTime::now).await?;
                    tells.lock().unwrap().push((number, SystemTime::now()));
                    tells.lock().unwrap().push((number, on_thread));
                    Ok(())
                }
            })?;
            let tells = Arc::clone(&shown);
            world.blocking_client(host, move |stack| {
                stack.sleep(MS(100))?;
                tells.lock().unwrap().push((number, SystemTime::now()));
                Ok(())
            })?;
        }
        world.skew("server", Skew::Ahead(HOUR))?;
        world.skew("client", Skew::Behind(HOUR))?;
        let outcome = world.run(Duration::from_secs(60))?;
        let shown = shown.lock().unwrap();
        let of = |host| shown.iter().filter(move |(other, _)| *other == host).map(|(_, at)| *at);
        assert_eq!((of(0).count(), of(1).count()), (3, 3));
        for (ahead, behind) in of(0).zip(of(1)) {
            assert_eq!(ahead.duration_since(behind)?, HOUR * 2);
        }
        assert_eq!(world.fired()["skew of `server`"], 3);
        Ok(outcome)
    });
}

#[test]
fn standing_streams_are_reset_at_both_ends() {
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        let ends = Rc::new(RefCell::new(Vec::new()));
        let notes = Rc::clone(&ends);
        world.host("server", move |stack| {
            let notes = Rc::clone(&notes);
            async move {
                let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
                loop {
                    let (mut stream, _) = listener.accept().await?;
                    let heard = stream.read_u8().await.map_err(|error| error.kind());
                    notes.borrow_mut().push(heard);
                }
            }
        })?;
        world.client("client", |stack| async move {
            let mut stream = TcpStream::connect(&stack, "server:7").await?;
            let error = stream.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_eq!(stack.now().as_ms(), 1000, "at once");
            TcpStream::connect(&stack, "server:7").await?.write_u8(7).await?;
            sleep(MS(100)).await;
            Result::Ok(())
        })?;
        world.run_for(MS(1000))?;
        world.reset("client", "server")?;
        let outcome = world.run(Duration::from_secs(60))?;
        assert_eq!(*ends.borrow(), [Err(ErrorKind::ConnectionReset), Ok(7)]);
        assert_eq!(world.fired()["reset of `client` and `server`"], 2);
        Ok(outcome)
    });
}

/// A program has its peer crash, come back, and itself be cut off, at moments of its own.
#[test]
fn programs_inject_faults() {
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        let faults = world.faults();
        world.host("server", serve)?;
        world.client("client", move |stack| {
            let faults = faults.clone();
            async move {
                let mut stream = TcpStream::connect(&stack, "server:7").await?;
                faults.inject(|world| {
                    world.crash("server")?;
                    world.restart("server")
                });
                sleep(MS(1)).await;
                stream.write_u8(1).await?;
                let error = stream.read_u8().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                ask(stack.clone()).await?;
                faults.inject(|world| world.partition("client", "server"));
                let cut = timeout(Duration::from_secs(2), ask(stack.clone())).await;
                assert!(cut.is_err(), "nothing comes through");
                faults.inject(|world| world.repair("client", "server"));
                faults.inject(|world| world.link("lan", |link| link.loss = 0.2));
                ask(stack).await
            }
        })?;
        let outcome = world.run(Duration::from_secs(600))?;
        let fired = world.fired();
        assert_eq!(fired["crash of `server`"], 1);
        assert!(fired["loss of link `lan`"] > 0, "{fired:?}");
        Ok(outcome)
    });
    let mut world = World::lan(7, &HOSTS, LINK).unwrap();
    let faults = world.faults();
    let runs = |world: &mut World| world.run_for(MS(1)).map(drop);
    for act in [(|world: &mut World| world.crash("sever")) as fn(&mut World) -> Result, runs] {
        faults.inject(act);
        let why = world.run_for(MS(1)).unwrap_err().to_string();
        assert!(why.starts_with("seed 7, at 0.00") && why.contains("a fault: "), "{why}");
    }
}

/// Returns the words of [`xk_world::seeds`] when it fails.
fn fails(test: impl Fn(u64) -> Result<Outcome> + Sync) -> String {
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        xk_world::seeds(3..5, test);
    }));
    ran.unwrap_err().downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_fault_that_never_fires_fails_the_test() {
    let quiet = |seed| {
        let (mut world, _, _) = questions(seed)?;
        world.link("lan", |link| link.corrupt = 1e-12)?;
        world.partition("client", "server")?;
        world.repair("client", "server")?;
        world.pause("client")?;
        world.resume("client")?;
        world.run(Duration::from_secs(60))
    };
    let why = fails(quiet);
    assert!(why.contains("none of the seeds 3..5"), "{why}");
    let named =
        ["corrupt of link `lan`", "partition of `client` and `server`", "pause of `client`"];
    assert!(named.iter().all(|name| why.contains(name)), "{why}");
}

/// A failure names the seed, the command to run it again, and where the captures are.
fn says_how_to_run_it_again(test: &str, panics: bool) {
    let why = fails(move |seed| {
        let (mut world, _, answered) = questions(seed)?;
        world.run_for(MS(450))?;
        assert!(!panics || seed == 3, "as it must");
        match answered.borrow().len() {
            5 if seed == 4 => Err("as it should".into()),
            _ => Ok(world.outcome()),
        }
    });
    let said = if panics { "it panicked: as it must" } else { "as it should" };
    assert!(why.starts_with(&format!("XK_SEED=4: {said}")), "{why}");
    let again = format!("XK_SEED=4 cargo test -p xk-world plans::{test} -- --exact");
    assert!(why.contains(&again), "{why}");
    let (_, folder) = why.split_once("captures: ").expect("it names a folder");
    let captured = std::path::Path::new(folder).join("lan.pcapng");
    // Five questions with their answers, and that by ARP before.
    assert!(std::fs::metadata(&captured).unwrap().len() > 12 * 60, "{why}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_error_says_how_to_run_it_again() {
    says_how_to_run_it_again("an_error_says_how_to_run_it_again", false);
}

#[test]
fn a_panic_says_how_to_run_it_again() {
    says_how_to_run_it_again("a_panic_says_how_to_run_it_again", true);
}

/// A process remembers nothing but what the run itself has left there.
#[test]
fn each_run_begins_with_nothing_remembered() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        world.client("client", |stack| async move {
            let socket = UdpSocket::bind(&stack, "0.0.0.0:0")?;
            assert_eq!(RUNS.fetch_add(1, Ordering::Relaxed), 0);
            // Which branch comes first is drawn from a counter of the process.
            let mut chosen = Vec::new();
            for _ in 0..64 {
                tokio::select! {
                    () = std::future::ready(()) => chosen.push(0),
                    () = std::future::ready(()) => chosen.push(1),
                }
            }
            assert!(chosen.contains(&0) && chosen.contains(&1));
            socket.send_to(&chosen, "10.0.0.1:9".parse()?).await?;
            sleep(MS(100)).await;
            Ok(())
        })?;
        world.run(Duration::from_secs(60))
    });
}
