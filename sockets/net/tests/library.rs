//! Sockets on a protocol library: a registry begins connections, the program's own TCP carries them
//! on, through its channel at the network I/O module. The other ends are a peer's.

#[allow(dead_code, reason = "its main function is for a command line")]
#[path = "../examples/library.rs"]
mod example;
#[path = "rig/trusted.rs"]
mod trusted;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use trusted::{HERE, THERE, Trusted};
use xk_net::{Driver, Poller, Setup, Stack, TcpListener, TcpStream, Thread, UdpSocket};

/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(20);

/// Octets that tell where they belong.
fn octets(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// Lets both stacks run until `what` is so.
fn until<D: Driver>(stack: &Stack<D>, what: &str, mut so: impl FnMut() -> bool) {
    let (poller, begun) = (Poller::new(stack), Instant::now());
    while !so() {
        assert!(begun.elapsed() < STEP_TIME_MAX, "{what}");
        poller.wait(&mut Vec::new(), Some(Duration::from_millis(1))).expect("it runs");
    }
}

/// Reads what is there into `into`; true at the end of the stream.
fn read<D: Driver>(mut from: &TcpStream<D>, into: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 1 << 14];
    match from.read(&mut buffer) {
        Ok(0) => true,
        Ok(octets) => {
            into.extend_from_slice(&buffer[..octets]);
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            false
        }
    }
}

/// All up to the end of a stream.
fn read_to_end<D: Driver, E: Driver>(stack: &Stack<D>, from: &TcpStream<E>) -> Vec<u8> {
    let mut came = Vec::new();
    until(stack, "the stream ends", || read(from, &mut came));
    came
}

/// The error that breaks a stream.
fn broken<D: Driver, E: Driver>(stack: &Stack<D>, mut from: &TcpStream<E>) -> Option<ErrorKind> {
    let mut end = None;
    until(stack, "the stream breaks", || match from.read(&mut [0; 64]) {
        Ok(octets) => octets == 0,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => {
            end = Some(error.kind());
            true
        }
    });
    end
}

fn write_all<D: Driver, E: Driver>(stack: &Stack<D>, mut to: &TcpStream<E>, octets: &[u8]) {
    let mut done = 0;
    until(stack, "there is room", || {
        while done < octets.len() {
            match to.write(&octets[done..]) {
                Ok(more) => done += more,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    return false;
                }
            }
        }
        true
    });
}

/// A registry, a peer, a program, and the two ends of a stream between these.
struct Rig<D: Driver> {
    trusted: Trusted,
    stack: Stack<D>,
    peer: Stack<Thread>,
}

impl<D: Driver> Rig<D> {
    /// A stream that one of both has opened: its ends.
    fn pair(&self, opens: bool, port: u16) -> (TcpStream<D>, TcpStream<Thread>) {
        let (stack, peer) = (&self.stack, &self.peer);
        let (ours, theirs) = match opens {
            true => {
                let listener = TcpListener::bind(peer, (THERE, port)).unwrap();
                let to = (Ipv4Addr::from([10, 0, 0, 2]), port).into();
                let ours =
                    TcpStream::connect_timeout(stack, &to, STEP_TIME_MAX).expect("it connects");
                (ours, self.accept(&listener))
            }
            false => {
                let listener = TcpListener::bind(stack, (HERE, port)).unwrap();
                let to = (Ipv4Addr::from([10, 0, 0, 1]), port).into();
                let theirs = TcpStream::begin_connect(peer, None, to, &[]).unwrap();
                (self.accept(&listener), theirs)
            }
        };
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    fn accept<E: Driver>(&self, listener: &TcpListener<E>) -> TcpStream<E> {
        listener.set_nonblocking(true).unwrap();
        let mut came = None;
        until(&self.stack, "one comes", || {
            came = listener.accept().ok();
            came.is_some()
        });
        came.expect("it came").0
    }

    /// Runs `test` on a stream that the program has opened, and on one that the peer has.
    fn both(&self, test: impl Fn(&Stack<D>, TcpStream<D>, TcpStream<Thread>)) {
        for (port, opens) in [(80, true), (81, false)] {
            let (ours, theirs) = self.pair(opens, port);
            until(&self.stack, "it moves", || self.trusted.counts() == (0, 1));
            test(&self.stack, ours, theirs);
            until(&self.stack, "its right ends", || self.trusted.counts().1 == 0);
        }
    }
}

fn rig<D: Driver>(name: &str, driver: fn(&Setup) -> std::io::Result<Stack<D>>) -> Rig<D> {
    let trusted = Trusted::new(name);
    let peer = trusted.peer();
    let stack = driver(&trusted.setup()).expect("it is a member");
    Rig { trusted, stack, peer }
}

/// Makes two tests of each function, as many as there are drivers.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod here {
            $(#[test] fn $name() {
                super::$name(&super::rig(stringify!($name), xk_net::Setup::here));
            })*
        }
        mod thread {
            $(#[test] fn $name() {
                super::$name(&super::rig(stringify!($name), xk_net::Setup::thread));
            })*
        }
    };
}

