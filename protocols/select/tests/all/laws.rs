//! The laws of the rpc realm, checked for SELECT and for the layer that forwards.

use xk_core::Entry;
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::conformance::{CountingAllocator, Side};
use xk_testkit::kernel::{Family, Lower};

/// Counts, so that the law "no allocation per call" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

struct OnChannels(Family, &'static Entry);

impl CallFixture for OnChannels {
    fn entry(&self) -> &'static Entry {
        self.1
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(self.0), 0)
    }
}

#[test]
fn select_keeps_the_laws() {
    for family in Family::ALL {
        let findings = calls::all(&OnChannels(family, &xk_select::ENTRY));
        println!("{family:?}: {findings}");
        assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
    }
}

#[test]
fn forward_keeps_the_laws() {
    for family in Family::ALL {
        let findings = calls::all(&OnChannels(family, &xk_select::FORWARD_ENTRY));
        assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
    }
}
