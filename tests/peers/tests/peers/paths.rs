//! Streams over paths that are narrower on the way, with and without reports of it, and marked for
//! congestion on the way.

use std::time::Duration;

use xk_kit::net::stream::StreamEcn;
use xk_net::{Stack, TcpListener, TcpStream, Thread};
use xk_peers::testbed::{LINUX, Lan, OURS, Wire};
use xk_testkit::netns::Space;
use xk_testkit::{needs, needs_root};

use crate::ends::{Ends, Gate, Opener, capture, either, graph, part_from, start};
use crate::tcp::DAMAGE;

const LIMIT: Duration = Duration::from_secs(60);
/// Linux behind two routers.
const FAR: &str = "10.8.0.2";
/// Octets of a packet on the link between the routers.
const NARROW: usize = 1400;

/// Linux as router next to us, another one behind it over a link that can become narrower, and
/// behind that a host that knows nothing of it.
struct Way<'a> {
    near: &'a Space,
    middle: Space,
    far: Space,
}

impl<'a> Way<'a> {
    fn new(lan: &'a Lan) -> Self {
        let (near, middle, far) = (&lan.linux, lan.testbed.linux(), lan.testbed.linux());
        let net = &lan.testbed.net;
        net.veth(near, "mid0", &middle, "mid1").unwrap();
        net.veth(&middle, "far0", &far, "far1").unwrap();
        for (space, device, address) in [
            (near, "mid0", "10.7.0.1/24"),
            (&middle, "mid1", "10.7.0.2/24"),
            (&middle, "far0", "10.8.0.1/24"),
            (&far, "far1", "10.8.0.2/24"),
        ] {
            space.address(device, address).unwrap();
            space.offload_off(device).unwrap();
            space.sysctl("net/ipv4/ip_forward", "1").unwrap();
        }
        near.route("10.8.0.0/24", "10.7.0.2").unwrap();
        middle.route("10.9.0.0/24", "10.7.0.1").unwrap();
        far.route("default", "10.8.0.1").unwrap();
        Self { near, middle, far }
    }

    fn narrow(&self, octets: usize) {
        self.near.mtu("mid0", octets).unwrap();
        self.middle.mtu("mid1", octets).unwrap();
    }

    /// A connection between us and the far host.
    fn open(&self, stack: &Stack<Thread>, opener: Opener) -> Ends {
        match opener {
            Opener::Linux => {
                let listener = TcpListener::bind(stack, (OURS, 0)).unwrap();
                let to = listener.local_addr().unwrap();
                let connect = || std::net::TcpStream::connect(to).unwrap();
                let linux = self.far.enter(connect).unwrap();
                let (ours, _) = listener.accept().unwrap();
                Ends { ours, linux }
            }
            Opener::Ours => {
                let bind = || std::net::TcpListener::bind((FAR, 0)).unwrap();
                let listener = self.far.enter(bind).unwrap();
                let ours = TcpStream::connect(stack, listener.local_addr().unwrap()).unwrap();
                let (linux, _) = listener.accept().unwrap();
                Ends { ours, linux }
            }
        }
    }
}

pub(crate) fn become_narrower(wire: Wire) {
    needs_root!("ip", "tshark");
    for (at, opener) in [Opener::Linux, Opener::Ours].into_iter().enumerate() {
        let lan = Lan::new(&format!("narrower-{at}"), wire);
        let captured = capture(&lan, "wire");
        // With a TAP device Linux's end comes with the graph.
        let small = "receive_buffer=131072 send_buffer=131072";
        let stack = start(&lan, &graph(&lan, (&captured, "pcap"), small, ""));
        let way = Way::new(&lan);
        // Most is to be sent when the path is narrow already.
        let window = "4096 131072 262144";
        way.far.sysctl("net/ipv4/tcp_rmem", window).unwrap();
        let ends = way.open(&stack, opener);
        assert_eq!(ends.ours.info().unwrap().segment, 1448);
        // In the midst of the stream, in both directions.
        let gate = Gate::default();
        let info = std::thread::scope(|scope| {
            let exchange = scope.spawn(|| {
                let octets = either(2 << 20, 64 << 20);
                let rest = || gate.pass(LIMIT);
                ends.exchange(octets, octets, [Some((300_000, &rest)); 2], LIMIT)
            });
            gate.wait_for(2, LIMIT);
            way.narrow(NARROW);
            gate.open();
            exchange.join().expect("no panic")
        });
        assert_eq!(info.segment as usize, NARROW - 52, "as a router has said");
        drop(ends);
        part_from(stack);
        lan.testbed.judge(
            &[
                DAMAGE,
                &[
                    ("indow", "both readers rest"),
                    ("eep-alive", "how the probe of a closed window looks"),
                ],
            ]
            .concat(),
        );
        let filter = format!("icmp.type == 3 && icmp.code == 4 && ip.src == {LINUX}");
        assert!(lan.testbed.count("ours.pcapng", &filter) > 0);
    }
}

