//! The laws that every protocol keeps, checked for `udp` over hosts and over a link.

use xk_core::{Entry, Part};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Side, blocking};
use xk_testkit::kernel::{Family, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Over hosts of a family, or over a link.
struct Over(Option<Family>);

impl Fixture for Over {
    fn entry(&self) -> &'static Entry {
        &xk_udp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        self.0.map_or(Lower::link(1500), |family| Lower::host(side.host(family), 17))
    }

    fn port(&self, side: Side) -> Option<Part> {
        Some(Part::port(5000 + side as u16))
    }

    fn checksum_at(&self) -> Option<usize> {
        self.0.map(|_| 6)
    }
}

#[test]
fn over_hosts() {
    for family in Family::ALL {
        let findings = conformance::all(&Over(Some(family)));
        println!("{family:?}: {findings}");
        assert!(findings.held.len() + 1 >= LAWS.len(), "only type numbers do not apply");
    }
}

#[test]
fn ports_are_chosen_once() {
    blocking::chooses_numbers_of_their_own(&Over(Some(Family::V4)));
}

#[test]
fn over_a_link() {
    println!("{}", conformance::all(&Over(None)));
}
