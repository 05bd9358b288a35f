//! The laws that every protocol keeps, checked for `vipsize` where the cutoff lets all messages go
//! to one of the layers.

use core::net::Ipv4Addr;
use xk_core::graph::{Build, Params, Value};
use xk_core::numbers::Number;
use xk_core::{Entry, Kernel, Part, Participants, ProtocolRef};
use xk_testkit::conformance::{CountingAllocator, Fixture, Side, keeps_all_but};
use xk_testkit::kernel::{Bottom, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// As large as it is where nothing is said.
const SESSIONS_MAX: usize = 65_536;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

struct BySize;

impl Fixture for BySize {
    fn entry(&self) -> &'static Entry {
        &xk_vipsize::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(host(side), 90)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::host(host(side.other())))
    }

    fn number(&self) -> Option<u32> {
        Some(90)
    }

    fn sessions_max(&self) -> usize {
        SESSIONS_MAX
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> ProtocolRef {
        // It has no numbers of its own: what stands above is selected on the layers below.
        let number = Number { upper: "top", lower: "ip", number: 90 };
        cx.numbers_mut().add(number).expect("one number");
        let rest = Bottom::add(cx, "rest", self.lower(side));
        let mut params = Params::default();
        let mut cutoff = Params::default();
        cutoff.set("octets", Value::Octets(65_515));
        params.add_block("cutoff", cutoff);
        let built = (xk_vipsize::ENTRY.build)(&mut Build {
            cx,
            entry: &xk_vipsize::ENTRY,
            name: "vipsize",
            lowers: &[bottom.clone(), rest.protocol().clone()],
            params: &params,
        });
        built.expect("it has both lowers")
    }
}

/// All layers below are opened at once, and refuse a protocol without a number there; those of the
/// suite take any.
const OF_THE_LAYERS_BELOW: [&str; 1] = ["no type number, no session"];

#[test]
fn keeps_the_laws() {
    keeps_all_but(&BySize, &OF_THE_LAYERS_BELOW);
}
