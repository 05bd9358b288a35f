//! Streams between sockets of ours and of Linux's, and what goes through them.
//!
//! `XK_LONG=1` makes the tests that stand on this as long as they are meant to be: up to a
//! gigabyte, and a hundred thousand connections. Without it they take seconds.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use xk_kit::net::stream::StreamInfo;
use xk_net::{Setup, Stack, TcpListener, TcpStream, Thread};
use xk_peers::testbed::{LINUX, Lan, OURS, PROGRAM_TIME_MAX};

/// Whether the long forms run.
pub(crate) fn is_long() -> bool {
    std::env::var("XK_LONG").is_ok_and(|text| text != "0")
}

/// `long` if the long forms run, else `short`.
pub(crate) fn either<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Octets after which the content repeats: nothing on the way counts in these.
const PERIOD: usize = (1 << 20) + 7;
/// Octets written or read at once.
const PIECE: usize = 1 << 16;

fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| {
        let mut state = 1_u64;
        let next = |_| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 27) as u8
        };
        (0..PERIOD).map(next).collect()
    })
}

/// Octets of every stream from `at` on, `octets` at most.
fn content_at(at: u64, octets: u64) -> &'static [u8] {
    let start = (at % PERIOD as u64) as usize;
    let octets = octets.min(PIECE as u64) as usize;
    &content()[start..PERIOD.min(start + octets)]
}

/// Writes the first `octets` of the content.
pub(crate) fn send(mut to: impl Write, octets: u64) -> io::Result<()> {
    let mut at = 0;
    while at < octets {
        let written = to.write(content_at(at, octets - at))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += written as u64;
    }
    to.flush()
}

/// Way in which an end reads: all at once, or with a pause at this octet.
pub(crate) type Rest<'a> = Option<(u64, &'a (dyn Fn() + Sync))>;

/// A gate at which readers wait until the other end has done something.
#[derive(Default)]
pub(crate) struct Gate {
    /// Number of ends that have come, and whether they may go on.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Comes, and waits until the gate is open, or for as long as an exchange may take.
    pub(crate) fn pass(&self, limit: Duration) {
        self.state.lock().unwrap().0 += 1;
        self.changed.notify_all();
        let state = self.state.lock().unwrap();
        let is_shut = |state: &mut (usize, bool)| !state.1;
        drop(self.changed.wait_timeout_while(state, limit, is_shut));
    }

    /// Waits until so many have come, or for so long.
    pub(crate) fn wait_for(&self, count: usize, limit: Duration) {
        let state = self.state.lock().unwrap();
        let is_few = |state: &mut (usize, bool)| state.0 < count;
        drop(self.changed.wait_timeout_while(state, limit, is_few));
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// Reads to the end of the stream, and compares: the first `octets` of the content, and nothing
/// else.
pub(crate) fn receive(mut from: impl Read, octets: u64, mut rest: Rest<'_>) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        if let Some((_, rest)) = rest.take_if(|(when, _)| at >= *when) {
            rest();
        }
        let count = from.read(&mut piece)?;
        if count == 0 {
            break;
        }
        let mut seen = &piece[..count];
        while !seen.is_empty() {
            let meant = content_at(at, seen.len() as u64);
            let (first, others) = seen.split_at(meant.len());
            if first != meant {
                return Err(io::Error::other(format!("other octets than were sent at {at}")));
            }
            (seen, at) = (others, at + first.len() as u64);
        }
    }
    if at == octets {
        Ok(())
    } else {
        let text = format!("the stream ended at {at} instead of {octets}");
        Err(io::Error::other(text))
    }
}

/// The graph of our side: `below` are lines between wire and Ethernet of which `last` is the last
/// node, `tcp` its parameters, `uppers` lines above.
pub(crate) fn graph(lan: &Lan, (below, last): (&str, &str), tcp: &str, uppers: &str) -> String {
    format!(
        "host xk {{\n{}\n{below}eth {last}\narp eth\n\
         ip arp {{ address \"{OURS}/24\"; route default via=\"{LINUX}\"; }}\nicmp ip\ntcp ip {tcp}\n{uppers}\n}}\n",
        lan.wire_line()
    )
}

