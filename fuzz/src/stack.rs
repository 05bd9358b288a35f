//! The whole Internet stack over a recording wire, driven by octets read as a sequence of
//! operations.
//!
//! The first octet chooses a graph: a host, or a router with two wires. Then follow operations,
//! each an octet (the operation in its lower half, a place in its upper half), the length of its
//! argument, and the argument. Frames arrive raw, or with headers and checksums set right so that
//! they get far; sessions are opened, used and closed; time passes. After each operation the stack
//! must be within its bounds, and every frame must have left a trace: a delivery, a reply, or a
//! counted drop.

pub mod operation;

use crate::frame::{self, Ether};
use crate::novelty;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_compose::CheckedGraph;
use xk_core::control::ListSessions;
use xk_core::graph::Catalog;
use xk_core::graph::{Build, BuildError};
use xk_core::message::PoolConfig;
use xk_core::{Entry, Message, Pool, ProtocolRef, SessionRef};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

/// Our hardware address on the first wire; on the second the last octet is one more.
pub const OWN: Ether = [2, 0, 0, 0, 0, 1];
/// Our host on the first wire, in a network of 24 bits.
pub const ME: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The other host on the first wire.
pub const YOU: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Our host on the second wire, if there is one.
pub const ME_BEYOND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// A host on the second wire, or beyond the default router.
pub const BEYOND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// Octets of the pool: small, so that inputs reach its end.
const POOL_OCTETS: usize = 1 << 19;
/// Descriptors that all queues and reassembly together may hold.
const DESCRIPTORS_LIVE_MAX: u32 = 600;
/// Timers that all layers together may have pending.
const TIMERS_MAX: usize = 2000;
/// Sessions that the target itself holds open.
const HELD_MAX: usize = 8;
/// Operations of one input: what an input of the largest size could do otherwise takes long.
const OPERATIONS_MAX: usize = 400;

const HOST: &str = r#"host fuzzed {
    bottom
    eth bottom sessions_max=16
    arp eth sessions_max=16 entries_max=8 queue_max=4
    ip arp sessions_max=24 reassembly_octets_max="24KiB" {
        address "192.0.2.1/24"
        route default via="192.0.2.254"
        group "224.0.0.5"
    }
    icmp ip sessions_max=8 errors_burst=5 timestamp=#true
    udp ip sessions_max=16
    echo udp port=7
    discard udp port=9
    probe udp name=client to="port7@192.0.2.2" count=20 size=100
    probe icmp name=ping to="198.51.100.2" count=20 size=2000
}
"#;

const ROUTER: &str = r#"host fuzzed {
    bottom name=bottom
    bottom name=bottom2
    eth bottom sessions_max=16
    eth bottom2 name=eth2 sessions_max=16
    arp eth sessions_max=16 entries_max=8 queue_max=4
    arp eth2 name=arp2 sessions_max=16 entries_max=8 queue_max=4
    ip arp arp2 forward=#true sessions_max=24 mtu=576 reassembly_octets_max="24KiB" {
        address "192.0.2.1/24" on=arp
        address "198.51.100.1/24" on=arp2
        route "203.0.113.0/24" via="192.0.2.2"
    }
    icmp ip sessions_max=8 errors_burst=5 broadcast_echo=#true
    udp ip sessions_max=16
    echo udp port=7
    discard udp port=9
}
"#;

/// The bottoms that the graph has built, in the file's order.
type Bottoms = RefCell<Vec<Bottom>>;

static BOTTOM: Entry =
    Entry::wire("bottom", "", build_bottom).summary("a wire that records what is sent");

fn build_bottom(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let bottoms = build.cx.surroundings::<Bottoms>();
    let mut own = OWN;
    if let Some(bottoms) = &bottoms {
        own[5] += bottoms.borrow().len() as u8;
    }
    let bottom = Bottom::add(build.cx, build.name, Lower::wire(own));
    let protocol = bottom.protocol().clone();
    if let Some(bottoms) = bottoms {
        bottoms.borrow_mut().push(bottom);
    }
    Ok(protocol)
}

thread_local! {
    static GRAPHS: [CheckedGraph; 2] = [HOST, ROUTER].map(checked);
}

fn checked(source: &str) -> CheckedGraph {
    let entries = [
        &BOTTOM,
        &xk_eth::ENTRY,
        &xk_arp::ENTRY,
        &xk_ip::ENTRY,
        &xk_icmp::ENTRY,
        &xk_udp::ENTRY,
        &xk_echo::ENTRY,
        &xk_discard::ENTRY,
        &xk_probe::ENTRY,
    ];
    let catalog = Catalog::new(&entries).expect("the entries agree");
    xk_compose::check(source, "stack.kdl", &catalog)
        .unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()))
}

