//! Hosts that crash and come back, partitions, links that change, and programs that fail.

use crate::echo::serve;
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use xk_world::{PROTOCOLS, Result, TcpListener, TcpStream, UdpSocket, World, blocking};

const LINK: &str = r#"delay="5ms""#;
const HOSTS: [&str; 2] = ["server", "client"];

/// The old stream is broken off by a server that knows nothing of it, and a new one works.
#[test]
fn a_blocking_client_meets_an_asynchronous_server_that_crashes() {
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        world.host("server", serve)?;
        world.blocking_client("client", |stack| {
            let mut stream = blocking::TcpStream::connect(&stack, "server:7")?;
            stream.write_all(b"before")?;
            stream.read_exact(&mut [0; 6])?;
            stack.sleep(Duration::from_secs(2))?;
            stream.write_all(b"after")?;
            let error = stream.read(&mut [0; 5]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "at {}", stack.now());
            let mut stream = blocking::TcpStream::connect(&stack, "server:7")?;
            stream.write_all(b"again")?;
            Ok(stream.read_exact(&mut [0; 5])?)
        })?;
        world.run_for(Duration::from_secs(1))?;
        world.crash("server")?;
        assert_eq!(world.address("server"), None);
        world.run_for(Duration::from_millis(500))?;
        world.restart("server")?;
        assert_eq!(world.address("server"), Some([10, 0, 0, 1].into()));
        world.run(Duration::from_secs(60))
    });
}

/// Destructors of a program run when it crashes, and code behind a wait does not.
#[test]
fn a_blocking_server_crashes_in_the_middle_of_a_wait() {
    struct Falls(Rc<Cell<u32>>);
    impl Drop for Falls {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        let (begun, fallen) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (begins, falls) = (Rc::clone(&begun), Rc::clone(&fallen));
        world.blocking_host("server", move |stack| {
            begins.set(begins.get() + 1);
            let _falls = Falls(Rc::clone(&falls));
            let listener = blocking::TcpListener::bind(&stack, "0.0.0.0:7")?;
            for stream in listener.incoming() {
                let mut stream = stream?;
                // As code does that believes that it cannot end.
                while stream.read_exact(&mut [0; 5]).is_ok() {
                    stream.write_all(b"hello")?;
                }
            }
            Ok(())
        })?;
        let failures = Rc::new(Cell::new(0));
        let fails = Rc::clone(&failures);
        world.client("client", move |stack| {
            let fails = Rc::clone(&fails);
            async move {
                let talk = async || {
                    let mut stream = TcpStream::connect(&stack, "server:7").await?;
                    for _ in 0..100 {
                        stream.write_all(b"hello").await?;
                        stream.read_exact(&mut [0; 5]).await?;
                    }
                    std::io::Result::Ok(())
                };
                while !matches!(timeout(Duration::from_secs(3), talk()).await, Ok(Ok(()))) {
                    fails.set(fails.get() + 1);
                    sleep(Duration::from_millis(10)).await;
                }
                Ok(())
            }
        })?;
        world.run_for(Duration::from_millis(300))?;
        world.crash("server")?;
        assert_eq!((begun.get(), fallen.get()), (1, 1));
        assert!(world.crash("server").is_err(), "it is down");
        world.run_for(Duration::from_millis(700))?;
        world.restart("server")?;
        assert!(world.restart("server").is_err(), "it is up");
        let outcome = world.run(Duration::from_secs(60))?;
        assert!(failures.get() > 0, "the first attempt meets the crash");
        assert_eq!((begun.get(), fallen.get()), (2, 1));
        drop(world);
        assert_eq!(fallen.get(), 2);
        Ok(outcome)
    });
}

