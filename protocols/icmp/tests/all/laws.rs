//! The laws that every protocol keeps, checked for `icmp` over a layer that takes hosts.

use xk_core::{Answer, Ask, Entry, Kernel, Participants};
use xk_icmp::IcmpFigures;
use xk_testkit::conformance::{self, CountingAllocator, Fixture, Node, Receiver, Side, World};
use xk_testkit::kernel::{Family, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

struct OverHosts;

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_icmp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 1)
    }

    fn enable(&self, _: Side) -> Option<Participants> {
        None
    }

    fn opens_nothing(&self) -> Option<&'static str> {
        Some("it answers strangers by itself")
    }

    fn receiver(&self) -> Receiver {
        Receiver::Itself
    }

    fn taken(&self, _: &Kernel, node: &Node) -> u64 {
        // B sends nothing but answers.
        if node.side == Side::B { node.bottom.sent() } else { 0 }
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        (name == "icmp-figures").then(|| {
            let mut figures = IcmpFigures::default();
            world.a.protocol.control(&world.cx, &mut Ask::new(&mut figures))
        })
    }
}

#[test]
fn over_hosts() {
    println!("{}", conformance::all(&OverHosts));
}
