//! The laws that every protocol keeps, checked for `aep` over a link.

use xk_aep::AepFigures;
use xk_core::{Answer, Ask, Entry, Kernel, Participants};
use xk_kit::net::appletalk::node;
use xk_testkit::conformance::{self, CountingAllocator, Fixture, Node, Receiver, Side, World};
use xk_testkit::kernel::Lower;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

struct OverALink;

impl Fixture for OverALink {
    fn entry(&self) -> &'static Entry {
        &xk_aep::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(586)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(xk_core::Part::Any, node(10, 17 + side.other() as u8))
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
        (name == "aep-figures").then(|| {
            let mut figures = AepFigures::default();
            world.a.protocol.control(&world.cx, &mut Ask::new(&mut figures))
        })
    }
}

#[test]
fn keeps_the_laws() {
    println!("{}", conformance::all(&OverALink));
}