pub(crate) fn are_black_holes(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("black_hole", wire);
    let captured = capture(&lan, "wire");
    // A host without `icmp` hears of nothing.
    let small = "send_buffer=131072";
    let graph = graph(&lan, (&captured, "pcap"), small, "").replace("icmp ip\n", "");
    let stack = start(&lan, &graph);
    let way = Way::new(&lan);
    way.narrow(NARROW);
    let ends = way.open(&stack, Opener::Ours);
    let info = ends.exchange(either(1 << 20, 8 << 20), 0, [None; 2], LIMIT);
    let segment = info.segment as usize;
    // Smaller segments than 1200 - 52 would be timid, larger ones do not pass.
    assert!((1148..=NARROW - 52).contains(&segment), "{segment}");
    drop(ends);
    // On a stream that lasts, what does pass is found.
    let ends = way.open(&stack, Opener::Ours);
    let rest = || std::thread::sleep(Duration::from_secs(2));
    let info = ends.exchange(8 << 20, 0, [Some((100_000, &rest)), None], LIMIT);
    let segment = info.segment as usize;
    assert!((NARROW - 52 - 16..=NARROW - 52).contains(&segment), "{segment}");
    drop(ends);
    part_from(stack);
    lan.testbed.judge(
        &[
            DAMAGE,
            &[("indow", "a reader rests"), ("eep-alive", "how the probe of a closed window looks")],
        ]
        .concat(),
    );
}

pub(crate) fn are_marked(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("marked", wire);
    let captured = capture(&lan, "bad");
    let below = format!("fault wire name=bad mark=\"5%\"\n{captured}");
    let stack = start(&lan, &graph(&lan, (&below, "pcap"), "ecn=#true", ""));
    lan.linux.sysctl("net/ipv4/tcp_ecn", "1").unwrap();
    for opener in [Opener::Linux, Opener::Ours] {
        let ends = Ends::open(&lan, &stack, opener);
        let info = ends.exchange(500_000, 500_000, [None; 2], LIMIT);
        assert_eq!(info.retransmissions, 0, "{opener:?}");
    }
    // A peer that offers nothing gets nothing.
    lan.linux.sysctl("net/ipv4/tcp_ecn", "0").unwrap();
    let ends = Ends::open(&lan, &stack, Opener::Linux);
    ends.exchange(100_000, 100_000, [None; 2], LIMIT);
    drop(ends);
    part_from(stack);
    lan.testbed.judge(DAMAGE);
    let count = |filter: String| lan.testbed.count("ours.pcapng", &filter);
    for (from, to) in [(OURS, LINUX), (LINUX, OURS)] {
        // Two connections, each asked for and agreed to.
        let syn = format!("ip.src == {from} && tcp.flags.syn == 1 && tcp.flags.ece == 1");
        assert_eq!(count(syn), 2, "{from}");
        let capable = format!("ip.src == {from} && tcp.len > 0 && ip.dsfield.ecn != 0");
        assert!(count(capable) > 100, "{from}");
        let bare = format!("ip.src == {from} && tcp.len == 0 && ip.dsfield.ecn != 0");
        assert_eq!(count(bare), 0, "{from}: RFC 3168, section 6.1.4");
        // What is marked on its way from one is echoed by the other, and the first says that it has
        // heard.
        let echo = format!("ip.src == {to} && tcp.flags.ece == 1 && tcp.flags.syn == 0");
        let heard = format!("ip.src == {from} && tcp.flags.cwr == 1 && tcp.flags.syn == 0");
        let (echo, heard) = (count(echo), count(heard));
        println!("data from {from}: {echo} echoes, {heard} answers to them");
        assert!(echo > 0 && heard > 0, "{from}: {echo} echoes, {heard} answers");
    }
    let marked = format!("ip.src == {LINUX} && ip.dsfield.ecn == 3");
    assert!(count(marked) > 0, "ours sees the marks on what comes");
}

/// Marks are counted each way, where the kernel counts them too.
pub(crate) fn are_counted(wire: Wire) {
    needs_root!("ip", "tshark");
    let lan = Lan::new("counted", wire);
    if let Err(why) = lan.linux.sysctl("net/ipv4/tcp_ecn", "3") {
        needs::skip(&format!("this kernel knows no accurate feedback of marks (AccECN): {why}"));
        return;
    }
    let captured = capture(&lan, "bad");
    let below = format!("fault wire name=bad mark=\"5%\"\n{captured}");
    let stack = start(&lan, &graph(&lan, (&below, "pcap"), "accurate_ecn=#true", ""));
    for opener in [Opener::Linux, Opener::Ours] {
        let ends = Ends::open(&lan, &stack, opener);
        let info = ends.exchange(500_000, 500_000, [None; 2], LIMIT);
        assert_eq!((info.retransmissions, info.ecn), (0, StreamEcn::Accurate), "{opener:?}");
        assert!(info.marked_sent > 0, "{opener:?}: {info:?}");
    }
    // A peer that knows the usual feedback alone gets that.
    lan.linux.sysctl("net/ipv4/tcp_ecn", "1").unwrap();
    for opener in [Opener::Linux, Opener::Ours] {
        let ends = Ends::open(&lan, &stack, opener);
        let info = ends.exchange(100_000, 100_000, [None; 2], LIMIT);
        assert_eq!(info.ecn, StreamEcn::Classic, "{opener:?}");
    }
    part_from(stack);
    lan.testbed.judge(DAMAGE);
    let marked = format!("ip.src == {LINUX} && ip.dsfield.ecn == 3");
    assert!(lan.testbed.count("ours.pcapng", &marked) > 0, "ours sees the marks on what comes");
}