on_both!(
    every_octet_comes_in_order_and_past_the_registry,
    the_program_ends_first,
    the_peer_ends_first,
    what_was_written_arrives_after_the_close,
    unread_octets_make_a_reset,
    no_linger_makes_a_reset,
    a_reset_of_the_peer_is_told,
    it_ends_at_any_moment_of_its_move,
    datagrams_go_past_the_registry,
    a_connected_socket_hears_its_peer_alone_and_of_no_port,
    a_datagram_of_many_frames_arrives,
    a_port_is_one_programs_until_it_lets_go,
);

fn every_octet_comes_in_order_and_past_the_registry<D: Driver>(rig: &Rig<D>) {
    let sent = octets(1 << 20);
    rig.both(|stack, ours, theirs| {
        assert_eq!(rig.trusted.counts(), (0, 1), "the registry has no connection of its own");
        let (mut out, mut back) = (Vec::new(), Vec::new());
        let (mut first, mut second) = (0, 0);
        until(stack, "both have all", || {
            first += (&ours).write(&sent[first..]).unwrap_or(0);
            second += (&theirs).write(&sent[second..]).unwrap_or(0);
            read(&theirs, &mut out);
            read(&ours, &mut back);
            out.len() >= sent.len() && back.len() >= sent.len()
        });
        assert!(out == sent && back == sent);
        assert_eq!(rig.trusted.counts(), (0, 1));
        drop(theirs);
        assert_eq!(read_to_end(stack, &ours), b"");
    });
}

/// One asks and ends its direction, the other answers and ends.
fn in_order<D: Driver, E: Driver, F: Driver>(
    stack: &Stack<D>,
    asks: TcpStream<E>,
    answers: TcpStream<F>,
) {
    write_all(stack, &asks, b"question");
    asks.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(stack, &answers), b"question");
    write_all(stack, &answers, b"answer");
    drop(answers);
    assert_eq!(read_to_end(stack, &asks), b"answer");
}

fn the_program_ends_first<D: Driver>(rig: &Rig<D>) {
    rig.both(|stack, ours, theirs| in_order(stack, ours, theirs));
}

fn the_peer_ends_first<D: Driver>(rig: &Rig<D>) {
    rig.both(|stack, ours, theirs| in_order(stack, theirs, ours));
}

fn what_was_written_arrives_after_the_close<D: Driver>(rig: &Rig<D>) {
    let sent = octets(200_000);
    rig.both(|stack, ours, theirs| {
        write_all(stack, &ours, &sent);
        drop(ours);
        assert!(read_to_end(stack, &theirs) == sent);
    });
}

fn unread_octets_make_a_reset<D: Driver>(rig: &Rig<D>) {
    rig.both(|stack, ours, theirs| {
        write_all(stack, &theirs, b"unread");
        until(stack, "it comes", || ours.unread() > 0 || ours.peek(&mut [0; 8]).is_ok());
        drop(ours);
        assert_eq!(broken(stack, &theirs), Some(ErrorKind::ConnectionReset));
    });
}

