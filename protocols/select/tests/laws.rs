//! The laws of the rpc realm, checked for SELECT and for the layer that forwards.

use core::net::Ipv4Addr;
use xk_core::{Entry, Part, Participant, Participants};
use xk_kit::rpc::call::PROCEDURE;
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::conformance::{CountingAllocator, Side};
use xk_testkit::kernel::Lower;

/// Counts, so that the law "no allocation per call" can be checked.
#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

struct OnChannels(&'static Entry);

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

impl CallFixture for OnChannels {
    fn entry(&self) -> &'static Entry {
        self.0
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(host(side), 0)
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        let to = Participant::of(Part::Host(host(side.other())));
        let to = to.with(Part::Number(PROCEDURE, procedure.into()));
        Participants::pair(Part::Any, to)
    }
}

#[test]
fn select_keeps_the_laws() {
    let findings = calls::all(&OnChannels(&xk_select::ENTRY));
    println!("{findings}");
    assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
}

#[test]
fn forward_keeps_the_laws() {
    let findings = calls::all(&OnChannels(&xk_select::FORWARD_ENTRY));
    assert_eq!(findings.held.len(), LAWS.len(), "every law applies");
}
