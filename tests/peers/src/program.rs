//! Programs with a library of protocols, each with a stack of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, scope};
use std::time::Duration;

use xk_net::{Setup, TcpListener, TcpStream, Thread, UdpSocket};
use xk_testkit::netns::Space;

use crate::testbed::{OURS, PROGRAM_TIME_MAX};

/// Time between two looks whether the program is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Task of a program at its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Sends back what streams bring.
    Streams(u16),
    /// Sends back what datagrams bring.
    Datagrams(u16),
    /// Passes streams on to a program of Linux there, and what comes from it back.
    Relay(u16, SocketAddr),
    /// Asks what is there so many times, with a stack of its own each time, and ends.
    Asks(SocketAddr, usize),
}

impl Program {
    /// The one that stands for a line of a graph, if that is an `echo`.
    pub(crate) fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let program = match (words.next()?, words.next()?) {
            ("echo", "tcp") => Self::Streams,
            ("echo", "udp") => Self::Datagrams,
            _ => return None,
        };
        Some(program(words.find_map(|word| word.strip_prefix("port="))?.parse().ok()?))
    }

    /// Runs it on what is open at `path`.
    fn run(self, path: &Path, ready: &Sender<()>, ends: &AtomicBool) -> io::Result<()> {
        let setup = Setup::library(path, xk_catalog::PROTOCOLS);
        let port = match self {
            Self::Streams(port) | Self::Datagrams(port) | Self::Relay(port, _) => port,
            Self::Asks(to, times) => {
                (0..times).try_for_each(|_| ask(&setup, to))?;
                let _nobody_waits = ready.send(());
                return Ok(());
            }
        };
        let stack = setup.thread()?;
        if let Self::Datagrams(_) = self {
            let socket = UdpSocket::bind(&stack, (OURS, port))?;
            let _nobody_waits = ready.send(());
            return echo_datagrams(&socket, ends);
        }
        let listener = TcpListener::bind(&stack, (OURS, port))?;
        listener.set_nonblocking(true)?;
        let _nobody_waits = ready.send(());
        scope(|streams| {
            while !ends.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A peer that breaks off ends its own stream alone.
                    Ok((stream, _)) => drop(streams.spawn(move || self.serve(&stream, ends))),
                    Err(error) if is_late(&error) => std::thread::sleep(LOOK_EVERY / 10),
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    fn serve(self, stream: &TcpStream<Thread>, ends: &AtomicBool) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        let Self::Relay(_, to) = self else {
            return pass_on(stream, stream, ends);
        };
        let other = std::net::TcpStream::connect(to)?;
        other.set_read_timeout(Some(LOOK_EVERY))?;
        scope(|both| {
            let back = both.spawn(|| {
                pass_on(&other, stream, ends)?;
                stream.shutdown(Shutdown::Write)
            });
            pass_on(stream, &other, ends)?;
            other.shutdown(Shutdown::Write)?;
            back.join().unwrap_or(Ok(()))
        })
    }
}

/// Says something to an echo there and hears it; the stack ends behind that.
fn ask(setup: &Setup, to: SocketAddr) -> io::Result<()> {
    let stack = setup.here()?;
    let mut stream = TcpStream::connect(&stack, to)?;
    stream.write_all(b"there?")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let is_it = answer == "there?";
    if is_it { Ok(()) } else { Err(io::Error::other(format!("it answers {answer:?}"))) }
}

/// Nothing has come in time.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Passes on what comes until that ends.
fn pass_on(mut from: impl Read, mut to: impl Write, ends: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    while !ends.load(Ordering::Relaxed) {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(octets) => to.write_all(&buffer[..octets])?,
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn echo_datagrams(socket: &UdpSocket<Thread>, ends: &AtomicBool) -> io::Result<()> {
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    let mut buffer = vec![0; 1 << 16];
    while !ends.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((octets, peer)) => _ = socket.send_to(&buffer[..octets], peer)?,
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Programs that run. They end when this value is dropped.
#[derive(Default)]
pub(crate) struct Programs {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Programs {
    /// Starts one that attaches at `path`, and waits until it takes what comes.
    ///
    /// # Panics
    /// If it does not begin.
    pub(crate) fn start(&mut self, space: Option<&Space>, path: &Path, program: Program) {
        let (path, ends) = (path.to_owned(), Arc::clone(&self.ends));
        let (ready, begun) = channel();
        let run = move || {
            if let Err(error) = program.run(&path, &ready, &ends) {
                panic!("{program:?}: {error}");
            }
        };
        let space = space.cloned();
        self.threads.push(std::thread::spawn(move || match space {
            Some(space) => space.enter(run).expect("the namespace"),
            None => run(),
        }));
        begun.recv_timeout(PROGRAM_TIME_MAX).expect("the program begins");
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a program panicked; its message is above");
            }
        }
    }
}
