//! The laws that every protocol keeps, checked for `null` over a link and over hosts.

use xk_core::Entry;
use xk_testkit::conformance::{self, CountingAllocator, Fixture, Side, keeps_all_but};
use xk_testkit::kernel::{Family, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Over hosts of a family, or over a link.
struct Over(Option<Family>);

impl Fixture for Over {
    fn entry(&self) -> &'static Entry {
        &xk_null::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        self.0.map_or(Lower::link(1500), |family| Lower::host(side.host(family), 253))
    }

    fn number(&self) -> Option<u32> {
        Some(7)
    }
}

#[test]
fn over_a_link() {
    let findings = conformance::all(&Over(None));
    println!("{findings}");
    let skipped: Vec<_> = findings.skipped.iter().map(|(law, _)| *law).collect();
    assert_eq!(
        skipped,
        [
            "strangers pin nothing below",
            "strangers do not make it grow",
            "what is held leaves room for strangers",
            "a session tells its source",
            "what is for many is not for one"
        ],
        "on a link there are no hosts"
    );
}

#[test]
fn over_hosts() {
    for family in Family::ALL {
        keeps_all_but(&Over(Some(family)), &[]);
    }
}