/// The line that captures into the file `ours`, and the node's name.
pub(crate) fn capture(lan: &Lan, under: &str) -> String {
    let file = lan.testbed.capture_file("ours");
    format!("pcap {under} file=\"{}\"\n", file.display())
}

/// Our sockets, on a thread of their own in our name space.
pub(crate) fn start(lan: &Lan, graph: &str) -> Stack<Thread> {
    let setup = Setup::from_text(graph, xk_catalog::PROTOCOLS);
    let setup = setup.sockets_max(1 << 17);
    lan.ours().enter(|| setup.thread()).unwrap().unwrap()
}

/// The end that opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Linux,
    Ours,
}

/// Both ends of a connection.
pub(crate) struct Ends {
    pub(crate) ours: TcpStream<Thread>,
    pub(crate) linux: std::net::TcpStream,
}

impl Ends {
    /// A connection over `lan`.
    pub(crate) fn open(lan: &Lan, stack: &Stack<Thread>, opener: Opener) -> Self {
        match opener {
            Opener::Linux => {
                let listener = TcpListener::bind(stack, (OURS, 0)).unwrap();
                let to = listener.local_addr().unwrap();
                let connect = || std::net::TcpStream::connect(to).unwrap();
                let linux = lan.linux.enter(connect).unwrap();
                let (ours, _) = listener.accept().unwrap();
                Self { ours, linux }
            }
            Opener::Ours => {
                let bind = || std::net::TcpListener::bind((LINUX, 0)).unwrap();
                let listener = lan.linux.enter(bind).unwrap();
                let to: SocketAddr = listener.local_addr().unwrap();
                let ours = TcpStream::connect(stack, to).unwrap();
                let (linux, _) = listener.accept().unwrap();
                Self { ours, linux }
            }
        }
    }

    /// Sends `up` octets from us to Linux and `down` back, at the same time, and compares them.
    /// Each side ends its direction. The readers rest as they are told: Linux's, and ours. Gives
    /// how our end stood when all was written.
    pub(crate) fn exchange(
        &self,
        up: u64,
        down: u64,
        rests: [Rest<'_>; 2],
        limit: Duration,
    ) -> StreamInfo {
        let (ours, linux) = (&self.ours, &self.linux);
        ours.set_read_timeout(Some(limit)).unwrap();
        ours.set_write_timeout(Some(limit)).unwrap();
        linux.set_read_timeout(Some(limit)).unwrap();
        linux.set_write_timeout(Some(limit)).unwrap();
        std::thread::scope(|scope| {
            let to_linux = scope.spawn(|| {
                send(ours.try_clone()?, up)?;
                let info = ours.info()?;
                ours.shutdown(Shutdown::Write)?;
                Ok::<_, io::Error>(info)
            });
            let to_us = scope.spawn(|| {
                send(linux, down)?;
                linux.shutdown(Shutdown::Write)
            });
            let at_linux = scope.spawn(|| receive(linux, up, rests[0]));
            let at_us = scope.spawn(|| receive(ours.try_clone()?, down, rests[1]));
            let info = to_linux.join().expect("no panic");
            for (what, thread) in
                [("Linux's writer", to_us), ("Linux's reader", at_linux), ("our reader", at_us)]
            {
                let result = thread.join().expect("no panic");
                assert!(result.is_ok(), "{what}: {result:?}, {info:?}");
            }
            info.expect("our writer")
        })
    }
}

/// Lets the last acknowledgements go before captures end and the other end disappears.
pub(crate) fn part_from(stack: Stack<Thread>) {
    std::thread::sleep(Duration::from_millis(100));
    // A capture is whole once the stack's thread has taken the graph down.
    assert!(stack.end(PROGRAM_TIME_MAX), "no socket holds the stack, and its thread ends");
}
