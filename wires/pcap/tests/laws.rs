//! The laws that every protocol keeps, checked for `pcap` on a link and on a layer that takes hosts.

use core::net::Ipv4Addr;
use xk_core::graph::{Params, Value};
use xk_core::{Entry, Part, Participants};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Side};
use xk_testkit::kernel::Lower;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

/// A file that takes everything and keeps nothing.
fn params() -> Params {
    let mut params = Params::default();
    params.set("file", Value::Text("/dev/null".into()));
    params
}

struct OnALink;

impl Fixture for OnALink {
    fn entry(&self) -> &'static Entry {
        &xk_pcap::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(1500)
    }

    fn open(&self, _: Side) -> Participants {
        Participants::default()
    }

    fn params(&self, _: Side) -> Params {
        params()
    }
}

struct OnHosts;

impl Fixture for OnHosts {
    fn entry(&self) -> &'static Entry {
        &xk_pcap::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(host(side), 253)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(Part::Any, Part::Host(host(side.other())))
    }

    fn params(&self, _: Side) -> Params {
        params()
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
