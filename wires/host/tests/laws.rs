//! The laws that every wire and every protocol keeps, checked over the loopback interface.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use xk_core::graph::{Params, Value};
use xk_core::{Entry, Kernel, Part, ProtocolRef};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Side, World, bounded, wire};
use xk_testkit::kernel::{Lower, TestKernel};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Times that a look which finds nothing is made again: the system may be late.
const LOOKS: usize = 4;

/// A host of the loopback network that no other test has.
fn host() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let place = (std::process::id() & 0xfff) << 12;
    Ipv4Addr::from_bits(0x7f00_0000 | place | NEXT.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

/// Lets the wires send and receive once; gives how many messages arrived.
fn turn(cx: &Kernel, wires: &[&ProtocolRef]) -> usize {
    for protocol in wires {
        protocol.wire().unwrap().flush(cx, protocol);
    }
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        let poll = |protocol: &&ProtocolRef| protocol.wire().unwrap().poll(cx, protocol, 64);
        let count: usize = wires.iter().map(poll).sum();
        if count > 0 {
            return count;
        }
    }
    0
}

fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

struct HostUdp {
    hosts: [Ipv4Addr; 2],
}

impl HostUdp {
    fn host(&self, side: Side) -> Ipv4Addr {
        self.hosts[side as usize]
    }
}

impl Fixture for HostUdp {
    fn entry(&self) -> &'static Entry {
        &xk_host::UDP_ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(self.host(side), 0)
    }

    fn port(&self, side: Side) -> Option<Part> {
        Some(Part::port(45_000 + side as u16))
    }

    fn params(&self, side: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        params.set("local", text(self.host(side)));
        params
    }

    fn is_anchor(&self) -> bool {
        true
    }

    fn carry(&self, world: &World<'_>) -> usize {
        turn(&world.cx, &[&world.a.protocol, &world.b.protocol])
    }
}

#[test]
fn datagrams_keep_the_laws() {
    let findings = conformance::all(&HostUdp { hosts: [host(), host()] });
    println!("{findings}");
    assert!(findings.held.len() + 23 >= LAWS.len(), "{findings}");
}

/// A wire for frames, and a socket as its peer.
struct HostEth {
    cx: TestKernel,
    wire: ProtocolRef,
    local: SocketAddr,
    peer: UdpSocket,
    prefix: Vec<u8>,
}

impl HostEth {
    fn new(vni: Option<u32>) -> Self {
        let peer = UdpSocket::bind((host(), 47_890)).unwrap();
        let local = SocketAddr::from((host(), 47_890));
        let mut params = Params::default();
        params.set("local", text(local));
        params.set("peer", text(peer.local_addr().unwrap()));
        let mut prefix = Vec::new();
        if let Some(vni) = vni {
            params.set("vni", Value::Integer(vni.into()));
            prefix = xk_host::vxlan::emit(vni).to_vec();
        }
        let cx = TestKernel::new(1);
        let wire = xk_host::ENTRY.add(&cx, "host-eth", &[], &params).unwrap();
        cx.start().unwrap();
        Self { cx, wire, local, peer, prefix }
    }
}

impl wire::WireFixture for HostEth {
    fn cx(&self) -> &Kernel {
        &self.cx
    }

    fn wire(&self) -> &ProtocolRef {
        &self.wire
    }

    fn arrive(&self, octets: &[u8]) {
        let datagram = [&self.prefix, octets].concat();
        self.peer.send_to(&datagram, self.local).unwrap();
        assert_eq!(turn(&self.cx, &[&self.wire]), 1);
    }
}

#[test]
fn frames_keep_the_laws() {
    wire::all(|| HostEth::new(None));
    wire::all(|| HostEth::new(Some(7)));
}
