//! A small simulated network of a router, a host and an attacker: frames and noise arrive, hosts
//! talk, every question there is gets asked, time passes. Whatever comes, the tables stay within
//! their bounds, and nothing is left at the end.
//!
//! An input is a sequence of operations, each an octet (the operation in its lower half, a place in
//! its upper half), the length of its argument, and the argument.

use crate::frame::Ether;
use crate::novelty;
use core::net::Ipv4Addr;
use core::time::Duration;
use std::cell::RefCell;
use xk_compose::{CheckedGraph, SimulationConfig, simulate, start_world};
use xk_core::control::{Describe, ListMaps, ListSessions, Report};
use xk_core::{HostAddr, Kernel, Participants, ProtocolRef, SessionRef, reason};
use xk_kit::control::{
    ClaimHost, DeliverError, HostConflict, IsLocalHost, JoinGroup, LinkType, MaxPacket, MyEther,
    MyHost, NetworkError, NetworkErrorKind, OptPacket, PeerHost, Resolve, SendError,
    SendErrorCause, Start,
};
use xk_kit::net::drop_sources::ListDropSources;
use xk_kit::{Cidr, EthAddr};
use xk_noise::{FRAME_OCTETS_MAX, Generator, Kind, Target};
use xk_sim::{HostId, World};
use xk_testkit::kernel::Top;

/// The attacked station and host.
const STATION: Ether = [2, 0, 0, 0, 0, 1];
const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Operations of one input.
const OPERATIONS_MAX: usize = 200;
/// Frames of all noise of one input.
const NOISE_MAX: u32 = 3000;
/// Octets of all messages.
const POOL_OCTETS: usize = 8 << 20;
/// Descriptors in use: what ARP and reassembly of three hosts keep, and what is in flight.
const DESCRIPTORS_LIVE_MAX: u32 = 4000;

const GRAPH: &str = r#"
host victim {
    sim name=left link=lan address="02:00:00:00:00:01"
    sim name=right link=wan
    eth left sessions_max=32 passive_max=20
    eth right name=eth2 sessions_max=32
    arp eth sessions_max=16 entries_max=8 queue_max=4 waiting_max=12
    arp eth2 name=arp2 sessions_max=16 entries_max=8 queue_max=4
    ip arp arp2 forward=#true sessions_max=24 paths_max=4 next_hops_max=4 loop_max=4 reassembly_octets_max="64KiB" reassembly_datagrams_max=12 {
        address "10.0.0.1/8" on=arp
        address "192.0.2.1/24" on=arp2
    }
    icmp ip sessions_max=8 timestamp=#true answers_per_second=1000 answers_burst=10
    udp ip sessions_max=16 passive_max=10
    echo udp port=7
    discard udp port=9
}
host other {
    sim link=lan
    eth sim
    arp eth entries_max=16
    ip arp { address "10.0.0.2/8"; }
    icmp ip
    udp ip
    echo udp port=7
    probe udp name=client to="port7@10.0.0.1" count=5 interval="10ms"
    probe icmp name=ping to="10.0.0.1" count=5 interval="10ms" size=3000
}
host attacker {
    sim link=lan
}
host beyond {
    sim link=wan
    eth sim
    arp eth
    ip arp { address "192.0.2.2/24"; route default via="192.0.2.1"; }
    icmp ip
    udp ip
    probe udp to="port7@10.0.0.2" count=5 interval="10ms" size=2000
}
link lan delay="20us"
link wan delay="20us" kind=pointtopoint mtu=600
"#;

thread_local! {
    static CHECKED: CheckedGraph = xk_compose::check(GRAPH, "attack.kdl", &xk_catalog::standard())
        .unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
}

struct Attack {
    world: World,
    top: Top,
    wire: RefCell<Option<SessionRef>>,
    held: Vec<SessionRef>,
    client: Top,
    noise: u32,
}

/// Runs one input.
///
/// # Panics
/// If a host breaks one of its bounds.
pub fn run(data: &[u8]) {
    let mut attack = CHECKED.with(Attack::new);
    let mut rest = data;
    for _ in 0..OPERATIONS_MAX {
        let Some((&[operation, len], behind)) = rest.split_first_chunk() else {
            break;
        };
        let (argument, behind) = behind.split_at(usize::from(len).min(behind.len()));
        rest = behind;
        attack.operate(operation & 15, operation >> 4, argument);
        attack.check();
    }
    attack.stop();
}

const HOSTS: [&str; 3] = ["victim", "other", "beyond"];