/// A crash has no last word: the peer of a stream hears nothing until it speaks.
#[test]
fn a_crash_is_silent_for_both_kinds_of_program() {
    for is_blocking in [false, true] {
        xk_world::seeds(0..2, |seed| {
            let mut world = World::lan(seed, &HOSTS, LINK)?;
            if is_blocking {
                world.blocking_host("server", |stack| {
                    let listener = blocking::TcpListener::bind(&stack, "0.0.0.0:7")?;
                    let _stream = listener.accept()?;
                    stack.sleep(Duration::from_secs(1000))?;
                    Ok(())
                })?;
            } else {
                world.host("server", |stack| async move {
                    let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
                    let _stream = listener.accept().await?;
                    sleep(Duration::from_secs(1000)).await;
                    Ok(())
                })?;
            }
            world.client("client", |stack| async move {
                let mut stream = TcpStream::connect(&stack, "server:7").await?;
                let heard = timeout(Duration::from_secs(100), stream.read_u8()).await;
                assert!(heard.is_err(), "{heard:?}");
                Result::Ok(())
            })?;
            world.run_for(Duration::from_secs(1))?;
            let before = world.outcome().frames;
            world.crash("server")?;
            world.run_for(Duration::from_secs(1))?;
            assert_eq!(world.outcome().frames, before);
            world.run(Duration::from_secs(200))
        });
    }
}

/// A client whose host crashes is called again, and the run waits for it; not one that has ended.
#[test]
fn clients_of_a_host_that_crashes_begin_again() {
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        world.host("server", serve)?;
        let calls: Rc<RefCell<Vec<&str>>> = Rc::default();
        for (name, seconds) in [("short", 1), ("long", 10)] {
            let calls = Rc::clone(&calls);
            world.client("client", move |_| {
                calls.borrow_mut().push(name);
                async move {
                    sleep(Duration::from_secs(seconds)).await;
                    Ok(())
                }
            })?;
        }
        world.run_for(Duration::from_secs(5))?;
        world.crash("client")?;
        let why = world.run(Duration::from_secs(30)).unwrap_err().to_string();
        assert!(
            why.ends_with("after 30s the clients of `client` (which is down) still run"),
            "{why}"
        );
        world.restart("client")?;
        let outcome = world.run(Duration::from_secs(30))?;
        assert_eq!(*calls.borrow(), ["short", "long", "long"]);
        assert_eq!(outcome.now.as_ms() / 1000, 45);
        Ok(outcome)
    });
}

#[test]
fn a_partition_stops_datagrams_until_it_is_repaired() {
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        world.host("server", |stack| async move {
            let socket = UdpSocket::bind(&stack, "0.0.0.0:53")?;
            let mut buffer = [0; 64];
            loop {
                let (octets, from) = socket.recv_from(&mut buffer).await?;
                socket.send_to(&buffer[..octets], from).await?;
            }
        })?;
        let answered: Rc<RefCell<Vec<u64>>> = Rc::default();
        let heard = Rc::clone(&answered);
        world.client("client", move |stack| {
            let heard = Rc::clone(&heard);
            async move {
                let socket = UdpSocket::bind(&stack, "0.0.0.0:0")?;
                let server = "10.0.0.1:53".parse()?;
                for question in 0..100 {
                    socket.send_to(b"ask", server).await?;
                    let wait = Duration::from_millis(100);
                    if timeout(wait, socket.recv_from(&mut [0; 64])).await.is_ok() {
                        heard.borrow_mut().push(question);
                    }
                    let next = Duration::from_millis((question + 1) * 100);
                    sleep(next.saturating_sub(stack.now().since(xk_world::Time::ZERO))).await;
                }
                Ok(())
            }
        })?;
        world.run_for(Duration::from_millis(2050))?;
        world.partition("server", "client")?;
        world.run_for(Duration::from_secs(4))?;
        world.repair("server", "client")?;
        let outcome = world.run(Duration::from_secs(60))?;
        let expected: Vec<u64> = (0..=20).chain(61..100).collect();
        assert_eq!(*answered.borrow(), expected);
        Ok(outcome)
    });
}

