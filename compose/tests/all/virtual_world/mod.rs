//! Hosts with virtual protocols on two simulated links and a router, a small upper protocol on
//! each, and whatever passes the links.
#![allow(dead_code, reason = "each test file uses a part of it")]

use crate::sim::{built, checked, config, pass, start};
use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use xk_core::numbers::Number;
use xk_core::object::{Enable, OpenError, Popped, PushError};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper,
};
use xk_ip::{AddRoute, RouteInfo};
use xk_kit::rpc::call::{LargestPush, NeedsPseudoHeader};
use xk_sim::{HostId, Sighting, Tap, World};

/// The number on IP of the upper protocol of these tests: Sprite RPC's.
pub(crate) const NUMBER: u32 = 90;
/// Ethernet type of the upper protocol.
pub(crate) const ETHER_TYPE: u16 = 0x3900 + 90;

/// A message that an upper protocol got, with the host that it came from.
pub(crate) type Got = (Ipv4Addr, Vec<u8>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) got: RefCell<Vec<Got>>,
    /// Sessions that messages made.
    pub(crate) made: RefCell<Vec<SessionRef>>,
    pub(crate) largest: Cell<Option<u32>>,
    pub(crate) wants_ip: Cell<bool>,
}

struct Small(Rc<State>);

impl Protocol for Small {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        self.0.made.borrow_mut().push(lower.clone());
        Ok(())
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        let peer = lower.ask(cx, xk_kit::control::PeerHost::default());
        let peer = peer.expect("a session of hosts").host.to_v4().expect("of IPv4");
        // The first octet says how many follow: Ethernet pads.
        let octets: Vec<u8> = message.octets().collect();
        self.0.got.borrow_mut().push((peer, octets));
        Ok(())
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if ask.get::<NeedsPseudoHeader>().is_some() && self.0.wants_ip.get() {
            return Answer::Answered;
        }
        match self.0.largest.get() {
            Some(octets) => ask.answer::<LargestPush>(|q| q.octets = octets),
            None => Answer::Unknown,
        }
    }
}

/// A frame that passed a link: its sender, its type, its octets.
pub(crate) type Frame = (String, u16, Vec<u8>);

#[derive(Default)]
pub(crate) struct Frames(pub(crate) RefCell<Vec<Frame>>);

impl Tap for Frames {
    fn frame(&self, sighting: Sighting<'_>) {
        let octets: Vec<u8> = sighting.frame.octets().collect();
        let kind = u16::from_be_bytes([octets[12], octets[13]]);
        let line = (sighting.host_name.to_owned(), kind, octets);
        self.0.borrow_mut().push(line);
    }
}

/// Hosts, and an upper protocol on each that has a node `low`.
pub(crate) struct Net {
    pub(crate) world: World,
    pub(crate) frames: Rc<Frames>,
    pub(crate) states: Vec<(HostId, ProtocolRef, ProtocolRef, Rc<State>)>,
}

impl Net {
    /// Builds and starts a graph; upper protocols stand on the node `low` of each host, and may
    /// push `largest` octets.
    pub(crate) fn new(source: &str, seed: u64, largest: Option<u32>) -> Self {
        let graph = checked(source);
        let mut world = built(&graph, config(seed));
        let frames = Rc::new(Frames::default());
        world.network().set_tap(Some(frames.clone()));
        let mut states = Vec::new();
        for host in graph.graph().expand() {
            let id = world.find(&host.name).unwrap();
            let cx = world.kernel(id).unwrap();
            let Some(low) = cx.find_protocol("low") else {
                continue;
            };
            let numbers = [("ip", NUMBER), ("eth", u32::from(ETHER_TYPE)), ("fragment", 200)];
            for (lower, number) in numbers {
                let upper = "small";
                let entry = Number { upper, lower, number };
                cx.numbers_mut().add(entry).unwrap();
            }
            let state = Rc::new(State::default());
            state.largest.set(largest);
            let small = cx.add_protocol("small", "small", Small(state.clone()));
            states.push((id, small, low, state));
        }
        start(&graph, &mut world, source);
        let mut net = Self { world, frames, states };
        for at in 0..net.states.len() {
            let _ = net.enable(at).unwrap();
        }
        net
    }