fn no_linger_makes_a_reset<D: Driver>(rig: &Rig<D>) {
    rig.both(|stack, ours, theirs| {
        ours.set_linger(Some(Duration::ZERO)).unwrap();
        drop(ours);
        assert_eq!(broken(stack, &theirs), Some(ErrorKind::ConnectionReset));
    });
}

fn a_reset_of_the_peer_is_told<D: Driver>(rig: &Rig<D>) {
    rig.both(|stack, ours, theirs| {
        theirs.set_linger(Some(Duration::ZERO)).unwrap();
        drop(theirs);
        assert_eq!(broken(stack, &ours), Some(ErrorKind::ConnectionReset));
    });
}

fn it_ends_at_any_moment_of_its_move<D: Driver>(rig: &Rig<D>) {
    for turn in 0..60_u16 {
        let (ours, theirs) = rig.pair(turn % 2 == 0, 100 + turn);
        // Some have moved by then, some are about to, some have not begun.
        let poller = Poller::new(&rig.stack);
        poller.wait(&mut Vec::new(), Some(Duration::from_micros(100 * u64::from(turn)))).unwrap();
        // And meanwhile the program may do something else.
        std::thread::sleep(Duration::from_millis(5 * u64::from(turn % 3)));
        let is_reset = turn % 4 >= 2;
        if is_reset {
            ours.set_linger(Some(Duration::ZERO)).unwrap();
        } else {
            write_all(&rig.stack, &ours, b"the last words");
        }
        drop(ours);
        if is_reset {
            assert_eq!(broken(&rig.stack, &theirs), Some(ErrorKind::ConnectionReset), "{turn}");
        } else {
            assert_eq!(read_to_end(&rig.stack, &theirs), b"the last words", "{turn}");
        }
    }
    until(&rig.stack, "all rights end", || rig.trusted.counts().1 == 0);
}

