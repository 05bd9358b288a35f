//! Blocking programs that start others on their host, and share channels and locks with them.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use xk_world::blocking::{TcpListener, TcpStream};
use xk_world::{Result, World};

const MS: fn(u64) -> Duration = Duration::from_millis;
const HOSTS: [&str; 2] = ["server", "client"];

/// A thread for each peer, as servers have it: peers that wait do not keep others.
#[test]
fn a_server_has_a_thread_for_each_peer() {
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, r#"delay="5ms""#)?;
        world.blocking_host("server", |stack| {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
            loop {
                let (mut stream, _) = listener.accept()?;
                let sleeper = stack.clone();
                stack.spawn(move || {
                    let mut octet = [0];
                    stream.read_exact(&mut octet).unwrap();
                    sleeper.sleep(Duration::from_secs(1)).unwrap();
                    stream.write_all(&octet).unwrap();
                })?;
            }
        })?;
        world.blocking_client("client", |stack| {
            let begun = Instant::now();
            let asked = (0..10_u8).map(|number| {
                let own = stack.clone();
                stack.spawn(move || {
                    let mut stream = TcpStream::connect(&own, "server:7").unwrap();
                    stream.write_all(&[number]).unwrap();
                    let mut back = [0];
                    stream.read_exact(&mut back).unwrap();
                    back[0]
                })
            });
            let asked: std::io::Result<Vec<_>> = asked.collect();
            let back: Vec<u8> = asked?.into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(back, (0..10).collect::<Vec<_>>());
            assert!(begun.elapsed() < MS(1100), "one behind the other: {:?}", begun.elapsed());
            Ok(())
        })?;
        world.run(Duration::from_secs(60))
    });
}

#[test]
fn what_a_spawned_program_answers_or_panics_with_is_told() {
    xk_world::seeds(0..1, |seed| {
        let mut world = World::lan(seed, &HOSTS, "")?;
        world.blocking_client("client", |stack| {
            let shared = Rc::new(RefCell::new(0));
            let adds = Rc::clone(&shared);
            let one = stack.spawn(move || *adds.borrow_mut() += 5)?;
            let other = stack.spawn(|| -> u32 { panic!("as it must") })?;
            assert!(!one.is_finished());
            one.join().unwrap();
            assert_eq!(*shared.borrow(), 5);
            assert_eq!(other.join().unwrap_err().downcast_ref(), Some(&"as it must"));
            Ok(())
        })?;
        world.run(Duration::from_secs(1))
    });
}

/// Locks, conditions and `std::thread::sleep` of the standard library wait in virtual time, between
/// programs of one host, of two, and threads.
#[test]
fn programs_share_locks_and_conditions_of_std() {
    type Shared = Arc<(Mutex<Vec<u64>>, Condvar)>;
    let put = |shared: &Shared, number| {
        shared.0.lock().unwrap().push(number);
        shared.1.notify_all();
    };
    let wait_for = |shared: &Shared, count| {
        let list = shared.0.lock().unwrap();
        let list = shared.1.wait_while(list, |list| list.len() < count).unwrap();
        list.last().copied()
    };
    xk_world::seeds(0..3, |seed| {
        let mut world = World::lan(seed, &HOSTS, "")?;
        let shared = Shared::default();
        let fills = Arc::clone(&shared);
        world.blocking_host("server", move |stack| {
            let (one, other) = (Arc::clone(&fills), Arc::clone(&fills));
            let own = stack.spawn(move || {
                for number in 0..5 {
                    thread::sleep(MS(10));
                    put(&one, number);
                }
            })?;
            own.join().unwrap();
            thread::sleep(MS(50));
            let thread = thread::spawn(move || {
                thread::sleep(MS(100));
                put(&other, 9);
            });
            thread.join().unwrap();
            Ok(())
        })?;
        world.blocking_client("client", move |_| {
            let begun = Instant::now();
            for number in 0..5 {
                assert_eq!(wait_for(&shared, number as usize + 1), Some(number));
                assert_eq!(begun.elapsed(), MS(10 * (number + 1)));
            }
            let list = shared.0.lock().unwrap();
            let (list, waited) = shared.1.wait_timeout(list, MS(7)).unwrap();
            assert!(waited.timed_out());
            drop(list);
            assert_eq!(begun.elapsed(), MS(57));
            assert_eq!(wait_for(&shared, 6), Some(9));
            assert_eq!(begun.elapsed(), MS(200));
            thread::sleep(Duration::from_secs(3600));
            assert_eq!(begun.elapsed(), MS(3_600_200));
            Ok(())
        })?;
        world.run(Duration::from_secs(10_000))
    });
}

/// Messages of threads come to programs that wait for them at one time, to two as well.
#[test]
fn programs_wait_for_channels_of_threads() {
    xk_world::seeds(0..2, |seed| {
        let mut world = World::lan(seed, &HOSTS, "")?;
        for host in HOSTS {
            world.blocking_client(host, move |_| {
                let begun = Instant::now();
                let (send, receive) = channel();
                thread::spawn(move || {
                    for number in 0..3_u64 {
                        thread::sleep(MS(10));
                        send.send(number).unwrap();
                    }
                });
                for number in 0..3 {
                    assert_eq!(receive.recv()?, number);
                    assert_eq!(begun.elapsed(), MS(10 * (number + 1)));
                }
                assert!(receive.recv().is_err());
                Ok(())
            })?;
        }
        world.run(Duration::from_secs(10))
    });
}

/// A program that waits for a channel when its host crashes never goes on.
#[test]
fn a_host_crashes_while_a_program_waits_for_a_channel() {
    xk_world::seeds(0..1, |seed| {
        let mut world = World::lan(seed, &HOSTS, "")?;
        let (send, receive) = channel::<u8>();
        let receive = Arc::new(Mutex::new(Some(receive)));
        let began = Arc::new(Mutex::new(0));
        let counts = Arc::clone(&began);
        world.blocking_host("server", move |_| {
            *counts.lock().unwrap() += 1;
            let Some(receive) = receive.lock().unwrap().take() else { return Ok(()) };
            receive.recv()?;
            unreachable!("its host has crashed");
        })?;
        world.run_for(MS(10))?;
        world.crash("server")?;
        drop(send);
        world.run_for(MS(10))?;
        world.restart("server")?;
        world.run_for(MS(10))?;
        assert_eq!(*began.lock().unwrap(), 2);
        Result::Ok(world.outcome())
    });
}
