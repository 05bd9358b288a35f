//! Sockets of programs that attach to a graph which another thread runs: the streams and datagrams
//! are those of its `tcp` and `udp`, across a cut.

#[path = "rig/domain.rs"]
mod domain;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use domain::Domain;
use xk_net::{TcpListener, TcpStream, UdpSocket};

/// Octets that tell where they belong.
fn octets(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

const OCTETS: usize = 1 << 20;

#[test]
fn two_programs_share_the_streams_of_a_third() {
    let domain = Domain::open(
        "streams",
        r#"grant tcp; grant udp; grant tcp port="1..1023"; grant udp port="1..1023""#,
    );
    let (listens, is_there) = std::sync::mpsc::channel();
    let setup = domain.setup();
    let server = std::thread::spawn(move || {
        let stack = setup.here().expect("it attaches");
        let listener = TcpListener::bind(&stack, "10.0.0.1:5000").expect("it listens");
        listens.send(()).unwrap();
        let (mut stream, from) = listener.accept().expect("one comes");
        assert_eq!(from.ip().to_string(), "10.0.0.1");
        let mut came = Vec::new();
        stream.read_to_end(&mut came).expect("all of it");
        stream.write_all(&came).expect("it goes back");
        stream.shutdown(Shutdown::Write).unwrap();
        // Until the other side has ended, too.
        let _ = stack.drain(Duration::from_secs(10));
        came
    });
    is_there.recv().unwrap();
    let stack = domain.setup().here().expect("it attaches");
    let mut stream = TcpStream::connect(&stack, "10.0.0.1:5000").expect("it connects");
    let sent = octets(OCTETS);
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent && server.join().unwrap() == sent, "every octet, in order");
}

#[test]
fn datagrams_and_what_is_not_granted() {
    let domain = Domain::open("datagrams", r#"grant udp port="5000..5001""#);
    let (one, other) = (domain.setup().here().unwrap(), domain.setup().here().unwrap());
    let first = UdpSocket::bind(&one, "10.0.0.1:5000").unwrap();
    let second = UdpSocket::bind(&other, "10.0.0.1:5001").unwrap();
    second.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    first.send_to(b"across two cuts", "10.0.0.1:5001").unwrap();
    let mut buffer = [0; 64];
    let (octets, from) = second.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..octets], b"across two cuts");
    assert_eq!(from, "10.0.0.1:5000".parse().unwrap());
    let refused = UdpSocket::bind(&one, "10.0.0.1:5002").map(drop).expect_err("not granted");
    assert_eq!(refused.raw_os_error(), Some(13), "EACCES: {refused}");
    let none = TcpListener::bind(&one, "10.0.0.1:5000").map(drop).expect_err("no tcp");
    assert!(none.raw_os_error().is_some(), "{none}");
}

#[test]
fn a_program_that_goes_resets_its_streams() {
    let domain = Domain::open("reset", r#"grant tcp; grant tcp port="1..1023""#);
    let here = domain.setup().here().unwrap();
    let listener = TcpListener::bind(&here, "10.0.0.1:80").unwrap();
    let setup = domain.setup();
    let other = std::thread::spawn(move || {
        let stack = setup.here().unwrap();
        let mut stream = TcpStream::connect(&stack, "10.0.0.1:80").unwrap();
        stream.write_all(b"hello").unwrap();
        stack.run_for(Duration::from_millis(50)).unwrap();
        // As if killed: nothing is closed.
        std::mem::forget((stream, stack));
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut came = [0; 5];
    stream.read_exact(&mut came).unwrap();
    assert_eq!(&came, b"hello");
    other.join().unwrap();
}

#[test]
fn what_was_closed_before_its_program_went_arrives() {
    let domain = Domain::open("closed", r#"grant tcp; grant tcp port="1..1023""#);
    let here = domain.setup().here().unwrap();
    let listener = TcpListener::bind(&here, "10.0.0.1:80").unwrap();
    let setup = domain.setup();
    let other = std::thread::spawn(move || {
        let stack = setup.here().unwrap();
        let mut stream = TcpStream::connect(&stack, "10.0.0.1:80").unwrap();
        // More than is under way at one time.
        stream.write_all(&octets(100_000)).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    here.run_for(Duration::from_millis(100)).unwrap();
    let mut came = Vec::new();
    let read = stream.read_to_end(&mut came);
    assert!(read.is_ok(), "ended in order: {read:?}, {} octets", came.len());
    assert!(came == octets(100_000), "all of it");
    other.join().unwrap();
}
