//! The example whose children own their connections, with processes: a child is this file's own
//! program once more, as another test of it.

#[allow(dead_code, reason = "its main function is for a command line")]
#[path = "../examples/inetd.rs"]
mod example;
#[allow(dead_code, reason = "the tests of the library alone look at all of the registry")]
#[path = "rig/trusted.rs"]
mod trusted;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use trusted::{ENTRIES, HERE, Trusted};
use xk_net::{Setup, Stack, TcpStream, Thread};

/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(20);
/// Environment variable with the place of a child's host.
const PLACE: &str = "XK_TEST_PLACE";

#[test]
#[ignore = "what `each_child_owns_its_connection` starts as its children"]
fn child() {
    let path = std::env::var_os(PLACE).expect("a parent says where");
    let setup = Setup::library(path, ENTRIES);
    example::answer(&setup, std::io::stdin()).expect("it answers");
}

/// A stream to the server, once it listens.
fn connect(peer: &Stack<Thread>) -> TcpStream<Thread> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(peer, (HERE, 7000)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
                return stream;
            }
            Err(error) => assert!(begun.elapsed() < STEP_TIME_MAX, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says something, and hears it again.
fn ask(mut stream: &TcpStream<Thread>, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).expect("it is answered");
    assert!(back == text);
}

#[test]
fn each_child_owns_its_connection() {
    let trusted = Trusted::new("inetd");
    let (setup, is_over) = (trusted.setup(), AtomicBool::new(false));
    let (path, last) = (trusted.path().to_owned(), AtomicU32::new(0));
    std::thread::scope(|threads| {
        let server = threads.spawn(|| {
            let stack = setup.here().expect("a member");
            let program = std::env::current_exe().expect("this one");
            let child = || {
                let mut command = Command::new(&program);
                command.args(["--exact", "child", "--ignored", "--nocapture"]).env(PLACE, &path);
                command
            };
            example::serve(&stack, "10.0.0.1:7000", child, |started| {
                if let Some(child) = started {
                    last.store(child.id(), Ordering::SeqCst);
                }
                is_over.load(Ordering::SeqCst)
            })
        });
        // The child that is started behind this one.
        let started_behind = |before| {
            let begun = Instant::now();
            loop {
                match last.load(Ordering::SeqCst) {
                    now if now != before => return now,
                    _ => assert!(begun.elapsed() < STEP_TIME_MAX, "no child is started"),
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let peer = trusted.peer();
        // What the peer says at once is on its way to the parent, to nothing, or to the child.
        let first = connect(&peer);
        let long: Vec<u8> = (0..200_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
        let half = long.len() / 2;
        (&first).write_all(&long[..half]).unwrap();
        (&first).write_all(&long[half..]).unwrap();
        let mut back = vec![0; long.len()];
        (&first).read_exact(&mut back).expect("all comes back");
        assert!(back == long, "every octet, in order");
        let of_first = started_behind(0);

        let second = connect(&peer);
        ask(&second, b"another child?");
        let (of_second, begun) = (started_behind(of_first), Instant::now());
        while trusted.counts() != (0, 2) {
            assert!(begun.elapsed() < STEP_TIME_MAX, "the registry carries none of both");
        }

        // A child that is killed leaves a reset to its peer, and nothing to others.
        let pid = rustix::process::Pid::from_raw(of_second as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
        let broken = (&second).read(&mut [0; 16]).expect_err("it is reset");
        assert_eq!(broken.kind(), ErrorKind::ConnectionReset, "{broken}");
        ask(&first, b"still there?");
        let third = connect(&peer);
        ask(&third, b"and the parent?");

        // Each ends its own.
        for stream in [&first, &third] {
            stream.shutdown(Shutdown::Write).unwrap();
            let end = { stream }.read(&mut [0; 16]).expect("an end in order");
            assert_eq!(end, 0);
        }
        is_over.store(true, Ordering::SeqCst);
        server.join().unwrap().expect("it has served");
    });
}