/// A socket that does not wait.
fn socket<D: Driver>(stack: &Stack<D>, host: &str, port: u16) -> UdpSocket<D> {
    let socket = UdpSocket::bind(stack, (host, port)).expect("the port is free");
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The next datagram, and its sender.
fn receive<D: Driver, E: Driver>(
    stack: &Stack<D>,
    by: &UdpSocket<E>,
) -> std::io::Result<(Vec<u8>, SocketAddr)> {
    let (mut buffer, mut came) = (vec![0; 1 << 16], None);
    until(stack, "a datagram comes", || match by.recv_from(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        result => {
            came = Some(result);
            true
        }
    });
    let (octets, from) = came.expect("it came")?;
    buffer.truncate(octets);
    Ok((buffer, from))
}

fn datagrams_go_past_the_registry<D: Driver>(rig: &Rig<D>) {
    let ours = socket(&rig.stack, "0.0.0.0", 0);
    let theirs = socket(&rig.peer, THERE, 5300);
    let (here, there) = (ours.local_addr().unwrap().port(), theirs.local_addr().unwrap());
    assert_ne!(here, 0, "the registry has found one");
    let here = (Ipv4Addr::from([10, 0, 0, 1]), here).into();
    let ask = |number: u32| {
        ours.send_to(&number.to_be_bytes(), there).unwrap();
        let (came, from) = receive(&rig.stack, &theirs).unwrap();
        assert_eq!((&came[..], from), (&number.to_be_bytes()[..], here));
        theirs.send_to(&came, from).unwrap();
        let (back, from) = receive(&rig.stack, &ours).unwrap();
        assert_eq!((&back[..], from), (&number.to_be_bytes()[..], there));
    };
    // Until the registry knows the station and the program has asked again.
    let (begun, mut before) = (Instant::now(), usize::MAX);
    while rig.trusted.datagrams() != before {
        assert!(begun.elapsed() < STEP_TIME_MAX, "{before} by the registry");
        before = rig.trusted.datagrams();
        ask(0);
        std::thread::sleep(Duration::from_millis(50));
        ask(1);
    }
    (2..200).for_each(ask);
    assert_eq!(rig.trusted.datagrams(), before, "none went by the registry");
    assert_eq!(rig.trusted.counts(), (0, 1), "by one right");
    drop(ours);
    until(&rig.stack, "its right ends", || rig.trusted.counts().1 == 0);
    // It is the registry that says so to what comes then.
    theirs.connect(here).unwrap();
    theirs.send(b"still there?").unwrap();
    let refused = receive(&rig.stack, &theirs).expect_err("no port");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

fn a_connected_socket_hears_its_peer_alone_and_of_no_port<D: Driver>(rig: &Rig<D>) {
    let ours = socket(&rig.stack, HERE, 5000);
    let (theirs, other) = (socket(&rig.peer, THERE, 5300), socket(&rig.peer, THERE, 5301));
    ours.connect((THERE, 5300)).unwrap();
    for turn in 0..20_u8 {
        ours.send(&[turn]).unwrap();
        let (_, from) = receive(&rig.stack, &theirs).unwrap();
        other.send_to(b"heard?", from).unwrap();
        theirs.send_to(&[turn, turn], from).unwrap();
        let came = receive(&rig.stack, &ours).unwrap();
        assert_eq!(came, (vec![turn, turn], (Ipv4Addr::from([10, 0, 0, 2]), 5300).into()));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(ours.recv(&mut [0; 16]).is_err(), "of no other");
    drop(theirs);
    until(&rig.stack, "it hears that there is no port", || {
        let told = ours.send(b"still there?").and_then(|_| ours.recv(&mut [0; 16]));
        told.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    // To everybody again.
    ours.disconnect().unwrap();
    other.send_to(b"heard now", (HERE, 5000)).unwrap();
    assert_eq!(receive(&rig.stack, &ours).unwrap().0, b"heard now");
}

fn a_datagram_of_many_frames_arrives<D: Driver>(rig: &Rig<D>) {
    let (ours, theirs) = (socket(&rig.stack, HERE, 5000), socket(&rig.peer, THERE, 5300));
    for size in [0, 1, 1472, 1473, 9000, 60_000] {
        let sent = octets(size);
        ours.send_to(&sent, (THERE, 5300)).unwrap();
        let (came, from) = receive(&rig.stack, &theirs).unwrap();
        assert!(came == sent, "{size} octets");
        theirs.send_to(&came, from).unwrap();
        assert!(receive(&rig.stack, &ours).unwrap().0 == sent, "{size} octets back");
        std::thread::sleep(Duration::from_millis(110));
    }
}

fn a_port_is_one_programs_until_it_lets_go<D: Driver>(rig: &Rig<D>) {
    let other = rig.trusted.setup().thread().expect("a member more");
    let ours = socket(&rig.stack, HERE, 5000);
    let taken = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    UdpSocket::bind(&other, (HERE, 5000)).map(drop).map_err(taken).expect_err("another's");
    UdpSocket::bind(&rig.stack, (HERE, 5000)).map(drop).map_err(taken).expect_err("our own");
    drop(ours);
    let mut next = None;
    until(&rig.stack, "it is free", || {
        next = UdpSocket::bind(&other, (HERE, 5000)).ok();
        next.is_some()
    });
    let (next, theirs) = (next.expect("it was"), socket(&rig.peer, THERE, 5300));
    theirs.send_to(b"for whom?", (HERE, 5000)).unwrap();
    next.set_nonblocking(true).unwrap();
    assert_eq!(receive(&rig.stack, &next).unwrap().0, b"for whom?");
    until(&rig.stack, "its right alone is left", || rig.trusted.counts() == (0, 1));
}

#[test]
fn the_example_asks_and_is_answered() {
    let trusted = Trusted::new("example");
    let setup = trusted.setup();
    // It serves as long as the test's process lives.
    std::thread::spawn(move || example::serve(&setup, "10.0.0.1:7000"));
    let peer = trusted.peer();
    let begun = Instant::now();
    let stream = loop {
        match TcpStream::connect(&peer, (HERE, 7000)) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < STEP_TIME_MAX, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    (&stream).write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    (&stream).read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");

    let listener = TcpListener::bind(&peer, (THERE, 7000)).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut came = Vec::new();
        stream.read_to_end(&mut came).unwrap();
        stream.write_all(&came).unwrap();
    });
    assert_eq!(example::ask(&trusted.setup(), "10.0.0.2:7000", "there?").unwrap(), "there?");
    echo.join().unwrap();
}
