//! A host that goes while its programs wait: each call ends with an error, and none turns the
//! loop without an end.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use xk_net::{
    Driver, Mode, Poller, Ready, Setup, Source, Stack, TcpListener, TcpStream, UdpSocket,
};

use crate::domain::Domain;
use crate::trusted::Trusted;
use crate::{A_MOMENT, STEP_TIME_MAX};

/// A wait of a program on its stack.
type Wait<D> = fn(&Stack<D>) -> std::io::Result<()>;

fn accepts<D: Driver>(stack: &Stack<D>) -> std::io::Result<()> {
    let listener = TcpListener::bind(stack, "10.0.0.1:80")?;
    assert!(listener.accept().is_err(), "none comes");
    // And once more: the error is no news that is told once.
    listener.accept().map(drop)
}

fn connects<D: Driver>(stack: &Stack<D>) -> std::io::Result<()> {
    TcpStream::connect(stack, "10.0.0.99:80").map(drop)
}

/// Two ends of a stream.
fn pair<D: Driver>(stack: &Stack<D>) -> std::io::Result<(TcpStream<D>, TcpStream<D>)> {
    let listener = TcpListener::bind(stack, "10.0.0.1:0")?;
    let one = TcpStream::connect(stack, listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

fn reads<D: Driver>(stack: &Stack<D>) -> std::io::Result<()> {
    let (mut one, _other) = pair(stack)?;
    one.read(&mut [0; 16]).map(drop)
}

fn writes<D: Driver>(stack: &Stack<D>) -> std::io::Result<()> {
    let (mut one, _other) = pair(stack)?;
    loop {
        one.write_all(&[0; 1 << 16])?;
    }
}

fn receives<D: Driver>(stack: &Stack<D>) -> std::io::Result<()> {
    let socket = UdpSocket::bind(stack, "10.0.0.1:0")?;
    assert!(socket.recv(&mut [0; 16]).is_err(), "none comes");
    socket.recv(&mut [0; 16]).map(drop)
}

fn polls<D: Driver>(stack: &Stack<D>) -> std::io::Result<()> {
    let listener = TcpListener::bind(stack, "10.0.0.1:82")?;
    let (poller, mut events) = (Poller::new(stack), Vec::new());
    poller.register(&listener, 1, Ready::READABLE, Mode::Level)?;
    poller.wait(&mut events, None)?;
    assert!(listener.ready().contains(Ready::READABLE));
    listener.set_nonblocking(true)?;
    listener.accept().map(drop)
}

fn waits<D: Driver>() -> [(&'static str, Wait<D>); 6] {
    [
        ("accept", accepts),
        ("connect", connects),
        ("read", reads),
        ("write", writes),
        ("receive", receives),
        ("poll", polls),
    ]
}

/// Each wait on a stack of its own, while the host goes.
fn all_end<D: Driver>(
    setup: &Setup,
    driver: fn(&Setup) -> std::io::Result<Stack<D>>,
    end: impl FnOnce(),
) {
    std::thread::scope(|threads| {
        let (told, hears) = std::sync::mpsc::channel();
        for (name, wait) in waits::<D>() {
            let told = told.clone();
            threads.spawn(move || {
                let stack = driver(setup).expect("it attaches");
                told.send((name, None)).unwrap();
                let result = wait(&stack);
                told.send((name, Some(result))).unwrap();
                // What begins now fails as well, and resting costs no time of the processor.
                for begun in [TcpListener::bind(&stack, "10.0.0.1:90").map(drop), connects(&stack)]
                {
                    assert!(begun.is_err(), "{name}: what begins on no host");
                }
            });
        }
        for _ in waits::<D>() {
            hears.recv_timeout(STEP_TIME_MAX).expect("each has its stack");
        }
        std::thread::sleep(A_MOMENT * 4);
        let early: Vec<_> = hears.try_iter().collect();
        assert!(early.is_empty(), "all wait: {early:?}");
        end();
        let begun = Instant::now();
        for _ in waits::<D>() {
            let left = STEP_TIME_MAX.saturating_sub(begun.elapsed());
            let (name, result) = hears.recv_timeout(left).expect("each wait ends");
            let result = result.expect("it has waited");
            assert!(result.is_err(), "{name}: {result:?}");
        }
    });
}

macro_rules! on_a_host_that_goes {
    ($($name:ident: $host:expr),* $(,)?) => {
        $(mod $name {
            #[test]
            fn here() {
                let host = $host;
                super::all_end(&host.setup(), xk_net::Setup::here, || drop(host));
            }

            #[test]
            fn thread() {
                let host = $host;
                super::all_end(&host.setup(), xk_net::Setup::thread, || drop(host));
            }

            #[test]
            fn rests() {
                let host = $host;
                super::rests(&host.setup(), || drop(host));
            }
        })*
    };
}

on_a_host_that_goes!(
    attached: super::Domain::open("loss", r#"grant tcp; grant udp; grant tcp port="1..1023"; grant udp port="1..1023""#),
    library: super::Trusted::new("loss"),
);

/// Time that the processor has given this thread.
fn used() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A loop whose host has gone sleeps: it uses no large part of the time.
fn rests(setup: &Setup, end: impl FnOnce()) {
    let stack = setup.here().expect("it attaches");
    let _listener = TcpListener::bind(&stack, "10.0.0.1:80").expect("it listens");
    end();
    stack.run_for(A_MOMENT).unwrap();
    let (begun, before) = (Instant::now(), used());
    stack.run_for(Duration::from_millis(300)).unwrap();
    let (wall, used) = (begun.elapsed(), used() - before);
    assert!(used * 4 < wall, "it turned for {used:?} of {wall:?}");
    let at: SocketAddr = "10.0.0.1:90".parse().unwrap();
    assert!(TcpStream::connect(&stack, at).is_err());
}
