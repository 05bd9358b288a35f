//! The laws that every protocol keeps, checked for `vipsize` where the cutoff lets all messages go
//! to one of the layers.

use xk_core::graph::{Params, Value};
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_testkit::conformance::{Fixture, Side, bounded, keeps_all_but};
use xk_testkit::kernel::{Bottom, Family, Lower};

struct BySize;

impl Fixture for BySize {
    fn entry(&self) -> &'static Entry {
        &xk_vip::vipsize::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 90)
    }

    fn number(&self) -> Option<u32> {
        Some(90)
    }

    /// VIPsize has no numbers of its own.
    fn numbers_below(&self) -> &[(&'static str, u32)] {
        &[("ip", 90)]
    }

    fn params(&self, _: Side) -> Params {
        let mut params = bounded(self.entry(), self.sessions_max());
        let mut cutoff = Params::default();
        cutoff.set("octets", Value::Octets(65_515));
        params.add_block("cutoff", cutoff);
        params
    }

    fn lowers(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> Vec<ProtocolRef> {
        let rest = Bottom::add(cx, "rest", self.lower(side));
        vec![bottom.clone(), rest.protocol().clone()]
    }
}

/// All layers below are opened at once, and refuse a protocol without a number there; those of the
/// suite take any.
const OF_THE_LAYERS_BELOW: [&str; 1] = ["no type number, no session"];

#[test]
fn keeps_the_laws() {
    let late = ["one that comes late is as one at once"];
    keeps_all_but(&BySize, &[&OF_THE_LAYERS_BELOW[..], &late].concat());
}
