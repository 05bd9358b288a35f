//! A host under test: an `ip` on recording lower protocols, with a recording upper one.
#![allow(dead_code, reason = "each test file uses a part of it")]

use core::cell::RefCell;
use core::net::Ipv4Addr;
use std::rc::Rc;
use xk_core::graph::{BuildError, Params, Value};
use xk_core::numbers::Number;
use xk_core::{Answer, Ask, Kernel, Part, Participants, Protocol, ProtocolRef, SessionRef};
use xk_ip::IpFigures;
use xk_ip::wire::{Fragment, HEADER_LEN, HEADER_LEN_MAX, Header, Options};
use xk_kit::control::{RegisterErrorProtocol, SendError, SendErrorCause};
use xk_testkit::kernel::{Bottom, Lower, Received, TestKernel, Top};

/// The protocol number of the upper protocol.
pub(crate) const NUMBER: u8 = 17;
pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

/// Parameters being put together, as a graph would.
#[derive(Default)]
pub(crate) struct Graph(pub(crate) Params);

impl Graph {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// One interface with 10.0.0.1/24, and a router at 10.0.0.254.
    pub(crate) fn host() -> Self {
        Self::new().address("10.0.0.1/24", "low0").route("default", Some("10.0.0.254"))
    }

    /// Two interfaces that forward between 10.0.0.0/24 and 10.0.1.0/24.
    pub(crate) fn router() -> Self {
        Self::host().address("10.0.1.1/24", "low1").set("forward", Value::Bool(true))
    }

    pub(crate) fn set(mut self, name: &'static str, value: Value) -> Self {
        self.0.set(name, value);
        self
    }

    pub(crate) fn address(mut self, address: &str, on: &str) -> Self {
        let mut block = Params::default();
        block.set("address", Value::Text(address.into()));
        block.set("on", Value::Text(on.into()));
        self.0.add_block("address", block);
        self
    }

    pub(crate) fn route(mut self, network: &str, via: Option<&str>) -> Self {
        let mut block = Params::default();
        block.set("network", Value::Text(network.into()));
        if let Some(via) = via {
            block.set("via", Value::Text(via.into()));
        }
        self.0.add_block("route", block);
        self
    }

    pub(crate) fn group(mut self, group: &str) -> Self {
        let mut block = Params::default();
        block.set("group", Value::Text(group.into()));
        self.0.add_block("group", block);
        self
    }
}

/// The host.
pub(crate) struct Host {
    pub(crate) cx: TestKernel,
    pub(crate) lowers: Vec<Bottom>,
    pub(crate) ip: ProtocolRef,
    pub(crate) top: Top,
}

pub(crate) fn build_on(
    cx: &TestKernel,
    lowers: &[Bottom],
    graph: &Graph,
) -> Result<ProtocolRef, BuildError> {
    let refs: Vec<ProtocolRef> = lowers.iter().map(|l| l.protocol().clone()).collect();
    xk_ip::ENTRY.add(cx, "ip", &refs, &graph.0)
}

impl Host {
    /// Interfaces of these maxima, `low0` and so on.
    pub(crate) fn new(graph: Graph, mtus: &[u32]) -> Self {
        let cx = TestKernel::new(7);
        let lowers: Vec<Bottom> = (0..)
            .zip(mtus)
            .map(|(n, mtu)| {
                let lower = Lower { max_packet: *mtu, opt_packet: *mtu, ..Lower::link(*mtu) };
                Bottom::add(&cx, &format!("low{n}"), lower)
            })
            .collect();
        let ip = build_on(&cx, &lowers, &graph).expect("the graph is right");
        let top = Top::add_kind(&cx, "udp", "top");
        cx.numbers_mut()
            .add(Number { upper: "udp", lower: "ip", number: u32::from(NUMBER) })
            .expect("one number");
        cx.start().expect("it starts");
        Self { cx, lowers, ip, top }
    }

    /// A host with one interface of 1500 octets, whose upper protocol takes everything.
    pub(crate) fn simple() -> Self {
        let host = Self::new(Graph::host(), &[1500]);
        host.enable();
        host
    }

    pub(crate) fn enable(&self) {
        let _ = self
            .top
            .enable(&self.cx, &self.ip, Participants::local(Part::Any))
            .expect("the number is free");
    }

    pub(crate) fn open(&self, peer: Ipv4Addr) -> SessionRef {
        let pair = Participants::pair(Part::Any, Part::host(peer));
        self.top.open(&self.cx, &self.ip, pair).expect("it opens")
    }

    /// Lets octets arrive on an interface.
    pub(crate) fn inject(&self, at: usize, octets: &[u8]) -> bool {
        let message = self.cx.message(octets);
        self.lowers[at].inject(&self.cx, None, message)
    }

    /// Packets that went out on an interface since the last look.
    pub(crate) fn sent(&self, at: usize) -> Vec<Vec<u8>> {
        let sent = self.lowers[at].take_sent();
        sent.iter().map(|s| s.message.octets().collect()).collect()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.top.take_received()
    }

    pub(crate) fn drops(&self) -> u64 {
        self.ip.head().drops().total()
    }

    pub(crate) fn dropped(&self, reason: &xk_core::Reason) -> u64 {
        self.ip.head().drops().of(reason)
    }

    pub(crate) fn figures(&self) -> IpFigures {
        self.ip.ask(&self.cx, IpFigures::default()).expect("its own question")
    }
}

/// A packet for a test, to be varied.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) id: u16,
    pub(crate) fragment: Fragment,
    /// A multiple of four octets.
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn new(src: Ipv4Addr, dst: Ipv4Addr, payload: &[u8]) -> Self {
        Self {
            src,
            dst,
            protocol: NUMBER,
            ttl: 64,
            id: 1,
            fragment: Fragment::WHOLE,
            options: Vec::new(),
            payload: payload.to_vec(),
        }
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        let header = Header::new(self.src, self.dst, self.protocol, self.payload.len());
        let mut header = header.expect("a payload that fits");
        header.ttl = self.ttl;
        header.id = self.id;
        header.fragment = self.fragment;
        let mut buf = [0; HEADER_LEN_MAX];
        let options = Options::parse(&self.options).expect("good options");
        let written = header.emit_with(options, &mut buf);
        [written.expect("options that fit"), &self.payload].concat()
    }
}

/// The header of captured octets.
pub(crate) fn header(octets: &[u8]) -> Header {
    let fixed: &[u8; HEADER_LEN] = octets.first_chunk().expect("a header");
    Header::parse(fixed).expect("a good header")
}

/// Octets that differ from place to place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// A notice to an error protocol: why, the packet, and whether it was for more than one.
pub(crate) type Told = (SendErrorCause, Vec<u8>, bool);

/// Registers itself as the error protocol and remembers what it is told.
pub(crate) struct ErrorProtocol(Rc<RefCell<Vec<Told>>>);

impl ErrorProtocol {
    pub(crate) fn add(host: &Host) -> Self {
        let told = Rc::new(RefCell::default());
        let body = Teller(Rc::clone(&told));
        let protocol = host.cx.add_protocol("icmp", "icmp", body);
        let question = RegisterErrorProtocol { protocol };
        assert!(host.ip.ask(&host.cx, question).is_some());
        Self(told)
    }

    pub(crate) fn take(&self) -> Vec<Told> {
        self.0.take()
    }
}

struct Teller(Rc<RefCell<Vec<Told>>>);

impl Protocol for Teller {
    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<SendError>(|q| {
            let packet = q.packet.take().expect("it comes with the packet");
            let packet = packet.octets().collect();
            self.0.borrow_mut().push((q.cause, packet, q.link_broadcast));
        })
    }
}
