//! The laws of the rpc realm, checked for a machine that calls another one.

use xk_core::graph::{Params, Value};
use xk_core::{Entry, Part, Participant, Participants};
use xk_kit::rpc::call::PROCEDURE;
use xk_kit::rpc::invoke::MACHINE;
use xk_testkit::conformance::Side;
use xk_testkit::conformance::calls::{self, CallFixture, LAWS};
use xk_testkit::kernel::{Family, Lower};

struct Machines;

fn machine(side: Side) -> u16 {
    1 + side as u16
}

impl CallFixture for Machines {
    fn entry(&self) -> &'static Entry {
        &xk_sr::ENTRY
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 0)
    }

    fn params(&self, side: Side) -> Params {
        let mut params = Params::default();
        params.set("vm", Value::Integer(machine(side).into()));
        params
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        let peer = Participant::of(self.lower(side.other()).own().expect("a host"));
        let peer = peer.with(Part::Number(MACHINE, machine(side.other()).into()));
        Participants::pair(Part::Any, peer.with(Part::Number(PROCEDURE, procedure.into())))
    }
}

#[test]
fn keeps_the_laws() {
    let findings = calls::all(&Machines);
    println!("{findings}");
    assert_eq!(findings.held.len(), LAWS.len() - 1, "all but that of allocations");
}