/// One stack, and what stands around it.
pub struct Stack {
    cx: TestKernel,
    bottoms: Rc<Bottoms>,
    protocols: Vec<ProtocolRef>,
    /// Stands on UDP, ICMP, IP and Ethernet beside the graph's own applications.
    top: Top,
    held: RefCell<Vec<SessionRef>>,
    /// The last frame sent by each wire, for replies to it and errors about it.
    last: [RefCell<Vec<u8>>; 2],
    forwards: bool,
    /// Whether messages from here bypass the layers that would make them valid.
    raw: Cell<bool>,
}

/// Runs one input.
///
/// # Panics
/// If the stack breaks one of its laws.
pub fn run(data: &[u8]) {
    let Some((&graph, mut rest)) = data.split_first() else {
        return;
    };
    let stack = Stack::new(graph & 1 == 1);
    stack.check();
    for _ in 0..OPERATIONS_MAX {
        let Some((&[operation, len], behind)) = rest.split_first_chunk() else {
            break;
        };
        let len = usize::from(len).min(behind.len());
        let (argument, behind) = behind.split_at(len);
        rest = behind;
        stack.operate(operation & 15, usize::from(operation >> 4), argument);
        stack.check();
    }
    stack.stop();
}

impl Stack {
    fn new(forwards: bool) -> Self {
        let pool = Pool::new(&PoolConfig::with_octets_max(POOL_OCTETS)).expect("memory");
        let cx = TestKernel::with_pool(1, pool);
        let bottoms = Rc::<Bottoms>::default();
        cx.surround(Rc::clone(&bottoms));
        let protocols = GRAPHS.with(|graphs| {
            let graph = &graphs[usize::from(forwards)];
            let host = graph.host("fuzzed").expect("the graph's only host");
            let built = xk_compose::build(graph, &host, &cx);
            built.unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text())).protocols
        });
        // Under this kind it has a number on every layer.
        let top = Top::add_kind(&cx, "probe", "top");
        top.forget(true);
        assert!(cx.start().is_ok(), "the stack starts");
        Self {
            cx,
            bottoms,
            protocols,
            top,
            held: RefCell::default(),
            last: Default::default(),
            forwards,
            raw: Cell::new(false),
        }
    }

    /// The protocol of this name, which the graph has.
    fn find(&self, name: &str) -> &ProtocolRef {
        let mut all = self.protocols.iter();
        all.find(|protocol| protocol.name() == name).expect("a name of the graph")
    }

    /// The wire for this place: the first, or one of two.
    fn bottom(&self, place: usize) -> (Bottom, usize) {
        let bottoms = self.bottoms.borrow();
        let at = place % bottoms.len();
        (bottoms[at].clone(), at)
    }

    /// Everything that grows when a frame is not lost.
    fn traces(&self) -> u64 {
        let mut traces = self.top.received();
        for protocol in &self.protocols {
            let head = protocol.head();
            traces += head.drops().total();
            // These three end what they get; what IP and UDP hand on is seen above, and what IP
            // keeps, in the pool.
            if matches!(protocol.head().kind(), "arp" | "icmp" | "echo" | "discard" | "probe") {
                traces += head.received();
            }
        }
        for bottom in self.bottoms.borrow().iter() {
            traces += bottom.sent();
        }
        traces
    }

    /// Lets a frame arrive; `cut` splits it into two slices. It must leave a trace.
    fn arrive(&self, frame: &[u8], place: usize, cut: usize) {
        let (bottom, _) = self.bottom(place);
        let Some(message) = self.message(frame, cut) else {
            return;
        };
        // A slice that holds nothing but headers may go while the rest is kept.
        let slices = message.slices().count() as u32;
        let (traces, live) = (self.traces(), self.cx.live());
        // A refusal is counted by the layer that refused.
        bottom.inject(&self.cx, None, message);
        let (traces_now, live_now) = (self.traces(), self.cx.live());
        assert!(
            traces_now != traces || live_now.0 + slices != live.0,
            "a frame vanished without a trace"
        );
    }

    /// A message of one or two slices; `None` if the pool is exhausted.
    fn message(&self, octets: &[u8], cut: usize) -> Option<Message> {
        let pool = self.cx.pool();
        let (front, back) = octets.split_at(cut.min(octets.len()));
        if front.is_empty() || back.is_empty() {
            return pool.copy_from(xk_testkit::kernel::HEADROOM, octets).ok();
        }
        let mut message = pool.copy_from(xk_testkit::kernel::HEADROOM, front).ok()?;
        message.join(pool.copy_from(0, back).ok()?);
        Some(message)
    }

    /// Looks at what was sent, and at the bounds.
    fn check(&self) {
        for (at, bottom) in self.bottoms.borrow().iter().enumerate() {
            for sent in bottom.take_sent() {
                let octets = xk_testkit::kernel::octets(&sent.message);
                self.check_sent(&octets, at);
                *self.last[at.min(1)].borrow_mut() = octets;
            }
        }
        let (descriptors, _) = self.cx.live();
        assert!(descriptors <= DESCRIPTORS_LIVE_MAX, "messages pile up");
        assert!(self.cx.timers() <= TIMERS_MAX, "timers pile up");
        for protocol in &self.protocols {
            let (kind, head) = (protocol.head().kind(), protocol.head());
            let max = match kind {
                "eth" | "arp" | "udp" => 16,
                "ip" => 24,
                "icmp" => 8,
                _ => continue,
            };
            let list = ListSessions::first(0);
            if let Some(list) = protocol.ask(&self.cx, list) {
                assert!(list.total <= max, "{kind} has {} sessions", list.total);
            }
            for (reason, count) in head.drops().list() {
                novelty::note(&(kind, reason.name, count.min(4)));
            }
            novelty::note(&(kind, head.received().min(3)));
        }
    }

    /// Checks that the stack sends valid frames, under its own address.
    fn check_sent(&self, octets: &[u8], at: usize) {
        let Some(Ok(sent)) = octets.first_chunk().map(xk_eth::wire::Header::parse) else {
            panic!("what was sent is no frame");
        };
        assert_eq!(sent.src.0[5], OWN[5] + at as u8, "another's address");
        if self.raw.get() {
            return;
        }
        let payload = &octets[frame::ETH_OCTETS..];
        match octets[12..14] {
            [0x08, 0x06] => assert!(
                xk_arp::wire::Packet::parse_slice(payload).is_ok(),
                "what was sent is no ARP packet"
            ),
            [0x08, 0x00] => self.check_packet(payload),
            _ => panic!("what was sent has another type"),
        }
    }

    fn check_packet(&self, octets: &[u8]) {
        let packet = match xk_ip::wire::Packet::parse(octets) {
            Ok(packet) => packet,
            Err(error) => panic!("what was sent is no IP packet: {error}"),
        };
        let (src, dst) = (packet.header.src, packet.header.dst);
        let ours = [ME, ME_BEYOND].contains(&Ipv4Addr::from(src.octets()));
        novelty::note(&("sent", octets[9], octets[6] & 0x3f, ours));
        if !ours {
            assert!(self.forwards, "sent under the address {src}");
            return;
        }
        let whole = u16::from_be_bytes([octets[6], octets[7]]) & 0x3fff == 0;
        match octets[9] {
            frame::ICMP if whole => {
                let message = xk_icmp::wire::Message::parse(packet.payload);
                assert!(message.is_ok(), "what was sent is no ICMP message");
                novelty::note(&("sent", &packet.payload[..2]));
            }
            frame::UDP if whole => {
                let hosts = (Ipv4Addr::from(src.octets()), Ipv4Addr::from(dst.octets()));
                let payload = frame::udp_payload(packet.payload, hosts);
                assert!(payload.is_some(), "what was sent is no UDP datagram");
            }
            _ => {}
        }
    }

    /// Stops everything: nothing may be left in the pool.
    fn stop(self) {
        for bottom in self.bottoms.borrow().iter() {
            bottom.fail(None);
        }
        let mut held = self.held.take();
        let kept = held.split_off(held.len() / 2);
        for session in held {
            session.close(&self.cx);
        }
        self.cx.stop();
        drop(kept);
        self.top.clear();
        for bottom in self.bottoms.borrow().iter() {
            drop(bottom.take_sent());
        }
        assert_eq!(self.cx.live(), (0, 0), "messages are left after the stop");
    }

    /// Lets time pass: places 0 to 9 are powers of two milliseconds, the others seconds to minutes.
    fn pass(&self, place: usize) {
        let by = match place {
            0..10 => Duration::from_millis(1 << place),
            place => Duration::from_secs(1 << (place - 9)),
        };
        self.cx.advance(by);
    }
}
