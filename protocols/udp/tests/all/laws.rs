//! The laws that every protocol keeps, checked for `udp` over hosts and over a link.

use xk_core::graph::{Params, Value};
use xk_core::{Entry, HostAddr, Part, Participant, Participants};
use xk_testkit::conformance::{self, CountingAllocator, Fixture, LAWS, Side, blocking};
use xk_testkit::kernel::{Family, Lower};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// The port that the protocol above enables on each side.
fn port(side: Side) -> Part {
    Part::port(5000 + side as u16)
}

fn params() -> Params {
    let mut params = Params::default();
    params.set("sessions_max", Value::Integer(256));
    params
}

struct OverHosts(Family);

impl Fixture for OverHosts {
    fn entry(&self) -> &'static Entry {
        &xk_udp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(self.0.host(1 + side as u32), 17)
    }

    fn open(&self, side: Side) -> Participants {
        let peer = Participant::of(Part::Host(self.0.host(1 + side.other() as u32)))
            .with(port(side.other()));
        Participants::pair(port(side), peer)
    }

    fn enable(&self, side: Side) -> Option<Participants> {
        Some(Participants::local(port(side)))
    }

    fn checksum_at(&self) -> Option<usize> {
        Some(6)
    }

    fn enable_at(&self, side: Side, host: HostAddr) -> Option<Participants> {
        let local = Participant::of(Part::Host(host)).with(port(side));
        Some(Participants::local(local))
    }

    fn params(&self, _: Side) -> Params {
        params()
    }

    fn sessions_max(&self) -> usize {
        256
    }
}

struct OverLink;

impl Fixture for OverLink {
    fn entry(&self) -> &'static Entry {
        &xk_udp::ENTRY
    }

    fn lower(&self, _: Side) -> Lower {
        Lower::link(1500)
    }

    fn open(&self, side: Side) -> Participants {
        Participants::pair(port(side), port(side.other()))
    }

    fn enable(&self, side: Side) -> Option<Participants> {
        OverHosts(Family::V4).enable(side)
    }

    fn params(&self, _: Side) -> Params {
        params()
    }

    fn sessions_max(&self) -> usize {
        256
    }
}

#[test]
fn over_hosts() {
    for family in Family::ALL {
        let findings = conformance::all(&OverHosts(family));
        println!("{family:?}: {findings}");
        assert!(findings.held.len() + 1 >= LAWS.len(), "only type numbers do not apply");
    }
}

/// Opens with any port of ours.
struct AnyPort;

impl Fixture for AnyPort {
    fn entry(&self) -> &'static Entry {
        &xk_udp::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        OverHosts(Family::V4).lower(side)
    }

    fn open(&self, side: Side) -> Participants {
        let mut ends = OverHosts(Family::V4).open(side);
        let local = ends.local_mut().expect("a local participant");
        *local = Participant::of(Part::Any);
        ends
    }

    fn params(&self, _: Side) -> Params {
        let mut params = Params::default();
        params.set("sessions_max", Value::Integer(65_536));
        params
    }
}

#[test]
fn ports_are_chosen_once() {
    blocking::chooses_numbers_of_their_own(&AnyPort);
}

#[test]
fn over_a_link() {
    println!("{}", conformance::all(&OverLink));
}
