//! The laws of the rpc realm, checked for this layer on one that carries one call at a time in each
//! session.

use xk_core::Entry;
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::conformance::{CountingAllocator, Side};
use xk_testkit::kernel::{Family, Lower};

/// Counts, so that the law "no allocation per call" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

struct OnChannels;

impl CallFixture for OnChannels {
    fn entry(&self) -> &'static Entry {
        &xk_deadline::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 0)
    }

    fn has_procedures(&self) -> bool {
        false
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

#[test]
fn keeps_the_laws() {
    let findings = calls::all(&OnChannels);
    println!("{findings}");
    // Which procedure a session stands for is known where `select` or the like is below.
    assert_eq!(findings.held.len(), LAWS.len() - 1, "all but one apply");
}