impl Attack {
    fn new(graph: &CheckedGraph) -> Self {
        let config =
            SimulationConfig { pool_octets_max: POOL_OCTETS, ..SimulationConfig::default() };
        let mut world = simulate(graph, config).unwrap_or_else(|e| panic!("{}", e.to_text()));
        let add = |world: &World, name, kind| {
            let id = world.find(name).expect("a host of the graph");
            Top::add_kind(world.kernel(id).expect("its kernel"), kind, "top")
        };
        let (top, client) = (add(&world, "attacker", "top"), add(&world, "victim", "probe"));
        top.forget(true);
        client.forget(true);
        start_world(graph, &mut world).unwrap_or_else(|e| panic!("{}", e.to_text()));
        let attack =
            Self { world, top, wire: RefCell::default(), held: Vec::new(), client, noise: 0 };
        let kernel = attack.kernel("attacker");
        let sim = kernel.find_protocol("sim").expect("its wire");
        let session = attack.top.open(kernel, &sim, Participants::default());
        *attack.wire.borrow_mut() = session.ok();
        attack
    }

    fn id(&self, name: &str) -> HostId {
        self.world.find(name).expect("a host of the graph")
    }

    fn kernel(&self, name: &str) -> &Kernel {
        let kernel = self.world.kernel(self.id(name));
        kernel.expect("a host of the graph")
    }

