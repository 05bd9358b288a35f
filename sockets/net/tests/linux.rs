//! Linux as the peer: sockets of the standard library in a name space, ours on a TAP device beside
//! it.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;
use xk_net::{Driver, Setup, Stack, TcpListener, TcpStream, UdpSocket};
use xk_testkit::needs_root;
use xk_testkit::netns::Net;

const GRAPH: &str = r#"
host neighbour {
    tap device=xk0 host_address="10.9.0.1/24"
    eth tap
    arp eth
    ip arp { address "10.9.0.2/24"; }
    icmp ip
    udp ip
    tcp ip
}
"#;

const LINUX: &str = "10.9.0.1";
const STEP_TIME_MAX: Duration = Duration::from_secs(30);
/// More than fits all buffers on the way.
const MUCH: usize = 20_000_000;

fn octets() -> Vec<u8> {
    (0..MUCH).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

/// Runs `work` on a new thread of the same name space.
fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::spawn(work)
}

fn with_both(work: fn(Setup)) {
    needs_root!("ip");
    let net = Net::new("sockets-linux").unwrap();
    let space = net.space().unwrap();
    space.enter(|| work(Setup::from_text(GRAPH, xk_catalog::PROTOCOLS))).unwrap();
}

/// Linux connects to us, sends much, and gets it back.
fn serve<D: Driver>(stack: &Stack<D>) {
    let listener = TcpListener::bind(stack, "10.9.0.2:0").unwrap();
    let to = listener.local_addr().unwrap();
    let linux = beside(move || {
        let mut stream = std::net::TcpStream::connect(to).unwrap();
        let sent = octets();
        let mut other = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writer = beside(move || {
            other.write_all(&copy).unwrap();
            other.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        got == sent
    });
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    stream.set_write_timeout(Some(STEP_TIME_MAX)).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    stream.write_all(&got).unwrap();
    drop(stream);
    assert!(stack.drain(STEP_TIME_MAX).unwrap());
    assert!(linux.join().unwrap());
}

/// We connect to Linux; half a close each way; no listener there; a reset.
fn ask<D: Driver>(stack: &Stack<D>) {
    let listener = std::net::TcpListener::bind((LINUX, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let linux = beside(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        stream.write_all(b"answer").unwrap();
        drop(stream);
        // The second is closed with octets unread.
        let (stream, _) = listener.accept().unwrap();
        stream.peek(&mut [0; 1]).unwrap();
        got.len()
    });
    let mut stream = TcpStream::connect(stack, to).unwrap();
    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    stream.write_all(&octets()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "answer");
    let mut second = TcpStream::connect(stack, to).unwrap();
    second.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    second.write_all(b"unread").unwrap();
    let error = second.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(linux.join().unwrap(), MUCH);
    let error = TcpStream::connect(stack, to).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

fn datagrams<D: Driver>(stack: &Stack<D>) {
    let linux = std::net::UdpSocket::bind((LINUX, 0)).unwrap();
    linux.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    let ours = UdpSocket::bind(stack, "10.9.0.2:0").unwrap();
    ours.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    let to = linux.local_addr().unwrap();
    let answer = beside(move || {
        let mut buffer = vec![0; 1 << 16];
        let (octets, from) = linux.recv_from(&mut buffer).unwrap();
        linux.send_to(&buffer[..octets], from).unwrap();
        octets
    });
    let sent: Vec<u8> = (0..20_000).map(|n| n as u8).collect();
    ours.send_to(&sent, to).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let (octets, from) = ours.recv_from(&mut buffer).unwrap();
    assert!(buffer[..octets] == sent);
    assert_eq!((from, answer.join().unwrap()), (to, sent.len()));
    // The socket is closed by now. A datagram or the word that comes back may be lost.
    ours.connect(to).unwrap();
    ours.set_read_timeout(Some(STEP_TIME_MAX / 10)).unwrap();
    let mut ask = || ours.send(b"anybody?").and_then(|_| ours.recv(&mut buffer)).unwrap_err();
    let is_told = |error: &std::io::Error| error.kind() != ErrorKind::WouldBlock;
    let error = (0..10).map(|_| ask()).find(is_told).expect("an answer");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn driven_here() {
    with_both(|setup| {
        let stack = setup.here().unwrap();
        datagrams(&stack);
        ask(&stack);
        serve(&stack);
    });
}

#[test]
fn driven_by_a_thread() {
    with_both(|setup| {
        let stack = setup.thread().unwrap();
        datagrams(&stack);
        ask(&stack);
        serve(&stack);
    });
}

/// A stream goes from one stack to the next while Linux sends and receives, each a machine of its
/// own on the same device: nothing is lost, nothing comes twice.
#[test]
fn a_stream_outlives_its_stack() {
    needs_root!("ip");
    let net = Net::new("sockets-moving").unwrap();
    let space = net.space().unwrap();
    space.enter(outlive).unwrap();
}

fn outlive() {
    // It stays when nothing has it open, as it does for a server that is replaced.
    for command in ["tuntap add dev xk0 mode tap", "link set xk0 up"] {
        let mut ip = std::process::Command::new("ip");
        assert!(ip.args(command.split(' ')).status().unwrap().success(), "{command}");
    }
    let stack = || Setup::from_text(GRAPH, xk_catalog::PROTOCOLS).here().unwrap();
    let mut here = stack();
    let listener = TcpListener::bind(&here, "10.9.0.2:0").unwrap();
    let to = listener.local_addr().unwrap();
    let linux = beside(move || {
        let mut stream = std::net::TcpStream::connect(to).unwrap();
        let sent = octets();
        let mut other = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writer = beside(move || {
            other.write_all(&copy).unwrap();
            other.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        got == sent
    });
    let (mut stream, _) = listener.accept().unwrap();
    drop(listener);
    let (mut waits, mut echoed, mut moves) = (Vec::new(), 0, 0);
    let mut buffer = vec![0; 1 << 16];
    while echoed < MUCH {
        stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        stream.set_write_timeout(Some(STEP_TIME_MAX)).unwrap();
        let read = stream.read(&mut buffer).unwrap();
        waits.extend_from_slice(&buffer[..read]);
        // No move is left out, however much waits.
        let written = stream.write(&waits[..waits.len().min(MUCH / 20)]).unwrap();
        waits.drain(..written);
        echoed += written;
        if echoed / (MUCH / 20) > moves {
            moves += 1;
            let state = stream.into_state().unwrap();
            drop(here);
            here = stack();
            stream = TcpStream::from_state(&here, &state).unwrap();
        }
    }
    assert_eq!(moves, 20);
    drop(stream);
    assert!(here.drain(STEP_TIME_MAX).unwrap());
    assert!(linux.join().unwrap());
}
