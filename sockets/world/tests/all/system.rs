//! Answers of the system to the standard library and tokio: time, chance and names.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::{interval, sleep, timeout};
use xk_world::{Mode, Outcome, Ready, Result, UdpSocket, World, blocking};

const HOSTS: [&str; 2] = ["server", "client"];
const HOUR: Duration = Duration::from_secs(3600);

/// Runs a program that sends what `find` returns, so that the digest has it.
fn sends(seed: u64, find: impl AsyncFn() -> Result<Vec<u8>> + Copy + 'static) -> Result<Outcome> {
    let mut world = World::lan(seed, &HOSTS, "")?;
    world.client("client", move |stack| async move {
        let socket = UdpSocket::bind(&stack, "0.0.0.0:0")?;
        socket.send_to(&find().await?, "10.0.0.1:9".parse()?).await?;
        sleep(Duration::from_secs(1)).await;
        Ok(())
    })?;
    world.run(Duration::from_secs(100))
}

#[test]
fn the_order_of_hash_maps_is_the_seeds() {
    let order = async || -> Result<Vec<u8>> {
        let map: HashMap<u8, ()> = (0..64).map(|n| (n, ())).collect();
        Ok(map.into_keys().collect())
    };
    xk_world::seeds(0..10, |seed| sends(seed, order));
    let fresh = |seed| std::thread::spawn(move || sends(seed, order).unwrap().octets).join();
    assert_ne!(fresh(1).unwrap(), fresh(2).unwrap());
}

#[test]
fn clocks_show_virtual_time() {
    let times = async || -> Result<Vec<u8>> {
        let (begun, tokio) = (Instant::now(), tokio::time::Instant::now());
        sleep(Duration::from_secs(36)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(36));
        assert_eq!(tokio.elapsed(), Duration::from_secs(36));
        let date = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(date.as_nanos().to_be_bytes().to_vec())
    };
    let real = Instant::now();
    xk_world::seeds(0..10, |seed| sends(seed, times));
    assert!(SystemTime::now().duration_since(UNIX_EPOCH).unwrap() > Duration::from_secs(1));
    assert!(real.elapsed() < Duration::from_secs(300), "the time outside is real");
}

/// A timer is due at the millisecond that tokio says, not at a later look.
#[test]
fn timers_are_exact() {
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &HOSTS, "")?;
        world.client("client", |stack| async move {
            let mut seen = Vec::new();
            let mut ticks = interval(Duration::from_millis(250));
            for _ in 0..4 {
                ticks.tick().await;
                seen.push(stack.now().as_us());
            }
            let never = timeout(Duration::from_micros(1_500), std::future::pending::<()>());
            assert!(never.await.is_err());
            seen.push(stack.now().as_us());
            sleep(Duration::from_secs(3600 * 24)).await;
            seen.push(stack.now().as_us());
            // tokio counts in milliseconds and rounds up.
            let day = 24 * 3_600_000_000;
            assert_eq!(seen, [0, 250_000, 500_000, 750_000, 752_000, 752_000 + day]);
            Ok(())
        })?;
        world.run(Duration::from_secs(100_000))
    });
}

/// Timeouts of blocking sockets, pollers and the end of a stack count by virtual time.
#[test]
fn blocking_waits_are_exact() {
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &HOSTS, r#"delay="5ms""#)?;
        world.blocking_host("server", |stack| {
            let socket = blocking::UdpSocket::bind(&stack, "0.0.0.0:53")?;
            loop {
                let (octets, from) = socket.recv_from(&mut [0; 64])?;
                stack.sleep(Duration::from_secs(7200))?;
                socket.send_to(&vec![0; octets], from)?;
            }
        })?;
        world.blocking_client("client", |stack| {
            let ms = || stack.now().as_ms();
            let socket = blocking::UdpSocket::bind(&stack, "0.0.0.0:0")?;
            socket.set_read_timeout(Some(Duration::from_secs(3600)))?;
            socket.send_to(b"ask", "server:53")?;
            let begun = ms();
            assert_eq!(socket.recv(&mut [0; 64]).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert_eq!(ms() - begun, 3_600_000);
            let poller = blocking::Poller::new(&stack);
            poller.register(&socket, 7, Ready::READABLE, Mode::Level)?;
            let mut events = Vec::new();
            assert_eq!(poller.wait(&mut events, Some(Duration::from_secs(1800)))?, 0);
            assert_eq!(ms() - begun, 5_400_000);
            assert_eq!(poller.wait(&mut events, None)?, 1);
            assert_eq!((events[0].key, events[0].ready.is_readable()), (7, true));
            // Two hours and a round trip, and each side asks for the other's hardware address.
            assert_eq!(ms() - begun, 7_200_025);
            assert_eq!(socket.recv(&mut [0; 64])?, 3);
            let nobody = "10.0.0.9:7".parse()?;
            let begun = ms();
            let refused = blocking::TcpStream::connect_timeout(&stack, &nobody, HOUR).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::HostUnreachable);
            assert!(ms() - begun < 3_600_000 && stack.drain(HOUR)?);
            Ok(())
        })?;
        world.run(Duration::from_secs(100_000))
    });
}

#[test]
fn names_are_those_of_the_worlds_hosts() {
    xk_world::seeds(0..1, |seed| {
        let world = World::lan(seed, &HOSTS, "")?;
        let found: Vec<_> = "client:80".to_socket_addrs()?.collect();
        assert_eq!(found, ["10.0.0.2:80".parse()?]);
        assert_eq!(world.address("client"), Some("10.0.0.2".parse()?));
        let found: Vec<_> = ("server", 7).to_socket_addrs()?.collect();
        assert_eq!(found, ["10.0.0.1:7".parse()?]);
        let other = std::thread::spawn(|| "client:80".to_socket_addrs().map(Iterator::count));
        assert_eq!(other.join().unwrap()?, 1, "threads of a world know its names");
        Ok(world.outcome())
    });
    // Without a world the system answers.
    let found = "localhost:80".to_socket_addrs().map(|mut all| all.any(|a| a.ip().is_loopback()));
    assert!(found.unwrap_or(true));
}

/// No seed's: each process has another number.
async fn unsteady() -> Result<Vec<u8>> {
    Ok(std::process::id().to_be_bytes().to_vec())
}

/// The double run finds what is not the seed's.
#[test]
fn a_test_that_is_not_its_seeds_is_found() {
    let twice = || xk_world::seeds(3..4, |seed| sends(seed, unsteady));
    let payload = std::panic::catch_unwind(twice).unwrap_err();
    let text = payload.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("XK_SEED=3: one seed, two runs"), "{text}");
}

/// Compares times and lengths where octets may be random.
#[test]
fn random_octets_are_not_compared_where_a_test_allows_them() {
    xk_world::seeds(3..4, |seed| {
        let mut outcome = sends(seed, unsteady)?;
        outcome.octets = None;
        Ok(outcome)
    });
}
