//! Many connections between Linux's sockets and ours: at the same time, and one after the other.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use xk_net::{Stack, TcpListener, TcpStream, Thread};
use xk_peers::testbed::{LINUX, Lan, OURS, Wire};
use xk_testkit::needs_root;

use crate::ends::{either, graph, part_from, start};

/// Number of connections at the same time.
const AT_ONCE: usize = 1000;
/// Nothing may take longer.
const LIMIT: Duration = Duration::from_secs(60);
/// Octets that go each way on each connection.
const OCTETS: usize = 3000;

/// Octets sent on connection `number`: different on each.
fn question(number: usize) -> Vec<u8> {
    (0..OCTETS).map(|at| (at * 7 + number * 13 + at / 251) as u8).collect()
}

/// Sends on all, and then reads what came back on all.
fn ask_all(streams: &mut [impl Read + Write]) {
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&question(number)).unwrap();
    }
    let mut answer = vec![0; OCTETS];
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == question(number), "connection {number}");
    }
}

/// Sends back what comes on all, `rounds` times.
fn answer_all(streams: &mut [std::net::TcpStream], rounds: usize) -> io::Result<()> {
    let mut question = vec![0; OCTETS];
    for _ in 0..rounds {
        for stream in streams.iter_mut() {
            stream.read_exact(&mut question)?;
            stream.write_all(&question)?;
        }
    }
    Ok(())
}

fn linux_asks(lan: &Lan, rounds: usize) {
    let connect = || {
        let to: SocketAddr = (OURS.parse::<std::net::Ipv4Addr>().unwrap(), 7).into();
        let open = |_| {
            let stream = std::net::TcpStream::connect(to).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream
        };
        (0..AT_ONCE).map(open).collect::<Vec<_>>()
    };
    let mut streams = lan.linux.enter(connect).unwrap();
    for _ in 0..rounds {
        ask_all(&mut streams);
    }
}

fn ours_ask(lan: &Lan, stack: &Stack<Thread>, rounds: usize) {
    let bind = || std::net::TcpListener::bind((LINUX, 0)).unwrap();
    let listener = lan.linux.enter(bind).unwrap();
    let to = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let accept = |_| listener.accept().map(|(stream, _)| stream);
            let streams: io::Result<Vec<_>> = (0..AT_ONCE).map(accept).collect();
            answer_all(&mut streams?, rounds)
        });
        let open = |_| {
            let stream = TcpStream::connect(stack, to).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream
        };
        let mut streams: Vec<_> = (0..AT_ONCE).map(open).collect();
        for _ in 0..rounds {
            ask_all(&mut streams);
        }
        answering.join().expect("no panic").unwrap();
    });
}

pub(crate) fn stand_at_the_same_time(wire: Wire) {
    needs_root!("ip");
    let lan = Lan::new("at_once", wire);
    let stack = start(&lan, &graph(&lan, ("", "wire"), "", "echo tcp port=7"));
    lan.linux.sysctl("net/core/somaxconn", "4096").unwrap();
    let rounds = either(3, 100);
    let begun = Instant::now();
    linux_asks(&lan, rounds);
    println!("Linux asks, {AT_ONCE} at once: {:.1?}", begun.elapsed());
    let begun = Instant::now();
    ours_ask(&lan, &stack, rounds);
    println!("we ask, {AT_ONCE} at once: {:.1?}", begun.elapsed());
    part_from(stack);
}

/// One question and its answer, and the end.
fn ask_once(mut stream: impl Read + Write, number: usize) -> io::Result<()> {
    let question = number.to_be_bytes();
    stream.write_all(&question)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    if answer == question { Ok(()) } else { Err(io::Error::other("another answer")) }
}

fn tell(what: &str, count: usize, begun: Instant) {
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("{what}, {count} one after the other: {rate:.0} connections/s");
}

/// Takes `count` connections one after the other, and sends back what comes.
fn answer_each(listener: &std::net::TcpListener, count: usize) -> io::Result<()> {
    for _ in 0..count {
        let (mut stream, _) = listener.accept()?;
        let mut question = [0; 8];
        stream.read_exact(&mut question)?;
        stream.write_all(&question)?;
        // The other side ends first.
        if stream.read(&mut question)? != 0 {
            return Err(io::Error::other("more than the question"));
        }
    }
    Ok(())
}

pub(crate) fn follow_each_other(wire: Wire) {
    needs_root!("ip");
    let lan = Lan::new("sequential", wire);
    let stack = start(&lan, &graph(&lan, ("", "wire"), "", "echo tcp port=7"));
    let count = either(2000, 100_000);
    // Each leaves a port behind for a minute, on the side that has ended first.
    let linux = &lan.linux;
    linux.sysctl("net/ipv4/ip_local_port_range", "1024 65535").unwrap();
    linux.sysctl("net/ipv4/tcp_tw_reuse", "1").unwrap();
    let begun = Instant::now();
    let ask = || {
        for number in 0..count {
            let stream = std::net::TcpStream::connect((OURS, 7)).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            ask_once(stream, number).unwrap_or_else(|error| panic!("{number}: {error}"));
        }
    };
    linux.enter(ask).unwrap();
    tell("Linux asks", count, begun);
    let bind = || std::net::TcpListener::bind((LINUX, 0)).unwrap();
    let listener = linux.enter(bind).unwrap();
    let to = listener.local_addr().unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| answer_each(&listener, count));
        for number in 0..count {
            let stream =
                TcpStream::connect(&stack, to).unwrap_or_else(|error| panic!("{number}: {error}"));
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            ask_once(stream, number).unwrap_or_else(|error| panic!("{number}: {error}"));
        }
        answering.join().expect("no panic").unwrap();
    });
    tell("we ask", count, begun);
    served(&lan, &stack, count);
    part_from(stack);
}

/// Our socket takes the connections, instead of `echo`.
fn served(lan: &Lan, stack: &Stack<Thread>, count: usize) {
    let listener = TcpListener::bind(stack, (OURS, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let linux = lan.linux.clone();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let ask = || {
                for number in 0..count {
                    let stream = std::net::TcpStream::connect(to)?;
                    stream.set_read_timeout(Some(LIMIT))?;
                    ask_once(stream, number)?;
                }
                Ok::<_, io::Error>(())
            };
            linux.enter(ask).unwrap()
        });
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 8];
            stream.read_exact(&mut question).unwrap();
            stream.write_all(&question).unwrap();
            assert_eq!(stream.read(&mut question).unwrap(), 0);
        }
        asking.join().expect("no panic").unwrap();
    });
    tell("Linux asks our socket", count, begun);
}
