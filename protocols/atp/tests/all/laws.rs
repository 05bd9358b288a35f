//! The laws of the rpc realm, checked for transactions of both kinds.

use core::time::Duration;
use xk_core::graph::{Params, Value};
use xk_core::{Entry, Reason};
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::conformance::{CountingAllocator, Side};
use xk_testkit::kernel::{Family, Lower};

/// Counts, so that the law "no allocation per call" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

struct OnMessages {
    is_exactly_once: bool,
}

impl CallFixture for OnMessages {
    fn entry(&self) -> &'static Entry {
        &xk_atp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 0)
    }

    fn params(&self, _: Side) -> Params {
        let mut params = Params::default();
        params.set("xo", Value::Bool(self.is_exactly_once));
        params.set("tries", Value::Integer(20));
        params
    }

    fn has_procedures(&self) -> bool {
        false
    }

    /// The release goes behind the reply, and no answer to it tells that it has left.
    fn lateness(&self) -> Duration {
        Duration::from_millis(2)
    }

    /// Octets of one packet.
    fn octets_max(&self) -> usize {
        578
    }

    /// ATP has no words for a refusal.
    fn refusals(&self) -> &'static [&'static Reason] {
        &[]
    }
}

#[test]
fn keeps_the_laws() {
    for is_exactly_once in [false, true] {
        println!("exactly once: {is_exactly_once}");
        let findings = calls::all(&OnMessages { is_exactly_once });
        println!("{findings}");
        assert_eq!(findings.held.len(), LAWS.len() - 1, "all but that of procedures");
    }
}
