//! The laws that every protocol keeps, checked for `tracer` on a link and on a layer that takes hosts.

use core::net::Ipv4Addr;
use xk_core::{Entry, Part, Participants};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Side};
use xk_testkit::kernel::Lower;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

struct OnALink;

impl Fixture for OnALink {
    fn entry(&self) -> &'static Entry {
        &xk_tracer::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(1500)
    }

    fn open(&self, _: Side) -> Participants {
        Participants::default()
    }
}

struct OnHosts;

impl Fixture for OnHosts {
    fn entry(&self) -> &'static Entry {
        &xk_tracer::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(host(side), 253)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::Host(host(side.other())))
    }

    fn sessions_max(&self) -> usize {
        // Of the layer below it wraps 4096, and lets go of closed ones when they have become as many.
        2 * 4096 + 64
    }
}

#[test]
fn on_a_link() {
    let findings = conformance::all(&OnALink);
    println!("{findings}");
    assert_eq!(
        findings.held.len() + 2,
        LAWS.len(),
        "no number, no strangers"
    );
}

#[test]
fn on_hosts() {
    let findings = conformance::all(&OnHosts);
    println!("{findings}");
    assert_eq!(findings.held.len() + 1, LAWS.len(), "no number");
}
