//! The laws that every protocol keeps, checked for this one.

use core::net::Ipv4Addr;
use xk_core::graph::{Params, Value};
use xk_core::{Entry, Part, Participants};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Side};
use xk_testkit::kernel::Lower;

/// Counts, so that the law "no allocation per message" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// How many sessions an instance holds: few, so that strangers reach the bound.
const SESSIONS_MAX: usize = 256;

/// The protocol on a layer whose sessions lead to hosts, so that the suite can send from many of
/// them.
struct OverHosts;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_template::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(host(side), 254)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::Host(host(side.other())))
    }

    fn number(&self) -> Option<u32> {
        Some(7)
    }

    fn params(&self, _: Side) -> Params {
        let mut params = Params::default();
        params.set("sessions_max", Value::Integer(SESSIONS_MAX as i64));
        params
    }

    fn sessions_max(&self) -> usize {
        SESSIONS_MAX
    }
}

#[test]
fn keeps_the_laws() {
    let findings = conformance::all(&OverHosts);
    println!("{findings}");
    assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
}