    fn send(&self, frame: &[u8]) {
        let kernel = self.kernel("attacker");
        if let (Some(session), Ok(message)) =
            (&*self.wire.borrow(), kernel.pool().copy_from(0, frame))
        {
            let _ = session.push(kernel, message);
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.world.now() + time;
        self.world.run_until(until);
    }

    fn operate(&mut self, operation: u8, place: u8, argument: &[u8]) {
        match operation & 7 {
            0 => {
                // Addressed right, most of the time: else it would get no further than the first
                // layer.
                let mut frame = argument.to_vec();
                if place & 1 == 0
                    && let Some(to) = frame.first_chunk_mut()
                {
                    *to = STATION;
                }
                self.send(&frame);
            }
            1 => self.make_noise(argument),
            2 => self.pass(match place {
                0..10 => Duration::from_micros(10 << place),
                place => Duration::from_millis(500 << (place - 9)),
            }),
            3 => {
                if let Some(session) = self.held.get(usize::from(place)).cloned() {
                    let message = self.kernel("victim").pool().copy_from(128, argument);
                    let id = self.id("victim");
                    self.world.enter(id, |cx| {
                        if let Ok(message) = message {
                            let _ = session.push(cx, message);
                        }
                    });
                }
            }
            4 => self.ask(place, argument),
            5 => self.open(place, argument),
            6 => {
                if let Some(session) = self.held.pop() {
                    let id = self.id("victim");
                    self.world.enter(id, |cx| session.close(cx));
                }
            }
            _ => self.client.refuse((place & 1 == 1).then_some(&reason::NO_PORT)),
        }
    }

    fn make_noise(&mut self, argument: &[u8]) {
        let Some(&[kind, seed, count]) = argument.first_chunk() else {
            return;
        };
        let word = Kind::WORDS[usize::from(kind) % Kind::WORDS.len()];
        let target = Target {
            ether: EthAddr(STATION),
            host: VICTIM,
            node: Default::default(),
            port: 7,
            sources: Cidr::new(Ipv4Addr::new(10, 0, 0, 0), 8)
                .unwrap_or_else(|_| panic!("a network")),
        };
        let kind = Kind::from_word(word).unwrap_or(Kind::Mixed);
        let mut generator = Generator::new(target, kind, u64::from(seed));
        let mut frame = [0; FRAME_OCTETS_MAX];
        for _ in 0..count {
            if self.noise >= NOISE_MAX {
                return;
            }
            self.noise += 1;
            let len = generator.next(&mut frame);
            self.send(&frame[..len]);
            self.pass(Duration::from_micros(5));
        }
    }

    fn open(&mut self, place: u8, argument: &[u8]) {
        let text = String::from_utf8_lossy(argument);
        let (Ok(participants), true) = (text.parse::<Participants>(), self.held.len() < 8) else {
            return;
        };
        let layer = ["udp", "icmp", "ip"][usize::from(place) % 3];
        let kernel = self.kernel("victim");
        let Some(protocol) = kernel.find_protocol(layer) else {
            return;
        };
        let (client, id) = (&self.client, self.id("victim"));
        let opened = self.world.enter(id, |cx| client.open(cx, &protocol, participants));
        if let Some(Ok(session)) = opened {
            self.held.push(session);
        }
    }

    /// Puts a question to a protocol and to its sessions.
    fn ask(&mut self, place: u8, argument: &[u8]) {
        let [which, object, a, b, c, d, ..] = *argument else {
            return;
        };
        let host = HOSTS[usize::from(place) % HOSTS.len()];
        let kernel = self.kernel(host);
        let protocols = kernel.protocols();
        let Some(protocol) = protocols.get(usize::from(object) % protocols.len().max(1)).cloned()
        else {
            return;
        };
        let (id, packet) = (self.id(host), argument.to_vec());
        let address = Ipv4Addr::new(a, b, c, d);
        self.world.enter(id, |cx| {
            question(cx, &protocol, which, address, &packet);
        });
    }

    /// Looks whether everything is within its bounds.
    fn check(&self) {
        let kernel = self.kernel("victim");
        for (name, max) in [("eth", 32), ("arp", 16), ("ip", 24), ("icmp", 8), ("udp", 16)] {
            let protocol = kernel.find_protocol(name).expect("a layer");
            let list = ListSessions::first(0);
            let total = protocol.ask(kernel, list).map_or(0, |list| list.total);
            assert!(total <= max, "{name} has {total} sessions");
            let drops = protocol.head().drops().list();
            for (reason, count) in &drops {
                novelty::note(&(name, reason.name, (*count).min(4)));
            }
            let drop_sources = protocol.ask(kernel, ListDropSources::default());
            let sources = drop_sources.map_or(0, |drop_sources| drop_sources.sources.len());
            assert!(sources <= 32, "{name} knows {sources} sources");
        }
        let live = kernel.pool().stats().descriptors_live;
        assert!(live <= DESCRIPTORS_LIVE_MAX, "{live} messages");
        assert!(kernel.timers() <= 1000, "timers pile up");
    }

    fn stop(mut self) {
        let pool = self.kernel("victim").pool().clone();
        self.pass(Duration::from_millis(10));
        drop(self.wire.take());
        self.world.stop();
        drop((std::mem::take(&mut self.held), self.world));
        self.top.clear();
        self.client.clear();
        let stats = pool.stats();
        assert_eq!(
            (stats.buffers_live, stats.descriptors_live),
            (0, 0),
            "messages are left after the stop"
        );
    }
}

/// Asks a protocol one of the questions that there are.
fn question(cx: &Kernel, to: &ProtocolRef, which: u8, v4: Ipv4Addr, octets: &[u8]) {
    // Of either family: none has a reason to be of the protocol's own.
    let host = match which < 0x80 {
        true => HostAddr::v4(v4),
        false => HostAddr::v6(v4.to_ipv6_compatible(), 0),
    };
    let packet = || cx.pool().copy_from(128, octets).ok();
    let mtu = u32::from(octets.last().copied().unwrap_or(0)) * 7;
    let error = NetworkError {
        reporter: Some(host),
        start: Start::new(octets),
        ..NetworkError::new(NetworkErrorKind::PacketTooBig { mtu })
    };
    match which % 20 {
        0 => drop(to.ask(cx, Describe::default())),
        1 => drop(to.ask(cx, ListMaps::default())),
        2 => drop(to.ask(cx, Report::default())),
        3 => drop(to.ask(cx, ClaimHost { host })),
        4 => drop(to.ask(cx, HostConflict { host, address: STATION })),
        5 => drop(to.ask(cx, IsLocalHost { host, local: false })),
        6 => drop(
            to.ask(cx, JoinGroup { address: octets.first_chunk().copied().unwrap_or_default() }),
        ),
        7 => drop(to.ask(cx, LinkType::default())),
        8 => drop(to.ask(cx, MaxPacket::default())),
        9 => drop(to.ask(cx, OptPacket::default())),
        10 => drop(to.ask(cx, MyEther::default())),
        11 => drop(to.ask(cx, MyHost { host })),
        12 => drop(to.ask(cx, PeerHost { host })),
        13 => drop(to.ask(cx, Resolve { host, address: None })),
        14 => {
            let causes = [
                SendErrorCause::Refused(&reason::NO_PORT),
                SendErrorCause::NoRoute,
                SendErrorCause::HostUnreachable,
                SendErrorCause::TimeToLive,
                SendErrorCause::Reassembly,
                SendErrorCause::TooBig { mtu: u16::from(octets[0]) },
                SendErrorCause::Parameter { pointer: octets[0] },
            ];
            let cause = causes[usize::from(octets[1]) % causes.len()];
            let (packet, link_broadcast) = (packet(), octets[0] & 1 == 1);
            drop(to.ask(cx, SendError { packet, cause, link_broadcast }));
        }
        15 => drop(to.ask(cx, error)),
        16 => drop(to.ask(
            cx,
            DeliverError { source: VICTIM.into(), destination: host, protocol: 17, error },
        )),
        17 => drop(to.ask(cx, xk_arp::ArpTable::default())),
        18 => {
            let Ok(network) = Cidr::new(v4, octets[0] % 33) else {
                return;
            };
            let route = xk_ip::RouteInfo { network, via: None, on: "arp".into(), metric: 1 };
            drop(to.ask(cx, xk_ip::AddRoute { route, added: false }));
            drop(to.ask(cx, xk_ip::ListRoutes::default()));
            let via = None;
            let _ = to.ask(cx, xk_ip::RemoveRoute { network, via, removed: 0 });
        }
        _ => {
            let list = ListSessions::first(16);
            for session in to.ask(cx, list).unwrap_or_default().here() {
                drop(session.ask(cx, Describe::default()));
                let _ = session.ask(cx, OptPacket::default());
            }
        }
    }
}
