//! Streams between Linux's sockets and ours: of all sizes, over bad links, into small and closed
//! windows.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, sockopt};
use xk_net::{Stack, TcpListener, Thread};
use xk_peers::testbed::{Lan, OURS, Wire};
use xk_testkit::needs_root;

use crate::ends::{Ends, Opener, capture, either, graph, is_long, part_from, start};
use crate::tcp::DAMAGE;

/// No exchange may take longer.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest silence over a lossy link. The timeout doubles with each loss: where one packet in five
/// is lost, one stream of three thousand pauses for a minute, and one of several hundred thousand
/// for ten.
const LOSSY_LIMIT: Duration = Duration::from_secs(600);

fn both_ways(lan: &Lan, stack: &Stack<Thread>, sizes: &[u64], limit: Duration) {
    for opener in [Opener::Linux, Opener::Ours] {
        for octets in sizes.iter().copied() {
            let begun = Instant::now();
            let ends = Ends::open(lan, stack, opener);
            ends.exchange(octets, octets, [None; 2], limit);
            if octets >= 1 << 24 {
                let mbit_s = octets as f64 * 16.0 / begun.elapsed().as_secs_f64() / 1e6;
                println!("{octets} octets each way, {opener:?} opened: {mbit_s:.0} Mbit/s in all");
            }
        }
    }
}

pub(crate) fn carries_all_sizes(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("sizes", wire);
    let captured = capture(&lan, "wire");
    let stack = start(&lan, &graph(&lan, (&captured, "pcap"), "", ""));
    let sizes = [1, 2, 535, 1447, 1448, 1449, 65_536, 300_003];
    both_ways(&lan, &stack, &sizes, LIMIT);
    part_from(stack);
    lan.testbed.judge(DAMAGE);
    let stack = start(&lan, &graph(&lan, ("", "wire"), "", ""));
    let large = either(&[8 << 20][..], &[16 << 20, 1 << 30]);
    both_ways(&lan, &stack, large, either(LIMIT, 20 * LIMIT));
    part_from(stack);
}

/// Faults of a link, and the octets that go each way, in the short form and in the long one.
const FAULTS: &[(&str, u64, u64)] = &[
    ("loss=\"0%\"", 1 << 20, 256 << 20),
    ("loss=\"1%\"", 1 << 20, 64 << 20),
    ("loss=\"5%\"", 300_000, 8 << 20),
    ("loss=\"20%\"", 20_000, 300_000),
    ("reorder=\"10%\" reorder_delay=\"3ms\"", 1 << 20, 64 << 20),
    ("duplicate=\"10%\"", 1 << 20, 64 << 20),
    ("corrupt=\"2%\"", 300_000, 16 << 20),
    ("delay=\"1ms\"", 1 << 20, 64 << 20),
    ("delay=\"20ms\" queue=100000", 1 << 20, 64 << 20),
    ("delay=\"200ms\" queue=100000", 100_000, 64 << 20),
    ("loss=\"1%\" reorder=\"10%\" duplicate=\"5%\" corrupt=\"1%\" delay=\"5ms\"", 200_000, 4 << 20),
];

pub(crate) fn outlast_faults(wire: Wire) {
    needs_root!("ip", "tshark");
    // They mostly wait, so they do so together.
    let run = |at: usize| {
        let (faults, short, long) = FAULTS[at];
        let lan = Lan::new(&format!("faults-{at}"), wire);
        let below = format!("fault wire name=bad {faults}\n");
        // Of frames with flipped bits there is nothing that a capture may not show.
        let is_captured = !is_long() && !faults.contains("corrupt");
        let captured = is_captured.then(|| capture(&lan, "bad"));
        let last = if is_captured { "pcap" } else { "bad" };
        let below = below + &captured.unwrap_or_default();
        let stack = start(&lan, &graph(&lan, (&below, last), "", ""));
        let both = [Opener::Linux, Opener::Ours];
        // In the short form each opens on one of the wires.
        let first = (at + usize::from(wire == Wire::Tap)) % 2;
        for opener in either(&both[first..=first], &both[..]).iter().copied() {
            let begun = Instant::now();
            let ends = Ends::open(&lan, &stack, opener);
            let octets = either(short, long);
            ends.exchange(octets, octets, [None; 2], either(LOSSY_LIMIT, 20 * LIMIT));
            let took = begun.elapsed();
            println!("{faults}, {opener:?} opened: {octets} octets each way in {took:.1?}");
        }
        part_from(stack);
        lan.testbed.judge(DAMAGE);
    };
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..FAULTS.len()).map(|at| scope.spawn(move || run(at))).collect();
        for (at, run) in runs.into_iter().enumerate() {
            assert!(run.join().is_ok(), "{}", FAULTS[at].0);
        }
    });
}

/// Linux's end with a receive buffer of this size, which has to be known before the handshake.
fn open_with_buffer(lan: &Lan, stack: &Stack<Thread>, octets: usize) -> Ends {
    let listener = TcpListener::bind(stack, (OURS, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || -> io::Result<OwnedFd> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        sockopt::set_socket_recv_buffer_size(&socket, octets)?;
        rustix::net::connect(&socket, &to)?;
        Ok(socket)
    };
    let linux = lan.linux.enter(connect).unwrap().unwrap();
    let (ours, _) = listener.accept().unwrap();
    Ends { ours, linux: linux.into() }
}

pub(crate) fn fit_tiny_windows(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("tiny", wire);
    let captured = capture(&lan, "wire");
    let tiny = "receive_buffer=2048 send_buffer=2048";
    let stack = start(&lan, &graph(&lan, (&captured, "pcap"), tiny, ""));
    // Linux makes of it what it has as its least.
    let ends = open_with_buffer(&lan, &stack, 1);
    let octets = either(100_000, 4 << 20);
    ends.exchange(octets, octets, [None; 2], 5 * LIMIT);
    drop(ends);
    part_from(stack);
    lan.testbed.judge(&[DAMAGE, &[("indow", "both windows are tiny, and often closed")]].concat());
}

pub(crate) fn wait_for_closed_windows(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("closed", wire);
    let captured = capture(&lan, "wire");
    let small = "receive_buffer=65536 send_buffer=65536";
    let stack = start(&lan, &graph(&lan, (&captured, "pcap"), small, ""));
    let ends = open_with_buffer(&lan, &stack, 32 << 10);
    // Long enough for several probes.
    let rest = || std::thread::sleep(Duration::from_secs(either(2, 20)));
    ends.exchange(2 << 20, 2 << 20, [Some((100_000, &rest)); 2], LIMIT);
    drop(ends);
    part_from(stack);
    lan.testbed.judge(
        &[
            DAMAGE,
            &[
                ("indow", "both readers rest, and their windows close"),
                ("eep-alive", "how the probe of a closed window looks"),
            ],
        ]
        .concat(),
    );
    for host in [OURS, xk_peers::testbed::LINUX] {
        let closed = format!("ip.src == {host} && tcp.window_size == 0 && tcp.flags.reset == 0");
        assert!(lan.testbed.count("ours.pcapng", &closed) > 0, "{host}");
    }
}
