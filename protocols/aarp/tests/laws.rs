//! The laws that every protocol keeps, checked for `aarp` on a layer that takes hardware addresses.

use core::time::Duration;
use xk_aarp::AarpTable;
use xk_core::graph::{Params, Value};
use xk_core::{Answer, Ask, Entry, Participants, Question};
use xk_kit::net::appletalk::{ClaimNode, node};
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, World, bounded, keeps_all_but};
use xk_testkit::kernel::Lower;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn station(side: Side) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + side as u8]
}

fn claim(side: Side) -> ClaimNode {
    ClaimNode { claim: 1, first: 10, last: 19, net: 10, node: 17 + side as u8, is_only: true }
}

struct OnEthernet;

impl Fixture for OnEthernet {
    fn entry(&self) -> &'static Entry {
        &xk_aarp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::ether(station(side))
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(xk_core::Part::Any, node(10, 17 + side.other() as u8))
    }

    fn number(&self) -> Option<u32> {
        Some(0x0002_809b)
    }

    /// AARP has no numbers of its own.
    fn numbers_below(&self) -> &[(&'static str, u32)] {
        &[("eth", 0x0002_809b)]
    }

    fn params(&self, _: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        params.set("probes", Value::Integer(1));
        params.set("probe_interval", Value::Duration(Duration::from_millis(1)));
        params
    }

    fn started(&self, world: &World<'_>) {
        for side in [Side::A, Side::B] {
            let protocol = &world.node(side).protocol;
            assert!(protocol.ask(&world.cx, claim(side)).is_some());
        }
        world.cx.advance(Duration::from_millis(10));
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        fn put<Q: Question>(world: &World<'_>, mut question: Q) -> Answer {
            let mut ask = Ask::new(&mut question);
            world.a.protocol.control(&world.cx, &mut ask)
        }
        Some(match name {
            ClaimNode::NAME => put(world, claim(Side::A)),
            AarpTable::NAME => put(world, AarpTable::default()),
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
