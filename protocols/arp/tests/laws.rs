//! The laws that every protocol keeps, checked for `arp` on a layer that takes hardware addresses.

use core::net::Ipv4Addr;
use xk_arp::ArpTable;
use xk_core::graph::{Params, Value};
use xk_core::numbers::Number;
use xk_core::{Answer, Ask, Entry, Kernel, Part, Participants, ProtocolRef, Question};
use xk_kit::control::ClaimHost;
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, World, keeps_all_but};
use xk_testkit::kernel::Lower;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

const SESSIONS_MAX: usize = 256;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
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
        Participants::pair(Part::host(host(side)), Part::host(host(side.other())))
    }

    fn number(&self) -> Option<u32> {
        Some(0x0800)
    }

    fn params(&self, _: Side) -> Params {
        let mut params = Params::default();
        params.set("sessions_max", Value::Integer(SESSIONS_MAX as i64));
        params
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> ProtocolRef {
        // It has no numbers of its own: what stands above is selected on the layer below.
        let number = Number { upper: "top", lower: "eth", number: 0x0800 };
        cx.numbers_mut().add(number).expect("one number");
        xk_testkit::conformance::build(self, cx, side, bottom)
    }

    fn started(&self, world: &World<'_>) {
        for node in [&world.a, &world.b] {
            let host = host(node.side).into();
            let claim = ClaimHost { host };
            assert!(node.protocol.ask(&world.cx, claim).is_some());
        }
    }

    fn sessions_max(&self) -> usize {
        SESSIONS_MAX
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        fn put<Q: Question>(world: &World<'_>, mut question: Q) -> Answer {
            let mut ask = Ask::new(&mut question);
            world.a.protocol.control(&world.cx, &mut ask)
        }
        // The peer's host, which the suite would name, is not to be claimed.
        let host = host(Side::A).into();
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
