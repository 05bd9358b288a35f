//! Sleeping on sockets: with nothing else to sleep on, beside another descriptor, on few and on
//! many sockets.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use xk_core::graph::Params;
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef, SessionRef};
use xk_run::{Idle, Runner, real_kernel};
use xk_testkit::kernel::Top;

/// Time that a run may take: less than its sleeps would if arrivals did not end them.
const LIMIT: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 40;

/// A socket that sends back what comes, `copies` times, from a thread that ends with this.
struct Echo {
    address: SocketAddr,
    ends: &'static AtomicBool,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echo {
    fn start(copies: u64, ends: &'static AtomicBool) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let step = Duration::from_millis(50);
        socket.set_read_timeout(Some(step)).unwrap();
        let address = socket.local_addr().unwrap();
        let body = move || {
            let mut octets = [0; 64];
            while !ends.load(Ordering::Relaxed) {
                let Ok((count, from)) = socket.recv_from(&mut octets) else {
                    continue;
                };
                for _ in 0..copies {
                    socket.send_to(&octets[..count], from).unwrap();
                }
            }
        };
        let thread = Some(thread::spawn(body));
        Self { address, ends, thread }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

struct Stand {
    kernel: Rc<Kernel>,
    wire: ProtocolRef,
    top: Top,
}

impl Stand {
    fn new() -> Self {
        let kernel = Rc::new(real_kernel(64 << 20).unwrap());
        let entry = &xk_host::UDP_ENTRY;
        let wire = entry.add(&kernel, entry.kind, &[], &Params::default());
        let top = Top::add(&kernel, "top");
        kernel.start().unwrap();
        let wire = wire.unwrap();
        Self { kernel, wire, top }
    }

    fn open(&self, to: SocketAddr) -> SessionRef {
        let peer = Participant::of(Part::host(Ipv4Addr::LOCALHOST)).with(Part::port(to.port()));
        let participants = Participants::pair(Part::Any, peer);
        self.top.open(&self.kernel, &self.wire, participants).unwrap()
    }

    fn push(&self, session: &SessionRef, octets: &[u8]) {
        let message = self.kernel.pool().copy_from(64, octets).unwrap();
        session.push(&self.kernel, message).unwrap();
    }
}

/// Sends on each of so many sockets in turn what the echo sends back `copies` times, the next when
/// all have come. Answers how often the loop slept.
fn rounds(sockets: usize, copies: u64, watches: bool, idle: Idle) -> u64 {
    let echo = Echo::start(copies, Box::leak(Box::default()));
    let stand = Rc::new(Stand::new());
    let sessions: Vec<_> = (0..sockets).map(|_| stand.open(echo.address)).collect();
    let runner = Runner::new(Rc::clone(&stand.kernel), idle).unwrap();
    let (silent, _other) = UnixStream::pair().unwrap();
    if watches {
        runner.watch(silent.into(), Rc::new(|_| {})).unwrap();
    }
    stand.push(&sessions[0], b"0");
    let turn = {
        let stand = Rc::clone(&stand);
        move |_: &Kernel| {
            let got = stand.top.received();
            let fresh = stand.top.take_received();
            if got < ROUNDS * copies && got.is_multiple_of(copies) && !fresh.is_empty() {
                let round = (got / copies) as usize;
                // One without octets goes and comes like any other.
                let octets = [round as u8];
                stand.push(&sessions[round % sockets], &octets[..round % 2]);
            }
            got == ROUNDS * copies
        }
    };
    runner.run(Some(LIMIT), Rc::new(turn)).unwrap();
    assert_eq!(
        stand.top.received(),
        ROUNDS * copies,
        "{sockets} sockets, {copies} copies, beside another: {watches}, {idle:?}"
    );
    let sleeps = runner.stats().sleeps;
    drop(runner);
    stand.kernel.stop();
    sleeps
}

#[test]
fn an_arrival_ends_the_sleep() {
    for sockets in [1, 3, 7] {
        for watches in [false, true] {
            for copies in [1, 30] {
                let sleeps = rounds(sockets, copies, watches, Idle::Sleep);
                assert!(sleeps <= ROUNDS * (copies + 2), "{sleeps} sleeps");
            }
            rounds(sockets, 1, watches, Idle::default());
        }
    }
}

/// A timer that is due ends the sleep on the only socket, and the limit of the run does.
#[test]
fn time_ends_the_sleep() {
    for limit in [0, 1, 40, 300].map(Duration::from_millis) {
        let stand = Stand::new();
        let _session = stand.open((Ipv4Addr::LOCALHOST, 9).into());
        let runner = Runner::new(Rc::clone(&stand.kernel), Idle::Sleep).unwrap();
        let begun = runner.clock().now();
        runner.run(Some(limit), Rc::new(|_| false)).unwrap();
        let took = runner.clock().now().since(begun);
        assert!(took >= limit, "{took:?}");
        // A limit of 300 ms takes a few waits that grow shorter, not one for each tick.
        assert!(runner.stats().sleeps < 40, "{:?}", runner.stats());
        drop(runner);
        stand.kernel.stop();
    }
}