#[test]
fn a_link_changes_while_programs_run() {
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        world.host("server", serve)?;
        world.client("client", |stack| async move {
            let mut stream = TcpStream::connect(&stack, "server:7").await?;
            let mut round_trips_ms = Vec::new();
            for _ in 0..10 {
                let begun = stack.now();
                stream.write_u8(1).await?;
                stream.read_u8().await?;
                round_trips_ms.push(stack.now().since(begun).as_millis());
                sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(round_trips_ms, [10, 10, 10, 10, 10, 60, 60, 60, 60, 60]);
            Ok(())
        })?;
        world.run_for(Duration::from_millis(4500))?;
        world.link("lan", |link| link.delay = Duration::from_millis(30))?;
        world.run(Duration::from_secs(60))
    });
}

/// An error of a program ends the run, with the seed, the time and the host.
#[test]
fn errors_and_panics_of_programs_end_the_run() {
    let fails = || -> Result {
        let mut world = World::lan(7, &HOSTS, LINK)?;
        world.host("server", |_| async {
            sleep(Duration::from_secs(3)).await;
            Err("no more".into())
        })?;
        world.client("client", |_| std::future::pending())?;
        world.run(Duration::from_secs(60)).map(drop)
    };
    assert_eq!(fails().unwrap_err().to_string(), "seed 7, at 3.000000s: host `server`: no more");
    for is_blocking in [false, true] {
        let panics = || -> Result {
            let mut world = World::lan(7, &HOSTS, LINK)?;
            world.host("server", serve)?;
            world.blocking_host("server", |stack| Ok(stack.sleep(Duration::MAX)?))?;
            if is_blocking {
                world.blocking_client("client", |_| panic!("as it must"))?;
            } else {
                world.client("client", |_| async { panic!("as it must") })?;
            }
            world.run(Duration::from_secs(60)).map(drop)
        };
        let payload = std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"as it must"));
    }
}

#[test]
fn mistakes_of_a_test_are_told() {
    let mut world = World::lan(1, &HOSTS, LINK).unwrap();
    let told = |result: Result| result.unwrap_err().to_string();
    assert_eq!(told(world.crash("sever")), "the world has no host `sever`");
    assert_eq!(told(world.host("sever", serve)), "the world has no host `sever`");
    assert_eq!(told(world.partition("client", "sever")), "the world has no host `sever`");
    assert_eq!(told(world.link("wan", |_| ())), "the world has no link `wan`");
    let second = World::lan(1, &HOSTS, LINK).map(drop);
    assert_eq!(told(second), "this thread has a world already: drop it before");
    drop(world);
    let wrong = World::lan(1, &HOSTS, r#"delay="fast""#).map(drop);
    assert!(told(wrong).contains("delay"));
    let bare = "link lan; host bare { sim link=lan; eth sim; }";
    let mut world = World::from_text(1, bare, PROTOCOLS).unwrap();
    let why = told(world.host("bare", serve));
    assert_eq!(why, "host `bare` has neither one `tcp` nor one `udp`");
}

/// Blocking calls of asynchronous programs, and calls from other threads, are refused.
#[test]
fn what_would_leave_the_simulation_is_refused() {
    xk_world::seeds(0..1, |seed| {
        let mut world = World::lan(seed, &HOSTS, LINK)?;
        world.client("client", |stack| async move {
            let error = stack.sleep(Duration::from_secs(1)).unwrap_err();
            assert!(error.to_string().contains("wait by their runtime"), "{error}");
            let listener = blocking::TcpListener::bind(&stack, "0.0.0.0:7")?;
            let error = listener.accept().unwrap_err();
            assert!(error.to_string().contains("wait by their runtime"), "{error}");
            let other = std::thread::spawn(move || listener.set_backlog(Some(3)).unwrap_err());
            let error = other.join().unwrap();
            assert_eq!(error.kind(), ErrorKind::NetworkDown);
            Ok(())
        })?;
        world.run(Duration::from_secs(1))
    });
}
