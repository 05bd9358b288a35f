//! The laws that every protocol keeps, checked for `ip` over a link and over a layer that takes
//! hosts.

use core::net::Ipv4Addr;
use xk_core::graph::{Params, Value};
use xk_core::{Answer, Ask, Entry, Part, Participants, Question};
use xk_ip::{AddRoute, IpFigures, ListInterfaces, ListRoutes, RemoveRoute, RouteInfo};
use xk_testkit::conformance::{CountingAllocator, Fixture, LAWS, Side, Verdict, World, bounded};
use xk_testkit::kernel::{Lower, Sent};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

/// The layer below, and the octets of fragments that IP holds.
struct Over(fn(Side) -> Lower, u64);

impl Fixture for Over {
    fn entry(&self) -> &'static Entry {
        &xk_ip::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        (self.0)(side)
    }

    fn number(&self) -> Option<u32> {
        Some(17)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::host(host(side.other())))
    }

    fn params(&self, side: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        let mut address = Params::default();
        let text = format!("{}/8", host(side));
        address.set("address", Value::Text(text));
        params.add_block("address", address);
        params.set("reassembly_octets_max", Value::Octets(self.1));
        params
    }

    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        let stranger = Ipv4Addr::from_bits(0x0b00_0001 + n);
        let mut octets: Vec<u8> = sent.message.octets().collect();
        octets[12..16].copy_from_slice(&stranger.octets());
        octets[10..12].fill(0);
        let sum = xk_kit::net::checksum::checksum(&octets[..20]);
        octets[10..12].copy_from_slice(&sum.to_be_bytes());
        let below = self.lower(Side::B).own().map(|_| Part::host(host(Side::A)));
        Ok((below, octets))
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        fn put<Q: Question>(world: &World<'_>, mut question: Q) -> Answer {
            let mut ask = Ask::new(&mut question);
            world.a.protocol.control(&world.cx, &mut ask)
        }
        let network = "192.0.2.0/24".parse().expect("a network");
        let route = RouteInfo { network, via: None, on: String::new(), metric: 1 };
        Some(match name {
            "add-route" => put(world, AddRoute { route, added: false }),
            "remove-route" => {
                let removed = 0;
                put(world, RemoveRoute { network, via: None, removed })
            }
            "list-routes" => put(world, ListRoutes::default()),
            "list-interfaces" => put(world, ListInterfaces::default()),
            "ip-figures" => put(world, IpFigures::default()),
            _ => return None,
        })
    }
}

fn link(_: Side) -> Lower {
    Lower::link(1500)
}

fn hosts(side: Side) -> Lower {
    Lower { kind: "arp", max_packet: 1500, opt_packet: 1500, ..Lower::host(host(side), 0) }
}

/// A law that is skipped: IP has hosts of its own, whose tests are in `host.rs`.
const OF_LAYERS_ON_HOSTS: &str = "what is for many is not for one";

/// Runs all laws but one. Where every frame is to have an outcome at once, fragments are not waited
/// for.
fn keeps_the_laws(lower: fn(Side) -> Lower) {
    for (name, law) in LAWS.iter().filter(|(name, _)| *name != OF_LAYERS_ON_HOSTS) {
        let octets = if name.contains("damage") { 0 } else { 1 << 20 };
        let verdict = law(&Over(lower, octets));
        println!("{name}: {verdict:?}");
        assert_eq!(verdict, Verdict::Holds, "{name}");
    }
}

#[test]
fn over_a_link() {
    keeps_the_laws(link);
}

#[test]
fn over_hosts() {
    keeps_the_laws(hosts);
}
