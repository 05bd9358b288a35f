//! The laws of the rpc realm.

use xk_core::Entry;
use xk_core::graph::{Params, Value};
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::conformance::{CountingAllocator, Side};
use xk_testkit::kernel::{Family, Lower};

/// Counts, so that the law "no allocation per call" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Octets of a message: more than one group has, and no more than a cut carries.
const OCTETS: usize = 40_000;

struct Vmtp(Family);

impl CallFixture for Vmtp {
    fn entry(&self) -> &'static Entry {
        &xk_vmtp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(self.0), 81)
    }

    fn params(&self, _: Side) -> Params {
        // As many as the law of calls at one time makes.
        let mut params = Params::default();
        params.set("entities", Value::Integer(12));
        params.set("message_max", Value::Integer(OCTETS as i64));
        params
    }

    fn octets_max(&self) -> usize {
        OCTETS
    }
}

#[test]
fn the_laws_of_calls_are_kept() {
    for family in Family::ALL {
        let findings = calls::all(&Vmtp(family));
        println!("{findings}");
        assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
    }
}
