//! The laws that every protocol keeps, checked for `null` over a link and over hosts.

use core::net::Ipv4Addr;
use xk_core::graph::{Params, Value};
use xk_core::{Entry, Part, Participants};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Side};
use xk_testkit::kernel::Lower;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

struct OverLink;

impl Fixture for OverLink {
    fn entry(&self) -> &'static Entry {
        &xk_null::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(1500)
    }

    fn number(&self) -> Option<u32> {
        Some(7)
    }

    fn open(&self, _: Side) -> Participants {
        Participants::default()
    }
}

struct OverHosts;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_null::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(host(side), 253)
    }

    fn number(&self) -> Option<u32> {
        Some(7)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::host(host(side.other())))
    }

    fn params(&self, _: Side) -> Params {
        let mut params = Params::default();
        params.set("sessions_max", Value::Integer(256));
        params
    }

    fn sessions_max(&self) -> usize {
        256
    }
}

#[test]
fn over_a_link() {
    let findings = conformance::all(&OverLink);
    println!("{findings}");
    let skipped: Vec<_> = findings.skipped.iter().map(|(law, _)| *law).collect();
    assert_eq!(
        skipped,
        [
            "strangers pin nothing below",
            "strangers do not make it grow",
            "what is held leaves room for strangers",
            "what is for many is not for one"
        ],
        "on a link there are no hosts"
    );
}

#[test]
fn over_hosts() {
    let findings = conformance::all(&OverHosts);
    println!("{findings}");
    assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
}
