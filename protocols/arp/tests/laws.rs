//! The laws that every protocol keeps, checked for `arp` on a layer that takes hardware addresses.

use xk_arp::ArpTable;
use xk_core::{Answer, Ask, Entry, HostAddr, Part, Participants, Question};
use xk_kit::control::ClaimHost;
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, World, keeps_all_but};
use xk_testkit::kernel::{Family, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn host(side: Side) -> HostAddr {
    side.host(Family::V4)
}

fn station(side: Side) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + side as u8]
}

struct OnEthernet;

impl Fixture for OnEthernet {
    fn entry(&self) -> &'static Entry {
        &xk_arp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::ether(station(side))
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Host(host(side)), Part::Host(host(side.other())))
    }

    fn number(&self) -> Option<u32> {
        Some(0x0800)
    }

    /// ARP has no numbers of its own.
    fn numbers_below(&self) -> &[(&'static str, u32)] {
        &[("eth", 0x0800)]
    }

    fn started(&self, world: &World<'_>) {
        for node in [&world.a, &world.b] {
            let host = host(node.side);
            let claim = ClaimHost { host };
            assert!(node.protocol.ask(&world.cx, claim).is_some());
        }
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        fn put<Q: Question>(world: &World<'_>, mut question: Q) -> Answer {
            let mut ask = Ask::new(&mut question);
            world.a.protocol.control(&world.cx, &mut ask)
        }
        // The peer's host, which the suite would name, is not to be claimed.
        let host = host(Side::A);
        Some(match name {
            ClaimHost::NAME => put(world, ClaimHost { host }),
            ArpTable::NAME => put(world, ArpTable::default()),
            _ => return None,
        })
    }
}

/// On Ethernet a peer is a station, not a host.
const OF_LAYERS_ON_HOSTS: &str = "what is for many is not for one";

#[test]
fn keeps_the_laws() {
    keeps_all_but(&OnEthernet, &[OF_LAYERS_ON_HOSTS]);
}