    pub(crate) fn enable(&mut self, at: usize) -> Result<Enable, OpenError> {
        let (id, small, low, _) = self.states[at].clone();
        let any = Participants::local(Part::Any);
        let enabled = self.world.enter(id, |cx| low.open_enable(cx, Upper::new(&small), any));
        enabled.unwrap()
    }

    /// Opens a session of one host's upper protocol to a host.
    pub(crate) fn open(&mut self, at: usize, to: &str) -> Result<SessionRef, OpenError> {
        let (id, small, low, _) = self.states[at].clone();
        let both = Participants::pair(Part::Any, Part::Host(to.parse().unwrap()));
        let opened = self.world.enter(id, |cx| low.open(cx, Upper::new(&small), both));
        opened.unwrap()
    }

    pub(crate) fn push(
        &mut self,
        at: usize,
        session: &SessionRef,
        octets: &[u8],
    ) -> Result<(), PushError> {
        let id = self.states[at].0;
        let pushed = self.world.enter(id, |cx| {
            let message = cx.pool().copy_from(128, octets).unwrap();
            session.push(cx, message)
        });
        pushed.unwrap()
    }

    /// Lets time pass.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        pass(&mut self.world, Duration::from_millis(ms));
    }

    /// Messages that one host's upper protocol got since the last look.
    pub(crate) fn got(&self, at: usize) -> Vec<Got> {
        self.states[at].3.got.take()
    }

    /// The types of the frames that this host sent since the last look, ARP's left out; all are
    /// forgotten.
    pub(crate) fn sent(&self, host: &str) -> Vec<u16> {
        let frames = self.frames.0.take();
        let own = frames.into_iter().filter(|(who, ..)| who == host);
        own.map(|(_, kind, _)| kind).filter(|kind| *kind != 0x0806).collect()
    }
}

/// A message whose octets tell it from others.
pub(crate) fn message(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n * 31 + at) as u8).collect()
}

/// Two hosts on one link, one behind a router; `low` is what `lower` makes of `link` and `ip`.
pub(crate) fn graph(lower: &str, link: &str) -> String {
    let host = |name: &str, n: u32, lan: &str, address: &str, router: &str| {
        format!(
            "host {name} {{\n sim link={lan}\n eth sim address=\"02:00:00:00:00:0{n}\"\n arp eth lifetime=\"10s\"\n {link}\n \
             ip arp {{ address \"{address}/24\"; route default via=\"{router}\"; }}\n icmp ip\n {lower}\n}}\n"
        )
    };
    [
        host("a", 1, "lan1", "10.0.0.1", "10.0.0.254"),
        host("b", 2, "lan1", "10.0.0.2", "10.0.0.254"),
        host("far", 3, "lan2", "10.0.1.2", "10.0.1.254"),
        "host router {\n sim link=lan1 name=w1\n sim link=lan2 name=w2\n eth w1 name=e1\n eth w2 name=e2\n arp e1 name=a1\n \
         arp e2 name=a2\n ip a1 a2 forward=#true { address \"10.0.0.254/24\" on=a1; address \"10.0.1.254/24\" on=a2; }\n icmp ip\n}\n"
            .into(),
    ]
    .concat()
}

/// The links, with what stands in the braces of the first.
pub(crate) fn links(first: &str) -> String {
    format!("link lan1 delay=\"1ms\" {first}\nlink lan2 delay=\"1ms\"\n")
}

/// Adds a route to 10.0.0.2 on a host.
pub(crate) fn add_route(net: &mut Net, host: &str, via: Option<&str>, on: &str) {
    let route = RouteInfo {
        network: "10.0.0.2/32".parse().unwrap(),
        via: via.map(|via| via.parse().unwrap()),
        on: on.into(),
        metric: 0,
    };
    let added = false;
    let id = net.world.find(host).unwrap();
    let added = net.world.enter(id, |cx| {
        let ip = cx.find_protocol("ip").unwrap();
        ip.ask(cx, AddRoute { route, added }).unwrap().added
    });
    assert_eq!(added, Some(true));
}
